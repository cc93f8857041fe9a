//! The steps between two schemas whose ids mean the same.

use std::collections::BTreeSet;

use super::constraints::{Constraint, card, constraints};
use super::identity::lasting;
use super::{Circumstances, Proof, Step, StepKind, code};
use crate::graph::schema::{Annotation, EdgeEnds, GraphSchema, GraphType, Member, Property};
use crate::graph::value::ValueType;
use crate::table::schema::id;

/// What was found.
#[derive(Default)]
pub(super) struct Compared {
    pub steps: Vec<Step>,
    pub proofs: Vec<Proof>,
}

/// Compares type by type: new and kept ones in the order of the new text, then those that go.
pub(super) fn compare(
    accepted: &GraphSchema,
    wanted: &GraphSchema,
    circumstances: &Circumstances<'_>,
) -> Compared {
    let mut compared = Compared::default();
    for of in &wanted.types {
        match accepted.by_id(of.id) {
            Some(before) => {
                let populated = circumstances.populated.contains(&of.id);
                let pair = Pair {
                    before,
                    of,
                    populated,
                    hard: circumstances.hard,
                };
                pair.compare(&mut compared, (accepted, wanted));
            }
            None => compared.steps.push(Step::done(
                StepKind::AddType,
                format!("add {} type {}", kind(of), of.name),
            )),
        }
    }
    for before in &accepted.types {
        if wanted.by_id(before.id).is_none() {
            let populated = circumstances.populated.contains(&before.id);
            let code = match before.is_edge() {
                true => code::DROP_EDGE,
                false => code::DROP_NODE,
            };
            let what = format!("{} type {}", kind(before), before.name);
            let hard = circumstances.hard;
            compared
                .steps
                .push(dropped(StepKind::DropType, &what, hard, populated, code));
        }
    }
    if accepted.interfaces != wanted.interfaces {
        let text = "change the interfaces".to_owned();
        let step = Step::done(StepKind::UpdateTypeMetadata, text);
        compared.steps.push(step);
    }
    compared
}

fn kind(of: &GraphType) -> &'static str {
    if of.is_edge() { "edge" } else { "node" }
}

/// A soft drop leaves the data in the history; a hard one is allowed to take it.
fn dropped(kind: StepKind, what: &str, hard: bool, populated: bool, code: &'static str) -> Step {
    let how = match hard {
        true => "hard: its data goes from files and history",
        false => "soft: older versions keep its data",
    };
    let mut step = Step::done(kind, format!("drop {what} ({how})"));
    step.code = (hard && populated).then_some(code);
    step
}

fn spelled(property: &Property) -> String {
    let mark = if property.nullable { "?" } else { "" };
    format!("{}{mark}", property.value_type)
}

fn same_annotations(a: &[Annotation], b: &[Annotation]) -> bool {
    lasting(a).eq(lasting(b))
}

/// A type before and after.
struct Pair<'a> {
    before: &'a GraphType,
    of: &'a GraphType,
    populated: bool,
    hard: bool,
}

impl Pair<'_> {
    fn compare(&self, out: &mut Compared, schemas: (&GraphSchema, &GraphSchema)) {
        let (before, of) = (self.before, self.of);
        if before.name != of.name {
            out.steps.push(Step::done(
                StepKind::RenameType,
                format!("rename {} type {} to {}", kind(of), before.name, of.name),
            ));
        }
        for property in &of.properties {
            match before.property_by_id(property.id) {
                Some(was) => self.property(was, property, out),
                None => out.steps.push(self.added(property)),
            }
        }
        for property in &before.properties {
            if of.property_by_id(property.id).is_none() {
                let what = format!("property {}.{}", before.name, property.name);
                let kind = StepKind::DropProperty;
                let code = code::DROP_PROPERTY;
                out.steps
                    .push(dropped(kind, &what, self.hard, self.populated, code));
            }
        }
        self.key(out);
        if let (Some(was), Some(ends)) = (&before.edge, &of.edge) {
            self.ends(was, ends, out, schemas);
        }
        self.constraints(out);
        self.metadata(out);
    }

    fn added(&self, property: &Property) -> Step {
        let name = format!("{}.{}", self.of.name, property.name);
        let text = format!("add property {name}: {}", spelled(property));
        match property.nullable || !self.populated {
            true => Step::done(StepKind::AddProperty, text),
            false => {
                let text = format!("{text}: stored rows have no value for it; add it with `?`");
                Step::refused(StepKind::AddProperty, code::ADD_REQUIRED, text)
            }
        }
    }

    fn property(&self, was: &Property, is: &Property, out: &mut Compared) {
        let (type_name, name) = (&self.of.name, &is.name);
        if was.name != *name {
            let text = format!("rename property {type_name}.{} to {name}", was.name);
            out.steps.push(Step::done(StepKind::RenameProperty, text));
        }
        self.value_type(was, is, out);
        if was.nullable != is.nullable {
            let (kind, text) = match is.nullable {
                true => (StepKind::DropConstraint, "allow null in"),
                false => (StepKind::AddConstraint, "require"),
            };
            out.steps
                .push(Step::done(kind, format!("{text} {type_name}.{name}")));
            if !is.nullable {
                self.prove(Proof::Values(self.of.id), out);
            }
        }
        if was.embed != is.embed {
            let text = format!("change @embed of {type_name}.{name}");
            let both = was.embed.is_some() && is.embed.is_some();
            let step = match both && self.populated {
                false => Step::done(StepKind::UpdatePropertyMetadata, text),
                true => {
                    let text = format!(
                        "{text}: stored vectors were made as it was; add another property for the \
                         new vectors"
                    );
                    let kind = StepKind::UpdatePropertyMetadata;
                    Step::refused(kind, code::CHANGE_EMBED, text)
                }
            };
            out.steps.push(step);
        }
        if !same_annotations(&was.annotations, &is.annotations) {
            let text = format!("change annotations of {type_name}.{name}");
            let kind = StepKind::UpdatePropertyMetadata;
            out.steps.push(Step::done(kind, text));
        }
    }

    fn value_type(&self, was: &Property, is: &Property, out: &mut Compared) {
        if was.value_type == is.value_type {
            return;
        }
        let name = format!("{}.{}", self.of.name, is.name);
        if let (ValueType::Enum(old), ValueType::Enum(new)) = (&was.value_type, &is.value_type) {
            let (old, new): (BTreeSet<&String>, BTreeSet<&String>) =
                (old.iter().collect(), new.iter().collect());
            if old.is_subset(&new) {
                let more: Vec<&str> = new.difference(&old).map(|v| v.as_str()).collect();
                let text = format!("extend enum {name} by {}", more.join(", "));
                out.steps.push(Step::done(StepKind::ExtendEnum, text));
                return;
            }
        }
        let text = format!(
            "change property {name} from {} to {}: add another property and move the values over",
            was.value_type, is.value_type
        );
        let kind = StepKind::ChangeProperty;
        out.steps.push(Step::refused(kind, code::CHANGE_TYPE, text));
    }

    fn key(&self, out: &mut Compared) {
        if self.before.key == self.of.key {
            return;
        }
        let name = |of: &GraphType| {
            let names = of.key.iter().filter_map(|id| of.property_by_id(*id));
            names
                .map(|p| p.name.as_str())
                .collect::<Vec<_>>()
                .join(", ")
        };
        let (kind, text) = match self.of.key.is_empty() {
            true => (
                StepKind::DropConstraint,
                format!("drop @key({}) of {}", name(self.before), self.of.name),
            ),
            false => (
                StepKind::AddConstraint,
                format!("add @key({}) to {}", name(self.of), self.of.name),
            ),
        };
        out.steps.push(match self.populated {
            false => Step::done(kind, text),
            true => {
                let text = format!(
                    "{text}: the ids of stored rows are made otherwise; load them into a new type"
                );
                Step::refused(kind, code::CHANGE_KEY, text)
            }
        });
    }

    fn ends(
        &self,
        was: &EdgeEnds,
        is: &EdgeEnds,
        out: &mut Compared,
        (accepted, wanted): (&GraphSchema, &GraphSchema),
    ) {
        let name = &self.of.name;
        if (was.from, was.to) != (is.from, is.to) {
            let of = |schema: &GraphSchema, id: u64| {
                schema.by_id(id).map_or("?", |t| t.name.as_str()).to_owned()
            };
            let text = format!(
                "change the ends of {name} from {} -> {} to {} -> {}: add another edge type",
                of(accepted, was.from),
                of(accepted, was.to),
                of(wanted, is.from),
                of(wanted, is.to)
            );
            let kind = StepKind::ChangeEnds;
            out.steps.push(Step::refused(kind, code::CHANGE_ENDS, text));
        }
        let (was, is) = ((was.min, was.max), (is.min, is.max));
        if was == is {
            return;
        }
        let looser = is.0 <= was.0 && is.1.unwrap_or(u64::MAX) >= was.1.unwrap_or(u64::MAX);
        let text = format!("change {} of {name} to {}", card(was), card(is));
        let kind = match looser {
            true => StepKind::DropConstraint,
            false => StepKind::AddConstraint,
        };
        out.steps.push(Step::done(kind, text));
        if !looser {
            self.prove(Proof::Cardinality(self.of.id), out);
        }
    }

    fn constraints(&self, out: &mut Compared) {
        let (was, is) = (constraints(self.before), constraints(self.of));
        let name = &self.of.name;
        for gone in was.iter().filter(|c| !is.contains(c)) {
            let text = format!("drop {} of {name}", gone.spelled(self.before));
            out.steps.push(Step::done(StepKind::DropConstraint, text));
        }
        for new in is.iter().filter(|c| !was.contains(c)) {
            let text = format!("add {} to {name}", new.spelled(self.of));
            out.steps.push(Step::done(StepKind::AddConstraint, text));
            // A property that is new is null everywhere, which breaks none of these.
            let known = |id: &u64| self.before.property_by_id(*id).is_some();
            if !new.properties().iter().all(known) {
                continue;
            }
            match new {
                Constraint::Unique(members) => {
                    let members = members.iter().map(|m| match *m {
                        id::SRC => Member::Src,
                        id::DST => Member::Dst,
                        property => Member::Property(property),
                    });
                    self.prove(Proof::Unique(self.of.id, members.collect()), out);
                }
                Constraint::Range(_) | Constraint::Check(_) => {
                    self.prove(Proof::Values(self.of.id), out);
                }
                Constraint::Index(_) => {}
            }
        }
    }

    fn metadata(&self, out: &mut Compared) {
        let (before, of) = (self.before, self.of);
        let kept = |a: &GraphType, b: &GraphType| -> Vec<u64> {
            let ids = a.properties.iter().map(|p| p.id);
            ids.filter(|id| b.property_by_id(*id).is_some()).collect()
        };
        let what = if before.implements != of.implements {
            "interfaces"
        } else if !same_annotations(&before.annotations, &of.annotations) {
            "annotations"
        } else if kept(before, of) != kept(of, before) {
            "order of the properties"
        } else {
            return;
        };
        let text = format!("change the {what} of {}", of.name);
        let step = Step::done(StepKind::UpdateTypeMetadata, text);
        out.steps.push(step);
    }

    /// Rows that are not there prove everything.
    fn prove(&self, proof: Proof, out: &mut Compared) {
        if self.populated && !out.proofs.contains(&proof) {
            out.proofs.push(proof);
        }
    }
}
