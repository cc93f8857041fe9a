//! Traversals against a model in memory, and what they read and hold.

mod cost;
mod matching;
mod model;

use std::collections::BTreeSet;

use proptest::prelude::*;
use proptest::test_runner::Config;
use stratagraph::graph::query::Direction;
use stratagraph::graph::topology::{EdgeTable, Pairs, ReachOptions, TraversalMode, Walk};
use stratagraph::table::manifest::{Endpoints, Layout};

use self::model::{Graph, answer, expected, walk};
use crate::support::tables::{NODE_TYPE, Row, TableBuilder, block_on};

const DIRECTIONS: [Direction; 3] = [Direction::Out, Direction::In, Direction::Both];
const MODES: [TraversalMode; 3] = [
    TraversalMode::Auto,
    TraversalMode::Index,
    TraversalMode::Adjacency,
];

/// (edges, share of dead rows in percent, shift).
type Part = (Vec<(u64, u64)>, u8, Option<(u64, u64)>);

#[derive(Debug, Clone)]
struct Plan {
    fragments: Vec<Part>,
    /// Whether lists lie beside the fragments.
    stored: bool,
    sources: Vec<Option<u64>>,
    bounds: (u32, u32),
    batch_rows: usize,
}

fn plan() -> impl Strategy<Value = Plan> {
    // Few nodes make loops, parallel edges, diamonds and cycles; many make sparse lists.
    let nodes = prop::sample::select(vec![2u64, 5, 12, 40, 1_000_000]);
    nodes.prop_flat_map(|nodes| {
        let edges = prop::collection::vec((0..nodes, 0..nodes), 0..60);
        let shift = prop::option::of((0..nodes, 1u64..20));
        let dead = prop::sample::select(vec![0u8, 0, 20, 100]);
        let fragments = prop::collection::vec((edges, dead, shift), 0..4);
        let source = prop_oneof![
            8 => (0..nodes + 20).prop_map(Some),
            1 => Just(None),
            1 => Just(Some(u64::MAX)),
        ];
        let sources = prop::collection::vec(source, 0..90);
        let bounds = (1u32..4, 0u32..4).prop_map(|(min, more)| (min, min + more));
        let batch_rows = prop::sample::select(vec![1usize, 3, 8_192]);
        (fragments, any::<bool>(), sources, bounds, batch_rows).prop_map(
            |(fragments, stored, sources, bounds, batch_rows)| Plan {
                fragments,
                stored,
                sources,
                bounds,
                batch_rows,
            },
        )
    })
}

/// Searched from both ends, pairs have the distances that traversals find.
async fn pairs(
    edges: &EdgeTable,
    sources: &[Option<u64>],
    direction: Direction,
    (min, max): (u32, u32),
    expected: &[model::Found],
) {
    let mut pairs = Pairs::new(edges, ReachOptions::new(direction, min, max)).unwrap();
    for (row, source) in sources.iter().enumerate() {
        let Some(source) = source else { continue };
        for target in sources.iter().flatten().step_by(3) {
            let found = expected.iter();
            let mut found = found.filter(|(of, dst, _)| *of as usize == row && dst == target);
            let distance = found.next().map(|(_, _, distance)| *distance);
            let answer = pairs.distance(*source, *target).await.unwrap();
            assert_eq!(answer, distance, "{source} to {target}, {direction:?}");
        }
    }
}

async fn check(plan: &Plan) {
    let mut graph = Graph::new();
    for (edges, dead, shift) in &plan.fragments {
        graph.add(edges, *dead, *shift).await;
    }
    if plan.stored {
        graph.store_lists().await;
    }
    let edges = graph.edges().await;
    for direction in DIRECTIONS {
        // Sources at live edges too, so that large graphs have answers.
        let mut sources = plan.sources.clone();
        sources.extend(graph.ends().into_iter().step_by(7).map(Some));
        let expected = expected(&graph.live(), &sources, direction, plan.bounds, true);
        pairs(&edges, &sources, direction, plan.bounds, &expected).await;
        for mode in MODES {
            let options = ReachOptions {
                mode,
                hops: true,
                batch_rows: plan.batch_rows,
                ..ReachOptions::new(direction, plan.bounds.0, plan.bounds.1)
            };
            let found = answer(&edges, options, &sources).await;
            assert_eq!(found, expected, "{direction:?} {mode}");
        }
    }
}

#[test]
fn every_path_of_lookup_agrees_with_the_model() {
    let config = Config {
        cases: 150,
        ..Config::default()
    };
    proptest!(config, |(plan in plan())| block_on(check(&plan)));
}

#[test]
fn many_sources_go_together_and_change_nothing() {
    block_on(async {
        let mut graph = Graph::new();
        let (nodes, mut edges) = (150u64, Vec::new());
        for i in 0..3_000u64 {
            let mix = i.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 13;
            // The last nodes only have edges among themselves, and some none.
            let node = |x: u64| {
                if x % nodes < 140 {
                    x % 140
                } else {
                    140 + x % 5
                }
            };
            edges.push((node(mix), node(mix >> 20)));
        }
        edges.retain(|(src, dst)| (*src < 140) == (*dst < 140));
        graph.add(&edges[..2_000], 10, None).await;
        graph.add(&edges[2_000..], 0, None).await;
        let edges = graph.edges().await;
        let mut sources: Vec<Option<u64>> = (0..200).map(|i| Some(i * 7 % 153)).collect();
        sources.extend([None, Some(3), Some(3), None]);
        for direction in DIRECTIONS {
            for (bounds, hops) in [
                ((1, 2), true),
                ((1, 6), false),
                ((2, 3), true),
                ((3, 64), true),
            ] {
                let expected = expected(&graph.live(), &sources, direction, bounds, hops);
                let options = ReachOptions {
                    hops,
                    batch_rows: 1_000,
                    mode: TraversalMode::Adjacency,
                    ..ReachOptions::new(direction, bounds.0, bounds.1)
                };
                let mut walk = Walk::new(&edges, options).unwrap();
                let found = model::collect(&mut walk, &sources, hops, 1_000).await;
                assert_eq!(found, expected, "{direction:?} {bounds:?}");
                // One by one, each of the sources would be a use of the lists of its own.
                let uses = walk.stats().hops[0].adjacency;
                assert!((3..30).contains(&uses), "{uses}");
            }
        }
    });
}

#[test]
fn distances_are_those_of_shortest_paths() {
    block_on(async {
        let mut graph = Graph::new();
        // A self-loop on the way, a parallel edge, a diamond, a cycle back to the source.
        let edges = [
            (0, 1),
            (1, 1),
            (1, 2),
            (1, 2),
            (1, 3),
            (2, 4),
            (3, 4),
            (4, 0),
            (9, 9),
        ];
        graph.add(&edges, 0, None).await;
        let edges = graph.edges().await;
        let reach = async |source: u64, direction, min, max| {
            let options = ReachOptions {
                hops: true,
                ..ReachOptions::new(direction, min, max)
            };
            let found = answer(&edges, options, &[Some(source)]).await;
            found
                .into_iter()
                .map(|(_, dst, hops)| (dst, hops))
                .collect::<Vec<_>>()
        };
        let out = Direction::Out;
        assert_eq!(reach(0, out, 1, 9).await, [(1, 1), (2, 2), (3, 2), (4, 3)]);
        assert_eq!(reach(0, out, 2, 2).await, [(2, 2), (3, 2)]);
        assert_eq!(reach(1, out, 1, 1).await, [(1, 1), (2, 1), (3, 1)]);
        assert_eq!(reach(1, out, 2, 9).await, [(0, 3), (4, 2)]);
        assert_eq!(reach(9, out, 1, 64).await, [(9, 1)]);
        assert_eq!(
            reach(4, Direction::In, 1, 2).await,
            [(1, 2), (2, 1), (3, 1)]
        );
        assert_eq!(
            reach(4, Direction::Both, 1, 1).await,
            [(0, 1), (2, 1), (3, 1)]
        );
        assert_eq!(reach(5, Direction::Both, 1, 64).await, []);
    });
}

#[test]
fn edges_between_two_types_have_one_hop() {
    block_on(async {
        let mut graph = Graph::new();
        graph.add(&[(0, 0), (0, 1), (1, 2), (2, 0)], 0, None).await;
        let edges = graph.edges_between(NODE_TYPE, 7).await;
        assert!(!edges.same_type());
        for mode in MODES {
            let reach = async |direction, min, max| {
                let options = ReachOptions {
                    mode,
                    ..ReachOptions::new(direction, min, max)
                };
                answer(&edges, options, &[Some(0)]).await
            };
            // Node 0 of one type is not node 0 of the other.
            let (out, back) = (Direction::Out, Direction::In);
            assert_eq!(reach(out, 1, 5).await, [(0, 0, 0), (0, 1, 0)]);
            assert_eq!(reach(back, 1, 1).await, [(0, 0, 0), (0, 2, 0)]);
            assert_eq!(reach(out, 2, 5).await, []);
        }
        let both = ReachOptions::new(Direction::Both, 1, 1);
        assert_eq!(
            Walk::new(&edges, both).err().unwrap().code(),
            "InvalidArgument"
        );
    });
}

#[test]
fn a_shift_of_one_end_leaves_the_other_alone() {
    block_on(async {
        let mut graph = Graph::new();
        graph
            .add(&[(0, 5), (5, 0), (5, 5), (6, 9)], 0, Some((5, 10)))
            .await;
        // Only the nodes of type 1 were shifted: the sources.
        let edges = graph.edges_between(NODE_TYPE, 7).await;
        let sources = [Some(0), Some(5), Some(15), Some(16)];
        for mode in MODES {
            let mut options = ReachOptions::new(Direction::Out, 1, 1);
            options.mode = mode;
            let found = answer(&edges, options, &sources).await;
            assert_eq!(found, [(0, 5, 0), (2, 0, 0), (2, 5, 0), (3, 9, 0)]);
            let mut options = ReachOptions::new(Direction::In, 1, 1);
            options.mode = mode;
            let found = answer(&edges, options, &sources).await;
            assert_eq!(found, [(0, 15, 0), (1, 0, 0), (1, 15, 0)]);
        }
    });
}

#[test]
fn bounds_are_checked_at_their_limits() {
    block_on(async {
        let mut graph = Graph::new();
        graph.add(&[(0, 1)], 0, None).await;
        let edges = graph.edges().await;
        let code = |min, max| {
            let walk = Walk::new(&edges, ReachOptions::new(Direction::Out, min, max));
            walk.err().map(|e| e.code().to_owned())
        };
        for (min, max) in [(1, 1), (64, 64), (1, 64), (3, 63)] {
            assert_eq!(code(min, max), None);
        }
        for (min, max) in [(0, 0), (0, 5), (2, 1)] {
            assert_eq!(code(min, max).unwrap(), "InvalidArgument");
        }
        for (min, max) in [(1, 65), (65, 65), (1, u32::MAX)] {
            assert_eq!(code(min, max).unwrap(), "ResourceLimitExceeded");
        }
    });
}

#[test]
fn row_ids_end_below_two_to_the_32() {
    block_on(async {
        let largest = u64::from(u32::MAX) - 1;
        for (end, shift, fits) in [
            (largest, None, true),
            (largest + 1, None, false),
            (u64::MAX, None, false),
            (largest - 5, Some((largest - 5, 5)), true),
            (largest - 5, Some((largest - 5, 6)), false),
        ] {
            for direction in DIRECTIONS {
                for mode in [TraversalMode::Adjacency, TraversalMode::Index] {
                    let mut graph = Graph::new();
                    graph.add(&[(3, end)], 0, shift).await;
                    let edges = graph.edges().await;
                    let mut options = ReachOptions::new(direction, 1, 1);
                    options.mode = mode;
                    let found = walk(&edges, options, &[Some(3), Some(largest)]).await;
                    match found {
                        Ok(found) => {
                            // Pages that hold no source are not read.
                            assert!(
                                fits || (mode, direction) == (TraversalMode::Index, Direction::In)
                            );
                            assert_eq!(found.is_empty(), !fits, "{end} {shift:?}");
                        }
                        Err(error) => {
                            assert!(!fits, "{end} {shift:?}: {error}");
                            assert_eq!(error.code(), "ResourceLimitExceeded");
                        }
                    }
                }
            }
        }
    });
}

#[test]
fn other_tables_are_refused() {
    block_on(async {
        let mut nodes = TableBuilder::new(Layout::Node);
        nodes.add(0, true, &[Row::new("a", 1)]).await;
        let table = nodes.finish().await;
        let found = EdgeTable::new(nodes.store.clone(), &nodes.env, table);
        assert_eq!(found.err().unwrap().code(), "InvalidArgument");
        let mut edges = TableBuilder::new(Layout::Edge);
        edges.add(0, true, &[Row::new("a", 1)]).await;
        let mut table = edges.finish().await.as_ref().clone();
        table.endpoints = None::<Endpoints>;
        let found = EdgeTable::new(edges.store.clone(), &edges.env, table.into());
        assert_eq!(found.err().unwrap().code(), "Corrupt");
    });
}

#[test]
fn tables_are_the_same_if_their_edges_are() {
    block_on(async {
        let mut graph = Graph::new();
        graph.add(&[(0, 1), (1, 2)], 0, None).await;
        let one = graph.edges().await;
        let mut identities = BTreeSet::from([*one.identity(), *graph.edges().await.identity()]);
        assert_eq!(identities.len(), 1);
        graph.kill(0, 0);
        identities.insert(*graph.edges().await.identity());
        graph.add(&[(5, 6)], 0, None).await;
        identities.insert(*graph.edges().await.identity());
        identities.insert(*graph.edges_between(NODE_TYPE, 7).await.identity());
        assert_eq!(identities.len(), 4);
    });
}
