//! What keeps two branches from being merged.

use std::fmt;

/// Why a row cannot be merged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum ConflictKind {
    /// Both sides inserted the id with different content.
    DivergentInsert,
    /// Both sides updated the row to different content.
    DivergentUpdate,
    /// One side deleted what the other updated.
    DeleteVsUpdate,
    /// One side deleted an end of an edge that the other inserted or updated.
    OrphanEdge,
    /// Two rows, one of each side, have the same unique tuple.
    UniqueViolation,
    /// A source would have too few edges, or too many.
    CardinalityViolation,
}

impl ConflictKind {
    /// Its stable name.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::DivergentInsert => "divergent_insert",
            Self::DivergentUpdate => "divergent_update",
            Self::DeleteVsUpdate => "delete_vs_update",
            Self::OrphanEdge => "orphan_edge",
            Self::UniqueViolation => "unique_violation",
            Self::CardinalityViolation => "cardinality_violation",
        }
    }
}

/// One conflict.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct MergeConflict {
    /// Name of the type.
    pub type_name: String,
    /// Id of the row; of a cardinality the id of the source.
    pub id: String,
    /// Why.
    pub kind: ConflictKind,
    /// What happened on both sides.
    pub detail: String,
}

/// Conflicts in the order of types, then of ids; `Display` gives one a line.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MergeConflicts(pub Vec<MergeConflict>);

impl fmt::Display for MergeConflicts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, conflict) in self.0.iter().enumerate() {
            let MergeConflict {
                type_name,
                id,
                kind,
                detail,
            } = conflict;
            let line = if at > 0 { "\n" } else { "" };
            write!(f, "{line}{type_name} {id:?}: {}: {detail}", kind.as_str())?;
        }
        Ok(())
    }
}
