//! Indexes and searches against brute force.

mod answers;
mod damage;
mod recall;

use roaring::RoaringBitmap;

use super::*;

const METRICS: [Metric; 3] = [Metric::Cosine, Metric::L2, Metric::Dot];

/// SplitMix64 (Steele, Lea and Flood, OOPSLA 2014).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    fn below(&mut self, n: usize) -> usize {
        (self.next() % n as u64) as usize
    }

    /// 0 to 1.
    fn share(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// About normal.
    fn normal(&mut self) -> f32 {
        ((0..12).map(|_| self.share()).sum::<f64>() - 6.0) as f32
    }
}

/// Rows around centres, and queries like them.
struct Clusters {
    vectors: Vectors,
    queries: Vec<Query>,
}

fn clusters(metric: Metric, rows: usize, dimensions: usize, centres: usize, seed: u64) -> Clusters {
    let mut random = Random(seed);
    let centre: Vec<f32> = (0..centres * dimensions).map(|_| random.normal()).collect();
    let mut next = || -> Vec<f32> {
        let at = random.below(centres) * dimensions;
        let near = |x: &f32| x + 0.5 * random.normal();
        centre[at..at + dimensions].iter().map(near).collect()
    };
    let mut vectors = Vectors::with_capacity(metric, dimensions, rows).unwrap();
    (0..rows).for_each(|_| vectors.push(Some(&next())));
    let queries = (0..100)
        .filter_map(|_| Query::new(metric, next()))
        .collect();
    Clusters { vectors, queries }
}

/// Every live present row by (distance, position).
fn brute(vectors: &Vectors, query: &Query, k: usize, live: &RoaringBitmap) -> Vec<(f32, u32)> {
    let measured = |row| Some((query.distance(vectors.row(row))?, row));
    let rows = live.iter().filter(|row| vectors.present().contains(*row));
    let mut hits: Vec<_> = rows.filter_map(measured).collect();
    hits.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
    hits.truncate(k);
    hits
}

fn hnsw(vectors: &Vectors) -> Option<Index> {
    let graph = build_hnsw(vectors, GraphParams::default(), &|| false, &|_, _| ());
    graph.unwrap().map(Index::Hnsw)
}

fn ivf(vectors: &Vectors, codes: bool) -> Option<Index> {
    let params = IvfParams { lists: None, codes };
    let ivf = build_ivf(vectors, params, &|| false, &|_, _| ());
    ivf.unwrap().map(Index::Ivf)
}

/// Options that use an index wherever they can.
fn eager() -> SearchOptions {
    SearchOptions {
        thresholds: Thresholds {
            exact_rows: 0,
            exact_live: 0,
            exact_share: 0.0,
            ..Thresholds::default()
        },
        ..SearchOptions::default()
    }
}

fn random_rows(random: &mut Random, rows: u32, share: f64) -> RoaringBitmap {
    (0..rows).filter(|_| random.share() < share).collect()
}
