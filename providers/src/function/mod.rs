//! Table functions: verbs and reads, declared once and reachable from SQL in two ways, by the
//! relation planner with named arguments and by DataFusion's plain table-function path.

mod args;
mod exec;
mod plain;
mod provider;
mod value;

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use async_trait::async_trait;
use datafusion::execution::TaskContext;
use datafusion::execution::context::SessionState;
use datafusion::logical_expr::Expr;
use datafusion::physical_plan::ExecutionPlan;
use stratagraph::Result;

pub use args::{ArgSpec, BoundArgs};
pub use exec::VerbExec;
pub use plain::PlainFunction;
pub use provider::FunctionProvider;
pub(crate) use provider::{HIDDEN, PlannedArg, hidden_name, hidden_type, is_plain, project};
pub use value::{ArgType, ArgValue};

use crate::metadata::Metadata;
use crate::pin::StatementPin;

/// The declaration of a table function.
#[derive(Debug, Clone)]
pub struct FunctionSpec {
    /// Its name, lower case.
    pub name: &'static str,
    /// Its arguments in positional order.
    pub args: Vec<ArgSpec>,
    /// Whether it changes anything; such a function needs `stratagraph.allow_writes`.
    pub writes: bool,
}

impl FunctionSpec {
    /// A function that only reads.
    pub fn read(name: &'static str, args: Vec<ArgSpec>) -> Self {
        Self {
            name,
            args,
            writes: false,
        }
    }

    /// A function that changes something.
    pub fn verb(name: &'static str, args: Vec<ArgSpec>) -> Self {
        Self {
            writes: true,
            ..Self::read(name, args)
        }
    }
}

/// What a run has of its host.
#[derive(Clone)]
pub struct RunContext {
    /// Memory, disk and settings of the execution.
    pub task: Arc<TaskContext>,
    /// The session as it was when the statement was planned: its tables and functions. `None` under
    /// hosts whose session is not DataFusion's own.
    pub session: Option<Arc<SessionState>>,
    /// The statement's pin: a read uses it, so that it sees what the tables beside it show.
    pub pin: Arc<StatementPin>,
    /// What the process knows of the store.
    pub metadata: Arc<Metadata>,
}

impl RunContext {
    pub(crate) fn of(
        state: &dyn datafusion::catalog::Session,
        pin: Arc<StatementPin>,
        metadata: &Arc<Metadata>,
    ) -> Self {
        let session = state.as_any().downcast_ref::<SessionState>();
        Self {
            task: state.task_ctx(),
            session: session.map(|session| Arc::new(session.clone())),
            pin,
            metadata: Arc::clone(metadata),
        }
    }
}

/// A table function.
#[async_trait]
pub trait TableFunction: Debug + Send + Sync + 'static {
    /// Its declaration.
    fn spec(&self) -> &FunctionSpec;

    /// The columns of a call's answer. Called when a statement is planned: must not wait, except
    /// through [`Metadata::table_now`].
    fn schema(&self, args: &PlannedArgs<'_>, metadata: &Arc<Metadata>) -> Result<SchemaRef>;

    /// A plan for a read that is better streamed than collected. Called when a statement is planned
    /// and under EXPLAIN: reads metadata at most. Its columns are those of [`Self::schema`].
    async fn plan(
        &self,
        _args: &BoundArgs,
        _state: &dyn datafusion::catalog::Session,
        _context: &RunContext,
    ) -> Result<Option<Arc<dyn ExecutionPlan>>> {
        Ok(None)
    }

    /// Whether conditions, columns and a number of rows that a statement wants of the answer are given
    /// to [`Self::scan`], which applies all of them.
    fn owns_filters(&self) -> bool {
        false
    }

    /// A plan for exactly what a statement wants of a read that owns its filters. Called when a
    /// statement is planned and under EXPLAIN: reads metadata at most.
    async fn scan(
        &self,
        args: &BoundArgs,
        _state: &dyn datafusion::catalog::Session,
        _wanted: Wanted<'_>,
        _context: &RunContext,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        Err(stratagraph::Error::NotYetSupported {
            feature: format!("{}() as a plan", args.function),
        })
    }

    /// Does the work, completely, and gives all rows. Called at most once for each execution of a
    /// plan, never when a statement is planned. Dropping the future cancels it.
    async fn run(self: Arc<Self>, args: BoundArgs, context: RunContext)
    -> Result<Vec<RecordBatch>>;
}

/// What a statement wants of an answer.
#[derive(Debug, Clone, Copy)]
pub struct Wanted<'a> {
    /// The answer's columns as the statement was planned with; another answer is `SchemaChanged`.
    pub answer: &'a SchemaRef,
    /// Columns by index; all of them for `None`.
    pub projection: Option<&'a [usize]>,
    /// Conditions on the answer's columns.
    pub filters: &'a [Expr],
    /// Rows at most, of those that meet the conditions.
    pub limit: Option<usize>,
}

/// The arguments of a call while a statement is planned; parameters have no value yet.
#[derive(Debug)]
pub struct PlannedArgs<'a> {
    spec: &'a FunctionSpec,
    values: &'a [PlannedArg],
}

impl PlannedArgs<'_> {
    /// A text that is known already; arguments declared `literal` always are.
    pub fn text(&self, name: &str) -> Option<&str> {
        match self.get(name)? {
            ArgValue::Text(text) => Some(text),
            _ => None,
        }
    }

    /// An argument that is known already.
    pub fn get(&self, name: &str) -> Option<&ArgValue> {
        let position = self.spec.args.iter().position(|a| a.name == name)?;
        match self.values.get(position)? {
            PlannedArg::Value(value) => Some(value),
            PlannedArg::Missing => self.spec.args.get(position)?.default.as_ref(),
            PlannedArg::Parameter => None,
        }
    }
}

/// All functions of an installation by name.
#[derive(Debug, Default)]
pub struct FunctionRegistry {
    functions: BTreeMap<&'static str, Arc<dyn TableFunction>>,
}

impl FunctionRegistry {
    /// Adds a function; one of the same name is replaced.
    pub fn add(&mut self, function: Arc<dyn TableFunction>) {
        self.functions.insert(function.spec().name, function);
    }

    /// The function of a name in any case.
    pub fn get(&self, name: &str) -> Option<&Arc<dyn TableFunction>> {
        self.functions.get(name.to_ascii_lowercase().as_str())
    }

    /// All functions by name.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<dyn TableFunction>> {
        self.functions.values()
    }
}
