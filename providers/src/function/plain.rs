//! The plain table-function path, for hosts without a relation planner: positional arguments.

use std::sync::Arc;

use datafusion::catalog::{TableFunctionArgs, TableFunctionImpl};
use datafusion::datasource::TableProvider;
use datafusion::error::Result;
use datafusion::logical_expr::Expr;
use stratagraph::digest::Hasher;

use super::TableFunction;
use super::args::ArgSpec;
use super::provider::{FunctionProvider, PlannedArg};
use super::value::ArgValue;
use crate::error::bad_argument;
use crate::metadata::Metadata;

/// A function for `SessionContext::register_udtf`.
#[derive(Debug)]
pub struct PlainFunction {
    function: Arc<dyn TableFunction>,
    metadata: Arc<Metadata>,
}

impl PlainFunction {
    /// Makes a function callable by position.
    pub fn new(function: Arc<dyn TableFunction>, metadata: Arc<Metadata>) -> Self {
        Self { function, metadata }
    }

    fn argument(&self, spec: &ArgSpec, expr: &Expr) -> Result<PlannedArg> {
        let name = self.function.spec().name;
        let value = match expr {
            Expr::Literal(value, _) => spec.check(name, value)?,
            Expr::Column(column) if spec.arg_type.takes_identifier() => {
                ArgValue::Text(column.flat_name())
            }
            Expr::ScalarSubquery(subquery) if spec.arg_type.takes_subquery() => {
                ArgValue::Plan(Arc::clone(&subquery.subquery))
            }
            Expr::Placeholder(_) => {
                let reason = "a parameter needs the relation planner; write the value";
                return Err(bad_argument(name, spec.name, reason));
            }
            _ => return Err(spec.expects(name)),
        };
        Ok(PlannedArg::Value(value))
    }
}

impl TableFunctionImpl for PlainFunction {
    fn call_with_args(&self, args: TableFunctionArgs) -> Result<Arc<dyn TableProvider>> {
        let spec = self.function.spec();
        let exprs = args.exprs();
        if exprs.len() > spec.args.len() {
            let reason = format!("{} arguments, at most {}", exprs.len(), spec.args.len());
            return Err(bad_argument(spec.name, "$", reason));
        }
        let mut planned = Vec::with_capacity(spec.args.len());
        let mut hasher = Hasher::new("stratagraph.plan.call.v1");
        for (i, arg) in spec.args.iter().enumerate() {
            planned.push(match exprs.get(i) {
                Some(expr) => {
                    hasher.part(format!("{expr:?}").as_bytes());
                    self.argument(arg, expr)?
                }
                None => PlannedArg::Missing,
            });
        }
        let mark = hasher.finish().to_string();
        let provider = FunctionProvider::new(
            Arc::clone(&self.function),
            Arc::clone(&self.metadata),
            planned,
        )?;
        Ok(Arc::new(provider.marked(&mark[..8])))
    }
}
