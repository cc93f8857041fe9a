//! The object of an index on the store.
//!
//! Little-endian: a header of 240 bytes, a table of the sections, the CRC32C of both, and the sections,
//! each at a multiple of 64 bytes with its own CRC32C; zeros between them. An object names the digest of
//! its fragment, so that one of another fragment is refused. [`open`] checks every length, offset and
//! row before it is used: whatever the bytes are, the answer is an index whose searches stay in bounds,
//! or an error.

mod check;
mod header;
mod sections;

use bytes::Bytes;

use super::frame::Frame;
use super::graph::{Adjacency, Graph, GraphParams, Layer};
use super::index::{Index, Shape};
use super::ivf::{Codes, Ivf, halves};
use super::metric::Metric;
use crate::{Error, Result};
use check::{check_adjacency, check_ascending, check_distinct, check_finite};
use header::{Header, Kind};
use sections::{Reader, Writer};

/// What a manifest says of the fragment that an index belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Expected {
    /// Rows of the fragment.
    pub rows: u32,
    /// Components of a vector.
    pub dimensions: u32,
    /// The metric.
    pub metric: Metric,
    /// The digest of the fragment.
    pub fragment: [u8; 32],
}

/// The object of `index` over the fragment with this digest.
pub fn encode(index: &Index, fragment: &[u8; 32]) -> Vec<u8> {
    let mut writer = Writer::default();
    let header = match index {
        Index::Hnsw(graph) => {
            writer.words(&graph.base.offsets);
            writer.words(&graph.base.targets);
            for layer in &graph.layers {
                writer.words(&layer.rows);
                writer.words(&layer.edges.offsets);
                writer.words(&layer.edges.targets);
            }
            Header {
                kind: Kind::Hnsw,
                params: [graph.params.m, graph.params.ef_construction],
                entry: graph.entry,
                layers: graph.layers.len() as u32,
                effort: graph.ef,
                scale: 0.0,
                ..Header::new(graph.shape, *fragment, &graph.curve)
            }
        }
        Index::Ivf(ivf) => {
            writer.floats(&ivf.centroids);
            writer.words(&ivf.offsets);
            writer.words(&ivf.rows);
            if let Some(codes) = &ivf.codes {
                writer.bytes(&codes.data);
                writer.floats(&codes.scales);
            }
            Header {
                kind: Kind::Ivf,
                params: [ivf.lists() as u32, u32::from(ivf.codes.is_some())],
                effort: ivf.probes,
                scale: ivf.frame.scale(),
                ..Header::new(ivf.shape, *fragment, &ivf.curve)
            }
        }
    };
    writer.finish(&header)
}

/// The index in an object with the key `key`.
///
/// Fails with [`Error::Corrupt`] if the bytes are not an index over the expected fragment.
pub fn open(bytes: Bytes, key: &str, expected: Expected) -> Result<Index> {
    decode(bytes, expected)
        .map_err(|Damage(expected, found)| Error::corrupt("vector segment", key, expected, found))
}

/// What was expected and what was found instead.
struct Damage(&'static str, String);

type Checked<T> = std::result::Result<T, Damage>;

/// Fails unless `holds`.
fn ensure(holds: bool, expected: &'static str, found: impl ToString) -> Checked<()> {
    if holds {
        Ok(())
    } else {
        Err(Damage(expected, found.to_string()))
    }
}

fn decode(bytes: Bytes, expected: Expected) -> Checked<Index> {
    let (header, mut sections) = Reader::open(bytes)?;
    let shape = header.shape;
    ensure(
        header.fragment == expected.fragment,
        "the digest of its fragment",
        "another digest",
    )?;
    ensure(
        shape.rows == expected.rows,
        "the rows of its fragment",
        shape.rows,
    )?;
    ensure(
        shape.dimensions == expected.dimensions,
        "the width of its vectors",
        shape.dimensions,
    )?;
    ensure(
        shape.metric == expected.metric,
        "the metric of its vectors",
        shape.metric.as_str(),
    )?;
    ensure(
        shape.present <= shape.rows,
        "no more rows than the fragment has",
        shape.present,
    )?;
    let index = match header.kind {
        Kind::Hnsw => Index::Hnsw(graph(&header, &mut sections)?),
        Kind::Ivf => Index::Ivf(ivf(&header, &mut sections)?),
    };
    sections.end()?;
    Ok(index)
}

fn graph(header: &Header, sections: &mut Reader) -> Checked<Graph> {
    let Shape { rows, .. } = header.shape;
    let base = adjacency(sections, rows as usize, rows)?;
    let mut layers = Vec::new();
    for _ in 0..header.layers {
        let members = sections.words()?;
        check_ascending(&members, rows)?;
        let count = members.len() as u32;
        layers.push(Layer {
            edges: adjacency(sections, members.len(), count)?,
            rows: members,
        });
    }
    ensure(header.entry < rows, "an entry among the rows", header.entry)?;
    Ok(Graph {
        shape: header.shape,
        params: GraphParams {
            m: header.params[0],
            ef_construction: header.params[1],
        },
        entry: header.entry,
        base,
        layers,
        ef: header.effort,
        curve: header.curve.clone(),
    })
}

fn adjacency(sections: &mut Reader, nodes: usize, targets: u32) -> Checked<Adjacency> {
    let adjacency = Adjacency {
        offsets: sections.words()?,
        targets: sections.words()?,
    };
    check_adjacency(&adjacency.offsets, &adjacency.targets, nodes, targets)?;
    Ok(adjacency)
}

fn ivf(header: &Header, sections: &mut Reader) -> Checked<Ivf> {
    let Shape {
        metric,
        dimensions,
        rows,
        present,
    } = header.shape;
    let frame = Frame::stored(metric, dimensions as usize, header.scale);
    let frame = frame.ok_or_else(|| Damage("a finite scale", header.scale.to_string()))?;
    let [lists, coded] = header.params.map(|param| param as usize);
    let centroids = sections.floats()?;
    check_finite(&centroids)?;
    let wanted = lists.checked_mul(frame.width());
    ensure(
        lists > 0 && wanted == Some(centroids.len()),
        "centroids of every list",
        lists,
    )?;
    let (offsets, positions) = (sections.words()?, sections.words()?);
    check_adjacency(&offsets, &positions, lists, rows)?;
    check_distinct(&positions, rows)?;
    ensure(
        positions.len() == present as usize,
        "every present row",
        positions.len(),
    )?;
    let codes = match coded {
        0 => None,
        _ => Some(Codes {
            data: sections.bytes()?,
            scales: sections.floats()?,
        }),
    };
    if let Some(codes) = &codes {
        check_finite(&codes.scales)?;
        let wanted = positions.len().checked_mul(dimensions as usize);
        let whole = wanted == Some(codes.data.len()) && codes.scales.len() == positions.len();
        ensure(whole, "codes of every row", codes.data.len())?;
    }
    Ok(Ivf {
        shape: header.shape,
        frame,
        halves: halves(&centroids, frame.width()),
        centroids,
        offsets,
        rows: positions,
        codes,
        probes: header.effort,
        curve: header.curve.clone(),
    })
}
