//! Expressions of a query as expressions of DataFusion.
//!
//! Numbers are compared exactly: a constant is brought to the type of the other side where that loses
//! nothing, and where it would, the comparison is rewritten to one that means the same.

use datafusion::common::{ScalarValue, plan_err};
use datafusion::error::Result;
use datafusion::functions::string::expr_fn::{contains, starts_with};
use datafusion::functions_nested::expr_fn::array_has;
use datafusion::logical_expr::utils::{conjunction, disjunction};
use datafusion::logical_expr::{Expr as Df, cast, lit, try_cast, when};
use stratagraph::graph::query::{Aggregate, Compare, Expr, Param, Variable};
use stratagraph::graph::schema::GraphSchema;
use stratagraph::graph::value::{Scalar, Value, ValueType};

use super::numbers;
use super::row::{Columns, Field};

/// What the expressions of one run of a query are made of.
pub(super) struct Scalars<'a> {
    /// Variables that expressions name by number.
    pub(super) variables: &'a [Variable],
    /// Declared parameters.
    pub(super) declared: &'a [Param],
    pub(super) schema: &'a GraphSchema,
    /// Values of the parameters in their order.
    pub(super) params: &'a [Value],
    /// When the statement began, microseconds since 1970-01-01 UTC.
    pub(super) now: i64,
}

impl Scalars<'_> {
    /// An expression without aggregates over the columns of a row.
    pub(super) fn lower(&self, expr: &Expr, columns: &dyn Columns) -> Result<Df> {
        let both = |a: &Expr, b: &Expr| -> Result<(Df, Df)> {
            Ok((self.lower(a, columns)?, self.lower(b, columns)?))
        };
        let each = |all: &[Expr]| {
            let lowered = all.iter().map(|e| self.lower(e, columns));
            lowered.collect::<Result<Vec<_>>>()
        };
        Ok(match expr {
            Expr::Literal(value) => lit(scalar(value)),
            Expr::Param(at) => lit(scalar(self.param(*at)?)),
            Expr::Now => lit(scalar(&Value::DateTime(self.now))),
            Expr::Id(var) => columns.column(*var, Field::Id)?,
            Expr::Property(var, property) => columns.column(*var, Field::Property(*property))?,
            Expr::End(var, end) => columns.end(*var, *end)?,
            Expr::Compare(op, a, b) => self.compare(*op, a, b, columns)?,
            Expr::HasItem(list, item) => self.has_item(list, item, columns)?,
            Expr::HasText(text, part) => {
                let (text, part) = both(text, part)?;
                contains(text, part)
            }
            Expr::StartsWith(text, prefix) => {
                let (text, prefix) = both(text, prefix)?;
                starts_with(text, prefix)
            }
            Expr::And(all) => conjunction(each(all)?).unwrap_or_else(|| lit(true)),
            Expr::Or(all) => disjunction(each(all)?).unwrap_or_else(|| lit(false)),
            Expr::Not(inner) => !self.lower(inner, columns)?,
            Expr::IsNull(inner) => self.lower(inner, columns)?.is_null(),
            Expr::Aggregate { .. } | Expr::Output(_) => columns.result(expr)?,
            // A text that is not there does not match.
            Expr::Search(_) => columns.result(expr)?.is_not_null(),
            Expr::Rank(_) => columns.result(expr)?,
        })
    }

    fn param(&self, at: usize) -> Result<&Value> {
        match self.params.get(at) {
            Some(value) => Ok(value),
            None => plan_err!("parameter {at} has no value"),
        }
    }

    /// The value of a literal or a parameter.
    pub(super) fn value<'e>(&'e self, expr: &'e Expr) -> Option<&'e Value> {
        match expr {
            Expr::Literal(value) => Some(value),
            Expr::Param(at) => self.params.get(*at),
            _ => None,
        }
    }

    /// The value of an expression that is the same for all rows.
    fn constant(&self, expr: &Expr) -> Option<Value> {
        match expr {
            Expr::Now => Some(Value::DateTime(self.now)),
            other => self.value(other).cloned(),
        }
    }

    /// The type of a property or an aggregate; text for ids.
    pub(super) fn type_of(&self, expr: &Expr) -> Option<ValueType> {
        match expr {
            Expr::Id(_) | Expr::End(..) => Some(ValueType::Scalar(Scalar::String)),
            Expr::Property(var, property) => {
                let variable = self.variables.get(*var)?;
                let of = self.schema.by_id(variable.type_id)?;
                Some(of.property_by_id(*property)?.value_type.clone())
            }
            Expr::Param(at) => Some(self.declared.get(*at)?.value_type.clone()),
            Expr::Now => Some(ValueType::Scalar(Scalar::DateTime)),
            Expr::Aggregate {
                function, argument, ..
            } => {
                let of = argument.as_ref().and_then(|a| self.type_of(a));
                let widest = |of: Scalar| match of {
                    Scalar::I32 => Scalar::I64,
                    Scalar::U32 => Scalar::U64,
                    Scalar::F32 => Scalar::F64,
                    same => same,
                };
                match function {
                    Aggregate::Count => Some(ValueType::Scalar(Scalar::I64)),
                    Aggregate::Avg => Some(ValueType::Scalar(Scalar::F64)),
                    Aggregate::Sum => Some(ValueType::Scalar(widest(of?.scalar()?))),
                    Aggregate::Min | Aggregate::Max => of,
                }
            }
            _ => None,
        }
    }

    fn compare(&self, op: Compare, a: &Expr, b: &Expr, columns: &dyn Columns) -> Result<Df> {
        let (left, right) = (self.constant(a), self.constant(b));
        match (left, right) {
            (None, Some(value)) => {
                let of = self.type_of(a).and_then(|t| t.scalar());
                Ok(with_constant(op, self.lower(a, columns)?, of, &value))
            }
            (Some(value), None) => {
                let of = self.type_of(b).and_then(|t| t.scalar());
                let op = mirrored(op);
                Ok(with_constant(op, self.lower(b, columns)?, of, &value))
            }
            (Some(left), Some(right)) => {
                Ok(with_constant(op, lit(scalar(&left)), number(&left), &right))
            }
            (None, None) => {
                let of = |expr| self.type_of(expr).and_then(|t| t.scalar());
                let (of_a, of_b) = (of(a), of(b));
                let (a, b) = (self.lower(a, columns)?, self.lower(b, columns)?);
                Ok(numbers::compare(op, (a, of_a), (b, of_b)))
            }
        }
    }

    fn has_item(&self, list: &Expr, item: &Expr, columns: &dyn Columns) -> Result<Df> {
        let element = match self.type_of(list) {
            Some(ValueType::List(element)) => element,
            _ => return plan_err!("{list:?} is not a list"),
        };
        let wanted = element.arrow();
        let constant = self.constant(item);
        let list = self.lower(list, columns)?;
        let Some(value) = constant else {
            let of = self.type_of(item).and_then(|t| t.scalar());
            let item = self.lower(item, columns)?;
            if of == Some(element) {
                return Ok(array_has(list, item));
            }
            let narrow = try_cast(item.clone(), wanted);
            let is_item = numbers::compare(
                Compare::Eq,
                (item.clone(), of),
                (narrow.clone(), Some(element)),
            );
            return when(item.is_null(), lit(ScalarValue::Boolean(None)))
                .when(is_item, array_has(list.clone(), narrow))
                .otherwise(no_item(list));
        };
        match exact(element, &value) {
            Some(item) => Ok(array_has(list, cast(lit(item), wanted))),
            None => Ok(no_item(list)),
        }
    }
}

/// What it is of a list that an item has a value that none of them has: a null list tells nothing.
fn no_item(list: Df) -> Df {
    list.is_null().and(lit(ScalarValue::Boolean(None)))
}

/// The type of a constant that is a number.
fn number(value: &Value) -> Option<Scalar> {
    match value {
        Value::Int(n) if i64::try_from(*n).is_ok() => Some(Scalar::I64),
        Value::Int(_) => Some(Scalar::U64),
        Value::Float(_) => Some(Scalar::F64),
        _ => None,
    }
}

pub(super) fn binary(op: Compare, a: Df, b: Df) -> Df {
    match op {
        Compare::Eq => a.eq(b),
        Compare::Ne => a.not_eq(b),
        Compare::Lt => a.lt(b),
        Compare::Le => a.lt_eq(b),
        Compare::Gt => a.gt(b),
        Compare::Ge => a.gt_eq(b),
    }
}

/// The comparison with its sides exchanged.
pub(super) fn mirrored(op: Compare) -> Compare {
    match op {
        Compare::Lt => Compare::Gt,
        Compare::Le => Compare::Ge,
        Compare::Gt => Compare::Lt,
        Compare::Ge => Compare::Le,
        same => same,
    }
}

/// True of every value, and unknown of null.
fn always(expr: Df) -> Df {
    expr.clone().eq(expr)
}

/// False of every value, and unknown of null.
fn never(expr: Df) -> Df {
    expr.clone().not_eq(expr)
}

/// What `expr op value` is where `value` is above every value that `expr` can have.
fn below_all(op: Compare, expr: Df) -> Df {
    match op {
        Compare::Ne | Compare::Lt | Compare::Le => always(expr),
        Compare::Eq | Compare::Gt | Compare::Ge => never(expr),
    }
}

fn with_constant(op: Compare, expr: Df, of: Option<Scalar>, value: &Value) -> Df {
    let Some(of) = of else {
        return binary(op, expr, lit(scalar(value)));
    };
    match (of, value) {
        (_, Value::Null) => lit(ScalarValue::Boolean(None)),
        (of, Value::Int(n)) if of.is_integer() => with_integer(op, expr, of, *n),
        (of, Value::Float(f)) if of.is_integer() => {
            // A cast of a float to an integer cuts at the ends of the range, where all columns end.
            let floor = f.floor() as i128;
            match (f.fract() == 0.0, op) {
                (true, op) => with_integer(op, expr, of, floor),
                (false, Compare::Eq) => never(expr),
                (false, Compare::Ne) => always(expr),
                (false, Compare::Lt | Compare::Le) => with_integer(Compare::Le, expr, of, floor),
                (false, Compare::Gt | Compare::Ge) => with_integer(Compare::Gt, expr, of, floor),
            }
        }
        // The column holds what a literal became at this width.
        (Scalar::F32, Value::Int(n)) => binary(op, expr, lit(*n as f32)),
        (Scalar::F32, Value::Float(f)) => binary(op, expr, lit(*f as f32)),
        (Scalar::F64, Value::Int(n)) => with_rounded(op, expr, *n),
        _ => binary(op, expr, lit(scalar(value))),
    }
}

fn with_integer(op: Compare, expr: Df, of: Scalar, n: i128) -> Df {
    match exact(of, &Value::Int(n)) {
        Some(value) => binary(op, expr, lit(value)),
        None if n > 0 => below_all(op, expr),
        // Below all of them: the same with the sides exchanged.
        None => match op {
            Compare::Ne | Compare::Gt | Compare::Ge => always(expr),
            Compare::Eq | Compare::Lt | Compare::Le => never(expr),
        },
    }
}

/// A comparison of a 64-bit float with an integer that may lie between two floats.
fn with_rounded(op: Compare, expr: Df, n: i128) -> Df {
    let rounded = n as f64;
    let value = lit(rounded);
    let back = rounded as i128;
    match (op, back.cmp(&n)) {
        (op, std::cmp::Ordering::Equal) => binary(op, expr, value),
        (Compare::Eq, _) => never(expr),
        (Compare::Ne, _) => always(expr),
        (Compare::Lt | Compare::Le, std::cmp::Ordering::Less) => expr.lt_eq(value),
        (Compare::Gt | Compare::Ge, std::cmp::Ordering::Less) => expr.gt(value),
        (Compare::Lt | Compare::Le, _) => expr.lt(value),
        (Compare::Gt | Compare::Ge, _) => expr.gt_eq(value),
    }
}

/// A value in exactly this type; `None` if the type does not have it.
fn exact(of: Scalar, value: &Value) -> Option<ScalarValue> {
    Some(match (of, value) {
        (Scalar::I32, Value::Int(n)) => ScalarValue::Int32(Some(i32::try_from(*n).ok()?)),
        (Scalar::I64, Value::Int(n)) => ScalarValue::Int64(Some(i64::try_from(*n).ok()?)),
        (Scalar::U32, Value::Int(n)) => ScalarValue::UInt32(Some(u32::try_from(*n).ok()?)),
        (Scalar::U64, Value::Int(n)) => ScalarValue::UInt64(Some(u64::try_from(*n).ok()?)),
        (of, Value::Float(f)) if of.is_integer() => {
            return (f.fract() == 0.0)
                .then(|| exact(of, &Value::Int(*f as i128)))
                .flatten();
        }
        (Scalar::F32, Value::Int(n)) => ScalarValue::Float32(Some(*n as f32)),
        (Scalar::F32, Value::Float(f)) => ScalarValue::Float32(Some(*f as f32)),
        (Scalar::F64, Value::Int(n)) => ScalarValue::Float64(Some(*n as f64)),
        (_, value) => scalar(value),
    })
}

/// A value in its own type: Int64 or UInt64 for integers, Float64 for floats, views for text.
pub(super) fn scalar(value: &Value) -> ScalarValue {
    match value {
        Value::Null => ScalarValue::Null,
        Value::Bool(flag) => ScalarValue::Boolean(Some(*flag)),
        Value::Int(n) => match i64::try_from(*n) {
            Ok(n) => ScalarValue::Int64(Some(n)),
            Err(_) => ScalarValue::UInt64(u64::try_from(*n).ok()),
        },
        Value::Float(f) => ScalarValue::Float64(Some(*f)),
        Value::String(text) => ScalarValue::Utf8View(Some(text.clone())),
        Value::Date(days) => ScalarValue::Date32(Some(*days)),
        Value::DateTime(micros) => {
            ScalarValue::TimestampMicrosecond(Some(*micros), Some("UTC".into()))
        }
        Value::List(items) => {
            let items: Vec<ScalarValue> = items.iter().map(item).collect();
            let of = items.first().map_or(
                datafusion::arrow::datatypes::DataType::Utf8,
                ScalarValue::data_type,
            );
            ScalarValue::List(ScalarValue::new_list(&items, &of, false))
        }
    }
}

/// Text in lists is stored without views.
fn item(value: &Value) -> ScalarValue {
    match value {
        Value::String(text) => ScalarValue::Utf8(Some(text.clone())),
        other => scalar(other),
    }
}

/// The type of a result column.
pub(super) fn answer_type(value_type: &ValueType) -> datafusion::arrow::datatypes::DataType {
    use datafusion::arrow::datatypes::DataType;
    match value_type.arrow() {
        DataType::Utf8 => DataType::Utf8View,
        other => other,
    }
}
