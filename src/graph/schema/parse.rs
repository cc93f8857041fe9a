//! From text to the syntax tree.

use std::ops::Range;

use pest::Parser;
use pest::error::{ErrorVariant, InputLocation};
use pest::iterators::{Pair, Pairs};

use super::ast::{
    Annotation, Argument, Bounds, Declaration, Form, Item, Property, Shape, Type, Value, ValueForm,
    Word,
};
use super::findings::{Findings, code, shown};
use super::text;
use crate::Result;

mod grammar {
    #[derive(pest_derive::Parser)]
    #[grammar = "graph/schema/schema.pest"]
    pub struct Schema;
}
use grammar::{Rule, Schema};

/// Declarations in the order of the text; none, and one finding, for a text that the grammar refuses.
///
/// # Errors
/// `ResourceLimitExceeded`.
pub(super) fn parse(text: &str, findings: &mut Findings) -> Result<Vec<Declaration>> {
    if let Some(unclosed) = text::check(text)? {
        findings.add(code::SYNTAX, &unclosed.span, unclosed.message, unclosed.fix);
        return Ok(Vec::new());
    }
    let mut pairs = match Schema::parse(Rule::schema, text) {
        Ok(pairs) => pairs,
        Err(error) => {
            refuse(text, &error, findings);
            return Ok(Vec::new());
        }
    };
    let top = pairs.next().map(Pair::into_inner).into_iter().flatten();
    let mut reader = Reader { findings };
    let mut declarations = Vec::new();
    for pair in top.filter(|pair| pair.as_rule() != Rule::EOI) {
        let span = span(&pair);
        match reader.declaration(pair) {
            Some(declaration) => declarations.push(declaration),
            None => reader.findings.add(
                code::SYNTAX,
                &span,
                "this declaration cannot be read",
                "look at docs/pg.md for how to write it",
            ),
        }
    }
    Ok(declarations)
}

fn refuse(text: &str, error: &pest::error::Error<Rule>, findings: &mut Findings) {
    let at = match error.location {
        InputLocation::Pos(at) | InputLocation::Span((at, _)) => at,
    };
    let expected: &[Rule] = match &error.variant {
        ErrorVariant::ParsingError { positives, .. } => positives,
        ErrorVariant::CustomError { .. } => &[],
    };
    let found = text::token_at(text, at);
    let mut words: Vec<&str> = expected.iter().filter_map(|rule| spoken(*rule)).collect();
    words.sort_unstable();
    words.dedup();
    let wanted = match words.as_slice() {
        [] => "another token".to_owned(),
        [one] => (*one).to_owned(),
        [rest @ .., last] => format!("{} or {last}", rest.join(", ")),
    };
    let message = match found {
        "" => format!("the text ends where {wanted} is expected"),
        found => format!("{} stands where {wanted} is expected", shown(found)),
    };
    let fix = syntax_fix(found, expected, &words, findings);
    let span = at..at + found.len();
    findings.add(code::SYNTAX, &span, message, fix);
}

/// What to write where several things may stand, the likeliest first.
const LIKELY: [&str; 7] = ["a number", "`{`", "`:`", "`->`", "a type", "`)`", "`}`"];

fn syntax_fix(found: &str, expected: &[Rule], words: &[&str], findings: &mut Findings) -> String {
    let top = [Rule::schema, Rule::node, Rule::kw_node];
    let declares = expected.iter().any(|rule| top.contains(rule));
    match found {
        "," | ";" => "remove it: nothing separates properties and declarations".to_owned(),
        "" if expected.contains(&Rule::close) => "close the declaration with `}`".to_owned(),
        "" if expected.contains(&Rule::paren_close) => "close it with `)`".to_owned(),
        "}" if declares => "remove it: nothing is open here".to_owned(),
        "(" if expected.contains(&Rule::optional) => {
            "the types with parentheses are `Vector(n)` and `enum(a, b)`".to_owned()
        }
        other if !other.is_ascii() => "names have ASCII letters, digits and `_` only".to_owned(),
        word if declares => {
            let known = ["node", "edge", "interface"];
            let otherwise = "start a declaration with `node`, `edge` or `interface`";
            findings.suggest(word, known, otherwise)
        }
        _ => {
            let likely = LIKELY.iter().find(|word| words.contains(word));
            match likely.or(words.first()) {
                Some(word) => format!("write {word} here"),
                None => "look at docs/pg.md for what may stand here".to_owned(),
            }
        }
    }
}

/// What a rule is called in messages; `None` for one that says nothing more than its parts.
fn spoken(rule: Rule) -> Option<&'static str> {
    Some(match rule {
        Rule::schema | Rule::interface | Rule::node | Rule::edge => "a declaration",
        Rule::kw_interface => "`interface`",
        Rule::kw_node => "`node`",
        Rule::kw_edge => "`edge`",
        Rule::kw_implements => "`implements`",
        Rule::property => "a property",
        Rule::annotation | Rule::marker => "an annotation",
        Rule::value_type | Rule::list | Rule::vector | Rule::enumeration => "a type",
        Rule::argument | Rule::named | Rule::value => "an argument",
        Rule::range | Rule::dots => "`..`",
        Rule::name | Rule::implemented => "a name",
        Rule::enum_value => "a value of letters, digits, `_` and `-`",
        Rule::digits | Rule::number | Rule::least | Rule::greatest => "a number",
        Rule::string => "a quoted text",
        Rule::open => "`{`",
        Rule::close => "`}`",
        Rule::arguments | Rule::paren_open => "`(`",
        Rule::paren_close => "`)`",
        Rule::list_open => "`[`",
        Rule::list_close => "`]`",
        Rule::colon => "`:`",
        Rule::comma => "`,`",
        Rule::equals => "`=`",
        Rule::arrow => "`->`",
        Rule::optional => "`?`",
        Rule::EOI => "the end",
        _ => return None,
    })
}

/// The place of a pair without the white space and comments that the grammar skips before a part
/// that may be missing.
fn span(pair: &Pair<'_, Rule>) -> Range<usize> {
    let mut last = pair.clone();
    while let Some(inner) = last.clone().into_inner().next_back() {
        last = inner;
    }
    pair.as_span().start()..last.as_span().end()
}

fn word(pair: &Pair<'_, Rule>) -> Word {
    Word {
        text: pair.as_str().to_owned(),
        span: span(pair),
    }
}

/// Turns pairs of the grammar into the tree. `None` stands for pairs that the grammar cannot give.
struct Reader<'f> {
    findings: &'f mut Findings,
}

impl Reader<'_> {
    fn declaration(&mut self, pair: Pair<'_, Rule>) -> Option<Declaration> {
        let rule = pair.as_rule();
        let (mut names, mut annotations) = (Vec::new(), Vec::new());
        let (mut implements, mut body) = (Vec::new(), Vec::new());
        for part in pair.into_inner() {
            match part.as_rule() {
                Rule::name => names.push(word(&part)),
                Rule::annotation => annotations.push(self.annotation(part)?),
                Rule::implemented => {
                    let named = part.into_inner().filter(|p| p.as_rule() == Rule::name);
                    implements.extend(named.map(|p| word(&p)));
                }
                Rule::body => {
                    for item in part.into_inner() {
                        body.push(self.item(item)?);
                    }
                }
                _ => {}
            }
        }
        let mut names = names.into_iter();
        let name = names.next()?;
        let form = match rule {
            Rule::interface => Form::Interface,
            Rule::node => Form::Node { implements },
            Rule::edge => Form::Edge {
                from: names.next()?,
                to: names.next()?,
            },
            _ => return None,
        };
        Some(Declaration {
            form,
            name,
            annotations,
            body,
        })
    }

    fn item(&mut self, pair: Pair<'_, Rule>) -> Option<Item> {
        if pair.as_rule() == Rule::annotation {
            return self.annotation(pair).map(Item::Annotation);
        }
        let (mut name, mut value_type) = (None, None);
        for part in pair.into_inner() {
            match part.as_rule() {
                Rule::name => name = Some(word(&part)),
                Rule::value_type => value_type = Some(value_type_of(part)?),
                _ => {}
            }
        }
        Some(Item::Property(Property {
            name: name?,
            value_type: value_type?,
        }))
    }

    fn annotation(&mut self, pair: Pair<'_, Rule>) -> Option<Annotation> {
        let span = span(&pair);
        let (mut name, mut arguments) = (None, Vec::new());
        for part in pair.into_inner() {
            match part.as_rule() {
                Rule::marker => name = Some(word(&part)),
                Rule::arguments => {
                    for one in part.into_inner() {
                        if one.as_rule() == Rule::argument {
                            arguments.push(self.argument(one.into_inner())?);
                        }
                    }
                }
                _ => {}
            }
        }
        let mut name = name?;
        name.text.remove(0);
        Some(Annotation {
            name,
            arguments,
            span,
        })
    }

    fn argument(&mut self, mut parts: Pairs<'_, Rule>) -> Option<Argument> {
        let part = parts.next()?;
        match part.as_rule() {
            Rule::value => self.value(part).map(Argument::Value),
            Rule::named => {
                let (mut name, mut value) = (None, None);
                for part in part.into_inner() {
                    match part.as_rule() {
                        Rule::name => name = Some(word(&part)),
                        Rule::value => value = self.value(part),
                        _ => {}
                    }
                }
                Some(Argument::Named(name?, value?))
            }
            Rule::range => {
                let (mut min, mut max) = (None, None);
                let span = span(&part);
                for part in part.into_inner() {
                    match part.as_rule() {
                        Rule::least => min = Some(word(&part)),
                        Rule::greatest => max = Some(word(&part)),
                        _ => {}
                    }
                }
                Some(Argument::Range(Bounds { min, max, span }))
            }
            _ => None,
        }
    }

    fn value(&mut self, pair: Pair<'_, Rule>) -> Option<Value> {
        let part = pair.into_inner().next()?;
        let mut word = word(&part);
        let form = match part.as_rule() {
            Rule::string => {
                word.text = self.decoded(&word);
                ValueForm::String
            }
            Rule::number => ValueForm::Number,
            _ => ValueForm::Name,
        };
        Some(Value { form, word })
    }

    /// The text of a literal without its quotes and escapes.
    fn decoded(&mut self, literal: &Word) -> String {
        let inner = &literal.text[1..literal.text.len() - 1];
        let mut out = String::with_capacity(inner.len());
        let mut chars = inner.char_indices();
        while let Some((at, c)) = chars.next() {
            if c != '\\' {
                out.push(c);
                continue;
            }
            match chars.next().map(|(_, escaped)| escaped) {
                Some(escaped @ ('"' | '\\')) => out.push(escaped),
                Some('n') => out.push('\n'),
                Some('r') => out.push('\r'),
                Some('t') => out.push('\t'),
                other => {
                    let other = other.unwrap_or_default();
                    out.extend(['\\', other]);
                    let start = literal.span.start + 1 + at;
                    self.findings.add(
                        code::ESCAPE,
                        &(start..start + 1 + other.len_utf8()),
                        format!("`\\{other}` is not an escape"),
                        format!(
                            "write `\\\\{other}` for a backslash; the escapes are \
                             \\\" \\\\ \\n \\r \\t"
                        ),
                    );
                }
            }
        }
        out
    }
}

fn value_type_of(pair: Pair<'_, Rule>) -> Option<Type> {
    let span = span(&pair);
    let (mut shape, mut nullable) = (None, false);
    for part in pair.into_inner() {
        match part.as_rule() {
            Rule::optional => nullable = true,
            Rule::name => shape = Some(Shape::Name(part.as_str().to_owned())),
            Rule::list => {
                let mut inner = part.into_inner();
                let item = inner.find(|p| p.as_rule() == Rule::value_type)?;
                shape = Some(Shape::List(Box::new(value_type_of(item)?)));
            }
            Rule::vector => {
                let mut inner = part.into_inner();
                let digits = inner.find(|p| p.as_rule() == Rule::digits)?;
                shape = Some(Shape::Vector(digits.as_str().to_owned()));
            }
            Rule::enumeration => {
                let values = part
                    .into_inner()
                    .filter(|p| p.as_rule() == Rule::enum_value);
                shape = Some(Shape::Enum(values.map(|p| word(&p)).collect()));
            }
            _ => {}
        }
    }
    Some(Type {
        shape: shape?,
        nullable,
        span,
    })
}
