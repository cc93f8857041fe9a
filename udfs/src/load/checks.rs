//! Rules over rows: unique tuples, and how many edges a source has.

use std::collections::BTreeSet;

use arrow::array::{AsArray, RecordBatch, StringArray};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Int64Type};
use stratagraph::Result;
use stratagraph::graph::schema::{EdgeEnds, GraphType, Member};
use stratagraph::graph::violation::Violation;

use super::attempt::{Attempt, TypeState};
use super::found::{Found, numbers, shown};
use super::plans::Plan;

/// A member of a tuple: how users call it, and its columns among loaded and among stored rows.
struct Part {
    name: String,
    loaded: String,
    stored: String,
}

pub(super) fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

fn part(of: &GraphType, member: &Member) -> Option<Part> {
    let part = |name: &str, loaded: String| Part {
        name: name.to_owned(),
        loaded,
        stored: quoted(name),
    };
    Some(match member {
        Member::Src => part("src", "s".to_owned()),
        Member::Dst => part("dst", "d".to_owned()),
        Member::Property(id) => {
            let at = of.properties.iter().position(|p| p.id == *id)?;
            part(&of.properties[at].name, format!("p{at}"))
        }
    })
}

fn texts(batch: &RecordBatch, column: usize) -> Result<StringArray> {
    Ok(cast(batch.column(column), &DataType::Utf8)?
        .as_string::<i32>()
        .clone())
}

/// Counts the rows of a batch (record, id) whose tuple `holder` has already.
fn add_repeats(
    found: &mut Found,
    of: &GraphType,
    parts: &[Part],
    batch: &RecordBatch,
    holder: impl Fn(usize) -> String,
) -> Result<()> {
    let names: Vec<&str> = parts.iter().map(|p| p.name.as_str()).collect();
    let (names, ids) = (names.join(", "), texts(batch, 1)?);
    for (row, record) in numbers(batch, 0)?.iter().enumerate() {
        found.add(Violation {
            record: *record,
            type_name: of.name.clone(),
            id: shown(ids.value(row)),
            rule: "unique",
            message: format!("{} has the same ({names}); change one of them", holder(row)),
        });
    }
    Ok(())
}

impl Attempt<'_> {
    /// Counts the rows whose tuple another row has: each but the first of the load, and all that
    /// meet a stored row that stays. A NULL in a tuple exempts it.
    pub(crate) async fn unique(&self, found: &mut Found) -> Result<()> {
        for state in self.states() {
            for members in &state.of.unique {
                let parts = members.iter().filter_map(|m| part(state.of, m));
                let parts: Vec<Part> = parts.collect();
                self.unique_in_load(state, &parts, found).await?;
                self.unique_in_store(state, &parts, found).await?;
            }
        }
        Ok(())
    }

    async fn unique_in_load(
        &self,
        state: &TypeState<'_>,
        parts: &[Part],
        found: &mut Found,
    ) -> Result<()> {
        let Some(rows) = state.loaded().filter(|rows| rows.rows() > 1) else {
            return Ok(());
        };
        let plan = Plan::new(self.host()).with_rows("loaded", rows)?;
        let plan = plan.holding(rows.rows());
        let columns: Vec<&str> = parts.iter().map(|p| p.loaded.as_str()).collect();
        let given: Vec<String> = columns.iter().map(|c| format!("{c} IS NOT NULL")).collect();
        let same: Vec<String> = columns.iter().map(|c| format!("g.{c} = l.{c}")).collect();
        let columns = columns.join(", ");
        let sql = format!(
            "SELECT l.r, l.k, g.first FROM (SELECT {columns}, min(r) AS first FROM loaded \
             WHERE {} GROUP BY {columns} HAVING count(*) > 1) g JOIN loaded l ON {} \
             WHERE l.r <> g.first",
            given.join(" AND "),
            same.join(" AND ")
        );
        let take = |found: &mut Found, batch: RecordBatch| {
            let firsts = numbers(&batch, 2)?;
            add_repeats(found, state.of, parts, &batch, |row| {
                format!("record {}", firsts[row])
            })
        };
        found.merge(plan.fold(&sql, Found::default, take).await?);
        Ok(())
    }

    async fn unique_in_store(
        &self,
        state: &TypeState<'_>,
        parts: &[Part],
        found: &mut Found,
    ) -> Result<()> {
        let (Some(rows), Some(_)) = (state.loaded(), state.surviving()) else {
            return Ok(());
        };
        let plan = Plan::new(self.host()).with_rows("loaded", rows)?;
        let plan = plan.holding(rows.rows());
        let plan = plan.with("stored", self.table(state.of).await?);
        let plan = with_gone(plan, "gone", state)?;
        let same = parts.iter();
        let same = same.map(|p| format!("l.{} = b.{}", p.loaded, p.stored));
        let same: Vec<String> = same.collect();
        let stored: Vec<&str> = parts.iter().map(|p| p.stored.as_str()).collect();
        let sql = format!(
            "SELECT l.r, l.k, min(b.id) FROM loaded l JOIN {} b ON {} GROUP BY l.r, l.k",
            staying(state, &stored),
            same.join(" AND ")
        );
        let take = |found: &mut Found, batch: RecordBatch| {
            let holders = texts(&batch, 2)?;
            let holder = |row| format!("the stored row {:?}", shown(holders.value(row)));
            add_repeats(found, state.of, parts, &batch, holder)
        };
        found.merge(plan.fold(&sql, Found::default, take).await?);
        Ok(())
    }

    /// Counts the sources that the load touches and that have too few edges after it, or too many.
    pub(crate) async fn cardinality(&self, found: &mut Found) -> Result<()> {
        for state in self.states() {
            if let Some(ends) = &state.of.edge
                && (ends.min > 0 || ends.max.is_some())
            {
                self.sources(state, ends, found).await?;
            }
        }
        Ok(())
    }

    async fn sources(
        &self,
        state: &TypeState<'_>,
        ends: &EdgeEnds,
        found: &mut Found,
    ) -> Result<()> {
        let Some(parts) = self.touched(state, ends) else {
            return Ok(());
        };
        let mut plan = Plan::new(self.host());
        if let Some(rows) = state.loaded() {
            plan = plan.with_rows("loaded", rows)?.holding(rows.rows());
        }
        if state.stored.live_rows > 0 {
            plan = plan.with("stored", self.table(state.of).await?);
        }
        if let Some(node) = self.states().find(|n| n.of.id == ends.from)
            && let Some(rows) = node.loaded()
        {
            plan = plan.with_rows("nodes", rows)?.holding(rows.rows());
        }
        plan = with_gone(plan, "gone", state)?;
        let node = self.states().find(|n| n.of.id == ends.from);
        let mut touched = format!("SELECT DISTINCT s FROM ({}) y", parts.touched);
        if let Some(node) = node.filter(|node| node.gone.is_some()) {
            // A source that goes itself needs no edges.
            plan = with_gone(plan, "gone_nodes", node)?;
            touched = format!(
                "SELECT y.s FROM gone_nodes RIGHT ANTI JOIN ({touched}) y ON gone_nodes.k = y.s"
            );
        }
        let min = i64::try_from(ends.min).unwrap_or(i64::MAX);
        let max = ends
            .max
            .map_or(i64::MAX, |m| i64::try_from(m).unwrap_or(i64::MAX));
        let sql = format!(
            "SELECT t.s, count(x.s), coalesce(max(x.r), CAST(0 AS BIGINT UNSIGNED)) FROM \
             ({touched}) t LEFT JOIN ({}) x ON x.s = t.s GROUP BY t.s \
             HAVING count(x.s) < {min} OR count(x.s) > {max}",
            parts.edges
        );
        let bound = match ends.max {
            Some(max) => format!("{}..{max}", ends.min),
            None => format!("{}..", ends.min),
        };
        let take = |found: &mut Found, batch: RecordBatch| {
            let sources = texts(&batch, 0)?;
            let counts = batch.column(1).as_primitive::<Int64Type>();
            for (row, record) in numbers(&batch, 2)?.iter().enumerate() {
                let (source, count) = (shown(sources.value(row)), counts.value(row));
                found.add(Violation {
                    record: *record,
                    type_name: state.of.name.clone(),
                    id: source.clone(),
                    rule: "cardinality",
                    message: format!(
                        "the source {source:?} would have {count} edges, allowed are {bound}; add \
                         or remove edges of it"
                    ),
                });
            }
            Ok(())
        };
        found.merge(plan.fold(&sql, Found::default, take).await?);
        Ok(())
    }

    /// Queries of the sources that the load touches, and of all edges after it; `None` if it touches
    /// none.
    fn touched(&self, state: &TypeState<'_>, ends: &EdgeEnds) -> Option<Sources> {
        let stored = state.stored.live_rows > 0;
        let loaded = state.loaded().is_some();
        let (mut touched, mut edges) = (Vec::new(), Vec::new());
        if loaded {
            touched.push("SELECT s FROM loaded".to_owned());
            edges.push("SELECT s, r FROM loaded".to_owned());
        }
        let old = "SELECT arrow_cast(src, 'Utf8') AS s";
        let none = "CAST(NULL AS BIGINT UNSIGNED) AS r";
        if stored && state.replaced {
            // Sources that go themselves need no edges.
            let node = self.states().find(|n| n.of.id == ends.from)?;
            match (node.replaced, node.loaded()) {
                (false, _) => touched.push(format!("{old} FROM stored")),
                (true, Some(_)) => {
                    let sql = "SELECT nodes.k AS s FROM nodes LEFT SEMI JOIN stored \
                               ON nodes.k = stored.src";
                    touched.push(sql.to_owned());
                }
                (true, None) => {}
            }
        } else if stored && (loaded || state.gone.is_some()) {
            if state.gone.is_some() {
                let sql = format!("{old} FROM gone JOIN stored ON gone.k = stored.id");
                touched.push(sql);
            }
            if state.keyed.as_ref().is_some_and(|keyed| keyed.known > 0) {
                let sql = format!("{old} FROM loaded JOIN stored ON loaded.k = stored.id");
                touched.push(sql);
            }
            edges.push(format!("{old}, {none} FROM {} b", staying(state, &["src"])));
        }
        (!touched.is_empty()).then(|| Sources {
            touched: touched.join(" UNION ALL "),
            edges: match edges.is_empty() {
                true => format!("SELECT CAST(NULL AS VARCHAR) AS s, {none} WHERE false"),
                false => edges.join(" UNION ALL "),
            },
        })
    }
}

struct Sources {
    touched: String,
    edges: String,
}

/// Adds the ids of the rows of a type that go.
fn with_gone<'a>(plan: Plan<'a>, name: &str, state: &TypeState<'_>) -> Result<Plan<'a>> {
    match &state.gone {
        Some(gone) => {
            let rows = gone.ids.rows();
            Ok(plan.with_rows(name, &gone.ids)?.holding(rows))
        }
        None => Ok(plan),
    }
}

/// The stored rows that stay as they are, as a relation with `columns` and `id`.
fn staying(state: &TypeState<'_>, columns: &[&str]) -> String {
    let known = state.keyed.as_ref().is_some_and(|keyed| keyed.known > 0);
    let columns: BTreeSet<&str> = columns.iter().copied().chain(["id"]).collect();
    let columns: Vec<String> = columns.iter().map(|c| format!("stored.{c}")).collect();
    let columns = columns.join(", ");
    let mut rows = "stored".to_owned();
    let others = [("loaded", known), ("gone", state.gone.is_some())];
    for (other, _) in others.iter().filter(|(_, there)| *there) {
        rows = format!(
            "(SELECT stored.* FROM {other} RIGHT ANTI JOIN {rows} ON {other}.k = stored.id) stored"
        );
    }
    format!("(SELECT {columns} FROM {rows})")
}
