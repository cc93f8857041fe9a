//! Mutations: their types, what is assigned, and their conditions.

use std::collections::HashSet;

use super::expr::member;
use super::typed::{Place, Ty, Typed};
use super::{Checker, Typing};
use crate::Result;
use crate::graph::query::ast::{Expr as Ast, ExprKind, Name, QueryDecl, Span, Statement, Verb};
use crate::graph::query::findings::{instead, listed, shown};
use crate::graph::query::mutation::{Action, Assignment, Mutation, Statement as Checked, Target};
use crate::graph::query::{End, Expr, Variable, params};
use crate::graph::schema::{GraphSchema, GraphType, Property};
use crate::graph::value::{Scalar, Value, ValueType};

/// The row that a statement is about.
const ROW: usize = 0;

/// Checks a mutation. Errors with `QueryInvalid` and all findings.
pub(in crate::graph::query) fn check_mutation(
    text: &str,
    decl: &QueryDecl,
    statements: &[Statement],
    schema: &GraphSchema,
    mixed: bool,
) -> Result<Mutation> {
    let mut checker = Checker::new(text, decl, schema);
    checker.params();
    if !mixed {
        checker.one_kind(statements);
    }
    let checked = statements.iter();
    let checked = checked.filter_map(|statement| checker.statement(statement));
    let mutation = Mutation {
        statements: checked.collect(),
        name: decl.name.text.clone(),
        params: decl.params.iter().map(|(param, _)| param.clone()).collect(),
        description: decl.description.clone(),
        instruction: decl.instruction.clone(),
    };
    checker.findings.into_result(Some(mutation))
}

impl<'a> Checker<'a> {
    /// Refuses deletes beside other statements.
    fn one_kind(&mut self, statements: &[Statement]) {
        let deletes = |statement: &&Statement| statement.verb == Verb::Delete;
        let delete = statements.iter().find(deletes);
        if let Some(delete) = delete
            && statements.iter().any(|s| s.verb != Verb::Delete)
        {
            let message = "one mutation both deletes and writes";
            let fix = "split it into two, or run it with `mixed => true`";
            self.add("Q013", &delete.type_name.span, message, fix);
        }
    }

    fn statement(&mut self, statement: &Statement) -> Option<Checked> {
        let owner = self.owner(&statement.type_name)?;
        self.variables.clear();
        self.introduce("_", owner.is_edge(), Typing::Known(owner));
        let keyless = owner.key.is_empty();
        if matches!(statement.verb, Verb::Upsert | Verb::UpsertPartial) && keyless {
            let message = format!("{} has no key to find a row by", shown(&owner.name));
            let fix = "write `insert`, or declare a property with `@key`";
            self.add("T37", &statement.type_name.span, message, fix);
        }
        let values = self.assignments(owner, statement);
        let action = match (statement.verb, &statement.condition) {
            (Verb::Insert, _) => Action::Insert(values),
            (Verb::Upsert | Verb::UpsertPartial, _) => Action::Upsert {
                values,
                partial: statement.verb == Verb::UpsertPartial,
            },
            (Verb::Update, Some(condition)) => Action::Update {
                values,
                condition: self.truth(condition, Place::Row)?.expr,
            },
            (Verb::Delete, Some(condition)) => Action::Delete {
                condition: self.truth(condition, Place::Row)?.expr,
            },
            // The grammar gives both a condition.
            (Verb::Update | Verb::Delete, None) => return None,
        };
        let row = Variable {
            name: owner.name.clone(),
            type_id: owner.id,
            is_edge: owner.is_edge(),
            optional: false,
        };
        Some(Checked { row, action })
    }

    fn owner(&mut self, name: &Name) -> Option<&'a GraphType> {
        let schema = self.schema;
        let found = schema.node(&name.text).or_else(|| schema.edge(&name.text));
        if found.is_none() {
            let message = format!("no type is named {}", shown(&name.text));
            let known = schema.types.iter().map(|of| of.name.as_str());
            self.add("T10", &name.span, message, instead(&name.text, known));
        }
        found
    }

    fn assignments(&mut self, owner: &'a GraphType, statement: &Statement) -> Vec<Assignment> {
        let updates = statement.verb == Verb::Update;
        let (mut named, mut values) = (HashSet::new(), Vec::new());
        for (name, value) in &statement.assignments {
            if !named.insert(name.text.as_str()) {
                let message = format!("{} is assigned twice", shown(&name.text));
                self.add("T13", &name.span, message, "keep one of them");
                continue;
            }
            let Some(target) = self.target(owner, name) else {
                continue;
            };
            let is_key = |target: &Target| match target {
                Target::Property(id) => owner.key.contains(id),
                Target::End(_) => false,
            };
            if updates && is_key(&target) {
                let message = format!("{} is part of the key", shown(&name.text));
                let fix = "delete the row and insert another one";
                self.add("T36", &name.span, message, fix);
                continue;
            }
            let property = match target {
                Target::Property(id) => owner.property_by_id(id),
                Target::End(_) => None,
            };
            if let Some(value) = self.assigned(name, property, value, updates) {
                values.push(Assignment { target, value });
            }
        }
        if matches!(statement.verb, Verb::Insert | Verb::Upsert) {
            self.complete(owner, statement, &named);
        } else if statement.verb == Verb::UpsertPartial {
            let keys = owner.properties.iter();
            let keys = keys.filter(|p| owner.key.contains(&p.id));
            for key in keys.filter(|p| !named.contains(p.name.as_str())) {
                self.missing(statement, &key.name);
            }
        }
        values
    }

    fn target(&mut self, owner: &GraphType, name: &Name) -> Option<Target> {
        if let Some(property) = owner.property(&name.text) {
            return Some(Target::Property(property.id));
        }
        match name.text.as_str() {
            "from" if owner.is_edge() => return Some(Target::End(End::From)),
            "to" if owner.is_edge() => return Some(Target::End(End::To)),
            _ => {}
        }
        self.no_member(owner, &name.text, &name.span);
        None
    }

    fn no_member(&mut self, owner: &GraphType, name: &str, span: &Span) {
        let message = format!("{} has no property {}", shown(&owner.name), shown(name));
        let ends = ["from", "to"].into_iter().filter(|_| owner.is_edge());
        let known = owner.properties.iter().map(|p| p.name.as_str()).chain(ends);
        self.add("T11", span, message, instead(name, known));
    }

    /// That a new row has all that it needs. A vector with `@embed` may come from its text.
    fn complete(&mut self, owner: &GraphType, statement: &Statement, named: &HashSet<&str>) {
        let ends = ["from", "to"].into_iter().filter(|_| owner.is_edge());
        let ends: Vec<&str> = ends.filter(|end| !named.contains(end)).collect();
        for end in ends {
            self.missing(statement, end);
        }
        for property in &owner.properties {
            let embedded = property.embed.as_ref().is_some_and(|embed| {
                let source = owner.property_by_id(embed.source);
                source.is_some_and(|source| named.contains(source.name.as_str()))
            });
            if !property.nullable && !embedded && !named.contains(property.name.as_str()) {
                self.missing(statement, &property.name);
            }
        }
    }

    fn missing(&mut self, statement: &Statement, name: &str) {
        let owner = &statement.type_name;
        let message = format!("{} needs {}", shown(&owner.text), shown(name));
        self.add("T12", &owner.span, message, "give it a value");
    }

    /// A value for a property, or for the id of an end.
    fn assigned(
        &mut self,
        name: &Name,
        property: Option<&Property>,
        value: &Ast,
        reads: bool,
    ) -> Option<Expr> {
        let text = ValueType::Scalar(Scalar::String);
        let wanted = property.map_or(&text, |property| &property.value_type);
        if *wanted == ValueType::Blob {
            let message = format!("{} is a Blob", shown(&name.text));
            self.add("T24", &name.span, message, "leave it out");
            return None;
        }
        match &value.kind {
            ExprKind::Literal(Value::Null) => {
                if property.is_some_and(|property| property.nullable) {
                    return Some(Expr::Literal(Value::Null));
                }
                let message = format!("{} is never null", shown(&name.text));
                self.add("T12", &value.span, message, "give it a value");
                return None;
            }
            ExprKind::Word(_) if !reads => {
                let message = "a new row has no values to read";
                let fix = "write a literal, a parameter or `now()`";
                self.add("T38", &value.span, message, fix);
                return None;
            }
            _ => {}
        }
        let typed = self.expr(value, Place::Row);
        if typed.ty == Ty::Broken {
            return None;
        }
        match assignable(wanted, typed) {
            Ok(value) => Some(value),
            Err((message, fix)) => {
                let message = format!("{}: {message}", shown(&name.text));
                self.add("T7", &value.span, message, fix);
                None
            }
        }
    }

    /// A word in a statement: a property of the row, its id, or an end.
    pub(super) fn row_word(&mut self, word: &str, span: &Span) -> Typed {
        let Some(owner) = self.variables.first().and_then(|row| row.known()) else {
            return Typed::broken();
        };
        if let Some(property) = owner.property(word) {
            if property.value_type == ValueType::Blob {
                let message = format!("{} is a Blob, which statements do not read", shown(word));
                self.add("T11", span, message, "leave it out");
                return Typed::broken();
            }
            let ty = Ty::Value(property.value_type.clone());
            return Typed::new(Expr::Property(ROW, property.id), ty, property.nullable);
        }
        let system = match word {
            "id" => Some(Expr::Id(ROW)),
            "from" if owner.is_edge() => Some(Expr::End(ROW, End::From)),
            "to" if owner.is_edge() => Some(Expr::End(ROW, End::To)),
            _ => None,
        };
        match system {
            Some(expr) => Typed::scalar(expr, Scalar::String, false),
            None => {
                self.no_member(owner, word, span);
                Typed::broken()
            }
        }
    }
}

/// A value as one of a type, or a message and a fix.
fn assignable(wanted: &ValueType, typed: Typed) -> Result<Expr, (String, String)> {
    let misfit = |what: String| {
        let fix = format!("give it a value of type {wanted}");
        (what, fix)
    };
    if let Expr::Literal(value) = &typed.expr {
        if let ValueType::Enum(values) = wanted {
            member(&Ty::Value(wanted.clone()), &typed.expr)?;
            if !matches!(value, Value::String(_)) {
                let values = listed(values.iter().map(String::as_str));
                return Err(misfit(format!("{} is not one of {values}", typed.ty)));
            }
        }
        let fitted = params::fit(value.clone(), wanted);
        return match fitted {
            Ok(value) => Ok(Expr::Literal(value)),
            Err(what) => Err(misfit(format!("the literal {what}"))),
        };
    }
    let free = matches!(typed.expr, Expr::Param(_));
    let fits = match (&typed.ty, wanted) {
        (Ty::Value(a), b) if a == b => true,
        (Ty::Value(ValueType::Scalar(a)), ValueType::Scalar(b)) => numbers(*a, *b, free),
        (Ty::Value(ValueType::Scalar(Scalar::String)), ValueType::Enum(_))
        | (Ty::Value(ValueType::Enum(_)), ValueType::Scalar(Scalar::String))
        | (Ty::Value(ValueType::Enum(_)), ValueType::Enum(_)) => true,
        _ => false,
    };
    match fits {
        true => Ok(typed.expr),
        false => Err(misfit(format!("it is {wanted}, not {}", typed.ty))),
    }
}

/// Whether numbers of type `a` may become numbers of type `b`: those of a column where all of them
/// fit, a parameter also where it is looked at when it is known.
fn numbers(a: Scalar, b: Scalar, free: bool) -> bool {
    use Scalar::{F32, F64, I32, I64, U32, U64};
    match (a, b) {
        (I32, I64 | F64) | (U32, I64 | U64 | F64) | (F32, F64) => true,
        (a, b) if free && a.is_numeric() && b.is_numeric() => a.is_integer() || !b.is_integer(),
        _ => false,
    }
}
