//! What a merge makes of one row, for every pair of what two branches did to it.

use std::collections::BTreeMap;
use std::sync::Arc;

use stratagraph::Error;
use stratagraph::catalog::Catalog;
use stratagraph::catalog::graph::At;
use stratagraph::publish::merge::MergeKind;

use super::{expire, memory, two_people, world};
use crate::support::audit::{Told, audit, no_orphans, process};
use crate::support::graphs::{
    Change, Content, change, content, create, delete, fork, merge, merge_of, read, state,
};

/// A value of the row, `None` for no row; the value itself may be null.
type Row = Option<Option<i64>>;

const ZERO: Row = Some(Some(0));
const ONE: Row = Some(Some(1));
const TWO: Row = Some(Some(2));
const NULL: Row = Some(None);

/// What a branch does to a row, step by step.
const EXISTING: [&[Row]; 7] = [
    &[],
    &[ONE],
    &[ZERO, TWO],
    &[None],
    &[None, ZERO],
    &[None, ONE],
    &[NULL],
];

/// Whose row there is then: `=` either's, `s` the source's, `t` the target's; or the conflict: `I` both inserted,
/// `U` both updated, `D` one deleted. A line for each of the source's edits, a column for each of the target's.
const OF_EXISTING: [&str; 7] = [
    "= t t t = t t",
    "s = U D s = U",
    "s U = D s U U",
    "s D D = s D D",
    "= t t t = t t",
    "s = U D s = U",
    "s U U D s U =",
];

/// The same of a row that was not there.
const NEW: [&[Row]; 5] = [&[], &[ONE], &[ONE, TWO], &[ONE, None], &[NULL]];

const OF_NEW: [&str; 5] = [
    "= t t = t",
    "s = I s I",
    "s I = s I",
    "= t t = t",
    "s I I s =",
];

struct Case {
    name: String,
    base: Row,
    source: &'static [Row],
    target: &'static [Row],
    outcome: char,
}

fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    let table = |base: Row, edits: &[&'static [Row]], outcomes: &[&str], cases: &mut Vec<Case>| {
        for (source, line) in edits.iter().zip(outcomes) {
            let outcomes = line.split(' ').map(|word| word.chars().next().unwrap());
            for (target, outcome) in edits.iter().zip(outcomes) {
                cases.push(Case {
                    name: format!("r{:03}", cases.len()),
                    base,
                    source,
                    target,
                    outcome,
                });
            }
        }
    };
    table(ZERO, &EXISTING, &OF_EXISTING, &mut cases);
    table(None, &NEW, &OF_NEW, &mut cases);
    assert_eq!(cases.len(), 49 + 25);
    cases
}

/// The last of `edits`, or the base.
fn last(base: Row, edits: &[Row]) -> Row {
    edits.last().copied().unwrap_or(base)
}

#[derive(Clone, Copy)]
enum Of {
    People,
    Knows,
}

impl Of {
    fn put(self, change: &mut Change, name: &str, row: Row) {
        match self {
            Self::People => {
                let person = row.map(|age| (age, None));
                change.people.insert(name.to_owned(), person);
            }
            Self::Knows => {
                let edge = row.map(|weight| (format!("of {name}"), "to".to_owned(), weight));
                change.knows.insert(name.to_owned(), edge);
            }
        }
    }

    fn rows(self, content: &Content) -> BTreeMap<String, Option<i64>> {
        match self {
            Self::People => {
                let all = content.people.iter();
                let all = all.filter(|(name, _)| name.starts_with('r'));
                all.map(|(name, person)| (name.clone(), person.0)).collect()
            }
            Self::Knows => {
                let all = content.knows.iter();
                all.map(|(id, edge)| (id.clone(), edge.2)).collect()
            }
        }
    }
}

/// The base, then what both branches do, one commit a step.
async fn play(of: Of, cases: &[Case]) -> Arc<Catalog> {
    let catalog = process(memory(), 1);
    create(&catalog).await.unwrap();
    let mut base = Change::default().person("to", 0);
    for case in cases {
        if let Of::Knows = of {
            base = base.person(&format!("of {}", case.name), 0);
        }
        if case.base.is_some() {
            of.put(&mut base, &case.name, case.base);
        }
    }
    change(&catalog, "main", &base).await.unwrap();
    fork(&catalog, "b", "main").await.unwrap();
    for step in 0..2 {
        for (branch, edits) in [
            ("b", Case::source as fn(&Case) -> &'static [Row]),
            ("main", Case::target as fn(&Case) -> &'static [Row]),
        ] {
            let mut next = Change::default();
            for case in cases {
                if let Some(row) = edits(case).get(step) {
                    of.put(&mut next, &case.name, *row);
                }
            }
            change(&catalog, branch, &next).await.unwrap();
        }
    }
    catalog
}

impl Case {
    fn source(&self) -> &'static [Row] {
        self.source
    }

    fn target(&self) -> &'static [Row] {
        self.target
    }
}

#[tokio::test]
async fn every_pair_of_edits_has_its_outcome() {
    for of in [Of::People, Of::Knows] {
        let all = cases();
        let catalog = play(of, &all).await;
        // All conflicts at once.
        let found = match merge(&catalog, merge_of("b", "main")).await {
            Err(Error::MergeConflicts { conflicts, .. }) => conflicts.0,
            other => panic!("{other:?}"),
        };
        let found: Vec<(String, &str)> =
            found.into_iter().map(|c| (c.id, c.kind.as_str())).collect();
        let kind = |outcome| match outcome {
            'I' => Some("divergent_insert"),
            'U' => Some("divergent_update"),
            'D' => Some("delete_vs_update"),
            _ => None,
        };
        let expected = all.iter();
        let expected = expected.filter_map(|c| Some((c.name.clone(), kind(c.outcome)?)));
        let expected: Vec<(String, &str)> = expected.collect();
        assert!(expected.len() > 20);
        assert_eq!(found, expected);
        // The others together are one merge.
        let fine: Vec<Case> = all
            .into_iter()
            .filter(|c| kind(c.outcome).is_none())
            .collect();
        let catalog = play(of, &fine).await;
        let outcome = merge(&catalog, merge_of("b", "main")).await.unwrap();
        assert_eq!(outcome.kind, MergeKind::Merged);
        let mut expected = BTreeMap::new();
        for case in &fine {
            let (source, target) = (last(case.base, case.source), last(case.base, case.target));
            let row = match case.outcome {
                's' => source,
                't' => target,
                _ => {
                    assert_eq!(source, target, "{}", case.name);
                    target
                }
            };
            if let Some(value) = row {
                expected.insert(case.name.clone(), value);
            }
        }
        // The rows, and that edges point at the row ids of their ends.
        assert_eq!(of.rows(&read(&catalog, "main").await.unwrap()), expected);
        let again = merge(&catalog, merge_of("b", "main")).await.unwrap();
        assert_eq!(again.kind, MergeKind::AlreadyUpToDate);
    }
}

/// A branch of a branch was "reclaimed" after the one between them had been merged.
#[tokio::test]
async fn a_branch_of_a_branch_outlives_a_fast_forward() {
    let base = memory();
    let catalog = world(&base).await;
    fork(&catalog, "b", "main").await.unwrap();
    change(&catalog, "b", &two_people()).await.unwrap();
    fork(&catalog, "b/c", "b").await.unwrap();
    let was = read(&catalog, "b/c").await.unwrap();
    let outcome = merge(&catalog, merge_of("b", "main")).await.unwrap();
    assert_eq!(outcome.kind, MergeKind::FastForward);
    for age in 0..3 {
        let next = Change::default().person("ada", age).without("bob");
        change(&catalog, "main", &next).await.unwrap();
        change(&catalog, "b", &Change::default().person("cy", age))
            .await
            .unwrap();
    }
    for branch in ["main", "b"] {
        expire(&catalog, branch, u64::MAX).await.unwrap();
    }
    no_orphans(Arc::clone(&base), 21).await.unwrap();
    let fresh = process(Arc::clone(&base), 22);
    assert_eq!(read(&fresh, "b/c").await.unwrap(), was);
    // It still has a base with both.
    change(&fresh, "b/c", &Change::default().person("new", 1))
        .await
        .unwrap();
    for into in ["b", "main"] {
        let outcome = merge(&fresh, merge_of("b/c", into)).await.unwrap();
        assert_eq!(outcome.kind, MergeKind::Merged, "{into}");
        let merged = state(&fresh, into, &At::Head).await.unwrap();
        let merged = content(&fresh, &merged).await.unwrap();
        assert_eq!(merged.people["new"].0, Some(1));
        assert_eq!(merged.people.contains_key("bob"), into == "b");
    }
    delete(&fresh, "b/c").await.unwrap();
    no_orphans(Arc::clone(&base), 23).await.unwrap();
    audit(base, &Told::default()).await.unwrap();
}
