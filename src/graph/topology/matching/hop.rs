//! The lists of a hop from both of its ends, loaded when they are asked for.

use std::sync::Arc;

use super::super::layer::Loader;
use super::super::pace::Pace;
use super::super::stats::ReachStats;
use super::super::union::{self, Topology};
use super::MatchHop;
use crate::Result;
use crate::graph::query::Direction;

/// A hop at work.
pub(super) struct Hop {
    pub(super) left: usize,
    pub(super) right: usize,
    pub(super) distinct: bool,
    of: MatchHop,
    forth: Option<Arc<Topology>>,
    back: Option<Arc<Topology>>,
}

impl Hop {
    pub(super) fn new(of: &MatchHop) -> Self {
        Self {
            left: of.left,
            right: of.right,
            distinct: of.distinct,
            of: of.clone(),
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

    /// The lists of the nodes of `from`.
    pub(super) async fn lists(
        &mut self,
        from: usize,
        stats: &mut ReachStats,
        pace: &mut Pace,
    ) -> Result<Arc<Topology>> {
        let direction = self.direction(from);
        let held = match from == self.left {
            true => &mut self.forth,
            false => &mut self.back,
        };
        if let Some(topology) = held {
            return Ok(Arc::clone(topology));
        }
        let reader = self.of.edges.reader();
        let mut loader = Loader {
            reader: &reader,
            stats,
            pace,
            held_only: false,
        };
        let loaded = union::load(&mut loader, direction).await?;
        let loaded = Arc::new(loaded.unwrap_or_else(Topology::empty));
        stats.bytes_read += reader.count().bytes();
        *held = Some(Arc::clone(&loaded));
        Ok(loaded)
    }
}
