//! Expressions outside calls.

use super::typed::{Place, Ty, Typed, comparable};
use super::{Checker, Typing};
use crate::graph::query::ast::{Binding, Expr as Ast, ExprKind, Name, Operator, Span};
use crate::graph::query::findings::{instead, listed, shown};
use crate::graph::query::{Block, Compare, Expr};
use crate::graph::schema::{GraphType, Property};
use crate::graph::value::{Scalar, Value, ValueType};

impl<'a> Checker<'a> {
    /// An expression and its type; a broken type has a finding.
    pub(super) fn expr(&mut self, ast: &Ast, place: Place) -> Typed {
        if self.findings.full() {
            return Typed::broken();
        }
        match &ast.kind {
            ExprKind::Literal(value) => self.literal(value, &ast.span),
            ExprKind::List(items) => self.list(items, &ast.span),
            ExprKind::Variable(name) => self.variable(name, &ast.span),
            ExprKind::Access(variable, property) => self.access(variable, property),
            ExprKind::Word(word) => self.word(word, &ast.span, place),
            ExprKind::Call {
                function,
                distinct,
                arguments,
            } => self.call(function, *distinct, arguments, place),
            ExprKind::Binary(operator, left, right) => {
                self.binary(*operator, left, right, &ast.span, place)
            }
            ExprKind::IsNull(inner) => {
                let inner = self.expr(inner, place);
                match inner.ty {
                    Ty::Broken => Typed::broken(),
                    _ => Typed::scalar(Expr::IsNull(Box::new(inner.expr)), Scalar::Bool, false),
                }
            }
            ExprKind::Not(inner) => match self.truth(inner, place) {
                Some(inner) => {
                    let expr = Expr::Not(Box::new(inner.expr));
                    Typed::scalar(expr, Scalar::Bool, inner.nullable)
                }
                None => Typed::broken(),
            },
            ExprKind::And(parts) => self.truths(parts, Expr::And, place),
            ExprKind::Or(parts) => self.truths(parts, Expr::Or, place),
        }
    }

    fn truths(&mut self, parts: &[Ast], all: fn(Vec<Expr>) -> Expr, place: Place) -> Typed {
        let checked: Vec<_> = parts.iter().map(|part| self.truth(part, place)).collect();
        let Some(checked) = checked.into_iter().collect::<Option<Vec<_>>>() else {
            return Typed::broken();
        };
        let nullable = checked.iter().any(|part| part.nullable);
        let parts = checked.into_iter().map(|part| part.expr).collect();
        Typed::scalar(all(parts), Scalar::Bool, nullable)
    }

    pub(super) fn truth(&mut self, ast: &Ast, place: Place) -> Option<Typed> {
        let typed = self.expr(ast, place);
        match typed.ty {
            Ty::Broken => None,
            _ if typed.is_bool() => Some(typed),
            other => {
                let message = format!("this is {other}, not a condition");
                let fix = "compare it with something, or test it with `is not null`";
                self.add("T7", &ast.span, message, fix);
                None
            }
        }
    }

    fn literal(&mut self, value: &Value, span: &Span) -> Typed {
        let scalar = match value {
            Value::Bool(_) => Scalar::Bool,
            Value::Int(value) if i64::try_from(*value).is_ok() => Scalar::I64,
            Value::Int(_) => Scalar::U64,
            Value::Float(_) => Scalar::F64,
            Value::String(_) => Scalar::String,
            Value::Date(_) => Scalar::Date,
            Value::DateTime(_) => Scalar::DateTime,
            Value::Null | Value::List(_) => {
                let message = "nothing compares with `null`, and it has no type";
                let fix = "test for it with `is null` or `is not null`";
                self.add("T31", span, message, fix);
                return Typed::broken();
            }
        };
        Typed::scalar(Expr::Literal(value.clone()), scalar, false)
    }

    fn list(&mut self, items: &[Ast], span: &Span) -> Typed {
        let mut values = Vec::with_capacity(items.len());
        let mut kind: Option<Scalar> = None;
        for item in items {
            let ExprKind::Literal(value) = &item.kind else {
                self.add(
                    "T7",
                    &item.span,
                    "a list holds literals only",
                    "write the list as a parameter",
                );
                return Typed::broken();
            };
            let Some(scalar) = self.literal(value, &item.span).ty.as_scalar() else {
                return Typed::broken();
            };
            kind = match kind {
                None => Some(scalar),
                Some(kind) => wider(kind, scalar),
            };
            if kind.is_none() {
                let message = "the items of a list are of one type";
                self.add("T7", span, message, "write items of one type");
                return Typed::broken();
            }
            values.push(value.clone());
        }
        let negative = |value: &Value| matches!(value, Value::Int(..0));
        if kind == Some(Scalar::U64) && values.iter().any(negative) {
            let message = "no integer type holds all items of this list";
            self.add("T7", span, message, "write items of I64 or of U64");
            return Typed::broken();
        }
        let Some(kind) = kind else {
            return Typed::new(Expr::Literal(Value::List(values)), Ty::EmptyList, false);
        };
        if kind == Scalar::F64 {
            for value in &mut values {
                if let Value::Int(whole) = value {
                    *value = Value::Float(*whole as f64);
                }
            }
        }
        let list = Expr::Literal(Value::List(values));
        Typed::new(list, Ty::Value(ValueType::List(kind)), false)
    }

    fn variable(&mut self, name: &str, span: &Span) -> Typed {
        if name == "_" {
            let fix = "give the variable a name where it is bound";
            self.add("T6", span, "`$_` cannot be read", fix);
            return Typed::broken();
        }
        if let Some(var) = self.lookup(name) {
            let bound = &self.variables[var];
            if bound.is_edge {
                let message = format!("{} is an edge, which is no value", shown(name));
                let fix = "write its id, as `$edge.id`, or one of its properties";
                self.add("T23", span, message, fix);
                return Typed::broken();
            }
            let nullable = bound.optional;
            return match bound.typing {
                Typing::Known(owner) => Typed::new(Expr::Id(var), Ty::Node(owner.id), nullable),
                Typing::Open | Typing::Broken => Typed::broken(),
            };
        }
        self.param(name, span)
    }

    /// A parameter, or the finding that there is none.
    pub(super) fn param(&mut self, name: &str, span: &Span) -> Typed {
        if let Some(&at) = self.params.get(name) {
            let param = &self.decl.params[at].0;
            return match param.value_type {
                // Found where it is declared.
                ValueType::Blob => Typed::broken(),
                _ => Typed::new(
                    Expr::Param(at),
                    Ty::Value(param.value_type.clone()),
                    param.nullable,
                ),
            };
        }
        let message = format!(
            "{} is neither a variable in scope nor a parameter",
            shown(name)
        );
        let names = self.names();
        let fix = match names.is_empty() {
            true => "declare it as a parameter".to_owned(),
            false => {
                let near = instead(name, names.iter().map(String::as_str));
                format!("declare it as a parameter, or {near}")
            }
        };
        self.add("T14", span, message, fix);
        Typed::broken()
    }

    /// Names that an expression here may have.
    fn names(&self) -> Vec<String> {
        let scopes = self.scopes.iter().flat_map(|scope| scope.names.keys());
        let params = self.decl.params.iter().map(|(param, _)| &param.name);
        let mut names: Vec<String> = scopes.chain(params).cloned().collect();
        names.sort_unstable();
        names
    }

    fn access(&mut self, variable: &Name, property: &Name) -> Typed {
        let Some(var) = self.read(variable) else {
            return Typed::broken();
        };
        let bound = &self.variables[var];
        let (optional, is_edge) = (bound.optional, bound.is_edge);
        let Some(owner) = bound.known() else {
            return Typed::broken();
        };
        if let Some(found) = owner.property(&property.text) {
            if found.value_type == ValueType::Blob {
                let message = format!(
                    "{} is a Blob, which queries do not read",
                    shown(&property.text)
                );
                self.add("T24", &property.span, message, "leave it out");
                return Typed::broken();
            }
            let ty = Ty::Value(found.value_type.clone());
            return Typed::new(
                Expr::Property(var, found.id),
                ty,
                optional || found.nullable,
            );
        }
        if property.text == "id" {
            return Typed::scalar(Expr::Id(var), Scalar::String, optional);
        }
        if is_edge && matches!(property.text.as_str(), "src" | "dst") {
            let message = "the ends of an edge are variables, not properties";
            let fix = "name the variables beside the edge and read `$end.id`";
            self.add("T6", &property.span, message, fix);
            return Typed::broken();
        }
        self.no_property("T6", owner, property);
        Typed::broken()
    }

    /// The variable of `$v.property`.
    pub(super) fn read(&mut self, variable: &Name) -> Option<usize> {
        if let Some(var) = self.lookup(&variable.text) {
            return Some(var);
        }
        let (message, fix) = if variable.text == "_" {
            let fix = "give the variable a name where it is bound".to_owned();
            ("`$_` cannot be read".to_owned(), fix)
        } else if self.params.contains_key(variable.text.as_str()) {
            let message = format!(
                "{} is a parameter, which has no properties",
                shown(&variable.text)
            );
            (
                message,
                "read a property of a variable of the pattern".to_owned(),
            )
        } else {
            let message = format!("no clause in scope binds {}", shown(&variable.text));
            let names = self.names();
            (
                message,
                instead(&variable.text, names.iter().map(String::as_str)),
            )
        };
        self.add("T6", &variable.span, message, fix);
        None
    }

    fn no_property(&mut self, code: &'static str, owner: &GraphType, property: &Name) {
        let message = format!(
            "{} has no property {}",
            shown(&owner.name),
            shown(&property.text)
        );
        let known = owner
            .properties
            .iter()
            .map(|property| property.name.as_str());
        let fix = instead(&property.text, known);
        self.add(code, &property.span, message, fix);
    }

    fn binary(
        &mut self,
        operator: Operator,
        left: &Ast,
        right: &Ast,
        span: &Span,
        place: Place,
    ) -> Typed {
        let (a, b) = (self.expr(left, place), self.expr(right, place));
        if a.ty == Ty::Broken || b.ty == Ty::Broken {
            return Typed::broken();
        }
        match self.combine(operator, a, b) {
            Ok(typed) => typed,
            Err((message, fix)) => {
                self.add("T7", span, message, fix);
                Typed::broken()
            }
        }
    }

    /// Two operands under an operator, or why they do not go together.
    fn combine(&self, operator: Operator, a: Typed, b: Typed) -> Result<Typed, (String, String)> {
        let nullable = a.nullable || b.nullable;
        let truth = |expr| Ok(Typed::scalar(expr, Scalar::Bool, nullable));
        let (left, right) = (a.ty.as_scalar(), b.ty.as_scalar());
        match operator {
            Operator::Compare(compare) => {
                let (a, b) = self.compared(compare, a, b)?;
                truth(Expr::Compare(compare, Box::new(a), Box::new(b)))
            }
            Operator::Contains => match (&a.ty, left, right) {
                (Ty::Value(ValueType::List(item)), _, Some(right)) if comparable(*item, right) => {
                    let item = narrowed(b.expr, *item);
                    truth(Expr::HasItem(Box::new(a.expr), Box::new(item)))
                }
                (_, Some(Scalar::String), Some(Scalar::String)) => {
                    truth(Expr::HasText(Box::new(a.expr), Box::new(b.expr)))
                }
                _ => {
                    let message = format!("`contains` does not take {} and {}", a.ty, b.ty);
                    let fix = "write a list and one item of it, or two texts";
                    Err((message, fix.to_owned()))
                }
            },
            Operator::StartsWith => match (left, right) {
                (Some(Scalar::String), Some(Scalar::String)) => {
                    truth(Expr::StartsWith(Box::new(a.expr), Box::new(b.expr)))
                }
                _ => {
                    let message = format!("`starts_with` does not take {} and {}", a.ty, b.ty);
                    Err((message, "write two texts".to_owned()))
                }
            },
        }
    }

    fn compared(
        &self,
        compare: Compare,
        a: Typed,
        b: Typed,
    ) -> Result<(Expr, Expr), (String, String)> {
        if let (Ty::Node(a), Ty::Node(b)) = (&a.ty, &b.ty)
            && a != b
        {
            let message = "nodes of two types are never the same".to_owned();
            return Err((message, "compare nodes of one type".to_owned()));
        }
        let (Some(left), Some(right)) = (a.ty.as_scalar(), b.ty.as_scalar()) else {
            let message = format!("{} and {} do not compare", a.ty, b.ty);
            let fix = "compare single values; `contains` looks into a list".to_owned();
            return Err((message, fix));
        };
        if !comparable(left, right) {
            let message = format!("{} and {} do not compare", a.ty, b.ty);
            let fix = match (left, right) {
                (Scalar::Date, _) | (_, Scalar::Date) => "write a day: `date(\"2024-02-29\")`",
                (Scalar::DateTime, _) | (_, Scalar::DateTime) => {
                    "write a moment: `datetime(\"2024-02-29T12:00:00Z\")`"
                }
                _ => "compare values of one type",
            };
            return Err((message, fix.to_owned()));
        }
        if matches!(compare, Compare::Eq | Compare::Ne) {
            member(&a.ty, &b.expr)?;
            member(&b.ty, &a.expr)?;
        }
        Ok((narrowed(a.expr, right), narrowed(b.expr, left)))
    }

    /// The values that a binding's braces give to properties.
    pub(super) fn fields(&mut self, binding: &Binding, block: &mut Block) {
        // Where either is missing there is a finding.
        let var = self.bindings.get(&binding.variable.span.start).copied();
        let owner = self.schema.node(&binding.node.text);
        let (Some(var), Some(owner)) = (var, owner) else {
            return;
        };
        for (name, value) in &binding.fields {
            let Some(property) = owner.property(&name.text) else {
                self.no_property("T2", owner, name);
                continue;
            };
            let typed = match &value.kind {
                ExprKind::Variable(name) => self.param(name, &value.span),
                ExprKind::Call { function, .. } if function.text == "now" => {
                    self.expr(value, Place::Match)
                }
                ExprKind::Literal(_) | ExprKind::List(_) => self.expr(value, Place::Match),
                _ => {
                    let message = "a binding takes a literal, a parameter or `now()`";
                    let fix = "write the condition as a clause of its own: `$v.property = ...`";
                    self.add("T3", &value.span, message, fix);
                    continue;
                }
            };
            if typed.ty == Ty::Broken {
                continue;
            }
            match self.field(Expr::Property(var, property.id), property, typed) {
                Ok(filter) => block.filters.push(filter),
                Err((message, fix)) => self.add("T3", &value.span, message, fix),
            }
        }
    }

    fn field(
        &self,
        column: Expr,
        property: &Property,
        value: Typed,
    ) -> Result<Expr, (String, String)> {
        let shown = shown(&property.name);
        match &property.value_type {
            ValueType::Blob | ValueType::Vector(_) => {
                let message = format!("{shown} is {} and has no equality", property.value_type);
                Err((message, "leave it out".to_owned()))
            }
            ValueType::List(item) => match value.ty.as_scalar() {
                Some(scalar) if comparable(*item, scalar) => {
                    let item = narrowed(value.expr, *item);
                    Ok(Expr::HasItem(Box::new(column), Box::new(item)))
                }
                _ => {
                    let message = format!("{shown} is {}, not {}", property.value_type, value.ty);
                    Err((message, "give one item that the list has".to_owned()))
                }
            },
            ValueType::Scalar(_) | ValueType::Enum(_) => {
                let typed = Typed::new(column, Ty::Value(property.value_type.clone()), true);
                let (a, b) = self
                    .compared(Compare::Eq, typed, value)
                    .map_err(|(message, fix)| (format!("{shown}: {message}"), fix))?;
                Ok(Expr::Compare(Compare::Eq, Box::new(a), Box::new(b)))
            }
        }
    }
}

/// The type of a list that has items of both types.
fn wider(a: Scalar, b: Scalar) -> Option<Scalar> {
    match a.is_integer() && b.is_integer() {
        true if a == b => Some(a),
        true => Some(Scalar::U64),
        false if a.is_numeric() && b.is_numeric() => Some(Scalar::F64),
        false => (a == b).then_some(a),
    }
}

/// A float beside a value of F32, as F32 holds it: what is stored as 0.1 equals the literal 0.1.
fn narrowed(expr: Expr, beside: Scalar) -> Expr {
    match expr {
        Expr::Literal(Value::Float(value)) if beside == Scalar::F32 => {
            let held = f64::from(value as f32);
            Expr::Literal(Value::Float(if held.is_finite() { held } else { value }))
        }
        other => other,
    }
}

/// That a literal beside an enum is one of its values.
pub(super) fn member(ty: &Ty, other: &Expr) -> Result<(), (String, String)> {
    if let (Ty::Value(ValueType::Enum(values)), Expr::Literal(Value::String(text))) = (ty, other)
        && !values.contains(text)
    {
        let message = format!(
            "{} is not one of {}",
            shown(text),
            listed(values.iter().map(String::as_str))
        );
        return Err((message, instead(text, values.iter().map(String::as_str))));
    }
    Ok(())
}
