//! Enumerates what folding has left.

use std::sync::Arc;

use super::super::lists::Bits;
use super::super::pace::Pace;
use super::super::stats::HopStats;
use super::super::union::Place;
use super::fold::times;
use super::plan::{Closing, Level, Matching};
use super::too_many;
use crate::Result;
use crate::table::reservation::Reservation;

/// Nodes of the first variable in a row that are one cursor's.
const SHARE: usize = 512;
/// Times that a list is used before its nodes are marked.
const UNMARKED: u32 = 2;

/// Rows of a pattern: for each kept variable the row ids of its nodes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Matched {
    /// By kept variable.
    pub columns: Vec<Vec<u64>>,
    /// Assignments of each row; empty if they are not counted.
    pub counts: Vec<i64>,
    /// Number of rows.
    pub rows: usize,
}

/// The list of a hop while its bound end stays.
struct Side {
    bound: Option<u32>,
    place: Option<Place>,
    /// Room for a list that does not lie ready.
    buffer: Vec<u32>,
    uses: u32,
    marks: Bits,
    marked: Vec<u32>,
    /// Whether the list's nodes are the ones that are marked.
    is_marked: bool,
}

impl Side {
    fn new() -> Self {
        Self {
            bound: None,
            place: None,
            buffer: Vec::new(),
            uses: 0,
            marks: Bits::default(),
            marked: Vec::new(),
            is_marked: false,
        }
    }

    /// Uses the list of a node, which may be another one than before.
    fn bind(&mut self, hop: &Closing, node: u32) {
        self.uses = self.uses.saturating_add(1);
        if self.bound == Some(node) {
            return;
        }
        self.place = hop.lists.ready(node, true);
        if self.place.is_none() {
            hop.lists.merge(node, true, &mut self.buffer);
        }
        (self.bound, self.uses, self.is_marked) = (Some(node), 1, false);
        for node in self.marked.drain(..) {
            self.marks.remove(node as usize);
        }
    }

    #[inline]
    fn list<'a>(&'a self, hop: &'a Closing) -> &'a [u32] {
        match &self.place {
            Some(place) => hop.lists.at(place),
            None => &self.buffer,
        }
    }

    /// What it costs to find out whether a list of `len` nodes has a node, in steps along a list.
    fn probe(&self, len: usize) -> usize {
        if self.uses > UNMARKED {
            return 1;
        }
        2 + len.checked_ilog2().unwrap_or(0) as usize
    }

    /// Marks the list's nodes if it was used before; a list of the variable bound last is new each time.
    fn mark(&mut self, hop: &Closing, memory: &mut Reservation) -> Result<()> {
        if self.is_marked || self.uses <= UNMARKED {
            return Ok(());
        }
        if self.marks.bytes() == 0 {
            let nodes = hop.lists.nodes();
            memory.grow(Bits::bytes_for(nodes))?;
            self.marks = Bits::new(nodes);
        }
        let mut marked = std::mem::take(&mut self.marked);
        let (held, list) = (marked.capacity(), self.list(hop));
        memory.grow(list.len().saturating_sub(held) * size_of::<u32>())?;
        marked.extend_from_slice(list);
        for node in &marked {
            self.marks.insert(*node as usize);
        }
        (self.marked, self.is_marked) = (marked, true);
        Ok(())
    }

    #[inline]
    fn has(&self, hop: &Closing, node: u32) -> bool {
        match self.is_marked {
            true => self.marks.get(node as usize),
            false => self.list(hop).binary_search(&node).is_ok(),
        }
    }
}

/// A variable while its candidates are gone through.
struct Open {
    sides: Vec<Side>,
    found: Vec<(u32, u64)>,
    at: usize,
    /// Assignments of all variables up to this one.
    count: u64,
    node: u32,
}

/// Reads a part of the rows, always the same one.
pub struct MatchCursor {
    of: Arc<Matching>,
    open: Vec<Open>,
    /// Variables that are bound.
    depth: usize,
    /// The first variable's nodes that are still this cursor's, and where its next ones begin.
    share: std::ops::Range<usize>,
    next: usize,
    /// From one of its shares to the next.
    stride: usize,
    row: Vec<u64>,
    /// The row that further assignments may still count for, and its assignments so far.
    pending: Vec<u64>,
    assignments: u64,
    total: u64,
    done: bool,
    stats: HopStats,
    memory: Reservation,
    pace: Pace,
}

impl MatchCursor {
    /// Reads part `part` of `parts`, which together are all rows.
    pub fn new(of: &Arc<Matching>, part: usize, parts: usize) -> Self {
        let open = of.levels.iter().map(|level| Open {
            sides: level.closings.iter().map(|_| Side::new()).collect(),
            found: Vec::new(),
            at: 0,
            count: 0,
            node: 0,
        });
        Self {
            open: open.collect(),
            depth: 0,
            share: 0..0,
            next: part.saturating_mul(SHARE),
            stride: parts.max(1).saturating_mul(SHARE),
            row: vec![0; of.kept],
            pending: vec![0; of.kept],
            assignments: 0,
            total: 0,
            done: false,
            stats: HopStats::default(),
            memory: Reservation::new(&of.budget),
            pace: Pace::default(),
            of: Arc::clone(of),
        }
    }

    /// Nodes that were bound and list entries that were visited so far.
    pub fn stats(&self) -> HopStats {
        self.stats
    }

    /// The next rows, about `most` of them; `None` at their end.
    ///
    /// # Errors
    /// `ResourceLimitExceeded` where the assignments are more than a signed 64-bit number; the budget's
    /// own when it runs out.
    pub async fn next(&mut self, most: usize) -> Result<Option<Matched>> {
        let mut out = Matched {
            columns: vec![Vec::new(); self.of.kept],
            ..Matched::default()
        };
        let of = Arc::clone(&self.of);
        while !self.done && out.rows < most.max(1) {
            let before = self.stats;
            if !self.step(&of, &mut out)? {
                self.done = true;
                self.flush(&mut out)?;
            }
            let steps = self.stats.edges - before.edges + 1;
            if self.pace.due(steps as usize) {
                Pace::rest().await;
            }
        }
        Ok((out.rows > 0).then_some(out))
    }

    /// Binds one more variable, or goes back; `false` at the end.
    fn step(&mut self, of: &Matching, out: &mut Matched) -> Result<bool> {
        if self.depth == 0 {
            return self.begin(of, out);
        }
        let open = &mut self.open[self.depth];
        let Some((node, count)) = open.found.get(open.at).copied() else {
            self.depth -= 1;
            return Ok(true);
        };
        open.at += 1;
        (open.node, open.count) = (node, count);
        self.bound(of, self.depth, out)?;
        Ok(true)
    }

    /// Binds the first variable.
    fn begin(&mut self, of: &Matching, out: &mut Matched) -> Result<bool> {
        let Some(first) = of.levels.first() else {
            return Ok(false);
        };
        let known = first.weights.nodes();
        let all = known.map_or(of.every, <[u32]>::len);
        if self.share.is_empty() {
            self.share = self.next.min(all)..self.next.saturating_add(SHARE).min(all);
            self.next = self.next.saturating_add(self.stride);
        }
        if self.share.is_empty() {
            return Ok(false);
        }
        let node_at = |at: usize| known.map_or(at as u32, |nodes| nodes[at]);
        if of.levels.len() == 1 && first.shown.is_none() {
            self.stats.frontier += self.share.len() as u64;
            let weights = self.share.by_ref().map(|at| first.weights.get(node_at(at)));
            let sum = weights.fold(0, u64::saturating_add);
            return match sum > 0 {
                true => self.emit(sum, out).map(|()| true),
                false => Ok(true),
            };
        }
        let at = self.share.start;
        self.share.start += 1;
        let node = node_at(at);
        let count = first.weights.get(node);
        (self.open[0].node, self.open[0].count) = (node, count);
        if count > 0 {
            self.bound(of, 0, out)?;
        }
        Ok(true)
    }

    /// Goes on from a variable that was bound: to the candidates of the next one, or to a row.
    fn bound(&mut self, of: &Matching, depth: usize, out: &mut Matched) -> Result<()> {
        self.stats.frontier += 1;
        let Open { node, count, .. } = self.open[depth];
        if let Some(place) = of.levels[depth].shown {
            self.row[place] = u64::from(node);
        }
        let Some(next) = of.levels.get(depth + 1) else {
            return self.emit(count, out);
        };
        let (bound, rest) = self.open.split_at_mut(depth + 1);
        let open = &mut rest[0];
        let last = depth + 2 == of.levels.len() && next.shown.is_none();
        let mut search = Search {
            level: next,
            bound,
            any: !of.counted,
            memory: &mut self.memory,
            stats: &mut self.stats,
        };
        if last {
            let sum = search.sum(&mut open.sides, count)?;
            return match sum > 0 {
                true => self.emit(sum, out),
                false => Ok(()),
            };
        }
        open.found.clear();
        open.at = 0;
        let Open { sides, found, .. } = open;
        search.each(sides, count, found)?;
        self.depth = depth + 1;
        Ok(())
    }

    /// Adds assignments to the row.
    fn emit(&mut self, count: u64, out: &mut Matched) -> Result<()> {
        // An empty row is not compared: loads of no bytes at no address are slow on some processors.
        let same = self.row.is_empty() || self.pending == self.row;
        if self.assignments > 0 && same {
            self.assignments = self.assignments.saturating_add(count);
        } else {
            self.flush(out)?;
            self.pending.copy_from_slice(&self.row);
            self.assignments = count;
        }
        if !self.of.counted {
            self.give_up();
        }
        Ok(())
    }

    /// Of a row that is there no more assignments are looked for: goes back to the last variable that
    /// is shown.
    fn give_up(&mut self) {
        let shown = self
            .of
            .levels
            .iter()
            .rposition(|level| level.shown.is_some());
        self.depth = self.depth.min(shown.unwrap_or(0));
        if shown.is_none() {
            (self.share, self.next) = (0..0, usize::MAX);
        }
    }

    fn flush(&mut self, out: &mut Matched) -> Result<()> {
        let count = std::mem::take(&mut self.assignments);
        if count == 0 {
            return Ok(());
        }
        for (column, node) in out.columns.iter_mut().zip(&self.pending) {
            column.push(*node);
        }
        if self.of.counted {
            self.total = self.total.saturating_add(count);
            i64::try_from(self.total).map_err(|_| too_many(self.total))?;
            out.counts.push(count as i64);
        }
        out.rows += 1;
        Ok(())
    }
}

/// Candidates of a variable.
struct Search<'a> {
    level: &'a Level,
    bound: &'a [Open],
    any: bool,
    memory: &'a mut Reservation,
    stats: &'a mut HopStats,
}

impl Search<'_> {
    /// All candidates, with the assignments up to them.
    fn each(&mut self, sides: &mut [Side], count: u64, found: &mut Vec<(u32, u64)>) -> Result<()> {
        let base = self.ready(sides)?;
        let len = sides[base].list(&self.level.closings[base]).len();
        if found.capacity() < len {
            let more = len - found.capacity();
            self.memory.grow(more * size_of::<(u32, u64)>())?;
            found.reserve_exact(len);
        }
        self.candidates(sides, base, |node, weight| {
            found.push((node, count.saturating_mul(weight)));
            true
        });
        Ok(())
    }

    /// The assignments of all candidates together.
    fn sum(&mut self, sides: &mut [Side], count: u64) -> Result<u64> {
        let base = self.ready(sides)?;
        let (mut sum, all) = (0u64, !self.any);
        self.candidates(sides, base, |_, weight| {
            sum = sum.saturating_add(weight);
            all
        });
        Ok(count.saturating_mul(sum))
    }

    /// Binds all hops; the one whose list is cheapest to go through and to look up in all others.
    fn ready(&mut self, sides: &mut [Side]) -> Result<usize> {
        let closings = &self.level.closings;
        let mut probes = 0usize;
        for (side, hop) in sides.iter_mut().zip(closings) {
            side.bind(hop, self.bound[hop.from].node);
            probes = probes.saturating_add(side.probe(side.list(hop).len()));
        }
        let (mut base, mut least) = (0, usize::MAX);
        for (at, (side, hop)) in sides.iter().zip(closings).enumerate() {
            let len = side.list(hop).len();
            let cost = len.saturating_mul(probes - side.probe(len));
            if cost < least {
                (base, least) = (at, cost);
            }
        }
        for (at, (side, hop)) in sides.iter_mut().zip(closings).enumerate() {
            if at != base && least > 0 {
                side.mark(hop, self.memory)?;
            }
        }
        Ok(base)
    }

    /// Gives `take` each node of one list that all others have and that stands for assignments, until it
    /// says that it wants no more.
    fn candidates(&mut self, sides: &[Side], base: usize, mut take: impl FnMut(u32, u64) -> bool) {
        let closings = &self.level.closings;
        let list = sides[base].list(&closings[base]);
        self.stats.edges += list.len() as u64;
        let mut take = |node: u32| {
            let weight = self.weight(node);
            weight == 0 || take(node, weight)
        };
        let others = || sides.iter().zip(closings).enumerate();
        let all = match (sides, base) {
            // The loop of triangles.
            ([_, marked], 0) | ([marked, _], 1) if marked.is_marked => list
                .iter()
                .filter(|node| marked.marks.get(**node as usize))
                .try_for_each(|node| take(*node).then_some(())),
            _ => list
                .iter()
                .filter(|node| {
                    others().all(|(at, (side, hop))| at == base || side.has(hop, **node))
                })
                .try_for_each(|node| take(*node).then_some(())),
        };
        // `None` where no more was wanted.
        let _ = all;
    }

    /// How many assignments a node stands for that all lists have.
    fn weight(&self, node: u32) -> u64 {
        let mut weight = self.level.weights.get(node);
        if weight == 0 || self.any || !self.level.repeats {
            return weight;
        }
        let mut buffer = Vec::new();
        for hop in self.level.closings.iter().filter(|hop| !hop.distinct) {
            let from = self.bound[hop.from].node;
            let edges = hop.lists.list(from, false, &mut buffer);
            weight = weight.saturating_mul(times(edges, node));
        }
        weight
    }
}
