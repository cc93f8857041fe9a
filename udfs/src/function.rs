//! Table functions over the verbs: arguments in, report rows out.

use std::fmt;
use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use arrow::record_batch::RecordBatch;
use async_trait::async_trait;
use futures::future::BoxFuture;
use stratagraph::ident::Name;
use stratagraph::{Error, Result};
use stratagraph_providers::{
    ArgSpec, ArgValue, BoundArgs, FunctionSpec, Metadata, PlannedArgs, RunContext, TableFunction,
};

use crate::engine::{Engine, Run};
use crate::report::Report;

/// A call of a function from SQL.
pub(crate) struct Call {
    pub(crate) run: Run,
    pub(crate) args: BoundArgs,
}

impl Call {
    /// An argument that names a dataset.
    pub(crate) fn name(&self, argument: &str) -> Result<Name> {
        Name::parse(self.args.text(argument)?)
    }
}

type Answer = BoxFuture<'static, Result<Vec<RecordBatch>>>;
type Body = fn(Call) -> Answer;

/// A function whose columns are those of a report.
pub(crate) struct ReportFunction {
    engine: Arc<Engine>,
    spec: FunctionSpec,
    schema: SchemaRef,
    /// The columns of `dry_run => true`, which lists what the call would meet.
    dry: Option<SchemaRef>,
    body: Body,
}

impl fmt::Debug for ReportFunction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ReportFunction({})", self.spec.name)
    }
}

impl ReportFunction {
    pub(crate) fn of<R: Report>(
        engine: &Arc<Engine>,
        spec: FunctionSpec,
        body: Body,
    ) -> Arc<dyn TableFunction> {
        Arc::new(Self {
            engine: Arc::clone(engine),
            spec,
            schema: R::schema(),
            dry: None,
            body,
        })
    }

    /// A function that answers with a report of `D` where its argument `dry_run` is true.
    pub(crate) fn with_dry_run<R: Report, D: Report>(
        engine: &Arc<Engine>,
        spec: FunctionSpec,
        body: Body,
    ) -> Arc<dyn TableFunction> {
        Arc::new(Self {
            engine: Arc::clone(engine),
            spec,
            schema: R::schema(),
            dry: Some(D::schema()),
            body,
        })
    }
}

#[async_trait]
impl TableFunction for ReportFunction {
    fn spec(&self) -> &FunctionSpec {
        &self.spec
    }

    fn schema(&self, args: &PlannedArgs<'_>, _metadata: &Arc<Metadata>) -> Result<SchemaRef> {
        let dry = matches!(args.get("dry_run"), Some(ArgValue::Bool(true)));
        let dry = self.dry.as_ref().filter(|_| dry);
        Ok(Arc::clone(dry.unwrap_or(&self.schema)))
    }

    async fn run(
        self: Arc<Self>,
        args: BoundArgs,
        context: RunContext,
    ) -> Result<Vec<RecordBatch>> {
        let run = Run::of_statement(Arc::clone(&self.engine), &context);
        (self.body)(Call { run, args }).await
    }
}

/// All rows of a report as the answer of a call.
pub(crate) fn answer<R: Report>(rows: &[R]) -> Result<Vec<RecordBatch>> {
    Ok(vec![R::batch(rows)?])
}

/// A function of the documentation that is not built yet. It plans, so that a statement fails with
/// the typed error and not as one with an unknown name.
#[derive(Debug)]
pub(crate) struct NotYet(FunctionSpec);

impl NotYet {
    pub(crate) fn of(name: &'static str, args: Vec<ArgSpec>) -> Arc<dyn TableFunction> {
        Arc::new(Self(FunctionSpec::read(name, args)))
    }

    fn refusal(&self) -> Error {
        Error::NotYetSupported {
            feature: format!("{}()", self.0.name),
        }
    }
}

#[async_trait]
impl TableFunction for NotYet {
    fn spec(&self) -> &FunctionSpec {
        &self.0
    }

    fn schema(&self, _args: &PlannedArgs<'_>, _metadata: &Arc<Metadata>) -> Result<SchemaRef> {
        Err(self.refusal())
    }

    async fn run(self: Arc<Self>, _: BoundArgs, _: RunContext) -> Result<Vec<RecordBatch>> {
        Err(self.refusal())
    }
}
