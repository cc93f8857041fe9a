//! What traversals read, hold and how long they keep a thread.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Waker};

use arrow::array::UInt64Array;
use stratagraph::env::Budget;
use stratagraph::graph::query::Direction;
use stratagraph::graph::topology::{
    EdgeTable, ReachOptions, ReachStats, Topology, TraversalMode, Walk,
};
use stratagraph::table::file::FragmentFile;
use stratagraph::table::read::TableReader;
use stratagraph::table::schema::id;
use stratagraph::{Error, Result};

use super::model::{Graph, collect, expected};
use crate::support::tables::block_on;

/// A budget with an end.
#[derive(Debug, Default)]
struct Pool {
    limit: usize,
    held: AtomicUsize,
    most: AtomicUsize,
}

impl Pool {
    fn of(limit: usize) -> Arc<Self> {
        Arc::new(Self {
            limit,
            ..Self::default()
        })
    }

    fn held(&self) -> usize {
        self.held.load(Ordering::Relaxed)
    }
}

impl Budget for Pool {
    fn grow(&self, bytes: usize) -> Result<()> {
        let held = self.held() + bytes;
        if held > self.limit {
            return Err(Error::ResourceLimitExceeded {
                what: "memory of the test",
                value: held as u64,
                limit: self.limit as u64,
            });
        }
        self.held.store(held, Ordering::Relaxed);
        self.most.fetch_max(held, Ordering::Relaxed);
        Ok(())
    }

    fn shrink(&self, bytes: usize) {
        self.held.fetch_sub(bytes, Ordering::Relaxed);
    }
}

/// `count` edges over `nodes` nodes.
fn random_edges(nodes: u64, count: u64) -> Vec<(u64, u64)> {
    let edge = |i: u64| {
        let mix = (i + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        ((mix >> 11) % nodes, (mix >> 37) % nodes)
    };
    (0..count).map(edge).collect()
}

fn options(direction: Direction, max: u32, mode: TraversalMode) -> ReachOptions {
    ReachOptions {
        mode,
        ..ReachOptions::new(direction, 1, max)
    }
}

async fn stats(edges: &EdgeTable, options: ReachOptions, sources: &[u64]) -> ReachStats {
    let mut walk = Walk::new(edges, options).unwrap();
    let sources: Vec<Option<u64>> = sources.iter().copied().map(Some).collect();
    collect(&mut walk, &sources, false, 8_192).await;
    walk.stats()
}

/// Bytes of columns of all fragments, and of their footers.
async fn stored(edges: &EdgeTable, columns: &[u64]) -> (u64, u64) {
    let env = stratagraph::env::Env::fixed(0);
    let reader = TableReader::new(Arc::clone(edges.store()), &env, Arc::clone(edges.table()));
    let (mut bytes, mut footers) = (0, 0);
    for entry in reader.entries().await.unwrap().iter() {
        let file = entry.fragment.as_ref().unwrap().file.clone();
        footers += file.footer;
        let file = FragmentFile::new(Arc::clone(edges.store()), Arc::new(file));
        let metadata = file.metadata().await.unwrap();
        for group in metadata.row_groups() {
            for chunk in group.columns() {
                let field = chunk.column_descr().self_type().get_basic_info().id() as u64;
                if columns.contains(&field) {
                    bytes += chunk.compressed_size() as u64;
                }
            }
        }
    }
    (bytes, footers)
}

#[test]
fn stored_lists_take_the_place_of_the_edges_until_they_are_damaged() {
    block_on(async {
        for damaged in [false, true] {
            let mut graph = Graph::new();
            for part in random_edges(3_000, 30_000).chunks(20_000) {
                graph.add(part, 5, Some((1_000, 7))).await;
            }
            graph.store_lists().await;
            let edges = graph.edges().await;
            let env = stratagraph::env::Env::fixed(0);
            let reader =
                TableReader::new(Arc::clone(edges.store()), &env, Arc::clone(edges.table()));
            let mut sizes = 0;
            for entry in reader.entries().await.unwrap().iter() {
                let fragment = entry.fragment.as_ref().unwrap();
                let segment = &fragment.segments[0];
                assert_eq!(segment.rows, fragment.rows);
                sizes += segment.file.object.size;
                if damaged {
                    let key = &segment.file.object.key;
                    let bytes = vec![0; segment.file.object.size as usize];
                    edges.store().put_object(key, bytes.into()).await.unwrap();
                }
            }
            let sources: Vec<Option<u64>> = (0..3_000).step_by(100).map(Some).collect();
            for direction in super::DIRECTIONS {
                let options = options(direction, 2, TraversalMode::Adjacency);
                let mut walk = Walk::new(&edges, options).unwrap();
                let found = collect(&mut walk, &sources, false, 8_192).await;
                let live = graph.live();
                assert_eq!(found, expected(&live, &sources, direction, (1, 2), false));
                if direction == Direction::Out {
                    let read = walk.stats().bytes_read;
                    assert_eq!(read == sizes, !damaged, "{read} {sizes}");
                }
            }
        }
    });
}

#[test]
fn the_two_columns_of_row_ids_are_read_once() {
    block_on(async {
        let mut graph = Graph::new();
        for part in random_edges(3_000, 30_000).chunks(20_000) {
            graph.add(part, 5, None).await;
        }
        let edges = graph.edges().await;
        let cold = stats(
            &edges,
            options(Direction::Both, 2, TraversalMode::Adjacency),
            &[1],
        )
        .await;
        let (columns, footers) = stored(&edges, &[id::SRC_RID, id::DST_RID]).await;
        let read = cold.bytes_read;
        assert!(
            read >= columns && read <= columns + footers,
            "{read} {columns} {footers}"
        );
        let (everything, _) = stored(&edges, &(0..100).collect::<Vec<_>>()).await;
        assert!(everything > 3 * columns);
        // Lists by source, and by destination from those.
        assert_eq!((cold.cache_misses, cold.cache_hits), (4, 2));
        for mode in [TraversalMode::Auto, TraversalMode::Adjacency] {
            let warm = stats(&edges, options(Direction::Both, 2, mode), &[1]).await;
            assert_eq!(
                (warm.bytes_read, warm.cache_misses, warm.cache_hits),
                (0, 0, 4)
            );
        }
    });
}

#[test]
fn another_bitmap_or_fragment_reads_no_old_file_again() {
    block_on(async {
        let mut graph = Graph::new();
        graph.add(&random_edges(500, 4_000), 5, None).await;
        let sources: Vec<Option<u64>> = (0..500).map(Some).collect();
        for round in 0..4u32 {
            for direction in [Direction::Out, Direction::In, Direction::Both] {
                let edges = graph.edges().await;
                let mut walk =
                    Walk::new(&edges, options(direction, 1, TraversalMode::Adjacency)).unwrap();
                let found = collect(&mut walk, &sources, false, 8_192).await;
                assert_eq!(
                    found,
                    expected(&graph.live(), &sources, direction, (1, 1), false)
                );
                let read = walk.stats().bytes_read;
                let first = direction == Direction::Out && round % 2 == 0;
                // A new fragment is small beside the old one.
                assert_eq!(read > 0, first, "{round} {direction:?}");
                assert!(round == 0 || read < 10_000, "{read}");
            }
            if round % 2 == 0 {
                graph.kill(0, round * 100);
            } else {
                graph.add(&random_edges(500, 20), 0, None).await;
            }
        }
    });
}

#[test]
fn few_sources_read_few_pages_until_the_lists_pay() {
    block_on(async {
        let mut graph = Graph::new();
        graph.add(&random_edges(40_000, 130_000), 2, None).await;
        let edges = graph.edges().await;
        let (columns, _) = stored(&edges, &[id::SRC_RID, id::DST_RID]).await;
        let mode = TraversalMode::Auto;
        let one = stats(&edges, options(Direction::Out, 1, mode), &[20_000]).await;
        assert_eq!((one.hops[0].index, one.hops[0].adjacency), (1, 0));
        assert!(one.bytes_read < columns / 3, "{} {columns}", one.bytes_read);
        // Destinations lie everywhere: all pages would be read.
        let back = stats(&edges, options(Direction::In, 1, mode), &[20_000]).await;
        assert_eq!((back.hops[0].index, back.hops[0].adjacency), (0, 1));

        // The adjacency by source is still to be made for this version, or found through the other.
        let mut graph = Graph::new();
        graph.add(&random_edges(40_000, 130_000), 2, None).await;
        let edges = graph.edges().await;
        let mut by_index = 0;
        let last = loop {
            let next = stats(&edges, options(Direction::Out, 1, mode), &[7, 30_000]).await;
            if next.hops[0].index == 0 {
                break next;
            }
            by_index += 1;
        };
        assert!((1..20).contains(&by_index), "{by_index}");
        assert_eq!((last.hops[0].adjacency, last.cache_misses), (2, 1));
    });
}

#[test]
fn a_frontier_that_grows_changes_the_path() {
    block_on(async {
        let mut graph = Graph::new();
        graph.add(&random_edges(2_000, 130_000), 0, None).await;
        let edges = graph.edges().await;
        let walk = stats(
            &edges,
            options(Direction::Out, 3, TraversalMode::Auto),
            &[5],
        )
        .await;
        assert_eq!(walk.hops[0].index, 1);
        assert!(walk.hops[1].index == 0 && walk.hops[1].adjacency > 0);
        let forced = stats(
            &edges,
            options(Direction::Out, 3, TraversalMode::Index),
            &[5],
        )
        .await;
        assert!(forced.hops.iter().all(|h| h.index == 1 && h.adjacency == 0));
    });
}

#[test]
fn concurrent_queries_build_once() {
    let mut graph = Graph::new();
    let edges = block_on(async {
        graph.add(&random_edges(1_000, 20_000), 3, None).await;
        graph.edges().await
    });
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .build()
        .unwrap();
    let all = runtime.block_on(async {
        let walk = || {
            let edges = edges.clone();
            let options = options(Direction::Both, 2, TraversalMode::Adjacency);
            tokio::spawn(async move { stats(&edges, options, &[1, 2, 3]).await })
        };
        futures::future::join_all((0..6).map(|_| walk())).await
    });
    let misses: u64 = all.into_iter().map(|s| s.unwrap().cache_misses).sum();
    assert_eq!(misses, 2);
}

/// The answer of a walk with the memory of `pool`.
async fn bounded(
    edges: &EdgeTable,
    options: ReachOptions,
    sources: &[Option<u64>],
    pool: &Arc<Pool>,
) -> Result<usize> {
    let edges = edges.with_budget(Arc::clone(pool) as Arc<dyn Budget>);
    let mut walk = Walk::new(&edges, options)?;
    walk.begin(&UInt64Array::from(sources.to_vec())).await?;
    let mut rows = 0;
    while let Some(part) = walk.next().await? {
        rows += part.rows.len();
    }
    Ok(rows)
}

#[test]
fn memory_is_asked_for_and_given_back() {
    block_on(async {
        let nodes = 20_000;
        let edge_list = random_edges(nodes, 60_000);
        let sources: Vec<Option<u64>> = (0..100).map(|i| Some(i * 7)).collect();
        let mut whole = None;
        // From what holds everything down to what holds nothing; each store is cold once.
        for mode in [TraversalMode::Adjacency, TraversalMode::Index] {
            for limit in [1 << 28, 1 << 22, 1 << 21, 1 << 20, 1 << 18, 1 << 14, 0] {
                let mut graph = Graph::new();
                graph.add(&edge_list, 0, None).await;
                let (edges, pool) = (graph.edges().await, Pool::of(limit));
                let options = options(Direction::Both, 6, mode);
                let found = bounded(&edges, options, &sources, &pool).await;
                assert_eq!(pool.held(), 0, "{mode} {limit}");
                match found {
                    Ok(rows) => assert_eq!(rows, *whole.get_or_insert(rows), "{mode} {limit}"),
                    Err(error) => {
                        assert_eq!(error.code(), "ResourceLimitExceeded");
                        assert!(limit <= 1 << 22 || mode == TraversalMode::Index, "{limit}");
                    }
                }
                assert!(limit > 0 || pool.most.load(Ordering::Relaxed) == 0);
            }
        }
        assert!(whole.unwrap() > 1_000_000);
    });
}

#[test]
fn without_room_for_lanes_sources_go_one_by_one() {
    block_on(async {
        let mut graph = Graph::new();
        graph.add(&random_edges(20_000, 60_000), 0, None).await;
        let edges = graph.edges().await;
        Topology::load(&edges, Direction::Out).await.unwrap();
        let sources: Vec<Option<u64>> = (0..12).map(Some).collect();
        let options = options(Direction::Out, 6, TraversalMode::Adjacency);
        let rows = bounded(&edges, options.clone(), &sources, &Pool::of(1 << 28)).await;
        // Lanes take 32 bytes a node; a search an eighth of a byte and what it finds.
        let small = Pool::of(600_000);
        assert_eq!(
            bounded(&edges, options.clone(), &sources, &small)
                .await
                .unwrap(),
            rows.unwrap()
        );
        let none = bounded(&edges, options, &sources, &Pool::of(1_000)).await;
        assert_eq!(none.err().unwrap().code(), "ResourceLimitExceeded");
    });
}

/// Polls to the end; how often it paused.
fn pauses(future: impl Future<Output = ()>) -> usize {
    let mut future = pin!(future);
    let mut context = Context::from_waker(Waker::noop());
    let mut pauses = 0;
    while future.as_mut().poll(&mut context).is_pending() {
        pauses += 1;
    }
    pauses
}

#[test]
fn long_work_pauses() {
    let mut graph = Graph::new();
    let nodes = 5_000;
    let edges = block_on(async {
        graph.add(&random_edges(nodes, 200_000), 0, None).await;
        let edges = graph.edges().await;
        Topology::load(&edges, Direction::Both).await.unwrap();
        edges
    });
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap();
    let _inside = runtime.enter();
    for (sources, max) in [(300, 4), (3, 6), (200_000, 1)] {
        let visited = std::cell::Cell::new(0);
        let work = async {
            let options = options(Direction::Both, max, TraversalMode::Adjacency);
            let mut walk = Walk::new(&edges, options).unwrap();
            let sources: Vec<Option<u64>> = (0..sources).map(|i| Some(i % nodes)).collect();
            walk.begin(&UInt64Array::from(sources)).await.unwrap();
            while walk.next().await.unwrap().is_some() {}
            visited.set(walk.stats().edges());
        };
        // At least one pause for each of these many edges.
        let (pauses, most) = (pauses(work), 400_000);
        assert!(
            pauses as u64 >= visited.get() / most && pauses > 1,
            "{pauses} {}",
            visited.get()
        );
    }
}
