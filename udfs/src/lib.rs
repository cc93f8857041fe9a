//! The SQL surface of Stratagraph: [`install`] puts it on a DataFusion session, [`Stratagraph`] has the
//! same verbs as typed Rust calls.
//!
//! A verb does its whole work when a statement is executed, never when it is planned:
//!
//! ```text
//! source ──scan once──► spool ──► diff with the current version ──► model ──► fragment ──► commit
//! ```

mod engine;
mod function;
mod handle;
mod host;
mod install;
mod kernel;
mod refresh;
mod report;
mod root;
mod scalar;
mod source;

mod verbs;

pub use ::stratagraph::publish::{Deletes, Merge, Requester};
pub use handle::Stratagraph;
pub use install::{CATALOG, Options, install};
pub use report::{
    ChangeRow, CommitRow, CommitStatus, DropReport, ExpireReport, GarbageReport, GenerateReport,
    Micros, ModelRow, PinRow, RefreshPlan, RefreshReport, RejectedRow, Report, SegmentRow,
    TableRow, VerifyRow, VersionRow,
};
pub use stratagraph_providers::{check_ddl, find_error};
pub use verbs::{
    CommitFilter, CompactOptions, CreatePin, GenerateEmbeddings, RefreshOptions, Search, SearchHit,
    Wanted,
};
