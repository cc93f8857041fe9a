//! Builds indexes over the columns of fragments.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::array::AsArray;
use arrow::datatypes::DataType;
use futures::TryStreamExt;

use super::apart::apart;
use super::declared::index_option;
use super::fragment::Rows;
use super::text::TextColumn;
use super::vector::VectorColumn;
use crate::ann::{self, Metric};
use crate::env::Env;
use crate::graph::schema::{GraphType, Member};
use crate::graph::topology::encode_topology;
use crate::graph::value::{Scalar, ValueType};
use crate::store::Stager;
use crate::table::manifest::{Entry, Fragment, Segment, SegmentKind};
use crate::table::read::TableReader;
use crate::table::reservation::Reservation;
use crate::table::schema::{id, parse_type};
use crate::table::upload::Upload;
use crate::text::{Analyser, SegmentBuilder};
use crate::{Error, Result, limits};

/// Bytes that the builder of a graph holds for a row beside its vector, measured.
const GRAPH_ROW_BYTES: usize = 2_600;
/// Bytes that the builder of lists holds for a row beside its vector.
const LIST_ROW_BYTES: usize = 64;

/// An index to build.
#[derive(Debug, Clone)]
pub enum Index {
    /// Over vectors.
    Vector {
        /// The column.
        column: VectorColumn,
        /// What kind.
        kind: VectorKind,
    },
    /// Over texts.
    Text(TextColumn),
    /// Over the edges of a type, by source.
    Topology,
}

/// A kind of index over vectors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum VectorKind {
    /// A navigable small-world graph: more queries a second, above all for a high recall; slow to build.
    Hnsw,
    /// Inverted lists: built in seconds.
    Ivf,
}

impl Index {
    /// The indexes of a type that are objects: those that it declares over vectors and over texts, and of
    /// an edge type its topology. Indexes on other properties need none, since pages of fragments have
    /// bounds.
    ///
    /// # Errors
    /// `InvalidArgument` for an option that no version of the schema language takes.
    pub fn declared(of: &GraphType) -> Result<Vec<Self>> {
        let mut declared: Vec<Self> = Vec::new();
        declared.extend(of.edge.is_some().then_some(Self::Topology));
        for member in of.indexes.iter().flat_map(|index| &index.members) {
            let Member::Property(property) = member else {
                continue;
            };
            let known = declared.iter().any(|index| index.column() == *property);
            let value_type = of.property_by_id(*property).map(|p| &p.value_type);
            declared.extend(match value_type {
                _ if known => None,
                Some(ValueType::Vector(_)) => Some(Self::Vector {
                    column: VectorColumn::of_property(of, *property)?,
                    kind: match index_option(of, *property, "kind") {
                        Some("hnsw") => VectorKind::Hnsw,
                        _ => VectorKind::Ivf,
                    },
                }),
                Some(ValueType::Scalar(Scalar::String)) => TextColumn::of_property(of, *property)
                    .map(Self::Text)
                    .map(Some)?,
                _ => None,
            });
        }
        Ok(declared)
    }

    /// Property id of the column.
    pub fn column(&self) -> u64 {
        match self {
            Self::Vector { column, .. } => column.column,
            Self::Text(column) => column.column,
            Self::Topology => id::SRC_RID,
        }
    }

    /// Metric, analyser or direction.
    pub fn of(&self) -> &str {
        match self {
            Self::Vector { column, .. } => column.metric.as_str(),
            Self::Text(column) => column.analyser.name(),
            Self::Topology => "out",
        }
    }

    /// What built a segment; `None` for one of a column that has gone, or of a kind that is not known.
    fn like(reader: &TableReader, segment: &Segment) -> Option<Self> {
        let schema = reader.table().current_schema()?;
        let column = schema.columns.iter().find(|c| c.id == segment.column)?;
        let kind = match segment.kind {
            SegmentKind::Topology => return Some(Self::Topology),
            SegmentKind::Hnsw => VectorKind::Hnsw,
            SegmentKind::Ivf => VectorKind::Ivf,
            SegmentKind::Text => {
                return Some(Self::Text(TextColumn {
                    column: segment.column,
                    analyser: Analyser::parse(&segment.of).ok()?,
                }));
            }
        };
        let DataType::FixedSizeList(_, width) = parse_type(&column.data_type)? else {
            return None;
        };
        let column = VectorColumn {
            column: segment.column,
            dimensions: usize::try_from(width).ok()?,
            metric: Metric::parse(&segment.of)?,
        };
        Some(Self::Vector { column, kind })
    }

    /// The kind of its segments.
    pub fn kind(&self) -> SegmentKind {
        match self {
            Self::Vector {
                kind: VectorKind::Hnsw,
                ..
            } => SegmentKind::Hnsw,
            Self::Vector {
                kind: VectorKind::Ivf,
                ..
            } => SegmentKind::Ivf,
            Self::Text(_) => SegmentKind::Text,
            Self::Topology => SegmentKind::Topology,
        }
    }
}

/// Builds an index over the fragment of an entry and stages it. `None` for an entry without a fragment,
/// for one that is read as fast row by row (fewer than `least_rows` edges, or rows with a vector), and for
/// one whose index would miss rows too often.
///
/// # Errors
/// `Corrupt` or `Parquet` for a fragment that is not what its entry says, those of the budget, and those
/// of the store. Dropping the future stops the work.
pub async fn build(
    reader: &TableReader,
    entry: &Entry,
    index: &Index,
    least_rows: u64,
    env: &Env,
    stage: &mut Stager,
) -> Result<Option<Segment>> {
    // The fragment may have been staged just now, and a large one is read by its stored checksums.
    stage.flush(reader.store()).await?;
    let (Some(part), Some(fragment)) = (Rows::open(reader, entry).await?, &entry.fragment) else {
        return Ok(None);
    };
    let digest = *fragment.file.object.sha256.as_bytes();
    let (bytes, rows) = match index {
        Index::Text(column) => {
            let bytes = postings(&part, column, digest).await?;
            (bytes, fragment.rows)
        }
        Index::Vector { column, kind } => {
            match vectors(&part, column, *kind, least_rows, digest, env).await? {
                Some(built) => built,
                None => return Ok(None),
            }
        }
        Index::Topology if fragment.rows < least_rows => return Ok(None),
        Index::Topology => (
            encode_topology(reader, entry, fragment).await?,
            fragment.rows,
        ),
    };
    let mut upload = Upload::new(Arc::clone(reader.store()), stage.reserve("idx")?);
    upload.push(&bytes).await?;
    Ok(Some(Segment {
        column: index.column(),
        kind: index.kind(),
        of: index.of().to_owned(),
        rows,
        file: upload.finish(0, stage).await?,
    }))
}

/// Gives a merged fragment the indexes that any of the fragments had which it was made of. One that cannot
/// be built is left away, with a warning: it would only make searches faster.
///
/// # Errors
/// Those of the store.
pub async fn rebuild(
    reader: &TableReader,
    merged: &[Entry],
    fragment: &mut Fragment,
    env: &Env,
    stage: &mut Stager,
) -> Result<()> {
    let mut wanted: BTreeMap<u64, &Segment> = BTreeMap::new();
    for old in merged.iter().filter_map(|e| e.fragment.as_ref()) {
        wanted.extend(old.segments.iter().map(|s| (s.column, s)));
    }
    for (column, segment) in wanted {
        let Some(index) = Index::like(reader, segment) else {
            continue;
        };
        let entry = Entry {
            stamp: 0,
            id: 0,
            fragment: Some(fragment.clone()),
            mask: None,
            rejects: None,
        };
        match build(reader, &entry, &index, 1, env, stage).await {
            Ok(built) => built.into_iter().for_each(|s| fragment.set_segment(s)),
            Err(error @ Error::Storage { .. }) => return Err(error),
            Err(error) => {
                let key = &fragment.file.object.key;
                tracing::warn!(column, key, %error, "an index could not be built again");
            }
        }
    }
    Ok(())
}

async fn vectors(
    part: &Rows<'_>,
    column: &VectorColumn,
    kind: VectorKind,
    least_rows: u64,
    digest: [u8; 32],
    env: &Env,
) -> Result<Option<(Vec<u8>, u64)>> {
    if u64::from(part.open.rows) < least_rows {
        return Ok(None);
    }
    let vectors = part.vectors(column).await?;
    let present = vectors.present().len();
    if present < least_rows {
        return Ok(None);
    }
    let row_bytes = match kind {
        VectorKind::Hnsw => GRAPH_ROW_BYTES + column.dimensions * size_of::<f32>(),
        VectorKind::Ivf => LIST_ROW_BYTES + column.dimensions * size_of::<f32>(),
    };
    let mut memory = Reservation::new(part.reader.budget());
    memory.resize(row_bytes.saturating_mul(usize::try_from(present).unwrap_or(usize::MAX)))?;
    let progress = Arc::clone(&env.progress);
    let work = move |cancelled: &dyn Fn() -> bool| {
        let report = |done, total| progress.report("build index", done, total);
        let built = match kind {
            VectorKind::Hnsw => {
                let params = ann::GraphParams::default();
                let graph = ann::build_hnsw(&vectors, params, cancelled, &report)?;
                graph.map(ann::Index::Hnsw)
            }
            VectorKind::Ivf => {
                let params = ann::IvfParams::default();
                let lists = ann::build_ivf(&vectors, params, cancelled, &report)?;
                lists.map(ann::Index::Ivf)
            }
        };
        Ok(built.map(|index| ann::encode(&index, &digest)))
    };
    let built = apart("build of an index", work).await?;
    Ok(built.map(|bytes| (bytes, present)))
}

/// The postings of a column of texts, as the bytes of a segment.
pub(super) async fn postings(
    part: &Rows<'_>,
    column: &TextColumn,
    digest: [u8; 32],
) -> Result<Vec<u8>> {
    let mut memory = Reservation::new(part.reader.budget());
    let mut builder = SegmentBuilder::new(&column.analyser, limits::TEXT_BUILD_BYTES)?;
    let mut batches = part.column(column.column, None)?;
    while let Some(batch) = batches.try_next().await? {
        let texts = batch.column(0).as_string_opt::<i32>().ok_or_else(|| {
            let found = batch.column(0).data_type();
            Error::corrupt("fragment", part.open.file.key(), "texts", found)
        })?;
        for text in texts {
            builder.add(text)?;
        }
        memory.resize(builder.memory())?;
        tokio::task::yield_now().await;
    }
    builder.finish(digest)
}
