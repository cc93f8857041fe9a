//! Stored schemas: what is read is checked to be what this format can hold.

use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize;

use super::rules::{self, Listing};
use super::{FORMAT, GraphSchema, GraphType, Index, Member, Property, Range, system_columns};
use crate::graph::value::{Scalar, ValueType};
use crate::table::schema::id;
use crate::{Error, Result, digest, limits};

/// Any object with a format.
#[derive(Deserialize)]
struct Formatted {
    format: u64,
}

/// See [`GraphSchema::decode`].
pub(super) fn decode(path: &str, bytes: &[u8]) -> Result<GraphSchema> {
    if bytes.len() as u64 <= limits::METADATA_BYTES
        && let Ok(Formatted { format }) = serde_json::from_slice(bytes)
        && format != FORMAT
    {
        return Err(Error::IncompatibleFormat {
            path: path.to_owned(),
            found: format,
            supported: FORMAT,
        });
    }
    let schema: GraphSchema = digest::parse_canonical("graph schema", path, bytes)?;
    let wrong = |(expected, found): Wrong| Error::corrupt("graph schema", path, expected, found);
    check(&schema, system_columns(false)?, system_columns(true)?).map_err(wrong)?;
    Ok(schema)
}

/// What was expected, and what was found.
type Wrong = (&'static str, String);

fn expect(holds: bool, expected: &'static str, found: impl ToString) -> Result<(), Wrong> {
    match holds {
        true => Ok(()),
        false => Err((expected, found.to_string())),
    }
}

fn check(schema: &GraphSchema, node_columns: usize, edge_columns: usize) -> Result<(), Wrong> {
    let length = schema.source.len();
    expect(
        length <= limits::LANGUAGE_BYTES,
        "a text within its limit",
        length,
    )?;
    let types = schema.types.len();
    expect(
        (1..=limits::GRAPH_TYPES).contains(&types),
        "a number of types within its limit",
        types,
    )?;
    let interfaces = interfaces(schema)?;
    let mut names = interfaces.clone();
    let mut folded = BTreeSet::new();
    let (mut ids, mut property_ids) = (BTreeSet::new(), BTreeSet::new());
    for t in &schema.types {
        let fits = rules::is_type_name(&t.name) && names.insert(&t.name);
        expect(fits, "names of types, each once", &t.name)?;
        let alone = !t.is_edge() || folded.insert(t.name.to_ascii_lowercase());
        expect(
            alone,
            "names of edge types that differ in more than case",
            &t.name,
        )?;
        let fits = (1..schema.next_type).contains(&t.id) && ids.insert(t.id);
        expect(fits, "type ids below the next one, each once", t.id)?;
        let system = if t.is_edge() {
            edge_columns
        } else {
            node_columns
        };
        let columns = system + t.properties.len();
        expect(
            columns <= limits::COLUMNS,
            "a number of columns within its limit",
            columns,
        )?;
        for property in &t.properties {
            let below = schema.next_property.min(id::LAST + 1);
            let fits = (id::FIRST_USER..below).contains(&property.id);
            let fits = fits && property_ids.insert(property.id);
            expect(
                fits,
                "property ids below the next one, each once",
                property.id,
            )?;
        }
        let known = |name: &String| interfaces.contains(name.as_str());
        let fits = t.implements.iter().all(known) && (!t.is_edge() || t.implements.is_empty());
        expect(fits, "interfaces of the schema at node types", &t.name)?;
    }
    let count = property_ids.len();
    expect(
        count <= limits::GRAPH_PROPERTIES,
        "a number of properties within its limit",
        count,
    )?;
    let nodes: BTreeSet<u64> = schema.nodes().map(|t| t.id).collect();
    let mut patterns = BTreeSet::new();
    for t in &schema.types {
        Checked::new(t)?.check(&nodes, &mut patterns)?;
    }
    Ok(())
}

/// Names of the interfaces.
fn interfaces(schema: &GraphSchema) -> Result<BTreeSet<&str>, Wrong> {
    let mut names = BTreeSet::new();
    for interface in &schema.interfaces {
        let name = interface.name.as_str();
        let fits = rules::is_type_name(name) && names.insert(name);
        expect(fits, "names of interfaces, each once", name)?;
        let mut seen = BTreeSet::new();
        for name in &interface.properties {
            let fits = rules::is_property_name(name) && seen.insert(name);
            expect(fits, "names of properties of an interface, each once", name)?;
        }
    }
    Ok(names)
}

/// One type with its properties by id.
struct Checked<'s> {
    graph_type: &'s GraphType,
    properties: BTreeMap<u64, &'s Property>,
}

impl<'s> Checked<'s> {
    fn new(graph_type: &'s GraphType) -> Result<Self, Wrong> {
        let mut names = BTreeSet::new();
        for property in &graph_type.properties {
            let name = property.name.as_str();
            let fits = rules::is_property_name(name)
                && rules::reserved(name, graph_type.is_edge()).is_none()
                && names.insert(name);
            expect(fits, "names of properties, each once", name)?;
            let fits = match &property.value_type {
                ValueType::Scalar(_) | ValueType::List(_) | ValueType::Blob => true,
                ValueType::Vector(width) => (1..=limits::DIMENSIONS).contains(&(*width as usize)),
                ValueType::Enum(values) => {
                    values.iter().all(|value| rules::is_enum_value(value))
                        && values.is_sorted_by(|a, b| a < b)
                        && !values.is_empty()
                }
            };
            expect(fits, "types of properties within their limits", name)?;
        }
        let properties = graph_type.properties.iter().map(|p| (p.id, p)).collect();
        Ok(Self {
            graph_type,
            properties,
        })
    }

    fn check(&self, nodes: &BTreeSet<u64>, patterns: &mut BTreeSet<&'s str>) -> Result<(), Wrong> {
        let t = self.graph_type;
        if let Some(ends) = &t.edge {
            let fits = nodes.contains(&ends.from) && nodes.contains(&ends.to);
            expect(fits, "an edge type between node types", &t.name)?;
            let fits = ends.max.is_none_or(|max| ends.min <= max);
            expect(fits, "a cardinality in order", &t.name)?;
            let fits = t.key.is_empty() && t.ranges.is_empty() && t.checks.is_empty();
            expect(fits, "no constraint of a node type", &t.name)?;
        }
        let key: Vec<Member> = t.key.iter().map(|id| Member::Property(*id)).collect();
        if !key.is_empty() {
            self.members(Listing::Key, &key)?;
        }
        let mut seen = BTreeSet::from([rules::as_set(&key)]);
        for unique in &t.unique {
            self.members(Listing::Unique, unique)?;
            let fresh = seen.insert(rules::as_set(unique));
            expect(fresh, "every unique tuple once", &t.name)?;
        }
        let mut seen = BTreeSet::new();
        for index in &t.indexes {
            self.members(Listing::Index, &index.members)?;
            self.options(index)?;
            let members: Vec<_> = index.members.iter().map(|m| rules::as_set(&[*m])).collect();
            expect(seen.insert(members), "every index once", &t.name)?;
        }
        for range in &t.ranges {
            self.range(range)?;
        }
        for check in &t.checks {
            let text = self.scalar(check.property) == Some(Scalar::String);
            expect(text, "a pattern of a String", check.property)?;
            if patterns.insert(&check.pattern) {
                let count = patterns.len();
                let fits = count <= limits::GRAPH_PATTERNS;
                expect(fits, "a number of patterns within its limit", count)?;
                let compiles = rules::pattern(&check.pattern).is_ok();
                expect(compiles, "a pattern that compiles", check.property)?;
            }
        }
        for property in &t.properties {
            if let Some(embed) = &property.embed {
                let fits = matches!(property.value_type, ValueType::Vector(_))
                    && !t.is_edge()
                    && self.scalar(embed.source) == Some(Scalar::String)
                    && embed.model.as_ref().is_none_or(|model| !model.is_empty());
                expect(fits, "a vector made from a String", &property.name)?;
            }
        }
        Ok(())
    }

    fn scalar(&self, property: u64) -> Option<Scalar> {
        match self.properties.get(&property)?.value_type {
            ValueType::Scalar(scalar) => Some(scalar),
            _ => None,
        }
    }

    fn members(&self, listing: Listing, members: &[Member]) -> Result<(), Wrong> {
        let set: BTreeSet<u64> = rules::as_set(members).into_iter().collect();
        let distinct = set.len() == members.len() && !members.is_empty();
        let fits = |member: &Member| match member {
            Member::Src | Member::Dst => self.graph_type.is_edge(),
            Member::Property(id) => self.properties.get(id).is_some_and(|property| {
                listing.fits(&property.value_type, members.len())
                    && !(listing == Listing::Key && property.nullable)
            }),
        };
        let fits = distinct && members.iter().all(fits);
        expect(
            fits,
            "properties that a constraint can name",
            &self.graph_type.name,
        )
    }

    fn options(&self, index: &Index) -> Result<(), Wrong> {
        let value_type = |member: &Member| match member {
            Member::Src | Member::Dst => None,
            Member::Property(id) => self.properties.get(id).map(|p| &p.value_type),
        };
        let members: Vec<_> = index.members.iter().map(value_type).collect();
        for (option, value) in &index.options {
            let values = rules::option_values(option).unwrap_or_default();
            let fits = values.contains(&value.as_str()) && rules::option_fits(option, &members);
            expect(fits, "options of an index", option)?;
        }
        Ok(())
    }

    fn range(&self, range: &Range) -> Result<(), Wrong> {
        let scalar = self.scalar(range.property).filter(|s| s.is_numeric());
        let bounds = [&range.min, &range.max].into_iter().flatten();
        let fits = scalar.is_some_and(|scalar| bounds.clone().all(|b| rules::is_bound(b, scalar)))
            && bounds.count() > 0
            && match (&range.min, &range.max) {
                (Some(min), Some(max)) => {
                    rules::order(min, max).is_some_and(std::cmp::Ordering::is_le)
                }
                _ => true,
            };
        expect(fits, "a range of a number", range.property)
    }
}
