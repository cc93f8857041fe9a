//! Patterns against plain enumeration.

use std::collections::BTreeMap;
use std::sync::Arc;

use proptest::prelude::*;
use proptest::test_runner::Config;
use stratagraph::graph::query::Direction;
use stratagraph::graph::topology::{
    EdgeTable, MatchCursor, MatchHop, MatchNodes, MatchPattern, Matching, TraversalMode,
};

use super::DIRECTIONS;
use super::model::Graph;
use crate::support::tables::block_on;

#[derive(Debug, Clone)]
struct Hop {
    left: usize,
    right: usize,
    direction: Direction,
    distinct: bool,
}

#[derive(Debug, Clone)]
struct Case {
    fragments: Vec<super::Part>,
    /// Whether lists lie beside the fragments.
    stored: bool,
    variables: usize,
    hops: Vec<Hop>,
    kept: Vec<usize>,
    counted: bool,
    mode: TraversalMode,
    /// Whether all lists are in memory already.
    held: bool,
    nodes: Vec<MatchNodes>,
    cursors: usize,
    rows: usize,
}

/// Fragments of edges between `nodes` nodes; often one has most of them.
fn fragments(nodes: u64) -> impl Strategy<Value = Vec<super::Part>> {
    let part = move |edges: std::ops::Range<usize>| {
        let edges = prop::collection::vec((0..nodes, 0..nodes), edges);
        let shift = prop::option::weighted(0.2, (0..nodes, 1u64..20));
        let dead = prop::sample::select(vec![0u8, 0, 20, 100]);
        (edges, dead, shift)
    };
    let large = prop::collection::vec(part(40..60), 0..2);
    let fragments = (large, prop::collection::vec(part(0..40), 0..4), 1usize..5);
    fragments.prop_map(|(large, mut small, by)| {
        for (edges, ..) in small.iter_mut().filter(|_| !large.is_empty()) {
            edges.truncate(edges.len() / (by * by));
        }
        small.splice(0..0, large);
        small
    })
}

/// Hops that join all variables: a tree, and some that close cycles, loops among them.
fn hops(variables: usize) -> impl Strategy<Value = Vec<Hop>> {
    let end = (
        0usize..100,
        any::<bool>(),
        0usize..3,
        prop::bool::weighted(0.75),
    );
    let tree = prop::collection::vec(end.clone(), variables - 1);
    let more = prop::collection::vec((end, 0..variables), 0..4);
    (tree, more).prop_map(move |(tree, more)| {
        let hop =
            |(a, flip, direction, distinct): (usize, bool, usize, bool), b: usize, of: usize| {
                let a = a % of;
                let (left, right) = if flip { (b, a) } else { (a, b) };
                let direction = DIRECTIONS[direction];
                Hop {
                    left,
                    right,
                    direction,
                    distinct,
                }
            };
        let tree = tree.into_iter().enumerate();
        let mut hops: Vec<Hop> = tree.map(|(i, end)| hop(end, i + 1, i + 1)).collect();
        hops.extend(more.into_iter().map(|(end, b)| hop(end, b, variables)));
        if hops.is_empty() {
            hops.push(hop((0, false, 0, true), 0, 1));
        }
        hops
    })
}

fn case() -> impl Strategy<Value = Case> {
    let nodes = prop::sample::select(vec![1u64, 3, 6, 12, 500_000]);
    (nodes, 1usize..5).prop_flat_map(|(nodes, variables)| {
        let kept = Just((0..variables).collect::<Vec<_>>()).prop_shuffle();
        let kept = (kept, 0..=variables).prop_map(|(mut all, some)| {
            all.truncate(some);
            all
        });
        let set = prop::collection::vec(prop_oneof![9 => 0..nodes, 1 => Just(u64::MAX)], 0..12);
        let sets = prop::collection::vec(prop::option::weighted(0.4, set), variables);
        let modes = [
            TraversalMode::Auto,
            TraversalMode::Index,
            TraversalMode::Adjacency,
        ];
        (
            (fragments(nodes), any::<bool>()),
            hops(variables),
            (kept, any::<bool>()),
            (prop::sample::select(modes.to_vec()), any::<bool>()),
            sets,
            1usize..4,
            prop::sample::select(vec![1usize, 3, 8_192]),
        )
            .prop_map(
                move |((fragments, stored), hops, kept, (mode, held), nodes, cursors, rows)| Case {
                    fragments,
                    stored,
                    variables,
                    hops,
                    kept: kept.0,
                    counted: kept.1,
                    mode,
                    held,
                    nodes,
                    cursors,
                    rows,
                },
            )
    })
}

/// How many edges join two nodes, seen from the first one.
fn joined(edges: &BTreeMap<(u64, u64), u64>, hop: &Hop, left: u64, right: u64) -> u64 {
    let count = |a, b| edges.get(&(a, b)).copied().unwrap_or(0);
    let all = match hop.direction {
        Direction::Out => count(left, right),
        Direction::In => count(right, left),
        Direction::Both if left == right => count(left, left),
        Direction::Both => count(left, right) + count(right, left),
    };
    if hop.distinct { all.min(1) } else { all }
}

/// Assignments of each kept row.
fn expected(case: &Case, live: &[(u64, u64)]) -> BTreeMap<Vec<u64>, u64> {
    let mut edges: BTreeMap<(u64, u64), u64> = BTreeMap::new();
    for edge in live {
        *edges.entry(*edge).or_default() += 1;
    }
    let mut nodes: Vec<u64> = live.iter().flat_map(|(a, b)| [*a, *b]).collect();
    nodes.sort_unstable();
    nodes.dedup();
    let mut found = BTreeMap::new();
    let mut bound = Vec::new();
    extend(case, &edges, &nodes, &mut bound, 1, &mut found);
    found
}

fn extend(
    case: &Case,
    edges: &BTreeMap<(u64, u64), u64>,
    nodes: &[u64],
    bound: &mut Vec<u64>,
    count: u64,
    found: &mut BTreeMap<Vec<u64>, u64>,
) {
    let var = bound.len();
    if var == case.variables {
        let row = case.kept.iter().map(|v| bound[*v]).collect();
        *found.entry(row).or_default() += count;
        return;
    }
    for node in nodes {
        if case.nodes[var]
            .as_ref()
            .is_some_and(|set| !set.contains(node))
        {
            continue;
        }
        bound.push(*node);
        let mut times = count;
        for hop in &case.hops {
            if hop.left.max(hop.right) == var {
                times *= joined(edges, hop, bound[hop.left], bound[hop.right]);
            }
        }
        if times > 0 {
            extend(case, edges, nodes, bound, times, found);
        }
        bound.pop();
    }
}

fn pattern(case: &Case, edges: &EdgeTable) -> MatchPattern {
    let hops = case.hops.iter().map(|hop| MatchHop {
        left: hop.left,
        right: hop.right,
        edges: edges.clone(),
        direction: hop.direction,
        distinct: hop.distinct,
    });
    MatchPattern {
        variables: case.variables,
        hops: hops.collect(),
        kept: case.kept.clone(),
        counted: case.counted,
        mode: case.mode,
    }
}

async fn check(case: &Case) {
    let mut graph = Graph::new();
    for (edges, dead, shift) in &case.fragments {
        graph.add(edges, *dead, *shift).await;
    }
    if case.stored {
        graph.store_lists().await;
    }
    let edges = graph.edges().await;
    let expected = expected(case, &graph.live());
    let pattern = pattern(case, &edges);
    if case.held {
        let all = MatchPattern {
            mode: TraversalMode::Adjacency,
            ..pattern.clone()
        };
        Matching::prepare(&all, &[]).await.unwrap();
    }
    let matching = Arc::new(Matching::prepare(&pattern, &case.nodes).await.unwrap());
    let mut found: BTreeMap<Vec<u64>, u64> = BTreeMap::new();
    let mut rows = 0;
    let mut cursors: Vec<MatchCursor> = (0..case.cursors)
        .map(|part| MatchCursor::new(&matching, part, case.cursors))
        .collect();
    while !cursors.is_empty() {
        let mut open = Vec::new();
        for mut cursor in cursors {
            let Some(part) = cursor.next(case.rows).await.unwrap() else {
                continue;
            };
            assert_eq!(part.counts.len(), if case.counted { part.rows } else { 0 });
            rows += part.rows;
            for at in 0..part.rows {
                let row = part.columns.iter().map(|column| column[at]).collect();
                let count = part.counts.get(at).map_or(1, |count| *count as u64);
                *found.entry(row).or_default() += count;
            }
            open.push(cursor);
        }
        cursors = open;
    }
    if pattern.core() == case.kept {
        assert_eq!(
            rows,
            found.len(),
            "a row comes once where nothing else is left"
        );
    }
    match case.counted {
        true => assert_eq!(found, expected),
        false => assert!(found.keys().eq(expected.keys()), "{found:?} {expected:?}"),
    }
}

proptest! {
    #![proptest_config(Config { cases: 1_500, failure_persistence: None, ..Config::default() })]

    #[test]
    fn patterns_have_the_assignments_that_enumeration_finds(case in case()) {
        block_on(check(&case));
    }
}

#[test]
fn each_node_is_bound_once_by_one_of_the_cursors() {
    block_on(async {
        let mut graph = Graph::new();
        let edges: Vec<(u64, u64)> = (0..700).map(|node| (node, 699 - node)).collect();
        graph.add(&edges, 0, None).await;
        let pattern = MatchPattern {
            variables: 2,
            hops: vec![MatchHop {
                left: 0,
                right: 1,
                edges: graph.edges().await,
                direction: Direction::Out,
                distinct: true,
            }],
            kept: Vec::new(),
            counted: true,
            mode: TraversalMode::Auto,
        };
        let matching = Arc::new(Matching::prepare(&pattern, &[]).await.unwrap());
        for cursors in [1, 2, 3] {
            let (mut bound, mut paths) = (0, 0);
            for part in 0..cursors {
                let mut cursor = MatchCursor::new(&matching, part, cursors);
                while let Some(rows) = cursor.next(10).await.unwrap() {
                    paths += rows.counts.iter().sum::<i64>();
                }
                bound += cursor.stats().frontier;
            }
            assert_eq!((bound, paths), (700, 700), "{cursors}");
        }
    });
}

async fn refused(change: impl Fn(&mut MatchPattern)) -> &'static str {
    let mut graph = Graph::new();
    graph.add(&[(0, 1)], 0, None).await;
    let edges = graph.edges().await;
    let hop = |left, right| MatchHop {
        left,
        right,
        edges: edges.clone(),
        direction: Direction::Out,
        distinct: true,
    };
    let mut pattern = MatchPattern {
        variables: 4,
        hops: vec![hop(0, 1), hop(2, 1), hop(2, 3)],
        kept: vec![3],
        counted: true,
        mode: TraversalMode::Auto,
    };
    assert_eq!(pattern.check().map_err(|e| e.code()), Ok(()));
    change(&mut pattern);
    let refused = Matching::prepare(&pattern, &[]).await;
    refused.err().map_or("accepted", |error| error.code())
}

#[test]
fn what_is_no_pattern_is_refused() {
    block_on(async {
        let code = "InvalidArgument";
        assert_eq!(refused(|p| p.variables = 3).await, code);
        assert_eq!(refused(|p| p.variables = 5).await, code);
        assert_eq!(refused(|p| p.kept = vec![4]).await, code);
        assert_eq!(refused(|p| p.kept = vec![1, 1]).await, code);
        assert_eq!(refused(|p| p.hops.clear()).await, code);
        assert_eq!(refused(|p| p.hops.truncate(1)).await, code);
        assert_eq!(refused(|_| {}).await, "accepted");
    });
}

#[test]
fn more_assignments_than_a_number_holds_are_refused() {
    block_on(async {
        let mut graph = Graph::new();
        let edges: Vec<(u64, u64)> = (0..16).flat_map(|a| (0..16).map(move |b| (a, b))).collect();
        graph.add(&edges, 0, None).await;
        let edges = graph.edges().await;
        for (variables, fits) in [(15, true), (16, false), (40, false)] {
            let hops = (1..variables).map(|right| MatchHop {
                left: right - 1,
                right,
                edges: edges.clone(),
                direction: Direction::Out,
                distinct: true,
            });
            let pattern = MatchPattern {
                variables,
                hops: hops.collect(),
                kept: Vec::new(),
                counted: true,
                mode: TraversalMode::Auto,
            };
            let matching = Arc::new(Matching::prepare(&pattern, &[]).await.unwrap());
            let answer = MatchCursor::new(&matching, 0, 1).next(10).await;
            match fits {
                true => assert_eq!(answer.unwrap().unwrap().counts, [16i64.pow(15)]),
                false => assert_eq!(answer.unwrap_err().code(), "ResourceLimitExceeded"),
            }
        }
    });
}

/// A path of two hops over one large fragment and small ones.
async fn after_commits(graph: &mut Graph, commits: u64) -> MatchPattern {
    let large: Vec<(u64, u64)> = (0..4_000).map(|i| (i % 500, i * i % 499)).collect();
    graph.add(&large, 1, None).await;
    for commit in 0..commits {
        // Of some the large fragment has the edge, too.
        let node = commit * 7 % 600;
        graph
            .add(&[(node, node * node % 499), (node, 501)], 0, None)
            .await;
    }
    let edges = graph.edges().await;
    let hop = |left, right| MatchHop {
        left,
        right,
        edges: edges.clone(),
        direction: Direction::Out,
        distinct: true,
    };
    MatchPattern {
        variables: 3,
        hops: vec![hop(0, 1), hop(1, 2)],
        kept: Vec::new(),
        counted: true,
        mode: TraversalMode::Auto,
    }
}

async fn paths(pattern: &MatchPattern, nodes: &[MatchNodes]) -> (i64, Arc<Matching>) {
    let matching = Arc::new(Matching::prepare(pattern, nodes).await.unwrap());
    let mut cursor = MatchCursor::new(&matching, 0, 1);
    let rows = cursor.next(10).await.unwrap();
    (rows.map_or(0, |rows| rows.counts.iter().sum()), matching)
}

#[test]
fn nodes_of_several_fragments_are_merged_once_for_all_that_look_many_up() {
    block_on(async {
        let mut graph = Graph::new();
        let pattern = after_commits(&mut graph, 20).await;
        let mut edges = graph.live();
        edges.sort_unstable();
        edges.dedup();
        let from = |node| edges.iter().filter(|(src, _)| *src == node).count() as i64;
        let all: i64 = edges.iter().map(|(_, dst)| from(*dst)).sum();
        let one: i64 = edges
            .iter()
            .filter(|(src, _)| *src == 7)
            .map(|(_, dst)| from(*dst))
            .sum();
        let few = [Some(vec![7]), None, None];
        // Few nodes are not worth it, but use what is there.
        for (nodes, expected, merged) in [
            (&few[..], one, false),
            (&[][..], all, true),
            (&[][..], all, true),
            (&few[..], one, true),
        ] {
            let listed = MatchPattern {
                mode: TraversalMode::Adjacency,
                ..pattern.clone()
            };
            let (found, matching) = paths(&listed, nodes).await;
            assert_eq!(
                (found, matching.stats().merged_nodes > 0),
                (expected, merged)
            );
        }
    });
}

#[test]
fn few_nodes_are_followed_without_the_lists_of_all() {
    block_on(async {
        let mut graph = Graph::new();
        let pattern = after_commits(&mut graph, 3).await;
        let nodes = [Some(vec![7, 9]), None, None];
        let index = MatchPattern {
            mode: TraversalMode::Index,
            ..pattern.clone()
        };
        let (found, matching) = paths(&index, &nodes).await;
        let stats = matching.stats();
        assert!(
            stats
                .hops
                .iter()
                .all(|hop| (hop.index, hop.adjacency) == (1, 0))
        );
        assert_eq!((stats.cache_hits, stats.cache_misses), (0, 0));
        let listed = MatchPattern {
            mode: TraversalMode::Adjacency,
            ..pattern.clone()
        };
        let (expected, matching) = paths(&listed, &nodes).await;
        assert!(matching.stats().hops.iter().all(|hop| hop.index == 0));
        assert!(expected > 0 && found == expected, "{found} {expected}");
        // In memory, they are no longer left aside.
        let (found, matching) = paths(&pattern, &nodes).await;
        assert_eq!(found, expected);
        assert!(matching.stats().hops.iter().all(|hop| hop.index == 0));
    });
}
