//! Arguments of table functions: what a call may give, and what a run gets.

use std::sync::Arc;

use datafusion::common::ScalarValue;
use datafusion::error::{DataFusionError, Result};
use datafusion::logical_expr::LogicalPlan;
use stratagraph::Error;

use super::value::{ArgType, ArgValue};
use crate::error::bad_argument;

/// One argument of a function.
#[derive(Debug, Clone)]
pub struct ArgSpec {
    /// Its name, lower case.
    pub name: &'static str,
    /// What it is.
    pub arg_type: ArgType,
    /// Whether a call must give it.
    pub required: bool,
    /// Its value when a call does not give it.
    pub default: Option<ArgValue>,
    /// Whether it shapes the answer's columns, so that it must be known when a statement is planned.
    pub literal: bool,
}

impl ArgSpec {
    /// An argument that a call must give.
    pub fn required(name: &'static str, arg_type: ArgType) -> Self {
        Self {
            name,
            arg_type,
            required: true,
            default: None,
            literal: false,
        }
    }

    /// An argument that a call may leave out.
    pub fn optional(name: &'static str, arg_type: ArgType) -> Self {
        Self {
            required: false,
            ..Self::required(name, arg_type)
        }
    }

    /// An argument with a default.
    pub fn or(name: &'static str, arg_type: ArgType, default: ArgValue) -> Self {
        Self {
            default: Some(default),
            ..Self::optional(name, arg_type)
        }
    }

    /// The same argument, not open to `$1`.
    pub fn literal(self) -> Self {
        Self {
            literal: true,
            ..self
        }
    }

    /// Checks a literal.
    pub(crate) fn check(&self, function: &str, value: &ScalarValue) -> Result<ArgValue> {
        let converted = self.arg_type.convert(value);
        let converted = converted.ok_or_else(|| self.expects(function))?;
        if converted.is_null() && self.required {
            return Err(bad_argument(function, self.name, "must not be NULL"));
        }
        Ok(converted)
    }

    /// Checks the text of a bound parameter; `None` is NULL.
    pub(crate) fn check_text(&self, function: &str, text: Option<&str>) -> Result<ArgValue> {
        match text {
            None => self.check(function, &ScalarValue::Null),
            Some(text) => {
                let parsed = self.arg_type.parse(text);
                parsed.ok_or_else(|| self.expects(function))
            }
        }
    }

    pub(crate) fn expects(&self, function: &str) -> DataFusionError {
        let reason = format!("expected {}", self.arg_type.expected());
        bad_argument(function, self.name, reason)
    }
}

/// All arguments of one run, complete and checked against the function's declaration.
#[derive(Debug, Clone)]
pub struct BoundArgs {
    pub(crate) function: &'static str,
    pub(crate) values: Vec<(&'static str, ArgValue)>,
}

impl BoundArgs {
    /// Arguments by name, for calls that do not come from SQL.
    pub fn new(function: &'static str, values: Vec<(&'static str, ArgValue)>) -> Self {
        Self { function, values }
    }

    /// The function.
    pub fn function(&self) -> &'static str {
        self.function
    }

    /// An argument; NULL for one that the function does not declare.
    pub fn get(&self, name: &str) -> &ArgValue {
        const NULL: &ArgValue = &ArgValue::Null;
        let found = self.values.iter().find(|(n, _)| *n == name);
        found.map_or(NULL, |(_, value)| value)
    }

    /// A text, if it was given.
    pub fn opt_text(&self, name: &str) -> Option<&str> {
        match self.get(name) {
            ArgValue::Text(text) => Some(text),
            _ => None,
        }
    }

    /// A text.
    pub fn text(&self, name: &str) -> stratagraph::Result<&str> {
        self.opt_text(name).ok_or_else(|| self.missing(name))
    }

    /// An integer, if it was given.
    pub fn opt_int(&self, name: &str) -> Option<i64> {
        match self.get(name) {
            ArgValue::Int(n) => Some(*n),
            _ => None,
        }
    }

    /// An integer of at least 0, if it was given.
    pub fn opt_unsigned(&self, name: &str) -> stratagraph::Result<Option<u64>> {
        let converted = self.opt_int(name).map(u64::try_from).transpose();
        converted.map_err(|_| self.invalid(name, "must not be negative"))
    }

    /// A number, if it was given.
    pub fn opt_float(&self, name: &str) -> Option<f64> {
        match self.get(name) {
            ArgValue::Float(n) => Some(*n),
            ArgValue::Int(n) => Some(*n as f64),
            _ => None,
        }
    }

    /// A flag; FALSE when it was not given.
    pub fn flag(&self, name: &str) -> bool {
        matches!(self.get(name), ArgValue::Bool(true))
    }

    /// Names; none when they were not given.
    pub fn names(&self, name: &str) -> &[String] {
        match self.get(name) {
            ArgValue::Names(names) => names,
            _ => &[],
        }
    }

    /// A vector, if it was given as one.
    pub fn opt_vector(&self, name: &str) -> Option<&[f32]> {
        match self.get(name) {
            ArgValue::Vector(vector) => Some(vector),
            _ => None,
        }
    }

    /// A subquery, if it was given as one.
    pub fn opt_plan(&self, name: &str) -> Option<&Arc<LogicalPlan>> {
        match self.get(name) {
            ArgValue::Plan(plan) => Some(plan),
            _ => None,
        }
    }

    /// The refusal of an argument.
    pub fn invalid(&self, name: &str, reason: impl Into<String>) -> Error {
        Error::InvalidArgument {
            function: self.function.to_owned(),
            argument: name.to_owned(),
            reason: reason.into(),
        }
    }

    fn missing(&self, name: &str) -> Error {
        self.invalid(name, "is required")
    }
}
