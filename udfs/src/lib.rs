//! The SQL surface of Stratagraph: [`install`] puts it on a DataFusion session, [`Stratagraph`] has the
//! same verbs as typed Rust calls.
//!
//! A verb does its whole work when a statement is executed, never when it is planned:
//!
//! ```text
//! source ──scan once──► spool ──► diff with the current version ──► model ──► fragment ──► commit
//! ```

mod authorize;
mod dml;
mod embedding;
mod engine;
mod function;
mod handle;
mod host;
mod install;
mod load;
mod mutate;
mod pinned;
mod refresh;
mod report;
mod root;
mod scalar;
mod search;
mod source;
mod spool;

mod verbs;

pub use ::stratagraph::graph::input::{Grammar, OnError};
pub use ::stratagraph::publish::definition::Anchor;
pub use ::stratagraph::publish::{Deletes, Merge, Requester};
pub use ::stratagraph::text::Mode;
pub use authorize::{GraphAccess, GraphAction};
pub use handle::Stratagraph;
pub use install::{CATALOG, Options, install};
pub use load::LoadMode;
pub use pinned::PinnedSource;
pub use report::{
    BranchReport, BranchRow, ChangeRow, CommitRow, CommitStatus, ConflictRow, DropReport,
    ExpireReport, GarbageReport, GenerateReport, GraphChangeRow, GraphCreateReport,
    GraphDropReport, GraphExpireReport, GraphIndexRow, GraphLoadReport, GraphMutateReport,
    GraphOptimizeRow, GraphRow, GraphSchemaRow, IndexReport, Micros, ModelRow, NeighborReport,
    PinRow, RecomputeRow, RefreshPlan, RefreshReport, RejectedRow, Report, SchemaStepRow,
    SegmentRow, StalenessRow, TableRow, VerifyRow, VersionRow, ViolationRow,
};
pub use stratagraph_providers::{check_ddl, find_error};
pub use verbs::{
    ApplySchema, BranchFrom, BuildIndex, Cascade, CommitFilter, CompactOptions, CreatePin,
    ExpireBefore, GenerateEmbeddings, GraphLoad, GraphLoadTable, GraphMerge, GraphMutate,
    GraphState, HybridSearch, ImportEmbeddings, LoadSource, NeighborGraph, QueryParams,
    RefreshOptions, Search, SearchHit, TableSource, TextSearch, VectorSearch, Wanted,
};
