//! From the accepted schema of a graph to another one: which types and properties stay who they are,
//! what changes, what the data has to show first, and what is refused.

mod compare;
mod constraints;
mod identity;

use std::collections::BTreeSet;
use std::fmt;

use super::schema::{GraphSchema, Member};
use crate::Result;

pub use identity::same_meaning;

/// Codes of steps that are refused, and of those that lose data.
pub mod code {
    /// A node type with rows goes, and its history with it.
    pub const DROP_NODE: &str = "OG-DS-102";
    /// An edge type with rows goes, and its history with it.
    pub const DROP_EDGE: &str = "OG-DS-103";
    /// A property of a type with rows goes, and its history with it.
    pub const DROP_PROPERTY: &str = "OG-DS-104";
    /// A required property is added to a type with rows, which have no value for it.
    pub const ADD_REQUIRED: &str = "OG-MF-103";
    /// The key of a type with rows changes; their ids are made of it.
    pub const CHANGE_KEY: &str = "OG-MF-105";
    /// A property gets another type, or an enum loses a value.
    pub const CHANGE_TYPE: &str = "OG-MF-106";
    /// A `@rename_from` that cannot be followed.
    pub const RENAME: &str = "OG-BC-101";
    /// An edge type gets other ends.
    pub const CHANGE_ENDS: &str = "OG-ED-101";
    /// Stored vectors were made from another text or by another model.
    pub const CHANGE_EMBED: &str = "OG-VE-101";
}

/// What a step does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum StepKind {
    /// A type is new.
    AddType,
    /// A type has another name.
    RenameType,
    /// A type goes.
    DropType,
    /// A property is new.
    AddProperty,
    /// A property has another name.
    RenameProperty,
    /// A property goes.
    DropProperty,
    /// A property has another type.
    ChangeProperty,
    /// An enum has more values.
    ExtendEnum,
    /// A constraint or an index is new.
    AddConstraint,
    /// A constraint or an index goes.
    DropConstraint,
    /// The ends of an edge type are others.
    ChangeEnds,
    /// Annotations, interfaces or the order of properties of a type.
    UpdateTypeMetadata,
    /// Annotations or `@embed` of a property.
    UpdatePropertyMetadata,
}

impl StepKind {
    /// Its stable name.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::AddType => "add_type",
            Self::RenameType => "rename_type",
            Self::DropType => "drop_type",
            Self::AddProperty => "add_property",
            Self::RenameProperty => "rename_property",
            Self::DropProperty => "drop_property",
            Self::ChangeProperty => "change_property",
            Self::ExtendEnum => "extend_enum",
            Self::AddConstraint => "add_constraint",
            Self::DropConstraint => "drop_constraint",
            Self::ChangeEnds => "change_ends",
            Self::UpdateTypeMetadata => "update_type_metadata",
            Self::UpdatePropertyMetadata => "update_property_metadata",
        }
    }
}

/// One step from one schema to another.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Step {
    /// What it does, for readers; of a refused step also why and what helps.
    pub text: String,
    /// Its kind.
    pub kind: StepKind,
    /// Whether it can be done.
    pub supported: bool,
    /// Why it is refused, or what an allowed loss takes; a constant of [`code`].
    pub code: Option<&'static str>,
}

impl Step {
    fn done(kind: StepKind, text: String) -> Self {
        Self {
            text,
            kind,
            supported: true,
            code: None,
        }
    }

    fn refused(kind: StepKind, code: &'static str, text: String) -> Self {
        Self {
            text,
            kind,
            supported: false,
            code: Some(code),
        }
    }
}

/// Steps that are refused; `Display` gives one a line, with its code.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RefusedSteps(pub Vec<Step>);

impl fmt::Display for RefusedSteps {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, step) in self.0.iter().enumerate() {
            let end = if at > 0 { "\n" } else { "" };
            write!(f, "{end}{}: {}", step.code.unwrap_or_default(), step.text)?;
        }
        Ok(())
    }
}

/// What stored rows have to show before a schema holds for them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Proof {
    /// The values of a type, by its id: required ones are there, ranges and patterns hold.
    Values(u64),
    /// No two rows of a type have the same values here.
    Unique(u64, Vec<Member>),
    /// Each source of an edge type has a number of edges that is allowed.
    Cardinality(u64),
}

/// What is known of the data, and what may be lost.
#[derive(Debug, Clone, Default)]
pub struct Circumstances<'a> {
    /// Ids of the types that have live rows.
    pub populated: BTreeSet<u64>,
    /// Whether what is dropped also leaves the files and the history.
    pub hard: bool,
    /// The model of a new `@embed` that names none.
    pub default_model: &'a str,
}

/// The way from an accepted schema to another one.
#[derive(Debug, Clone, PartialEq)]
pub struct Evolution {
    /// The other schema, with the ids that stay and new ones above all that were ever given.
    pub schema: GraphSchema,
    /// The steps; none if both mean the same.
    pub steps: Vec<Step>,
    /// What must hold of the stored rows.
    pub proofs: Vec<Proof>,
}

impl Evolution {
    /// The way from `accepted` to `wanted`, which was compiled by itself.
    ///
    /// # Errors
    /// `ResourceLimitExceeded` when there are no ids left.
    pub fn plan(
        accepted: &GraphSchema,
        wanted: GraphSchema,
        circumstances: &Circumstances<'_>,
    ) -> Result<Self> {
        let (schema, mut steps) = identity::identify(accepted, wanted, circumstances)?;
        let mut compared = compare::compare(accepted, &schema, circumstances);
        steps.append(&mut compared.steps);
        // What cannot be kept is refused before anything is done.
        schema.encode()?;
        Ok(Self {
            schema,
            steps,
            proofs: compared.proofs,
        })
    }

    /// The steps that cannot be done.
    pub fn refused(&self) -> impl Iterator<Item = &Step> {
        self.steps.iter().filter(|step| !step.supported)
    }
}
