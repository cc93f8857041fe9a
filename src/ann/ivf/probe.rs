//! Searching an inverted file.

use roaring::RoaringBitmap;

use super::super::lanes;
use super::super::metric::Query;
use super::super::scratch::Scratch;
use super::super::top::{Key, key, position};
use super::super::vectors::Vectors;
use super::Ivf;
use super::codes::{CodedQuery, Codes};

/// Up to this share the bitmap of live rows is copied for faster looks.
const COPY_SHARE: f64 = 0.125;
/// Rows per asked row that codes choose to be measured.
const OVERFETCH: usize = 4;

/// Share of the live rows of evenly filled lists that suffices: lists are of different lengths.
const ENOUGH: f64 = 0.5;
/// The power by which lists to scan grow with the rows among which the asked ones lie; measured.
const SPREAD: f64 = 0.6;

/// One search of one inverted file. The rows that it finds are left in the scratch.
#[derive(Clone, Copy)]
pub(in crate::ann) struct Probe<'a> {
    pub(in crate::ann) ivf: &'a Ivf,
    pub(in crate::ann) vectors: &'a Vectors,
    pub(in crate::ann) query: &'a Query,
    /// Rows that may be found; all without it.
    pub(in crate::ann) live: Option<&'a RoaringBitmap>,
    /// The share of them.
    pub(in crate::ann) share: f64,
    pub(in crate::ann) k: usize,
    /// Lists to scan, were all rows live and 10 asked for.
    pub(in crate::ann) probes: usize,
}

impl<'a> Probe<'a> {
    /// An unfiltered search of `probes` lists.
    pub(super) fn new(
        ivf: &'a Ivf,
        vectors: &'a Vectors,
        query: &'a Query,
        k: usize,
        probes: usize,
    ) -> Self {
        Self {
            ivf,
            vectors,
            query,
            live: None,
            share: 1.0,
            k,
            probes,
        }
    }

    /// Answers how many rows were measured, by their codes or exactly.
    pub(in crate::ann) fn run(self, scratch: &mut Scratch) -> u64 {
        scratch.begin(0);
        let query = self.ivf.frame.query(self.query);
        match self.live {
            None => pulp::Arch::new().dispatch(Run {
                probe: self,
                query: &query,
                scratch,
                live: |_: u32| true,
            }),
            // In dense bitmaps a look is cheaper than its share of a copy.
            Some(live) if self.share > COPY_SHARE => pulp::Arch::new().dispatch(Run {
                probe: self,
                query: &query,
                scratch,
                live: |row: u32| live.contains(row),
            }),
            Some(live) => {
                let mut bits = std::mem::take(&mut scratch.live);
                bits.fill(live, self.ivf.shape.rows);
                let measured = pulp::Arch::new().dispatch(Run {
                    probe: self,
                    query: &query,
                    scratch,
                    live: |row: u32| bits.contains(row),
                });
                scratch.live = bits;
                measured
            }
        }
    }

    /// The nearest live rows lie in more lists when dead ones lie between them.
    fn lists(&self) -> usize {
        let rows = self.k as f64 / 10.0 / self.share.max(1e-9);
        let wider = (self.probes as f64 * rows.max(1.0).powf(SPREAD)).ceil() as usize;
        wider.clamp(1, self.ivf.lists())
    }
}

impl Probe<'_> {
    /// Live rows that so many lists hold at least where live rows are spread evenly. Where the near lists
    /// hold fewer, live rows avoid the query.
    fn enough(&self, lists: usize) -> u64 {
        if self.live.is_none() {
            return 0;
        }
        let rows = f64::from(self.ivf.shape.present) / self.ivf.lists().max(1) as f64;
        (lists as f64 * rows * self.share * ENOUGH) as u64
    }
}

struct Run<'a, 's, L> {
    probe: Probe<'a>,
    query: &'s [f32],
    scratch: &'s mut Scratch,
    live: L,
}

impl<L: Fn(u32) -> bool> pulp::NullaryFnOnce for Run<'_, '_, L> {
    type Output = u64;

    #[inline(always)]
    fn call(self) -> u64 {
        let Self {
            probe,
            query,
            scratch,
            live,
        } = self;
        let ivf = probe.ivf;
        rank(ivf, query, &mut scratch.keys);
        let coded = ivf.codes.as_ref();
        let coded = coded.map(|codes| (codes, CodedQuery::new(probe.query, query, &ivf.frame)));
        let keep = match coded {
            Some(_) => probe.k.saturating_mul(OVERFETCH),
            None => probe.k,
        };
        let lists = probe.lists();
        let enough = probe.enough(lists);
        let near = (lists + 1).min(scratch.keys.len());
        scratch.keys.select_nth_unstable(near - 1);
        scratch.keys[..near].sort_unstable();
        let mut measured = 0;
        for at in 0..scratch.keys.len() {
            if at == lists && measured < enough {
                // The nearest live rows are anywhere.
                scratch.found.clear();
                return measured;
            }
            if at >= lists && scratch.found.len() >= probe.k {
                break;
            }
            if at == near {
                scratch.keys[near..].sort_unstable();
            }
            let list = position(scratch.keys[at]);
            measured += match &coded {
                Some((codes, query)) => scan_codes(probe, codes, query, list, keep, scratch, &live),
                None => scan(probe, list, keep, scratch, &live),
            };
        }
        if coded.is_some() {
            rescore(probe, scratch);
        }
        measured
    }
}

/// The `probes` lists nearest to `query`.
pub(super) fn nearest_lists(ivf: &Ivf, query: &Query, probes: usize) -> Vec<u32> {
    let framed = ivf.frame.query(query);
    let mut keys = Vec::new();
    pulp::Arch::new().dispatch(|| rank(ivf, &framed, &mut keys));
    let near = probes.clamp(1, keys.len());
    keys.select_nth_unstable(near - 1);
    keys[..near].iter().map(|key| position(*key)).collect()
}

/// All lists with the distance of their centroids, to `keys`.
#[inline(always)]
fn rank(ivf: &Ivf, query: &[f32], keys: &mut Vec<Key>) {
    keys.clear();
    let centroids = ivf.centroids.chunks_exact(query.len()).zip(&ivf.halves);
    for (list, (centroid, half)) in centroids.enumerate() {
        let distance = half - lanes::dot(query, centroid);
        // What is not a number comes last.
        let distance = if distance.is_nan() {
            f32::INFINITY
        } else {
            distance + 0.0
        };
        keys.push(key(distance, list as u32));
    }
}

/// The indexes into `rows` of live ones, to `batch`; without a branch that depends on them.
#[inline(always)]
fn select(rows: &[u32], first: usize, batch: &mut Vec<u32>, live: &impl Fn(u32) -> bool) {
    batch.clear();
    batch.resize(rows.len(), 0);
    let mut count = 0;
    for (index, row) in rows.iter().enumerate() {
        batch[count] = (first + index) as u32;
        count += usize::from(live(*row));
    }
    batch.truncate(count);
}

/// Measures the live rows of a list.
#[inline(always)]
fn scan(
    probe: Probe<'_>,
    list: u32,
    keep: usize,
    scratch: &mut Scratch,
    live: &impl Fn(u32) -> bool,
) -> u64 {
    let (batch, found) = (&mut scratch.batch, &mut scratch.found);
    let range = probe.ivf.list(list);
    select(&probe.ivf.rows[range.clone()], range.start, batch, live);
    batch
        .iter_mut()
        .for_each(|at| *at = probe.ivf.rows[*at as usize]);
    probe
        .vectors
        .measure_all(probe.query, batch, |key| keep_nearest(found, keep, key));
    batch.len() as u64
}

/// Scores the live rows of a list by their codes.
#[inline(always)]
fn scan_codes(
    probe: Probe<'_>,
    codes: &Codes,
    query: &CodedQuery,
    list: u32,
    keep: usize,
    scratch: &mut Scratch,
    live: &impl Fn(u32) -> bool,
) -> u64 {
    let (batch, found) = (&mut scratch.batch, &mut scratch.found);
    let range = probe.ivf.list(list);
    select(&probe.ivf.rows[range.clone()], range.start, batch, live);
    for at in batch.iter() {
        let row = probe.ivf.rows[*at as usize];
        let score = query.score(codes, *at as usize, probe.vectors.square(row));
        keep_nearest(found, keep, key(score, row));
    }
    batch.len() as u64
}

/// Replaces scores by distances, of the nearest `k` rows.
#[inline(always)]
fn rescore(probe: Probe<'_>, scratch: &mut Scratch) {
    let (batch, found) = (&mut scratch.batch, &mut scratch.found);
    batch.clear();
    batch.extend(found.drain().map(position));
    probe
        .vectors
        .measure_all(probe.query, batch, |key| keep_nearest(found, probe.k, key));
}

#[inline(always)]
fn keep_nearest(found: &mut std::collections::BinaryHeap<Key>, keep: usize, key: Key) {
    if found.len() < keep {
        found.push(key);
    } else if let Some(mut worst) = found.peek_mut()
        && key < *worst
    {
        *worst = key;
    }
}
