//! A call of a table function: arguments by name or position, identifiers, subqueries, parameters.

use std::sync::Arc;

use arrow::datatypes::{DataType, Field};
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::common::{DFSchema, TableReference};
use datafusion::datasource::provider_as_source;
use datafusion::error::Result;
use datafusion::logical_expr::expr::Placeholder;
use datafusion::logical_expr::planner::RelationPlannerContext;
use datafusion::logical_expr::simplify::SimplifyContext;
use datafusion::logical_expr::{
    Expr, LogicalPlan, LogicalPlanBuilder, Operator, binary_expr, cast, col,
};
use datafusion::optimizer::simplify_expressions::ExprSimplifier;
use datafusion::sql::sqlparser::ast::{
    BinaryOperator, Expr as SqlExpr, FunctionArg, FunctionArgExpr, Ident, TableFactor,
};

use super::scan_name;
use crate::error::bad_argument;
use crate::function::{
    ArgSpec, ArgType, ArgValue, FunctionProvider, PlannedArg, TableFunction, hidden_name,
    hidden_type,
};
use crate::metadata::Metadata;

/// Plans one call.
pub(super) struct CallPlanner<'a> {
    pub(super) function: &'a Arc<dyn TableFunction>,
    pub(super) metadata: &'a Arc<Metadata>,
    pub(super) context: &'a mut dyn RelationPlannerContext,
}

/// A call's argument after planning: its value, the filter that brings a parameter, and its text.
struct Planned {
    value: PlannedArg,
    filter: Option<Expr>,
    text: String,
}

impl CallPlanner<'_> {
    fn name(&self) -> &'static str {
        self.function.spec().name
    }

    pub(super) fn plan(mut self, args: Vec<FunctionArg>) -> Result<LogicalPlan> {
        let function = Arc::clone(self.function);
        let declared = &function.spec().args;
        let mut given: Vec<Option<SqlExpr>> = vec![None; declared.len()];
        let mut named = false;
        for (i, arg) in args.into_iter().enumerate() {
            let (name, expr) = self.split(arg)?;
            let position = match name {
                Some(name) => {
                    named = true;
                    self.position(&name)?
                }
                None if named => {
                    let reason = "a positional argument cannot follow a named one";
                    return Err(bad_argument(self.name(), &expr.to_string(), reason));
                }
                None => i,
            };
            let Some(slot) = given.get_mut(position) else {
                let reason = format!("there are at most {} arguments", declared.len());
                return Err(bad_argument(self.name(), &expr.to_string(), reason));
            };
            if slot.replace(expr).is_some() {
                let name = declared[position].name;
                return Err(bad_argument(self.name(), name, "is given twice"));
            }
        }
        let mut planned = Vec::with_capacity(declared.len());
        for (arg, expr) in declared.iter().zip(given) {
            planned.push(match expr {
                Some(expr) => self.argument(arg, expr)?,
                None => Planned {
                    value: PlannedArg::Missing,
                    filter: None,
                    text: String::new(),
                },
            });
        }
        self.build(planned)
    }

    /// The name and the expression of an argument.
    fn split(&self, arg: FunctionArg) -> Result<(Option<String>, SqlExpr)> {
        let (name, value) = match arg {
            FunctionArg::Named { name, arg, .. } => (Some(name.value), arg),
            FunctionArg::ExprNamed {
                name: SqlExpr::Identifier(name),
                arg,
                ..
            } => (Some(name.value), arg),
            FunctionArg::ExprNamed { name, .. } => {
                let reason = "an argument's name is an identifier";
                return Err(bad_argument(self.name(), &name.to_string(), reason));
            }
            FunctionArg::Unnamed(arg) => (None, arg),
        };
        let FunctionArgExpr::Expr(expr) = value else {
            return Err(bad_argument(self.name(), "*", "is not an argument"));
        };
        if name.is_some() {
            return Ok((name, expr));
        }
        // Dialects without `name = value` arguments parse a comparison.
        match expr {
            SqlExpr::BinaryOp {
                left,
                op: BinaryOperator::Eq,
                right,
            } => match left.as_ref() {
                SqlExpr::Identifier(ident) => Ok((Some(ident.value.clone()), *right)),
                _ => {
                    let text = format!("{left} = {right}");
                    Err(bad_argument(self.name(), &text, "is not an argument"))
                }
            },
            other => Ok((None, other)),
        }
    }

    fn position(&self, name: &str) -> Result<usize> {
        let declared = &self.function.spec().args;
        let found = declared
            .iter()
            .position(|a| a.name.eq_ignore_ascii_case(name));
        found.ok_or_else(|| {
            let names: Vec<_> = declared.iter().map(|a| a.name).collect();
            let reason = format!("there is no such argument; there are {}", names.join(", "));
            bad_argument(self.name(), name, reason)
        })
    }

    fn argument(&mut self, arg: &ArgSpec, expr: SqlExpr) -> Result<Planned> {
        let text = expr.to_string();
        let known = |value: ArgValue, text: String| Planned {
            value: PlannedArg::Value(value),
            filter: None,
            text,
        };
        match expr {
            SqlExpr::Identifier(ident) if arg.arg_type.takes_identifier() => {
                let name = self.context.normalize_ident(ident);
                let value = self.name_value(arg, name.clone());
                Ok(known(value, format!("{name:?}")))
            }
            SqlExpr::CompoundIdentifier(idents) if arg.arg_type.takes_identifier() => {
                let fold = |ident: Ident| self.context.normalize_ident(ident);
                let name = idents.into_iter().map(fold).collect::<Vec<_>>().join(".");
                let value = self.name_value(arg, name.clone());
                Ok(known(value, format!("{name:?}")))
            }
            SqlExpr::Subquery(query) if arg.arg_type.takes_subquery() => {
                let plan = self.context.plan(TableFactor::Derived {
                    lateral: false,
                    subquery: query,
                    alias: None,
                    sample: None,
                })?;
                // Equal texts can mean different things in different scopes.
                let text = format!("{text}\0{}", plan.display_indent_schema());
                Ok(known(ArgValue::Plan(Arc::new(plan)), text))
            }
            expr => self.constant(arg, expr, text),
        }
    }

    fn name_value(&self, arg: &ArgSpec, name: String) -> ArgValue {
        match arg.arg_type {
            ArgType::Names => ArgValue::Names(vec![name]),
            _ => ArgValue::Text(name),
        }
    }

    /// A constant, or an expression of parameters, or after LATERAL of columns of the rows before it.
    fn constant(&mut self, arg: &ArgSpec, expr: SqlExpr, text: String) -> Result<Planned> {
        let empty = DFSchema::empty();
        let expr = match expr {
            SqlExpr::Subquery(_) => return Err(arg.expects(self.name())),
            SqlExpr::Identifier(_) | SqlExpr::CompoundIdentifier(_) => {
                let column = self.context.sql_to_expr(expr, &empty);
                column.map_err(|_| arg.expects(self.name()))?
            }
            expr => self.context.sql_to_expr(expr, &empty)?,
        };
        let arrives = |e: &Expr| matches!(e, Expr::Placeholder(_) | Expr::OuterReferenceColumn(..));
        if expr.exists(|e| Ok(arrives(e)))? {
            let filter = Some(parameter(arg, expr)?);
            return Ok(Planned {
                value: PlannedArg::Parameter,
                filter,
                text,
            });
        }
        let options = Arc::new(self.context.context_provider().options().clone());
        let simplify = SimplifyContext::builder().with_config_options(options);
        let simplifier = ExprSimplifier::new(simplify.with_current_time().build());
        let folded = simplifier
            .coerce(expr, &empty)
            .and_then(|expr| simplifier.simplify(expr))?;
        let Expr::Literal(value, _) = &folded else {
            let reason = "must be a constant; columns of other tables cannot be used here";
            return Err(bad_argument(self.name(), arg.name, reason));
        };
        Ok(Planned {
            value: PlannedArg::Value(arg.check(self.name(), value)?),
            filter: None,
            text: format!("{value:?}"),
        })
    }

    fn build(self, planned: Vec<Planned>) -> Result<LogicalPlan> {
        let name = self.name();
        let declared = &self.function.spec().args;
        let (mut values, mut filters, mut texts) = (Vec::new(), Vec::new(), Vec::new());
        for (arg, planned) in declared.iter().zip(planned) {
            if !matches!(planned.value, PlannedArg::Missing) {
                texts.push(format!("{}={}", arg.name, planned.text));
            }
            values.push(planned.value);
            filters.extend(planned.filter);
        }
        let (function, metadata) = (Arc::clone(self.function), Arc::clone(self.metadata));
        let provider = FunctionProvider::new(function, metadata, values)?;
        let visible = provider.visible();
        let scan = TableReference::bare(scan_name(name, &texts));
        let mut plan =
            LogicalPlanBuilder::scan(scan, provider_as_source(Arc::new(provider)), None)?;
        let has_parameters = !filters.is_empty();
        for filter in filters {
            plan = plan.filter(filter)?;
        }
        if has_parameters {
            let shown = (0..visible).map(|i| {
                let (table, field) = plan.schema().qualified_field(i);
                Expr::Column((table, field).into())
            });
            let shown: Vec<_> = shown.collect();
            plan = plan.project(shown)?;
        }
        plan.alias(name)?.build()
    }
}

/// The filter that brings a parameter to the call. NULL must arrive too, so it is no equality.
fn parameter(arg: &ArgSpec, expr: Expr) -> Result<Expr> {
    let hidden = hidden_name(arg.name);
    let field = Arc::new(Field::new(&hidden, hidden_type(), true));
    // A parameter without a declared type takes the column's, so that PREPARE can be run without.
    let typed = expr.transform_up(|node| match node {
        Expr::Placeholder(p) if p.field.is_none() => {
            let typed = Placeholder::new_with_field(p.id, Some(Arc::clone(&field)));
            Ok(Transformed::yes(Expr::Placeholder(typed)))
        }
        other => Ok(Transformed::no(other)),
    });
    let value = match typed.data()? {
        // Arrow makes no text of one.
        Expr::OuterReferenceColumn(field, column) => match field.data_type() {
            DataType::FixedSizeList(item, _) => {
                let list = DataType::List(Arc::clone(item));
                cast(Expr::OuterReferenceColumn(field, column), list)
            }
            _ => Expr::OuterReferenceColumn(field, column),
        },
        other => other,
    };
    Ok(binary_expr(
        col(format!("\"{hidden}\"")),
        Operator::IsNotDistinctFrom,
        cast(value, hidden_type()),
    ))
}
