//! One statement: which rows it is about, and what becomes of them.

use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, AsArray, RecordBatch, StringArray, UInt64Array, new_null_array,
};
use stratagraph::graph::input::{Findings, canonical_ids, input_schema};
use stratagraph::graph::query::{Action, Assignment, End, Statement, Target};
use stratagraph::graph::schema::GraphType;
use stratagraph::graph::violation::Violation;
use stratagraph::{Result, limits};
use stratagraph_providers::from_datafusion;

use super::Evaluation;
use super::changes::Changes;
use super::values::place;
use super::view::Wanted;

impl Evaluation<'_> {
    pub(super) async fn statement(&mut self, statement: &Statement) -> Result<()> {
        let of = self.of(statement.row.type_id)?;
        match &statement.action {
            Action::Insert(values) => {
                let row = self.assigned(of, &blank(of)?, values)?;
                self.write(of, row)
            }
            Action::Upsert { values, partial } => {
                let row = self.assigned(of, &blank(of)?, values)?;
                let before = match partial {
                    true => self.row_of_key(of, &row).await?,
                    false => None,
                };
                match before {
                    Some(before) => {
                        let row = self.assigned(of, &before, values)?;
                        self.write(of, row)
                    }
                    None => self.write(of, row),
                }
            }
            Action::Update { values, condition } => {
                let wanted = Wanted::Condition(&statement.row, condition);
                let before = self.rows(of, &wanted).await?;
                if before.num_rows() == 0 {
                    return Ok(());
                }
                let rows = self.assigned(of, &before, values)?;
                self.write(of, rows)
            }
            Action::Delete { condition } => {
                let wanted = Wanted::Condition(&statement.row, condition);
                let ids = self.ids(of, &wanted).await?;
                self.delete(of, &ids).await
            }
        }
    }

    /// The row that has the key of a new one.
    async fn row_of_key(&self, of: &GraphType, row: &[ArrayRef]) -> Result<Option<RecordBatch>> {
        let mut key = of.key.clone();
        key.sort_unstable();
        let places = key.iter().map(|id| place(of, Target::Property(*id)));
        let columns = places.map(|at| Ok(Arc::clone(&row[at?])));
        let ids = canonical_ids(&columns.collect::<Result<Vec<_>>>()?, 1)?;
        // A key with a null has no id; the rules refuse it.
        let Some(id) = ids.iter().flatten().next() else {
            return Ok(None);
        };
        let rows = self.rows(of, &Wanted::Id(id)).await?;
        Ok((rows.num_rows() > 0).then_some(rows))
    }

    /// The columns of rows after their assignments, which all read the rows as they were.
    fn assigned(
        &self,
        of: &GraphType,
        before: &RecordBatch,
        values: &[Assignment],
    ) -> Result<Vec<ArrayRef>> {
        let mut columns = before.columns().to_vec();
        for assignment in values {
            let at = place(of, assignment.target)?;
            columns[at] = self.call.column(of, assignment, before)?;
        }
        let sets = |id: u64| values.iter().any(|v| v.target == Target::Property(id));
        self.forget_vectors(of, &mut columns, &sets)?;
        Ok(columns)
    }

    /// A vector belongs to its text: where vectors are filled, one whose text is assigned and that is
    /// not assigned itself is made anew.
    pub(super) fn forget_vectors(
        &self,
        of: &GraphType,
        columns: &mut [ArrayRef],
        sets: &dyn Fn(u64) -> bool,
    ) -> Result<()> {
        for property in of.properties.iter().filter(|_| self.call.fill) {
            let source = property.embed.as_ref().map(|embed| embed.source);
            if source.is_some_and(sets) && !sets(property.id) {
                let at = place(of, Target::Property(property.id))?;
                columns[at] = new_null_array(&property.value_type.arrow(), columns[at].len());
            }
        }
        Ok(())
    }

    /// Looks at rows by themselves and takes them.
    pub(super) fn write(&mut self, of: &GraphType, columns: Vec<ArrayRef>) -> Result<()> {
        let mut findings = Findings::new(limits::VIOLATIONS);
        self.take(of, columns, &mut findings)?;
        findings.into_result()
    }

    /// Takes the rows that break no rule of their own, and gives their ids.
    pub(super) fn take(
        &mut self,
        of: &GraphType,
        mut columns: Vec<ArrayRef>,
        findings: &mut Findings,
    ) -> Result<StringArray> {
        let rows = columns[0].len() as u64;
        let records = (1..=rows).map(|row| self.record + row);
        columns[0] = Arc::new(UInt64Array::from_iter_values(records));
        self.record += rows;
        let known = findings.total();
        missing_ends(of, &columns, findings);
        if findings.total() > known {
            return Ok(StringArray::new_null(0));
        }
        let batch = RecordBatch::try_new(input_schema(of), columns)?;
        let batch = self.rules.apply(of, &batch, findings)?;
        let mut columns = batch.columns().to_vec();
        let fresh = columns[1].null_count() == columns[1].len();
        if columns[1].null_count() > 0 {
            let ids = columns[1].as_string::<i32>().clone();
            let ids = ids.iter().map(|id| match id {
                Some(id) => id.to_owned(),
                None => self.ids.mint(),
            });
            columns[1] = Arc::new(StringArray::from_iter_values(ids.collect::<Vec<_>>()));
        }
        let batch = RecordBatch::try_new(input_schema(of), columns)?;
        let ids = batch.column(1).as_string::<i32>().clone();
        for id in ids.iter().flatten() {
            self.affected.insert((of.id, id.to_owned()));
        }
        let bytes = batch.get_array_memory_size();
        self.memory.try_grow(bytes).map_err(from_datafusion)?;
        let changes = self.changes.entry(of.id);
        let changes = changes.or_insert_with(|| Changes::new(of));
        changes.write(&batch, fresh)?;
        Ok(ids)
    }

    /// Deletes rows, and of nodes all their edges.
    pub(super) async fn delete(&mut self, of: &GraphType, ids: &[String]) -> Result<()> {
        if ids.is_empty() {
            return Ok(());
        }
        self.remove(of, ids);
        let schema = Arc::clone(&self.base.schema);
        for edge in schema.edges() {
            let Some(ends) = &edge.edge else { continue };
            let at = [(ends.from, End::From), (ends.to, End::To)];
            let at = at.into_iter().filter(|(node, _)| *node == of.id);
            let at: Vec<End> = at.map(|(_, end)| end).collect();
            if !at.is_empty() && !of.is_edge() {
                let edges = self.ids(edge, &Wanted::Ends(&at, ids)).await?;
                self.remove(edge, &edges);
            }
        }
        Ok(())
    }

    fn remove(&mut self, of: &GraphType, ids: &[String]) {
        if ids.is_empty() {
            return;
        }
        let changes = self.changes.entry(of.id);
        let changes = changes.or_insert_with(|| Changes::new(of));
        for id in ids {
            changes.delete(id);
            self.affected.insert((of.id, id.clone()));
        }
    }
}

/// One row without values.
fn blank(of: &GraphType) -> Result<RecordBatch> {
    let schema = crate::load::rows_schema(of);
    let columns = schema.fields().iter();
    let columns = columns.map(|field| new_null_array(field.data_type(), 1));
    let columns = columns.collect();
    Ok(RecordBatch::try_new(schema, columns)?)
}

/// Finds edges without an end.
fn missing_ends(of: &GraphType, columns: &[ArrayRef], findings: &mut Findings) {
    if !of.is_edge() {
        return;
    }
    let records = columns[0].as_primitive::<arrow::datatypes::UInt64Type>();
    for (at, name) in [(2, "from"), (3, "to")] {
        for row in (0..columns[at].len()).filter(|row| columns[at].is_null(*row)) {
            let record = records.value(row);
            findings.add(record, || Violation {
                record,
                type_name: of.name.clone(),
                id: String::new(),
                rule: "required",
                message: format!("{name} is null; an edge has both ends"),
            });
        }
    }
}
