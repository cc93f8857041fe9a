//! `embed` and `embed_checked` as SQL calls them: evaluated at once with a model of this process,
//! rewritten to wait for one behind a server.
//!
//! ```text
//! embed('text', local model)    ──constant folding──► a literal vector
//! embed(column, local model)    ──────────────────► evaluated batch by batch
//! embed('text', remote model)   ──simplify──► (SELECT embed_remote('text', ...)), once a statement
//! embed(column, remote model)   ──simplify──► embed_remote(column, ...), an AsyncFuncExec
//! ```

use std::sync::Arc;

use arrow::array::Array;
use arrow::datatypes::{DataType, FieldRef};
use datafusion::common::ScalarValue;
use datafusion::common::config::ConfigOptions;
use datafusion::error::{DataFusionError, Result};
use datafusion::logical_expr::simplify::{ExprSimplifyResult, SimplifyContext};
use datafusion::logical_expr::{
    ColumnarValue, Expr, LogicalPlanBuilder, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF,
    ScalarUDFImpl, Signature, Volatility, scalar_subquery,
};
use stratagraph::embed::{EmbeddedBuilder, embed_checked_sync};
use stratagraph_providers::{ResultExt, Settings};

use super::embed_function::{Function, Shape, constants, literals};
use super::embed_remote::EmbedRemote;
use super::embed_rows::Rows;
use crate::engine::Engine;

/// The two functions for a session with these settings.
pub(super) fn all(engine: &Arc<Engine>, settings: &Settings) -> [ScalarUDF; 2] {
    [Shape::Vector, Shape::Checked].map(|shape| {
        Embed::udf(Function {
            engine: Arc::clone(engine),
            shape,
            default_model: settings.default_model.clone(),
        })
    })
}

#[derive(Debug, PartialEq, Eq, Hash)]
pub(super) struct Embed {
    function: Function,
    signature: Signature,
}

impl Embed {
    fn udf(function: Function) -> ScalarUDF {
        // Of a local model, a vector is a function of the text. A call of any other does not stay.
        let signature = Signature::variadic_any(Volatility::Immutable);
        ScalarUDF::new_from_impl(Self {
            function,
            signature,
        })
    }

    fn evaluate(&self, args: ScalarFunctionArgs) -> stratagraph::Result<ColumnarValue> {
        let function = &self.function;
        let call = function.call(&constants(&args.args))?;
        let is_constant = matches!(args.args.first(), Some(ColumnarValue::Scalar(_)));
        let number_rows = if is_constant { 1 } else { args.number_rows };
        let rows = Rows::of_argument(&args.args, number_rows)?;
        let model = function.known(&call)?;
        let model = model.ok_or_else(|| function.cannot_wait())?;
        function.check_planned(model.as_ref(), &args.return_field)?;
        let answer = if rows.distinct.is_empty() {
            EmbeddedBuilder::new(model.spec(), model.dimensions(), 0)?.finish()?
        } else {
            let texts: Vec<Option<&str>> = rows.distinct.iter().collect();
            embed_checked_sync(model.as_ref(), call.role, &texts)
                .ok_or_else(|| function.cannot_wait())??
        };
        let answer = rows.answer(function, model.as_ref(), &answer)?;
        if is_constant {
            let value = ScalarValue::try_from_array(&answer, 0);
            return Ok(ColumnarValue::Scalar(
                value.map_err(stratagraph_providers::from_datafusion)?,
            ));
        }
        Ok(ColumnarValue::Array(answer))
    }
}

impl ScalarUDFImpl for Embed {
    fn name(&self) -> &str {
        self.function.name()
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

    /// DataFusion calls this after every SET, for the functions of that session alone. Plans keep
    /// the function that they were made with.
    fn with_updated_config(&self, config: &ConfigOptions) -> Option<ScalarUDF> {
        let default_model = Settings::of(config).default_model;
        if default_model == self.function.default_model {
            return None;
        }
        Some(Self::udf(Function {
            default_model,
            ..self.function.clone()
        }))
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        self.evaluate(args).df()
    }

    fn simplify(&self, args: Vec<Expr>, info: &SimplifyContext) -> Result<ExprSimplifyResult> {
        let call = self.function.call(&literals(&args)).df()?;
        let model = self.function.known(&call).df()?;
        if model.is_some_and(|model| model.sync().is_some()) {
            return Ok(ExprSimplifyResult::Original(args));
        }
        let is_constant = args.iter().all(|arg| matches!(arg, Expr::Literal(..)));
        let call = EmbedRemote::udf(self.function.clone()).call(args);
        let optimizer = &info.config_options().optimizer;
        if !is_constant || !optimizer.enable_physical_uncorrelated_scalar_subquery {
            return Ok(ExprSimplifyResult::Simplified(call));
        }
        // A subquery without columns runs once a statement, and its value can stand anywhere.
        let once = LogicalPlanBuilder::empty(true).project([call])?.build()?;
        let once = scalar_subquery(Arc::new(once));
        Ok(ExprSimplifyResult::Simplified(once))
    }
}

/// The type of a call follows from its arguments, not from their types.
pub(super) fn no_type() -> DataFusionError {
    DataFusionError::Internal("the type of embed follows from its model".to_owned())
}
