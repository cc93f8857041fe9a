//! Searching one fragment, with an index or without.

use std::borrow::Cow;

use roaring::RoaringBitmap;

use super::graph::{End, Graph, Walk};
use super::index::Index;
use super::ivf::{Ivf, Probe};
use super::metric::Query;
use super::scratch::Scratch;
use super::top::{Key, TopK, key};
use super::vectors::Vectors;

/// A distance of a walk takes as long as two or three of a scan: rows are read in no order.
const WALK_COST: u64 = 3;

/// When which regime is used; see [`Regime`].
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Thresholds {
    /// Fragments of fewer rows are scanned.
    pub exact_rows: u32,
    /// At most so many live rows are scanned.
    pub exact_live: u64,
    /// At most this share of live rows is scanned.
    pub exact_share: f64,
    /// Below this share of live rows a graph is walked over live nodes only.
    pub two_hop_share: f64,
    /// Such a walk has an `ef` of at least this number divided by the share.
    pub two_hop_ef: f64,
}

impl Default for Thresholds {
    fn default() -> Self {
        Self {
            exact_rows: 25_000,
            exact_live: 6000,
            exact_share: 0.15,
            two_hop_share: 0.15,
            two_hop_ef: 2.0,
        }
    }
}

/// How to search.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct SearchOptions {
    /// Uses no index.
    pub exact: bool,
    /// `ef` of a graph, instead of the one that its build measured.
    pub ef: Option<usize>,
    /// Lists probed of an inverted file, instead of the number that its build measured.
    pub probes: Option<usize>,
    /// The distance of the k-th row of other fragments: rows strictly farther are left out. A graph in
    /// which nothing seems to lie within it is left early.
    pub bound: Option<f32>,
    /// When to use which regime.
    pub thresholds: Thresholds,
}

/// How an answer was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Regime {
    /// Every live row was measured.
    Exact,
    /// A graph was walked; live rows were kept.
    Beam,
    /// A graph was walked over live rows.
    TwoHop,
    /// Lists of an inverted file were scanned.
    Lists,
    /// An index was given up for an exact scan: it had measured as many rows as are live, or had found
    /// too few.
    GivenUp,
}

impl Regime {
    /// The name in plans and metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Exact => "exact",
            Self::Beam => "beam",
            Self::TwoHop => "two_hop",
            Self::Lists => "lists",
            Self::GivenUp => "given_up",
        }
    }
}

/// The answer of one fragment.
#[derive(Debug, Clone, PartialEq)]
pub struct Answer {
    /// (distance, position), nearest first, ties by position. Without a bound as many as were asked for
    /// or, if they are fewer, as present rows are live.
    pub hits: Vec<(f32, u32)>,
    /// How they were found.
    pub regime: Regime,
    /// Distances that were computed.
    pub visited: u64,
}

/// The `k` nearest to `query` of the `live` rows that are present.
///
/// Distances are exact in every regime; an index decides which rows are looked at. An index of another
/// fragment shape or metric is not used. A query of another metric or width than that of `vectors` finds
/// nothing.
pub fn top_k(
    index: Option<&Index>,
    vectors: &Vectors,
    query: &Query,
    k: usize,
    live: &RoaringBitmap,
    options: &SearchOptions,
    scratch: &mut Scratch,
) -> Answer {
    let present = vectors.present();
    let live = if present.len() == u64::from(vectors.rows()) {
        Cow::Borrowed(live)
    } else {
        Cow::Owned(live & present)
    };
    let count = live.range_cardinality(0..vectors.rows());
    let nothing = k == 0 || count == 0 || !vectors.fits(query);
    let search = Search {
        vectors,
        query,
        // No more rows than there are.
        k: if nothing { 0 } else { k.min(count as usize) },
        live: &live,
        count,
        options,
    };
    match index.filter(|index| search.uses(index)) {
        Some(Index::Hnsw(graph)) => search.graph(graph, scratch),
        Some(Index::Ivf(ivf)) => search.lists(ivf, scratch),
        None => search.exact(Regime::Exact, 0),
    }
}

struct Search<'a> {
    vectors: &'a Vectors,
    query: &'a Query,
    k: usize,
    live: &'a RoaringBitmap,
    count: u64,
    options: &'a SearchOptions,
}

impl Search<'_> {
    fn share(&self) -> f64 {
        self.count as f64 / self.vectors.present().len().max(1) as f64
    }

    fn uses(&self, index: &Index) -> bool {
        let thresholds = &self.options.thresholds;
        !self.options.exact
            && self.k > 0
            && index.covers(self.vectors)
            && self.vectors.rows() >= thresholds.exact_rows
            && self.count > thresholds.exact_live
            && self.share() > thresholds.exact_share
            // Nearly all live rows are asked for.
            && (self.k as u64) < self.count / 2
    }

    fn top(&self) -> TopK {
        TopK::new(self.k).within(self.options.bound)
    }

    /// Live rows, or `None` if all present rows are.
    fn filter(&self) -> Option<&RoaringBitmap> {
        let all = self.count == u64::from(self.vectors.rows());
        (!all).then_some(self.live)
    }

    fn exact(&self, regime: Regime, visited: u64) -> Answer {
        let mut top = self.top();
        let mut scanned = 0;
        if self.k > 0 {
            let rows = self.live.range(0..self.vectors.rows());
            scanned = self.vectors.scan(self.query, rows, &mut top);
        }
        Answer {
            hits: top.into_sorted(),
            regime,
            visited: visited + scanned,
        }
    }

    fn graph(&self, graph: &Graph, scratch: &mut Scratch) -> Answer {
        let bound = self.options.bound.filter(|bound| !bound.is_nan());
        let ef = self
            .options
            .ef
            .unwrap_or_else(|| effort(graph.ef(), self.k));
        let mut walk = Walk {
            live: self.filter(),
            ef: ef.max(self.k),
            bound: bound.map_or(Key::MAX, |bound| key(bound + 0.0, u32::MAX)),
            budget: self.count / WALK_COST,
            ..Walk::new(graph, self.vectors, self.query, ef)
        };
        let mut visited = 0;
        if self.share() < self.options.thresholds.two_hop_share {
            let narrow = walk.ef;
            let least = self.options.thresholds.two_hop_ef / self.share();
            walk.ef = narrow.max(least.min(self.count as f64).ceil() as usize);
            walk.budget = self.count;
            let walked = walk.two_hop(scratch);
            visited += walked.evaluations;
            // A walk that ran out of nodes may have seen one part of many.
            let full = scratch.found.len() as u64 >= self.count.min(walk.ef as u64);
            match walked.end {
                End::Spent => return self.exact(Regime::GivenUp, visited),
                End::Converged if !full => {}
                _ => return self.found(scratch, Regime::TwoHop, visited),
            }
            walk.ef = narrow;
            walk.budget = (self.count / WALK_COST).saturating_sub(visited);
        }
        let walked = walk.beam(scratch);
        visited += walked.evaluations;
        match walked.end {
            End::Converged if scratch.found.len() >= self.k => {}
            End::Bounded => {}
            _ => return self.exact(Regime::GivenUp, visited),
        }
        self.found(scratch, Regime::Beam, visited)
    }

    fn lists(&self, ivf: &Ivf, scratch: &mut Scratch) -> Answer {
        let probe = Probe {
            ivf,
            vectors: self.vectors,
            query: self.query,
            live: self.filter(),
            share: self.share(),
            k: self.k,
            probes: self.options.probes.unwrap_or(ivf.probes()),
        };
        let visited = probe.run(scratch);
        if scratch.found.len() < self.k {
            return self.exact(Regime::GivenUp, visited);
        }
        self.found(scratch, Regime::Lists, visited)
    }

    fn found(&self, scratch: &mut Scratch, regime: Regime, visited: u64) -> Answer {
        let mut top = self.top();
        scratch.found.drain().for_each(|key| top.offer_key(key));
        Answer {
            hits: top.into_sorted(),
            regime,
            visited,
        }
    }
}

/// `ef` for `k` rows where `ef` suffices for 10: a wider answer needs a wider beam.
fn effort(ef: usize, k: usize) -> usize {
    ef.max(ef.saturating_mul(k) / 10)
        .min(ef.saturating_add(k.saturating_mul(2)))
}
