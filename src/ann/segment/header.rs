//! The first bytes of an object.

use super::super::index::Shape;
use super::super::metric::Metric;
use super::super::recall::{MAX_POINTS, RecallPoint};
use super::{Checked, Damage, ensure};

/// Bytes of a header.
pub(super) const HEADER: usize = 240;
const MAGIC: [u8; 8] = *b"SGVECIDX";
const VERSION: u32 = 1;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Hnsw,
    Ivf,
}

/// Its fields; where they stand is in [`Header::encode`].
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Header {
    pub(super) kind: Kind,
    pub(super) shape: Shape,
    /// Of the builder: `m` and `ef_construction`, or the number of lists and whether they have codes.
    pub(super) params: [u32; 2],
    pub(super) entry: u32,
    /// Above the lowest.
    pub(super) layers: u32,
    /// Default `ef` or number of probes.
    pub(super) effort: u32,
    pub(super) scale: f64,
    pub(super) fragment: [u8; 32],
    pub(super) curve: Vec<RecallPoint>,
}

impl Header {
    pub(super) fn new(shape: Shape, fragment: [u8; 32], curve: &[RecallPoint]) -> Self {
        Self {
            kind: Kind::Hnsw,
            shape,
            params: [0; 2],
            entry: 0,
            layers: 0,
            effort: 0,
            scale: 0.0,
            fragment,
            curve: curve.to_vec(),
        }
    }

    /// The header of an object of `sections` sections and `length` bytes.
    pub(super) fn encode(&self, sections: u32, length: u64) -> Vec<u8> {
        let mut out = MAGIC.to_vec();
        let kind = match self.kind {
            Kind::Hnsw => 1,
            Kind::Ivf => 2,
        };
        let metric = match self.shape.metric {
            Metric::Cosine => 1,
            Metric::L2 => 2,
            Metric::Dot => 3,
        };
        let Shape {
            dimensions,
            rows,
            present,
            ..
        } = self.shape;
        let curve = &self.curve[..self.curve.len().min(MAX_POINTS)];
        for word in [VERSION, kind, metric, dimensions, rows, present]
            .into_iter()
            .chain(self.params)
            .chain([self.entry, self.layers, self.effort, curve.len() as u32])
        {
            out.extend_from_slice(&word.to_le_bytes());
        }
        out.extend_from_slice(&self.scale.to_le_bytes());
        out.extend_from_slice(&self.fragment);
        out.extend_from_slice(&sections.to_le_bytes());
        out.extend_from_slice(&[0; 4]);
        out.extend_from_slice(&length.to_le_bytes());
        for point in curve {
            out.extend_from_slice(&point.effort.to_le_bytes());
            out.extend_from_slice(&point.recall.to_le_bytes());
        }
        out.resize(HEADER, 0);
        out
    }

    /// The header, its number of sections and the length of its object.
    pub(super) fn decode(bytes: &[u8; HEADER]) -> Checked<(Self, u32, u64)> {
        let word = |at: usize| u32::from_le_bytes(std::array::from_fn(|i| bytes[at + i]));
        let long = |at: usize| u64::from_le_bytes(std::array::from_fn(|i| bytes[at + i]));
        ensure(
            bytes[..8] == MAGIC,
            "a vector segment",
            "another magic number",
        )?;
        ensure(word(8) == VERSION, "format version 1", word(8))?;
        let kind = match word(12) {
            1 => Kind::Hnsw,
            2 => Kind::Ivf,
            other => return Err(Damage("a known kind", other.to_string())),
        };
        let metric = match word(16) {
            1 => Metric::Cosine,
            2 => Metric::L2,
            3 => Metric::Dot,
            other => return Err(Damage("a known metric", other.to_string())),
        };
        let points = word(52) as usize;
        ensure(points <= MAX_POINTS, "at most 16 points of recall", points)?;
        let point = |i: usize| RecallPoint {
            effort: word(112 + 8 * i),
            recall: f32::from_bits(word(116 + 8 * i)),
        };
        let header = Self {
            kind,
            shape: Shape {
                metric,
                dimensions: word(20),
                rows: word(24),
                present: word(28),
            },
            params: [word(32), word(36)],
            entry: word(40),
            layers: word(44),
            effort: word(48),
            scale: f64::from_bits(long(56)),
            fragment: std::array::from_fn(|i| bytes[64 + i]),
            curve: (0..points).map(point).collect(),
        };
        let recalls = header.curve.iter().all(|p| (0.0..=1.0).contains(&p.recall));
        ensure(recalls, "recall from 0 to 1", "another number")?;
        Ok((header, word(96), long(104)))
    }
}
