//! Values of assignments as columns.

use std::sync::Arc;

use arrow::array::{ArrayRef, FixedSizeListArray, Float32Array, RecordBatch, new_null_array};
use arrow::compute::cast;
use arrow::datatypes::DataType;
use datafusion::common::ScalarValue;
use stratagraph::graph::input::property_offset;
use stratagraph::graph::query::{Assignment, End, Expr, Target, params};
use stratagraph::graph::schema::GraphType;
use stratagraph::graph::value::{Scalar, Value, ValueType};
use stratagraph::{Error, Result};
use stratagraph_providers::from_datafusion;

use super::Call;

/// The place of a target among the columns of a row.
pub(super) fn place(of: &GraphType, target: Target) -> Result<usize> {
    match target {
        Target::End(End::From) => Ok(2),
        Target::End(End::To) => Ok(3),
        Target::Property(id) => {
            let at = of.properties.iter().position(|p| p.id == id);
            at.map(|at| property_offset(of) + at)
                .ok_or_else(|| unknown(of))
        }
    }
}

fn unknown(of: &GraphType) -> Error {
    Error::corrupt("mutation", of.name.as_str(), "a property", "none")
}

fn type_of(of: &GraphType, target: Target) -> Result<ValueType> {
    match target {
        Target::End(_) => Ok(ValueType::Scalar(Scalar::String)),
        Target::Property(id) => {
            let property = of.property_by_id(id).ok_or_else(|| unknown(of))?;
            Ok(property.value_type.clone())
        }
    }
}

impl Call<'_> {
    /// The new values of a target for all rows of a batch, which has the rows as they were.
    pub(super) fn column(
        &self,
        of: &GraphType,
        assignment: &Assignment,
        before: &RecordBatch,
    ) -> Result<ArrayRef> {
        let wanted = type_of(of, assignment.target)?;
        let rows = before.num_rows();
        let from = match &assignment.value {
            Expr::Literal(value) => return constant(value, &wanted, rows),
            Expr::Now => return constant(&Value::DateTime(self.now), &wanted, rows),
            Expr::Param(at) => return constant(&self.param(*at, &wanted)?, &wanted, rows),
            Expr::Id(_) => 1,
            Expr::End(_, end) => place(of, Target::End(*end))?,
            Expr::Property(_, id) => place(of, Target::Property(*id))?,
            other => {
                let found = format!("{other:?}");
                return Err(Error::corrupt("mutation", &of.name, "a value", found));
            }
        };
        Ok(cast(before.column(from), &wanted.arrow())?)
    }

    fn param(&self, at: usize, wanted: &ValueType) -> Result<Value> {
        let value = self.params.get(at).unwrap_or(&Value::Null);
        params::number(value, wanted).map_err(|reason| {
            let name = self
                .mutation
                .params
                .get(at)
                .map_or("?", |p| p.name.as_str());
            Error::InvalidArgument {
                function: "graph_mutate".to_owned(),
                argument: "params".to_owned(),
                reason: format!("parameter {name} {reason}"),
            }
        })
    }
}

/// A column that has one value everywhere.
fn constant(value: &Value, of: &ValueType, rows: usize) -> Result<ArrayRef> {
    let data_type = of.arrow();
    match (of, value) {
        (_, Value::Null) => Ok(new_null_array(&data_type, rows)),
        (ValueType::Vector(_), Value::List(items)) => {
            let DataType::FixedSizeList(field, width) = &data_type else {
                return Err(misfit(of));
            };
            let one = items.iter().map(|item| match item {
                Value::Float(value) => Ok(*value as f32),
                Value::Int(value) => Ok(*value as f32),
                _ => Err(misfit(of)),
            });
            let one = one.collect::<Result<Vec<f32>>>()?;
            let values = Arc::new(Float32Array::from(one.repeat(rows)));
            let list = FixedSizeListArray::try_new(Arc::clone(field), *width, values, None)?;
            Ok(Arc::new(list))
        }
        (ValueType::List(scalar), Value::List(items)) => {
            let items = items.iter().map(|item| typed(item, *scalar));
            let items = items
                .collect::<Option<Vec<_>>>()
                .ok_or_else(|| misfit(of))?;
            let list = ScalarValue::List(ScalarValue::new_list(&items, &scalar.arrow(), false));
            let column = list.to_array_of_size(rows).map_err(from_datafusion)?;
            Ok(cast(&column, &data_type)?)
        }
        (of, value) => {
            let scalar = of.scalar().and_then(|scalar| typed(value, scalar));
            let scalar = scalar.ok_or_else(|| misfit(of))?;
            scalar.to_array_of_size(rows).map_err(from_datafusion)
        }
    }
}

/// Compiling and binding let nothing through that comes here.
fn misfit(of: &ValueType) -> Error {
    Error::InvalidArgument {
        function: "graph_mutate".to_owned(),
        argument: "params".to_owned(),
        reason: format!("a value is no {of}"),
    }
}

fn typed(value: &Value, of: Scalar) -> Option<ScalarValue> {
    Some(match (of, value) {
        (Scalar::String, Value::String(text)) => ScalarValue::Utf8(Some(text.clone())),
        (Scalar::Bool, Value::Bool(flag)) => ScalarValue::Boolean(Some(*flag)),
        (Scalar::I32, Value::Int(n)) => ScalarValue::Int32(Some(i32::try_from(*n).ok()?)),
        (Scalar::I64, Value::Int(n)) => ScalarValue::Int64(Some(i64::try_from(*n).ok()?)),
        (Scalar::U32, Value::Int(n)) => ScalarValue::UInt32(Some(u32::try_from(*n).ok()?)),
        (Scalar::U64, Value::Int(n)) => ScalarValue::UInt64(Some(u64::try_from(*n).ok()?)),
        (Scalar::F32, Value::Float(f)) => ScalarValue::Float32(Some(*f as f32)),
        (Scalar::F32, Value::Int(n)) => ScalarValue::Float32(Some(*n as f32)),
        (Scalar::F64, Value::Float(f)) => ScalarValue::Float64(Some(*f)),
        (Scalar::F64, Value::Int(n)) => ScalarValue::Float64(Some(*n as f64)),
        (Scalar::Date, Value::Date(days)) => ScalarValue::Date32(Some(*days)),
        (Scalar::DateTime, Value::DateTime(micros)) => {
            ScalarValue::TimestampMicrosecond(Some(*micros), Some("UTC".into()))
        }
        _ => return None,
    })
}
