//! Breadth-first search that reads only the pages that its frontiers need: all sources of a batch hop
//! by hop, so that pages are read once for all of them.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::EdgeTable;
use super::index::Index;
use super::lists::Lists;
use super::pace::Pace;
use super::search::found;
use super::stats::ReachStats;
use crate::Result;
use crate::table::reservation::Reservation;

/// What reading a row of a page costs, in rows of a fragment that is read from end to end.
const PAGE_COST: u64 = 16;

/// Nodes found from a source, packed and ascending.
pub(super) type Found = HashMap<u32, Arc<Vec<u64>>>;

/// Decides at each hop whether reading pages is still worth it. Together they may cost what making the
/// adjacency lists would: then these are made, so that a table that is asked often is soon in memory.
pub(super) struct Patience {
    /// Spent on this version so far; `None` for no end.
    spent: Option<Arc<AtomicU64>>,
    limit: u64,
}

impl Patience {
    /// Without end.
    pub(super) fn endless() -> Self {
        Self {
            spent: None,
            limit: u64::MAX,
        }
    }

    /// For adjacency lists of `rows` rows.
    pub(super) fn of(edges: &EdgeTable, rows: u64) -> Self {
        let key = format!("topology-spent:{}", edges.identity());
        let cache = edges.store().cache();
        let spent = cache.get::<AtomicU64>(&key).unwrap_or_else(|| {
            let spent = Arc::new(AtomicU64::new(0));
            cache.put(&key, Arc::clone(&spent), key.len() * 2 + 64);
            spent
        });
        Self {
            spent: Some(spent),
            limit: rows,
        }
    }

    /// Whether pages with so many rows may be read; they are counted.
    pub(super) fn allows(&self, rows: u64) -> bool {
        let Some(spent) = &self.spent else {
            return true;
        };
        let cost = rows.saturating_mul(PAGE_COST);
        let sum = spent.load(Ordering::Relaxed).saturating_add(cost);
        let allowed = sum < self.limit;
        if allowed {
            spent.fetch_add(cost, Ordering::Relaxed);
        }
        allowed
    }
}

struct Source {
    node: u32,
    frontier: Vec<u32>,
    /// Ascending.
    seen: Vec<u32>,
    out: Vec<u64>,
}

/// All nodes at a distance from `min` to `max` of `sources`, which ascend; `None` when patience ends.
pub(super) async fn search(
    index: &Index,
    sources: &[u32],
    (min, max): (u32, u32),
    patience: &Patience,
    memory: &mut Reservation,
    stats: &mut ReachStats,
    pace: &mut Pace,
) -> Result<Option<Found>> {
    let start = |node: &u32| Source {
        node: *node,
        frontier: vec![*node],
        seen: vec![*node],
        out: Vec::new(),
    };
    memory.grow(sources.len() * (size_of::<Source>() + 64))?;
    let mut states: Vec<Source> = sources.iter().map(start).collect();
    for distance in 1..=max {
        let mut frontier: Vec<u32> = states.iter().flat_map(|s| &s.frontier).copied().collect();
        frontier.sort_unstable();
        frontier.dedup();
        if frontier.is_empty() {
            break;
        }
        let pages = index.pages(&frontier)?;
        if !patience.allows(pages.rows) {
            return Ok(None);
        }
        let held = memory.bytes();
        let lists = index.lists(&frontier, &pages, true, memory, pace).await?;
        let listed = memory.bytes() - held;
        let (mut nodes, mut edges) = (0, 0);
        for state in &mut states {
            nodes += state.frontier.len() as u64;
            let visited = advance(state, &lists, distance, min, memory)?;
            edges += visited as u64;
            if pace.due(visited + 1) {
                Pace::rest().await;
            }
        }
        memory.resize(memory.bytes() - listed)?;
        let hop = stats.hop(distance);
        hop.frontier += nodes;
        hop.edges += edges;
        hop.index += 1;
    }
    let all = states.into_iter().map(|mut state| {
        state.out.sort_unstable();
        (state.node, Arc::new(state.out))
    });
    Ok(Some(all.collect()))
}

/// One hop of one source; the edges visited.
fn advance(
    state: &mut Source,
    lists: &Lists,
    distance: u32,
    min: u32,
    memory: &mut Reservation,
) -> Result<usize> {
    let lists_of = state.frontier.iter().map(|node| lists.range(*node));
    let edges: usize = lists_of.map(|range| range.len()).sum();
    // Reached, seen before and after, and in the answer.
    memory.grow(edges * (3 * size_of::<u32>() + 2 * size_of::<u64>()))?;
    let mut reached: Vec<u32> = Vec::with_capacity(edges);
    for node in &state.frontier {
        reached.extend_from_slice(lists.ends(lists.range(*node)));
    }
    reached.sort_unstable();
    reached.dedup();
    // The source itself is at distance 1 of a self-loop, and nowhere else.
    if distance == 1 && min == 1 && reached.binary_search(&state.node).is_ok() {
        state.out.push(found(state.node, 1));
    }
    reached.retain(|node| state.seen.binary_search(node).is_err());
    if distance >= min {
        state
            .out
            .extend(reached.iter().map(|node| found(*node, distance)));
    }
    state.seen.extend_from_slice(&reached);
    state.seen.sort_unstable();
    state.frontier = reached;
    Ok(edges)
}
