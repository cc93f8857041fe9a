//! Enumerates what folding has left.

use std::sync::Arc;

use super::super::lists::Bits;
use super::super::pace::Pace;
use super::super::stats::HopStats;
use super::fold::times;
use super::plan::{Closing, Level, Matching};
use super::too_many;
use crate::Result;
use crate::table::reservation::Reservation;

/// Nodes of the first variable in a row that are one cursor's.
const SHARE: usize = 512;
/// Times that a list is searched before its nodes are marked.
const SEARCHES: u32 = 2;

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

/// The lists of a hop while its bound end stays.
struct Side {
    bound: Option<u32>,
    /// Room for a list that does not lie ready.
    buffer: Vec<u32>,
    ready: bool,
    searched: u32,
    marks: Bits,
    marked: Vec<u32>,
    /// Whether the list's nodes are the ones that are marked.
    is_marked: bool,
}

impl Side {
    fn new() -> Self {
        Self {
            bound: None,
            buffer: Vec::new(),
            ready: false,
            searched: 0,
            marks: Bits::default(),
            marked: Vec::new(),
            is_marked: false,
        }
    }

    /// Looks at the list of another node.
    fn bind(&mut self, hop: &Closing, node: u32) {
        if self.bound == Some(node) {
            return;
        }
        self.ready = hop.lists.ready(node, true).is_some();
        if !self.ready {
            hop.lists.merge(node, true, &mut self.buffer);
        }
        (self.bound, self.searched, self.is_marked) = (Some(node), 0, false);
        for node in self.marked.drain(..) {
            self.marks.remove(node as usize);
        }
    }

    fn list<'a>(&'a self, hop: &'a Closing) -> &'a [u32] {
        match self.bound {
            Some(node) if self.ready => hop.lists.ready(node, true).unwrap_or_default(),
            Some(_) => &self.buffer,
            None => &[],
        }
    }

    /// Marks the list's nodes if it was searched before; a list of the variable bound last is new each
    /// time.
    fn mark(&mut self, hop: &Closing, memory: &mut Reservation) -> Result<()> {
        self.searched = self.searched.saturating_add(1);
        if self.is_marked || self.searched <= SEARCHES {
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
        while !self.done && out.rows < most.max(1) {
            let before = self.stats;
            if !self.step(&mut out)? {
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
    fn step(&mut self, out: &mut Matched) -> Result<bool> {
        let of = Arc::clone(&self.of);
        if self.depth == 0 {
            return self.begin(&of, out);
        }
        let open = &mut self.open[self.depth];
        let Some((node, count)) = open.found.get(open.at).copied() else {
            self.depth -= 1;
            return Ok(true);
        };
        open.at += 1;
        (open.node, open.count) = (node, count);
        self.bound(&of, self.depth, out)?;
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
        let Some(at) = self.share.next() else {
            return Ok(false);
        };
        let node = known.map_or(at as u32, |nodes| nodes[at]);
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
        if self.assignments > 0 && self.pending == self.row {
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
        let list = sides[base].list(&self.level.closings[base]);
        if found.capacity() < list.len() {
            let more = list.len() - found.capacity();
            self.memory.grow(more * size_of::<(u32, u64)>())?;
            found.reserve_exact(list.len());
        }
        self.stats.edges += list.len() as u64;
        for node in list {
            let weight = self.weight(sides, base, *node);
            if weight > 0 {
                found.push((*node, count.saturating_mul(weight)));
            }
        }
        Ok(())
    }

    /// The assignments of all candidates together.
    fn sum(&mut self, sides: &mut [Side], count: u64) -> Result<u64> {
        let base = self.ready(sides)?;
        let list = sides[base].list(&self.level.closings[base]);
        self.stats.edges += list.len() as u64;
        let mut sum = 0u64;
        for node in list {
            sum = sum.saturating_add(self.weight(sides, base, *node));
            if self.any && sum > 0 {
                break;
            }
        }
        Ok(count.saturating_mul(sum))
    }

    /// Binds all hops; the one with the shortest list.
    fn ready(&mut self, sides: &mut [Side]) -> Result<usize> {
        let closings = &self.level.closings;
        let (mut base, mut least) = (0, usize::MAX);
        for (at, (side, hop)) in sides.iter_mut().zip(closings).enumerate() {
            side.bind(hop, self.bound[hop.from].node);
            let len = side.list(hop).len();
            if len < least {
                (base, least) = (at, len);
            }
        }
        for (at, (side, hop)) in sides.iter_mut().zip(closings).enumerate() {
            if at != base && least > 0 {
                side.mark(hop, self.memory)?;
            }
        }
        Ok(base)
    }

    /// How many assignments a node of the shortest list stands for; 0 if it is in not all of them.
    #[inline]
    fn weight(&self, sides: &[Side], base: usize, node: u32) -> u64 {
        let closings = &self.level.closings;
        for (at, (side, hop)) in sides.iter().zip(closings).enumerate() {
            let there = at == base
                || match side.is_marked {
                    true => side.marks.get(node as usize),
                    false => side.list(hop).binary_search(&node).is_ok(),
                };
            if !there {
                return 0;
            }
        }
        let mut weight = self.level.weights.get(node);
        let repeated = |hop: &&Closing| !hop.distinct && !self.any && hop.lists.repeats();
        for hop in closings.iter().filter(repeated) {
            let mut buffer = Vec::new();
            let edges = hop
                .lists
                .list(self.bound[hop.from].node, false, &mut buffer);
            weight = weight.saturating_mul(times(edges, node));
        }
        weight
    }
}
