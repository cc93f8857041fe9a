//! `embed` and `embed_checked` with a model behind a server. Planning puts these functions where SQL
//! calls the others; nothing calls them by name.

use std::sync::Arc;

use arrow::array::{Array, StringArray};
use arrow::datatypes::{DataType, FieldRef};
use async_trait::async_trait;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::error::Result;
use datafusion::logical_expr::async_udf::{AsyncScalarUDF, AsyncScalarUDFImpl};
use datafusion::logical_expr::{
    ColumnarValue, Expr, LogicalPlan, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF,
    ScalarUDFImpl, Signature, Volatility,
};
use datafusion::optimizer::{OptimizerConfig, OptimizerRule};
use futures::{StreamExt, TryStreamExt, stream};
use stratagraph::embed::{Embedded, EmbeddedBuilder, Embedder, Handshake, Role, batches};
use stratagraph_providers::{ResultExt, to_datafusion};

use super::embed::no_type;
use super::embed_function::{Function, Shape, cannot_wait, constants};
use super::embed_rows::Rows;
use crate::embedding;

/// Batches of one call that are under way at a time.
const CONCURRENT_BATCHES: usize = 4;

const VECTOR: &str = "embed_remote";
const CHECKED: &str = "embed_checked_remote";

#[derive(Debug, PartialEq, Eq, Hash)]
pub(super) struct EmbedRemote {
    function: Function,
    signature: Signature,
}

impl EmbedRemote {
    pub(super) fn udf(function: Function) -> ScalarUDF {
        // Volatile: it is not evaluated at planning, and filters on it are not pushed to where they
        // would call the server a second time.
        let signature = Signature::variadic_any(Volatility::Volatile);
        let function = Self {
            function,
            signature,
        };
        AsyncScalarUDF::new(Arc::new(function)).into_scalar_udf()
    }

    async fn evaluate(&self, args: ScalarFunctionArgs) -> stratagraph::Result<ColumnarValue> {
        let function = &self.function;
        let call = function.call(&constants(&args.args))?;
        let rows = Rows::of_argument(&args.args, args.number_rows)?;
        let engine = &function.engine;
        let (_, model) = engine.model(&call.model, Handshake::Known).await?;
        function.check_planned(model.as_ref(), &args.return_field)?;
        let answer = embed_all(&model, call.role, &rows.distinct).await?;
        // DataFusion takes a scalar for one row here, whatever the number of rows.
        let answer = rows.answer(function, model.as_ref(), &answer)?;
        Ok(ColumnarValue::Array(answer))
    }
}

async fn embed_all(
    model: &Arc<dyn Embedder>,
    role: Role,
    texts: &StringArray,
) -> stratagraph::Result<Embedded> {
    let views: Vec<Option<&str>> = texts.iter().collect();
    let parts: Vec<StringArray> = batches(&views, model.limits())
        .map(|range| texts.slice(range.start, range.len()))
        .collect();
    let calls = parts.into_iter();
    let calls = calls.map(|part| embedding::embed(Arc::clone(model), role, part));
    let mut answers = stream::iter(calls).buffered(CONCURRENT_BATCHES);
    let mut all = EmbeddedBuilder::new(model.spec(), model.dimensions(), texts.len())?;
    while let Some(answer) = answers.try_next().await? {
        all.append(&answer)?;
    }
    all.finish()
}

impl ScalarUDFImpl for EmbedRemote {
    fn name(&self) -> &str {
        match self.function.shape {
            Shape::Vector => VECTOR,
            Shape::Checked => CHECKED,
        }
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _arg_types: &[DataType]) -> Result<DataType> {
        Err(no_type())
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs) -> Result<FieldRef> {
        self.function.field(&args).df()
    }

    fn invoke_with_args(&self, _args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        Err(to_datafusion(self.function.cannot_wait()))
    }
}

#[async_trait]
impl AsyncScalarUDFImpl for EmbedRemote {
    async fn invoke_async_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        self.evaluate(args).await.df()
    }
}

/// Refuses calls of servers where DataFusion 55.2 does not wait for them: it plans them above the
/// input of a projection and of a filter only, and mixes up those of two aggregates.
#[derive(Debug)]
pub(crate) struct RemoteCalls;

impl OptimizerRule for RemoteCalls {
    fn name(&self) -> &str {
        "stratagraph_remote_calls"
    }

    fn rewrite(
        &self,
        plan: LogicalPlan,
        _config: &dyn OptimizerConfig,
    ) -> Result<Transformed<LogicalPlan>> {
        plan.apply_with_subqueries(|node| {
            if !matches!(node, LogicalPlan::Projection(_) | LogicalPlan::Filter(_)) {
                // VALUES are evaluated at planning, where subqueries have no value yet.
                refuse(node, matches!(node, LogicalPlan::Values(_)))?;
            }
            Ok(TreeNodeRecursion::Continue)
        })?;
        Ok(Transformed::no(plan))
    }
}

/// Refuses calls in the expressions of a node, and where it says so in their subqueries.
fn refuse(node: &LogicalPlan, with_subqueries: bool) -> Result<()> {
    let look = |part: &Expr| {
        match part {
            Expr::ScalarFunction(call) if call.func.as_async().is_some() => {
                match call.func.name() {
                    VECTOR => return Err(to_datafusion(cannot_wait("embed"))),
                    CHECKED => return Err(to_datafusion(cannot_wait("embed_checked"))),
                    _ => {}
                }
            }
            Expr::ScalarSubquery(once) if with_subqueries => refuse(&once.subquery, true)?,
            _ => {}
        }
        Ok(TreeNodeRecursion::Continue)
    };
    node.apply_expressions(|expr| expr.apply(look)).map(drop)
}
