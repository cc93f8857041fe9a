//! Which variable a name is.

use std::collections::{HashMap, HashSet};

use super::Checker;
use crate::graph::query::Var;
use crate::graph::query::ast::Name;
use crate::graph::query::findings::shown;
use crate::graph::schema::GraphType;

/// What is known of a variable's type.
#[derive(Clone, Copy)]
pub(super) enum Typing<'a> {
    /// Not yet anything.
    Open,
    /// Its type.
    Known(&'a GraphType),
    /// There is a finding about it; nothing more is found of it.
    Broken,
}

/// A variable.
pub(super) struct Bound<'a> {
    pub(super) name: String,
    pub(super) typing: Typing<'a>,
    pub(super) is_edge: bool,
    pub(super) optional: bool,
}

impl<'a> Bound<'a> {
    pub(super) fn known(&self) -> Option<&'a GraphType> {
        match self.typing {
            Typing::Known(owner) => Some(owner),
            Typing::Open | Typing::Broken => None,
        }
    }
}

/// Names of one pair of braces.
#[derive(Default)]
pub(super) struct Scope {
    pub(super) names: HashMap<String, Var>,
    /// Names that an `optional` block above has and no clause of this scope had before.
    pub(super) claimed: HashSet<String>,
    /// Whether it names a variable of a scope around it.
    pub(super) anchored: bool,
    /// Whether its variables may be null around it.
    pub(super) optional: bool,
}

impl<'a> Checker<'a> {
    /// The variable of a name. A scope between its own and the innermost one is anchored by that.
    pub(super) fn lookup(&mut self, name: &str) -> Option<Var> {
        let found = |scope: &Scope| scope.names.get(name).copied();
        let at = self
            .scopes
            .iter()
            .rposition(|scope| found(scope).is_some())?;
        for scope in &mut self.scopes[at + 1..] {
            scope.anchored = true;
        }
        found(&self.scopes[at])
    }

    /// A new variable of the innermost scope; `_` has no name to find it by.
    pub(super) fn introduce(&mut self, name: &str, is_edge: bool, typing: Typing<'a>) -> Var {
        let var = self.variables.len();
        let optional = self.scopes.iter().any(|scope| scope.optional);
        self.variables.push(Bound {
            name: name.to_owned(),
            typing,
            is_edge,
            optional,
        });
        if name != "_"
            && let Some(scope) = self.scopes.last_mut()
        {
            scope.names.insert(name.to_owned(), var);
        }
        var
    }

    /// Whether a name may be a variable: not a parameter's, not one that belongs to an optional block.
    pub(super) fn free(&mut self, name: &Name) -> bool {
        if self.params.contains_key(name.text.as_str()) {
            let message = format!("{} is a parameter", shown(&name.text));
            self.add("T27", &name.span, message, "give the variable another name");
            return false;
        }
        let claimed = |scope: &super::Scope| scope.claimed.contains(&name.text);
        if self.scopes.last().is_some_and(claimed) {
            let message = format!(
                "{} belongs to an `optional` block above and may be null here",
                shown(&name.text)
            );
            let fix = "put the clause into the `optional` block, or use another variable";
            self.add("T28", &name.span, message, fix);
            return false;
        }
        true
    }
}
