//! What a merge must give, from the contents of three states.

use std::collections::{BTreeMap, BTreeSet};

use stratagraph::graph::conflict::ConflictKind;

use crate::support::graphs::{Content, Knows};

/// Type, id and kind.
pub type Conflict = (String, String, ConflictKind);

/// Whose row the merged state has.
#[derive(PartialEq)]
enum Side {
    Source,
    Target,
    Neither(ConflictKind),
}

fn side<T: PartialEq>(base: Option<&T>, source: Option<&T>, target: Option<&T>) -> Side {
    if source == target || source == base {
        return Side::Target;
    }
    if target == base {
        return Side::Source;
    }
    Side::Neither(match (base, source.and(target)) {
        (None, _) => ConflictKind::DivergentInsert,
        (_, Some(_)) => ConflictKind::DivergentUpdate,
        _ => ConflictKind::DeleteVsUpdate,
    })
}

type Rows<T> = BTreeMap<String, T>;

/// Merged rows with their side, and ids that neither side can have.
fn rows<T: PartialEq + Clone>(
    of: &str,
    [base, source, target]: [&Rows<T>; 3],
    conflicts: &mut BTreeSet<Conflict>,
) -> (Rows<(T, Side)>, BTreeSet<String>) {
    let ids: BTreeSet<&String> = source
        .keys()
        .chain(target.keys())
        .chain(base.keys())
        .collect();
    let (mut merged, mut neither) = (Rows::new(), BTreeSet::new());
    for id in ids {
        let (s, t) = (source.get(id), target.get(id));
        let (row, from) = match side(base.get(id), s, t) {
            Side::Neither(kind) => {
                conflicts.insert((of.to_owned(), id.clone(), kind));
                neither.insert(id.clone());
                continue;
            }
            Side::Source => (s, Side::Source),
            Side::Target => (t, Side::Target),
        };
        if let Some(row) = row {
            merged.insert(id.clone(), (row.clone(), from));
        }
    }
    (merged, neither)
}

/// Sources of the edges that a side changed.
fn touched(base: &Rows<Knows>, side: &Rows<Knows>) -> BTreeSet<String> {
    let changed = |id: &&String| base.get(*id) != side.get(*id);
    let ids = base.keys().chain(side.keys()).filter(changed);
    let edges = ids.flat_map(|id| [base.get(id), side.get(id)]);
    edges.flatten().map(|edge| edge.0.clone()).collect()
}

/// The merged content, or all conflicts. Persons may know at most three others.
pub fn merge(
    base: &Content,
    source: &Content,
    target: &Content,
) -> Result<Content, BTreeSet<Conflict>> {
    let mut conflicts = BTreeSet::new();
    let people = [&base.people, &source.people, &target.people];
    let (people, open) = rows("Person", people, &mut conflicts);
    let knows = [&base.knows, &source.knows, &target.knows];
    let (knows, _) = rows("Knows", knows, &mut conflicts);
    for (id, ((src, dst, _), _)) in &knows {
        let gone = |end: &String| !people.contains_key(end) && !open.contains(end);
        if gone(src) || gone(dst) {
            conflicts.insert(("Knows".to_owned(), id.clone(), ConflictKind::OrphanEdge));
        }
    }
    let both = &touched(&base.knows, &source.knows) & &touched(&base.knows, &target.knows);
    for src in both {
        // Where neither side can have an edge, the target's counts.
        let merged = knows.values().filter(|((s, _, _), _)| *s == src).count();
        let open = target.knows.iter().filter(|(id, edge)| {
            edge.0 == src
                && conflicts
                    .iter()
                    .any(|c| c.0 == "Knows" && c.1 == **id && divergent(c.2))
        });
        if merged + open.count() > 3 {
            let kind = ConflictKind::CardinalityViolation;
            conflicts.insert(("Knows".to_owned(), src, kind));
        }
    }
    if !conflicts.is_empty() {
        return Err(conflicts);
    }
    let first = |(id, (row, _))| (id, row);
    Ok(Content {
        people: people.into_iter().map(|(id, (row, _))| (id, row)).collect(),
        knows: knows.into_iter().map(first).collect(),
    })
}

fn divergent(kind: ConflictKind) -> bool {
    matches!(
        kind,
        ConflictKind::DivergentInsert
            | ConflictKind::DivergentUpdate
            | ConflictKind::DeleteVsUpdate
    )
}
