//! SQL literals as values of the query language.

use arrow::array::{Array, ArrayRef};
use arrow::datatypes::{DataType, TimeUnit};
use datafusion::common::ScalarValue;
use stratagraph::graph::value::Value;

/// The fields of a struct literal with their values.
///
/// # Errors
/// What is expected, for a field of a type that no parameter has.
pub(super) fn struct_fields(value: &ScalarValue) -> Result<Vec<(String, Value)>, String> {
    let ScalarValue::Struct(fields) = value else {
        return Err("expected a struct".to_owned());
    };
    let named = fields.fields().iter().zip(fields.columns());
    named
        .map(|(field, column)| {
            let value = value_at(column, 0)
                .map_err(|reason| format!("member {:?}: {reason}", field.name()))?;
            Ok((field.name().clone(), value))
        })
        .collect()
}

fn value_at(column: &ArrayRef, row: usize) -> Result<Value, String> {
    let scalar = ScalarValue::try_from_array(column, row).map_err(|e| e.to_string())?;
    value_of(&scalar)
}

/// A literal as a value; exact, or an error that says what is expected.
pub(super) fn value_of(scalar: &ScalarValue) -> Result<Value, String> {
    if scalar.is_null() {
        return Ok(Value::Null);
    }
    if let Some(Some(text)) = scalar.try_as_str() {
        return Ok(Value::String(text.to_owned()));
    }
    Ok(match scalar {
        ScalarValue::Boolean(Some(flag)) => Value::Bool(*flag),
        ScalarValue::Int8(Some(n)) => Value::Int((*n).into()),
        ScalarValue::Int16(Some(n)) => Value::Int((*n).into()),
        ScalarValue::Int32(Some(n)) => Value::Int((*n).into()),
        ScalarValue::Int64(Some(n)) => Value::Int((*n).into()),
        ScalarValue::UInt8(Some(n)) => Value::Int((*n).into()),
        ScalarValue::UInt16(Some(n)) => Value::Int((*n).into()),
        ScalarValue::UInt32(Some(n)) => Value::Int((*n).into()),
        ScalarValue::UInt64(Some(n)) => Value::Int((*n).into()),
        ScalarValue::Float32(Some(f)) => finite((*f).into())?,
        ScalarValue::Float64(Some(f)) => finite(*f)?,
        ScalarValue::Decimal128(Some(n), _, 0) => Value::Int(*n),
        ScalarValue::Decimal128(..) => match scalar.cast_to(&DataType::Float64) {
            Ok(ScalarValue::Float64(Some(f))) => finite(f)?,
            _ => return Err("expected a finite number".to_owned()),
        },
        ScalarValue::Date32(Some(days)) => Value::Date(*days),
        ScalarValue::TimestampSecond(Some(n), _) => moment(*n, TimeUnit::Second)?,
        ScalarValue::TimestampMillisecond(Some(n), _) => moment(*n, TimeUnit::Millisecond)?,
        ScalarValue::TimestampMicrosecond(Some(n), _) => Value::DateTime(*n),
        ScalarValue::TimestampNanosecond(Some(n), _) => moment(*n, TimeUnit::Nanosecond)?,
        ScalarValue::List(list) => items(&list.value(0))?,
        ScalarValue::LargeList(list) => items(&list.value(0))?,
        ScalarValue::FixedSizeList(list) => items(&list.value(0))?,
        other => {
            return Err(format!(
                "a {} is no value of a parameter",
                other.data_type()
            ));
        }
    })
}

fn finite(value: f64) -> Result<Value, String> {
    match value.is_finite() {
        true => Ok(Value::Float(value)),
        false => Err("expected a finite number".to_owned()),
    }
}

fn moment(count: i64, unit: TimeUnit) -> Result<Value, String> {
    let micros = match unit {
        TimeUnit::Second => count.checked_mul(1_000_000),
        TimeUnit::Millisecond => count.checked_mul(1_000),
        TimeUnit::Microsecond => Some(count),
        TimeUnit::Nanosecond => (count % 1_000 == 0).then_some(count / 1_000),
    };
    let micros = micros.ok_or("expected a time of whole microseconds")?;
    Ok(Value::DateTime(micros))
}

fn items(list: &ArrayRef) -> Result<Value, String> {
    let values = (0..list.len()).map(|row| value_at(list, row));
    values.collect::<Result<Vec<_>, _>>().map(Value::List)
}
