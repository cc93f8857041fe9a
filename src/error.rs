//! The one error type of the engine and of the crates above it.
//!
//! Every variant says what happened and what to do next, and an operation that returns one has left
//! nothing changed (the single exception names itself: [`Error::CommitUnknown`]).

use std::error::Error as StdError;

use crate::graph::conflict::MergeConflicts;
use crate::graph::diagnostic::Diagnostics;
use crate::graph::evolve::RefusedSteps;
use crate::graph::violation::Violations;

mod class;
mod kind;

pub use kind::{KeyScan, Kind, NotRefreshableReason, Protection};

/// A result of the engine.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// A foreign error kept whole as a source.
pub type BoxError = Box<dyn StdError + Send + Sync + 'static>;

/// Any failure of Stratagraph. `Display` ends with the stable [`code`](Error::code) in brackets.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A name breaks the naming rules.
    #[error("[InvalidIdentifier] {what} {name:?} is not valid: {rule}")]
    InvalidIdentifier {
        /// What kind of name.
        what: &'static str,
        /// The name, cut to 160 bytes.
        name: String,
        /// The rule it breaks.
        rule: &'static str,
    },
    /// An argument of a verb has a wrong type or value.
    #[error("[InvalidArgument] argument {argument} of {function}: {reason}")]
    InvalidArgument {
        /// The verb.
        function: String,
        /// The argument.
        argument: String,
        /// What is expected.
        reason: String,
    },
    /// A graph schema that does not compile.
    #[error("[SchemaInvalid] the schema does not compile:\n{diagnostics}")]
    SchemaInvalid {
        /// What is wrong with it.
        diagnostics: Diagnostics,
    },
    /// A graph schema that the accepted one cannot become.
    #[error(
        "[SchemaChangeRefused] the schema of {graph:?} cannot become this one, nothing was changed:\n{steps}"
    )]
    SchemaChangeRefused {
        /// The graph and its branch.
        graph: String,
        /// The steps that are refused.
        steps: RefusedSteps,
    },
    /// A graph query that does not compile, or whose parameters do not fit.
    #[error("[QueryInvalid] the query is refused:\n{diagnostics}")]
    QueryInvalid {
        /// What is wrong with it.
        diagnostics: Diagnostics,
    },
    /// Records of a load that are malformed or break the schema.
    #[error("[RecordsInvalid] {total} violations; nothing was changed:\n{violations}")]
    RecordsInvalid {
        /// All of them, whether listed or not.
        total: u64,
        /// The first ones, in the order of the records.
        violations: Violations,
    },
    /// A documented function, argument or value that is not built yet.
    #[error("[NotYetSupported] {feature} is not built yet; see docs/sql.md for what is")]
    NotYetSupported {
        /// What was asked for.
        feature: String,
    },
    /// A name that exists already.
    #[error("[AlreadyExists] {what} {name:?} exists already; choose another name or drop it first")]
    AlreadyExists {
        /// What kind of thing.
        what: &'static str,
        /// Its name.
        name: String,
    },
    /// A table, branch or pin that is not there.
    #[error("[NotFound] {what} {name:?} does not exist")]
    NotFound {
        /// What kind of thing.
        what: &'static str,
        /// Its name.
        name: String,
    },
    /// The source of an embedding table is not registered in this session.
    #[error(
        "[SourceNotFound] source {source_name:?} of table {table:?} is not registered in this session; register it under that name and try again"
    )]
    SourceNotFound {
        /// The embedding table.
        table: String,
        /// The recorded source.
        source_name: String,
    },
    /// Another schema stands behind the name of a recorded source.
    #[error(
        "[SourceMismatch] source {source_name:?} of table {table:?} is not the one recorded: {detail}; register the recorded source or generate a new table"
    )]
    SourceMismatch {
        /// The embedding table.
        table: String,
        /// The recorded source.
        source_name: String,
        /// The first difference.
        detail: String,
    },
    /// A path, URL or scheme that the host's policy does not allow in SQL text.
    #[error(
        "[SourceNotAllowed] {what} {value:?} is not allowed by the policy of this host; ask the host to register it by name"
    )]
    SourceNotAllowed {
        /// What was named.
        what: &'static str,
        /// The redacted text.
        value: String,
    },
    /// The table is not one that a refresh can serve.
    #[error(
        "[NotRefreshable] table {table:?} cannot be refreshed: {reason}; generate a table from its source once"
    )]
    NotRefreshable {
        /// The table.
        table: String,
        /// Why.
        reason: NotRefreshableReason,
    },
    /// The model of this environment is not the one that made the table.
    #[error(
        "[DefinitionDrift] table {table:?} was made by definition {recorded}, this environment would use {current}: {reason}; recompute the table or restore the model"
    )]
    DefinitionDrift {
        /// The table.
        table: String,
        /// Recorded definition hash.
        recorded: String,
        /// Definition hash of this environment.
        current: String,
        /// What differs.
        reason: String,
    },
    /// Keys that must be unique are not.
    #[error(
        "[NonUniqueKey] table {table:?}, scan {scan}: {total} keys are not unique ({}); de-duplicate the {scan}",
        show_keys(keys)
    )]
    NonUniqueKey {
        /// The table.
        table: String,
        /// Where the duplicates are.
        scan: KeyScan,
        /// Up to ten keys with their exact counts, sorted by key.
        keys: Vec<(String, u64)>,
        /// Number of keys that occur more than once.
        total: u64,
    },
    /// NULLs in the key column.
    #[error(
        "[InvalidKey] key column {column:?} has {null_count} NULLs; every row needs a key, nothing was embedded"
    )]
    InvalidKey {
        /// The key column.
        column: String,
        /// Exact number of NULLs.
        null_count: u64,
    },
    /// Another commit dropped, restored or redefined the table meanwhile.
    #[error(
        "[ParentMoved] table {table:?} was {what} by another commit meanwhile; look at the table and try again"
    )]
    ParentMoved {
        /// The table.
        table: String,
        /// What the winner did.
        what: &'static str,
    },
    /// A strict insert met a key that is there, from this moment or from long ago.
    #[error("[KeyConflict] key {key:?} of {table:?} exists already; read it and decide")]
    KeyConflict {
        /// The table.
        table: String,
        /// The key.
        key: String,
    },
    /// What the transaction read was changed by another commit.
    #[error(
        "[ReadSetChanged] {member} was changed by another commit: expected {expected}, found {actual}; run the statement again"
    )]
    ReadSetChanged {
        /// A row, a table or a branch.
        member: String,
        /// What was read.
        expected: String,
        /// What is there.
        actual: String,
    },
    /// Both sides of a merge changed what cannot be joined.
    #[error(
        "[MergeConflicts] {from:?} cannot be merged into {into:?}: {total} conflicts; change one of the branches, nothing was merged:\n{conflicts}"
    )]
    MergeConflicts {
        /// The source, with its graph.
        from: String,
        /// The target, with its graph.
        into: String,
        /// All of them, whether listed or not.
        total: u64,
        /// The first ones.
        conflicts: MergeConflicts,
    },
    /// Branches with different schemas.
    #[error(
        "[SchemaDiverged] {from:?} and {into:?} have different schemas; bring both to one schema before you merge"
    )]
    SchemaDiverged {
        /// The source, with its graph.
        from: String,
        /// The target, with its graph.
        into: String,
    },
    /// A branch is not at the commit that the caller expects.
    #[error(
        "[PreconditionFailed] {branch:?} is at commit {actual:?} and not at {expected:?}; read what changed and decide"
    )]
    PreconditionFailed {
        /// The graph and its branch.
        branch: String,
        /// The commit that the caller named.
        expected: String,
        /// The commit of the branch.
        actual: String,
    },
    /// A request id that a call with another body had.
    #[error(
        "[RequestIdReused] request id {request_id:?} was that of another call on {branch:?}, which made commit {commit_id:?}; take a new id for a new request"
    )]
    RequestIdReused {
        /// The graph and its branch.
        branch: String,
        /// The id.
        request_id: String,
        /// The commit that the other call made.
        commit_id: String,
    },
    /// Every attempt lost against other commits.
    #[error(
        "[CommitConflict] {attempts} attempts lost against other commits of {dataset:?}; try again later"
    )]
    CommitConflict {
        /// The dataset.
        dataset: String,
        /// Number of attempts, all known to have lost.
        attempts: u32,
    },
    /// The transaction began before a garbage collection that may have deleted its objects.
    #[error(
        "[WriterFenced] transaction {txn} began before garbage collection at catalog version {horizon}; run the verb again"
    )]
    WriterFenced {
        /// The transaction.
        txn: String,
        /// The horizon.
        horizon: u64,
    },
    /// The one in-doubt outcome.
    #[error(
        "[CommitUnknown] the outcome of transaction {txn} at slot {slot} is not known; ask commit_status('{txn}') before you repeat the verb"
    )]
    CommitUnknown {
        /// The transaction.
        txn: String,
        /// The slot that it was sent to.
        slot: u64,
    },
    /// A version that was never there or whose manifest cannot be resolved.
    #[error(
        "[VersionUnavailable] version {version} of {table:?} is not available{}; see versions('{table}')",
        detail_suffix(detail)
    )]
    VersionUnavailable {
        /// The table.
        table: String,
        /// The version.
        version: u64,
        /// What is missing, or empty.
        detail: String,
    },
    /// An older version that a transaction imports is no longer retained.
    #[error(
        "[HistoricalVersionReclaimed] version {version} of {dataset:?} was expired meanwhile; choose a retained version"
    )]
    HistoricalVersionReclaimed {
        /// The dataset.
        dataset: String,
        /// The version.
        version: u64,
    },
    /// The planned schema cannot be mapped to the pinned one.
    #[error(
        "[SchemaChanged] the schema of {table:?} changed between planning and execution: {detail}; plan the statement again"
    )]
    SchemaChanged {
        /// The table.
        table: String,
        /// The first difference.
        detail: String,
    },
    /// A planning hook needs metadata that this process has never seen.
    #[error(
        "[MetadataNotLoaded] the metadata of {name:?} is not loaded; call {call} first on a current-thread runtime"
    )]
    MetadataNotLoaded {
        /// The dataset, schema or model.
        name: String,
        /// The call that loads it.
        call: &'static str,
    },
    /// A write to something that is read-only.
    #[error("[ReadOnlyTable] {table:?} is read-only for this statement; use {verb}")]
    ReadOnlyTable {
        /// The table.
        table: String,
        /// The verb to use instead.
        verb: &'static str,
    },
    /// The host does not let an actor do this.
    #[error(
        "[Denied] {actor:?} may not {action} {graph:?}: {reason}; ask whoever runs this host, nothing was changed"
    )]
    Denied {
        /// The actor, or empty.
        actor: String,
        /// What was asked for.
        action: &'static str,
        /// The graph and its branch.
        graph: String,
        /// What the host says.
        reason: String,
    },
    /// Writes are switched off.
    #[error(
        "[WritesNotAllowed] {verb} was refused: SET stratagraph.allow_writes = true to allow it"
    )]
    WritesNotAllowed {
        /// The verb.
        verb: String,
    },
    /// A table with pins cannot be dropped.
    #[error("[Pinned] {table:?} has pins ({pins}); drop them with drop_pin first")]
    Pinned {
        /// The table.
        table: String,
        /// Names of pins, comma-separated.
        pins: String,
    },
    /// A branch that cannot be deleted.
    #[error("[BranchProtected] branch {branch:?} cannot be deleted: {protection}")]
    BranchProtected {
        /// The graph and the branch.
        branch: String,
        /// Why.
        protection: Protection,
    },
    /// Stored bytes are not what was written.
    #[error(
        "[Corrupt] {artifact} {path:?} is damaged: expected {expected}, found {found}; run verify_materialization and restore the object from a copy"
    )]
    Corrupt {
        /// Kind of artifact.
        artifact: &'static str,
        /// Its key in the store.
        path: String,
        /// What was expected.
        expected: String,
        /// What was found.
        found: String,
    },
    /// A format that this build does not know.
    #[error(
        "[IncompatibleFormat] {path:?} has format {found}, this build reads up to {supported}; use a newer build"
    )]
    IncompatibleFormat {
        /// Key in the store.
        path: String,
        /// Format found.
        found: u64,
        /// Newest format known.
        supported: u64,
    },
    /// A limit of docs/limits.md.
    #[error(
        "[ResourceLimitExceeded] {what}: {value} exceeds the limit {limit}; see docs/limits.md"
    )]
    ResourceLimitExceeded {
        /// What is limited.
        what: &'static str,
        /// The value asked for or found.
        value: u64,
        /// The limit.
        limit: u64,
    },
    /// A line of an input, or a record over several lines, beyond the limit of its length. It has the
    /// code of [`Error::ResourceLimitExceeded`].
    #[error(
        "[ResourceLimitExceeded] {place} is longer than {limit} bytes; split the record or raise the limit of lines"
    )]
    LineTooLong {
        /// The line as a message names it, with its file.
        place: String,
        /// Number of the line over all files, from 1.
        line: u64,
        /// The limit in bytes.
        limit: u64,
    },
    /// The backend does not honour create-only puts.
    #[error("[StoreNotSupported] the store at {root:?} cannot be used: {reason}")]
    StoreNotSupported {
        /// Redacted root.
        root: String,
        /// What failed.
        reason: &'static str,
    },
    /// A model failed for a whole call.
    #[error("[ModelFailed] model {model:?} failed: {reason}")]
    ModelFailed {
        /// The model.
        model: String,
        /// What happened.
        reason: String,
    },
    /// The files of a model are not what this build can read.
    #[error(
        "[ModelInvalid] model {model:?} cannot be used{}: {reason}",
        file_suffix(file)
    )]
    ModelInvalid {
        /// The model.
        model: String,
        /// The file, relative to the model's directory; empty for the directory.
        file: String,
        /// What is wrong.
        reason: String,
    },
    /// A model that this build or host does not know.
    #[error("[ModelNotFound] model {model:?} is not known; {hint}")]
    ModelNotFound {
        /// Redacted spec.
        model: String,
        /// What can be used.
        hint: &'static str,
    },
    /// The operation was cancelled by its caller.
    #[error("[Cancelled] {operation} was cancelled; nothing was changed")]
    Cancelled {
        /// What was cancelled.
        operation: &'static str,
    },
    /// A background task of the engine ended without an answer.
    #[error("[TaskFailed] a background task of {operation} ended without an answer: {source}")]
    TaskFailed {
        /// What ran.
        operation: &'static str,
        /// The join error.
        source: BoxError,
    },
    /// The object store failed.
    #[error("[Storage] {op} {path:?} failed: {source}")]
    Storage {
        /// The call.
        op: &'static str,
        /// Key in the store.
        path: String,
        /// The cause.
        source: object_store::Error,
    },
    /// Parquet decoding or encoding failed.
    #[error("[Parquet] {path:?}: {source}")]
    Parquet {
        /// Key in the store.
        path: String,
        /// The cause.
        source: parquet::errors::ParquetError,
    },
    /// An Arrow kernel failed.
    #[error("[Arrow] {source}")]
    Arrow {
        /// The cause.
        #[from]
        source: arrow::error::ArrowError,
    },
    /// The host's query engine failed while it read a source.
    #[error("[Source] {source}")]
    Source {
        /// The cause.
        source: BoxError,
    },
}

fn show_keys(keys: &[(String, u64)]) -> String {
    let shown: Vec<String> = keys.iter().map(|(k, n)| format!("{k:?} x {n}")).collect();
    shown.join(", ")
}

fn file_suffix(file: &str) -> String {
    if file.is_empty() {
        String::new()
    } else {
        format!(", {file:?}")
    }
}

fn detail_suffix(detail: &str) -> String {
    if detail.is_empty() {
        String::new()
    } else {
        format!(" ({detail})")
    }
}

impl Error {
    /// An object-store failure of `op` on `path`.
    pub fn storage(op: &'static str, path: impl Into<String>, source: object_store::Error) -> Self {
        Self::Storage {
            op,
            path: path.into(),
            source,
        }
    }

    /// Whether a store said that the object is not there.
    pub fn is_missing_object(&self) -> bool {
        matches!(
            self,
            Self::Storage {
                source: object_store::Error::NotFound { .. },
                ..
            }
        )
    }

    /// Damaged bytes at `path`.
    pub fn corrupt(
        artifact: &'static str,
        path: impl Into<String>,
        expected: impl ToString,
        found: impl ToString,
    ) -> Self {
        Self::Corrupt {
            artifact,
            path: path.into(),
            expected: expected.to_string(),
            found: found.to_string(),
        }
    }
}
