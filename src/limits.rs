//! Every bound of the engine, in one table. `docs/limits.md` repeats it for users.

/// Slots that stay readable behind the head: a slot below `head - FLOOR_SPAN` is never evidence.
pub const FLOOR_SPAN: u64 = 4096;
/// Slots per catalog directory.
pub const SLOTS_PER_DIRECTORY: u64 = 1024;
/// Commit attempts before [`crate::Error::CommitConflict`].
pub const COMMIT_ATTEMPTS: u32 = 64;
/// Manifests between a transaction's parent and the head beyond which it prepares anew.
pub const REBASE_MANIFESTS: u64 = 256;
/// Entries of a metadata page.
pub const PAGE_ENTRIES: usize = 16;
/// Bytes of a metadata page, and of inline entries, before they move to pages.
pub const PAGE_BYTES: usize = 8 * 1024;
/// Bytes of bitmaps kept inline in one manifest page.
pub const PAGE_BITMAP_BYTES: usize = 4 * 1024;
/// Rows covered by one bitmap object.
pub const BITMAP_OBJECT_ROWS: u32 = 262_144;
/// Killed positions of one delta kept inline.
pub const INLINE_KILLED: u64 = 1_024;
/// Versions of a branch that remember their request id.
pub const REQUEST_ID_VERSIONS: u64 = 1_024;
/// Bytes of a catalog slot, a manifest or a page that a reader accepts.
pub const METADATA_BYTES: u64 = 16 * 1024 * 1024;
/// Bytes of one checksummed block of a data object.
pub const BLOCK_BYTES: u64 = 64 * 1024;
/// Block checksums kept inline in a manifest entry.
pub const INLINE_BLOCKS: usize = 64;
/// Data objects smaller than this are read whole.
pub const WHOLE_READ_BYTES: u64 = 1024 * 1024;
/// Rows of a Parquet row group.
pub const ROW_GROUP_ROWS: usize = 65_536;
/// Rows of a Parquet data page.
pub const PAGE_ROWS: usize = 2_048;
/// Bytes of a table, graph, branch, type or pin name.
pub const NAME_BYTES: usize = 128;
/// Width of an embedding.
pub const DIMENSIONS: usize = 65_536;
/// Rows that one search may return.
pub const SEARCH_K: usize = 1_000_000;
/// Columns of a table.
pub const COLUMNS: usize = 4_096;
/// Bytes of one text that is given to a model.
pub const TEXT_BYTES: usize = 16 * 1024 * 1024;
/// Bytes of one key.
pub const KEY_BYTES: usize = 64 * 1024;
