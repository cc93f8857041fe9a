//! What a query's text says, with the places where it says it.

use std::ops::Range;

use super::{Compare, Param, Value};

/// Bytes of the text.
pub type Span = Range<usize>;

/// A name and its place. Names of variables are without `$`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Name {
    /// The name.
    pub text: String,
    /// Its place, of a variable with the `$`.
    pub span: Span,
}

/// A declared query.
#[derive(Debug, Clone, PartialEq)]
pub struct QueryDecl {
    /// Its name.
    pub name: Name,
    /// Declared parameters with the places of their names, in order.
    pub params: Vec<(Param, Span)>,
    /// Text of `@description`.
    pub description: Option<String>,
    /// Text of `@instruction`.
    pub instruction: Option<String>,
    /// What it does.
    pub body: Body,
}

/// What a query does.
#[derive(Debug, Clone, PartialEq)]
pub enum Body {
    /// It reads.
    Read(Read),
    /// It writes, statement by statement.
    Mutation(Vec<Statement>),
}

/// What a statement of a mutation does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verb {
    /// `insert`
    Insert,
    /// `upsert`
    Upsert,
    /// `upsert` with `partial`
    UpsertPartial,
    /// `update`
    Update,
    /// `delete`
    Delete,
}

/// A statement of a mutation.
#[derive(Debug, Clone, PartialEq)]
pub struct Statement {
    /// What it does.
    pub verb: Verb,
    /// Its place.
    pub span: Span,
    /// The type.
    pub type_name: Name,
    /// Properties and their new values.
    pub assignments: Vec<(Name, Expr)>,
    /// The condition of an update or a delete.
    pub condition: Option<Expr>,
}

/// The body of a read query.
#[derive(Debug, Clone, PartialEq)]
pub struct Read {
    /// The clauses of `match`.
    pub clauses: Vec<Clause>,
    /// The place of the clauses.
    pub span: Span,
    /// Whether equal rows are returned once.
    pub distinct: bool,
    /// Result columns.
    pub items: Vec<Item>,
    /// Order keys.
    pub order: Vec<Key>,
    /// Rows to leave out.
    pub skip: Option<Rows>,
    /// Rows to return at most.
    pub limit: Option<Rows>,
}

/// A result column.
#[derive(Debug, Clone, PartialEq)]
pub struct Item {
    /// What it is.
    pub expr: Expr,
    /// Its alias.
    pub alias: Option<Name>,
}

/// An order key.
#[derive(Debug, Clone, PartialEq)]
pub struct Key {
    /// What to order by.
    pub expr: Expr,
    /// Whether `desc` or `asc` is written.
    pub descending: Option<bool>,
}

/// A number of rows.
#[derive(Debug, Clone, PartialEq)]
pub enum Rows {
    /// As written.
    Literal(u64),
    /// A parameter.
    Param(Name),
}

/// A clause of a pattern.
#[derive(Debug, Clone, PartialEq)]
pub enum Clause {
    /// `$v: Type { property: value }`.
    Binding(Binding),
    /// `$a edge $b`.
    Traversal(Traversal),
    /// A condition.
    Condition(Expr),
    /// `not { }` and its place.
    Not(Vec<Clause>, Span),
    /// `optional { }` and its place.
    Optional(Vec<Clause>, Span),
}

/// `$v: Type { property: value }`.
#[derive(Debug, Clone, PartialEq)]
pub struct Binding {
    /// The variable.
    pub variable: Name,
    /// The node type.
    pub node: Name,
    /// Properties and the values that they have.
    pub fields: Vec<(Name, Expr)>,
}

/// `$a edge $b`.
#[derive(Debug, Clone, PartialEq)]
pub struct Traversal {
    /// Left side.
    pub left: Name,
    /// Variable of the edge.
    pub binding: Option<Name>,
    /// The edge type.
    pub edge: Name,
    /// Whether it is written `<edge>`.
    pub undirected: bool,
    /// Bounds as written, and their place; without a greatest distance `{m,}`.
    pub bounds: Option<(String, Option<String>, Span)>,
    /// Right side.
    pub right: Name,
}

/// An expression and its place.
#[derive(Debug, Clone, PartialEq)]
pub struct Expr {
    /// What it is.
    pub kind: ExprKind,
    /// Its place.
    pub span: Span,
}

/// An operator between two operands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operator {
    /// A comparison.
    Compare(Compare),
    /// `contains`
    Contains,
    /// `starts_with`
    StartsWith,
}

/// What an expression is.
#[derive(Debug, Clone, PartialEq)]
pub enum ExprKind {
    /// A literal; `date(...)` and `datetime(...)` of a text too.
    Literal(Value),
    /// A list literal.
    List(Vec<Expr>),
    /// `$v`: a variable or a parameter.
    Variable(String),
    /// `$v.property`.
    Access(Name, Name),
    /// A bare word: the name of a result column.
    Word(String),
    /// A call.
    Call {
        /// The function.
        function: Name,
        /// Whether `distinct` stands before the arguments.
        distinct: bool,
        /// The arguments.
        arguments: Vec<Expr>,
    },
    /// An operator and its operands.
    Binary(Operator, Box<Expr>, Box<Expr>),
    /// `is null`.
    IsNull(Box<Expr>),
    /// Negation.
    Not(Box<Expr>),
    /// All of them.
    And(Vec<Expr>),
    /// Any of them.
    Or(Vec<Expr>),
}
