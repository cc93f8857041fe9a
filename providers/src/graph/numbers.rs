//! Comparisons of two numbers whose types have none in common.

use datafusion::arrow::datatypes::DataType;
use datafusion::functions::math::expr_fn::{ceil, floor};
use datafusion::logical_expr::{Expr as Df, cast, lit};
use stratagraph::graph::query::Compare;
use stratagraph::graph::value::Scalar;

use super::expr::{binary, mirrored};

/// Holds every integer of 64 bits, and what [`whole`] makes of a float.
const INTEGERS: DataType = DataType::Decimal128(38, 0);

/// Beyond every integer of 64 bits.
const BEYOND: f64 = 1e20;

/// `a op b` by value, with the types of both where they are known.
///
/// A common type rounds an integer beside a float: 64 bits beside F64, and 32 bits beside F32 too.
pub(super) fn compare(op: Compare, a: (Df, Option<Scalar>), b: (Df, Option<Scalar>)) -> Df {
    let float = |of| matches!(of, Some(Scalar::F32 | Scalar::F64));
    let short = |of| matches!(of, Some(Scalar::I32 | Scalar::U32));
    let long = |of| matches!(of, Some(Scalar::I64 | Scalar::U64));
    let ((a, of_a), (b, of_b)) = (a, b);
    if float(of_a) && short(of_b) || short(of_a) && float(of_b) {
        binary(op, cast(a, DataType::Float64), cast(b, DataType::Float64))
    } else if long(of_a) && float(of_b) {
        beside_float(op, a, b)
    } else if float(of_a) && long(of_b) {
        beside_float(mirrored(op), b, a)
    } else {
        binary(op, a, b)
    }
}

/// An integer lies below a float where it lies below the least integer that the float does not exceed.
fn beside_float(op: Compare, integer: Df, float: Df) -> Df {
    let float = cast(float, DataType::Float64);
    let exact = cast(integer.clone(), INTEGERS);
    let rounded = cast(integer, DataType::Float64);
    match op {
        // Equal where they round alike, then by what the rounding lost: both sides stay keys of a join.
        Compare::Eq => rounded.eq(float.clone()).and(exact.eq(whole(float))),
        Compare::Ne => rounded.not_eq(float.clone()).or(exact.not_eq(whole(float))),
        Compare::Lt | Compare::Ge => binary(op, exact, whole(ceil(float))),
        Compare::Le | Compare::Gt => binary(op, exact, whole(floor(float))),
    }
}

/// A whole float as an integer; of those beyond all integers of 64 bits, one beyond.
fn whole(float: Df) -> Df {
    let cut = Df::Case(datafusion::logical_expr::Case {
        expr: None,
        when_then_expr: vec![
            (
                Box::new(float.clone().gt(lit(BEYOND))),
                Box::new(lit(BEYOND)),
            ),
            (
                Box::new(float.clone().lt(lit(-BEYOND))),
                Box::new(lit(-BEYOND)),
            ),
        ],
        else_expr: Some(Box::new(float)),
    });
    cast(cut, INTEGERS)
}
