//! Traversals: their bounds, the types of their ends, their direction.

use super::{Checker, Typing};
use crate::graph::query::ast::{Span, Traversal};
use crate::graph::query::findings::shown;
use crate::graph::query::{Direction, Hop, Var};
use crate::graph::schema::GraphType;
use crate::limits;

/// A traversal whose ends are variables and whose edge type is known.
pub(super) struct Pending<'a> {
    pub(super) left: Var,
    pub(super) right: Var,
    pub(super) edge: &'a GraphType,
    pub(super) binding: Option<Var>,
    /// Least and greatest distance, where they are written.
    pub(super) bounds: Option<(u32, u32)>,
    pub(super) undirected: bool,
    /// The place of the edge's name.
    pub(super) span: Span,
}

impl<'a> Pending<'a> {
    /// `$left edge $right`.
    pub(super) fn plain(left: Var, right: Var, edge: &'a GraphType, span: &Span) -> Self {
        Self {
            left,
            right,
            edge,
            binding: None,
            bounds: None,
            undirected: false,
            span: span.clone(),
        }
    }
}

impl<'a> Checker<'a> {
    /// The bounds of a traversal, and what is wrong with them.
    pub(super) fn bounds(&mut self, traversal: &Traversal, edge: &GraphType) -> Option<(u32, u32)> {
        let (min, max, span) = traversal.bounds.as_ref()?;
        if let Some(binding) = &traversal.binding {
            let message = format!(
                "{} cannot bind the edges of several hops",
                shown(&binding.text)
            );
            let fix = "leave out the bounds, or the edge's variable";
            self.add("T23", &binding.span, message, fix);
        }
        let most = limits::HOPS;
        let Some(max) = max else {
            let fix = format!("write the greatest distance, at most {most}: `{{{min},{most}}}`");
            self.add("T26", span, "a traversal needs a greatest distance", fix);
            return None;
        };
        let (Ok(min), Ok(max)) = (min.parse::<u32>(), max.parse::<u32>()) else {
            let fix = format!("write distances from 1 to {most}");
            self.add("T26", span, "these distances are too great", fix);
            return None;
        };
        if min < 1 || max < min || max > most {
            let message = format!("`{{{min},{max}}}` holds no distance, or distances out of range");
            let fix = format!("write `{{m,n}}` with 1 <= m <= n <= {most}");
            self.add("T26", span, message, fix);
            return None;
        }
        let crosses = edge.edge.as_ref().is_some_and(|ends| ends.from != ends.to);
        if crosses && min > 1 {
            let message = format!(
                "{} connects two types, so that nothing is {min} hops away",
                shown(&edge.name)
            );
            self.add("T29", span, message, "write a traversal for each hop");
            return None;
        }
        // Between two types a second hop has no edge to follow.
        Some((min, if crosses { 1 } else { max }))
    }

    /// Types the ends of traversals and finds their directions, in passes: one whose ends are both
    /// open waits for another one to type them, and goes out if none does.
    pub(super) fn hops(&mut self, pending: Vec<Pending<'a>>) -> Vec<Hop> {
        let mut hops: Vec<Option<Hop>> = vec![None; pending.len()];
        let mut waiting: Vec<usize> = (0..pending.len()).collect();
        let mut forced = false;
        while !waiting.is_empty() {
            let before = waiting.len();
            let mut left = Vec::new();
            for at in waiting {
                let hop = &pending[at];
                if !forced && self.waits(hop) {
                    left.push(at);
                    continue;
                }
                forced = false;
                hops[at] = self.hop(hop);
            }
            forced = left.len() == before;
            waiting = left;
        }
        hops.into_iter().flatten().collect()
    }

    fn waits(&self, hop: &Pending<'a>) -> bool {
        let open = |var: Var| matches!(self.variables[var].typing, Typing::Open);
        let crosses = hop
            .edge
            .edge
            .as_ref()
            .is_some_and(|ends| ends.from != ends.to);
        crosses && !hop.undirected && open(hop.left) && open(hop.right)
    }

    fn hop(&mut self, hop: &Pending<'a>) -> Option<Hop> {
        let ends = hop.edge.edge.as_ref()?;
        let (from, to) = (self.schema.by_id(ends.from)?, self.schema.by_id(ends.to)?);
        let direction = match (hop.undirected, from.id == to.id) {
            (true, true) => Direction::Both,
            (true, false) => {
                let edge = shown(&hop.edge.name);
                let message = format!("{edge} connects two types, so it has a direction");
                let fix = "write the edge without `<` and `>`";
                self.add("T22", &hop.span, message, fix);
                self.give_up(hop);
                return None;
            }
            (false, true) => Direction::Out,
            (false, false) => match (self.id(hop.left), self.id(hop.right)) {
                (Some(left), _) if left == to.id => Direction::In,
                (None, Some(right)) if right == from.id => Direction::In,
                _ => Direction::Out,
            },
        };
        let (left, right) = match direction {
            Direction::In => (to, from),
            Direction::Out | Direction::Both => (from, to),
        };
        let fits = self.fits(hop.left, left) && self.fits(hop.right, right);
        // The right end may be the left one, so it is asked again.
        let fits = fits && self.fits(hop.left, left);
        if !fits {
            let (edge, from, to) = (shown(&hop.edge.name), shown(&from.name), shown(&to.name));
            let (left, right) = (self.typed_name(hop.left), self.typed_name(hop.right));
            let message = format!("{edge} goes from {from} to {to}, not from {left} to {right}");
            let fix = format!("use variables of {from} and {to}, or another edge");
            self.add("T5", &hop.span, message, fix);
            self.give_up(hop);
            return None;
        }
        let (min, max) = hop.bounds.unwrap_or((1, 1));
        Some(Hop {
            left: hop.left,
            right: hop.right,
            edge: hop.edge.id,
            direction,
            min,
            max,
            bounded: hop.bounds.is_some(),
            binding: hop.binding,
        })
    }

    /// Whether a variable is of a type; an open one becomes it.
    fn fits(&mut self, var: Var, owner: &'a GraphType) -> bool {
        match self.variables[var].typing {
            Typing::Open => {
                self.variables[var].typing = Typing::Known(owner);
                true
            }
            Typing::Known(known) => known.id == owner.id,
            Typing::Broken => true,
        }
    }

    fn id(&self, var: Var) -> Option<u64> {
        self.variables[var].known().map(|owner| owner.id)
    }

    fn typed_name(&self, var: Var) -> String {
        match self.variables[var].known() {
            Some(owner) => shown(&owner.name),
            None => "an unknown type".to_owned(),
        }
    }

    fn give_up(&mut self, hop: &Pending<'a>) {
        for var in [hop.left, hop.right] {
            if let typing @ Typing::Open = &mut self.variables[var].typing {
                *typing = Typing::Broken;
            }
        }
    }
}
