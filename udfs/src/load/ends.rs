//! Ends of edges: the row ids of their nodes, and nodes that stored edges still need.

use std::collections::BTreeSet;
use std::sync::Arc;

use arrow::array::{Array, AsArray, BooleanArray, RecordBatch, StringBuilder, UInt64Builder};
use arrow::compute::{and, filter_record_batch, is_not_null};
use arrow::datatypes::{DataType, Field, Int64Type, Schema, SchemaRef};
use futures::TryStreamExt;
use stratagraph::graph::schema::{EdgeEnds, GraphType};
use stratagraph::graph::violation::Violation;
use stratagraph::table::read::{ReadOptions, TableReader};
use stratagraph::table::schema::id;
use stratagraph::{Error, Result};

use super::attempt::{Attempt, TypeState};
use super::few::{self, few};
use super::found::{Found, numbers, shown};
use super::joined::Joined;
use super::plans::{Plan, SPOOLS};
use super::rows::ended_schema;
use crate::host::Host;
use crate::spool::{SegmentWriter, Spool, Spooler};

/// Ids that are looked up at once.
const GROUP_IDS: usize = 65_536;

fn ids_schema() -> SchemaRef {
    Arc::new(Schema::new(vec![
        Field::new("k", DataType::Utf8, false),
        Field::new("x", DataType::UInt64, false),
    ]))
}

/// Those of some sorted ids that `stored` has, with their row ids.
async fn known(stored: &TableReader, keys: &[&str]) -> Result<RecordBatch> {
    let (mut known, mut rids) = (StringBuilder::new(), UInt64Builder::new());
    for hit in stored.lookup(keys).await? {
        if let Some(rid) = hit.rid {
            known.append_value(keys[hit.key]);
            rids.append_value(rid);
        }
    }
    let columns = vec![Arc::new(known.finish()) as _, Arc::new(rids.finish()) as _];
    Ok(RecordBatch::try_new(ids_schema(), columns)?)
}

/// The row ids of those ids that `sql` gives in order and `stored` has.
async fn look_up(host: &Host, plan: &Plan<'_>, sql: &str, stored: &TableReader) -> Result<Spool> {
    let schema = Arc::new(Schema::new(vec![Field::new("k", DataType::Utf8, true)]));
    let mut ids = plan.stream(sql, schema).await?;
    let mut segment = Spooler::new(host, ids_schema(), "stored ends", SPOOLS).segment();
    let mut waiting: Vec<RecordBatch> = Vec::new();
    let mut rows = 0;
    loop {
        let batch = ids.try_next().await?;
        let ended = batch.is_none();
        if let Some(batch) = batch {
            rows += batch.num_rows();
            waiting.push(batch);
        }
        if rows >= GROUP_IDS || ended {
            let texts = waiting.iter().map(|b| b.column(0).as_string::<i32>());
            let keys: Vec<&str> = texts.flat_map(|t| t.iter().flatten()).collect();
            segment.push(known(stored, &keys).await?)?;
            waiting.clear();
            rows = 0;
        }
        if ended {
            break;
        }
    }
    Ok(Spool::new(ids_schema(), vec![segment.finish()?]))
}

/// Ids and row ids of the nodes of one type that edges of this load may name.
#[derive(Debug, Clone, Default)]
pub(crate) struct NodeIds {
    spools: Vec<Spool>,
}

impl NodeIds {
    fn rows(&self) -> u64 {
        self.spools.iter().map(Spool::rows).sum()
    }

    /// Adds their tables to a plan, and gives the relation that reads them.
    fn register<'a>(&self, mut plan: Plan<'a>, name: &str) -> Result<(Plan<'a>, String)> {
        let mut parts = Vec::new();
        for (at, spool) in self.spools.iter().enumerate() {
            let table = format!("{name}{at}");
            parts.push(format!("SELECT k, x FROM {table}"));
            plan = plan.with(table, spool.table()?);
        }
        if parts.is_empty() {
            parts.push(
                "SELECT CAST(NULL AS VARCHAR) AS k, CAST(NULL AS BIGINT UNSIGNED) AS x WHERE false"
                    .to_owned(),
            );
        }
        Ok((
            plan.holding(self.rows()),
            format!("({})", parts.join(" UNION ALL ")),
        ))
    }
}

/// Edges of the load with an end of a type, counted once for each end.
fn edges_of(edge: &TypeState<'_>, node: &TypeState<'_>) -> u64 {
    let (Some(ends), Some(keyed)) = (&edge.of.edge, &edge.keyed) else {
        return 0;
    };
    let ends = [ends.from, ends.to].into_iter();
    ends.filter(|end| *end == node.of.id).count() as u64 * keyed.rows.rows()
}

impl Attempt<'_> {
    /// The nodes of a type: those of the load, and the stored ones that edges of the load name.
    pub(crate) async fn node_ids(&self, node: &TypeState<'_>) -> Result<NodeIds> {
        let mut ids = NodeIds::default();
        let own = node.keyed.as_ref().map(|keyed| &keyed.rows);
        ids.spools.extend(own.cloned());
        let Some(stored) = node.surviving() else {
            return Ok(ids);
        };
        if let Some(few) = self.few_node_ids(node, &stored).await? {
            ids.spools.extend(few);
            return Ok(ids);
        }
        let named: u64 = self.states().map(|edge| edges_of(edge, node)).sum();
        if own.is_none() && node.gone.is_none() && stored.table().live_rows <= named {
            ids.spools.push(self.all_ids(&stored).await?);
            return Ok(ids);
        }
        let mut plan = Plan::new(self.host());
        let mut ends = Vec::new();
        for edge in self.states() {
            let (Some(EdgeEnds { from, to, .. }), Some(keyed)) = (&edge.of.edge, &edge.keyed)
            else {
                continue;
            };
            let table = format!("edges{}", edge.of.id);
            for (column, end) in [("s", from), ("d", to)] {
                if *end == node.of.id {
                    ends.push(format!("SELECT {column} AS k FROM {table}"));
                }
            }
            plan = plan.with_rows(table, &keyed.rows)?;
        }
        if ends.is_empty() {
            return Ok(ids);
        }
        let mut ends = format!("SELECT DISTINCT k FROM ({}) e", ends.join(" UNION ALL "));
        if let Some(gone) = &node.gone {
            plan = plan.with_rows("gone", &gone.ids)?.holding(gone.ids.rows());
            ends = format!("SELECT e.k FROM gone RIGHT ANTI JOIN ({ends}) e ON gone.k = e.k");
        }
        let sql = match own {
            None => format!("SELECT k FROM ({ends}) e ORDER BY k"),
            Some(own) => {
                plan = plan.with_rows("own", own)?.holding(own.rows());
                format!(
                    "SELECT e.k FROM own RIGHT ANTI JOIN ({ends}) e ON own.k = e.k ORDER BY e.k"
                )
            }
        };
        ids.spools
            .push(look_up(self.host(), &plan, &sql, &stored).await?);
        Ok(ids)
    }

    /// All stored nodes of a type.
    async fn all_ids(&self, stored: &TableReader) -> Result<Spool> {
        let mut segment = Spooler::new(self.host(), ids_schema(), "stored ids", SPOOLS).segment();
        let options = ReadOptions::columns(&[id::ID, id::RID]);
        for entry in stored.entries().await?.iter() {
            let mut rows = stored.fragment_stream(entry, &options).await?;
            while let Some(batch) = rows.try_next().await? {
                let columns = batch.columns().to_vec();
                segment.push(RecordBatch::try_new(ids_schema(), columns)?)?;
            }
        }
        Ok(Spool::new(ids_schema(), vec![segment.finish()?]))
    }

    /// The stored nodes of a type that edges of the load name, if all that has to be looked at are few
    /// rows.
    async fn few_node_ids(
        &self,
        node: &TypeState<'_>,
        stored: &TableReader,
    ) -> Result<Option<Option<Spool>>> {
        let mut ends = BTreeSet::new();
        for edge in self.states() {
            let (Some(EdgeEnds { from, to, .. }), Some(keyed)) = (&edge.of.edge, &edge.keyed)
            else {
                continue;
            };
            let Some(rows) = few(&keyed.rows).await? else {
                return Ok(None);
            };
            for (column, end) in [("s", from), ("d", to)] {
                if *end == node.of.id {
                    ends.extend(few::ids(&rows, column)?);
                }
            }
        }
        let own = node.keyed.iter().map(|keyed| &keyed.rows);
        for others in own.chain(node.gone.iter().map(|gone| &gone.ids)) {
            let Some(rows) = few(others).await? else {
                return Ok(None);
            };
            for id in few::ids(&rows, "k")? {
                ends.remove(&id);
            }
        }
        if ends.is_empty() {
            return Ok(Some(None));
        }
        let keys: Vec<&str> = ends.iter().map(String::as_str).collect();
        let mut segment = Spooler::new(self.host(), ids_schema(), "stored ends", SPOOLS).segment();
        segment.push(known(stored, &keys).await?)?;
        Ok(Some(Some(Spool::new(
            ids_schema(),
            vec![segment.finish()?],
        ))))
    }

    /// The edges of a type with the row ids of their ends, in the order of a fragment.
    pub(crate) async fn with_ends(
        &self,
        edge: &TypeState<'_>,
        rows: &Spool,
        from: (&GraphType, &NodeIds),
        to: (&GraphType, &NodeIds),
        found: &mut Found,
    ) -> Result<Spool> {
        let schema = ended_schema(edge.of);
        let own = schema.fields().len() - 2;
        let whole = |batch: RecordBatch, found: &mut Found| {
            let batch = RecordBatch::try_new(Arc::clone(&schema), batch.columns().to_vec())?;
            let ends = [(2, own, from.0), (3, own + 1, to.0)];
            for (text, rid, node) in ends {
                self.missing_ends(edge.of, &batch, (text, rid), node, found)?;
            }
            let [a, b] = [own, own + 1].map(|rid| is_not_null(batch.column(rid)));
            let whole = and(&a?, &b?)?;
            Ok::<_, Error>(match whole.true_count() == batch.num_rows() {
                true => batch,
                false => filter_record_batch(&batch, &whole)?,
            })
        };
        let spooler = Spooler::new(self.host(), Arc::clone(&schema), "edges", SPOOLS);
        let segment = if let Some(edges) = self.few_with_ends(rows, &schema, [from.1, to.1]).await?
        {
            let mut segment = spooler.segment();
            segment.push(whole(edges, found)?)?;
            segment
        } else if let Some(joined) =
            Joined::new(self.host(), rows, [&from.1.spools, &to.1.spools]).await?
        {
            let (mut edges, mut unsorted) = (Vec::new(), joined.rows(self.host(), &schema));
            while let Some(batch) = unsorted.try_next().await? {
                edges.push(whole(batch, found)?);
            }
            let mut segment = spooler.segment();
            let mut sorted = joined.sorted(self.host(), edges).await?;
            while let Some(batch) = sorted.try_next().await? {
                segment.push(batch)?;
            }
            segment
        } else {
            let start = || (spooler.segment(), Found::default());
            let take = |state: &mut (SegmentWriter, Found), batch: RecordBatch| {
                state.0.push(whole(batch, &mut state.1)?)
            };
            let (plan, sql) = self.ends_plan(rows, &schema, [from.1, to.1])?;
            let (segment, missing) = plan.fold(&sql, start, take).await?;
            found.merge(missing);
            segment
        };
        Ok(Spool::new(Arc::clone(&schema), vec![segment.finish()?]))
    }

    /// The plan that joins edges with the row ids of their ends and sorts them.
    fn ends_plan(
        &self,
        rows: &Spool,
        schema: &SchemaRef,
        [from, to]: [&NodeIds; 2],
    ) -> Result<(Plan<'_>, String)> {
        let plan = Plan::new(self.host()).with_rows("loaded", rows)?;
        let (plan, sources) = from.register(plan, "sources")?;
        let (plan, targets) = to.register(plan, "targets")?;
        let columns = schema.fields().iter().take(schema.fields().len() - 2);
        let columns: Vec<String> = columns.map(|f| format!("e.{}", f.name())).collect();
        let sql = format!(
            "SELECT {}, e.a, t.x AS b FROM {targets} t RIGHT JOIN \
             (SELECT e.*, f.x AS a FROM {sources} f RIGHT JOIN loaded e ON f.k = e.s) e \
             ON t.k = e.d ORDER BY e.a, b, e.k",
            columns.join(", ")
        );
        Ok((plan, sql))
    }

    /// The same, if all that is joined are few rows.
    async fn few_with_ends(
        &self,
        rows: &Spool,
        schema: &SchemaRef,
        nodes: [&NodeIds; 2],
    ) -> Result<Option<RecordBatch>> {
        let Some(rows) = few(rows).await? else {
            return Ok(None);
        };
        let from = few::row_ids(&nodes[0].spools).await?;
        let to = few::row_ids(&nodes[1].spools).await?;
        let both = from.zip(to);
        let edges = both.map(|(from, to)| few::with_ends(&rows, schema, [&from, &to]));
        edges.transpose()
    }

    /// Counts the ends of a batch that have no row id. A node that is refused for itself is no
    /// second violation of its edges.
    fn missing_ends(
        &self,
        of: &GraphType,
        batch: &RecordBatch,
        (text, rid): (usize, usize),
        node: &GraphType,
        found: &mut Found,
    ) -> Result<()> {
        let rids = batch.column(rid);
        if rids.null_count() == 0 {
            return Ok(());
        }
        let missing = BooleanArray::from_iter((0..rids.len()).map(|row| Some(rids.is_null(row))));
        let rows = filter_record_batch(batch, &missing)?;
        let (ids, ends) = (
            rows.column(1).as_string::<i32>(),
            rows.column(text).as_string::<i32>(),
        );
        let what = if text == 2 { "source" } else { "destination" };
        for (row, record) in numbers(&rows, 0)?.iter().enumerate() {
            let end = ends.value(row);
            if self.loaded.found.refuses(&node.name, end) {
                continue;
            }
            found.add(Violation {
                record: *record,
                type_name: of.name.clone(),
                id: shown(ids.value(row)),
                rule: "reference",
                message: format!(
                    "the {what} {:?} is no node of {}, neither stored nor loaded; load it too",
                    shown(end),
                    node.name
                ),
            });
        }
        Ok(())
    }

    /// Counts the nodes that an overwrite removes and stored edges still need.
    pub(crate) async fn removed_nodes(&self, found: &mut Found) -> Result<()> {
        for node in self.states().filter(|n| n.replaced && !n.of.is_edge()) {
            if node.stored.live_rows == 0 {
                continue;
            }
            for edge in self.states().filter(|e| !e.replaced) {
                let Some(ends) = &edge.of.edge else { continue };
                if edge.stored.live_rows == 0 {
                    continue;
                }
                for (column, end) in [("src", ends.from), ("dst", ends.to)] {
                    if end == node.of.id {
                        self.orphans(node, edge, column, found).await?;
                    }
                }
            }
        }
        Ok(())
    }

    async fn orphans(
        &self,
        node: &TypeState<'_>,
        edge: &TypeState<'_>,
        column: &str,
        found: &mut Found,
    ) -> Result<()> {
        let mut plan = Plan::new(self.host()).with("stored", self.table(edge.of).await?);
        let sql = match &node.keyed {
            None => format!("SELECT count(*), min({column}) FROM stored"),
            Some(keyed) => {
                plan = plan.with_rows("loaded", &keyed.rows)?;
                plan = plan.holding(keyed.rows.rows());
                format!(
                    "SELECT count(*), min(stored.{column}) FROM loaded \
                     RIGHT ANTI JOIN stored ON loaded.k = stored.{column}"
                )
            }
        };
        let first = |state: &mut Option<(i64, String)>, batch: RecordBatch| {
            if batch.num_rows() > 0 && batch.column(1).is_valid(0) {
                let text = arrow::compute::cast(batch.column(1), &DataType::Utf8)?;
                let count = batch.column(0).as_primitive::<Int64Type>().value(0);
                *state = Some((count, text.as_string::<i32>().value(0).to_owned()));
            }
            Ok(())
        };
        if let Some((count, id)) = plan.fold(&sql, || None, first).await? {
            let edges = &edge.of.name;
            found.add(Violation {
                record: 0,
                type_name: node.of.name.clone(),
                id: shown(&id),
                rule: "reference",
                message: format!(
                    "the overwrite removes nodes that {count} stored edges of {edges} refer to by \
                     {column}, this one among them; keep the nodes, or name {edges} in types"
                ),
            });
        }
        Ok(())
    }
}
