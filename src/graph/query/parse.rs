//! From a query's text to its syntax tree.

mod body;
mod expr;
mod literal;
mod mutation;

use std::collections::HashSet;

use pest::Parser;
use pest::error::{ErrorVariant, InputLocation};
use pest::iterators::Pair;

use super::Param;
use super::ast::{Body, Name, QueryDecl, Span};
use super::findings::{Findings, instead, listed, refuse, shown};
use super::tokens;
use crate::graph::value::{Scalar, ValueType};
use crate::{Result, limits};

/// The generated parser; apart, because what is generated has no documentation.
mod grammar {
    #![allow(missing_docs)]

    #[derive(pest_derive::Parser)]
    #[grammar = "graph/query/query.pest"]
    pub(super) struct Grammar;
}

use grammar::{Grammar, Rule};

/// The queries of a text. Errors with `QueryInvalid` or `ResourceLimitExceeded`.
pub fn parse(text: &str) -> Result<Vec<QueryDecl>> {
    tokens::check(text)?;
    let mut file = match Grammar::parse(Rule::file, text) {
        Ok(file) => file,
        Err(error) => return syntax(text, &error),
    };
    let mut builder = Builder {
        findings: Findings::new(text),
    };
    let mut decls = Vec::new();
    let mut names = HashSet::new();
    for pair in file.next().into_iter().flat_map(kids) {
        if pair.as_rule() != Rule::query {
            continue;
        }
        let decl = builder.query(pair);
        if !names.insert(decl.name.text.clone()) {
            let message = format!("a second query is named {}", shown(&decl.name.text));
            builder.add("Q003", &decl.name.span, message, "give it another name");
        }
        decls.push(decl);
    }
    builder.findings.into_result(Some(decls))
}

/// The query of a name, or the only one. Errors with `QueryInvalid`.
pub(super) fn choose<'d>(
    text: &str,
    decls: &'d [QueryDecl],
    name: Option<&str>,
) -> Result<&'d QueryDecl> {
    let names = || decls.iter().map(|decl| decl.name.text.as_str());
    let span = 0..0;
    let Some(name) = name else {
        return match decls {
            [only] => Ok(only),
            [] => {
                let fix = "write `query name() { match { ... } return { ... } }`";
                refuse(text, "Q004", &span, "the text has no query", fix)
            }
            _ => {
                let message = format!("the text has several queries: {}", listed(names()));
                refuse(text, "Q005", &span, message, "name the one to run")
            }
        };
    };
    match decls.iter().find(|decl| decl.name.text == name) {
        Some(decl) => Ok(decl),
        None => {
            let message = format!("the text has no query {}", shown(name));
            refuse(text, "Q006", &span, message, instead(name, names()))
        }
    }
}

/// The parts of a pair without punctuation.
fn kids(pair: Pair<'_, Rule>) -> impl Iterator<Item = Pair<'_, Rule>> {
    pair.into_inner().filter(|kid| !punctuation(kid.as_rule()))
}

fn punctuation(rule: Rule) -> bool {
    matches!(
        rule,
        Rule::open
            | Rule::close
            | Rule::lparen
            | Rule::rparen
            | Rule::lbracket
            | Rule::rbracket
            | Rule::comma
            | Rule::colon
            | Rule::dot
            | Rule::at
            | Rule::less
            | Rule::greater
    )
}

fn span(pair: &Pair<'_, Rule>) -> Span {
    let span = pair.as_span();
    span.start()..span.end()
}

/// A name, or a variable without its `$`.
fn name(pair: &Pair<'_, Rule>) -> Name {
    Name {
        text: pair.as_str().trim_start_matches('$').to_owned(),
        span: span(pair),
    }
}

/// Builds the tree; what the grammar cannot refuse well is found here.
struct Builder<'a> {
    findings: Findings<'a>,
}

impl Builder<'_> {
    fn add(
        &mut self,
        code: &'static str,
        span: &Span,
        message: impl Into<String>,
        fix: impl Into<String>,
    ) {
        self.findings.add(code, span, message, fix);
    }

    fn query(&mut self, pair: Pair<'_, Rule>) -> QueryDecl {
        let mut decl = QueryDecl {
            name: Name {
                text: String::new(),
                span: span(&pair),
            },
            params: Vec::new(),
            description: None,
            instruction: None,
            body: Body::Mutation(Vec::new()),
        };
        let mut parentheses = false;
        for kid in kids(pair) {
            match kid.as_rule() {
                Rule::name => decl.name = name(&kid),
                Rule::params => {
                    parentheses = true;
                    decl.params = self.params(kid);
                }
                Rule::annotation => self.annotation(kid, &mut decl),
                Rule::read => decl.body = Body::Read(self.read(kid)),
                Rule::mutation => {
                    let statements = kids(kid).flat_map(kids);
                    let statements = statements.filter_map(|pair| self.statement(pair));
                    decl.body = Body::Mutation(statements.collect());
                }
                _ => {}
            }
        }
        if !parentheses {
            let Name { text, span } = &decl.name;
            let message = format!("the name {} lacks its parameters", shown(text));
            let fix = format!(
                "write `query {}()`; `()` stays where there are none",
                cut(text)
            );
            self.add("Q002", span, message, fix);
        }
        decl
    }

    fn annotation(&mut self, pair: Pair<'_, Rule>, decl: &mut QueryDecl) {
        let mut parts = kids(pair);
        let (Some(word), Some(text)) = (parts.next(), parts.next()) else {
            return;
        };
        let value = self.text(&text);
        let known = ["description", "instruction"];
        let slot = match word.as_str() {
            "description" => &mut decl.description,
            "instruction" => &mut decl.instruction,
            other => {
                let message = format!("no annotation of a query is named {}", shown(other));
                let fix = instead(other, known.into_iter());
                return self.add("Q011", &span(&word), message, fix);
            }
        };
        if slot.replace(value).is_some() {
            let message = format!("`@{}` is there twice", word.as_str());
            self.add("Q009", &span(&word), message, "keep one of them");
        }
    }

    fn params(&mut self, pair: Pair<'_, Rule>) -> Vec<(Param, Span)> {
        let mut names = HashSet::new();
        let mut params = Vec::new();
        for pair in kids(pair) {
            let mut parts = kids(pair);
            let (Some(variable), Some(type_ref)) = (parts.next(), parts.next()) else {
                continue;
            };
            let Name { text, span } = name(&variable);
            if !names.insert(text.clone()) {
                let message = format!("a second parameter is named {}", shown(&text));
                self.add("Q010", &span, message, "give it another name");
            }
            let nullable = kids(type_ref.clone()).any(|kid| kid.as_rule() == Rule::question);
            let value_type = self.value_type(type_ref);
            let param = Param {
                name: text,
                value_type,
                nullable,
            };
            params.push((param, span));
        }
        params
    }

    fn value_type(&mut self, pair: Pair<'_, Rule>) -> ValueType {
        let unknown = ValueType::Scalar(Scalar::String);
        let Some(form) = kids(pair).next() else {
            return unknown;
        };
        let rule = form.as_rule();
        let inner = kids(form).find(|kid| kid.as_rule() != Rule::kw_vector);
        let Some(inner) = inner else { return unknown };
        match rule {
            Rule::vector_type => {
                let width = inner.as_str().parse::<u32>().ok();
                let fits = |width: &u32| (1..=limits::DIMENSIONS).contains(&(*width as usize));
                if let Some(width) = width.filter(fits) {
                    return ValueType::Vector(width);
                }
                let message = "a vector cannot be this wide";
                let fix = format!("write a width from 1 to {}", limits::DIMENSIONS);
                self.add("Q008", &span(&inner), message, fix);
                ValueType::Vector(1)
            }
            Rule::scalar_type if inner.as_str() == "Blob" => ValueType::Blob,
            _ => match Scalar::parse(inner.as_str()) {
                Some(scalar) if rule == Rule::list_type => ValueType::List(scalar),
                Some(scalar) => ValueType::Scalar(scalar),
                None => {
                    let message = format!("no parameter type is named {}", shown(inner.as_str()));
                    let known = Scalar::ALL.into_iter().map(Scalar::name);
                    self.add(
                        "Q007",
                        &span(&inner),
                        message,
                        instead(inner.as_str(), known),
                    );
                    unknown
                }
            },
        }
    }
}

/// A name as a fix spells it.
fn cut(name: &str) -> &str {
    name.get(..limits::NAME_BYTES).unwrap_or(name)
}

/// A syntax error of the grammar as a finding.
fn syntax<T>(text: &str, error: &pest::error::Error<Rule>) -> Result<T> {
    let at = match error.location {
        InputLocation::Pos(at) | InputLocation::Span((at, _)) => at,
    };
    let rest = &text[at..];
    let word = rest.find(|c: char| !c.is_alphanumeric() && c != '_' && c != '$');
    let length = match word {
        Some(0) => rest.chars().next().map_or(0, char::len_utf8),
        Some(length) => length,
        None => rest.len(),
    };
    let found = match length {
        0 => "the text ends too early".to_owned(),
        _ => format!("{} does not belong here", shown(&rest[..length])),
    };
    let mut expected: Vec<&str> = match &error.variant {
        ErrorVariant::ParsingError { positives, .. } => positives.iter().map(spelled).collect(),
        ErrorVariant::CustomError { .. } => Vec::new(),
    };
    expected.sort_unstable();
    expected.dedup();
    expected.retain(|spelling| !spelling.is_empty());
    let fix = match expected.as_slice() {
        [] => "see docs/gq.md for what may stand here".to_owned(),
        [one] => format!("write {one} here"),
        many => format!("write one of these here: {}", many.join(", ")),
    };
    refuse(text, "Q001", &(at..at + length), found, fix)
}

/// How a rule is called in a message; empty for what would only repeat others.
fn spelled(rule: &Rule) -> &'static str {
    match rule {
        Rule::EOI => "the end of the text",
        Rule::query | Rule::kw_query => "`query`",
        Rule::params => "`()` with the parameters",
        Rule::annotation | Rule::at => "`@description`",
        Rule::name | Rule::edge_name => "a name",
        Rule::variable | Rule::param => "a variable like `$a`",
        Rule::digits => "a whole number",
        Rule::text => "a text in double quotes",
        Rule::mutation | Rule::statement => "`insert`, `upsert`, `update` or `delete`",
        Rule::insert | Rule::kw_insert => "`insert`",
        Rule::upsert | Rule::kw_upsert => "`upsert`",
        Rule::update | Rule::kw_update => "`update`",
        Rule::delete | Rule::kw_delete => "`delete`",
        Rule::kw_partial => "`partial`",
        Rule::kw_set => "`set`",
        Rule::kw_where => "`where`",
        Rule::type_ref | Rule::scalar_type | Rule::list_type | Rule::vector_type => "a type",
        Rule::read | Rule::kw_match => "`match`",
        Rule::returns | Rule::kw_return => "`return`",
        Rule::kw_distinct => "`distinct`",
        Rule::kw_as => "`as`",
        Rule::kw_asc => "`asc`",
        Rule::kw_desc => "`desc`",
        Rule::tail => "`order`, `skip` or `limit`",
        Rule::clause | Rule::block => "a clause",
        Rule::kw_or => "`or`",
        Rule::kw_and => "`and`",
        Rule::kw_is | Rule::null_test => "`is null`",
        Rule::kw_null => "`null`",
        Rule::operator | Rule::operator_word => "an operator",
        Rule::edge | Rule::named_edge | Rule::edge_word | Rule::undirected => "an edge",
        Rule::bounds => "bounds like `{1,3}`",
        Rule::expr | Rule::unary | Rule::item | Rule::key | Rule::operand => "an expression",
        Rule::comparison | Rule::conjunction | Rule::group => "an expression",
        Rule::list | Rule::number | Rule::call | Rule::word | Rule::access => "an expression",
        Rule::field => "a property and its value",
        Rule::fields | Rule::assignments | Rule::open => "`{`",
        Rule::close => "`}`",
        Rule::lparen => "`(`",
        Rule::rparen => "`)`",
        Rule::lbracket => "`[`",
        Rule::rbracket => "`]`",
        Rule::comma => "`,`",
        Rule::colon => "`:`",
        Rule::dot => "`.`",
        Rule::question => "`?`",
        Rule::less => "`<`",
        Rule::greater => "`>`",
        _ => "",
    }
}
