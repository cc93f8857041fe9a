//! From a syntax tree to the checked query.

mod block;
mod call;
mod expr;
mod hop;
mod mutation;
mod result;
mod scope;
mod typed;

use std::collections::HashMap;

use super::ast::{QueryDecl, Read, Span};
use super::findings::{Findings, shown};
use super::{Hop, Output, Query, Var, Variable};
use crate::Result;
use crate::graph::schema::GraphSchema;
use crate::graph::value::ValueType;
use block::Kind;
use scope::{Bound, Scope, Typing};

pub(super) use mutation::check_mutation;

/// Checks a read query. Errors with `QueryInvalid` and all findings.
pub(super) fn check(
    text: &str,
    decl: &QueryDecl,
    read: &Read,
    schema: &GraphSchema,
) -> Result<Query> {
    let mut checker = Checker::new(text, decl, schema);
    checker.params();
    let query = checker.query(read);
    checker.findings.into_result(Some(query))
}

struct Checker<'a> {
    schema: &'a GraphSchema,
    decl: &'a QueryDecl,
    /// Numbers of the parameters.
    params: HashMap<&'a str, usize>,
    findings: Findings<'a>,
    variables: Vec<Bound<'a>>,
    /// Scopes that are open, outermost first.
    scopes: Vec<Scope>,
    /// Variables of bindings by the place of their name.
    bindings: HashMap<usize, Var>,
    /// Result columns that are checked.
    outputs: Vec<Output>,
    /// Traversals of the pattern itself.
    traversals: Vec<Hop>,
    /// Their numbers by name.
    output_names: HashMap<String, usize>,
}

impl<'a> Checker<'a> {
    fn new(text: &'a str, decl: &'a QueryDecl, schema: &'a GraphSchema) -> Self {
        Self {
            schema,
            decl,
            params: HashMap::new(),
            findings: Findings::new(text),
            variables: Vec::new(),
            scopes: Vec::new(),
            bindings: HashMap::new(),
            outputs: Vec::new(),
            traversals: Vec::new(),
            output_names: HashMap::new(),
        }
    }

    fn add(
        &mut self,
        code: &'static str,
        span: &Span,
        message: impl Into<String>,
        fix: impl Into<String>,
    ) {
        self.findings.add(code, span, message, fix);
    }

    fn params(&mut self) {
        let decl = self.decl;
        for (at, (param, span)) in decl.params.iter().enumerate() {
            self.params.insert(&param.name, at);
            if param.value_type == ValueType::Blob {
                let message = format!("parameter {} is a Blob", shown(&param.name));
                let fix = "a query has no Blob values; leave the parameter out";
                self.add("T24", span, message, fix);
            }
        }
    }

    fn query(&mut self, read: &Read) -> Query {
        let pattern = self.block(&read.clauses, &read.span, Kind::Root);
        self.traversals.clone_from(&pattern.hops);
        self.returns(read);
        let order = self.order(read);
        let skip = read.skip.as_ref().map(|rows| self.rows("skip", rows));
        let limit = read.limit.as_ref().map(|rows| self.rows("limit", rows));
        let variables = self.variables.iter().map(|bound| Variable {
            name: bound.name.clone(),
            // Where the type is not known there is a finding, and no query.
            type_id: bound.known().map_or(0, |owner| owner.id),
            is_edge: bound.is_edge,
            optional: bound.optional,
        });
        Query {
            name: self.decl.name.text.clone(),
            params: self
                .decl
                .params
                .iter()
                .map(|(param, _)| param.clone())
                .collect(),
            variables: variables.collect(),
            pattern,
            outputs: std::mem::take(&mut self.outputs),
            distinct: read.distinct,
            order,
            skip,
            limit,
            description: self.decl.description.clone(),
            instruction: self.decl.instruction.clone(),
        }
    }
}
