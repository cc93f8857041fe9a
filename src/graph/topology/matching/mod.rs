//! Connected patterns of single hops, without their paths where only numbers of them are wanted.
//!
//! A variable that nobody asks for is folded into its neighbour: each node of the neighbour then stands
//! for as many assignments as there are below it, found from degrees, from sums over lists, or from the
//! few nodes that a condition leaves. What is left (variables that are kept, and cycles) is enumerated
//! variable by variable, each from the intersection of the lists of all that are bound, so that no more
//! is ever visited than the pattern can hold.

mod cursor;
mod fold;
mod hop;
mod plan;
mod weights;

use std::sync::Arc;

use super::{EdgeTable, TraversalMode};
use crate::env::Budget;
use crate::graph::query::Direction;
use crate::{Error, Result};

pub use cursor::{MatchCursor, Matched};
pub use plan::{MatchStats, Matching};

/// A hop between two variables of a pattern.
#[derive(Debug, Clone)]
pub struct MatchHop {
    /// Number of the variable that it begins at.
    pub left: usize,
    /// Number of the variable that it ends at.
    pub right: usize,
    /// Its edges.
    pub edges: EdgeTable,
    /// Which way they are followed from the left.
    pub direction: Direction,
    /// Whether a pair of nodes counts once, however many edges join them.
    pub distinct: bool,
}

/// A connected pattern of single hops.
#[derive(Debug, Clone)]
pub struct MatchPattern {
    /// Number of variables; each is at an end of a hop.
    pub variables: usize,
    /// Hops.
    pub hops: Vec<MatchHop>,
    /// Variables whose nodes are wanted, in this order.
    pub kept: Vec<usize>,
    /// How the neighbours of few nodes are looked up; those of all are in lists.
    pub mode: TraversalMode,
    /// Whether it is wanted how many assignments there are of each kept row; else each kept row comes
    /// at least once.
    pub counted: bool,
}

impl MatchPattern {
    /// Checks that it is one pattern.
    ///
    /// # Errors
    /// `InvalidArgument` for variables that do not exist, that no hop joins to the others, or that are
    /// kept twice; for both directions of an edge whose ends have different types.
    pub fn check(&self) -> Result<()> {
        let invalid = |reason: &str| Error::InvalidArgument {
            function: "pattern".to_owned(),
            argument: "hops".to_owned(),
            reason: reason.to_owned(),
        };
        let ends = self.hops.iter().flat_map(|hop| [hop.left, hop.right]);
        if ends
            .chain(self.kept.iter().copied())
            .any(|v| v >= self.variables)
        {
            return Err(invalid("a variable is not one of the pattern"));
        }
        let mut kept = self.kept.clone();
        kept.sort_unstable();
        if kept.windows(2).any(|pair| pair[0] == pair[1]) {
            return Err(invalid("a variable is kept twice"));
        }
        let both = |hop: &&MatchHop| hop.direction == Direction::Both;
        if self
            .hops
            .iter()
            .filter(both)
            .any(|hop| !hop.edges.same_type())
        {
            return Err(invalid(
                "only edges between nodes of one type are followed both ways",
            ));
        }
        if self.hops.is_empty() || self.reached() < self.variables {
            return Err(invalid("expected variables that hops join"));
        }
        Ok(())
    }

    /// Variables that hops join to the first one.
    fn reached(&self) -> usize {
        let mut known = vec![false; self.variables];
        if let Some(first) = known.first_mut() {
            *first = true;
        }
        for _ in 0..self.variables {
            for hop in &self.hops {
                let any = known[hop.left] || known[hop.right];
                (known[hop.left], known[hop.right]) = (any, any);
            }
        }
        known.iter().filter(|known| **known).count()
    }

    /// The variables that are left when all others were folded.
    pub fn core(&self) -> Vec<usize> {
        let mut left: Vec<usize> = (0..self.variables).collect();
        let mut hops: Vec<(usize, usize)> = self.hops.iter().map(|h| (h.left, h.right)).collect();
        hops.retain(|(a, b)| a != b);
        loop {
            let degree = |v: usize| hops.iter().filter(|(a, b)| *a == v || *b == v).count();
            let leaf = |v: &usize| !self.kept.contains(v) && degree(*v) == 1;
            let Some(leaf) = left.iter().copied().find(leaf) else {
                return left;
            };
            left.retain(|v| *v != leaf);
            hops.retain(|(a, b)| *a != leaf && *b != leaf);
        }
    }
}

/// Nodes from which on it pays to prepare the lists of all.
const MANY: usize = 1_024;

/// The nodes that a variable may be, by row id and in any order; `None` for all.
pub type MatchNodes = Option<Vec<u64>>;

/// The budget of the first hop, of which there is one.
fn budget(pattern: &MatchPattern) -> Option<&Arc<dyn Budget>> {
    pattern.hops.first().map(|hop| hop.edges.budget())
}

/// The refusal of a number that does not fit.
fn too_many(value: u64) -> Error {
    Error::ResourceLimitExceeded {
        what: "assignments of a pattern",
        value,
        limit: i64::MAX as u64,
    }
}
