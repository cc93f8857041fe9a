//! The body of a read query: pattern, result, order.

use pest::iterators::Pair;

use super::{Builder, Rule, kids, name, span};
use crate::graph::query::ast::{
    Binding, Clause, Expr, ExprKind, Item, Key, Name, Read, Rows, Span, Traversal,
};
use crate::graph::value::Value;

impl Builder<'_> {
    pub(super) fn read(&mut self, pair: Pair<'_, Rule>) -> Read {
        let mut read = Read {
            clauses: Vec::new(),
            span: span(&pair),
            distinct: false,
            items: Vec::new(),
            order: Vec::new(),
            skip: None,
            limit: None,
        };
        for kid in kids(pair) {
            match kid.as_rule() {
                Rule::block => (read.clauses, read.span) = self.block(kid),
                Rule::returns => self.returns(kid, &mut read),
                Rule::tail => self.tail(kid, &mut read),
                _ => {}
            }
        }
        read
    }

    fn returns(&mut self, pair: Pair<'_, Rule>, read: &mut Read) {
        for kid in kids(pair) {
            match kid.as_rule() {
                Rule::kw_distinct => read.distinct = true,
                Rule::item => {
                    let mut parts = kids(kid);
                    let expr = self.next_expr(&mut parts);
                    let alias = parts.find(|part| part.as_rule() == Rule::name);
                    let alias = alias.as_ref().map(name);
                    read.items.push(Item { expr, alias });
                }
                _ => {}
            }
        }
    }

    fn tail(&mut self, pair: Pair<'_, Rule>, read: &mut Read) {
        for kid in kids(pair) {
            let place = span(&kid);
            let (word, twice) = match kid.as_rule() {
                Rule::order => {
                    let twice = !read.order.is_empty();
                    read.order = kids(kid)
                        .filter(|key| key.as_rule() == Rule::key)
                        .map(|key| self.key(key))
                        .collect();
                    ("order", twice)
                }
                Rule::skip => ("skip", read.skip.replace(self.rows(kid)).is_some()),
                _ => ("limit", read.limit.replace(self.rows(kid)).is_some()),
            };
            if twice {
                let message = format!("`{word}` is there twice");
                self.add("Q009", &place, message, "keep one of them");
            }
        }
    }

    fn key(&mut self, pair: Pair<'_, Rule>) -> Key {
        let mut parts = kids(pair);
        let expr = self.next_expr(&mut parts);
        let descending = parts.next().map(|part| part.as_rule() == Rule::kw_desc);
        Key { expr, descending }
    }

    fn rows(&mut self, pair: Pair<'_, Rule>) -> Rows {
        let number = kids(pair).find(|kid| matches!(kid.as_rule(), Rule::digits | Rule::variable));
        match number {
            Some(variable) if variable.as_rule() == Rule::variable => Rows::Param(name(&variable)),
            Some(digits) => Rows::Literal(digits.as_str().parse().unwrap_or_else(|_| {
                let fix = format!("write a number up to {}", u64::MAX);
                self.add(
                    "Q008",
                    &span(&digits),
                    "no number of rows is this great",
                    fix,
                );
                0
            })),
            None => Rows::Literal(0),
        }
    }

    /// The clauses of a block and the block's place.
    fn block(&mut self, pair: Pair<'_, Rule>) -> (Vec<Clause>, Span) {
        let place = span(&pair);
        let clauses = kids(pair)
            .flat_map(kids)
            .map(|clause| self.clause(clause))
            .collect();
        (clauses, place)
    }

    fn clause(&mut self, pair: Pair<'_, Rule>) -> Clause {
        let place = span(&pair);
        match pair.as_rule() {
            Rule::negation => Clause::Not(self.inner(pair), place),
            Rule::optional => Clause::Optional(self.inner(pair), place),
            Rule::binding => Clause::Binding(self.binding(pair)),
            Rule::traversal => Clause::Traversal(traversal(pair)),
            _ => Clause::Condition(self.next_expr(&mut kids(pair))),
        }
    }

    fn inner(&mut self, pair: Pair<'_, Rule>) -> Vec<Clause> {
        let block = kids(pair).find(|kid| kid.as_rule() == Rule::block);
        block.map(|block| self.block(block).0).unwrap_or_default()
    }

    fn binding(&mut self, pair: Pair<'_, Rule>) -> Binding {
        let mut binding = Binding {
            variable: missing(span(&pair)),
            node: missing(span(&pair)),
            fields: Vec::new(),
        };
        for kid in kids(pair) {
            match kid.as_rule() {
                Rule::variable => binding.variable = name(&kid),
                Rule::name => binding.node = name(&kid),
                _ => {
                    for field in kids(kid) {
                        let mut parts = kids(field);
                        let Some(property) = parts.next() else {
                            continue;
                        };
                        let value = self.next_expr(&mut parts);
                        binding.fields.push((name(&property), value));
                    }
                }
            }
        }
        binding
    }

    /// The expression that comes next; the grammar has one wherever this is asked.
    pub(super) fn next_expr<'p>(
        &mut self,
        parts: &mut impl Iterator<Item = Pair<'p, Rule>>,
    ) -> Expr {
        match parts.next() {
            Some(part) => self.expr(part),
            None => Expr {
                kind: ExprKind::Literal(Value::Null),
                span: 0..0,
            },
        }
    }
}

/// A name that the grammar fills in always.
fn missing(span: Span) -> Name {
    let text = String::new();
    Name { text, span }
}

fn traversal(pair: Pair<'_, Rule>) -> Traversal {
    let mut traversal = Traversal {
        left: missing(span(&pair)),
        binding: None,
        edge: missing(span(&pair)),
        undirected: false,
        bounds: None,
        right: missing(span(&pair)),
    };
    let mut right = false;
    for kid in kids(pair) {
        match kid.as_rule() {
            Rule::variable if right => traversal.right = name(&kid),
            Rule::variable => {
                traversal.left = name(&kid);
                right = true;
            }
            Rule::bounds => {
                let place = span(&kid);
                let mut digits = kids(kid).map(|digits| digits.as_str().to_owned());
                let min = digits.next().unwrap_or_default();
                traversal.bounds = Some((min, digits.next(), place));
            }
            _ => edge(kid, &mut traversal),
        }
    }
    traversal
}

/// The middle of a traversal: `edge`, `<edge>`, `$w:edge` or `$w:<edge>`.
fn edge(pair: Pair<'_, Rule>, traversal: &mut Traversal) {
    for kid in kids(pair) {
        match kid.as_rule() {
            Rule::variable => traversal.binding = Some(name(&kid)),
            rule => {
                traversal.undirected = rule == Rule::undirected;
                traversal.edge = name(&kid);
                // Both hold more than the name: the brackets, the space before the bounds.
                if matches!(rule, Rule::undirected | Rule::operator_edge)
                    && let Some(inner) = kids(kid).next()
                {
                    traversal.edge = name(&inner);
                }
            }
        }
    }
}
