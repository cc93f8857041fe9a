//! The clauses of a scope.

use std::collections::HashSet;

use super::hop::Pending;
use super::scope::Scope;
use super::typed::{Place, Ty};
use super::{Checker, Typing};
use crate::graph::query::ast::Traversal;
use crate::graph::query::ast::{Binding, Clause, Expr as Ast, ExprKind, Name, Operator, Span};
use crate::graph::query::findings::{instead, shown};
use crate::graph::query::{Block, Expr, Var};
use crate::graph::schema::GraphType;

/// Which pair of braces it is.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// `match { }`
    Root,
    /// `optional { }`
    Optional,
    /// `not { }`
    Not,
}

impl<'a> Checker<'a> {
    /// Checks a scope. Names are declared first, so that the order of bindings and traversals does
    /// not matter; conditions and inner blocks follow in the order of the text.
    pub(super) fn block(&mut self, clauses: &[Clause], span: &Span, kind: Kind) -> Block {
        let optional = kind == Kind::Optional;
        self.scopes.push(Scope {
            optional,
            ..Scope::default()
        });
        let before = self.variables.len();
        let mut block = Block::default();
        let traversals = self.declare(clauses, &mut block);
        block.hops = self.hops(traversals);
        let introduced = self.variables.len() > before;
        for clause in clauses {
            self.clause(clause, &mut block);
        }
        let Some(scope) = self.scopes.pop() else {
            return block;
        };
        let binds = |clause: &Clause| matches!(clause, Clause::Binding(_) | Clause::Traversal(_));
        let adds = introduced
            || !block.optionals.is_empty()
            || clauses.iter().any(binds) && kind == Kind::Root;
        self.anchor(&scope, adds, span, kind);
        match (kind, self.scopes.last_mut()) {
            // What an optional block introduces can be read around it.
            (Kind::Optional, Some(around)) => around.names.extend(scope.names),
            (Kind::Root, _) => self.scopes.push(scope),
            _ => {}
        }
        block
    }

    /// Refuses blocks that have nothing to do with what is around them.
    fn anchor(&mut self, scope: &Scope, adds: bool, span: &Span, kind: Kind) {
        let open = span.start..span.start + 1;
        match kind {
            Kind::Root if !adds => {
                let fix = "bind a variable: `$a: Type`";
                self.add("T25", &open, "the pattern binds no variable", fix);
            }
            Kind::Not | Kind::Optional if !scope.anchored => {
                let word = if kind == Kind::Not { "not" } else { "optional" };
                let message =
                    format!("this `{word}` block names no variable of the scope around it");
                let fix = "use a variable of the outer pattern in it";
                self.add("T25", span, message, fix);
            }
            Kind::Optional if !adds => {
                let message = "this `optional` block introduces no variable, so it changes nothing";
                let fix = "leave it out, or bind what it finds to a new variable";
                self.add("T25", span, message, fix);
            }
            _ => {}
        }
    }

    /// Declares the variables of bindings and traversals, with the types that are written.
    fn declare(&mut self, clauses: &[Clause], block: &mut Block) -> Vec<Pending<'a>> {
        let mut traversals = Vec::new();
        for clause in clauses {
            match clause {
                Clause::Binding(binding) => self.bind(binding, block),
                Clause::Traversal(traversal) => {
                    traversals.extend(self.traverse(traversal, block));
                }
                Clause::Condition(condition) => {
                    // `$a contains $b` of an edge type of that name is a traversal.
                    if let Some((left, word, right)) = self.operator_edge(condition) {
                        let pair = self.ends(&left, &right, block);
                        let edge = self.schema.edge(word);
                        if let (Some((left, right)), Some(edge)) = (pair, edge) {
                            traversals.push(Pending::plain(left, right, edge, &condition.span));
                        }
                    }
                }
                Clause::Optional(inner, _) => self.claim(inner),
                Clause::Not(..) => {}
            }
        }
        traversals
    }

    /// Remembers the names that an optional block has as its own.
    fn claim(&mut self, clauses: &[Clause]) {
        let mut names = HashSet::new();
        named(clauses, &mut names);
        names.retain(|name| {
            let bound = |scope: &Scope| scope.names.contains_key(name);
            !self.scopes.iter().any(bound)
        });
        if let Some(scope) = self.scopes.last_mut() {
            scope.claimed.extend(names);
        }
    }

    fn bind(&mut self, binding: &Binding, block: &mut Block) {
        let name = &binding.node;
        let node = self.schema.node(&name.text);
        if node.is_none() {
            let message = format!("no node type is named {}", shown(&name.text));
            let fix = match self.schema.edge(&name.text) {
                Some(_) => "it is an edge type; bind it in a traversal: `$a $w:edge $b`".to_owned(),
                None => instead(&name.text, self.schema.nodes().map(|t| t.name.as_str())),
            };
            self.add("T1", &name.span, message, fix);
        }
        let Some(var) = self.end(&binding.variable, block) else {
            return;
        };
        self.bindings.insert(binding.variable.span.start, var);
        match (self.variables[var].typing, node) {
            (Typing::Open, Some(node)) => self.variables[var].typing = Typing::Known(node),
            (Typing::Known(known), Some(node)) if known.id != node.id => {
                let (variable, known) = (shown(&binding.variable.text), shown(&known.name));
                let message = format!("{variable} is a {known} already");
                let fix = "give one of them another name";
                self.add("T27", &binding.variable.span, message, fix);
            }
            (_, None) => self.variables[var].typing = Typing::Broken,
            _ => {}
        }
    }

    /// The node variable of a name, introduced if there is none yet.
    pub(super) fn end(&mut self, name: &Name, block: &mut Block) -> Option<Var> {
        if name.text == "_" {
            let var = self.introduce("_", false, Typing::Open);
            block.nodes.push(var);
            return Some(var);
        }
        if let Some(var) = self.lookup(&name.text) {
            if self.variables[var].is_edge {
                let message = format!("{} is an edge, not a node", shown(&name.text));
                let fix = "give the node another name";
                self.add("T23", &name.span, message, fix);
                return None;
            }
            return Some(var);
        }
        if !self.free(name) {
            return None;
        }
        let var = self.introduce(&name.text, false, Typing::Open);
        block.nodes.push(var);
        Some(var)
    }

    fn ends(&mut self, left: &Name, right: &Name, block: &mut Block) -> Option<(Var, Var)> {
        let left = self.end(left, block);
        let right = self.end(right, block);
        left.zip(right)
    }

    fn traverse(&mut self, traversal: &Traversal, block: &mut Block) -> Option<Pending<'a>> {
        let ends = self.ends(&traversal.left, &traversal.right, block);
        let name = &traversal.edge;
        let edge = self.schema.edge(&name.text);
        if edge.is_none() {
            let message = format!("no edge type is named {}", shown(&name.text));
            let fix = instead(&name.text, self.schema.edges().map(|t| t.name.as_str()));
            self.add("T4", &name.span, message, fix);
        }
        let binding = match &traversal.binding {
            Some(name) => Some(self.bind_edge(name, edge)?),
            None => None,
        };
        let broken = |checker: &mut Self| {
            for end in [&traversal.left, &traversal.right] {
                checker.break_open(&end.text);
            }
        };
        let (Some(edge), Some((left, right))) = (edge, ends) else {
            broken(self);
            return None;
        };
        let bounds = self.bounds(traversal, edge);
        Some(Pending {
            binding,
            bounds,
            undirected: traversal.undirected,
            ..Pending::plain(left, right, edge, &traversal.edge.span)
        })
    }

    /// A variable whose type nothing can tell any more.
    fn break_open(&mut self, name: &str) {
        if let Some(var) = self.lookup(name)
            && matches!(self.variables[var].typing, Typing::Open)
        {
            self.variables[var].typing = Typing::Broken;
        }
    }

    fn bind_edge(&mut self, name: &Name, edge: Option<&'a GraphType>) -> Option<Var> {
        let typing = edge.map_or(Typing::Broken, Typing::Known);
        if name.text != "_" {
            if self.lookup(&name.text).is_some() {
                let message = format!("{} is bound already", shown(&name.text));
                let fix = "give the edge another name";
                self.add("T23", &name.span, message, fix);
                return None;
            }
            if !self.free(name) {
                return None;
            }
        }
        Some(self.introduce(&name.text, true, typing))
    }

    /// Conditions and inner blocks.
    fn clause(&mut self, clause: &Clause, block: &mut Block) {
        if self.findings.full() {
            return;
        }
        match clause {
            Clause::Binding(binding) => self.fields(binding, block),
            Clause::Traversal(_) => {}
            Clause::Condition(condition) => {
                if self.operator_edge(condition).is_none() {
                    self.condition(condition, &mut block.filters);
                }
            }
            Clause::Not(clauses, span) => {
                let inner = self.block(clauses, span, Kind::Not);
                block.negations.push(inner);
            }
            Clause::Optional(clauses, span) => {
                let inner = self.block(clauses, span, Kind::Optional);
                block.optionals.push(inner);
            }
        }
    }

    fn condition(&mut self, condition: &Ast, filters: &mut Vec<Expr>) {
        if let ExprKind::And(parts) = &condition.kind {
            for part in parts {
                self.condition(part, filters);
            }
            return;
        }
        let typed = self.expr(condition, Place::Match);
        match typed.ty {
            Ty::Broken => {}
            _ if typed.is_bool() => filters.push(typed.expr),
            other => {
                let message = format!("this is {other}, not a condition");
                let fix = "compare it with something, or test it with `is not null`";
                self.add("T7", &condition.span, message, fix);
            }
        }
    }

    /// The parts of `$a contains $b`, where an edge type has the operator's name and neither side is
    /// a parameter.
    fn operator_edge(&self, condition: &Ast) -> Option<(Name, &'static str, Name)> {
        let ExprKind::Binary(operator, left, right) = &condition.kind else {
            return None;
        };
        let word = match operator {
            Operator::Contains => "contains",
            Operator::StartsWith => "starts_with",
            Operator::Compare(_) => return None,
        };
        let end = |side: &Ast| match &side.kind {
            ExprKind::Variable(name) if !self.params.contains_key(name.as_str()) => Some(Name {
                text: name.clone(),
                span: side.span.clone(),
            }),
            _ => None,
        };
        let (left, right) = (end(left)?, end(right)?);
        self.schema.edge(word)?;
        Some((left, word, right))
    }
}

/// Names that bindings and traversals of clauses have, those of optional blocks within too.
fn named(clauses: &[Clause], names: &mut HashSet<String>) {
    let mut add = |name: &Name| {
        if name.text != "_" {
            names.insert(name.text.clone());
        }
    };
    for clause in clauses {
        match clause {
            Clause::Binding(binding) => add(&binding.variable),
            Clause::Traversal(traversal) => {
                add(&traversal.left);
                add(&traversal.right);
                traversal.binding.iter().for_each(&mut add);
            }
            Clause::Optional(..) | Clause::Not(..) | Clause::Condition(_) => {}
        }
    }
    for clause in clauses {
        if let Clause::Optional(inner, _) = clause {
            named(inner, names);
        }
    }
}
