//! What the verbs of graphs answer.

use std::sync::Arc;

use arrow::datatypes::{Schema, SchemaRef};
use arrow::record_batch::RecordBatch;
use stratagraph::Result;

use super::{Cell, Micros, Report, column_name, field, rows};

report! {
    /// A graph that was made.
    pub struct GraphCreateReport {
        /// The graph.
        pub graph: String,
        /// Number of its node types.
        pub node_types: u64,
        /// Number of its edge types.
        pub edge_types: u64,
        /// The commit.
        pub commit_id: String,
    }
}

report! {
    /// What was done with a branch.
    pub struct BranchReport {
        /// The graph.
        pub graph: String,
        /// The branch.
        pub branch: String,
        /// The commit.
        pub commit_id: String,
        /// `created` or `deleted`; of a merge `already_up_to_date`, `fast_forward` or `merged`.
        pub outcome: String,
    }
}

report! {
    /// A branch of a graph.
    pub struct BranchRow {
        /// Its name.
        pub branch: String,
        /// Commit id of its head.
        pub head: String,
        /// The branch that it was made from, if that is still there.
        pub parent: Option<String>,
        /// When it was made.
        pub created_at: Micros,
    }
}

report! {
    /// What keeps two branches from being merged.
    pub struct ConflictRow {
        /// The type of the row.
        pub r#type: String,
        /// Its id; of a cardinality that of the source.
        pub id: String,
        /// `divergent_insert`, `divergent_update`, `delete_vs_update`, `orphan_edge`, `unique_violation` or
        /// `cardinality_violation`.
        pub kind: String,
        /// What happened on both sides.
        pub detail: String,
    }
}

report! {
    /// A graph of the store.
    pub struct GraphRow {
        /// The graph.
        pub graph: String,
        /// Number of its branches.
        pub branches: u64,
        /// Number of node types of its main branch.
        pub node_types: u64,
        /// Number of edge types of its main branch.
        pub edge_types: u64,
        /// When it was made.
        pub created_at: Micros,
    }
}

report! {
    /// A property of a type of a graph, or a column that every type has.
    pub struct GraphSchemaRow {
        /// The type.
        pub r#type: String,
        /// `node` or `edge`.
        pub kind: String,
        /// The property.
        pub property: String,
        /// Its type in the schema language.
        pub data_type: String,
        /// Whether it may be null.
        pub nullable: bool,
        /// What holds of it.
        pub constraint: Option<String>,
    }
}

report! {
    /// A step from one schema of a graph to another.
    pub struct SchemaStepRow {
        /// What it does; of a refused step also why, and what helps.
        pub step: String,
        /// What kind of step: `add_type`, `rename_type`, `drop_type`, `add_property`, `rename_property`,
        /// `drop_property`, `change_property`, `extend_enum`, `add_constraint`, `drop_constraint`,
        /// `change_ends`, `update_type_metadata` or `update_property_metadata`.
        pub kind: String,
        /// Whether it can be done.
        pub supported: bool,
        /// Why it is refused; of a hard drop what it takes.
        pub code: Option<String>,
    }
}

report! {
    /// A row that differs between two states of a branch.
    pub struct GraphChangeRow {
        /// Its type.
        pub r#type: String,
        /// Its id.
        pub id: String,
        /// `added`, `changed` or `deleted`.
        pub change: String,
    }
}

report! {
    /// A graph that was dropped.
    pub struct GraphDropReport {
        /// The graph.
        pub graph: String,
        /// `dropped`.
        pub outcome: String,
    }
}

report! {
    /// A load of a graph.
    pub struct GraphLoadReport {
        /// The graph.
        pub graph: String,
        /// The branch that was written.
        pub branch: String,
        /// The branch that it was made from, if it was asked for.
        pub base_branch: Option<String>,
        /// Whether the branch was made by this load.
        pub branch_created: bool,
        /// Node records of the input.
        pub nodes_loaded: u64,
        /// Edge records of the input.
        pub edges_loaded: u64,
        /// The commit.
        pub commit_id: String,
    }
}

report! {
    /// Fragments of a type before and after an optimisation.
    pub struct GraphOptimizeRow {
        /// The type.
        pub r#type: String,
        /// Fragments before.
        pub fragments_before: u64,
        /// Fragments after.
        pub fragments_after: u64,
        /// Commit id of the head: that of the optimisation, or the old one where nothing was to do.
        pub commit_id: String,
    }
}

report! {
    /// An index of a graph.
    pub struct GraphIndexRow {
        /// The type.
        pub r#type: String,
        /// The property.
        pub property: String,
        /// `hnsw`, `ivf` or `exact` for vectors, `text` for texts, `bounds` for other values.
        pub kind: String,
        /// Live rows that it covers; others are searched one by one.
        pub covered_rows: u64,
        /// Live rows of the type.
        pub total_rows: u64,
    }
}

report! {
    /// States of a branch that expired.
    pub struct GraphExpireReport {
        /// The graph.
        pub graph: String,
        /// The branch.
        pub branch: String,
        /// Number of states that went.
        pub expired: u64,
        /// Objects that were deleted with them.
        pub objects_deleted: u64,
    }
}

report! {
    /// A mutation of a graph.
    pub struct GraphMutateReport {
        /// Nodes that it wrote or deleted, each counted once.
        pub affected_nodes: u64,
        /// Edges that it wrote or deleted, those of deleted nodes too, each counted once.
        pub affected_edges: u64,
        /// The commit; none where nothing was changed.
        pub commit_id: Option<String>,
    }
}

report! {
    /// A record that a load would refuse.
    pub struct ViolationRow {
        /// Number of the record, from 1; 0 for a row that the load does not bring.
        pub record: u64,
        /// Its type.
        pub r#type: String,
        /// Its id.
        pub id: String,
        /// The rule that it breaks.
        pub rule: String,
        /// What is wrong.
        pub message: String,
    }
}
