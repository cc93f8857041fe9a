//! A checked mutation: statements that run one after the other, each on what the ones before it made.

use super::{End, Expr, Param, Variable};

/// A checked mutation.
#[derive(Debug, Clone, PartialEq)]
pub struct Mutation {
    /// Its name.
    pub name: String,
    /// Declared parameters in order.
    pub params: Vec<Param>,
    /// Its statements in the order of the text, one or more.
    pub statements: Vec<Statement>,
    /// Text of `@description`.
    pub description: Option<String>,
    /// Text of `@instruction`.
    pub instruction: Option<String>,
}

impl Mutation {
    /// Whether it does the same on every state of the graph, so that it may be prepared anew when
    /// another commit came first.
    pub fn inserts_only(&self) -> bool {
        let mut all = self.statements.iter();
        all.all(|statement| match statement.action {
            Action::Insert(_) => true,
            Action::Upsert { partial, .. } => !partial,
            Action::Update { .. } | Action::Delete { .. } => false,
        })
    }
}

/// A statement of a mutation. Its expressions read one variable, 0: a row of its type.
#[derive(Debug, Clone, PartialEq)]
pub struct Statement {
    /// The row: the type, and whether it is one of edges.
    pub row: Variable,
    /// What it does.
    pub action: Action,
}

/// What a statement does.
#[derive(Debug, Clone, PartialEq)]
pub enum Action {
    /// A new row; of a type with a key, one that replaces the row of its key.
    Insert(Vec<Assignment>),
    /// A row in the place of the row of its key, or a new one.
    Upsert {
        /// Its values.
        values: Vec<Assignment>,
        /// Whether what has no value here stays as it is in the row of the key.
        partial: bool,
    },
    /// Other values of the rows for which a condition holds.
    Update {
        /// The values.
        values: Vec<Assignment>,
        /// The condition.
        condition: Expr,
    },
    /// The rows for which a condition holds go; of nodes, with all their edges.
    Delete {
        /// The condition.
        condition: Expr,
    },
}

/// A new value.
#[derive(Debug, Clone, PartialEq)]
pub struct Assignment {
    /// What gets it.
    pub target: Target,
    /// The value: a literal in the type of the target, a parameter, `now()`, or what the row had. A
    /// parameter that is a number may be of another type.
    pub value: Expr,
}

/// What an assignment sets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Target {
    /// A property by id.
    Property(u64),
    /// An end of an edge.
    End(End),
}
