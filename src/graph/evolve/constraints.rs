//! Constraints and indexes of a type as values that can be compared and spelled.

use crate::graph::schema::{Bound, GraphType, Index, Member};
use crate::table::schema::id;

/// A constraint or an index of a type, by ids.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Constraint {
    Unique(Vec<u64>),
    Index(Index),
    Range(crate::graph::schema::Range),
    Check(crate::graph::schema::Check),
}

fn number(member: &Member) -> u64 {
    match member {
        Member::Src => id::SRC,
        Member::Dst => id::DST,
        Member::Property(id) => *id,
    }
}

/// The constraints of a type over its rows, and its indexes; the key and `@card` are not among them.
pub(super) fn constraints(of: &GraphType) -> Vec<Constraint> {
    let unique = of.unique.iter().map(|members| {
        // The order of the members means nothing.
        let mut members: Vec<u64> = members.iter().map(number).collect();
        members.sort_unstable();
        Constraint::Unique(members)
    });
    let indexes = of.indexes.iter().cloned().map(Constraint::Index);
    let ranges = of.ranges.iter().cloned().map(Constraint::Range);
    let checks = of.checks.iter().cloned().map(Constraint::Check);
    unique.chain(indexes).chain(ranges).chain(checks).collect()
}

impl Constraint {
    /// As the schema language writes it, with the names of `of`.
    pub(super) fn spelled(&self, of: &GraphType) -> String {
        let name = |id: u64| match id {
            id::SRC => "src",
            id::DST => "dst",
            id => of.property_by_id(id).map_or("?", |p| p.name.as_str()),
        };
        let names = |ids: &mut dyn Iterator<Item = u64>| -> String {
            ids.map(name).collect::<Vec<_>>().join(", ")
        };
        match self {
            Self::Unique(members) => format!("@unique({})", names(&mut members.iter().copied())),
            Self::Index(index) => {
                let mut text = names(&mut index.members.iter().map(number));
                for (option, value) in &index.options {
                    text += &format!(", {option} = {value:?}");
                }
                format!("@index({text})")
            }
            Self::Range(range) => {
                let bound = |bound: &Option<Bound>| match bound {
                    Some(Bound::Int(text) | Bound::Float(text)) => text.clone(),
                    None => String::new(),
                };
                let (min, max) = (bound(&range.min), bound(&range.max));
                format!("@range({}, {min}..{max})", name(range.property))
            }
            Self::Check(check) => format!("@check({}, {:?})", name(check.property), check.pattern),
        }
    }

    /// Ids of the properties that it is about.
    pub(super) fn properties(&self) -> Vec<u64> {
        match self {
            Self::Unique(members) => members
                .iter()
                .copied()
                .filter(|m| *m >= id::FIRST_USER)
                .collect(),
            Self::Index(_) => Vec::new(),
            Self::Range(range) => vec![range.property],
            Self::Check(check) => vec![check.property],
        }
    }
}

/// `@card` as the schema language writes it.
pub(super) fn card((min, max): (u64, Option<u64>)) -> String {
    let max = max.map(|max| max.to_string()).unwrap_or_default();
    format!("@card({min}..{max})")
}
