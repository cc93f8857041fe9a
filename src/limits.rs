//! Every bound of the engine, in one table. `docs/limits.md` repeats it for users.

/// Slots that stay readable behind the head: a slot below `head - FLOOR_SPAN` is never evidence.
pub const FLOOR_SPAN: u64 = 4096;
/// Slots per catalog directory.
pub const SLOTS_PER_DIRECTORY: u64 = 1024;
/// Commit attempts before [`crate::Error::CommitConflict`].
pub const COMMIT_ATTEMPTS: u32 = 64;
/// Manifests between a transaction's parent and the head beyond which it prepares anew.
pub const REBASE_MANIFESTS: u64 = 256;
/// Rows that a write and the commits before it may have changed, beyond which it is prepared anew.
pub const REBASE_ROWS: u64 = 1 << 18;
/// Entries of a metadata page.
pub const PAGE_ENTRIES: usize = 16;
/// Bytes of a metadata page, and of inline entries, before they move to pages.
pub const PAGE_BYTES: usize = 8 * 1024;
/// Bytes from which on a pack of metadata is full.
pub const PACK_BYTES: usize = 1024 * 1024;
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
/// Bytes of a fragment of a graph from which it is not written again together with new rows.
pub const TAIL_BYTES: u64 = 4 * 1024 * 1024;
/// Bytes of new rows of a graph's table that a write holds until its commit; more are staged before it.
pub const HELD_BYTES: usize = 1024 * 1024;
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
/// Bytes of all files of one model.
pub const MODEL_BYTES: u64 = 4 * 1024 * 1024 * 1024;
/// Tokens of one input of a transformer.
pub const MODEL_TOKENS: usize = 32 * 1024;
/// Models that a process keeps open.
pub const OPEN_MODELS: usize = 8;
/// Texts of one request to a model's server that does not say how many it takes.
pub const REMOTE_ROWS: usize = 64;
/// Texts of one request, whatever the server says it takes.
pub const REMOTE_ROWS_MOST: usize = 1_024;
/// Tokens of one request to such a server, estimated as a third of the bytes.
pub const REMOTE_TOKENS: usize = 100_000;
/// Components of the vectors that one request asks for, so that an answer has at most 65 MiB.
pub const REMOTE_COMPONENTS: usize = 2 * 1024 * 1024;
/// Requests of one opened model in flight.
pub const REMOTE_REQUESTS: usize = 4;
/// Attempts of one request.
pub const REMOTE_ATTEMPTS: u32 = 5;
/// Texts of one request that a server may refuse before the call fails.
pub const REMOTE_REFUSALS: usize = 16;
/// Seconds until a connection to a server stands.
pub const REMOTE_CONNECT_SECONDS: u64 = 10;
/// Seconds of one request.
pub const REMOTE_REQUEST_SECONDS: u64 = 60;
/// Seconds of one call that embeds stored rows, with its retries.
pub const REMOTE_DOCUMENT_SECONDS: u64 = 600;
/// Seconds of one call that embeds the text of a search, or that opens a model, with its retries.
pub const REMOTE_QUERY_SECONDS: u64 = 60;
/// Bytes of a server's own words in an error message.
pub const REMOTE_ERROR_BYTES: usize = 512;
/// Bytes of a name by which a server calls its model.
pub const REMOTE_NAME_BYTES: usize = 512;
/// Texts of searches whose vectors an opened model behind a server remembers.
pub const QUERY_CACHE_ENTRIES: usize = 1_024;
/// Bytes of those texts and vectors.
pub const QUERY_CACHE_BYTES: usize = 16 * 1024 * 1024;
/// Bytes of the text of a graph schema or a query.
pub const LANGUAGE_BYTES: usize = 1024 * 1024;
/// Braces, parentheses and `not` within each other in such a text.
pub const LANGUAGE_DEPTH: usize = 64;
/// Tokens of such a text.
pub const LANGUAGE_TOKENS: usize = 65_536;
/// Bytes of the JSON text of a query's parameters.
pub const PARAMETER_BYTES: usize = 16 * 1024 * 1024;
/// Node and edge types of a graph.
pub const GRAPH_TYPES: usize = 4_096;
/// Properties of all types of a graph, inherited ones counted at each type.
pub const GRAPH_PROPERTIES: usize = 65_536;
/// Patterns of all `@check` of a graph schema, equal ones counted once.
pub const GRAPH_PATTERNS: usize = 256;
/// Hops of a bounded traversal.
pub const HOPS: u32 = 64;
/// Bytes of the name of an actor that a setting gives.
pub const ACTOR_BYTES: usize = 256;
/// Bytes of one line of a graph load, by default.
pub const LINE_BYTES: usize = 32 * 1024 * 1024;
/// Objects and arrays within each other in a record of a graph load.
pub const RECORD_DEPTH: usize = 64;
/// Violations that one error or one dry run lists.
pub const VIOLATIONS: usize = 100;
/// Conflicts that one error or one dry run of a merge lists.
pub const CONFLICTS: usize = 100;
/// Members of one object in a record of a graph load.
pub const RECORD_MEMBERS: usize = 16_384;
/// Most that the setting for the bytes of a line may say: offsets of an Arrow array hold it.
pub const LINE_BYTES_MOST: usize = 1024 * 1024 * 1024;
/// Rows of one batch that a graph load reads.
pub const INPUT_ROWS: usize = 8_192;
/// Bytes of one such batch, beyond which the record that passes them is its last.
pub const INPUT_BATCH_BYTES: usize = 4 * 1024 * 1024;
/// Bytes of the batches of all types that a graph load fills at the same time.
pub const INPUT_BYTES: usize = 32 * 1024 * 1024;
/// Rows below which a fragment's vectors are compared one by one: an index would not be faster.
pub const INDEX_ROWS: u64 = 25_000;
/// Bytes of postings that are held while the texts of one fragment are indexed.
pub const TEXT_BUILD_BYTES: usize = 4 * 1024 * 1024 * 1024;
/// Bytes of vectors, indexes and adjacency lists that a process keeps of one store, by default.
pub const INDEX_CACHE_BYTES: usize = 512 * 1024 * 1024;
