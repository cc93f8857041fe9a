//! Expressions.

use pest::iterators::Pair;

use super::{Builder, Rule, kids, name, span};
use crate::graph::query::Compare;
use crate::graph::query::ast::{Expr, ExprKind, Name, Operator};
use crate::graph::value::Value;

impl Builder<'_> {
    pub(super) fn expr(&mut self, pair: Pair<'_, Rule>) -> Expr {
        let place = span(&pair);
        let kind = match pair.as_rule() {
            Rule::expr => return self.several(pair, ExprKind::Or),
            Rule::conjunction => return self.several(pair, ExprKind::And),
            Rule::unary => return self.unary(pair),
            Rule::group | Rule::operand => return self.next_expr(&mut kids(pair)),
            Rule::comparison => return self.comparison(pair),
            Rule::list => ExprKind::List(kids(pair).map(|item| self.expr(item)).collect()),
            Rule::text => ExprKind::Literal(Value::String(self.text(&pair))),
            Rule::number => ExprKind::Literal(self.number(&pair)),
            Rule::kw_true => ExprKind::Literal(Value::Bool(true)),
            Rule::kw_false => ExprKind::Literal(Value::Bool(false)),
            Rule::kw_null => ExprKind::Literal(Value::Null),
            Rule::variable => ExprKind::Variable(name(&pair).text),
            Rule::access => access(pair),
            Rule::call => self.call(pair),
            _ => ExprKind::Word(pair.as_str().to_owned()),
        };
        Expr { kind, span: place }
    }

    /// A chain of `or` or `and`; one part alone is itself. The pair may end with space, so the places
    /// of the parts are taken.
    fn several(&mut self, pair: Pair<'_, Rule>, kind: fn(Vec<Expr>) -> ExprKind) -> Expr {
        let start = span(&pair).start;
        let operands =
            kids(pair).filter(|kid| !matches!(kid.as_rule(), Rule::kw_or | Rule::kw_and));
        let mut parts: Vec<Expr> = operands.map(|operand| self.expr(operand)).collect();
        if parts.len() == 1
            && let Some(only) = parts.pop()
        {
            return only;
        }
        let end = parts.last().map_or(start, |part| part.span.end);
        Expr {
            kind: kind(parts),
            span: start..end,
        }
    }

    /// Every second `not` takes the one before it back, for null too.
    fn unary(&mut self, pair: Pair<'_, Rule>) -> Expr {
        let start = span(&pair).start;
        let (nots, mut rest): (Vec<_>, Vec<_>) =
            kids(pair).partition(|kid| kid.as_rule() == Rule::kw_not);
        let inner = self.next_expr(&mut rest.drain(..));
        if nots.len() % 2 == 0 {
            return inner;
        }
        Expr {
            span: start..inner.span.end,
            kind: ExprKind::Not(Box::new(inner)),
        }
    }

    fn comparison(&mut self, pair: Pair<'_, Rule>) -> Expr {
        let place = span(&pair);
        let mut parts = kids(pair);
        let left = self.next_expr(&mut parts);
        let Some(next) = parts.next() else {
            return left;
        };
        let left = Box::new(left);
        if next.as_rule() == Rule::null_test {
            let negated = kids(next).any(|word| word.as_rule() == Rule::kw_not);
            let test = Expr {
                kind: ExprKind::IsNull(left),
                span: place.clone(),
            };
            return match negated {
                false => test,
                true => Expr {
                    kind: ExprKind::Not(Box::new(test)),
                    span: place,
                },
            };
        }
        let operator = match next.as_str() {
            "=" => Operator::Compare(Compare::Eq),
            "!=" => Operator::Compare(Compare::Ne),
            "<" => Operator::Compare(Compare::Lt),
            "<=" => Operator::Compare(Compare::Le),
            ">" => Operator::Compare(Compare::Gt),
            ">=" => Operator::Compare(Compare::Ge),
            "contains" => Operator::Contains,
            _ => Operator::StartsWith,
        };
        let right = Box::new(self.next_expr(&mut parts));
        Expr {
            kind: ExprKind::Binary(operator, left, right),
            span: place,
        }
    }

    fn call(&mut self, pair: Pair<'_, Rule>) -> ExprKind {
        let place = span(&pair);
        let mut function = Name {
            text: String::new(),
            span: place.clone(),
        };
        let (mut distinct, mut arguments) = (false, Vec::new());
        for kid in kids(pair) {
            match kid.as_rule() {
                Rule::name => function = name(&kid),
                Rule::kw_distinct => distinct = true,
                _ => arguments.push(self.expr(kid)),
            }
        }
        if !distinct
            && let [argument] = arguments.as_slice()
            && let ExprKind::Literal(Value::String(text)) = &argument.kind
        {
            let literal = match function.text.as_str() {
                "date" => Some(self.date(text, &argument.span)),
                "datetime" => Some(self.datetime(text, &argument.span)),
                _ => None,
            };
            if let Some(literal) = literal {
                return ExprKind::Literal(literal);
            }
        }
        ExprKind::Call {
            function,
            distinct,
            arguments,
        }
    }
}

fn access(pair: Pair<'_, Rule>) -> ExprKind {
    let place = span(&pair);
    let mut parts = kids(pair);
    let mut next = || {
        let missing = || Name {
            text: String::new(),
            span: place.clone(),
        };
        parts.next().map_or_else(missing, |part| name(&part))
    };
    ExprKind::Access(next(), next())
}
