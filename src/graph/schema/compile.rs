//! From the syntax tree to the compiled schema.

use std::collections::{BTreeMap, BTreeSet};

use super::annotations::{self, Target};
use super::ast::{Declaration, Form, Word};
use super::constraints::Builder;
use super::fields::{Attached, Field, body};
use super::findings::{Findings, code, shown};
use super::parse::parse;
use super::rules;
use super::text::limit;
use super::values::Patterns;
use super::{EdgeEnds, FORMAT, GraphSchema, GraphType, Interface, system_columns};
use crate::graph::value::ValueType;
use crate::table::schema::id;
use crate::{Result, limits};

/// Bytes that a property, an annotation or a value of an enum takes beside its texts, for the bound on what interfaces
/// multiply.
const ENTRY_BYTES: usize = 64;

/// The schema of a text.
///
/// # Errors
/// `SchemaInvalid` with all findings, `ResourceLimitExceeded`.
pub(super) fn compile(text: &str) -> Result<GraphSchema> {
    let mut findings = Findings::default();
    let declarations = parse(text, &mut findings)?;
    let mut compiler = Compiler::new(&declarations, findings)?;
    let interfaces = compiler.interfaces()?;
    let types = compiler.types()?;
    if compiler.ids.is_empty() && compiler.findings.is_empty() {
        let message = "the text declares no node type";
        let fix = "declare one, such as `node Paper { doi: String @key }`";
        compiler.findings.add(code::EMPTY, &(0..0), message, fix);
    }
    let (next_type, next_property) = (compiler.next_type, compiler.next_property);
    if let Some(error) = compiler.findings.error(text) {
        return Err(error);
    }
    let schema = GraphSchema {
        format: FORMAT,
        source: text.to_owned(),
        types,
        interfaces,
        next_type,
        next_property,
    };
    // What cannot be kept is refused here, where the text is at hand.
    schema.encode()?;
    Ok(schema)
}

struct Compiler<'a> {
    declarations: &'a [Declaration],
    findings: Findings,
    /// Node types by name.
    ids: BTreeMap<&'a str, u64>,
    interfaces: BTreeMap<&'a str, Vec<Field<'a>>>,
    /// Patterns of `@check` that were compiled.
    patterns: Patterns<'a>,
    next_type: u64,
    next_property: u64,
    /// Estimated bytes of the compiled schema.
    bytes: usize,
}

impl<'a> Compiler<'a> {
    fn new(declarations: &'a [Declaration], findings: Findings) -> Result<Self> {
        let types = declarations.iter().filter(|d| !is_interface(d));
        limit("types of a graph", types.count(), limits::GRAPH_TYPES)?;
        let mut compiler = Self {
            declarations,
            findings,
            ids: BTreeMap::new(),
            interfaces: BTreeMap::new(),
            patterns: Patterns::default(),
            next_type: 1,
            next_property: id::FIRST_USER,
            bytes: 0,
        };
        compiler.names();
        Ok(compiler)
    }

    /// Checks the names of all declarations and gives every type its id.
    fn names(&mut self) {
        let mut exact = BTreeSet::new();
        let mut edges = BTreeMap::new();
        let mut next = 1;
        for declaration in self.declarations {
            let name = &declaration.name;
            self.check_name(name);
            let edge = matches!(declaration.form, Form::Edge { .. });
            let folded = name.text.to_ascii_lowercase();
            let other = match edge {
                true => edges.insert(folded, name.text.as_str()),
                false => None,
            };
            if !exact.insert(name.text.as_str()) {
                let message = format!("{} is declared already", shown(&name.text));
                let fix = "remove one of the two or name it otherwise";
                self.findings
                    .add(code::DECLARED_TWICE, &name.span, message, fix);
            } else if let Some(other) = other {
                let message = format!(
                    "{} differs from the edge type {} in case only",
                    shown(&name.text),
                    shown(other)
                );
                let fix = "name it otherwise: queries find edge types in any case";
                self.findings
                    .add(code::DECLARED_TWICE, &name.span, message, fix);
            }
            if !is_interface(declaration) {
                if !edge {
                    self.ids.entry(&name.text).or_insert(next);
                }
                next += 1;
            }
        }
    }

    fn check_name(&mut self, name: &Word) {
        if rules::is_type_name(&name.text) {
            return;
        }
        let fix = if name.text.len() > limits::NAME_BYTES {
            format!("use at most {} bytes", limits::NAME_BYTES)
        } else {
            let mut letters = name.text.trim_start_matches('_').chars();
            let upper = letters.next().map(|c| c.to_ascii_uppercase());
            let upper: String = upper.into_iter().chain(letters).collect();
            match rules::is_type_name(&upper) {
                true => format!("write {}", shown(&upper)),
                false => "start it with a capital letter".to_owned(),
            }
        };
        let message = "the name of a type starts with a capital letter and has at most 128 bytes";
        self.findings.add(code::NAME, &name.span, message, fix);
    }

    /// Reads all interfaces, so that types can be declared before what they implement.
    fn interfaces(&mut self) -> Result<Vec<Interface>> {
        let mut out = Vec::new();
        for declaration in self.declarations.iter().filter(|d| is_interface(d)) {
            if let Some(first) = declaration.annotations.first() {
                let fix = "remove it, or put it behind the types that implement the interface";
                let message = "an interface has no annotations";
                self.findings
                    .add(code::INTERFACE_BODY, &first.span, message, fix);
            }
            let body = body(declaration, &mut self.findings)?;
            let mut builder = Builder::new(&mut self.findings, &body.fields, Target::Interface, 0);
            builder.annotate(&mut self.patterns)?;
            out.push(Interface {
                name: declaration.name.text.clone(),
                properties: body.fields.iter().map(|f| f.name.text.clone()).collect(),
            });
            let name = declaration.name.text.as_str();
            self.interfaces.entry(name).or_insert(body.fields);
        }
        Ok(out)
    }

    fn types(&mut self) -> Result<Vec<GraphType>> {
        let mut types = Vec::new();
        for declaration in self.declarations.iter().filter(|d| !is_interface(d)) {
            types.push(self.graph_type(declaration)?);
        }
        Ok(types)
    }

    fn graph_type(&mut self, declaration: &'a Declaration) -> Result<GraphType> {
        let type_id = self.next_type;
        self.next_type += 1;
        let own = body(declaration, &mut self.findings)?;
        let (mut implements, mut fields, mut edge) = (Vec::new(), own.fields, None);
        let target = match &declaration.form {
            Form::Edge { from, to } => {
                edge = Some((self.end(from), self.end(to)));
                Target::Edge
            }
            Form::Node { implements: names } => {
                fields = self.inherit(names, fields)?;
                implements.extend(names.iter().map(|name| name.text.clone()));
                Target::Node
            }
            Form::Interface => Target::Interface,
        };
        let columns = fields.len() + system_columns(target == Target::Edge)?;
        limit("columns", columns, limits::COLUMNS)?;
        self.spend(&fields)?;
        let first = self.next_property;
        self.next_property += fields.len() as u64;
        let properties = (self.next_property - id::FIRST_USER) as usize;
        limit(
            "properties of a graph",
            properties,
            limits::GRAPH_PROPERTIES,
        )?;

        let (kept, card) =
            annotations::of_type(&declaration.annotations, target, &mut self.findings);
        let mut builder = Builder::new(&mut self.findings, &fields, target, first);
        builder.annotate(&mut self.patterns)?;
        for constraint in own.constraints {
            builder.constrain(constraint, &mut self.patterns)?;
        }
        let mut made = builder.finish();
        made.id = type_id;
        made.name.clone_from(&declaration.name.text);
        made.implements = implements;
        made.annotations = kept;
        made.edge = edge.map(|(from, to)| EdgeEnds {
            from,
            to,
            min: card.0,
            max: card.1,
        });
        Ok(made)
    }

    /// The id of a node type that an edge type names; 0, and a finding, for another name.
    fn end(&mut self, name: &Word) -> u64 {
        if let Some(id) = self.ids.get(name.text.as_str()) {
            return *id;
        }
        let same = |d: &&Declaration| d.name.text == name.text;
        let (message, fix) = match self.declarations.iter().find(same).map(|d| &d.form) {
            Some(Form::Interface) => (
                format!("{} is an interface", shown(&name.text)),
                "name a node type: an edge type connects two node types".to_owned(),
            ),
            Some(_) => (
                format!("{} is an edge type", shown(&name.text)),
                "name a node type: an edge type connects two node types".to_owned(),
            ),
            None => {
                let known = self.ids.keys().copied();
                let otherwise = format!("declare `node {}`", name.text);
                (
                    format!("there is no node type {}", shown(&name.text)),
                    self.findings.suggest(&name.text, known, &otherwise),
                )
            }
        };
        self.findings.add(code::EDGE_END, &name.span, message, fix);
        0
    }

    /// The properties of a node type with those of its interfaces: the ones that it does not declare
    /// itself come first, the others take over the annotations of the interface.
    fn inherit(&mut self, names: &'a [Word], mut own: Vec<Field<'a>>) -> Result<Vec<Field<'a>>> {
        let mut injected: Vec<Field<'a>> = Vec::new();
        let mut seen = BTreeSet::new();
        let mut places: BTreeMap<&str, (bool, usize)> = BTreeMap::new();
        for (at, field) in own.iter().enumerate().rev() {
            places.insert(&field.name.text, (true, at));
        }
        for name in names {
            if !seen.insert(name.text.as_str()) {
                let message = format!("{} is implemented already", shown(&name.text));
                self.findings.add(
                    code::INTERFACE,
                    &name.span,
                    message,
                    "remove one of the two",
                );
                continue;
            }
            let Some(fields) = self.interfaces.get(name.text.as_str()) else {
                let known = self.interfaces.keys().copied();
                let otherwise = format!("declare `interface {}`", name.text);
                let fix = self.findings.suggest(&name.text, known, &otherwise);
                let message = format!("there is no interface {}", shown(&name.text));
                self.findings.add(code::INTERFACE, &name.span, message, fix);
                continue;
            };
            for field in fields {
                let inherited = field.annotations.iter().map(|attached| Attached {
                    annotation: attached.annotation,
                    inherited: true,
                });
                let Some((is_own, at)) = places.get(field.name.text.as_str()).copied() else {
                    places.insert(&field.name.text, (false, injected.len()));
                    let annotations = inherited.collect();
                    injected.push(Field {
                        annotations,
                        ..field.clone()
                    });
                    limit("columns", injected.len(), limits::COLUMNS)?;
                    continue;
                };
                let present = if is_own {
                    &mut own[at]
                } else {
                    &mut injected[at]
                };
                if !same_type(present, field) {
                    // A conflict of two interfaces is about the list, not about either property.
                    let span = if is_own { present.type_at } else { &name.span };
                    let message = format!(
                        "the property {} has another type in {}",
                        shown(&field.name.text),
                        shown(&name.text)
                    );
                    let fix = format!("make it {} in both", spelled(field));
                    self.findings.add(code::CONTRACT, span, message, fix);
                }
                let kept = present.annotations.split_off(
                    present
                        .annotations
                        .iter()
                        .take_while(|a| a.inherited)
                        .count(),
                );
                present.annotations.extend(inherited);
                present.annotations.extend(kept);
            }
        }
        injected.append(&mut own);
        Ok(injected)
    }

    /// Counts what a type adds to the compiled schema, before its parts are copied.
    fn spend(&mut self, fields: &[Field<'_>]) -> Result<()> {
        for field in fields {
            let annotations = field.annotations.iter();
            let annotations = annotations.map(|a| a.annotation.span.len() + ENTRY_BYTES);
            let values = match &field.value_type {
                Some(ValueType::Enum(values)) => values.len(),
                _ => 0,
            };
            let own = field.name.text.len() + field.type_at.len() + ENTRY_BYTES * (1 + values);
            self.bytes += own + annotations.sum::<usize>();
        }
        let most = limits::METADATA_BYTES as usize;
        limit("bytes of a compiled schema", self.bytes, most)
    }
}

fn is_interface(declaration: &Declaration) -> bool {
    matches!(declaration.form, Form::Interface)
}

/// Whether two properties have one type; one that is not a type is found already.
fn same_type(a: &Field<'_>, b: &Field<'_>) -> bool {
    let known = a.value_type.is_some() && b.value_type.is_some();
    !known || (&a.value_type, a.nullable) == (&b.value_type, b.nullable)
}

fn spelled(field: &Field<'_>) -> String {
    let mark = if field.nullable { "?" } else { "" };
    match &field.value_type {
        Some(value_type) => shown(&format!("{value_type}{mark}")),
        None => "one type".to_owned(),
    }
}
