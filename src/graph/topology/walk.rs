//! A traversal over batches of sources.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use arrow::array::UInt64Array;

use super::EdgeTable;
use super::index::Index;
use super::lanes::{LANES, Lanes};
use super::layer::Loader;
use super::lists::narrow;
use super::options::{ReachOptions, TraversalMode};
use super::pace::Pace;
use super::search::{Search, unpack};
use super::selective::{self, Found, Patience};
use super::stats::ReachStats;
use super::union::{self, Topology};
use crate::Result;
use crate::table::read::TableReader;
use crate::table::reservation::Reservation;

/// A row without a source that can have edges.
const NONE: u32 = u32::MAX;
/// Sources that are followed one by one before lanes are thought of.
const MEASURED: u64 = 2;
/// Sources below which lanes gain nothing.
const FEW: usize = 4;

/// A part of an answer: one row for each pair of source row and destination.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Reached {
    /// Rows of the sources' batch, ascending.
    pub rows: Vec<u32>,
    /// Row ids of destinations, ascending within a row.
    pub dst: Vec<u64>,
    /// Their distances; empty if they were not asked for.
    pub hops: Vec<u32>,
}

/// What the answer is being taken from.
enum Open {
    Nothing,
    /// [`Walk::near`], the neighbours of the row's source.
    Near {
        row: u32,
        at: usize,
    },
    Far {
        row: u32,
        found: Arc<Vec<u64>>,
        at: usize,
    },
    /// Rows with their lanes; the next of them, and its next node.
    Lanes {
        rows: Vec<(u32, usize)>,
        next: usize,
        from: usize,
    },
}

/// Follows the edges of a table from batches of sources: [`Walk::begin`] takes a batch,
/// [`Walk::next`] gives its answer in parts. Memory that grows with data comes from the table's budget.
pub struct Walk {
    edges: EdgeTable,
    reader: TableReader,
    options: ReachOptions,
    topology: Option<Arc<Topology>>,
    index: Option<Index>,
    rows: Vec<u32>,
    at: usize,
    open: Open,
    /// Answers of sources that come again, or of all of them where pages were read.
    found: Found,
    found_memory: Reservation,
    /// How often a source that stands in several rows is still to come.
    again: HashMap<u32, u32>,
    near: Vec<u32>,
    buffer: Vec<u32>,
    near_memory: Reservation,
    search: Option<Search>,
    lanes: Option<Lanes>,
    no_lanes: bool,
    /// Sources that were followed one by one, and the edges that they visited.
    measured: (u64, u64),
    stats: ReachStats,
    pace: Pace,
}

impl Walk {
    /// Makes no store call.
    ///
    /// # Errors
    /// As [`ReachOptions::check`].
    pub fn new(edges: &EdgeTable, options: ReachOptions) -> Result<Self> {
        options.check(edges)?;
        let reservation = || Reservation::new(edges.budget());
        Ok(Self {
            reader: edges.reader(),
            topology: None,
            index: None,
            rows: Vec::new(),
            at: 0,
            open: Open::Nothing,
            found: Found::new(),
            found_memory: reservation(),
            again: HashMap::new(),
            near: Vec::new(),
            buffer: Vec::new(),
            near_memory: reservation(),
            search: None,
            lanes: None,
            no_lanes: false,
            measured: (0, 0),
            stats: ReachStats::default(),
            pace: Pace::default(),
            edges: edges.clone(),
            options,
        })
    }

    /// What was done so far.
    pub fn stats(&self) -> ReachStats {
        ReachStats {
            bytes_read: self.reader.count().bytes(),
            ..self.stats.clone()
        }
    }

    /// The greatest distance: an edge between two types ends where no other begins.
    fn bounds(&self) -> (u32, u32) {
        let most = if self.edges.same_type() {
            self.options.max
        } else {
            1
        };
        (self.options.min, self.options.max.min(most))
    }

    /// Takes a batch of sources by row id and leaves what was left of the last one. A NULL reaches
    /// nothing. A source that stands in several rows is followed once where memory allows.
    ///
    /// # Errors
    /// `Corrupt` or `Parquet` for a fragment that is not what its entry says, `ResourceLimitExceeded`
    /// for a row id above 2^32 - 2 at an edge, the budget's own when it runs out.
    pub async fn begin(&mut self, sources: &UInt64Array) -> Result<()> {
        self.rows.clear();
        self.again.clear();
        self.found.clear();
        self.found_memory.resize(0)?;
        (self.at, self.open) = (0, Open::Nothing);
        let (min, max) = self.bounds();
        if min > max {
            return Ok(());
        }
        // An id that no edge can have has no edges.
        let row = |rid: Option<u64>| rid.and_then(|rid| narrow(rid).ok()).unwrap_or(NONE);
        self.rows.extend(sources.iter().map(row));
        let mut distinct = self.rows.clone();
        distinct.retain(|source| *source != NONE);
        distinct.sort_unstable();
        for same in distinct
            .chunk_by(|a, b| a == b)
            .filter(|same| same.len() > 1)
        {
            self.again.insert(same[0], same.len() as u32);
        }
        distinct.dedup();
        if distinct.is_empty() {
            self.rows.clear();
            return Ok(());
        }
        self.choose(&distinct).await
    }

    /// Loads the adjacency, or finds the answer without it.
    async fn choose(&mut self, sources: &[u32]) -> Result<()> {
        let mode = self.options.mode;
        if self.topology.is_some() {
            return Ok(());
        }
        if mode != TraversalMode::Index && self.load(mode == TraversalMode::Auto).await? {
            return Ok(());
        }
        let index = match self.index.take() {
            Some(index) => index,
            None => Index::open(&self.reader, self.options.direction).await?,
        };
        let patience = match mode {
            TraversalMode::Index => Patience::endless(),
            _ => Patience::of(&self.edges, index.rows()),
        };
        let bounds = self.bounds();
        let (memory, stats) = (&mut self.found_memory, &mut self.stats);
        let pace = &mut self.pace;
        let search = selective::search(&index, sources, bounds, &patience, memory, stats, pace);
        match search.await? {
            Some(found) => {
                self.found = found;
                self.index = Some(index);
            }
            None => {
                self.found_memory.resize(0)?;
                self.load(false).await?;
            }
        }
        Ok(())
    }

    async fn load(&mut self, held_only: bool) -> Result<bool> {
        let before = (self.stats.cache_hits, self.stats.cache_misses);
        let mut loader = Loader {
            reader: &self.reader,
            stats: &mut self.stats,
            pace: &mut self.pace,
            identity: self.edges.identity(),
            held_only,
            many: false,
        };
        let loaded = union::load(&mut loader, self.options.direction).await?;
        if loaded.is_none() {
            // It will be loaded again, or was not needed.
            (self.stats.cache_hits, self.stats.cache_misses) = before;
        }
        self.topology = loaded.map(Arc::new);
        Ok(self.topology.is_some())
    }

    /// The next part of the answer, of at most [`ReachOptions::batch_rows`] rows; `None` at its end.
    ///
    /// # Errors
    /// The budget's own when it runs out.
    pub async fn next(&mut self) -> Result<Option<Reached>> {
        let (most, hops) = (self.options.batch_rows.max(1), self.options.hops);
        let mut out = Reached::default();
        while out.rows.len() < most {
            let room = most - out.rows.len();
            let mut take = |row: u32, dst: u64, distance: u32| {
                out.rows.push(row);
                out.dst.push(dst);
                if hops {
                    out.hops.push(distance);
                }
            };
            let done = match &mut self.open {
                Open::Nothing => {
                    if !self.advance().await? {
                        break;
                    }
                    continue;
                }
                Open::Near { row, at } => {
                    let end = self.near.len().min(*at + room);
                    for node in &self.near[*at..end] {
                        take(*row, u64::from(*node), 1);
                    }
                    *at = end;
                    end == self.near.len()
                }
                Open::Far { row, found, at } => {
                    let end = found.len().min(*at + room);
                    for packed in &found[*at..end] {
                        let (node, distance) = unpack(*packed);
                        take(*row, node, distance);
                    }
                    *at = end;
                    end == found.len()
                }
                Open::Lanes { rows, next, from } => {
                    if let (Some((row, lane)), Some(lanes)) = (rows.get(*next), &self.lanes) {
                        let mut take = |node, distance| take(*row, node, distance);
                        match lanes.emit(*lane, *from, room, &mut take) {
                            Some(node) => *from = node,
                            None => (*next, *from) = (*next + 1, 0),
                        }
                    }
                    *next >= rows.len()
                }
            };
            if done {
                self.open = Open::Nothing;
            }
            if self.pace.due(room) {
                Pace::rest().await;
            }
        }
        Ok((!out.rows.is_empty()).then_some(out))
    }

    /// Opens the answer of the next source that has one; `false` at the end of the batch.
    async fn advance(&mut self) -> Result<bool> {
        while let Some(source) = self.rows.get(self.at).copied() {
            let row = self.at as u32;
            self.at += 1;
            if source == NONE {
                continue;
            }
            if let Some(found) = self.found.get(&source) {
                let (found, at) = (Arc::clone(found), 0);
                self.open = Open::Far { row, found, at };
                return Ok(true);
            }
            let Some(topology) = self.topology.clone() else {
                continue;
            };
            if self.bounds().1 == 1 {
                self.hop(&topology, source).await?;
                self.open = Open::Near { row, at: 0 };
                return Ok(true);
            }
            if self.lanes_pay(&topology) && self.pass(&topology).await? {
                return Ok(true);
            }
            let found = self.follow(&topology, source).await?;
            self.open = Open::Far { row, found, at: 0 };
            return Ok(true);
        }
        Ok(false)
    }

    /// The neighbours of one source, to [`Walk::near`].
    async fn hop(&mut self, topology: &Topology, source: u32) -> Result<()> {
        let degree = topology.degree(source);
        if degree > self.near.capacity() {
            // Two copies, each of which may have room for twice as many.
            let bytes = degree.saturating_mul(4 * size_of::<u32>());
            self.near_memory.resize(bytes)?;
        }
        let near = topology.neighbours(source, &mut self.buffer);
        self.near.clear();
        self.near.extend_from_slice(near);
        let hop = self.stats.hop(1);
        hop.frontier += 1;
        hop.edges += near.len() as u64;
        hop.adjacency += 1;
        if self.pace.due(degree + 1) {
            Pace::rest().await;
        }
        if topology.repeats() {
            self.near.sort_unstable();
            self.near.dedup();
        }
        Ok(())
    }

    /// All that one source reaches.
    async fn follow(&mut self, topology: &Topology, source: u32) -> Result<Arc<Vec<u64>>> {
        let mut search = match self.search.take() {
            Some(search) => search,
            None => Search::new(topology, Reservation::new(self.edges.budget()))?,
        };
        let before = self.stats.edges();
        let (bounds, stats) = (self.bounds(), &mut self.stats);
        let found = search.run(topology, source, bounds, stats, &mut self.pace);
        let found = Arc::new(found.await?);
        self.search = Some(search);
        self.measured.0 += 1;
        self.measured.1 += self.stats.edges() - before;
        if let Some(left) = self.again.get_mut(&source) {
            *left -= 1;
            let bytes = found.len() * size_of::<u64>() + 64;
            // Without the memory it is followed again.
            if *left > 0 && self.found_memory.grow(bytes).is_ok() {
                self.found.insert(source, Arc::clone(&found));
            }
        }
        Ok(found)
    }

    /// Whether following the next sources together costs less than one by one, going by those that were
    /// followed so far.
    fn lanes_pay(&self, topology: &Topology) -> bool {
        let (sources, edges) = self.measured;
        if self.no_lanes || sources < MEASURED {
            return false;
        }
        // In a pass, nodes stand in the frontiers of several hops, and every hop looks at every node.
        let levels = self.bounds().1.min(8) as usize;
        let pass = (topology.edges() * 3 + topology.nodes() * levels * 2) as u64;
        let each = edges / sources;
        if each.saturating_mul(LANES as u64) <= pass {
            return false;
        }
        let mut next = HashSet::new();
        for source in &self.rows[self.at - 1..] {
            if *source != NONE && !self.found.contains_key(source) {
                next.insert(*source);
            }
            if next.len() == LANES {
                break;
            }
        }
        next.len() >= FEW && each.saturating_mul(next.len() as u64) > pass
    }

    /// Follows the sources from the current row on together, as many as there are lanes; `false` if there
    /// is no memory for it.
    async fn pass(&mut self, topology: &Topology) -> Result<bool> {
        let mut lanes = match self.lanes.take() {
            Some(lanes) => lanes,
            None => {
                let memory = Reservation::new(self.edges.budget());
                let (max, hops) = (self.bounds().1, self.options.hops);
                let Ok(lanes) = Lanes::new(topology, max, hops, memory) else {
                    self.no_lanes = true;
                    return Ok(false);
                };
                lanes
            }
        };
        let (mut sources, mut lane_of, mut rows) = (Vec::new(), HashMap::new(), Vec::new());
        let first = self.at - 1;
        for (row, source) in self.rows.iter().enumerate().skip(first) {
            if *source != NONE {
                let known = lane_of.get(source).copied();
                if known.is_none() && sources.len() == LANES {
                    break;
                }
                let lane = known.unwrap_or_else(|| {
                    lane_of.insert(*source, sources.len());
                    sources.push(*source);
                    sources.len() - 1
                });
                rows.push((row as u32, lane));
            }
            self.at = row + 1;
        }
        let (bounds, stats) = (self.bounds(), &mut self.stats);
        let pass = lanes.run(topology, &sources, bounds, stats, &mut self.pace);
        pass.await;
        self.lanes = Some(lanes);
        self.open = Open::Lanes {
            rows,
            next: 0,
            from: 0,
        };
        Ok(true)
    }
}
