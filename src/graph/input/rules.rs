//! Rules that need only the row: types beyond Arrow's, required, enum, range, check.

use std::collections::HashMap;

use arrow::array::{Array, ArrayRef, AsArray, BooleanArray};
use arrow::compute::filter_record_batch;
use arrow::datatypes::{
    ArrowNativeType, ArrowPrimitiveType, DataType, Float32Type, Float64Type, Int32Type, Int64Type,
    UInt32Type, UInt64Type,
};
use arrow::record_batch::RecordBatch;
use regex::Regex;

use super::ids::assign_ids;
use super::layout::Rows;
use super::{Findings, shown};
use crate::graph::schema::{Bound, GraphSchema, GraphType};
use crate::graph::value::{Scalar, ValueType};
use crate::graph::violation::Violation;
use crate::{Error, Result};

/// A bound in the terms of the column that it is compared with.
#[derive(Debug, Clone, Copy)]
enum Limit {
    /// Of an integer column, or an integer bound of a float column.
    Int(i128),
    /// Of a float column.
    Float(f64),
}

#[derive(Debug)]
struct RangeRule {
    property: u64,
    min: Option<(Limit, String)>,
    max: Option<(Limit, String)>,
}

#[derive(Debug)]
struct CheckRule {
    property: u64,
    pattern: Regex,
}

#[derive(Debug, Default)]
struct TypeRules {
    ranges: Vec<RangeRule>,
    checks: Vec<CheckRule>,
}

/// The rules of a schema, ready to be run over batches.
#[derive(Debug)]
pub struct Rules {
    types: HashMap<u64, TypeRules>,
    fill_embeddings: bool,
}

fn broken(graph_type: &GraphType, reason: impl std::fmt::Display) -> Error {
    Error::InvalidArgument {
        function: "graph_load".to_owned(),
        argument: "graph".to_owned(),
        reason: format!(
            "the schema of type {} cannot be used: {reason}",
            graph_type.name
        ),
    }
}

impl Rules {
    /// Prepares the rules of `schema`. With `fill_embeddings` a required vector with `@embed` may
    /// be null: a later stage fills it.
    ///
    /// # Errors
    /// [`Error::NotYetSupported`] for a blob, [`Error::InvalidArgument`] for a bound or a pattern
    /// that no compiled schema has.
    pub fn new(schema: &GraphSchema, fill_embeddings: bool) -> Result<Self> {
        let mut types = HashMap::new();
        for graph_type in &schema.types {
            if let Some(blob) = graph_type
                .properties
                .iter()
                .find(|p| p.value_type == ValueType::Blob)
            {
                return Err(Error::NotYetSupported {
                    feature: format!("the Blob property {}.{}", graph_type.name, blob.name),
                });
            }
            types.insert(graph_type.id, TypeRules::new(graph_type)?);
        }
        Ok(Self {
            types,
            fill_embeddings,
        })
    }

    /// The batch with the ids of [`assign_ids`], without the rows that break a rule of their own.
    /// `batch` has the columns of [`super::input_schema`] and one row per record number.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for other columns.
    pub fn apply(
        &self,
        graph_type: &GraphType,
        batch: &RecordBatch,
        findings: &mut Findings,
    ) -> Result<RecordBatch> {
        findings.watch();
        let assigned = assign_ids(graph_type, batch, findings);
        let found = match &assigned {
            Ok(batch) => self.find(graph_type, batch, findings),
            Err(_) => Ok(()),
        };
        let broken = findings.watched();
        let batch = assigned?;
        found?;
        if broken.is_empty() {
            return Ok(batch);
        }
        let records = Rows::new(graph_type, &batch)?.records.values().iter();
        let kept = records.map(|record| broken.binary_search(record).is_err());
        let kept = BooleanArray::from(kept.collect::<Vec<bool>>());
        Ok(filter_record_batch(&batch, &kept)?)
    }

    /// Finds what rows of a batch break. `batch` has the columns of [`super::input_schema`].
    /// A null breaks only `required`.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for other columns.
    pub fn find(
        &self,
        graph_type: &GraphType,
        batch: &RecordBatch,
        findings: &mut Findings,
    ) -> Result<()> {
        let rows = Rows::new(graph_type, batch)?;
        let mut found = Found { rows, findings };
        for (at, property) in graph_type.properties.iter().enumerate() {
            let filled = self.fill_embeddings && property.embed.is_some();
            found.required(at, property.nullable || filled);
            found.values(at);
            if let ValueType::Enum(members) = &property.value_type {
                found.members(at, members);
            }
        }
        let Some(rules) = self.types.get(&graph_type.id) else {
            return Err(broken(graph_type, "it is not the one of the rules"));
        };
        for range in &rules.ranges {
            found.range(range);
        }
        for check in &rules.checks {
            found.check(check);
        }
        Ok(())
    }
}

impl TypeRules {
    fn new(graph_type: &GraphType) -> Result<Self> {
        let mut rules = Self::default();
        for range in &graph_type.ranges {
            let scalar = scalar_of(graph_type, range.property)?;
            if !scalar.is_numeric() {
                return Err(broken(graph_type, "a range is about what is no number"));
            }
            let bound = |bound: &Option<Bound>, lower: bool| {
                let bound = bound.as_ref();
                let limit = bound.map(|bound| limit(graph_type, scalar, bound, lower));
                limit.transpose()
            };
            rules.ranges.push(RangeRule {
                property: range.property,
                min: bound(&range.min, true)?,
                max: bound(&range.max, false)?,
            });
        }
        for check in &graph_type.checks {
            if scalar_of(graph_type, check.property)? != Scalar::String {
                return Err(broken(graph_type, "a check is about what is no text"));
            }
            let pattern = Regex::new(&check.pattern).map_err(|error| broken(graph_type, error))?;
            rules.checks.push(CheckRule {
                property: check.property,
                pattern,
            });
        }
        Ok(rules)
    }
}

fn scalar_of(graph_type: &GraphType, property: u64) -> Result<Scalar> {
    let property = graph_type.property_by_id(property);
    property
        .and_then(|property| property.value_type.scalar())
        .ok_or_else(|| broken(graph_type, "a rule is about no scalar property"))
}

/// A bound with its text. A fraction moves to the next integer inside for an integer column, and is
/// rounded as the values are for a 32-bit one.
fn limit(
    graph_type: &GraphType,
    scalar: Scalar,
    bound: &Bound,
    lower: bool,
) -> Result<(Limit, String)> {
    let wrong = |text: &str| broken(graph_type, format!("{text:?} is no bound"));
    match bound {
        Bound::Int(text) => {
            let value = text.parse::<i128>().map_err(|_| wrong(text))?;
            Ok((Limit::Int(value), text.clone()))
        }
        Bound::Float(text) => {
            let value = match scalar {
                Scalar::F32 => text.parse::<f32>().map(f64::from),
                _ => text.parse::<f64>(),
            };
            let value = value.ok().filter(|v| !v.is_nan()).ok_or(wrong(text))?;
            let limit = match scalar.is_integer() {
                true if lower => Limit::Int(value.ceil() as i128),
                true => Limit::Int(value.floor() as i128),
                false => Limit::Float(value),
            };
            Ok((limit, text.clone()))
        }
    }
}

/// How a float is to a bound, exactly.
fn compare_float(value: f64, limit: Limit) -> Option<std::cmp::Ordering> {
    match limit {
        Limit::Float(limit) => value.partial_cmp(&limit),
        Limit::Int(limit) if value.is_finite() => {
            let whole = value.floor();
            let fraction = value.partial_cmp(&whole)?;
            Some((whole as i128).cmp(&limit).then(fraction))
        }
        Limit::Int(_) => value.partial_cmp(&0.0),
    }
}

fn compare_int(value: i128, limit: Limit) -> Option<std::cmp::Ordering> {
    match limit {
        Limit::Int(limit) => Some(value.cmp(&limit)),
        Limit::Float(limit) => (value as f64).partial_cmp(&limit),
    }
}

struct Found<'a> {
    rows: Rows<'a>,
    findings: &'a mut Findings,
}

impl Found<'_> {
    fn add(&mut self, row: usize, rule: &'static str, message: impl FnOnce() -> String) {
        let record = self.rows.records.value(row);
        let (graph_type, id) = (self.rows.graph_type, self.rows.id(row));
        self.findings.add(record, || Violation {
            record,
            type_name: graph_type.name.clone(),
            id: shown(id),
            rule,
            message: message(),
        });
    }

    fn name(&self, at: usize) -> String {
        let graph_type = self.rows.graph_type;
        format!("property {}", graph_type.properties[at].name)
    }

    fn required(&mut self, at: usize, nullable: bool) {
        let column = self.rows.properties[at].clone();
        if nullable || column.null_count() == 0 {
            return;
        }
        let name = self.name(at);
        let value_type = &self.rows.graph_type.properties[at].value_type;
        for row in (0..column.len()).filter(|row| column.is_null(*row)) {
            self.add(row, "required", || {
                format!("{name} has no value; give one of type {value_type}")
            });
        }
    }

    /// Items that are null and floats that are no numbers. Records of JSON have none, rows of a
    /// query may.
    fn values(&mut self, at: usize) {
        let column = self.rows.properties[at].clone();
        let whole = match column.data_type() {
            DataType::List(_) => column.as_list::<i32>().values(),
            DataType::FixedSizeList(_, _) => column.as_fixed_size_list().values(),
            _ => &column,
        };
        let items = !std::ptr::eq(whole, &column);
        if sound(whole, items) {
            return;
        }
        let name = self.name(at);
        for row in (0..column.len()).filter(|row| column.is_valid(*row)) {
            let one = match column.data_type() {
                DataType::List(_) => column.as_list::<i32>().value(row),
                DataType::FixedSizeList(_, _) => column.as_fixed_size_list().value(row),
                _ => column.slice(row, 1),
            };
            if !sound(&one, items) {
                self.add(row, "type", || {
                    format!("{name} holds a null item or a float that is not finite; replace it")
                });
            }
        }
    }

    fn members(&mut self, at: usize, members: &[String]) {
        let column = self.rows.properties[at].clone();
        let texts = column.as_string::<i32>();
        let name = self.name(at);
        for (row, text) in texts.iter().enumerate() {
            let Some(text) = text else { continue };
            if members.binary_search_by(|m| m.as_str().cmp(text)).is_err() {
                self.add(row, "enum", || {
                    let hint = super::nearest::hint(text, members.iter().map(String::as_str));
                    let all = shown(&members.join(", "));
                    format!("{name} is {:?}, not one of {all}{hint}", shown(text))
                });
            }
        }
    }

    fn range(&mut self, rule: &RangeRule) {
        let Some((at, column)) = self.rows.property(rule.property) else {
            return;
        };
        match column.data_type() {
            DataType::Int32 => self.integers::<Int32Type>(at, column, rule),
            DataType::Int64 => self.integers::<Int64Type>(at, column, rule),
            DataType::UInt32 => self.integers::<UInt32Type>(at, column, rule),
            DataType::UInt64 => self.integers::<UInt64Type>(at, column, rule),
            DataType::Float32 => {
                let values = column.as_primitive::<Float32Type>();
                self.floats(at, values.iter().map(|v| v.map(f64::from)), rule);
            }
            _ => {
                let values = column.as_primitive::<Float64Type>();
                self.floats(at, values.iter(), rule);
            }
        }
    }

    fn integers<T: ArrowPrimitiveType>(&mut self, at: usize, column: &ArrayRef, rule: &RangeRule)
    where
        T::Native: Into<i128> + ArrowNativeType,
    {
        for (row, value) in column.as_primitive::<T>().iter().enumerate() {
            if let Some(value) = value.map(Into::into) {
                self.bounds(row, at, &value, rule, |limit| compare_int(value, limit));
            }
        }
    }

    fn floats(&mut self, at: usize, values: impl Iterator<Item = Option<f64>>, rule: &RangeRule) {
        for (row, value) in values.enumerate() {
            if let Some(value) = value {
                self.bounds(row, at, &value, rule, |limit| compare_float(value, limit));
            }
        }
    }

    /// What cannot be compared (NaN) is out of every range.
    fn bounds(
        &mut self,
        row: usize,
        at: usize,
        value: &dyn std::fmt::Display,
        rule: &RangeRule,
        compare: impl Fn(Limit) -> Option<std::cmp::Ordering>,
    ) {
        let low = |(limit, _): &&(Limit, String)| compare(*limit).is_none_or(|o| o.is_lt());
        let high = |(limit, _): &&(Limit, String)| compare(*limit).is_none_or(|o| o.is_gt());
        let (min, max) = (rule.min.as_ref(), rule.max.as_ref());
        if let Some((_, min)) = min.filter(low) {
            let name = self.name(at);
            self.add(row, "range", || {
                format!("{name} is {value}, the least value is {min}")
            });
        }
        if let Some((_, max)) = max.filter(high) {
            let name = self.name(at);
            self.add(row, "range", || {
                format!("{name} is {value}, the greatest value is {max}")
            });
        }
    }

    fn check(&mut self, rule: &CheckRule) {
        let Some((at, column)) = self.rows.property(rule.property) else {
            return;
        };
        let name = self.name(at);
        for (row, text) in column.as_string::<i32>().iter().enumerate() {
            let Some(text) = text else { continue };
            if !rule.pattern.is_match(text) {
                self.add(row, "check", || {
                    let pattern = rule.pattern.as_str();
                    format!(
                        "{name} is {:?}, which holds no match of the pattern {pattern:?}",
                        shown(text)
                    )
                });
            }
        }
    }
}

/// Whether no float is infinite or NaN and, for items, none is null.
fn sound(array: &ArrayRef, items: bool) -> bool {
    if items && array.null_count() > 0 {
        return false;
    }
    match array.data_type() {
        DataType::Float32 => {
            let mut values = array.as_primitive::<Float32Type>().iter().flatten();
            values.all(f32::is_finite)
        }
        DataType::Float64 => {
            let mut values = array.as_primitive::<Float64Type>().iter().flatten();
            values.all(f64::is_finite)
        }
        _ => true,
    }
}
