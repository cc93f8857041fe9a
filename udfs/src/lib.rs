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

pub use ::stratagraph::publish::{Deletes, Requester};
pub use handle::Stratagraph;
pub use install::{CATALOG, Options, install};
pub use report::{
    CommitRow, CommitStatus, DropReport, GenerateReport, Micros, RefreshPlan, RefreshReport,
    RejectedRow, Report, TableRow, VerifyRow, VersionRow,
};
pub use stratagraph_providers::{check_ddl, find_error};
pub use verbs::{CommitFilter, GenerateEmbeddings, RefreshOptions, Search, SearchHit, Wanted};
