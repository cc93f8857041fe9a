//! Columns of graph types as searches see them.

use super::text::TextColumn;
use super::vector::VectorColumn;
use crate::ann::Metric;
use crate::graph::schema::{GraphType, Member};
use crate::graph::value::{Scalar, ValueType};
use crate::text::Analyser;
use crate::{Error, Result};

/// An option of the declared indexes of a property, such as `metric`.
pub fn index_option<'t>(of: &'t GraphType, property: u64, option: &str) -> Option<&'t str> {
    let own = of.indexes.iter();
    let mut own = own.filter(|index| index.members.contains(&Member::Property(property)));
    own.find_map(|index| index.options.get(option))
        .map(String::as_str)
}

fn refuse(of: &GraphType, property: u64, expected: &str) -> Error {
    let name = of.property_by_id(property).map_or("?", |p| &p.name);
    Error::InvalidArgument {
        function: "search".to_owned(),
        argument: format!("{}.{name}", of.name),
        reason: format!("expected a property of {expected}"),
    }
}

impl VectorColumn {
    /// A property of vectors with the metric that it was declared with, `cosine` without one.
    ///
    /// # Errors
    /// `InvalidArgument` for a property of another type.
    pub fn of_property(of: &GraphType, property: u64) -> Result<Self> {
        let value_type = of.property_by_id(property).map(|p| &p.value_type);
        let Some(ValueType::Vector(dimensions)) = value_type else {
            return Err(refuse(of, property, "vectors"));
        };
        let metric = index_option(of, property, "metric").unwrap_or("cosine");
        Ok(Self {
            column: property,
            dimensions: *dimensions as usize,
            metric: Metric::parse(metric).ok_or_else(|| refuse(of, property, "a known metric"))?,
        })
    }
}

impl TextColumn {
    /// A property of texts with the analyser that it was declared with.
    ///
    /// # Errors
    /// `InvalidArgument` for a property of another type, and for an unknown analyser.
    pub fn of_property(of: &GraphType, property: u64) -> Result<Self> {
        let value_type = of.property_by_id(property).map(|p| &p.value_type);
        if value_type != Some(&ValueType::Scalar(Scalar::String)) {
            return Err(refuse(of, property, "text"));
        }
        let declared = index_option(of, property, "analyzer").map(Analyser::parse);
        Ok(Self {
            column: property,
            analyser: declared.transpose()?.unwrap_or_default(),
        })
    }
}
