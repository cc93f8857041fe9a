//! Canonical ids.

use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, AsArray, BooleanArray, Date32Array, Float32Array, Float64Array, Int64Array,
    StringArray, TimestampMicrosecondArray, UInt64Array,
};
use proptest::prelude::*;
use stratagraph::graph::input::canonical_ids;
use stratagraph::graph::value::Scalar;
use stratagraph::limits;

use super::support::*;

fn ids(columns: &[ArrayRef]) -> Vec<Option<String>> {
    let ids = canonical_ids(columns, columns[0].len()).unwrap();
    ids.iter().map(|id| id.map(str::to_owned)).collect()
}

fn one(column: ArrayRef) -> String {
    ids(&[column])[0].clone().unwrap()
}

#[test]
fn scalars_have_one_spelling() {
    assert_eq!(one(Arc::new(StringArray::from(vec![" a\"é"]))), " a\"é");
    assert_eq!(
        one(Arc::new(Int64Array::from(vec![i64::MIN]))),
        i64::MIN.to_string()
    );
    assert_eq!(
        one(Arc::new(UInt64Array::from(vec![u64::MAX]))),
        u64::MAX.to_string()
    );
    assert_eq!(one(Arc::new(BooleanArray::from(vec![true]))), "true");
    assert_eq!(one(Arc::new(Date32Array::from(vec![-3]))), "-3");
    for (value, id) in [
        (0.0, "0"),
        (-0.0, "0"),
        (0.1, "0.1"),
        (7.0, "7"),
        (-1.5, "-1.5"),
        (1e21, "1000000000000000000000"),
    ] {
        assert_eq!(one(Arc::new(Float64Array::from(vec![value]))), id);
        assert_eq!(one(Arc::new(Float32Array::from(vec![value as f32]))), id);
    }
    for (micros, id) in [
        (0, "0"),
        (1_500_000, "1500"),
        (1_500, "1.5"),
        (-1, "-0.001"),
        (-1_500, "-1.5"),
        (-2_000, "-2"),
        (i64::MIN, "-9223372036854775.808"),
    ] {
        let moment = TimestampMicrosecondArray::from(vec![micros]).with_timezone("UTC");
        assert_eq!(one(Arc::new(moment)), id);
    }
}

#[test]
fn composite_keys_are_json_arrays_in_the_order_of_property_ids() {
    let types = vec![graph_type(
        1,
        "Part",
        vec![
            property(17, "name", scalar(Scalar::String), false),
            property(16, "no", scalar(Scalar::I64), false),
        ],
        vec![17, 16],
    )];
    let text = r#"{"type":"Part","data":{"name":"a\"b","no":-7}}
{"type":"Part","data":{"name":"x","no":1,"id":"[\"1\",\"x\"]"}}
{"type":"Part","data":{"name":"x","no":2,"id":"[\"x\",\"2\"]"}}
{"type":"Part","data":{"name":"x","no":null}}"#;
    let loaded = load_with(schema_of(types), text, strict());
    let ids = loaded.texts(1, "id");
    let ids: Vec<_> = ids.iter().flatten().collect();
    assert_eq!(ids, [r#"["-7","a\"b"]"#, r#"["1","x"]"#]);
    assert_eq!(
        loaded.report(),
        "3 key the given id \"[\\\"x\\\",\\\"2\\\"]\" is not the id \"[\\\"2\\\",\\\"x\\\"]\" that the key makes; leave the id out\n\
         4 required property no has no value; give one of type I64"
    );
}

#[test]
fn a_property_may_be_called_id() {
    let key = property(16, "id", scalar(Scalar::U64), false);
    let types = vec![graph_type(1, "Thing", vec![key], vec![16])];
    let text = r#"{"type":"Thing","data":{"id":7}}"#;
    let loaded = load_with(schema_of(types), text, strict()).clean();
    let rows = loaded.rows(1);
    assert_eq!(rows.column(1).as_string::<i32>().value(0), "7");
    let values = rows
        .column(2)
        .as_primitive::<arrow::datatypes::UInt64Type>();
    assert_eq!(values.value(0), 7);
}

#[test]
fn keys_end_at_their_limit() {
    for (more, accepted) in [(-1, true), (0, true), (1, false)] {
        let long = "k".repeat((limits::KEY_BYTES as i64 + more) as usize);
        let lines = [
            format!(r#"{{"type":"Person","data":{{"name":"{long}"}}}}"#),
            format!(r#"{{"type":"Note","data":{{"id":"{long}"}}}}"#),
            format!(r#"{{"edge":"Owns","from":"{long}","to":"7"}}"#),
            format!(r#"{{"edge":"Owns","from":"a","to":"{long}"}}"#),
        ];
        let loaded = load(&lines.join("\n"), strict());
        let rules: Vec<_> = loaded.violations.iter().map(|v| v.rule).collect();
        let expected: &[&str] = if accepted { &[] } else { &["key"; 4] };
        assert_eq!(rules, expected);
    }
}

proptest! {
    #[test]
    fn ids_are_equal_exactly_where_the_keys_are(
        rows in prop::collection::vec((any::<i64>(), "[a\",\\\\\\[\\]é]{0,3}", any::<f64>(), any::<i64>()), 1..20)
    ) {
        let rows: Vec<_> = rows.into_iter().map(|(a, b, c, d)| (a % 3, b, if c.is_finite() { c } else { 0.0 }, d)).collect();
        let columns: Vec<ArrayRef> = vec![
            Arc::new(Int64Array::from_iter_values(rows.iter().map(|r| r.0))),
            Arc::new(StringArray::from_iter_values(rows.iter().map(|r| &r.1))),
            Arc::new(Float64Array::from_iter_values(rows.iter().map(|r| r.2))),
            Arc::new(TimestampMicrosecondArray::from_iter_values(rows.iter().map(|r| r.3))),
        ];
        let ids = ids(&columns);
        for (a, left) in rows.iter().zip(&ids) {
            for (b, right) in rows.iter().zip(&ids) {
                prop_assert_eq!(a == b, left == right, "{:?} {:?}", a, b);
            }
            // The parts read back as what they were made of.
            let parts: Vec<String> = serde_json::from_str(left.as_deref().unwrap()).unwrap();
            prop_assert_eq!(parts[0].parse::<i64>().unwrap(), a.0);
            prop_assert_eq!(&parts[1], &a.1);
            prop_assert_eq!(parts[2].parse::<f64>().unwrap(), a.2);
        }
    }
}
