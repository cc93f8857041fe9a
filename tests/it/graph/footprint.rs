//! Writes of one branch that were prepared on one state: those that do not touch each other all commit,
//! the others are lost before they do harm.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use futures::FutureExt;
use futures::future::BoxFuture;
use object_store::ObjectStore;
use object_store::memory::InMemory;
use stratagraph::catalog::Catalog;
use stratagraph::catalog::graph::At;
use stratagraph::publish::graph::{write_graph, write_graph_exactly};
use stratagraph::sim::Rng;
use stratagraph::{Error, Result};

use crate::graph::branches::orders::explore;
use crate::graph::branches::world;
use crate::support::audit::{Told, audit, no_orphans};
use crate::support::graphs::{Change, Content, change, prepare, read, state};

async fn memory_world() -> (Arc<dyn ObjectStore>, Arc<Catalog>) {
    let base: Arc<dyn ObjectStore> = Arc::new(InMemory::new());
    let catalog = world(&base).await;
    (base, catalog)
}

/// Ada, Bob, Cy and Dan; Ada knows Bob, Bob knows Cy.
fn first() -> Change {
    Change::default()
        .person("ada", 1)
        .person("bob", 2)
        .person("cy", 3)
        .person("dan", 4)
        .knows("ab", "ada", "bob", 1)
        .knows("bc", "bob", "cy", 1)
}

/// Both writes are prepared on the same state; the second one's outcome, and what is there then.
async fn meet(one: &Change, two: &Change) -> (Result<()>, Content, Content) {
    let (base, catalog) = memory_world().await;
    change(&catalog, "main", &first()).await.unwrap();
    let mut stage = catalog.begin().await.unwrap();
    let seen = state(&catalog, "main", &At::Head).await.unwrap();
    let late = prepare(&catalog, &mut stage, &seen, two).await.unwrap();
    change(&catalog, "main", one).await.unwrap();
    let between = read(&catalog, "main").await.unwrap();
    let outcome = write_graph(&catalog, stage, late).await.map(drop);
    let after = read(&catalog, "main").await.unwrap();
    no_orphans(Arc::clone(&base), 8).await.unwrap();
    audit(base, &Told::default()).await.unwrap();
    (outcome, between, after)
}

async fn both_commit(one: &Change, two: &Change) {
    let (outcome, between, after) = meet(one, two).await;
    outcome.unwrap();
    assert_eq!(after, two.on(&between), "{one:?} {two:?}");
}

async fn second_is_lost(one: &Change, two: &Change, member: &str) {
    let (outcome, between, after) = meet(one, two).await;
    match outcome {
        Err(Error::ReadSetChanged { member: found, .. }) => {
            assert!(found.contains(member), "{found}: {one:?} {two:?}");
        }
        other => panic!("{other:?}: {one:?} {two:?}"),
    }
    assert_eq!(after, between);
}

#[tokio::test]
async fn writes_that_do_not_touch_each_other_all_commit() {
    let new = |name: &str| Change::default().person(name, 9);
    let pairs = [
        (new("eve"), new("fay")),
        (new("eve"), new("ada")),
        (new("ada"), new("bob")),
        // An update of a node, and edges of it.
        (new("ada"), Change::default().knows("ad", "ada", "dan", 2)),
        (Change::default().knows("ad", "ada", "dan", 2), new("ada")),
        // Deletions of other rows.
        (Change::default().without("dan"), new("eve")),
        (
            Change::default().without("dan"),
            Change::default().unknown("ab"),
        ),
        (
            Change::default().unknown("ab"),
            Change::default().unknown("bc"),
        ),
        (
            Change::default().without("dan"),
            Change::default().knows("ac", "ada", "cy", 2),
        ),
        // New nodes with edges between them take row ids on both sides.
        (
            new("eve").person("fay", 1).knows("ef", "eve", "fay", 1),
            new("gil")
                .person("hal", 1)
                .knows("gh", "gil", "hal", 1)
                .knows("ga", "gil", "ada", 1),
        ),
        (
            Change::default().email("eve", "e@x"),
            Change::default().email("fay", "f@x"),
        ),
    ];
    for (one, two) in &pairs {
        both_commit(one, two).await;
        both_commit(two, one).await;
    }
}

#[tokio::test]
async fn a_write_whose_ground_was_touched_is_lost() {
    let new = |name: &str| Change::default().person(name, 9);
    let pairs = [
        // The same key: two inserts, an update and an update, an update and a deletion.
        (new("eve"), new("eve"), "\"eve\""),
        (new("ada"), new("ada"), "\"ada\""),
        (Change::default().without("dan"), new("dan"), "\"dan\""),
        (new("dan"), Change::default().without("dan"), "\"dan\""),
        (
            Change::default().unknown("ab"),
            Change::default().unknown("ab"),
            "\"ab\"",
        ),
        // A node and an edge that needs it.
        (
            Change::default().without("dan"),
            Change::default().knows("ad", "ada", "dan", 1),
            "\"ad\"",
        ),
        (
            Change::default().knows("ad", "ada", "dan", 1),
            Change::default().without("dan"),
            "\"ad\"",
        ),
        (
            Change::default().without("ada"),
            Change::default().knows("ac", "ada", "cy", 1),
            // Her edges went with her, and their number is bounded.
            "\"ada\"",
        ),
        // A value that both take.
        (
            Change::default().email("eve", "e@x"),
            Change::default().email("fay", "e@x"),
            "\"fay\"",
        ),
        // Edges of one source, whose number is bounded.
        (
            Change::default().knows("a1", "ada", "cy", 1),
            Change::default().knows("a2", "ada", "dan", 1),
            "\"ada\"",
        ),
    ];
    for (one, two, member) in &pairs {
        second_is_lost(one, two, member).await;
    }
}

/// A node that was deleted and made again has another row id: an edge to what it was is lost.
#[tokio::test]
async fn a_node_that_came_back_is_another_node() {
    let (_, catalog) = memory_world().await;
    change(&catalog, "main", &first()).await.unwrap();
    let mut stage = catalog.begin().await.unwrap();
    let seen = state(&catalog, "main", &At::Head).await.unwrap();
    let edge = Change::default().knows("ad", "ada", "dan", 1);
    let late = prepare(&catalog, &mut stage, &seen, &edge).await.unwrap();
    change(&catalog, "main", &Change::default().without("dan"))
        .await
        .unwrap();
    change(&catalog, "main", &Change::default().person("dan", 4))
        .await
        .unwrap();
    let lost = write_graph(&catalog, stage, late).await.unwrap_err();
    assert_eq!(lost.code(), "ReadSetChanged");
    // The edge can be made anew.
    change(&catalog, "main", &edge).await.unwrap();
    assert!(
        read(&catalog, "main")
            .await
            .unwrap()
            .knows
            .contains_key("ad")
    );
}

/// A row that was changed and changed back lies elsewhere, and is found there.
#[tokio::test]
async fn a_row_that_moved_is_found_again() {
    let (_, catalog) = memory_world().await;
    change(&catalog, "main", &first()).await.unwrap();
    for two in [
        Change::default().person("dan", 7),
        Change::default().without("dan"),
    ] {
        let mut stage = catalog.begin().await.unwrap();
        let seen = state(&catalog, "main", &At::Head).await.unwrap();
        let late = prepare(&catalog, &mut stage, &seen, &two).await.unwrap();
        let was = read(&catalog, "main").await.unwrap().people["dan"]
            .0
            .unwrap();
        change(&catalog, "main", &Change::default().person("dan", 50))
            .await
            .unwrap();
        change(&catalog, "main", &Change::default().person("dan", was))
            .await
            .unwrap();
        let between = read(&catalog, "main").await.unwrap();
        write_graph(&catalog, stage, late).await.unwrap();
        assert_eq!(read(&catalog, "main").await.unwrap(), two.on(&between));
    }
}

#[tokio::test]
async fn what_is_for_one_commit_alone_is_never_rebased() {
    let (_, catalog) = memory_world().await;
    let mut stage = catalog.begin().await.unwrap();
    let seen = state(&catalog, "main", &At::Head).await.unwrap();
    let late = prepare(
        &catalog,
        &mut stage,
        &seen,
        &Change::default().person("eve", 1),
    )
    .await;
    change(&catalog, "main", &Change::default().person("fay", 1))
        .await
        .unwrap();
    let lost = write_graph_exactly(&catalog, stage, late.unwrap()).await;
    let now = state(&catalog, "main", &At::Head).await.unwrap();
    match lost {
        Err(Error::ReadSetChanged {
            member,
            expected,
            actual,
        }) => {
            assert_eq!(member, "g@main");
            assert_eq!(expected, format!("commit {}", seen.commit_id()));
            assert_eq!(actual, format!("commit {}", now.commit_id()));
        }
        other => panic!("{other:?}"),
    }
}

/// Many writers prepare on one state: all commit, each on the one before.
#[tokio::test]
async fn eight_writers_of_other_keys_are_one_line() {
    let (_, catalog) = memory_world().await;
    change(&catalog, "main", &first()).await.unwrap();
    let seen = state(&catalog, "main", &At::Head).await.unwrap();
    let mut expected = read(&catalog, "main").await.unwrap();
    let mut prepared = Vec::new();
    for n in 0..8 {
        let name = format!("w{n}");
        let own = Change::default()
            .person(&name, n)
            .knows(&format!("k{n}"), &name, "ada", n);
        let mut stage = catalog.begin().await.unwrap();
        let write = prepare(&catalog, &mut stage, &seen, &own).await.unwrap();
        prepared.push((own, stage, write));
    }
    let mut version = seen.manifest.version;
    for (own, stage, write) in prepared {
        let commit = write_graph(&catalog, stage, write).await.unwrap();
        assert_eq!(commit.parent_version, Some(version));
        version = commit.version;
        expected = own.on(&expected);
    }
    assert_eq!(version, seen.manifest.version + 8);
    assert_eq!(read(&catalog, "main").await.unwrap(), expected);
}

/// A random change that is right on `content` by itself.
fn random(rng: &mut Rng, content: &Content, own: &str) -> Change {
    let names: Vec<&String> = content.people.keys().collect();
    let pick =
        |rng: &mut Rng| names[usize::try_from(rng.below(names.len() as u64)).unwrap()].clone();
    let mut change = Change::default();
    for n in 0..1 + rng.below(3) {
        let (a, b, age) = (pick(rng), pick(rng), i64::try_from(rng.below(99)).unwrap());
        change = match rng.below(8) {
            0 => change.person(&a, age),
            1 => change.person(&format!("{own}{n}"), age),
            2 => change.email(&format!("{own}{n}"), &format!("e{}", rng.below(3))),
            3 => change.without(&a),
            4 | 5 => change.knows(&format!("{own}{n}-edge"), &a, &b, age),
            6 => match content
                .knows
                .keys()
                .nth(usize::try_from(rng.below(4)).unwrap())
            {
                Some(id) => change.unknown(id),
                None => change,
            },
            _ => change.person("shared", age),
        };
    }
    change
}

fn is_right(content: &Content) -> bool {
    let emails: Vec<&String> = content
        .people
        .values()
        .filter_map(|p| p.1.as_ref())
        .collect();
    let mut counts: BTreeMap<&str, u64> = BTreeMap::new();
    for (src, _, _) in content.knows.values() {
        *counts.entry(src).or_default() += 1;
    }
    emails.iter().collect::<BTreeSet<_>>().len() == emails.len() && counts.values().all(|n| *n <= 3)
}

/// Edges that a change makes must have their ends after it; else it is not right by itself.
fn holds(change: &Change, content: &Content) -> bool {
    let after = change.on(content);
    let put = change.knows.iter().filter(|(_, edge)| edge.is_some());
    is_right(&after) && put.into_iter().all(|(id, _)| after.knows.contains_key(id))
}

/// Whatever two random writes do: the second one commits and leaves what a serial order of both does, in
/// which every rule holds, or it is lost and leaves nothing.
#[tokio::test]
async fn random_pairs_are_as_if_one_came_after_the_other() {
    let runs = if std::env::var_os("SOAK").is_some() {
        2_000
    } else {
        250
    };
    let (mut committed, mut lost) = (0, 0);
    for seed in 0..runs {
        let mut rng = Rng::new(seed);
        let (_, catalog) = memory_world().await;
        change(&catalog, "main", &first()).await.unwrap();
        let content = read(&catalog, "main").await.unwrap();
        let winners: Vec<Change> = (0..1 + rng.below(3))
            .map(|n| random(&mut rng, &content, &format!("w{n}")))
            .collect();
        let two = random(&mut rng, &content, "two");
        if !holds(&two, &content) {
            continue;
        }
        let mut stage = catalog.begin().await.unwrap();
        let seen = state(&catalog, "main", &At::Head).await.unwrap();
        let late = prepare(&catalog, &mut stage, &seen, &two).await.unwrap();
        let mut between = content.clone();
        for winner in winners
            .iter()
            .filter(|w| !w.people.is_empty() || !w.knows.is_empty())
        {
            if holds(winner, &between) {
                change(&catalog, "main", winner).await.unwrap();
                between = winner.on(&between);
            }
        }
        let outcome = write_graph(&catalog, stage, late).await;
        let after = read(&catalog, "main").await.unwrap();
        match outcome {
            Ok(_) => {
                assert_eq!(after, two.on(&between), "seed {seed}: {winners:?} {two:?}");
                assert!(is_right(&after), "seed {seed}: {winners:?} {two:?}");
                committed += 1;
            }
            Err(error) => {
                assert_eq!(error.code(), "ReadSetChanged", "seed {seed}");
                assert_eq!(after, between, "seed {seed}");
                lost += 1;
            }
        }
    }
    println!("{committed} committed, {lost} lost");
    assert!(committed > runs / 10 && lost > runs / 10);
}

type Step = for<'a> fn(&'a Arc<Catalog>) -> BoxFuture<'a, Result<()>>;

async fn write(catalog: &Arc<Catalog>, own: Change) -> Result<()> {
    let mut stage = catalog.begin().await?;
    let seen = state(catalog, "b", &At::Head).await?;
    let write = prepare(catalog, &mut stage, &seen, &own).await?;
    write_graph(catalog, stage, write).await.map(drop)
}

#[test]
fn two_updates_of_other_rows_commit_in_every_order() {
    let steps: [Step; 2] = [
        |c| write(c, Change::default().person("ada", 71)).boxed(),
        |c| write(c, Change::default().person("bob", 72)).boxed(),
    ];
    explore(steps, |outcomes, heads| {
        let age = |name: &str| heads["b"].people[name].0;
        outcomes == [None, None] && (age("ada"), age("bob")) == (Some(71), Some(72))
    });
}

#[test]
fn a_deletion_and_an_edge_to_its_node_never_both_win() {
    let steps: [Step; 2] = [
        |c| write(c, Change::default().without("bob")).boxed(),
        |c| write(c, Change::default().knows("k5", "cy", "bob", 5)).boxed(),
    ];
    explore(steps, |outcomes, heads| {
        // Reading has made sure that no edge lost an end.
        let there = (
            heads["b"].people.contains_key("bob"),
            heads["b"].knows.contains_key("k5"),
        );
        match outcomes {
            [None, Some("ReadSetChanged")] => there == (false, false),
            [Some("ReadSetChanged"), None] => there == (true, true),
            // The deletion saw the edge and took it along.
            [None, None] => there == (false, false),
            _ => false,
        }
    });
}

#[test]
fn equal_inserts_on_both_sides_are_one_row() {
    let steps: [Step; 2] = [
        |c| {
            write(
                c,
                Change::default()
                    .person("eve", 1)
                    .knows("k6", "eve", "cy", 1),
            )
            .boxed()
        },
        |c| {
            write(
                c,
                Change::default()
                    .person("eve", 1)
                    .knows("k7", "cy", "eve", 1),
            )
            .boxed()
        },
    ];
    explore(steps, |outcomes, heads| {
        let edges = ["k6", "k7"].map(|id| heads["b"].knows.contains_key(id));
        match outcomes {
            [None, None] => edges == [true, true],
            [None, Some("ReadSetChanged")] => edges == [true, false],
            [Some("ReadSetChanged"), None] => edges == [false, true],
            _ => false,
        }
    });
}
