//! Properties of one declaration, and which annotations belong to which of them.

use std::collections::BTreeMap;

use super::ast::{Annotation, Argument, Declaration, Form, Item, Property, ValueForm, Word};
use super::findings::{Findings, code, shown};
use super::rules;
use super::types::value_type;
use crate::Result;
use crate::graph::value::ValueType;

/// A property with its annotations.
#[derive(Clone)]
pub(super) struct Field<'a> {
    pub name: &'a Word,
    /// `None` for a type that is not one.
    pub value_type: Option<ValueType>,
    pub nullable: bool,
    pub type_at: &'a std::ops::Range<usize>,
    pub annotations: Vec<Attached<'a>>,
}

/// An annotation, and whether it comes from an interface.
#[derive(Clone, Copy)]
pub(super) struct Attached<'a> {
    pub annotation: &'a Annotation,
    pub inherited: bool,
}

impl Attached<'_> {
    /// Where what it declares is listed: what is inherited first, then in the order of the text.
    pub fn place(&self) -> Place {
        match self.inherited {
            true => (false, 0),
            false => (true, self.annotation.span.start),
        }
    }
}

/// Whether a type says something itself, and where.
pub(super) type Place = (bool, usize);

/// The properties of a declaration in the order of its text, and its constraints that name properties.
pub(super) struct Body<'a> {
    pub fields: Vec<Field<'a>>,
    pub constraints: Vec<&'a Annotation>,
}

/// Whether an annotation in braces names the properties that it is about.
fn names_members(annotation: &Annotation) -> bool {
    let known = matches!(
        annotation.name.text.as_str(),
        "key" | "unique" | "index" | "range" | "check"
    );
    let first = annotation.arguments.first();
    known && matches!(first, Some(Argument::Value(value)) if value.form == ValueForm::Name)
}

/// Reads what is in braces.
///
/// # Errors
/// `ResourceLimitExceeded` for the width of a vector.
pub(super) fn body<'a>(declaration: &'a Declaration, findings: &mut Findings) -> Result<Body<'a>> {
    let mut body = Body {
        fields: Vec::new(),
        constraints: Vec::new(),
    };
    let mut seen = BTreeMap::new();
    // The property that an annotation without names belongs to.
    let mut current = None;
    for item in &declaration.body {
        match item {
            Item::Property(property) => {
                check_name(&property.name, declaration, findings);
                let again = seen.insert(property.name.text.as_str(), ()).is_some();
                if again {
                    let message = format!(
                        "the property {} is declared already",
                        shown(&property.name.text)
                    );
                    let fix = "remove one of the two or name it otherwise";
                    findings.add(code::PROPERTY_TWICE, &property.name.span, message, fix);
                }
                body.fields.push(field(property, findings)?);
                current = body.fields.len().checked_sub(1);
            }
            Item::Annotation(annotation) if names_members(annotation) => {
                if matches!(declaration.form, Form::Interface) {
                    let fix = "put the constraint into the types that implement the interface";
                    let message = "an interface has properties, not constraints over them";
                    findings.add(code::INTERFACE_BODY, &annotation.span, message, fix);
                }
                body.constraints.push(annotation);
                current = None;
            }
            Item::Annotation(annotation) => match current.and_then(|at| body.fields.get_mut(at)) {
                Some(field) => field.annotations.push(Attached {
                    annotation,
                    inherited: false,
                }),
                None => misplaced(annotation, findings),
            },
        }
    }
    Ok(body)
}

fn misplaced(annotation: &Annotation, findings: &mut Findings) {
    let name = &annotation.name.text;
    let message = format!("no property stands before {}", shown(&format!("@{name}")));
    let fix = match name.as_str() {
        "key" | "unique" | "index" => {
            format!("name the properties, as in `@{name}(title)`, or put it behind a property")
        }
        _ => "put it behind a property, or behind the name of the type".to_owned(),
    };
    findings.add(code::PLACE, &annotation.span, message, fix);
}

fn field<'a>(property: &'a Property, findings: &mut Findings) -> Result<Field<'a>> {
    Ok(Field {
        name: &property.name,
        value_type: value_type(&property.value_type, findings)?,
        nullable: property.value_type.nullable,
        type_at: &property.value_type.span,
        annotations: Vec::new(),
    })
}

fn check_name(name: &Word, declaration: &Declaration, findings: &mut Findings) {
    let edge = matches!(declaration.form, Form::Edge { .. });
    if let Some((why, fix)) = rules::reserved(&name.text, edge) {
        let message = format!("the name {} is reserved: {why}", shown(&name.text));
        findings.add(code::RESERVED, &name.span, message, fix);
    } else if !rules::is_property_name(&name.text) {
        let mut letters = name.text.chars();
        let lower = letters.next().map(|c| c.to_ascii_lowercase());
        let fix = match name.text.len() > crate::limits::NAME_BYTES {
            true => format!("use at most {} bytes", crate::limits::NAME_BYTES),
            false => {
                let lower: String = lower.into_iter().chain(letters).collect();
                format!("write {}", shown(&lower))
            }
        };
        let message = "the name of a property starts with a lower-case letter or `_` and has at \
                       most 128 bytes";
        findings.add(code::NAME, &name.span, message, fix);
    }
}
