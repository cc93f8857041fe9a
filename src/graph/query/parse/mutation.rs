//! The statements of a mutation.

use pest::iterators::Pair;

use super::{Builder, Rule, kids, name, span};
use crate::graph::query::ast::{Statement, Verb};

impl Builder<'_> {
    /// A statement; the grammar gives every one a type.
    pub(super) fn statement(&mut self, pair: Pair<'_, Rule>) -> Option<Statement> {
        let mut verb = match pair.as_rule() {
            Rule::insert => Verb::Insert,
            Rule::upsert => Verb::Upsert,
            Rule::update => Verb::Update,
            _ => Verb::Delete,
        };
        let place = span(&pair);
        let (mut type_name, mut assignments, mut condition) = (None, Vec::new(), None);
        for kid in kids(pair) {
            match kid.as_rule() {
                Rule::name => type_name = Some(name(&kid)),
                Rule::kw_partial => verb = Verb::UpsertPartial,
                Rule::assignments => {
                    for field in kids(kid) {
                        let mut parts = kids(field);
                        if let Some(property) = parts.next() {
                            let value = self.next_expr(&mut parts);
                            assignments.push((name(&property), value));
                        }
                    }
                }
                Rule::expr => condition = Some(self.expr(kid)),
                _ => {}
            }
        }
        Some(Statement {
            verb,
            span: place,
            type_name: type_name?,
            assignments,
            condition,
        })
    }
}
