//! From one schema to another: identities, steps, proofs and refusals; then branches of a graph whose
//! schemas change.

mod branches;

use std::collections::BTreeSet;

use stratagraph::graph::evolve::{Circumstances, Evolution, Proof, same_meaning};
use stratagraph::graph::schema::{GraphSchema, Member};

const FIRST: &str = r#"
interface Named { name: String }
node Person implements Named { email: String?  age: I64?  kind: enum(a, b)  @unique(email) }
node Place { code: String @key  size: F64 @range(0.0..1.0) }
edge Lives: Person -> Place @card(0..2) { since: I64? }
"#;

fn compile(text: &str) -> GraphSchema {
    GraphSchema::compile(text).unwrap_or_else(|e| panic!("{e}\n{text}"))
}

/// The way between two schemas, all types of the first of which have rows.
fn plan(from: &GraphSchema, to: &str) -> Evolution {
    let circumstances = Circumstances {
        populated: from.types.iter().map(|t| t.id).collect(),
        default_model: "hash:8",
        ..Circumstances::default()
    };
    let evolution = Evolution::plan(from, compile(to), &circumstances).unwrap();
    // Whatever is planned can be kept, and is read back as it was.
    if evolution.refused().next().is_none() {
        let bytes = evolution.schema.encode().unwrap();
        assert_eq!(GraphSchema::decode("t", &bytes).unwrap(), evolution.schema);
    }
    evolution
}

/// Kind and code of each step.
fn steps(evolution: &Evolution) -> Vec<String> {
    let steps = evolution.steps.iter().map(|step| {
        assert_eq!(step.supported, step.code.is_none(), "{step:?}");
        let code = step.code.map(|code| format!(" {code}"));
        format!("{}{}", step.kind.as_str(), code.unwrap_or_default())
    });
    steps.collect()
}

/// The steps from [`FIRST`] with one part of it replaced.
fn changed(part: &str, by: &str) -> Evolution {
    assert!(FIRST.contains(part), "{part}");
    plan(&compile(FIRST), &FIRST.replacen(part, by, 1))
}

#[test]
fn the_same_schema_has_no_steps() {
    let first = compile(FIRST);
    for text in [
        FIRST.to_owned(),
        FIRST.replace('\n', "  // other lines\n\n"),
        // The order of types, of enum values and of members means nothing.
        FIRST.replace("enum(a, b)", "enum(b, a)"),
    ] {
        let again = plan(&first, &text);
        assert_eq!(steps(&again), [""; 0], "{text}");
        assert!(same_meaning(&again.schema, &first));
        assert!(again.proofs.is_empty());
    }
}

/// A part of the first schema, what stands there instead, and the steps.
const CHANGES: &[(&str, &str, &[&str])] = &[
    (
        "email: String?",
        "email: String?  nick: String?",
        &["add_property"],
    ),
    (
        "email: String?",
        "email: String?  nick: String",
        &["add_property OG-MF-103"],
    ),
    ("age: I64?", "", &["drop_property"]),
    ("age: I64?", "age: I32?", &["change_property OG-MF-106"]),
    ("age: I64?", "age: String?", &["change_property OG-MF-106"]),
    ("age: I64?", "age: I64", &["add_constraint"]),
    ("name: String }", "name: String? }", &["drop_constraint"]),
    ("enum(a, b)", "enum(a, b, c)", &["extend_enum"]),
    ("enum(a, b)", "enum(a)", &["change_property OG-MF-106"]),
    ("enum(a, b)", "enum(a, c)", &["change_property OG-MF-106"]),
    ("enum(a, b)", "String", &["change_property OG-MF-106"]),
    ("@unique(email)", "", &["drop_constraint"]),
    (
        "@unique(email)",
        "@unique(email, age)",
        &["drop_constraint", "add_constraint"],
    ),
    (
        "@unique(email)",
        "@unique(email) @index(age)",
        &["add_constraint"],
    ),
    (
        "@unique(email)",
        "@unique(email) @key(name)",
        &["add_constraint OG-MF-105"],
    ),
    (
        "code: String @key",
        "code: String",
        &["drop_constraint OG-MF-105"],
    ),
    (
        "0.0..1.0",
        "0.0..2.0",
        &["drop_constraint", "add_constraint"],
    ),
    ("@card(0..2)", "@card(0..3)", &["drop_constraint"]),
    ("@card(0..2)", "@card(1..2)", &["add_constraint"]),
    ("@card(0..2)", "", &["drop_constraint"]),
    (
        "Person -> Place",
        "Place -> Person",
        &["change_ends OG-ED-101"],
    ),
    (
        "age: I64?",
        "age: I64? @description(\"years\")",
        &["update_property_metadata"],
    ),
    (
        "node Place {",
        "node Place @description(\"where\") {",
        &["update_type_metadata"],
    ),
    (
        "edge Lives: Person -> Place @card(0..2) { since: I64? }",
        "",
        &["drop_type"],
    ),
    (
        "edge Lives",
        "node Town { a: String } edge Lives",
        &["add_type"],
    ),
    (
        "code: String @key  size: F64 @range(0.0..1.0)",
        "size: F64 @range(0.0..1.0) code: String @key",
        &["update_type_metadata"],
    ),
    (
        "interface Named {",
        "interface Other { x: I64? } interface Named {",
        &["update_type_metadata"],
    ),
];

#[test]
fn each_change_is_its_steps() {
    for (part, by, expected) in CHANGES {
        assert_eq!(steps(&changed(part, by)), *expected, "{part} -> {by}");
    }
}

#[test]
fn what_stored_rows_must_show() {
    let first = compile(FIRST);
    let (person, place, lives) = (first.types[0].id, first.types[1].id, first.types[2].id);
    let age = first.types[0].property("age").unwrap().id;
    let proofs = |part: &str, by: &str| changed(part, by).proofs;
    assert_eq!(proofs("age: I64?", "age: I64"), [Proof::Values(person)]);
    assert_eq!(proofs("0.0..1.0", "0.0..2.0"), [Proof::Values(place)]);
    assert_eq!(
        proofs("@card(0..2)", "@card(1..2)"),
        [Proof::Cardinality(lives)]
    );
    let unique = Proof::Unique(person, vec![Member::Property(age)]);
    assert_eq!(
        proofs("@unique(email)", "@unique(email) @unique(age)"),
        [unique]
    );
    let ends = Proof::Unique(lives, vec![Member::Src, Member::Dst]);
    assert_eq!(
        proofs("since: I64?", "since: I64? @unique(src, dst)"),
        [ends]
    );
    // Nothing is to be shown for what is looser, and for properties that are null everywhere.
    assert_eq!(proofs("@card(0..2)", "@card(0..3)"), []);
    assert_eq!(
        proofs("age: I64?", "age: I64? x: I64? @range(x, 0..1) @unique(x)"),
        []
    );
    // Nor for types without rows, where required properties and other keys are allowed too.
    let empty = Circumstances::default();
    let text = FIRST
        .replace("age: I64?", "age: I64 x: I64")
        .replace("@unique(email)", "@key(name)");
    let evolution = Evolution::plan(&first, compile(&text), &empty).unwrap();
    assert_eq!(evolution.proofs, []);
    assert_eq!(evolution.refused().count(), 0);
}

#[test]
fn a_rename_keeps_who_it_is() {
    let first = compile(FIRST);
    let text = FIRST
        .replace(
            "node Person implements",
            "node Human @rename_from(\"Person\") implements",
        )
        .replace("Person ->", "Human ->")
        .replace("age: I64?", "years: I64? @rename_from(\"age\")");
    let renamed = plan(&first, &text);
    assert_eq!(steps(&renamed), ["rename_type", "rename_property"]);
    let (was, is) = (&first.types[0], &renamed.schema.types[0]);
    assert_eq!((was.id, "Human"), (is.id, is.name.as_str()));
    let years = is.property("years").unwrap();
    assert_eq!(was.property("age").unwrap().id, years.id);
    assert!(is.annotations.is_empty() && years.annotations.is_empty());
    // The same text again, and the same without what it was renamed from.
    assert_eq!(steps(&plan(&renamed.schema, &text)), [""; 0]);
    let plain = text.replace("@rename_from(\"Person\")", "");
    assert_eq!(steps(&plan(&renamed.schema, &plain)), [""; 0]);
}

#[test]
fn a_name_that_comes_back_is_somebody_else() {
    let first = compile(FIRST);
    let person = first.types[0].id;
    // In one step: the name goes to another, and a new type takes it.
    let text = FIRST
        .replace(
            "node Person implements",
            "node Human @rename_from(\"Person\") implements",
        )
        .replace("Person ->", "Human ->")
        + "node Person { name: String }";
    let both = plan(&first, &text);
    assert_eq!(steps(&both), ["rename_type", "add_type"]);
    assert_eq!(both.schema.node("Human").unwrap().id, person);
    let new = both.schema.node("Person").unwrap();
    assert!(new.id > person && new.id >= first.next_type);
    assert_eq!(steps(&plan(&both.schema, &text)), [""; 0]);
    // In two steps: dropped, then added again.
    let without = plan(&first, &FIRST.replace("age: I64?", ""));
    let back = plan(&without.schema, FIRST);
    assert_eq!(steps(&back), ["add_property"]);
    let (old, new) = (&first.types[0], &back.schema.types[0]);
    assert_ne!(
        old.property("age").unwrap().id,
        new.property("age").unwrap().id
    );
    assert!(!same_meaning(&first, &back.schema));
    let used: BTreeSet<u64> = first
        .types
        .iter()
        .flat_map(|t| &t.properties)
        .map(|p| p.id)
        .collect();
    assert!(!used.contains(&new.property("age").unwrap().id));
}

#[test]
fn a_rename_that_cannot_be_followed_is_refused() {
    let refusals = |part: &str, by: &str| {
        let evolution = changed(part, by);
        let texts = evolution.refused().map(|step| {
            assert_eq!(step.code, Some("OG-BC-101"));
            step.text.clone()
        });
        texts.collect::<Vec<_>>()
    };
    let none = refusals("age: I64?", "years: I64? @rename_from(\"aeg\")");
    assert_eq!(
        none,
        ["rename Person.years: there is no aeg; correct the name, or remove it"]
    );
    let two = refusals(
        "age: I64?",
        "years: I64? @rename_from(\"age\") old: I64? @rename_from(\"age\")",
    );
    assert_eq!(two.len(), 1, "{two:?}");
    let taken = refusals(
        "email: String?  age: I64?",
        "email: String? @rename_from(\"age\")",
    );
    assert_eq!(taken.len(), 1, "{taken:?}");
    // A node type is not what an edge type was.
    let kind = refusals(
        "node Place {",
        "node Was @rename_from(\"Lives\") {} node Place {",
    );
    assert_eq!(kind.len(), 1, "{kind:?}");
}

#[test]
fn a_model_stays_the_one_that_made_the_vectors() {
    let text = |embed: &str| format!("node Doc {{ a: String? b: String? v: Vector(8)? {embed} }}");
    let circumstances = Circumstances {
        populated: BTreeSet::from([1]),
        default_model: "hash:8",
        ..Circumstances::default()
    };
    let first = compile(&text(""));
    let plan = |from: &GraphSchema, embed: &str| {
        Evolution::plan(from, compile(&text(embed)), &circumstances).unwrap()
    };
    let with = plan(&first, "@embed(\"a\")");
    assert_eq!(steps(&with), ["update_property_metadata"]);
    let model = |e: &Evolution| e.schema.types[0].properties[2].embed.clone().unwrap().model;
    assert_eq!(model(&with), Some("hash:8".to_owned()));
    let other = Circumstances {
        default_model: "hash:16",
        ..circumstances.clone()
    };
    let again = Evolution::plan(&with.schema, compile(&text("@embed(\"a\")")), &other).unwrap();
    assert_eq!(
        (steps(&again).len(), model(&again)),
        (0, Some("hash:8".to_owned()))
    );
    let refused = ["update_property_metadata OG-VE-101"];
    assert_eq!(steps(&plan(&with.schema, "@embed(\"b\")")), refused);
    assert_eq!(
        steps(&plan(&with.schema, "@embed(\"a\", model=\"hash:9\")")),
        refused
    );
    assert_eq!(steps(&plan(&with.schema, "")), ["update_property_metadata"]);
}
