//! Constraints, indexes and annotations of the properties of one type.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range as Span;

use super::annotations::{Target, is_known, kept, one_text, repeated, wrong_arguments};
use super::ast::{Annotation, Argument, ValueForm, Word};
use super::fields::{Attached, Field, Place};
use super::findings::{Findings, code, shown};
use super::rules::{self, Listing};
use super::values::Patterns;
use super::{Check, GraphType, Index, Member, Property, Range};
use crate::Result;
use crate::graph::value::ValueType;

/// A key, a unique tuple or an index.
struct Listed {
    members: Vec<Member>,
    /// The members without regard to their order.
    set: Vec<u64>,
    options: BTreeMap<String, String>,
    place: Place,
}

impl Listed {
    fn inherited(&self) -> bool {
        !self.place.0
    }
}

/// Collects what the annotations of one type say. Ids of the properties count up from `first`.
pub(super) struct Builder<'a, 'b> {
    pub(super) findings: &'b mut Findings,
    pub(super) fields: &'b [Field<'a>],
    pub(super) names: BTreeMap<&'a str, usize>,
    pub(super) target: Target,
    pub(super) first: u64,
    pub(super) properties: Vec<Property>,
    key: Option<Listed>,
    unique: Vec<Listed>,
    indexes: Vec<Listed>,
    pub(super) ranges: Vec<(Place, Range)>,
    pub(super) checks: Vec<(Place, Check)>,
}

impl<'a, 'b> Builder<'a, 'b> {
    pub fn new(
        findings: &'b mut Findings,
        fields: &'b [Field<'a>],
        target: Target,
        first: u64,
    ) -> Self {
        let names = fields.iter().enumerate().rev();
        let property = |(field, id): (&Field<'_>, u64)| Property {
            id,
            name: field.name.text.clone(),
            // A type that is not one is found already, and then nothing is made.
            value_type: field.value_type.clone().unwrap_or(ValueType::Blob),
            nullable: field.nullable,
            embed: None,
            annotations: Vec::new(),
        };
        Self {
            names: names.map(|(at, f)| (f.name.text.as_str(), at)).collect(),
            properties: fields.iter().zip(first..).map(property).collect(),
            findings,
            fields,
            target,
            first,
            key: None,
            unique: Vec::new(),
            indexes: Vec::new(),
            ranges: Vec::new(),
            checks: Vec::new(),
        }
    }

    /// The type without its id, its name and its own annotations.
    pub fn finish(mut self) -> GraphType {
        self.unique.sort_by_key(|listed| listed.place);
        self.indexes.sort_by_key(|listed| listed.place);
        self.ranges.sort_by_key(|(place, _)| *place);
        self.checks.sort_by_key(|(place, _)| *place);
        let (key, key_set) = match self.key {
            Some(listed) => (listed.members, listed.set),
            None => (Vec::new(), Vec::new()),
        };
        let unique = self.unique.into_iter().filter(|u| u.set != key_set);
        let index = |listed: Listed| Index {
            members: listed.members,
            options: listed.options,
        };
        GraphType {
            id: 0,
            name: String::new(),
            edge: None,
            implements: Vec::new(),
            properties: self.properties,
            unique: unique.map(|listed| listed.members).collect(),
            key: key
                .into_iter()
                .filter_map(|member| match member {
                    Member::Property(id) => Some(id),
                    Member::Src | Member::Dst => None,
                })
                .collect(),
            indexes: self.indexes.into_iter().map(index).collect(),
            ranges: self.ranges.into_iter().map(|(_, range)| range).collect(),
            checks: self.checks.into_iter().map(|(_, check)| check).collect(),
            annotations: Vec::new(),
        }
    }

    /// Reads the annotations that stand behind properties.
    ///
    /// # Errors
    /// `ResourceLimitExceeded`.
    pub fn annotate(&mut self, patterns: &mut Patterns<'a>) -> Result<()> {
        for (at, field) in self.fields.iter().enumerate() {
            let mut seen = BTreeSet::new();
            let own = field.annotations.iter().filter(|a| !a.inherited);
            let own: BTreeSet<&str> = own.map(|a| a.annotation.name.text.as_str()).collect();
            for attached in &field.annotations {
                let annotation = attached.annotation;
                let name = annotation.name.text.as_str();
                let single = name == "embed" || is_known(name);
                // What the type says itself stands before what an interface says.
                if single && attached.inherited && own.contains(name) {
                    continue;
                }
                if single && !seen.insert(name) {
                    if !attached.inherited {
                        repeated(annotation, self.findings);
                    }
                    continue;
                }
                self.annotation(at, *attached, patterns)?;
            }
        }
        Ok(())
    }

    fn annotation(
        &mut self,
        at: usize,
        attached: Attached<'a>,
        patterns: &mut Patterns<'a>,
    ) -> Result<()> {
        let annotation = attached.annotation;
        let member = Member::Property(self.first + at as u64);
        match annotation.name.text.as_str() {
            "key" => self.list(Listing::Key, attached, vec![(member, &annotation.span)]),
            "unique" => self.list(Listing::Unique, attached, vec![(member, &annotation.span)]),
            "index" => self.list(Listing::Index, attached, vec![(member, &annotation.span)]),
            "range" => match annotation.arguments.as_slice() {
                [Argument::Range(bounds)] => self.range(at, attached, bounds),
                _ => wrong_arguments(annotation, "`@range(0..10)`", self.findings),
            },
            "check" => {
                let wanted = "a pattern, as in `@check(\"^[a-z]+$\")`";
                if let Some(pattern) = one_text(annotation, wanted, self.findings) {
                    self.check(at, attached, pattern, patterns)?;
                }
            }
            "embed" => self.embed(at, annotation),
            name @ ("card" | "instruction") => {
                let message = format!("`@{name}` is about a type, not about a property");
                let fix = "move it before the braces";
                self.findings
                    .add(code::PLACE, &annotation.span, message, fix);
            }
            _ => {
                if let Some(kept) = kept(annotation, self.findings) {
                    self.properties[at].annotations.push(kept);
                }
            }
        }
        Ok(())
    }

    /// Reads a constraint that names its properties.
    ///
    /// # Errors
    /// `ResourceLimitExceeded`.
    pub fn constrain(
        &mut self,
        annotation: &'a Annotation,
        patterns: &mut Patterns<'a>,
    ) -> Result<()> {
        let attached = Attached {
            annotation,
            inherited: false,
        };
        let listing = match annotation.name.text.as_str() {
            "key" => Listing::Key,
            "unique" => Listing::Unique,
            "index" => Listing::Index,
            name => {
                let Some(Argument::Value(first)) = annotation.arguments.first() else {
                    return Ok(());
                };
                let at = self.field(&first.word);
                match (name, &annotation.arguments[1..]) {
                    ("range", [Argument::Range(bounds)]) => {
                        if let Some(at) = at {
                            self.range(at, attached, bounds);
                        }
                    }
                    ("check", [Argument::Value(value)]) if value.form == ValueForm::String => {
                        if let Some(at) = at {
                            self.check(at, attached, &value.word, patterns)?;
                        }
                    }
                    ("range", _) => {
                        wrong_arguments(annotation, "`@range(year, 0..10)`", self.findings);
                    }
                    _ => wrong_arguments(annotation, "`@check(name, \"^a\")`", self.findings),
                }
                return Ok(());
            }
        };
        let members: Vec<_> = annotation
            .members()
            .map(|word| self.member(word).map(|member| (member, &word.span)))
            .collect();
        if let Some(members) = members.into_iter().collect() {
            self.list(listing, attached, members);
        }
        Ok(())
    }

    fn field(&mut self, name: &Word) -> Option<usize> {
        if let Some(at) = self.names.get(name.text.as_str()) {
            return Some(*at);
        }
        let known = self.names.keys().copied();
        let fix = self
            .findings
            .suggest(&name.text, known, "name a property of this type");
        let message = format!("there is no property {}", shown(&name.text));
        self.findings
            .add(code::UNKNOWN_PROPERTY, &name.span, message, fix);
        None
    }

    fn member(&mut self, name: &Word) -> Option<Member> {
        match (name.text.as_str(), self.target) {
            ("src", Target::Edge) => Some(Member::Src),
            ("dst", Target::Edge) => Some(Member::Dst),
            _ => {
                let at = self.field(name)?;
                Some(Member::Property(self.first + at as u64))
            }
        }
    }

    fn field_of(&self, member: Member) -> Option<&'b Field<'a>> {
        match member {
            Member::Property(id) => {
                let at = id.checked_sub(self.first)?;
                self.fields.get(usize::try_from(at).ok()?)
            }
            Member::Src | Member::Dst => None,
        }
    }

    fn list(
        &mut self,
        listing: Listing,
        attached: Attached<'a>,
        members: Vec<(Member, &'a Span<usize>)>,
    ) {
        let annotation = attached.annotation;
        let span = &annotation.span;
        if listing == Listing::Key && self.target == Target::Edge {
            let message = "an edge type has no key: its edges have ids";
            let fix = "use `@unique(...)`, which may name `src` and `dst`";
            self.findings.add(code::PLACE, span, message, fix);
            return;
        }
        let mut seen = BTreeSet::new();
        for (member, at) in &members {
            if !seen.insert(rules::as_set(&[*member])) {
                let message = format!("{} names a property twice", listing.name());
                self.findings
                    .add(code::REPEATED, at, message, "remove one of the two");
            }
            self.fits(listing, *member, members.len(), at);
        }
        let Some(options) = self.options(listing, annotation, &members) else {
            return;
        };
        let members: Vec<Member> = members.into_iter().map(|(member, _)| member).collect();
        let listed = Listed {
            set: rules::as_set(&members),
            members,
            options,
            place: attached.place(),
        };
        match listing {
            Listing::Key => self.add_key(listed, span),
            Listing::Unique | Listing::Index => self.add(listing, listed, span),
        }
    }

    fn fits(&mut self, listing: Listing, member: Member, members: usize, span: &Span<usize>) {
        let Some(field) = self.field_of(member) else {
            return;
        };
        let Some(value_type) = &field.value_type else {
            return;
        };
        let (listed, name) = (listing.name(), shown(&field.name.text));
        if !listing.fits(value_type, members) {
            let message = format!(
                "{listed} does not take {name} of type {}",
                shown(&value_type.to_string())
            );
            let fix = match value_type {
                ValueType::Vector(_) if listing == Listing::Index => {
                    format!("give {name} an `@index` of its own")
                }
                _ => format!("leave {name} out"),
            };
            self.findings.add(code::PROPERTY_TYPE, span, message, fix);
        } else if listing == Listing::Key && field.nullable {
            let message = format!("{listed} does not take {name}, which may be null");
            let fix = format!("remove the `?` of {name}");
            self.findings.add(code::PROPERTY_TYPE, span, message, fix);
        }
    }

    /// Options of an index; `None`, and a finding, for arguments that are none.
    fn options(
        &mut self,
        listing: Listing,
        annotation: &'a Annotation,
        members: &[(Member, &'a Span<usize>)],
    ) -> Option<BTreeMap<String, String>> {
        let named = annotation.members().count();
        let mut options = BTreeMap::new();
        for argument in &annotation.arguments[named..] {
            let Argument::Named(name, value) = argument else {
                let wanted = match listing {
                    Listing::Index => "names of properties, then options: `@index(a, b)`",
                    Listing::Key => "`@key` behind a property, or `@key(a, b)`",
                    Listing::Unique => "`@unique` behind a property, or `@unique(a, b)`",
                };
                wrong_arguments(annotation, wanted, self.findings);
                return None;
            };
            let text = &value.word.text;
            let problem = match rules::option_values(&name.text) {
                _ if listing != Listing::Index => Some((
                    format!("{} has no options", listing.name()),
                    "remove it".to_owned(),
                )),
                None => {
                    let otherwise = "the options are `analyzer`, `kind` and `metric`";
                    let known = rules::option_names();
                    let fix = self.findings.suggest(&name.text, known, otherwise);
                    Some((format!("an index has no option {}", shown(&name.text)), fix))
                }
                Some(values)
                    if value.form != ValueForm::String || !values.contains(&text.as_str()) =>
                {
                    let quoted: Vec<_> = values.iter().map(|v| format!("\"{v}\"")).collect();
                    Some((
                        format!("{} has no value {}", shown(&name.text), shown(text)),
                        format!("write {}", quoted.join(" or ")),
                    ))
                }
                Some(_) if !self.option_fits(&name.text, members) => Some((
                    format!("{} means nothing for this index", shown(&name.text)),
                    match name.text.as_str() {
                        "analyzer" => "give it to an index of one String".to_owned(),
                        _ => "give it to an index of one Vector".to_owned(),
                    },
                )),
                Some(_) => None,
            };
            if let Some((message, fix)) = problem {
                self.findings
                    .add(code::OPTION, &argument.span(), message, fix);
            } else if options.insert(name.text.clone(), text.clone()).is_some() {
                let message = format!("{} is given twice", shown(&name.text));
                self.findings.add(
                    code::REPEATED,
                    &argument.span(),
                    message,
                    "remove one of them",
                );
            }
        }
        Some(options)
    }

    fn option_fits(&self, option: &str, members: &[(Member, &'a Span<usize>)]) -> bool {
        let field = |(member, _): &(Member, _)| self.field_of(*member);
        // A type that is not one is found already.
        let unknown = |f: Option<&Field<'_>>| f.is_some_and(|f| f.value_type.is_none());
        if members.iter().any(|member| unknown(field(member))) {
            return true;
        }
        let types = members.iter().map(|m| field(m)?.value_type.as_ref());
        rules::option_fits(option, &types.collect::<Vec<_>>())
    }

    fn add_key(&mut self, listed: Listed, span: &Span<usize>) {
        match &self.key {
            None => self.key = Some(listed),
            Some(there) if there.set == listed.set => {
                if !there.inherited() {
                    let fix = "remove one of the two";
                    self.findings
                        .add(code::REPEATED, span, "the key is given already", fix);
                } else if !listed.inherited() {
                    self.key = Some(listed);
                }
            }
            Some(_) => {
                let message = "a node type has one key";
                let fix = "name all of its properties in one: `@key(a, b)`";
                self.findings.add(code::REPEATED, span, message, fix);
            }
        }
    }

    fn add(&mut self, listing: Listing, listed: Listed, span: &Span<usize>) {
        let all = match listing {
            Listing::Index => &mut self.indexes,
            Listing::Key | Listing::Unique => &mut self.unique,
        };
        let same = |there: &&mut Listed| match listing {
            Listing::Index => there.members == listed.members,
            Listing::Key | Listing::Unique => there.set == listed.set,
        };
        match all.iter_mut().find(same) {
            None => all.push(listed),
            Some(there) if there.inherited() && !listed.inherited() => *there = listed,
            Some(there) if there.inherited() && there.options == listed.options => {}
            Some(_) => {
                let message = format!("{} is given for these already", listing.name());
                self.findings
                    .add(code::REPEATED, span, message, "remove one of the two");
            }
        }
    }
}
