//! What stored rows have to show before another schema holds for them.

use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, RecordBatch, UInt64Array};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Int64Type};
use futures::TryStreamExt;
use stratagraph::catalog::graph::GraphSnapshot;
use stratagraph::graph::evolve::Proof;
use stratagraph::graph::input::{Findings, Rules, input_schema};
use stratagraph::graph::schema::{GraphSchema, GraphType, Member, table_columns};
use stratagraph::graph::violation::Violation;
use stratagraph::table::read::{ReadOptions, TableReader};
use stratagraph::table::schema::graph_schema;
use stratagraph::{Error, Result, limits};
use stratagraph_providers::VersionedTableProvider;

use super::checks::quoted;
use super::found::{Found, shown};
use super::plans::Plan;
use crate::engine::Run;

/// The rows of a state, asked whether another schema holds for them.
pub(crate) struct Prover<'a> {
    pub(crate) run: &'a Run,
    pub(crate) base: &'a GraphSnapshot,
    pub(crate) schema: &'a GraphSchema,
}

impl Prover<'_> {
    /// Everything that breaks what is to be proved.
    ///
    /// # Errors
    /// Those of reading and of the host's memory.
    pub(crate) async fn run(&self, proofs: &[Proof]) -> Result<Found> {
        let mut found = Found::default();
        for proof in proofs {
            match proof {
                Proof::Values(of) => found.merge(self.values(self.types(*of)?).await?),
                Proof::Unique(of, members) => {
                    found.merge(self.unique(self.types(*of)?, members).await?);
                }
                Proof::Cardinality(of) => {
                    found.merge(self.cardinality(self.types(*of)?).await?);
                }
            }
        }
        Ok(found)
    }

    /// A type before and after.
    fn types(&self, id: u64) -> Result<(&GraphType, &GraphType)> {
        let both = self.base.schema.by_id(id).zip(self.schema.by_id(id));
        both.ok_or_else(|| {
            let key = &self.base.manifest_ref.key;
            Error::corrupt("graph schema", key, format!("type {id}"), "none")
        })
    }

    /// Rows whose own values break a rule of the new type.
    async fn values(&self, (_, of): (&GraphType, &GraphType)) -> Result<Found> {
        let rules = Rules::new(self.schema, false)?;
        let mut findings = Findings::new(limits::VIOLATIONS);
        let reader = self.reader(of).await?;
        let mut rows = reader.scan(&ReadOptions::default()).await?;
        let schema = input_schema(of);
        while let Some(batch) = rows.try_next().await? {
            let batch = RecordBatch::try_new(Arc::clone(&schema), input_columns(of, &batch))?;
            rules.find(of, &batch, &mut findings)?;
        }
        Ok(Found::reading(findings))
    }

    /// The stored rows in the columns of the new type, all of which may be null here.
    async fn reader(&self, of: &GraphType) -> Result<TableReader> {
        let (store, catalog) = (self.run.catalog().store(), self.run.catalog());
        let env = self.run.host.env(catalog.env());
        let stored = self.base.table(store, of.id).await?.table;
        let mut columns = table_columns(of)?;
        columns.iter_mut().for_each(|column| column.nullable = true);
        let mut table = stored.as_ref().clone();
        let newest = table.schemas.iter().map(|schema| schema.id).max();
        let next = newest.map_or(0, |newest| newest + 1);
        table
            .schemas
            .push(graph_schema(of.layout(), next, &columns)?);
        Ok(TableReader::new(Arc::clone(store), &env, Arc::new(table)))
    }

    async fn plan(&self, before: &GraphType) -> Result<Plan<'_>> {
        let metadata = Arc::clone(&self.run.engine.metadata);
        let pin = Arc::clone(self.run.pin());
        let table = VersionedTableProvider::of_type(metadata, self.base, before, pin).await?;
        Ok(Plan::new(&self.run.host).with("stored", Arc::new(table)))
    }

    /// Values that several rows have: one violation a value, at the last row of it.
    async fn unique(
        &self,
        (before, of): (&GraphType, &GraphType),
        members: &[Member],
    ) -> Result<Found> {
        let plan = self.plan(before).await?;
        let stored = |member: &Member| match member {
            Member::Src => Some("src".to_owned()),
            Member::Dst => Some("dst".to_owned()),
            Member::Property(id) => Some(before.property_by_id(*id)?.name.clone()),
        };
        let now = |member: &Member| match member {
            Member::Src => "src".to_owned(),
            Member::Dst => "dst".to_owned(),
            Member::Property(id) => of
                .property_by_id(*id)
                .map_or_else(String::new, |p| p.name.clone()),
        };
        let columns: Vec<String> = members.iter().filter_map(stored).collect();
        let columns: Vec<String> = columns.iter().map(|c| quoted(c)).collect();
        let names: Vec<String> = members.iter().map(now).collect();
        let given: Vec<String> = columns.iter().map(|c| format!("{c} IS NOT NULL")).collect();
        let sql = format!(
            "SELECT min(id), max(id), count(*) FROM stored WHERE {} GROUP BY {} \
             HAVING count(*) > 1",
            given.join(" AND "),
            columns.join(", ")
        );
        let names = names.join(", ");
        let take = |found: &mut Found, batch: RecordBatch| {
            let (first, last) = (texts(&batch, 0)?, texts(&batch, 1)?);
            let (first, last) = (first.as_string::<i32>(), last.as_string::<i32>());
            let counts = batch.column(2).as_primitive::<Int64Type>();
            for row in 0..batch.num_rows() {
                let (first, count) = (shown(first.value(row)), counts.value(row));
                found.add(Violation {
                    record: 0,
                    type_name: of.name.clone(),
                    id: shown(last.value(row)),
                    rule: "unique",
                    message: format!(
                        "{count} rows have the same ({names}), {first:?} among them; change them"
                    ),
                });
            }
            Ok(())
        };
        plan.fold(&sql, Found::default, take).await
    }

    /// Sources with a number of edges that is not allowed.
    async fn cardinality(&self, (before, of): (&GraphType, &GraphType)) -> Result<Found> {
        let Some(ends) = &of.edge else {
            return Ok(Found::default());
        };
        let plan = self.plan(before).await?;
        let int = |n: u64| i64::try_from(n).unwrap_or(i64::MAX);
        let (min, max) = (int(ends.min), ends.max.map_or(i64::MAX, int));
        let sql = format!(
            "SELECT src, count(*) FROM stored GROUP BY src \
             HAVING count(*) < {min} OR count(*) > {max}"
        );
        let bound = match ends.max {
            Some(max) => format!("{}..{max}", ends.min),
            None => format!("{}..", ends.min),
        };
        let take = |found: &mut Found, batch: RecordBatch| {
            let sources = texts(&batch, 0)?;
            let counts = batch.column(1).as_primitive::<Int64Type>();
            for (row, source) in sources.as_string::<i32>().iter().enumerate() {
                let (source, count) = (shown(source.unwrap_or_default()), counts.value(row));
                found.add(Violation {
                    record: 0,
                    type_name: of.name.clone(),
                    id: source.clone(),
                    rule: "cardinality",
                    message: format!(
                        "the source {source:?} has {count} edges, allowed are {bound}; add or \
                         remove edges of it"
                    ),
                });
            }
            Ok(())
        };
        plan.fold(&sql, Found::default, take).await
    }
}

fn texts(batch: &RecordBatch, column: usize) -> Result<ArrayRef> {
    Ok(cast(batch.column(column), &DataType::Utf8)?)
}

/// Columns of a stored row as those of a record; it has no number.
fn input_columns(of: &GraphType, batch: &RecordBatch) -> Vec<ArrayRef> {
    let records: ArrayRef = Arc::new(UInt64Array::from(vec![0; batch.num_rows()]));
    let system: &[usize] = if of.is_edge() { &[1, 2, 3] } else { &[1] };
    let first = if of.is_edge() { 6 } else { 2 };
    let own = system.iter().map(|at| Arc::clone(batch.column(*at)));
    let properties = batch.columns().iter().skip(first).cloned();
    std::iter::once(records)
        .chain(own)
        .chain(properties)
        .collect()
}
