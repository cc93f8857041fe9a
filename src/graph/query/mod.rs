//! A checked read query: what it binds, which rows it wants, what it returns.
//!
//! The pattern is declarative; the order of joins is the planner's. Variables are numbers, so that
//! two scopes may use one name.

pub mod ast;
mod check;
mod explain;
mod findings;
mod mutation;
pub mod params;
mod parse;
mod tokens;
mod walk;

use super::schema::GraphSchema;
use super::value::{Value, ValueType};
use crate::Result;

pub use mutation::{Action, Assignment, Mutation, Statement, Target};
pub use parse::parse;

/// The query `name` of a text, checked against a schema; without a name the only one of the text.
/// Errors with `QueryInvalid` and all that is wrong, `ResourceLimitExceeded` for a text over a limit.
pub fn compile(text: &str, name: Option<&str>, schema: &GraphSchema) -> Result<Query> {
    let decls = parse(text)?;
    let chosen = parse::choose(text, &decls, name)?;
    match &chosen.body {
        ast::Body::Read(read) => check::check(text, chosen, read, schema),
        ast::Body::Mutation(_) => {
            let message = format!("the query {} writes", findings::shown(&chosen.name.text));
            let fix = "run it with `graph_mutate`";
            findings::refuse(text, "Q012", &chosen.name.span, message, fix)
        }
    }
}

/// The mutation `name` of a text, checked against a schema; without a name the only query of the
/// text. With `mixed` it may delete beside its other statements. Errors as [`compile`].
pub fn compile_mutation(
    text: &str,
    name: Option<&str>,
    schema: &GraphSchema,
    mixed: bool,
) -> Result<Mutation> {
    let decls = parse(text)?;
    let chosen = parse::choose(text, &decls, name)?;
    match &chosen.body {
        ast::Body::Mutation(statements) => {
            check::check_mutation(text, chosen, statements, schema, mixed)
        }
        ast::Body::Read(_) => {
            let message = format!(
                "the query {} only reads",
                findings::shown(&chosen.name.text)
            );
            let fix = "run it with `graph_query`";
            findings::refuse(text, "Q012", &chosen.name.span, message, fix)
        }
    }
}

/// A checked read query.
#[derive(Debug, Clone, PartialEq)]
pub struct Query {
    /// Its name.
    pub name: String,
    /// Declared parameters in order.
    pub params: Vec<Param>,
    /// All variables of all scopes; a [`Var`] is an index here.
    pub variables: Vec<Variable>,
    /// The pattern.
    pub pattern: Block,
    /// Result columns in order.
    pub outputs: Vec<Output>,
    /// Whether equal rows are returned once.
    pub distinct: bool,
    /// Order keys, most significant first.
    pub order: Vec<OrderKey>,
    /// Rows to leave out.
    pub skip: Option<Count>,
    /// Rows to return at most.
    pub limit: Option<Count>,
    /// Text of `@description`.
    pub description: Option<String>,
    /// Text of `@instruction`.
    pub instruction: Option<String>,
}

impl Query {
    /// Whether it groups: an output has an aggregate. Outputs without one are the group's key.
    pub fn aggregates(&self) -> bool {
        self.outputs.iter().any(|o| o.expr.aggregates())
    }
}

/// A declared parameter.
#[derive(Debug, Clone, PartialEq)]
pub struct Param {
    /// Its name, without `$`.
    pub name: String,
    /// Its type.
    pub value_type: ValueType,
    /// Whether it may be null or left out.
    pub nullable: bool,
}

/// Number of a variable: an index into [`Query::variables`].
pub type Var = usize;

/// A variable.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Variable {
    /// Its name without `$`; `_` for each anonymous one.
    pub name: String,
    /// Type id of its node type, or of its edge type for the binding of an edge.
    pub type_id: u64,
    /// Whether it binds an edge.
    pub is_edge: bool,
    /// Whether an `optional` block introduces it, so that it may be null outside.
    pub optional: bool,
}

/// The clauses of one scope. All of `nodes`, `hops` and `filters` hold of a row; the blocks come after
/// them, `optionals` before those `filters` and `negations` that name their variables.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Block {
    /// Node variables that this scope introduces, in the order of their first mention.
    pub nodes: Vec<Var>,
    /// Traversals in the order of the text.
    pub hops: Vec<Hop>,
    /// Conditions, conjunctive; those of bindings (`{ doi: $doi }`) included.
    pub filters: Vec<Expr>,
    /// `optional { }` blocks in the order of the text.
    pub optionals: Vec<Block>,
    /// `not { }` blocks in the order of the text.
    pub negations: Vec<Block>,
}

/// Which way edges are followed, seen from the written left side.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Direction {
    /// From source to destination.
    Out,
    /// From destination to source.
    In,
    /// Both.
    Both,
}

/// A traversal. Without a binding it is a *set*: each pair (left, right) once per row, with its
/// shortest distance d and `min <= d <= max`. With a binding, one row an edge.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hop {
    /// Left side as written.
    pub left: Var,
    /// Right side as written.
    pub right: Var,
    /// Type id of the edge type.
    pub edge: u64,
    /// Direction from left to right.
    pub direction: Direction,
    /// Least distance, from 1.
    pub min: u32,
    /// Greatest distance.
    pub max: u32,
    /// Whether bounds were written.
    pub bounded: bool,
    /// Variable of the edge.
    pub binding: Option<Var>,
}

/// A comparison.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Compare {
    /// `=`
    Eq,
    /// `!=`
    Ne,
    /// `<`
    Lt,
    /// `<=`
    Le,
    /// `>`
    Gt,
    /// `>=`
    Ge,
}

/// An aggregate function.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Aggregate {
    /// Number of values that are not null.
    Count,
    /// Sum, in the widest type of its kind: I64, U64 or F64.
    Sum,
    /// Mean, F64.
    Avg,
    /// Least.
    Min,
    /// Greatest.
    Max,
}

/// An end of an edge.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum End {
    /// Its source.
    From,
    /// Its destination.
    To,
}

/// An expression. Nulls are SQL's: three-valued logic, a comparison with null holds of nothing.
#[derive(Debug, Clone, PartialEq)]
pub enum Expr {
    /// A literal.
    Literal(Value),
    /// A parameter by index.
    Param(usize),
    /// The time at which the query began, one for the whole query.
    Now,
    /// The id of a node or an edge.
    Id(Var),
    /// A property by id.
    Property(Var, u64),
    /// The id of the node at one end of an edge; in mutations only.
    End(Var, End),
    /// A comparison.
    Compare(Compare, Box<Expr>, Box<Expr>),
    /// Whether a list has an item: list, item.
    HasItem(Box<Expr>, Box<Expr>),
    /// Whether a text has another one in it, by bytes: text, part.
    HasText(Box<Expr>, Box<Expr>),
    /// Whether a text starts with another one: text, prefix.
    StartsWith(Box<Expr>, Box<Expr>),
    /// All of them.
    And(Vec<Expr>),
    /// Any of them.
    Or(Vec<Expr>),
    /// Negation.
    Not(Box<Expr>),
    /// Whether it is null.
    IsNull(Box<Expr>),
    /// An aggregate; without an argument `count()`, which counts rows.
    Aggregate {
        /// The function.
        function: Aggregate,
        /// What it aggregates.
        argument: Option<Box<Expr>>,
        /// Whether equal values count once.
        distinct: bool,
    },
    /// A result column, by index; in `order` only.
    Output(usize),
    /// A text condition: `search`, `match_text` or `fuzzy`.
    Search(Box<Search>),
    /// A rank: `nearest`, `bm25` or `rrf`.
    Rank(Box<Rank>),
}

impl Expr {
    /// Whether it holds an aggregate.
    pub fn aggregates(&self) -> bool {
        match self {
            Self::Aggregate { .. } => true,
            Self::Compare(_, a, b)
            | Self::HasItem(a, b)
            | Self::HasText(a, b)
            | Self::StartsWith(a, b) => a.aggregates() || b.aggregates(),
            Self::And(all) | Self::Or(all) => all.iter().any(Self::aggregates),
            Self::Not(a) | Self::IsNull(a) => a.aggregates(),
            _ => false,
        }
    }
}

/// How a text condition matches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SearchMode {
    /// `search`: any term of the query.
    Any,
    /// `match_text`.
    MatchText,
    /// `fuzzy`: any term, within an edit distance.
    Fuzzy,
}

/// A text condition.
#[derive(Debug, Clone, PartialEq)]
pub struct Search {
    /// How it matches.
    pub mode: SearchMode,
    /// Variable and property of the text.
    pub field: (Var, u64),
    /// The query: a text literal or parameter.
    pub query: Expr,
    /// Greatest edit distance of `fuzzy`.
    pub max_edits: Option<Expr>,
}

/// A rank.
#[derive(Debug, Clone, PartialEq)]
pub enum Rank {
    /// Distance of a vector property to a vector, or to the vector of a text.
    Nearest {
        /// Variable and property of the vector.
        field: (Var, u64),
        /// A vector or a text.
        query: Expr,
    },
    /// BM25 score of a text property.
    Bm25 {
        /// Variable and property of the text.
        field: (Var, u64),
        /// A text.
        query: Expr,
    },
    /// Distance in hops of a traversal of the pattern, within `rrf`.
    Hops {
        /// Where the traversal begins.
        from: Var,
        /// What is ranked: where it ends.
        to: Var,
    },
    /// Reciprocal rank fusion of ranks.
    Rrf {
        /// The ranks, two or more, none of them a fusion.
        arms: Vec<Rank>,
        /// The constant k, default 60.
        k: Option<Expr>,
    },
}

/// A result column.
#[derive(Debug, Clone, PartialEq)]
pub struct Output {
    /// Its name: the alias, else `var.prop`, `var` or the parameter's name.
    pub name: String,
    /// What it is.
    pub expr: Expr,
    /// Its type; the id of a variable is text.
    pub value_type: ValueType,
    /// Whether it may be null.
    pub nullable: bool,
}

/// An order key. Nulls come first ascending and last descending.
#[derive(Debug, Clone, PartialEq)]
pub struct OrderKey {
    /// What to order by.
    pub expr: Expr,
    /// Whether greatest come first.
    pub descending: bool,
}

/// A number of rows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Count {
    /// As written.
    Literal(u64),
    /// A parameter by index.
    Param(usize),
}
