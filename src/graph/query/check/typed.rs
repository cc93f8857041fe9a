//! Types of expressions.

use std::fmt;

use crate::graph::query::Expr;
use crate::graph::value::{Scalar, ValueType};

/// Where an expression stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Place {
    /// In a pattern.
    Match,
    /// In `return`.
    Return,
    /// In `order`.
    Order,
    /// In an aggregate.
    Aggregate,
    /// In a statement of a mutation, where a word is a property of the row.
    Row,
}

/// The type of an expression.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Ty {
    /// A value.
    Value(ValueType),
    /// A node of this type: its id.
    Node(u64),
    /// `[]`.
    EmptyList,
    /// A rank.
    Rank,
    /// There is a finding about it.
    Broken,
}

impl Ty {
    pub(super) fn scalar(scalar: Scalar) -> Self {
        Self::Value(ValueType::Scalar(scalar))
    }

    /// The scalar that it compares as; ids are text.
    pub(super) fn as_scalar(&self) -> Option<Scalar> {
        match self {
            Self::Value(value) => value.scalar(),
            Self::Node(_) => Some(Scalar::String),
            Self::Rank => Some(Scalar::F64),
            Self::EmptyList | Self::Broken => None,
        }
    }
}

impl fmt::Display for Ty {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Value(ValueType::Enum(values)) => {
                write!(f, "one of {} values", values.len())
            }
            Self::Value(value) => write!(f, "{value}"),
            Self::Node(_) => f.write_str("a node"),
            Self::EmptyList => f.write_str("an empty list"),
            Self::Rank => f.write_str("a rank"),
            Self::Broken => f.write_str("of unknown type"),
        }
    }
}

/// A checked expression.
pub(super) struct Typed {
    pub(super) expr: Expr,
    pub(super) ty: Ty,
    pub(super) nullable: bool,
}

impl Typed {
    pub(super) fn new(expr: Expr, ty: Ty, nullable: bool) -> Self {
        Self { expr, ty, nullable }
    }

    pub(super) fn scalar(expr: Expr, scalar: Scalar, nullable: bool) -> Self {
        Self::new(expr, Ty::scalar(scalar), nullable)
    }

    /// Stands where there is a finding.
    pub(super) fn broken() -> Self {
        Self::new(Expr::Now, Ty::Broken, false)
    }

    pub(super) fn is_bool(&self) -> bool {
        self.ty == Ty::scalar(Scalar::Bool)
    }
}

/// Whether values of two scalars compare: numbers with each other, else each with its own kind.
pub(super) fn comparable(a: Scalar, b: Scalar) -> bool {
    a == b || (a.is_numeric() && b.is_numeric())
}
