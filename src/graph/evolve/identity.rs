//! Who is who: types and properties of a new text as those of an accepted schema.
//!
//! A name keeps its identity; `@rename_from` carries it over to another name. A name that was dropped
//! and comes back is somebody else.

use std::collections::{BTreeMap, BTreeSet};

use super::{Circumstances, Step, StepKind, code};
use crate::graph::schema::{Annotation, GraphSchema, GraphType, Member, Property};
use crate::table::schema::id;
use crate::{Error, Result};

/// The annotation that carries an identity over.
const RENAME_FROM: &str = "rename_from";

/// A type or a property as it is matched.
struct Item<'a> {
    id: u64,
    name: &'a str,
    former: Option<&'a str>,
}

fn former(annotations: &[Annotation]) -> Option<&str> {
    let found = annotations.iter().find(|a| a.name == RENAME_FROM)?;
    found.value.as_deref()
}

/// Annotations without those that have done their work.
pub(super) fn lasting(annotations: &[Annotation]) -> impl Iterator<Item = &Annotation> {
    annotations.iter().filter(|a| a.name != RENAME_FROM)
}

/// Accepted ids by ids of the new text, and what cannot be followed: the name and why.
fn matched(accepted: &[Item<'_>], wanted: &[Item<'_>]) -> (BTreeMap<u64, u64>, Vec<(u64, String)>) {
    let ids: BTreeMap<&str, u64> = accepted.iter().map(|i| (i.name, i.id)).collect();
    let declared: BTreeSet<&str> = wanted.iter().map(|i| i.name).collect();
    let (mut out, mut claimed, mut refused) = (BTreeMap::new(), BTreeSet::new(), Vec::new());
    for item in wanted {
        let Some(former) = item.former else { continue };
        let why = match (ids.get(item.name), ids.get(former)) {
            // The change was made before, or both are meant to stay.
            (Some(_), None) => continue,
            (Some(_), Some(_)) if declared.contains(former) => continue,
            (Some(_), Some(_)) => format!(
                "both names exist already; drop {} first, or remove @rename_from",
                item.name
            ),
            (None, Some(id)) if claimed.insert(*id) => {
                out.insert(item.id, *id);
                continue;
            }
            (None, Some(_)) => format!("another one is renamed from {former} too; rename one"),
            (None, None) => format!("there is no {former}; correct the name, or remove it"),
        };
        refused.push((item.id, why));
    }
    for item in wanted {
        if let Some(id) = ids.get(item.name)
            && !out.contains_key(&item.id)
            && claimed.insert(*id)
        {
            out.insert(item.id, *id);
        }
    }
    (out, refused)
}

/// New ids by the ids that the compiler gave.
#[derive(Default)]
struct Ids {
    types: BTreeMap<u64, u64>,
    properties: BTreeMap<u64, u64>,
}

/// `wanted` with the ids of `accepted` where it means the same, new ones elsewhere; and the renames
/// that cannot be followed.
pub(super) fn identify(
    accepted: &GraphSchema,
    mut wanted: GraphSchema,
    circumstances: &Circumstances<'_>,
) -> Result<(GraphSchema, Vec<Step>)> {
    let (mut ids, mut refused) = (Ids::default(), Vec::new());
    for edge in [false, true] {
        let of_kind = |schema: &'_ GraphSchema| -> Vec<usize> {
            let all = schema.types.iter().enumerate();
            all.filter(|(_, t)| t.is_edge() == edge)
                .map(|(at, _)| at)
                .collect()
        };
        let (old, new) = (of_kind(accepted), of_kind(&wanted));
        let old: Vec<Item<'_>> = old.iter().map(|at| item(&accepted.types[*at])).collect();
        let new: Vec<Item<'_>> = new.iter().map(|at| item(&wanted.types[*at])).collect();
        let (types, wrong) = matched(&old, &new);
        ids.types.extend(types);
        for (id, why) in wrong {
            let name = wanted.by_id(id).map_or("", |t| t.name.as_str());
            refused.push(rename(StepKind::RenameType, name, &why));
        }
    }
    for of in &wanted.types {
        let known = ids.types.get(&of.id).and_then(|id| accepted.by_id(*id));
        let old: Vec<Item<'_>> = match known {
            Some(known) => known.properties.iter().map(property_item).collect(),
            None => Vec::new(),
        };
        let mut new: Vec<Item<'_>> = of.properties.iter().map(property_item).collect();
        if known.is_none() {
            // A new type has nothing to carry over.
            new.iter_mut().for_each(|item| item.former = None);
        }
        let (properties, wrong) = matched(&old, &new);
        ids.properties.extend(properties);
        for (id, why) in wrong {
            let name = of.property_by_id(id).map_or("", |p| p.name.as_str());
            let name = format!("{}.{name}", of.name);
            refused.push(rename(StepKind::RenameProperty, &name, &why));
        }
    }
    number(accepted, &mut wanted, &mut ids)?;
    name_models(accepted, &mut wanted, circumstances.default_model);
    Ok((wanted, refused))
}

fn item(of: &GraphType) -> Item<'_> {
    Item {
        id: of.id,
        name: &of.name,
        former: former(&of.annotations),
    }
}

fn property_item(property: &Property) -> Item<'_> {
    Item {
        id: property.id,
        name: &property.name,
        former: former(&property.annotations),
    }
}

fn rename(kind: StepKind, name: &str, why: &str) -> Step {
    Step::refused(kind, code::RENAME, format!("rename {name}: {why}"))
}

/// Gives every type and property its lasting id.
fn number(accepted: &GraphSchema, wanted: &mut GraphSchema, ids: &mut Ids) -> Result<()> {
    let (mut next_type, mut next_property) = (accepted.next_type, accepted.next_property);
    let take = |next: &mut u64| {
        let id = *next;
        *next += 1;
        id
    };
    for of in &wanted.types {
        ids.types
            .entry(of.id)
            .or_insert_with(|| take(&mut next_type));
        for property in &of.properties {
            ids.properties
                .entry(property.id)
                .or_insert_with(|| take(&mut next_property));
        }
    }
    if next_property > id::LAST {
        return Err(Error::ResourceLimitExceeded {
            what: "properties that a graph ever had",
            value: next_property,
            limit: id::LAST,
        });
    }
    (wanted.next_type, wanted.next_property) = (next_type, next_property);
    let mut types = std::mem::take(&mut wanted.types);
    types.iter_mut().for_each(|of| renumber(of, ids));
    wanted.types = types;
    Ok(())
}

fn renumber(of: &mut GraphType, ids: &Ids) {
    let of_type = |id: &mut u64| *id = ids.types.get(id).copied().unwrap_or(*id);
    let of_property = |id: &mut u64| *id = ids.properties.get(id).copied().unwrap_or(*id);
    of_type(&mut of.id);
    if let Some(ends) = &mut of.edge {
        of_type(&mut ends.from);
        of_type(&mut ends.to);
    }
    for property in &mut of.properties {
        of_property(&mut property.id);
        if let Some(embed) = &mut property.embed {
            of_property(&mut embed.source);
        }
        property.annotations = lasting(&property.annotations).cloned().collect();
    }
    of.key.iter_mut().for_each(of_property);
    let indexes = of.indexes.iter_mut().map(|index| &mut index.members);
    for members in of.unique.iter_mut().chain(indexes) {
        for member in members {
            if let Member::Property(id) = member {
                of_property(id);
            }
        }
    }
    for range in &mut of.ranges {
        of_property(&mut range.property);
    }
    for check in &mut of.checks {
        of_property(&mut check.property);
    }
    of.annotations = lasting(&of.annotations).cloned().collect();
}

/// An `@embed` that names no model keeps the one that it had.
fn name_models(accepted: &GraphSchema, wanted: &mut GraphSchema, default: &str) {
    for of in &mut wanted.types {
        let known = accepted.by_id(of.id);
        for property in &mut of.properties {
            let Some(embed) = &mut property.embed else {
                continue;
            };
            if embed.model.is_none() {
                let before = known.and_then(|t| t.property_by_id(property.id));
                let before = before.and_then(|p| p.embed.as_ref());
                let kept = before.filter(|before| before.source == embed.source);
                let kept = kept.and_then(|before| before.model.clone());
                embed.model = Some(kept.unwrap_or_else(|| default.to_owned()));
            }
        }
    }
}

/// Whether two schemas are the same but for the texts that they were compiled from: then data of one
/// is data of the other.
pub fn same_meaning(a: &GraphSchema, b: &GraphSchema) -> bool {
    let types = |schema: &GraphSchema| -> Vec<GraphType> {
        let mut types = schema.types.clone();
        for of in &mut types {
            of.annotations = lasting(&of.annotations).cloned().collect();
            for property in &mut of.properties {
                property.annotations = lasting(&property.annotations).cloned().collect();
            }
        }
        types
    };
    let counters = (a.next_type, a.next_property) == (b.next_type, b.next_property);
    counters && a.interfaces == b.interfaces && types(a) == types(b)
}
