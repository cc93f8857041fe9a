//! The lists of a hop from both of its ends, loaded when they are asked for; those of few nodes without
//! the others.

use std::sync::Arc;

use super::super::TraversalMode;
use super::super::index::Index;
use super::super::layer::Loader;
use super::super::pace::Pace;
use super::super::selective::Patience;
use super::super::stats::ReachStats;
use super::super::union::{self, Topology};
use super::{MANY, MatchHop};
use crate::Result;
use crate::graph::query::Direction;
use crate::table::read::TableReader;
use crate::table::reservation::Reservation;

/// A hop at work.
pub(super) struct Hop {
    pub(super) left: usize,
    pub(super) right: usize,
    pub(super) distinct: bool,
    of: MatchHop,
    mode: TraversalMode,
    /// Whether many nodes are looked up.
    many: bool,
    forth: Option<Arc<Topology>>,
    back: Option<Arc<Topology>>,
}

impl Hop {
    pub(super) fn new(of: &MatchHop, mode: TraversalMode, many: bool) -> Self {
        Self {
            left: of.left,
            right: of.right,
            distinct: of.distinct,
            of: of.clone(),
            mode,
            many,
            forth: None,
            back: None,
        }
    }

    /// The variable at the other end.
    pub(super) fn other(&self, var: usize) -> usize {
        if self.left == var {
            self.right
        } else {
            self.left
        }
    }

    /// Whether it joins a variable to another one.
    pub(super) fn joins(&self, var: usize) -> bool {
        self.left != self.right && (self.left == var || self.right == var)
    }

    /// Whether the lists of a variable are those that fragments have as they lie.
    pub(super) fn is_out(&self, var: usize) -> bool {
        self.direction(var) == Direction::Out
    }

    fn direction(&self, from: usize) -> Direction {
        match (from == self.left, self.of.direction) {
            (true, direction) => direction,
            (false, Direction::Out) => Direction::In,
            (false, Direction::In) => Direction::Out,
            (false, Direction::Both) => Direction::Both,
        }
    }

    /// The lists of the nodes of `from`. Where only `known` ones are looked up, they may be the only ones
    /// that have lists.
    pub(super) async fn lists(
        &mut self,
        from: usize,
        known: Option<&[u32]>,
        stats: &mut ReachStats,
        pace: &mut Pace,
    ) -> Result<Arc<Topology>> {
        let held = match from == self.left {
            true => &self.forth,
            false => &self.back,
        };
        if let Some(topology) = held {
            return Ok(Arc::clone(topology));
        }
        let reader = self.of.edges.reader();
        let known =
            known.filter(|nodes| nodes.len() < MANY && self.mode != TraversalMode::Adjacency);
        let loaded = match known {
            Some(nodes) => self.few((from, nodes), &reader, stats, pace).await?,
            None => None,
        };
        let loaded = match loaded {
            Some(loaded) => loaded,
            None => {
                let loaded = self.load(from, &reader, false, stats, pace).await?;
                loaded.unwrap_or_else(|| Arc::new(Topology::empty()))
            }
        };
        stats.bytes_read += reader.count().bytes();
        if !loaded.is_part() {
            *match from == self.left {
                true => &mut self.forth,
                false => &mut self.back,
            } = Some(Arc::clone(&loaded));
        }
        Ok(loaded)
    }

    async fn load(
        &self,
        from: usize,
        reader: &TableReader,
        held_only: bool,
        stats: &mut ReachStats,
        pace: &mut Pace,
    ) -> Result<Option<Arc<Topology>>> {
        let before = (stats.cache_hits, stats.cache_misses);
        let mut loader = Loader {
            reader,
            stats,
            pace,
            identity: self.of.edges.identity(),
            held_only,
            many: self.many,
        };
        let loaded = union::load(&mut loader, self.direction(from)).await?;
        if loaded.is_none() {
            (stats.cache_hits, stats.cache_misses) = before;
        }
        Ok(loaded.map(Arc::new))
    }

    /// All lists if they are in memory, else those of few nodes from the pages that hold them; `None`
    /// where these are so many that all lists are worth being made.
    async fn few(
        &self,
        (from, nodes): (usize, &[u32]),
        reader: &TableReader,
        stats: &mut ReachStats,
        pace: &mut Pace,
    ) -> Result<Option<Arc<Topology>>> {
        if self.mode == TraversalMode::Auto
            && let Some(held) = self.load(from, reader, true, stats, pace).await?
        {
            return Ok(Some(held));
        }
        let edges = &self.of.edges;
        let index = Index::open(reader, self.direction(from)).await?;
        let patience = match self.mode {
            TraversalMode::Index => Patience::endless(),
            _ => Patience::of(edges, index.rows()),
        };
        let pages = index.pages(nodes)?;
        if !patience.allows(pages.rows) {
            return Ok(None);
        }
        let mut memory = Reservation::new(edges.budget());
        let lists = index.lists(nodes, &pages, self.distinct, &mut memory, pace);
        let lists = lists.await?.holding(memory);
        Ok(Some(Arc::new(Topology::part(lists))))
    }
}
