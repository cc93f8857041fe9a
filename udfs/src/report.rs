//! What verbs answer: one plain struct per verb, and the same rows as Arrow columns for SQL. The
//! names and the order of the fields are those of `docs/sql.md`.

use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, BooleanArray, Int64Array, StringArray, TimestampMicrosecondArray,
};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef, TimeUnit};
use arrow::record_batch::{RecordBatch, RecordBatchOptions};
use stratagraph::Result;
use stratagraph::catalog::resolve::TableSnapshot;
use stratagraph::ident::Name;
use stratagraph::publish::Published;

/// A row type of a verb's answer.
pub trait Report: Sized + Send + Sync + 'static {
    /// The columns.
    fn schema() -> SchemaRef;
    /// All rows as one batch.
    fn batch(rows: &[Self]) -> Result<RecordBatch>;
}

/// A point in time: microseconds since 1970-01-01 UTC.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Micros(pub i64);

/// A type that a column of a report may have.
pub(crate) trait Cell: Sized {
    const NULLABLE: bool = false;
    fn data_type() -> DataType;
    fn column<'a>(cells: impl Iterator<Item = &'a Self>) -> ArrayRef
    where
        Self: 'a;
}

/// Counts are Int64 in SQL; none comes near its end.
fn int(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

impl Cell for String {
    fn data_type() -> DataType {
        DataType::Utf8
    }
    fn column<'a>(cells: impl Iterator<Item = &'a Self>) -> ArrayRef {
        Arc::new(StringArray::from_iter_values(cells))
    }
}

impl Cell for Option<String> {
    const NULLABLE: bool = true;
    fn data_type() -> DataType {
        DataType::Utf8
    }
    fn column<'a>(cells: impl Iterator<Item = &'a Self>) -> ArrayRef {
        Arc::new(StringArray::from_iter(cells))
    }
}

impl Cell for u64 {
    fn data_type() -> DataType {
        DataType::Int64
    }
    fn column<'a>(cells: impl Iterator<Item = &'a Self>) -> ArrayRef {
        Arc::new(Int64Array::from_iter_values(cells.map(|n| int(*n))))
    }
}

impl Cell for Option<u64> {
    const NULLABLE: bool = true;
    fn data_type() -> DataType {
        DataType::Int64
    }
    fn column<'a>(cells: impl Iterator<Item = &'a Self>) -> ArrayRef {
        Arc::new(Int64Array::from_iter(cells.map(|n| n.map(int))))
    }
}

impl Cell for bool {
    fn data_type() -> DataType {
        DataType::Boolean
    }
    fn column<'a>(cells: impl Iterator<Item = &'a Self>) -> ArrayRef {
        Arc::new(BooleanArray::from_iter(cells.map(|b| Some(*b))))
    }
}

impl Cell for Option<Micros> {
    const NULLABLE: bool = true;
    fn data_type() -> DataType {
        Micros::data_type()
    }
    fn column<'a>(cells: impl Iterator<Item = &'a Self>) -> ArrayRef {
        let times = TimestampMicrosecondArray::from_iter(cells.map(|t| t.map(|t| t.0)));
        Arc::new(times.with_timezone("UTC"))
    }
}

impl Cell for Micros {
    fn data_type() -> DataType {
        DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into()))
    }
    fn column<'a>(cells: impl Iterator<Item = &'a Self>) -> ArrayRef {
        let times = TimestampMicrosecondArray::from_iter_values(cells.map(|t| t.0));
        Arc::new(times.with_timezone("UTC"))
    }
}

/// The column of a field; a Rust keyword is written `r#type`.
fn column_name(field: &'static str) -> &'static str {
    field.strip_prefix("r#").unwrap_or(field)
}

pub(crate) fn field<C: Cell>(name: &str) -> Field {
    Field::new(name, C::data_type(), C::NULLABLE)
}

pub(crate) fn rows(schema: SchemaRef, columns: Vec<ArrayRef>) -> Result<RecordBatch> {
    let count = columns.first().map_or(0, |column| column.len());
    let options = RecordBatchOptions::new().with_row_count(Some(count));
    Ok(RecordBatch::try_new_with_options(
        schema, columns, &options,
    )?)
}

/// Declares a report: the struct and its columns from one list, so that they cannot drift apart.
macro_rules! report {
    ($(#[$doc:meta])* pub struct $name:ident {
        $($(#[$field_doc:meta])* pub $field:ident: $type:ty,)*
    }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq)]
        pub struct $name { $($(#[$field_doc])* pub $field: $type,)* }

        impl Report for $name {
            fn schema() -> SchemaRef {
                Arc::new(Schema::new(vec![$(field::<$type>(column_name(stringify!($field))),)*]))
            }
            fn batch(rows_in: &[Self]) -> Result<RecordBatch> {
                let columns = vec![$(<$type as Cell>::column(rows_in.iter().map(|r| &r.$field)),)*];
                rows(Self::schema(), columns)
            }
        }
    };
}

mod graph;

pub use graph::{
    BranchReport, BranchRow, ConflictRow, GraphChangeRow, GraphCreateReport, GraphDropReport,
    GraphExpireReport, GraphIndexRow, GraphLoadReport, GraphMutateReport, GraphOptimizeRow,
    GraphRow, GraphSchemaRow, SchemaStepRow, ViolationRow,
};

report! {
    /// What `generate_embeddings` made.
    pub struct GenerateReport {
        /// The new table.
        pub table: String,
        /// Its first version.
        pub version: u64,
        /// Live rows.
        pub rows: u64,
        /// Source rows that got no vector.
        pub dropped_rows: u64,
        /// Width of the vectors.
        pub dimensions: u64,
        /// The model as the table remembers it.
        pub model: String,
        /// Hash of everything that changes vectors.
        pub definition_hash: String,
        /// Identity of the version.
        pub identity: String,
    }
}

report! {
    /// What `refresh_embeddings` did.
    pub struct RefreshReport {
        /// The table.
        pub table: String,
        /// The version that is current now.
        pub version: u64,
        /// The version it was made from.
        pub parent_version: Option<u64>,
        /// Rows given to the model.
        pub inferred_rows: u64,
        /// Source rows without a live row before.
        pub added: u64,
        /// Source rows whose content differs from their live row.
        pub changed: u64,
        /// Live rows whose key left the source and that were removed.
        pub deleted: u64,
        /// Source rows that are as they were, unchanged rejects included.
        pub unchanged: u64,
        /// Rows of this call that got no vector.
        pub dropped_rows: u64,
        /// Live rows.
        pub live_rows: u64,
        /// Physical rows that are not live.
        pub masked_rows: u64,
        /// `published` or `no_change`.
        pub outcome: String,
        /// Entries of the reject ledger.
        pub rejected_rows: u64,
        /// Rows whose text the model cut.
        pub truncated_rows: u64,
        /// Commits tried.
        pub attempts: u64,
    }
}

impl RefreshReport {
    /// No version and no work.
    fn blank(table: &Name, attempts: u32) -> Self {
        Self {
            table: table.to_string(),
            version: 0,
            parent_version: None,
            inferred_rows: 0,
            added: 0,
            changed: 0,
            deleted: 0,
            unchanged: 0,
            dropped_rows: 0,
            live_rows: 0,
            masked_rows: 0,
            outcome: "no_change".to_owned(),
            rejected_rows: 0,
            truncated_rows: 0,
            attempts: u64::from(attempts),
        }
    }

    /// Nothing was done to a version.
    pub(crate) fn nothing(base: &TableSnapshot, attempts: u32) -> Self {
        Self {
            version: base.version(),
            parent_version: base.manifest.parent_version,
            unchanged: base.table.live_rows,
            live_rows: base.table.live_rows,
            masked_rows: base.table.dead_rows,
            rejected_rows: base.table.rejects,
            ..Self::blank(&base.name, attempts)
        }
    }

    /// A version with the rows of another one.
    pub(crate) fn of(table: &Name, published: &Published, attempts: u32) -> Self {
        let blank = Self {
            unchanged: published.live_rows,
            ..Self::blank(table, attempts)
        };
        blank.published(published)
    }

    /// The same work, published.
    pub(crate) fn published(self, published: &Published) -> Self {
        Self {
            version: published.version,
            parent_version: published.parent_version,
            live_rows: published.live_rows,
            masked_rows: published.dead_rows,
            rejected_rows: published.rejects,
            outcome: "published".to_owned(),
            ..self
        }
    }
}

report! {
    /// What `expire_versions` did.
    pub struct ExpireReport {
        /// The table.
        pub table: String,
        /// The versions that are gone, ascending, comma-separated.
        pub expired_versions: String,
        /// Objects deleted.
        pub objects_deleted: u64,
    }
}

report! {
    /// A durable pin.
    pub struct PinRow {
        /// Its name.
        pub pin: String,
        /// The table's name when it was pinned.
        pub table: String,
        /// The version.
        pub version: u64,
        /// When expiry and garbage collection may drop it.
        pub expires_at: Option<Micros>,
    }
}

report! {
    /// What `collect_garbage` deleted, or would delete.
    pub struct GarbageReport {
        /// Objects.
        pub objects: u64,
        /// Their bytes.
        pub bytes: u64,
    }
}

report! {
    /// A key whose row differs between two versions.
    pub struct ChangeRow {
        /// The key.
        pub _row_id: String,
        /// `added`, `changed` or `deleted`.
        pub change: String,
    }
}

report! {
    /// What `neighbor_graph` made.
    pub struct NeighborReport {
        /// The new table.
        pub table: String,
        /// Its version.
        pub version: u64,
        /// Its rows.
        pub rows: u64,
        /// Identity of the version.
        pub identity: String,
    }
}

report! {
    /// Whether a table is still what its inputs say.
    pub struct StalenessRow {
        /// The table.
        pub table: String,
        /// `fresh`, `stale` or `undecidable`.
        pub state: String,
        /// `definition_changed`, `input_advanced`, `input_vanished` or `unpinned`.
        pub reason: Option<String>,
        /// The input.
        pub source: Option<String>,
        /// What the table records of it.
        pub recorded: Option<String>,
        /// What it is now.
        pub current: Option<String>,
    }
}

report! {
    /// A table that `recompute` made again, or left stale.
    pub struct RecomputeRow {
        /// The table.
        pub original: String,
        /// The new table.
        pub recomputed: Option<String>,
        /// `recomputed` or `stale`.
        pub outcome: String,
    }
}

report! {
    /// A segment of the current version.
    pub struct SegmentRow {
        /// The fragment that it covers.
        pub fragment: String,
        /// The version whose content that holds.
        pub version: u64,
        /// `exact`, `ivf`, `hnsw`, `text` or `topology`.
        pub kind: String,
        /// Rows of the fragment.
        pub rows: u64,
        /// Rows that it covers.
        pub covered_rows: u64,
        /// Bytes of its own object.
        pub bytes: u64,
        /// The column that it answers for.
        pub column: String,
        /// Rows of the fragment that are dead.
        pub dead_rows: u64,
    }
}

report! {
    /// An index that was built, over all fragments of a table.
    pub struct IndexReport {
        /// The table.
        pub table: String,
        /// The column.
        pub column: String,
        /// `hnsw`, `ivf` or `text`; `exact` if no fragment is worth an index.
        pub kind: String,
        /// Rows that it covers.
        pub rows: u64,
        /// Bytes of its objects.
        pub bytes: u64,
    }
}

report! {
    /// A model that a call can name.
    pub struct ModelRow {
        /// Its name.
        pub model: String,
        /// Its canonical spec.
        pub spec: String,
        /// Width of its vectors.
        pub dimensions: u64,
        /// Whether it is taken when a call names none.
        pub is_default: bool,
        /// Whether it computes in this process.
        pub local: bool,
        /// SHA-256 of everything that changes its vectors.
        pub definition_hash: String,
    }
}

report! {
    /// What a refresh would do.
    pub struct RefreshPlan {
        /// Source rows without a live row.
        pub added: u64,
        /// Source rows whose content differs from their live row.
        pub changed: u64,
        /// Live rows whose key left the source and that would be removed.
        pub deleted: u64,
        /// Source rows that are as they were, unchanged rejects included.
        pub unchanged: u64,
        /// Unchanged rejects.
        pub rejected_rows: u64,
    }
}

report! {
    /// A row that the model refuses.
    pub struct RejectedRow {
        /// Its key.
        pub _row_id: String,
        /// Why.
        pub reason: String,
    }
}

report! {
    /// A retained version of a table.
    pub struct VersionRow {
        /// Its number.
        pub version: u64,
        /// The version it was made from.
        pub parent_version: Option<u64>,
        /// What made it.
        pub kind: String,
        /// Identity of its content.
        pub identity: Option<String>,
        /// Live rows.
        pub live_rows: u64,
        /// Physical rows that are not live.
        pub masked_rows: u64,
        /// Fragments.
        pub fragments: u64,
        /// Segments.
        pub segments: u64,
        /// When it was committed.
        pub created_at: Micros,
        /// Whether it is the current one.
        pub current: bool,
    }
}

report! {
    /// An artifact of a version, checked.
    pub struct VerifyRow {
        /// Its key in the store, or what else it is.
        pub artifact: String,
        /// Its kind.
        pub kind: String,
        /// What the manifest says.
        pub expected: String,
        /// What was found.
        pub found: String,
        /// `match`, `mismatch`, `missing` or `unreadable`.
        pub verdict: String,
    }
}

report! {
    /// A table that was dropped or renamed.
    pub struct DropReport {
        /// The table.
        pub table: String,
        /// `dropped` or `renamed`.
        pub outcome: String,
    }
}

report! {
    /// An embedding table of the store. What stands in a manifest or a definition that cannot be read
    /// is NULL: one damaged table does not hide the others.
    pub struct TableRow {
        /// Its name.
        pub table: String,
        /// Its source; NULL also for a table without one.
        pub source: Option<String>,
        /// Its model.
        pub model: Option<String>,
        /// Width of its vectors.
        pub dimensions: Option<u64>,
        /// Its current version.
        pub version: u64,
        /// Live rows.
        pub live_rows: Option<u64>,
        /// When it was generated.
        pub created_at: Micros,
    }
}

report! {
    /// A commit.
    pub struct CommitRow {
        /// Its catalog version.
        pub version: u64,
        /// Its id.
        pub commit_id: String,
        /// Ids of its parents, comma-separated.
        pub parent_ids: String,
        /// The dataset's name at the time; empty for a commit of the whole store.
        pub dataset: String,
        /// The branch.
        pub branch: String,
        /// What it did.
        pub kind: String,
        /// Who asked for it.
        pub actor: Option<String>,
        /// When.
        pub created_at: Micros,
        /// Its transaction.
        pub txn: String,
    }
}

report! {
    /// What became of a transaction.
    pub struct CommitStatus {
        /// The transaction.
        pub txn: String,
        /// `committed`, `not_committed` or `unknown`.
        pub status: String,
        /// Its catalog version, if it was committed.
        pub version: Option<u64>,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_follow_the_fields() {
        let row = VersionRow {
            version: 3,
            parent_version: None,
            kind: "refresh".to_owned(),
            identity: Some("ab".to_owned()),
            live_rows: u64::MAX,
            masked_rows: 0,
            fragments: 1,
            segments: 1,
            created_at: Micros(5),
            current: true,
        };
        let batch = VersionRow::batch(&[row.clone(), row]).unwrap();
        assert_eq!((batch.num_rows(), batch.num_columns()), (2, 10));
        assert_eq!(batch.schema(), VersionRow::schema());
        assert!(batch.column(1).is_null(0));
        assert_eq!(VersionRow::batch(&[]).unwrap().num_rows(), 0);
    }
}
