//! Rows of one type that a plan has computed, as changes.

use std::collections::BTreeSet;
use std::sync::Arc;

use arrow::array::{Array, AsArray, BooleanArray, RecordBatch, StringArray};
use arrow::compute::{cast, filter_record_batch};
use arrow::datatypes::{DataType, Int32Type};
use datafusion::execution::SendableRecordBatchStream;
use futures::TryStreamExt;
use stratagraph::catalog::graph::GraphSnapshot;
use stratagraph::graph::input::Findings;
use stratagraph::graph::query::Mutation;
use stratagraph::graph::schema::GraphType;
use stratagraph::graph::violation::Violation;
use stratagraph::table::read::TableReader;
use stratagraph::{Error, Result, limits};
use stratagraph_providers::{MERGE_ACTION, MERGE_OLD, MergeAction, TableWrite, from_datafusion};

use super::{Call, Evaluation, Outcome};
use crate::engine::Run;
use crate::load::SourceColumns;

/// Takes the rows of an UPDATE, a DELETE or a MERGE of one type. Nothing is written.
///
/// # Errors
/// `InvalidArgument` for a key that is assigned, `RecordsInvalid` for rows that break a rule of their
/// own and for a row that two rows are to change, `KeyConflict` for a new row whose id is there, those
/// of the plan.
pub(crate) async fn evaluate_rows(
    run: &Run,
    base: &GraphSnapshot,
    of: &GraphType,
    write: &TableWrite,
    mut rows: SendableRecordBatchStream,
    fill: bool,
) -> Result<(Outcome, u64)> {
    keep_keys(of, write)?;
    let mutation = Mutation {
        name: String::new(),
        params: Vec::new(),
        statements: Vec::new(),
        description: None,
        instruction: None,
    };
    let call = Call {
        mutation: &mutation,
        params: &[],
        now: 0,
        fill,
    };
    let mut taken = Rows {
        of,
        write,
        columns: None,
        seen: BTreeSet::new(),
        wrote: BTreeSet::new(),
        gone: Vec::new(),
        new: Vec::new(),
        findings: Findings::new(limits::VIOLATIONS),
        evaluation: Evaluation::new(run, base, &call)?,
    };
    while let Some(batch) = rows.try_next().await.map_err(from_datafusion)? {
        taken.take(&batch)?;
    }
    taken.finish().await
}

/// Refuses assignments to a key: the id of a row is made from it.
fn keep_keys(of: &GraphType, write: &TableWrite) -> Result<()> {
    let clauses: Vec<&[String]> = match write {
        TableWrite::Update { assigned } => vec![assigned],
        TableWrite::Merge { actions } => actions
            .iter()
            .filter_map(|action| match action {
                MergeAction::Update { assigned } => Some(assigned.as_slice()),
                MergeAction::Insert | MergeAction::Delete => None,
            })
            .collect(),
        _ => Vec::new(),
    };
    let keys = of.key.iter().filter_map(|id| of.property_by_id(*id));
    for key in keys {
        if clauses.iter().any(|names| names.contains(&key.name)) {
            return Err(Error::InvalidArgument {
                function: write.statement().to_owned(),
                argument: key.name.clone(),
                reason: "is part of the key; delete the row and insert another one".to_owned(),
            });
        }
    }
    Ok(())
}

/// What became of the rows so far.
struct Rows<'a> {
    of: &'a GraphType,
    write: &'a TableWrite,
    /// Known with the first row.
    columns: Option<SourceColumns>,
    /// Ids of stored rows that a row is to change.
    seen: BTreeSet<String>,
    /// Ids of rows that are written.
    wrote: BTreeSet<String>,
    gone: Vec<String>,
    /// New rows, which come after all deletes.
    new: Vec<RecordBatch>,
    findings: Findings,
    evaluation: Evaluation<'a>,
}

fn texts(batch: &RecordBatch, name: &str) -> Result<StringArray> {
    let column = batch.column_by_name(name);
    let column = column.ok_or_else(|| Error::corrupt("plan of rows", name, "a column", "none"))?;
    Ok(cast(column, &DataType::Utf8)?.as_string::<i32>().clone())
}

/// The columns of the table alone.
fn values(batch: &RecordBatch) -> Result<RecordBatch> {
    let fields = batch.schema();
    let own = fields.fields().iter().enumerate();
    let own = own.filter(|(_, f)| ![MERGE_ACTION, MERGE_OLD].contains(&f.name().as_str()));
    let own: Vec<usize> = own.map(|(at, _)| at).collect();
    Ok(batch.project(&own)?)
}

impl Rows<'_> {
    fn take(&mut self, batch: &RecordBatch) -> Result<()> {
        if batch.num_rows() == 0 {
            return Ok(());
        }
        match self.write {
            TableWrite::Delete => self.delete(&texts(batch, "id")?),
            TableWrite::Update { assigned } => self.update(batch, "id", assigned),
            TableWrite::Merge { actions } => {
                for (at, action) in actions.iter().enumerate() {
                    let rows = of_action(batch, at)?;
                    if rows.num_rows() == 0 {
                        continue;
                    }
                    match action {
                        MergeAction::Insert => {
                            let rows = values(&rows)?;
                            self.hold(rows.get_array_memory_size())?;
                            self.new.push(rows);
                        }
                        MergeAction::Delete => self.delete(&texts(&rows, MERGE_OLD)?)?,
                        MergeAction::Update { assigned } => {
                            self.update(&rows, MERGE_OLD, assigned)?;
                        }
                    }
                }
                Ok(())
            }
            other => {
                let found = other.statement();
                Err(Error::corrupt(
                    "plan of rows",
                    found,
                    "changes of rows",
                    "new rows",
                ))
            }
        }
    }

    fn hold(&mut self, bytes: usize) -> Result<()> {
        let memory = &mut self.evaluation.memory;
        memory.try_grow(bytes).map_err(from_datafusion)
    }

    /// Counts the rows that another row changes too.
    fn once(&mut self, ids: &StringArray) -> Result<()> {
        self.hold(ids.value_data().len() + 64 * ids.len())?;
        for id in ids.iter().flatten() {
            if self.seen.insert(id.to_owned()) {
                continue;
            }
            let of = self.of.name.clone();
            self.findings.add(0, || Violation {
                record: 0,
                type_name: of,
                id: id.to_owned(),
                rule: "match",
                message: "several rows are to change it; let one row match it".to_owned(),
            });
        }
        Ok(())
    }

    fn delete(&mut self, ids: &StringArray) -> Result<()> {
        self.once(ids)?;
        self.gone.extend(ids.iter().flatten().map(str::to_owned));
        Ok(())
    }

    fn update(&mut self, batch: &RecordBatch, old: &str, assigned: &[String]) -> Result<()> {
        self.once(&texts(batch, old)?)?;
        let of = self.of;
        let rows = self.typed(&values(batch)?)?;
        let mut columns = rows.columns().to_vec();
        let sets = |id| {
            let property = of.property_by_id(id);
            property.is_some_and(|p| assigned.contains(&p.name))
        };
        self.evaluation.forget_vectors(of, &mut columns, &sets)?;
        let ids = self.evaluation.take(of, columns, &mut self.findings)?;
        self.wrote.extend(ids.iter().flatten().map(str::to_owned));
        Ok(())
    }

    /// Rows of the table's columns as rows of the type.
    fn typed(&mut self, batch: &RecordBatch) -> Result<RecordBatch> {
        let (fill, first) = (self.evaluation.call.fill, self.evaluation.record + 1);
        let columns = match &self.columns {
            Some(columns) => columns,
            None => {
                let columns = SourceColumns::new(self.of, &batch.schema(), fill)?;
                self.columns.insert(columns)
            }
        };
        columns.rows(self.of, batch, first, &mut self.findings)
    }

    async fn finish(mut self) -> Result<(Outcome, u64)> {
        let gone = std::mem::take(&mut self.gone);
        self.evaluation.delete(self.of, &gone).await?;
        let mut made = Vec::new();
        for batch in std::mem::take(&mut self.new) {
            let rows = self.typed(&batch)?;
            let columns = rows.columns().to_vec();
            made.push(self.insert(columns)?);
        }
        self.findings.into_result()?;
        strict(&self.evaluation, self.of, &made, &gone).await?;
        let of = self.of.id;
        let affected = self.evaluation.affected.iter();
        let count = affected.filter(|(type_id, _)| *type_id == of).count() as u64;
        Ok((self.evaluation.outcome()?, count))
    }

    /// Takes new rows; one with the id of a row that is written already is found.
    fn insert(&mut self, columns: Vec<Arc<dyn Array>>) -> Result<StringArray> {
        let ids = self.evaluation.take(self.of, columns, &mut self.findings)?;
        for id in ids.iter().flatten() {
            if !self.wrote.insert(id.to_owned()) {
                let of = self.of.name.clone();
                self.findings.add(0, || Violation {
                    record: 0,
                    type_name: of,
                    id: id.to_owned(),
                    rule: "key",
                    message: "another row of the statement has the same id; keep one of them"
                        .to_owned(),
                });
            }
        }
        Ok(ids)
    }
}

/// The rows of a merge that a clause takes.
fn of_action(batch: &RecordBatch, at: usize) -> Result<RecordBatch> {
    let column = batch.column_by_name(MERGE_ACTION);
    let column = column
        .and_then(|column| column.as_primitive_opt::<Int32Type>())
        .ok_or_else(|| Error::corrupt("plan of rows", MERGE_ACTION, "integers", "none"))?;
    let wanted = column.iter();
    let wanted = wanted.map(|n| n.and_then(|n| usize::try_from(n).ok()) == Some(at));
    let wanted = BooleanArray::from(wanted.collect::<Vec<bool>>());
    Ok(filter_record_batch(batch, &wanted)?)
}

/// New rows have new ids: none of a stored row that the statement leaves alone.
async fn strict(
    evaluation: &Evaluation<'_>,
    of: &GraphType,
    made: &[StringArray],
    gone: &[String],
) -> Result<()> {
    let ids = made.iter().flat_map(|ids| ids.iter().flatten());
    let ids: BTreeSet<&str> = ids.collect();
    let ids: Vec<&str> = ids.into_iter().collect();
    if ids.is_empty() {
        return Ok(());
    }
    let gone: BTreeSet<&str> = gone.iter().map(String::as_str).collect();
    let (run, base) = (evaluation.run, evaluation.base);
    let store = run.catalog().store();
    let table = base.table(store, of.id).await?.table;
    let env = run.host.env(run.catalog().env());
    let reader = TableReader::new(Arc::clone(store), &env, table);
    for hit in reader.lookup(&ids).await? {
        let id = ids[hit.key];
        if !gone.contains(id) {
            return Err(Error::KeyConflict {
                table: format!("{}.{}", base.name, of.name),
                key: id.to_owned(),
            });
        }
    }
    Ok(())
}
