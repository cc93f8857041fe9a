//! How many assignments a node of a variable stands for.

use super::super::lists::{Bits, narrow};
use super::super::pace::Pace;
use crate::Result;
use crate::table::reservation::Reservation;

/// Weights of the nodes of a variable.
#[derive(Debug)]
pub(super) enum Weights {
    /// 1 for all.
    All,
    /// 1 for these, ascending.
    Set { nodes: Vec<u32>, bits: Bits },
    /// Numbers by node, above 0 for these, ascending.
    Counts { nodes: Vec<u32>, counts: Vec<u64> },
}

impl Weights {
    /// 1 for these row ids, in any order; ids that no edge can have are left out.
    pub(super) fn of(rids: &[u64], memory: &mut Reservation) -> Result<Self> {
        memory.grow(size_of_val(rids))?;
        let mut nodes: Vec<u32> = rids.iter().filter_map(|rid| narrow(*rid).ok()).collect();
        nodes.sort_unstable();
        nodes.dedup();
        Self::set(nodes, memory)
    }

    /// 1 for these, which ascend; their memory is held already.
    pub(super) fn set(nodes: Vec<u32>, memory: &mut Reservation) -> Result<Self> {
        let len = nodes.last().map_or(0, |last| *last as usize + 1);
        memory.grow(Bits::bytes_for(len))?;
        let mut bits = Bits::new(len);
        for node in &nodes {
            bits.insert(*node as usize);
        }
        Ok(Self::Set { nodes, bits })
    }

    /// The nodes with a weight, if they are known.
    pub(super) fn nodes(&self) -> Option<&[u32]> {
        match self {
            Self::All => None,
            Self::Set { nodes, .. } | Self::Counts { nodes, .. } => Some(nodes),
        }
    }

    /// The weight of a node.
    #[inline]
    pub(super) fn get(&self, node: u32) -> u64 {
        match self {
            Self::All => 1,
            Self::Set { bits, .. } => u64::from(bits.get(node as usize)),
            Self::Counts { counts, .. } => counts.get(node as usize).copied().unwrap_or(0),
        }
    }

    /// The weights of all nodes of a list together; with `any` only whether there is one.
    #[inline]
    pub(super) fn sum(&self, list: &[u32], any: bool) -> u64 {
        if any {
            return u64::from(list.iter().any(|node| self.get(*node) > 0));
        }
        match self {
            Self::All => list.len() as u64,
            Self::Set { bits, .. } => list
                .iter()
                .map(|node| u64::from(bits.get(*node as usize)))
                .sum(),
            Self::Counts { counts, .. } => list.iter().fold(0, |sum, node| {
                let more = counts.get(*node as usize).copied().unwrap_or(0);
                u64::saturating_add(sum, more)
            }),
        }
    }
}

/// Numbers by node while they are summed up.
pub(super) struct Sums {
    counts: Vec<u64>,
    nodes: Vec<u32>,
}

impl Sums {
    /// For nodes below `len`.
    pub(super) fn new(len: usize, memory: &mut Reservation) -> Result<Self> {
        memory.grow(len.saturating_mul(size_of::<u64>() + size_of::<u32>()))?;
        Ok(Self {
            counts: vec![0; len],
            nodes: Vec::new(),
        })
    }

    /// Adds to a node. Sums stop at the largest number, which is refused where it is shown.
    #[inline]
    pub(super) fn add(&mut self, node: u32, more: u64) {
        if let Some(count) = self.counts.get_mut(node as usize)
            && more > 0
        {
            if *count == 0 {
                self.nodes.push(node);
            }
            *count = count.saturating_add(more);
        }
    }

    /// As weights, each multiplied with `by`; with `any` 1 for each.
    pub(super) async fn finish(
        mut self,
        by: &Weights,
        any: bool,
        memory: &mut Reservation,
        pace: &mut Pace,
    ) -> Result<Weights> {
        if !self.nodes.is_sorted() {
            self.nodes.sort_unstable();
        }
        if let Weights::Counts { .. } | Weights::Set { .. } = by {
            let counts = &mut self.counts;
            self.nodes.retain(|node| {
                let count = &mut counts[*node as usize];
                *count = count.saturating_mul(by.get(*node));
                *count > 0
            });
        }
        if pace.due(self.nodes.len()) {
            Pace::rest().await;
        }
        match any {
            true => Weights::set(self.nodes, memory),
            false => Ok(Weights::Counts {
                nodes: self.nodes,
                counts: self.counts,
            }),
        }
    }
}
