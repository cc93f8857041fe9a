//! A call of a table function as a DataFusion table.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use async_trait::async_trait;
use datafusion::catalog::Session;
use datafusion::common::ScalarValue;
use datafusion::common::tree_node::TreeNode;
use datafusion::datasource::{TableProvider, TableType};
use datafusion::error::Result;
use datafusion::logical_expr::{BinaryExpr, Expr, Operator, TableProviderFilterPushDown};
use datafusion::physical_expr::projection::ProjectionExprs;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::projection::ProjectionExec;

use super::args::BoundArgs;
use super::exec::{Call, VerbExec};
use super::value::ArgValue;
use super::{FunctionSpec, PlannedArgs, RunContext, TableFunction, Wanted};
use crate::error::{ResultExt, bad_argument};
use crate::metadata::Metadata;
use crate::pin::{StatementPin, pin_plan, seal_plan};
use crate::statement::key_of;

/// Calls of this process; a number identifies the copies of one call.
static CALLS: AtomicU64 = AtomicU64::new(0);

/// What a call says about one argument.
#[derive(Debug, Clone)]
pub(crate) enum PlannedArg {
    /// Nothing.
    Missing,
    /// Its value.
    Value(ArgValue),
    /// A parameter: its value arrives as a filter on a hidden column.
    Parameter,
}

/// What a filter says about the parameters of a call.
enum Binding {
    /// Nothing.
    None,
    /// The value of an argument, as text.
    Value(usize, Option<String>),
    /// That a parameter has no value yet.
    Unbound,
}

/// What the names of hidden columns begin with.
pub(crate) const HIDDEN: &str = "__stratagraph_";

/// The hidden column through which a parameter arrives.
pub(crate) fn hidden_name(argument: &str) -> String {
    format!("{HIDDEN}{argument}")
}

/// Every parameter arrives as text, so that no cast cuts a value on the way.
pub(crate) fn hidden_type() -> DataType {
    DataType::Utf8
}

/// One call of a table function.
#[derive(Debug, Clone)]
pub struct FunctionProvider {
    function: Arc<dyn TableFunction>,
    metadata: Arc<Metadata>,
    args: Vec<PlannedArg>,
    /// The answer's columns, then the hidden ones.
    schema: SchemaRef,
    visible: usize,
    call: u64,
    pin: Option<Arc<StatementPin>>,
    sealed: bool,
}

impl FunctionProvider {
    /// A call with one entry an argument of the declaration.
    pub(crate) fn new(
        function: Arc<dyn TableFunction>,
        metadata: Arc<Metadata>,
        args: Vec<PlannedArg>,
    ) -> Result<Self> {
        let spec = function.spec();
        for (arg, value) in spec.args.iter().zip(&args) {
            match value {
                PlannedArg::Missing if arg.required => {
                    return Err(bad_argument(spec.name, arg.name, "is required"));
                }
                PlannedArg::Parameter if arg.literal => {
                    let reason = "shapes the answer, so it cannot be a parameter; write the value";
                    return Err(bad_argument(spec.name, arg.name, reason));
                }
                _ => {}
            }
        }
        let known = PlannedArgs {
            spec,
            values: &args,
        };
        let answer = function.schema(&known, &metadata).df()?;
        let schema = with_hidden(spec, &args, &answer);
        Ok(Self {
            visible: answer.fields().len(),
            schema,
            call: CALLS.fetch_add(1, Ordering::Relaxed),
            function,
            metadata,
            args,
            pin: None,
            sealed: false,
        })
    }

    /// The same call with `metadata` on its columns: two calls must not look equal to an optimizer
    /// that compares scans by name and schema.
    pub(crate) fn marked(mut self, mark: &str) -> Self {
        let fields = self.schema.fields().iter().map(|field| {
            let mut metadata = field.metadata().clone();
            metadata.insert("stratagraph.call".to_owned(), mark.to_owned());
            field.as_ref().clone().with_metadata(metadata)
        });
        self.schema = Arc::new(Schema::new(fields.collect::<Vec<_>>()));
        self
    }

    /// The same call once more, with answers of its own.
    pub(crate) fn again(&self) -> Self {
        Self {
            call: CALLS.fetch_add(1, Ordering::Relaxed),
            ..self.clone()
        }
    }

    /// The declaration of its function.
    pub(crate) fn spec(&self) -> &FunctionSpec {
        self.function.spec()
    }

    /// Number of columns that SQL sees.
    pub(crate) fn visible(&self) -> usize {
        self.visible
    }

    /// A copy that reads the snapshot of `pin`, its subqueries too; `None` if its pin stays.
    pub(crate) fn pinned(&self, pin: &Arc<StatementPin>) -> Result<Option<Self>> {
        if self.sealed {
            return Ok(None);
        }
        let mut copy = self.clone();
        copy.pin = Some(Arc::clone(pin));
        for arg in &mut copy.args {
            if let PlannedArg::Value(ArgValue::Plan(plan)) = arg {
                *plan = Arc::new(pin_plan(plan.as_ref().clone(), pin)?);
            }
        }
        Ok(Some(copy))
    }

    pub(crate) fn sealed(mut self) -> Self {
        self.sealed = true;
        self
    }

    /// The argument behind a hidden column.
    fn hidden_argument(&self, column: &str) -> Option<usize> {
        let args = &self.function.spec().args;
        args.iter().position(|a| hidden_name(a.name) == column)
    }

    /// What a filter says about a parameter.
    fn binding(&self, filter: &Expr) -> Result<Binding> {
        let hidden = |expr: &Expr| match strip_cast(expr) {
            Expr::Column(column) => self.hidden_argument(&column.name),
            _ => None,
        };
        let found = match filter {
            Expr::IsNull(inner) => hidden(inner).map(|argument| (argument, None)),
            Expr::BinaryExpr(BinaryExpr {
                left,
                op: Operator::Eq | Operator::IsNotDistinctFrom,
                right,
            }) => {
                let (argument, value) = match (hidden(left), hidden(right)) {
                    (Some(argument), None) => (Some(argument), right),
                    (None, Some(argument)) => (Some(argument), left),
                    _ => (None, right),
                };
                argument.and_then(|argument| Some((argument, text_of(value)?)))
            }
            _ => None,
        };
        if let Some((argument, text)) = found {
            return Ok(Binding::Value(argument, text));
        }
        if !self.mentions_hidden(filter)? {
            return Ok(Binding::None);
        }
        // PREPARE optimises a plan whose parameters have no value yet.
        if filter.exists(|node| Ok(matches!(node, Expr::Placeholder(_))))? {
            return Ok(Binding::Unbound);
        }
        let name = self.function.spec().name;
        let reason = format!("{filter} is not a constant");
        Err(bad_argument(name, "$", reason))
    }

    fn mentions_hidden(&self, filter: &Expr) -> Result<bool> {
        filter.exists(|node| {
            Ok(matches!(node, Expr::Column(c) if self.hidden_argument(&c.name).is_some()))
        })
    }

    /// All arguments, with the parameters that the filters bind and the defaults.
    fn bind(&self, filters: &[Expr]) -> Result<BoundArgs> {
        let spec = self.function.spec();
        let mut bound: Vec<Option<ArgValue>> = vec![None; spec.args.len()];
        for filter in filters {
            let Binding::Value(argument, text) = self.binding(filter)? else {
                continue;
            };
            let arg = &spec.args[argument];
            let value = arg.check_text(spec.name, text.as_deref())?;
            if bound[argument]
                .as_ref()
                .is_some_and(|known| *known != value)
            {
                return Err(bad_argument(spec.name, arg.name, "is bound twice"));
            }
            bound[argument] = Some(value);
        }
        let mut values = Vec::with_capacity(spec.args.len());
        for ((arg, planned), bound) in spec.args.iter().zip(&self.args).zip(bound) {
            let value = match planned {
                // It is planned inside this statement later on, and must keep its pin then.
                PlannedArg::Value(ArgValue::Plan(plan)) => {
                    ArgValue::Plan(Arc::new(seal_plan(plan.as_ref().clone())?))
                }
                PlannedArg::Value(value) => value.clone(),
                PlannedArg::Missing => ArgValue::Null,
                PlannedArg::Parameter => bound.ok_or_else(|| {
                    let reason = "its parameter has no value; bind it before you run the statement";
                    bad_argument(spec.name, arg.name, reason)
                })?,
            };
            let given = Some(value).filter(|value| !value.is_null());
            let value = given.or_else(|| arg.default.clone());
            values.push((arg.name, value.unwrap_or(ArgValue::Null)));
        }
        Ok(BoundArgs {
            function: spec.name,
            values,
        })
    }

    fn answer_schema(&self) -> SchemaRef {
        let fields = self.schema.fields().iter().take(self.visible).cloned();
        Arc::new(Schema::new(fields.collect::<Vec<_>>()))
    }
}

fn with_hidden(spec: &FunctionSpec, args: &[PlannedArg], answer: &Schema) -> SchemaRef {
    let mut fields: Vec<_> = answer.fields().iter().cloned().collect();
    for (arg, value) in spec.args.iter().zip(args) {
        if matches!(value, PlannedArg::Parameter) {
            let name = hidden_name(arg.name);
            fields.push(Arc::new(Field::new(name, hidden_type(), true)));
        }
    }
    Arc::new(Schema::new(fields))
}

fn strip_cast(expr: &Expr) -> &Expr {
    match expr {
        Expr::Cast(cast) => strip_cast(&cast.expr),
        Expr::TryCast(cast) => strip_cast(&cast.expr),
        other => other,
    }
}

/// The text of a literal, NULL included; `None` for anything else.
fn text_of(expr: &Expr) -> Option<Option<String>> {
    let Expr::Literal(value, _) = strip_cast(expr) else {
        return None;
    };
    match value.cast_to(&DataType::Utf8) {
        Ok(ScalarValue::Utf8(text)) => Some(text),
        _ => None,
    }
}

#[async_trait]
impl TableProvider for FunctionProvider {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }

    fn table_type(&self) -> TableType {
        TableType::Temporary
    }

    fn supports_filters_pushdown(
        &self,
        filters: &[&Expr],
    ) -> Result<Vec<TableProviderFilterPushDown>> {
        let claim = |filter: &&Expr| {
            Ok(match self.binding(filter)? {
                Binding::Value(..) | Binding::Unbound => TableProviderFilterPushDown::Exact,
                Binding::None if self.function.owns_filters() && is_plain(filter)? => {
                    TableProviderFilterPushDown::Exact
                }
                Binding::None => TableProviderFilterPushDown::Unsupported,
            })
        };
        filters.iter().map(claim).collect()
    }

    async fn scan(
        &self,
        state: &dyn Session,
        projection: Option<&Vec<usize>>,
        filters: &[Expr],
        limit: Option<usize>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let args = self.bind(filters)?;
        let projection = projection.cloned();
        if let Some(columns) = &projection
            && columns.iter().any(|column| *column >= self.visible)
        {
            let reason = "its value did not reach the call: columns of other tables need LATERAL, \
                          parameters the optimizer";
            return Err(bad_argument(args.function, "$", reason));
        }
        let pin = match &self.pin {
            Some(pin) => Arc::clone(pin),
            None => self.metadata.fallback_pin(key_of(state)),
        };
        let context = RunContext::of(state, pin, &self.metadata);
        let schema = self.answer_schema();
        if self.function.owns_filters() {
            let mut own = Vec::new();
            for filter in filters {
                if matches!(self.binding(filter)?, Binding::None) {
                    own.push(filter.clone());
                }
            }
            let wanted = Wanted {
                answer: &schema,
                projection: projection.as_deref(),
                filters: &own,
                limit,
            };
            let plan = self.function.scan(&args, state, wanted, &context).await;
            return marked_as(plan.df()?, projection.as_deref(), &schema);
        }
        if let Some(plan) = self.function.plan(&args, state, &context).await.df()? {
            return project(plan, projection, &schema);
        }
        let result = context.pin.shared(self.call);
        let call = Call {
            function: Arc::clone(&self.function),
            args,
            context,
            schema,
        };
        Ok(Arc::new(VerbExec::new(Arc::new(call), result, projection)?))
    }
}

/// A plan of the asked columns, with the marks that the planned fields carry.
fn marked_as(
    plan: Arc<dyn ExecutionPlan>,
    columns: Option<&[usize]>,
    answer: &SchemaRef,
) -> Result<Arc<dyn ExecutionPlan>> {
    if answer.fields().iter().all(|f| f.metadata().is_empty()) {
        return Ok(plan);
    }
    let shown = match columns {
        Some(columns) => Arc::new(answer.project(columns)?),
        None => Arc::clone(answer),
    };
    project(plan, None, &shown)
}

/// Whether a condition is about the answer's own columns and the same however often it is asked.
pub(crate) fn is_plain(filter: &Expr) -> Result<bool> {
    let odd = filter.exists(|node| {
        let odd = matches!(
            node,
            Expr::OuterReferenceColumn(..)
                | Expr::Placeholder(_)
                | Expr::Exists(_)
                | Expr::InSubquery(_)
                | Expr::ScalarSubquery(_)
        );
        Ok(odd)
    })?;
    Ok(!odd && !filter.is_volatile())
}

/// The asked columns of a streamed answer, under the planned fields.
pub(crate) fn project(
    plan: Arc<dyn ExecutionPlan>,
    projection: Option<Vec<usize>>,
    answer: &SchemaRef,
) -> Result<Arc<dyn ExecutionPlan>> {
    if projection.is_none() && plan.schema().fields() == answer.fields() {
        return Ok(plan);
    }
    let columns = projection.unwrap_or_else(|| (0..answer.fields().len()).collect());
    let shown = answer.project(&columns)?;
    let exprs = ProjectionExprs::from_indices(&columns, &plan.schema());
    let exprs = exprs.iter().cloned().collect::<Vec<_>>();
    let projected = ProjectionExec::try_new_with_schema_metadata(exprs, plan, &shown)?;
    Ok(Arc::new(projected))
}
