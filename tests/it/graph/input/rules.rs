//! Rules over one row.

use std::sync::Arc;

use arrow::array::{
    Array, FixedSizeListArray, Float32Array, Float64Array, RecordBatch, StringArray, UInt64Array,
};
use arrow::datatypes::{DataType, Field};
use stratagraph::graph::input::{Findings, InputOptions, Rules, input_schema};
use stratagraph::graph::schema::{Bound, Range};
use stratagraph::graph::value::{Scalar, ValueType};

use super::support::*;

fn ranged(
    scalar_type: Scalar,
    min: Option<Bound>,
    max: Option<Bound>,
    values: &[&str],
) -> Vec<u64> {
    let mut part = graph_type(
        1,
        "Part",
        vec![property(16, "x", scalar(scalar_type), true)],
        vec![],
    );
    part.ranges = vec![Range {
        property: 16,
        min,
        max,
    }];
    let lines = values.iter();
    let lines: Vec<_> = lines
        .map(|x| format!("{{\"type\":\"Part\",\"data\":{{\"x\":{x}}}}}"))
        .collect();
    let loaded = load_with(schema_of(vec![part]), &lines.join("\n"), strict());
    assert!(loaded.violations.iter().all(|v| v.rule == "range"));
    loaded.violations.iter().map(|v| v.record).collect()
}

fn int(text: &str) -> Option<Bound> {
    Some(Bound::Int(text.to_owned()))
}

fn float(text: &str) -> Option<Bound> {
    Some(Bound::Float(text.to_owned()))
}

#[test]
fn ranges_compare_exactly() {
    let big = "9007199254740993";
    let near = ["9007199254740992", big, "9007199254740994", "null"];
    assert_eq!(ranged(Scalar::I64, int(big), int(big), &near), [1, 3]);
    assert_eq!(ranged(Scalar::U64, int(big), None, &near), [1]);
    let most = ["18446744073709551614", "18446744073709551615"];
    assert_eq!(
        ranged(Scalar::U64, int("18446744073709551615"), None, &most),
        [1]
    );
    let fractions = ["0", "1", "2", "3"];
    assert_eq!(
        ranged(Scalar::I32, float("0.5"), float("2.5"), &fractions),
        [1, 4]
    );
    assert_eq!(
        ranged(Scalar::U32, float("-0.5"), float("1.0"), &fractions),
        [3, 4]
    );
    let floats = ["-0.0", "0.1", "0.10000000000000002", "0.2"];
    assert_eq!(ranged(Scalar::F64, int("0"), float("0.1"), &floats), [3, 4]);
    // A bound is rounded as the values of the property are.
    assert_eq!(
        ranged(Scalar::F32, float("0.1"), float("0.1"), &["0.1", "0.11"]),
        [2]
    );
    let huge = ["9007199254740992", "9007199254740994", "1e300", "-1e300"];
    assert_eq!(ranged(Scalar::F64, int(big), None, &huge), [1, 4]);
    assert_eq!(ranged(Scalar::F64, None, int(big), &huge), [2, 3]);
}

#[test]
fn messages_name_the_bound_and_the_pattern() {
    let text = r#"{"type":"Person","data":{"name":"ann","i64":9007199254740994,"color":"redd"}}
{"type":"Person","data":{"name":"ANN","i64":-9007199254740994}}
{"type":"Person","data":{"i64":1}}
{"edge":"Knows","from":"a","to":"b","data":{"id":"e1"}}"#;
    let loaded = load(text, strict());
    assert_eq!(
        loaded.report(),
        "1 enum property color is \"redd\", not one of blue, red; did you mean \"red\"?\n\
         1 range property i64 is 9007199254740994, the greatest value is 9007199254740993\n\
         2 range property i64 is -9007199254740994, the least value is -9007199254740993\n\
         2 check property name is \"ANN\", which holds no match of the pattern \"[a-z]\"\n\
         3 required property name has no value; give one of type String\n\
         4 required property since has no value; give one of type Date"
    );
    assert_eq!(loaded.violations[5].id, "e1");
    assert_eq!(loaded.violations[0].id, "ann");
    assert!(loaded.batches.is_empty());
    let types: Vec<u64> = loaded.summary.types.into_iter().collect();
    assert_eq!(types, [PERSON, KNOWS]);
}

#[test]
fn checks_are_not_anchored_and_nulls_are_exempt() {
    let mut note = graph_type(
        1,
        "Note",
        vec![property(16, "text", scalar(Scalar::String), true)],
        vec![],
    );
    note.checks = vec![stratagraph::graph::schema::Check {
        property: 16,
        pattern: "b+".into(),
    }];
    let text = r#"{"type":"Note","data":{"text":"abbc"}}
{"type":"Note"}
{"type":"Note","data":{"text":"ac"}}"#;
    let loaded = load_with(schema_of(vec![note]), text, strict());
    let records: Vec<u64> = loaded.violations.iter().map(|v| v.record).collect();
    assert_eq!(records, [3]);
    assert_eq!(loaded.rows(1).num_rows(), 2);
}

#[test]
fn vectors_that_a_later_stage_fills_may_be_missing() {
    let mut schema = schema();
    let vector = schema.types[0]
        .properties
        .iter_mut()
        .find(|p| p.name == "v");
    vector.unwrap().nullable = false;
    let text = r#"{"type":"Person","data":{"name":"ann"}}"#;
    let loaded = load_with(schema.clone(), text, strict());
    assert_eq!(
        loaded.report(),
        "1 required property v has no value; give one of type Vector(3)"
    );
    let options = InputOptions {
        fill_embeddings: true,
        ..strict()
    };
    let loaded = load_with(schema.clone(), text, options.clone()).clean();
    assert_eq!(loaded.column(PERSON, "v").null_count(), 1);
    for vector in &mut schema.types[0].properties {
        vector.embed = None;
    }
    assert_eq!(load_with(schema, text, options).violations.len(), 1);
}

#[test]
fn rows_of_a_query_obey_the_same_rules() {
    let part = graph_type(
        1,
        "Part",
        vec![
            property(16, "x", scalar(Scalar::F64), false),
            property(17, "v", ValueType::Vector(1), true),
        ],
        vec![16],
    );
    let item = Arc::new(Field::new("item", DataType::Float32, false));
    let components = Arc::new(Float32Array::from(vec![1.0, f32::NAN, 1.0, 1.0]));
    let batch = RecordBatch::try_new(
        input_schema(&part),
        vec![
            Arc::new(UInt64Array::from(vec![1, 2, 3, 4])),
            Arc::new(StringArray::from(vec![None, None, Some("3"), Some("4.0")])),
            Arc::new(Float64Array::from(vec![f64::INFINITY, 2.0, 3.0, 4.0])),
            Arc::new(FixedSizeListArray::new(item, 1, components, None)),
        ],
    )
    .unwrap();
    let rules = Rules::new(&schema_of(vec![part.clone()]), false).unwrap();
    let mut findings = Findings::new(10);
    let rows = rules.apply(&part, &batch, &mut findings).unwrap();
    assert_eq!(rows.num_rows(), 1);
    let found = findings.listed().0;
    let found: Vec<_> = found.iter().map(|v| (v.record, v.rule)).collect();
    assert_eq!(found, [(1, "type"), (2, "type"), (4, "key")]);
    let vector = part.properties[1].value_type.arrow();
    let nullable = Arc::new(Field::new("item", DataType::Float32, true));
    let components = Arc::new(Float32Array::from(vec![Some(1.0), None, None, Some(1.0)]));
    let vectors = FixedSizeListArray::new(
        nullable,
        1,
        components,
        Some(vec![true, true, false, true].into()),
    );
    assert!(!vectors.data_type().equals_datatype(&vector));
    let mut columns = batch.columns().to_vec();
    columns[3] = Arc::new(vectors);
    let nulls = RecordBatch::try_from_iter_with_nullable(
        ["a", "b", "c", "d"]
            .into_iter()
            .zip(columns)
            .map(|(name, column)| (name, column, true)),
    )
    .unwrap();
    let mut findings = Findings::new(10);
    assert_eq!(
        rules
            .apply(&part, &nulls, &mut findings)
            .unwrap()
            .num_rows(),
        1
    );
    let found = findings.listed().0;
    let found: Vec<_> = found.iter().map(|v| (v.record, v.rule)).collect();
    assert_eq!(found, [(1, "type"), (2, "type"), (4, "key")]);
    let mut findings = Findings::new(10);
    let other = batch.project(&[0, 1, 3]).unwrap();
    let error = rules.apply(&part, &other, &mut findings).unwrap_err();
    assert_eq!(error.code(), "InvalidArgument");
}
