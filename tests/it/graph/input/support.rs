//! Schemas made by hand, and loads of a text.

use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray};
use arrow::compute::concat_batches;
use arrow::record_batch::RecordBatch;
use stratagraph::graph::input::{Grammar, Input, InputOptions, OnError, Summary, TypedBatch};
use stratagraph::graph::schema::{
    Bound, Check, EdgeEnds, Embed, GraphSchema, GraphType, Property, Range,
};
use stratagraph::graph::value::{Scalar, ValueType};
use stratagraph::graph::violation::Violation;

pub const PERSON: u64 = 1;
pub const ITEM: u64 = 2;
pub const KNOWS: u64 = 3;
pub const NOTE: u64 = 4;
pub const OWNS: u64 = 5;

pub fn property(id: u64, name: &str, value_type: ValueType, nullable: bool) -> Property {
    Property {
        id,
        name: name.to_owned(),
        value_type,
        nullable,
        embed: None,
        annotations: vec![],
    }
}

pub fn graph_type(id: u64, name: &str, properties: Vec<Property>, key: Vec<u64>) -> GraphType {
    GraphType {
        id,
        name: name.to_owned(),
        edge: None,
        implements: vec![],
        properties,
        key,
        unique: vec![],
        indexes: vec![],
        ranges: vec![],
        checks: vec![],
        annotations: vec![],
    }
}

pub fn edge_type(id: u64, name: &str, ends: (u64, u64), properties: Vec<Property>) -> GraphType {
    let mut edge = graph_type(id, name, properties, vec![]);
    edge.edge = Some(EdgeEnds {
        from: ends.0,
        to: ends.1,
        min: 0,
        max: None,
    });
    edge
}

pub fn schema_of(types: Vec<GraphType>) -> GraphSchema {
    GraphSchema {
        format: 1,
        source: String::new(),
        next_type: types.len() as u64 + 1,
        next_property: 1_000,
        types,
        interfaces: vec![],
    }
}

pub fn scalar(scalar: Scalar) -> ValueType {
    ValueType::Scalar(scalar)
}

/// Person (key name) with every kind of value, Item (key a U64), Note without a key, two edges.
pub fn schema() -> GraphSchema {
    let mut vector = property(33, "v", ValueType::Vector(3), true);
    vector.embed = Some(Embed {
        source: 16,
        model: None,
    });
    let mut person = graph_type(
        PERSON,
        "Person",
        vec![
            property(16, "name", scalar(Scalar::String), false),
            property(17, "b", scalar(Scalar::Bool), true),
            property(18, "i32", scalar(Scalar::I32), true),
            property(19, "i64", scalar(Scalar::I64), true),
            property(20, "u32", scalar(Scalar::U32), true),
            property(21, "u64", scalar(Scalar::U64), true),
            property(22, "f32", scalar(Scalar::F32), true),
            property(23, "f64", scalar(Scalar::F64), true),
            property(24, "day", scalar(Scalar::Date), true),
            property(25, "at", scalar(Scalar::DateTime), true),
            property(
                26,
                "color",
                ValueType::Enum(vec!["blue".into(), "red".into()]),
                true,
            ),
            property(27, "tags", ValueType::List(Scalar::String), true),
            property(28, "nums", ValueType::List(Scalar::I64), true),
            vector,
        ],
        vec![16],
    );
    person.ranges = vec![Range {
        property: 19,
        min: Some(Bound::Int("-9007199254740993".into())),
        max: Some(Bound::Int("9007199254740993".into())),
    }];
    person.checks = vec![Check {
        property: 16,
        pattern: "[a-z]".into(),
    }];
    schema_of(vec![
        person,
        graph_type(
            ITEM,
            "Item",
            vec![
                property(40, "no", scalar(Scalar::U64), false),
                property(41, "title", scalar(Scalar::String), true),
            ],
            vec![40],
        ),
        edge_type(
            KNOWS,
            "Knows",
            (PERSON, PERSON),
            vec![property(42, "since", scalar(Scalar::Date), false)],
        ),
        graph_type(
            NOTE,
            "Note",
            vec![property(43, "text", scalar(Scalar::String), true)],
            vec![],
        ),
        edge_type(OWNS, "Owns", (PERSON, ITEM), vec![]),
    ])
}

pub struct Loaded {
    pub batches: Vec<TypedBatch>,
    pub summary: Summary,
    pub violations: Vec<Violation>,
}

pub fn strict() -> InputOptions {
    InputOptions::default()
}

pub fn compatible() -> InputOptions {
    InputOptions {
        grammar: Grammar::Compatible,
        ..InputOptions::default()
    }
}

pub fn nulls() -> InputOptions {
    InputOptions {
        on_error: OnError::Null,
        ..compatible()
    }
}

pub fn load_with(schema: GraphSchema, text: &str, options: InputOptions) -> Loaded {
    let mut input = Input::new(Arc::new(schema), options).unwrap();
    let mut batches = vec![];
    for (at, line) in text.split('\n').enumerate() {
        if !line.trim().is_empty() {
            input.push_line(at as u64 + 1, line).unwrap();
            batches.extend(input.take_full());
        }
    }
    let (rest, summary) = input.finish().unwrap();
    batches.extend(rest);
    let violations = summary.findings.clone().listed().0;
    Loaded {
        batches,
        summary,
        violations,
    }
}

pub fn load(text: &str, options: InputOptions) -> Loaded {
    load_with(schema(), text, options)
}

impl Loaded {
    pub fn rows(&self, type_id: u64) -> RecordBatch {
        let batches = self.batches.iter().filter(|b| b.type_id == type_id);
        let batches: Vec<_> = batches.map(|b| b.batch.clone()).collect();
        assert!(
            !batches.is_empty(),
            "no rows of {type_id}: {:?}",
            self.violations
        );
        concat_batches(&batches[0].schema(), &batches).unwrap()
    }

    /// The column of the first properties' name, not the id.
    pub fn column(&self, type_id: u64, name: &str) -> ArrayRef {
        let rows = self.rows(type_id);
        let at = rows.schema().index_of(name).unwrap();
        Arc::clone(rows.column(at))
    }

    pub fn texts(&self, type_id: u64, name: &str) -> Vec<Option<String>> {
        let column = self.column(type_id, name);
        let texts = column.as_string::<i32>().iter();
        texts.map(|text| text.map(str::to_owned)).collect()
    }

    pub fn clean(self) -> Self {
        assert_eq!(self.violations, vec![]);
        self
    }

    /// `record rule message`, one a line.
    pub fn report(&self) -> String {
        let lines = self.violations.iter().map(|violation| {
            let Violation {
                record,
                rule,
                message,
                ..
            } = violation;
            format!("{record} {rule} {message}")
        });
        lines.collect::<Vec<_>>().join("\n")
    }
}

/// Every text gives exactly one violation, with this rule and these words, and no row.
pub fn refuse(options: &InputOptions, cases: &[(&str, &str, &str)]) {
    for (text, rule, words) in cases {
        let loaded = load(text, options.clone());
        let [violation] = loaded.violations.as_slice() else {
            panic!("{text}: {:?}", loaded.violations);
        };
        assert_eq!(violation.rule, *rule, "{text}: {violation}");
        assert!(violation.message.contains(words), "{text}: {violation}");
        let rows = loaded.batches.iter().map(|b| b.batch.num_rows());
        assert_eq!(rows.sum::<usize>(), 0, "{text}");
        assert_eq!(loaded.summary.findings.total(), 1);
    }
}
