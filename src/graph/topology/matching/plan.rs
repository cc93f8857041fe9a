//! Folds what can be folded, and plans the enumeration of what is left.

use std::sync::Arc;

use super::super::pace::Pace;
use super::super::stats::ReachStats;
use super::super::union::Topology;
use super::fold::Folding;
use super::hop::Hop;
use super::weights::Weights;
use super::{MANY, MatchNodes, MatchPattern, budget};
use crate::table::reservation::Reservation;
use crate::{Error, Result};

/// Steps along a list that take as long as looking up how long it is.
const DEGREE: usize = 8;

/// What was done before the first row.
pub type MatchStats = ReachStats;

/// A hop that binds a variable from one that is bound already.
pub(super) struct Closing {
    /// Place of the bound variable.
    pub(super) from: usize,
    pub(super) lists: Arc<Topology>,
    pub(super) distinct: bool,
}

/// A variable of the enumeration.
pub(super) struct Level {
    pub(super) weights: Weights,
    /// Hops from variables that are bound before; none for the first one.
    pub(super) closings: Vec<Closing>,
    /// Whether edges count whose pair of nodes has others.
    pub(super) repeats: bool,
    /// Its place in the rows, if it is kept.
    pub(super) shown: Option<usize>,
}

/// A pattern that is ready to be read, by any number of cursors.
pub struct Matching {
    pub(super) levels: Vec<Level>,
    /// Nodes that the first variable may be, where all are.
    pub(super) every: usize,
    pub(super) kept: usize,
    pub(super) counted: bool,
    pub(super) budget: Arc<dyn crate::env::Budget>,
    stats: ReachStats,
    _memory: Reservation,
}

impl Matching {
    /// Loads the lists that are needed and folds. `nodes` are those of each variable.
    ///
    /// # Errors
    /// As [`MatchPattern::check`]; `Corrupt` or `Parquet` for a fragment that is not what its entry
    /// says, `ResourceLimitExceeded` for a row id above 2^32 - 2, the budget's own when it runs out.
    pub async fn prepare(pattern: &MatchPattern, nodes: &[MatchNodes]) -> Result<Self> {
        pattern.check()?;
        let Some(budget) = budget(pattern) else {
            return Err(Error::corrupt("pattern", "", "a hop", "none"));
        };
        let mut memory = Reservation::new(budget);
        let (mut stats, mut pace) = (ReachStats::default(), Pace::default());
        let mut weights = Vec::with_capacity(pattern.variables);
        for var in 0..pattern.variables {
            weights.push(match nodes.get(var).and_then(Option::as_ref) {
                Some(rids) => Weights::of(rids, &mut memory)?,
                None => Weights::All,
            });
        }
        let few = |nodes: &[u32]| nodes.len() < MANY;
        let many = !weights.iter().any(|w| w.nodes().is_some_and(few));
        let mut folding = Folding {
            any: !pattern.counted,
            memory: &mut memory,
            stats: &mut stats,
            pace: &mut pace,
            done: 0,
        };
        let mut hops: Vec<Hop> = Vec::with_capacity(pattern.hops.len());
        hops.extend(
            pattern
                .hops
                .iter()
                .map(|hop| Hop::new(hop, pattern.mode, many)),
        );
        let mut left: Vec<usize> = (0..pattern.variables).collect();
        while let Some(at) = hops.iter().position(|hop| hop.left == hop.right) {
            let mut hop = hops.swap_remove(at);
            let var = hop.left;
            weights[var] = folding.loops(&mut hop, var, &weights[var]).await?;
        }
        while let Some((leaf, at)) = next_leaf(&left, &hops, &pattern.kept, &weights) {
            let mut hop = hops.swap_remove(at);
            let into = hop.other(leaf);
            let (from, to) = ((leaf, &weights[leaf]), (into, &weights[into]));
            let folded = folding.fold(&mut hop, from, to).await?;
            weights[into] = folded;
            left.retain(|var| *var != leaf);
        }
        let (levels, every) = levels(pattern, &left, hops, weights, &mut stats, &mut pace).await?;
        Ok(Self {
            levels,
            every,
            kept: pattern.kept.len(),
            counted: pattern.counted,
            budget: Arc::clone(budget),
            stats,
            _memory: memory,
        })
    }

    /// What was done.
    pub fn stats(&self) -> &MatchStats {
        &self.stats
    }
}

/// A variable to fold and its only hop: with few nodes first, so that others have few to look at; then
/// one whose neighbour's lists lie ready.
fn next_leaf(
    left: &[usize],
    hops: &[Hop],
    kept: &[usize],
    weights: &[Weights],
) -> Option<(usize, usize)> {
    let mut best: Option<((usize, bool, bool), usize, usize)> = None;
    for var in left.iter().filter(|var| !kept.contains(var)) {
        let mut own = hops.iter().enumerate().filter(|(_, hop)| hop.joins(*var));
        let (Some((at, hop)), None) = (own.next(), own.next()) else {
            continue;
        };
        let into = hop.other(*var);
        let size = |var: usize| weights[var].nodes().map_or(usize::MAX, <[u32]>::len);
        let walks = match &weights[*var] {
            // Degrees alone.
            Weights::All => size(into) / DEGREE,
            some => some.nodes().map_or(0, <[u32]>::len),
        };
        let full = matches!(weights[*var], Weights::All) && size(into) == usize::MAX;
        let key = (walks, full, !hop.is_out(into));
        if best.is_none_or(|(least, ..)| key < least) {
            best = Some((key, *var, at));
        }
    }
    best.map(|(_, var, at)| (var, at))
}

/// The order of the variables that are left: few nodes first, then those that most hops close; kept
/// ones before others like them.
async fn levels(
    pattern: &MatchPattern,
    left: &[usize],
    mut hops: Vec<Hop>,
    mut weights: Vec<Weights>,
    stats: &mut ReachStats,
    pace: &mut Pace,
) -> Result<(Vec<Level>, usize)> {
    let mut rest = left.to_vec();
    let mut order: Vec<usize> = Vec::new();
    let (mut levels, mut every) = (Vec::new(), 0);
    while !rest.is_empty() {
        let key = |var: &usize| {
            let closing = hops
                .iter()
                .filter(|hop| hop.joins(*var) && order.contains(&hop.other(*var)));
            let closing = closing.count();
            let size = weights[*var].nodes().map_or(usize::MAX, <[u32]>::len);
            let kept = pattern.kept.contains(var);
            // One that no hop reaches yet comes last, but for the first of all.
            let first = order.is_empty();
            let rank = if first { 0 } else { usize::MAX - closing };
            (rank, size, !kept, *var)
        };
        let Some(var) = rest.iter().copied().min_by_key(key) else {
            break;
        };
        rest.retain(|other| *other != var);
        let mut closings = Vec::new();
        for hop in hops.iter_mut().filter(|hop| hop.joins(var)) {
            let other = hop.other(var);
            if let Some(from) = order.iter().position(|bound| *bound == other) {
                let known = levels
                    .get(from)
                    .and_then(|level: &Level| level.weights.nodes());
                closings.push(Closing {
                    from,
                    lists: hop.lists(other, known, stats, pace).await?,
                    distinct: hop.distinct,
                });
            } else if order.is_empty() && matches!(weights[var], Weights::All) {
                every = hop.lists(var, None, stats, pace).await?.nodes();
            }
        }
        let each = |hop: &Closing| !hop.distinct && hop.lists.repeats();
        levels.push(Level {
            repeats: closings.iter().any(each),
            weights: std::mem::replace(&mut weights[var], Weights::All),
            closings,
            shown: pattern.kept.iter().position(|kept| *kept == var),
        });
        order.push(var);
    }
    Ok((levels, every))
}
