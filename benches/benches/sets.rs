//! Data sets of vectors: a seeded mixture, and word vectors from a file; and which of their rows are live.

use std::path::Path;

use roaring::RoaringBitmap;
use stratagraph::ann::{Metric, Query, Vectors, top_k_batch};

/// Rows that are indexed.
pub const ROWS: usize = 100_000;
/// Neighbours that are looked for.
pub const K: usize = 10;
const QUERIES: usize = 1000;
const CLUSTERS: usize = 1000;
/// Dimensions in which the clusters lie.
const LATENT: usize = 48;
/// How wide a cluster is beside the distances of their centres.
const SPREAD: f32 = 0.6;
/// Of a component; no row lies exactly in the latent space.
const NOISE: f32 = 0.05;
const SEED: u64 = 7;

/// Vectors, queries, and the rows that they must find.
pub struct Set {
    pub name: &'static str,
    pub vectors: Vectors,
    pub queries: Vec<Query>,
    pub truth: Vec<Hits>,
}

/// (distance, position) of rows, nearest first.
pub type Hits = Vec<(f32, u32)>;

impl Set {
    /// `raw` are the rows and, after them, the queries.
    fn new(name: &'static str, dimensions: usize, raw: &[f32]) -> Self {
        let (rows, queries) = raw.split_at(ROWS * dimensions);
        let mut vectors = Vectors::with_capacity(Metric::Cosine, dimensions, ROWS).unwrap();
        for row in rows.chunks_exact(dimensions) {
            vectors.push(Some(row));
        }
        let query = |row: &[f32]| Query::new(Metric::Cosine, row.to_vec()).unwrap();
        let queries: Vec<Query> = queries.chunks_exact(dimensions).map(query).collect();
        let truth = top_k_batch(&vectors, &queries, K, vectors.present());
        Self {
            name,
            vectors,
            queries,
            truth,
        }
    }

    /// The mixture of 384 dimensions, which is also written to `file` for the peers.
    pub fn clustered(file: &Path) -> Self {
        let raw = mixture(384);
        let bytes: Vec<u8> = raw.iter().flat_map(|x| x.to_le_bytes()).collect();
        std::fs::write(file, bytes).unwrap();
        Self::new("clustered", 384, &raw)
    }

    /// Word vectors of 50 dimensions that `vectors.py` has written to `file`.
    pub fn glove(file: &Path) -> Option<Self> {
        let bytes = std::fs::read(file).ok()?;
        let (floats, _) = bytes.as_chunks::<4>();
        let raw: Vec<f32> = floats.iter().map(|x| f32::from_le_bytes(*x)).collect();
        Some(Self::new("glove", 50, &raw))
    }

    /// The `keep` rows of `sample` that are farthest from the query.
    pub fn farthest(&self, query: &Query, sample: &RoaringBitmap, keep: usize) -> RoaringBitmap {
        let far = |row: u32| (query.distance(self.vectors.row(row)).unwrap(), row);
        let mut rows: Vec<(f32, u32)> = sample.iter().map(far).collect();
        if keep < rows.len() {
            rows.select_nth_unstable_by(keep, |a, b| b.0.total_cmp(&a.0));
        }
        rows.truncate(keep);
        rows.into_iter().map(|(_, row)| row).collect()
    }
}

/// Whether `row` is among `permille` of all rows; every `salt` draws anew. `vectors.py` draws the same.
fn drawn(row: u32, salt: u64, permille: u64) -> bool {
    mix(u64::from(row) ^ (salt << 32)) % 1000 < permille
}

/// The rows that [`drawn`] answers.
pub fn draw(salt: u64, permille: u64) -> RoaringBitmap {
    let rows = 0..ROWS as u32;
    rows.filter(|row| drawn(*row, salt, permille)).collect()
}

fn mixture(dimensions: usize) -> Vec<f32> {
    let mut random = Random(SEED);
    let centres: Vec<f32> = (0..CLUSTERS * LATENT).map(|_| random.normal()).collect();
    let scale = (LATENT as f32).sqrt();
    let map = (0..LATENT * dimensions).map(|_| random.normal() / scale);
    let map: Vec<f32> = map.collect();
    let mut raw = vec![0.0; (ROWS + QUERIES) * dimensions];
    for row in raw.chunks_exact_mut(dimensions) {
        let cluster = (random.next() % CLUSTERS as u64) as usize;
        for latent in 0..LATENT {
            let at = centres[cluster * LATENT + latent] + SPREAD * random.normal();
            for (x, m) in row.iter_mut().zip(&map[latent * dimensions..]) {
                *x += at * m;
            }
        }
        row.iter_mut().for_each(|x| *x += NOISE * random.normal());
        let norm = row.iter().map(|x| x * x).sum::<f32>().sqrt();
        row.iter_mut().for_each(|x| *x /= norm);
    }
    raw
}

/// Steele, Lea and Flood, "Fast splittable pseudorandom number generators", OOPSLA 2014.
struct Random(u64);

const GAMMA: u64 = 0x9E37_79B9_7F4A_7C15;

fn mix(z: u64) -> u64 {
    let z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(GAMMA);
        mix(self.0)
    }

    fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }

    fn normal(&mut self) -> f32 {
        let (a, b) = (self.unit().max(f64::MIN_POSITIVE), self.unit());
        ((-2.0 * a.ln()).sqrt() * (std::f64::consts::TAU * b).cos()) as f32
    }
}
