//! Rules that hold over several rows, after a merge.
//!
//! Each side is valid by itself. So only a pair of rows can break a rule of which one came from the
//! source and the other was changed by the target.

use std::collections::{BTreeMap, BTreeSet};

use arrow::array::AsArray;
use futures::TryStreamExt;

use super::decide::{Found, Plan, Rids, Three, Verdict, each};
use super::diff::{Changes, Row};
use crate::digest::Digest;
use crate::graph::conflict::ConflictKind;
use crate::graph::schema::{EdgeEnds, GraphType};
use crate::table::read::{ReadOptions, TableReader};
use crate::table::schema::id;
use crate::{Error, Result};

/// Finds an edge of one side whose end the other side deleted.
pub(super) fn orphan(
    of: &GraphType,
    id: &str,
    three: Three<'_>,
    rids: &BTreeMap<u64, Rids>,
    found: &mut Found,
) {
    let Some(ends) = &of.edge else {
        return;
    };
    let (row, deleted_by) = match three.verdict() {
        Verdict::Source => (three.source, "target"),
        Verdict::Target => (three.target, "source"),
        Verdict::Conflict(_) => return,
    };
    let Some([src, dst]) = row.and_then(|row| row.ends) else {
        return;
    };
    for (name, type_id, rid) in [("source", ends.from, src), ("destination", ends.to, dst)] {
        let gone = rids.get(&type_id).is_some_and(|rids| match deleted_by {
            "target" => rids.gone_source.contains(&rid),
            _ => rids.gone_target.contains(&rid),
        });
        if gone {
            let detail = format!("the {deleted_by} branch deleted the {name} node of this edge");
            found.add(of, id, ConflictKind::OrphanEdge, detail);
            return;
        }
    }
}

/// Finds rows of the source whose unique tuple a row has that the target changed.
pub(super) fn unique(
    of: &GraphType,
    source: &Changes,
    target: &Changes,
    plan: &Plan,
    found: &mut Found,
) {
    for rule in 0..of.unique.len() {
        let tuple = |row: &Row| row.tuples.get(rule).copied().flatten();
        let mut held: BTreeMap<Digest, &str> = BTreeMap::new();
        for (id, change) in &target.rows {
            if let Some(tuple) = change.is.as_ref().and_then(tuple)
                && plan.kills.binary_search(id).is_err()
            {
                held.insert(tuple, id);
            }
        }
        for id in plan.takes.keys() {
            let row = source.rows.get(id).and_then(|change| change.is.as_ref());
            if let Some(holder) = row.and_then(tuple).and_then(|tuple| held.get(&tuple))
                && *holder != id
            {
                let detail = format!("{holder:?}, which the target changed, has the same values");
                found.add(of, id, ConflictKind::UniqueViolation, detail);
            }
        }
    }
}

/// Finds sources whose edges both sides changed and that now have too few, or too many. A source that
/// one side alone touched has the number of edges that it has there. `gone` are nodes that the merged
/// state has no more.
pub(super) async fn cardinality(
    of: &GraphType,
    ends: &EdgeEnds,
    (source, target): (&Changes, &Changes),
    edges: &TableReader,
    gone: Option<&BTreeSet<String>>,
    found: &mut Found,
) -> Result<()> {
    let touched = |changes: &Changes| -> BTreeSet<String> {
        let rows = changes.rows.values().flat_map(|c| [&c.was, &c.is]);
        rows.flatten().filter_map(|row| row.src.clone()).collect()
    };
    let both: BTreeSet<String> = &touched(source) & &touched(target);
    if both.is_empty() {
        return Ok(());
    }
    let mut counts: BTreeMap<&str, u64> = both.iter().map(|src| (src.as_str(), 0)).collect();
    count(edges, &mut counts).await?;
    for (_, three) in each(source, target) {
        if three.verdict() != Verdict::Source {
            continue;
        }
        let src = |row: Option<&Row>| row.and_then(|row| row.src.clone());
        if let Some(count) = src(three.target).and_then(|src| counts.get_mut(&*src)) {
            *count = count.saturating_sub(1);
        }
        if let Some(count) = src(three.source).and_then(|src| counts.get_mut(&*src)) {
            *count += 1;
        }
    }
    let (least, most) = (ends.min, ends.max.unwrap_or(u64::MAX));
    for (src, count) in counts {
        // A source that goes itself needs no edges.
        let gone = count == 0 && gone.is_some_and(|gone| gone.contains(src));
        if !gone && !(least..=most).contains(&count) {
            let most = ends.max.map_or(String::new(), |max| max.to_string());
            let detail = format!("it would have {count} edges, allowed are {least}..{most}");
            found.add(of, src, ConflictKind::CardinalityViolation, detail);
        }
    }
    Ok(())
}

async fn count(edges: &TableReader, counts: &mut BTreeMap<&str, u64>) -> Result<()> {
    let wrong = || Error::corrupt("batch", "columns", "the source of edges", "others");
    let mut rows = edges.scan(&ReadOptions::columns(&[id::SRC])).await?;
    while let Some(batch) = rows.try_next().await? {
        let sources = batch.column(0).as_string_opt::<i32>().ok_or_else(wrong)?;
        for src in sources.iter().flatten() {
            if let Some(count) = counts.get_mut(src) {
                *count += 1;
            }
        }
    }
    Ok(())
}
