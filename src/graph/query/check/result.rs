//! What a query returns, in which order, and how many rows of it.

use std::collections::HashMap;

use super::Checker;
use super::typed::{Place, Ty, Typed};
use crate::graph::query::ast::{Expr as Ast, ExprKind, Item, Key, Name, Read, Rows, Span};
use crate::graph::query::findings::{instead, shown};
use crate::graph::query::{Count, Expr, OrderKey, Output, Rank};
use crate::graph::value::{Scalar, ValueType};

impl Checker<'_> {
    /// Checks `return` and keeps its columns.
    pub(super) fn returns(&mut self, read: &Read) {
        let mut spans = Vec::new();
        let mut complete = true;
        for item in &read.items {
            if self.findings.full() {
                return;
            }
            match self.output(item) {
                Some(output) => {
                    let at = self.outputs.len();
                    self.output_names.insert(output.name.clone(), at);
                    self.outputs.push(output);
                    spans.push(&item.expr.span);
                }
                None => complete = false,
            }
        }
        if complete && self.outputs.iter().any(|output| output.expr.aggregates()) {
            self.group(&spans);
        }
    }

    fn output(&mut self, item: &Item) -> Option<Output> {
        let typed = self.expr(&item.expr, Place::Return);
        let name = self.output_name(item)?;
        if self.output_names.contains_key(&name.text) {
            let message = format!("a second column is named {}", shown(&name.text));
            let fix = "give it another name with `as`";
            self.add("T30", &name.span, message, fix);
            return None;
        }
        let value_type = match typed.ty {
            Ty::Broken => {
                // Known all the same, so that an order by it is not found fault with.
                return None;
            }
            Ty::Value(value_type) => value_type,
            Ty::Node(_) => ValueType::Scalar(Scalar::String),
            Ty::Rank => ValueType::Scalar(Scalar::F64),
            Ty::EmptyList => {
                let message = "an empty list has no type";
                self.add("T7", &item.expr.span, message, "leave it out");
                return None;
            }
        };
        self.rank_alone(&typed.expr, &item.expr.span)?;
        Some(Output {
            name: name.text,
            expr: typed.expr,
            value_type,
            nullable: typed.nullable,
        })
    }

    /// The alias, else what the expression is called.
    fn output_name(&mut self, item: &Item) -> Option<Name> {
        if let Some(alias) = &item.alias {
            return Some(alias.clone());
        }
        let text = match &item.expr.kind {
            ExprKind::Access(variable, property) => format!("{}.{}", variable.text, property.text),
            ExprKind::Variable(name) => name.clone(),
            ExprKind::Call { function, .. } => function.text.clone(),
            // It is found fault with as an expression.
            ExprKind::Word(_) => return None,
            _ => {
                let message = "this column has no name";
                self.add("T30", &item.expr.span, message, "name it with `as`");
                return None;
            }
        };
        let span = item.expr.span.clone();
        Some(Name { text, span })
    }

    /// Refuses a rank within another expression: it ranks rows, it is no value of one row.
    fn rank_alone(&mut self, expr: &Expr, span: &Span) -> Option<()> {
        let mut ranks = 0;
        expr.visit(&mut |inner| ranks += usize::from(matches!(inner, Expr::Rank(_))));
        if ranks == 0 || matches!(expr, Expr::Rank(_)) {
            return Some(());
        }
        let message = "a rank is not part of another expression";
        self.add("T34", span, message, "return it as a column of its own");
        None
    }

    /// In a query that aggregates, every column is an aggregate, a key, or made of those.
    fn group(&mut self, spans: &[&Span]) {
        let keys = columns(
            self.outputs
                .iter()
                .filter(|output| !output.expr.aggregates()),
        );
        let global = keys.is_empty();
        for (at, span) in spans.iter().enumerate() {
            let expr = self.outputs[at].expr.clone();
            if !expr.aggregates() {
                if matches!(expr, Expr::Rank(_)) {
                    let message = "a rank does not group rows";
                    self.add("T9", span, message, "leave out the rank or the aggregates");
                }
                continue;
            }
            if loose(&within(&expr, &keys)) {
                let message = "this mixes an aggregate with a value of single rows";
                let fix = "return that value as a column too, or aggregate it";
                self.add("T9", span, message, fix);
            }
            // A group has a row, so its least value is missing only where values may be.
            if !global
                && let Expr::Aggregate {
                    argument: Some(argument),
                    ..
                } = &expr
            {
                let nullable = self.nullable(argument);
                self.outputs[at].nullable &= nullable;
            }
        }
    }

    /// Whether a property or an id may be null; of other expressions it is not asked further.
    fn nullable(&self, expr: &Expr) -> bool {
        match expr {
            Expr::Literal(_) | Expr::Now => false,
            Expr::Id(var) => self.variables[*var].optional,
            Expr::Property(var, id) => {
                let bound = &self.variables[*var];
                let property = bound.known().and_then(|owner| owner.property_by_id(*id));
                bound.optional || property.is_none_or(|property| property.nullable)
            }
            _ => true,
        }
    }

    /// The name of a result column.
    pub(super) fn word(&mut self, word: &str, span: &Span, place: Place) -> Typed {
        if place == Place::Row {
            return self.row_word(word, span);
        }
        if place != Place::Order {
            let message = format!("{} means nothing here", shown(word));
            let fix = "write a variable or a parameter, with its `$`";
            self.add("T6", span, message, fix);
            return Typed::broken();
        }
        if let Some(&at) = self.output_names.get(word) {
            let output = &self.outputs[at];
            let ty = match &output.expr {
                Expr::Rank(_) => Ty::Rank,
                _ => Ty::Value(output.value_type.clone()),
            };
            return Typed::new(Expr::Output(at), ty, output.nullable);
        }
        let message = format!("no result column is named {}", shown(word));
        let fix = instead(word, self.output_names.keys().map(String::as_str));
        self.add("T6", span, message, fix);
        Typed::broken()
    }

    /// Checks `order`.
    pub(super) fn order(&mut self, read: &Read) -> Vec<OrderKey> {
        let aggregates = self.outputs.iter().any(|output| output.expr.aggregates());
        let columns = columns(self.outputs.iter());
        let broken = self.outputs.len() < read.items.len();
        let mut keys = Vec::new();
        for (at, key) in read.order.iter().enumerate() {
            // A word may name a column that has a finding already.
            let unknown = |word: &str| !self.output_names.contains_key(word);
            if broken && matches!(&key.expr.kind, ExprKind::Word(word) if unknown(word)) {
                continue;
            }
            if self.findings.full() {
                break;
            }
            let typed = self.expr(&key.expr, Place::Order);
            let span = &key.expr.span;
            if typed.ty == Ty::Broken || self.rank_alone(&typed.expr, span).is_none() {
                continue;
            }
            if !broken && !self.ordered(&typed, span, aggregates) {
                continue;
            }
            let rank = self.rank_of(&typed.expr).map(Rank::name);
            let descending = match rank {
                Some(rank) => self.ranking(rank, at, key),
                None => key.descending == Some(true),
            };
            let expr = within(&typed.expr, &columns);
            if !broken && (aggregates || read.distinct) && self.apart(&expr, read.distinct, span) {
                continue;
            }
            keys.push(OrderKey { expr, descending });
        }
        self.limited(read, &keys);
        keys
    }

    /// Whether rows can be ordered by it.
    fn ordered(&mut self, typed: &Typed, span: &Span, aggregates: bool) -> bool {
        if typed.ty.as_scalar().is_none() {
            let message = format!("rows have no order by {}", typed.ty);
            self.add("T33", span, message, "order by a single value");
            return false;
        }
        if typed.expr.aggregates() && !aggregates {
            let message = "the query returns no aggregate, so rows are not grouped";
            self.add("T33", span, message, "return the aggregate too");
            return false;
        }
        true
    }

    /// Whether a key is not made of what the rows of the result are made of.
    fn apart(&mut self, expr: &Expr, distinct: bool, span: &Span) -> bool {
        let aggregate = distinct && expr.aggregates();
        if !loose(expr) && !aggregate {
            return false;
        }
        let message = match distinct {
            true => "rows that are returned once have no single value of this",
            false => "a group has no single value of this",
        };
        self.add("T33", span, message, "return it too, or order by a column");
        true
    }

    fn rank_of<'e>(&'e self, expr: &'e Expr) -> Option<&'e Rank> {
        match expr {
            Expr::Rank(rank) => Some(rank),
            Expr::Output(at) => match &self.outputs[*at].expr {
                Expr::Rank(rank) => Some(rank),
                _ => None,
            },
            _ => None,
        }
    }

    /// The direction of a rank: best first, whatever its scores mean.
    fn ranking(&mut self, rank: &'static str, at: usize, key: &Key) -> bool {
        let span = &key.expr.span;
        if at > 0 {
            let message = format!("`{rank}` is not the first order key");
            self.add("T34", span, message, "write the rank first");
        }
        let best = rank != "nearest";
        let wrong = match key.descending {
            Some(descending) => descending != best || !best,
            None => false,
        };
        if wrong {
            let message = format!("`{rank}` orders the best first");
            self.add("T34", span, message, "leave out `asc` or `desc`");
        }
        best
    }

    /// Ranks need a limit, and `nearest` no other column beside it.
    fn limited(&mut self, read: &Read, keys: &[OrderKey]) {
        let ranks: Vec<Option<&'static str>> = keys
            .iter()
            .map(|key| self.rank_of(&key.expr).map(Rank::name))
            .collect();
        let Some(first) = read.order.first() else {
            return;
        };
        let span = &first.expr.span;
        for (rank, code) in [("nearest", "T17"), ("rrf", "T21")] {
            if ranks.contains(&Some(rank)) && read.limit.is_none() {
                let message = format!("an order by `{rank}` needs a limit");
                self.add(code, span, message, "write `limit` with a number of rows");
            }
        }
        let named = |key: &Ast| matches!(key.kind, ExprKind::Word(_));
        if ranks.contains(&Some("nearest")) && read.order.len() > 1 {
            for key in read.order.iter().filter(|key| named(&key.expr)) {
                let message = "`nearest` does not go with the order of a result column";
                self.add("T18", &key.expr.span, message, "order by `nearest` alone");
            }
        }
    }

    /// A number of rows.
    pub(super) fn rows(&mut self, word: &str, rows: &Rows) -> Count {
        let name = match rows {
            Rows::Literal(rows) => return Count::Literal(*rows),
            Rows::Param(name) => name,
        };
        let Some(&at) = self.params.get(name.text.as_str()) else {
            let shown = shown(&name.text);
            let message = format!("`{word}` takes a parameter, and none is named {shown}");
            let known = self
                .decl
                .params
                .iter()
                .map(|(param, _)| param.name.as_str());
            let fix = match self.decl.params.is_empty() {
                true => "declare it as a parameter of type U64".to_owned(),
                false => format!(
                    "declare it as a parameter, or {}",
                    instead(&name.text, known)
                ),
            };
            self.add("T14", &name.span, message, fix);
            return Count::Literal(0);
        };
        let param = &self.decl.params[at].0;
        let integer = param.value_type.scalar().is_some_and(Scalar::is_integer);
        if !integer || param.nullable {
            let mark = if param.nullable { "?" } else { "" };
            let message = format!("`{word}` does not take a {}{mark}", param.value_type);
            self.add("T35", &name.span, message, "declare the parameter as U64");
        }
        Count::Param(at)
    }
}

/// Numbers of columns by what they are.
fn columns<'o>(outputs: impl Iterator<Item = &'o Output>) -> HashMap<String, usize> {
    let numbered = outputs.enumerate();
    numbered
        .map(|(at, output)| (format!("{:?}", output.expr), at))
        .collect()
}

/// An expression in which the parts that are columns refer to them.
fn within(expr: &Expr, columns: &HashMap<String, usize>) -> Expr {
    if let Some(at) = columns.get(&format!("{expr:?}")) {
        return Expr::Output(*at);
    }
    let boxed = |part: &Expr| Box::new(within(part, columns));
    let all = |parts: &[Expr]| parts.iter().map(|part| within(part, columns)).collect();
    match expr {
        Expr::Compare(compare, a, b) => Expr::Compare(*compare, boxed(a), boxed(b)),
        Expr::HasItem(a, b) => Expr::HasItem(boxed(a), boxed(b)),
        Expr::HasText(a, b) => Expr::HasText(boxed(a), boxed(b)),
        Expr::StartsWith(a, b) => Expr::StartsWith(boxed(a), boxed(b)),
        Expr::And(parts) => Expr::And(all(parts)),
        Expr::Or(parts) => Expr::Or(all(parts)),
        Expr::Not(inner) => Expr::Not(boxed(inner)),
        Expr::IsNull(inner) => Expr::IsNull(boxed(inner)),
        other => other.clone(),
    }
}

/// Whether a value of single rows is in an expression, outside aggregates and columns.
fn loose(expr: &Expr) -> bool {
    match expr {
        Expr::Id(_) | Expr::Property(..) | Expr::End(..) | Expr::Search(_) | Expr::Rank(_) => true,
        Expr::Literal(_)
        | Expr::Param(_)
        | Expr::Now
        | Expr::Output(_)
        | Expr::Aggregate { .. } => false,
        Expr::Compare(_, a, b)
        | Expr::HasItem(a, b)
        | Expr::HasText(a, b)
        | Expr::StartsWith(a, b) => loose(a) || loose(b),
        Expr::And(parts) | Expr::Or(parts) => parts.iter().any(loose),
        Expr::Not(inner) | Expr::IsNull(inner) => loose(inner),
    }
}
