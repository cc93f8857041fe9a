//! What a version manifest says about one table.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::bitmap::DeadRows;
use crate::digest::Digest;
use crate::store::{DataFile, ObjRef, PageEntry, PageTree, Stager, Store};
use crate::{Result, limits};

/// The columns a table has besides its properties, and its sort order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Layout {
    /// `_row_id, _source_id, _model_id, vector, _content_hash`, by the UTF-8 bytes of `_row_id`.
    Embedding,
    /// `_rid, id`, by the UTF-8 bytes of `id`.
    Node,
    /// `_rid, id, src, dst, _src_rid, _dst_rid`, by (`_src_rid`, `_dst_rid`, `id`).
    Edge,
    /// `_row_id, neighbor_id, similarity, rank`, by the UTF-8 bytes of `_row_id`, then by rank.
    Neighbors,
}

/// A column of a table.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Column {
    /// Property id: the column's identity, kept by a rename and written as Parquet field id.
    pub id: u64,
    /// Its name.
    pub name: String,
    /// Its type, as [`super::schema`] spells it.
    pub data_type: String,
    /// Whether it may hold NULL.
    pub nullable: bool,
}

/// The columns of the fragments that were written under one schema id.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SchemaVersion {
    /// Schema id.
    pub id: u64,
    /// Columns in file order.
    pub columns: Vec<Column>,
}

/// Bounds of the sort key of a fragment; bytes beyond [`KeyRange::CUT`] are cut away.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KeyRange {
    /// No key is smaller.
    pub min: String,
    /// Every key is smaller than this or starts with it.
    pub max: String,
}

impl KeyRange {
    /// Bytes of a bound.
    pub const CUT: usize = 64;

    /// The range of a first and a last key.
    pub fn new(first: &str, last: &str) -> Self {
        Self {
            min: cut(first).to_owned(),
            max: cut(last).to_owned(),
        }
    }

    /// Whether a key can lie in the range.
    pub fn may_contain(&self, key: &str) -> bool {
        key >= self.min.as_str() && (key <= self.max.as_str() || key.starts_with(&self.max))
    }
}

fn cut(key: &str) -> &str {
    let mut end = key.len().min(KeyRange::CUT);
    while !key.is_char_boundary(end) {
        end -= 1;
    }
    &key[..end]
}

/// Ids that moved because a counter had moved at commit: stored ids >= `base` mean id + `shift`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RidShift {
    /// First shifted id.
    pub base: u64,
    /// Distance.
    pub shift: u64,
}

/// A Parquet fragment of a table.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Fragment {
    /// The file.
    pub file: DataFile,
    /// Physical rows.
    pub rows: u64,
    /// Range of `_row_id` or `id`.
    pub keys: KeyRange,
    /// Schema id of the file.
    pub schema: u64,
    /// Row-id shift by type id; empty for embedding tables and after a compaction.
    #[serde(skip_serializing_if = "BTreeMap::is_empty", default)]
    pub shift: BTreeMap<u64, RidShift>,
    /// Dead positions.
    #[serde(skip_serializing_if = "no_dead_rows", default)]
    pub dead: DeadRows,
    /// Indexes over its columns, one a column; a column without one is read row by row.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub segments: Vec<Segment>,
}

/// What answers a search of a column of a fragment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SegmentKind {
    /// A navigable small-world graph over the vectors of a column.
    Hnsw,
    /// Inverted lists over the vectors of a column.
    Ivf,
    /// Postings of the terms of a column.
    Text,
    /// Adjacency lists of the edges by source, of the column of the source's row id.
    Topology,
}

impl SegmentKind {
    /// Its stable name.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Hnsw => "hnsw",
            Self::Ivf => "ivf",
            Self::Text => "text",
            Self::Topology => "topology",
        }
    }
}

/// An index over one column of a fragment. It changes how fast a search is, never its answer, and is no
/// part of an identity.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Segment {
    /// Property id of the column.
    pub column: u64,
    /// What kind of index.
    pub kind: SegmentKind,
    /// Metric of a vector index, analyser of a text index.
    pub of: String,
    /// Rows that the index covers: those that have a value.
    pub rows: u64,
    /// The object.
    pub file: DataFile,
}

impl Fragment {
    /// The index over a column, if it has one for this metric or analyser.
    pub fn segment(&self, column: u64, of: &str) -> Option<&Segment> {
        let mut own = self.segments.iter();
        own.find(|s| s.column == column && s.of == of)
    }

    /// Puts an index in the place of the one that its column had.
    pub fn set_segment(&mut self, segment: Segment) {
        self.segments.retain(|s| s.column != segment.column);
        self.segments.push(segment);
        self.segments.sort_by_key(|s| s.column);
    }
}

fn is_false(flag: &bool) -> bool {
    !flag
}

fn no_dead_rows(dead: &DeadRows) -> bool {
    dead.rows == 0
}

/// A sorted Parquet object of a version: mask keys or reject-ledger changes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DeltaObject {
    /// The object.
    pub object: ObjRef,
    /// Its entries.
    pub entries: u64,
}

/// What one version added to a table; a mask-only version has no fragment.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Entry {
    /// The version whose content the fragment holds.
    pub stamp: u64,
    /// Number of the entry, unique in the table.
    pub id: u64,
    /// The fragment.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fragment: Option<Fragment>,
    /// Logical mask of the version: keys with the horizon through which they are dead.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mask: Option<DeltaObject>,
    /// Changes of the reject ledger.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rejects: Option<DeltaObject>,
}

impl Entry {
    /// The entry's key in the tree: stamp order, then number.
    pub fn key(stamp: u64, id: u64) -> String {
        format!("{stamp:016x}.{id:016x}")
    }

    /// Objects that the entry names.
    pub fn objects(&self) -> impl Iterator<Item = &ObjRef> {
        let fragment = self.fragment.iter();
        let files = fragment.flat_map(|f| {
            let segments = f.segments.iter().flat_map(|s| s.file.objects());
            let dead = f.dead.chunks.iter().map(|(_, object)| object);
            f.file.objects().chain(dead).chain(segments)
        });
        files.chain(self.mask.iter().chain(&self.rejects).map(|d| &d.object))
    }
}

impl PageEntry for Entry {
    const ARTIFACT: &'static str = "manifest page";

    fn settle(page: &mut [(String, Self)], stage: &mut Stager) -> Result<()> {
        loop {
            let mut dead: Vec<&mut DeadRows> = page
                .iter_mut()
                .filter_map(|(_, e)| e.fragment.as_mut().map(|f| &mut f.dead))
                .collect();
            let inline: usize = dead.iter().map(|d| d.inline_bytes()).sum();
            if inline <= limits::PAGE_BITMAP_BYTES {
                return Ok(());
            }
            if let Some(largest) = dead.iter_mut().max_by_key(|d| d.inline_bytes()) {
                largest.move_out(stage)?;
            }
        }
    }
}

/// An order-independent fold of (key, content hash) over the source rows of a version.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SourceFold {
    /// Sums of the rows' hashes, as [`super::fold`] makes them.
    pub sum: Digest,
    /// Rows folded.
    pub rows: u64,
    /// Whether the keys were unique.
    pub unique: bool,
}

/// Type ids of the nodes that an edge type joins.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Endpoints {
    /// Type of `src`.
    pub src: u64,
    /// Type of `dst`.
    pub dst: u64,
}

/// One table of one version.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TableManifest {
    /// Type id.
    pub type_id: u64,
    /// Minted anew when a type is dropped and added again.
    pub incarnation_id: String,
    /// Columns and order.
    pub layout: Layout,
    /// The node types of an edge table's ends; row ids of `_src_rid` and `_dst_rid` count in them.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub endpoints: Option<Endpoints>,
    /// All schemas that fragments were written under, oldest first; the last one is current.
    pub schemas: Vec<SchemaVersion>,
    /// Entries in stamp order.
    pub entries: PageTree<Entry>,
    /// Next entry number.
    pub next_entry: u64,
    /// Live rows.
    pub live_rows: u64,
    /// Dead rows.
    pub dead_rows: u64,
    /// Fragments.
    pub fragments: u64,
    /// Entries of the reject ledger.
    pub rejects: u64,
    /// Fold of the logical mask's deltas in the order in which they were committed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mask_digest: Option<Digest>,
    /// Fold of the source that the version was made from.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fold: Option<SourceFold>,
    /// Digest of names, sizes, times and e_tags of the files that the source read, where they are known
    /// and were the same before and after.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub source_files: Option<Digest>,
}

impl TableManifest {
    /// Objects that the table of one version consists of: pages and all that entries name.
    pub async fn reach(&self, store: &Store) -> Result<Vec<ObjRef>> {
        let mut pages = Vec::new();
        let entries = self
            .entries
            .walk(store, &mut |page| pages.push(page.clone()))
            .await?;
        pages.extend(entries.iter().flat_map(|(_, e)| e.objects().cloned()));
        Ok(pages)
    }

    /// The schema of an id.
    pub fn schema(&self, id: u64) -> Option<&SchemaVersion> {
        self.schemas.iter().find(|s| s.id == id)
    }

    /// The current schema.
    pub fn current_schema(&self) -> Option<&SchemaVersion> {
        self.schemas.last()
    }
}

/// The table of a type in a branch manifest.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum TableRoot {
    /// The only table of its dataset.
    Inline(Box<TableManifest>),
    /// A table of many.
    Object(ObjRef),
}

impl PageEntry for TableRoot {
    const ARTIFACT: &'static str = "type page";
}

/// Positions that a commit killed in one entry's fragment.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Killed {
    /// Entry number.
    pub entry: u64,
    /// Positions.
    pub positions: DeadRows,
}

/// Entries that a commit replaced by others without changing a live row.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Replaced {
    /// Entry numbers that are gone.
    pub old: Vec<u64>,
    /// Entry numbers that took their place.
    pub new: Vec<u64>,
    /// The version they were read at.
    pub read_version: u64,
}

/// What a commit did to one table; a loser of a race rebases over it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TableDelta {
    /// Type id.
    pub type_id: u64,
    /// Entries added.
    pub added: Vec<u64>,
    /// Positions killed.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub killed: Vec<Killed>,
    /// Entries replaced.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub replaced: Option<Replaced>,
    /// Whether all entries of the parent went: the commit replaced the table's content.
    #[serde(skip_serializing_if = "is_false", default)]
    pub cleared: bool,
    /// Whether no key of the commit existed before.
    pub insert_only: bool,
}
