//! The DataFusion read side of Stratagraph: the catalog `sg`, versioned tables, table functions and
//! the planning rules that make one statement read one snapshot.
//!
//! A scan of a table is one ordinary `DataSourceExec` over the fragments of the version, with
//! deletion masks as native Parquet row selections:
//!
//! ```text
//! SELECT _row_id FROM sg.embeddings.docs WHERE _row_id > 'k'
//!
//! FilterExec: _row_id@0 > k
//!   DataSourceExec: file_groups={...}, projection=[_row_id], file_type=parquet, predicate=...
//! ```
//!
//! A verb or a read function is one leaf, `VerbExec`, that runs once before its first row. Everything
//! is registered on a session by `stratagraph_udfs::install`; hosts that assemble it themselves need
//! [`Metadata`], [`StratagraphCatalog`], [`PinRule`], [`StratagraphRelations`] and [`Settings`].

mod adapter;
mod catalog;
mod columns;
mod dml;
mod error;
mod exec;
mod function;
mod graph;
mod hooks;
mod lateral;
mod masked_source;
mod metadata;
mod nearest;
mod pin;
mod reader;
mod relation;
mod scan;
mod settings;
mod statement;
mod statistics;
mod versioned;

pub(crate) use datafusion::catalog::Session;

pub use catalog::{EMBEDDINGS, EmbeddingsSchema, StratagraphCatalog, check_ddl};
pub use columns::{PlannedColumn, PlannedTable};
pub use error::{ResultExt, find_error, find_in_std, from_datafusion, to_datafusion};
pub use exec::{
    Arm, EdgeHandle, ExpandExec, ExpandNode, ExpandPlanner, ExpandSpec, HydrateExec, HydrateNode,
    HydratePlanner, HydrateSpec, Leg, MatchEdge, MatchExec, MatchNode, MatchPlanner, MatchSpec,
    Measure, Near, NodeTable, PoolBudget, QueryEmbedder, RankExec, RankNode, RankPlanner, RankSpec,
    Ranking, WriteExec,
};
pub use function::{
    ArgSpec, ArgType, ArgValue, BoundArgs, FunctionProvider, FunctionRegistry, FunctionSpec,
    PlainFunction, PlannedArgs, RunContext, TableFunction, VerbExec, Wanted,
};
pub use graph::{
    GraphQuery, GraphReach, GraphSources, GraphTables, RowColumn, RowExprs, Seeds, answer_schema,
    plan_inner, split_branch,
};
pub use hooks::{MERGE_ACTION, MERGE_OLD, MergeAction, PlannedWrite, TableWrite, WriteHooks};
pub use lateral::LateralRule;
pub use masked_source::MaskedSource;
pub use metadata::{Metadata, wait};
pub use nearest::NearestRule;
pub use pin::{PinRule, StatementPin, pin_plan, seal_plan};
pub use relation::StratagraphRelations;
pub use settings::{AnnMode, Settings};
pub use versioned::VersionedTableProvider;
