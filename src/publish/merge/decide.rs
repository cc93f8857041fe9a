//! Which rows of the source a merge takes, by id, and what both sides cannot agree on.

use std::collections::{BTreeMap, BTreeSet};

use super::diff::{Changes, Row};
use super::rules;
use crate::graph::conflict::{ConflictKind, MergeConflict, MergeConflicts};
use crate::graph::schema::GraphType;
use crate::limits;

/// Conflicts that were found: all are counted, the first are listed.
#[derive(Debug, Default)]
pub(super) struct Found {
    pub total: u64,
    pub list: MergeConflicts,
}

impl Found {
    pub(super) fn add(&mut self, of: &GraphType, id: &str, kind: ConflictKind, detail: String) {
        self.total += 1;
        if self.list.0.len() < limits::CONFLICTS {
            self.list.0.push(MergeConflict {
                type_name: of.name.clone(),
                id: id.to_owned(),
                kind,
                detail,
            });
        }
    }
}

/// A row of the source that the merged state has.
#[derive(Debug)]
pub(super) struct Take {
    pub entry: u64,
    pub position: u32,
    /// Its row id in the merged state: that of the target's row of the id, if there is one.
    pub rid: u64,
}

/// What a merge does to one table of the target.
#[derive(Debug, Default)]
pub(super) struct Plan {
    /// Ids whose rows go, sorted.
    pub kills: Vec<String>,
    /// Rows that come, by id.
    pub takes: BTreeMap<String, Take>,
}

impl Plan {
    /// About the memory that it takes.
    pub(super) fn bytes(&self) -> usize {
        let ids = self.kills.iter().chain(self.takes.keys());
        ids.map(|id| id.len() + size_of::<Take>() + 64).sum()
    }
}

/// What becomes of the row ids of a node type.
#[derive(Debug, Default)]
pub(super) struct Rids {
    /// Row ids of the source that are others in the merged state.
    pub moved: BTreeMap<u64, u64>,
    /// Row ids of nodes that the source has and the merged state has not.
    pub gone_source: BTreeSet<u64>,
    /// Row ids of nodes that the target has and the merged state has not.
    pub gone_target: BTreeSet<u64>,
}

/// The three states of a row.
#[derive(Clone, Copy)]
pub(super) struct Three<'a> {
    pub base: Option<&'a Row>,
    pub source: Option<&'a Row>,
    pub target: Option<&'a Row>,
}

/// Whose row the merged state has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    Target,
    Source,
    Conflict(ConflictKind),
}

fn same(a: Option<&Row>, b: Option<&Row>) -> bool {
    a.map(|row| row.content) == b.map(|row| row.content)
}

impl Three<'_> {
    pub(super) fn verdict(self) -> Verdict {
        let Three {
            base,
            source,
            target,
        } = self;
        if same(source, target) || same(source, base) {
            Verdict::Target
        } else if same(target, base) {
            Verdict::Source
        } else {
            Verdict::Conflict(match (base, source, target) {
                (None, ..) => ConflictKind::DivergentInsert,
                (_, Some(_), Some(_)) => ConflictKind::DivergentUpdate,
                _ => ConflictKind::DeleteVsUpdate,
            })
        }
    }

    fn detail(self) -> &'static str {
        match (self.base, self.source, self.target) {
            (None, ..) => "both sides inserted it, with different content",
            (_, Some(_), Some(_)) => "both sides updated it, to different content",
            (_, None, _) => "the source deleted it, the target updated it",
            _ => "the source updated it, the target deleted it",
        }
    }
}

/// Every id that a side changed, in order, with its three states.
pub(super) fn each<'a>(
    source: &'a Changes,
    target: &'a Changes,
) -> impl Iterator<Item = (&'a str, Three<'a>)> {
    let ids: BTreeSet<&String> = source.rows.keys().chain(target.rows.keys()).collect();
    ids.into_iter().map(|id| {
        let (of_source, of_target) = (source.rows.get(id), target.rows.get(id));
        let base = of_source.or(of_target).and_then(|c| c.was.as_ref());
        let three = Three {
            base,
            source: of_source.map_or(base, |c| c.is.as_ref()),
            target: of_target.map_or(base, |c| c.is.as_ref()),
        };
        (id.as_str(), three)
    })
}

/// Ids of rows that a side had and the merged state has not.
pub(super) fn removed(source: &Changes, target: &Changes) -> BTreeSet<String> {
    let gone = each(source, target).filter(|(_, three)| match three.verdict() {
        Verdict::Target => three.target.is_none(),
        Verdict::Source => three.source.is_none(),
        Verdict::Conflict(_) => false,
    });
    gone.map(|(id, _)| id.to_owned()).collect()
}

/// Decides row by row; `rids` is filled for node types and read for edge types.
pub(super) fn decide(
    of: &GraphType,
    source: &Changes,
    target: &Changes,
    rids: &mut BTreeMap<u64, Rids>,
    found: &mut Found,
) -> Plan {
    let (mut plan, mut own) = (Plan::default(), Rids::default());
    for (id, three) in each(source, target) {
        let merged = match three.verdict() {
            Verdict::Conflict(kind) => {
                found.add(of, id, kind, three.detail().to_owned());
                continue;
            }
            Verdict::Target => three.target.map(|row| row.rid),
            Verdict::Source => {
                if three.target.is_some() {
                    plan.kills.push(id.to_owned());
                }
                let rid = three.source.map(|row| three.target.unwrap_or(row).rid);
                if let Some((row, rid)) = three.source.zip(rid) {
                    let (entry, position) = (row.entry, row.position);
                    let take = Take {
                        entry,
                        position,
                        rid,
                    };
                    plan.takes.insert(id.to_owned(), take);
                }
                rid
            }
        };
        own.record(three, merged);
        rules::orphan(of, id, three, rids, found);
    }
    rules::unique(of, source, target, &plan, found);
    if !of.is_edge() {
        rids.insert(of.id, own);
    }
    plan
}

impl Rids {
    fn record(&mut self, three: Three<'_>, merged: Option<u64>) {
        match (three.source, merged) {
            (Some(row), None) => _ = self.gone_source.insert(row.rid),
            (Some(row), Some(rid)) if rid != row.rid => _ = self.moved.insert(row.rid, rid),
            _ => {}
        }
        if let (Some(row), None) = (three.target, merged) {
            self.gone_target.insert(row.rid);
        }
    }
}
