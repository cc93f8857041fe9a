//! What a traversal asks for.

use super::EdgeTable;
use crate::graph::query::Direction;
use crate::{Error, Result, limits};

/// How neighbours are looked up. The answer is the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub enum TraversalMode {
    /// Whatever costs less, decided at each hop.
    #[default]
    Auto,
    /// The pages of the fragments that can hold edges of the nodes at hand.
    Index,
    /// The adjacency lists of the whole table.
    Adjacency,
}

impl std::fmt::Display for TraversalMode {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Auto => "auto",
            Self::Index => "index",
            Self::Adjacency => "adjacency",
        })
    }
}

/// What a traversal asks for.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ReachOptions {
    /// Which way edges are followed.
    pub direction: Direction,
    /// Least distance, from 1.
    pub min: u32,
    /// Greatest distance.
    pub max: u32,
    /// Whether distances are wanted.
    pub hops: bool,
    /// How neighbours are looked up.
    pub mode: TraversalMode,
    /// Rows of one answer at most.
    pub batch_rows: usize,
}

impl ReachOptions {
    /// All nodes at a distance from `min` to `max`, without the distances.
    pub fn new(direction: Direction, min: u32, max: u32) -> Self {
        Self {
            direction,
            min,
            max,
            hops: false,
            mode: TraversalMode::Auto,
            batch_rows: 8_192,
        }
    }

    /// Checks the bounds against the table.
    ///
    /// # Errors
    /// `InvalidArgument` for a least distance of 0 or above the greatest, and for both directions of an
    /// edge whose ends have different types; `ResourceLimitExceeded` above [`limits::HOPS`].
    pub fn check(&self, edges: &EdgeTable) -> Result<()> {
        let invalid = |argument: &str, reason: &str| Error::InvalidArgument {
            function: "traversal".to_owned(),
            argument: argument.to_owned(),
            reason: reason.to_owned(),
        };
        if self.min == 0 || self.min > self.max {
            let reason = "expected a least distance from 1 and at most the greatest one";
            return Err(invalid("bounds", reason));
        }
        if self.max > limits::HOPS {
            return Err(Error::ResourceLimitExceeded {
                what: "hops of a traversal",
                value: u64::from(self.max),
                limit: u64::from(limits::HOPS),
            });
        }
        if self.direction == Direction::Both && !edges.same_type() {
            let reason = "only edges between nodes of one type are followed both ways";
            return Err(invalid("direction", reason));
        }
        Ok(())
    }
}
