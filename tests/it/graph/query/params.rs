//! Values of parameters.

use stratagraph::graph::query::{Count, Param, params};
use stratagraph::graph::value::{Scalar, Value, ValueType};

use super::fixture::{findings, whole};

fn param(value_type: ValueType, nullable: bool) -> Vec<Param> {
    let name = "x".to_owned();
    vec![Param {
        name,
        value_type,
        nullable,
    }]
}

/// The value of `{"x": json}` for a parameter of this type, or the code of what is wrong.
fn given(value_type: ValueType, json: &str) -> Result<Value, &'static str> {
    let text = format!("{{\"x\": {json}}}");
    match params::from_json(&text, &param(value_type, false)) {
        Ok(mut values) => Ok(values.remove(0)),
        Err(error) => {
            let all = findings(error);
            assert_eq!(all.len(), 1, "{all:?}");
            assert!(!all[0].fix.is_empty());
            Err(all[0].code)
        }
    }
}

fn scalar(scalar: Scalar, json: &str) -> Result<Value, &'static str> {
    given(ValueType::Scalar(scalar), json)
}

#[test]
fn integers_are_exact_and_in_range() {
    for (kind, least, most) in [
        (Scalar::I32, i128::from(i32::MIN), i128::from(i32::MAX)),
        (Scalar::I64, i128::from(i64::MIN), i128::from(i64::MAX)),
        (Scalar::U32, 0, i128::from(u32::MAX)),
        (Scalar::U64, 0, i128::from(u64::MAX)),
    ] {
        assert_eq!(scalar(kind, &least.to_string()), Ok(Value::Int(least)));
        assert_eq!(scalar(kind, &most.to_string()), Ok(Value::Int(most)));
        assert_eq!(
            scalar(kind, &(least - 1).to_string()),
            Err("Q104"),
            "{kind:?}"
        );
        assert_eq!(
            scalar(kind, &(most + 1).to_string()),
            Err("Q104"),
            "{kind:?}"
        );
        for json in ["1.0", "1e3", "\"1\"", "true", "[1]", "-0.5"] {
            assert_eq!(scalar(kind, json), Err("Q104"), "{kind:?} {json}");
        }
    }
    assert_eq!(
        scalar(Scalar::I64, "9007199254740993"),
        Ok(Value::Int(9_007_199_254_740_993))
    );
}

#[test]
fn floats_are_finite_and_as_wide_as_declared() {
    assert_eq!(scalar(Scalar::F64, "0.1"), Ok(Value::Float(0.1)));
    assert_eq!(scalar(Scalar::F64, "3"), Ok(Value::Float(3.0)));
    assert_eq!(
        scalar(Scalar::F32, "0.1"),
        Ok(Value::Float(f64::from(0.1_f32)))
    );
    assert_eq!(scalar(Scalar::F32, "1e39"), Err("Q104"));
    assert_eq!(scalar(Scalar::F64, "1e999"), Err("Q106"));
    assert_eq!(scalar(Scalar::F64, "\"0.1\""), Err("Q104"));
    let infinite = vec![("x".to_owned(), Value::Float(f64::INFINITY))];
    let error = params::check(infinite, &param(ValueType::Scalar(Scalar::F64), false)).unwrap_err();
    assert_eq!(findings(error)[0].code, "Q104");
}

#[test]
fn days_and_moments_are_texts_of_their_form() {
    assert_eq!(scalar(Scalar::Date, "\"1970-01-31\""), Ok(Value::Date(30)));
    for json in [
        "\"1970-1-31\"",
        "\"1970-02-30\"",
        "\"1970-01-31T00:00:00Z\"",
        "30",
        "\"+970-01-31\"",
    ] {
        assert_eq!(scalar(Scalar::Date, json), Err("Q104"), "{json}");
    }
    assert_eq!(
        scalar(Scalar::DateTime, "\"1970-01-01T00:00:01.5+00:00\""),
        Ok(Value::DateTime(1_500_000))
    );
    assert_eq!(
        scalar(Scalar::DateTime, "\"1970-01-01T00:00:00.000001Z\""),
        Ok(Value::DateTime(1))
    );
    for json in [
        "\"1970-01-01\"",
        "\"1970-01-01T00:00:00\"",
        "\"1970-01-01T00:00:00.0000001Z\"",
        "0",
    ] {
        assert_eq!(scalar(Scalar::DateTime, json), Err("Q104"), "{json}");
    }
}

#[test]
fn texts_and_truth_values_are_themselves() {
    assert_eq!(
        scalar(Scalar::String, "\"a\\u00e9\""),
        Ok(Value::String("a\u{e9}".into()))
    );
    assert_eq!(scalar(Scalar::Bool, "false"), Ok(Value::Bool(false)));
    assert_eq!(scalar(Scalar::String, "1"), Err("Q104"));
    assert_eq!(scalar(Scalar::Bool, "0"), Err("Q104"));
}

#[test]
fn lists_and_vectors_check_their_items() {
    let days = ValueType::List(Scalar::Date);
    assert_eq!(
        given(days.clone(), "[\"1970-01-02\"]"),
        Ok(Value::List(vec![Value::Date(1)]))
    );
    assert_eq!(given(days.clone(), "[]"), Ok(Value::List(Vec::new())));
    assert_eq!(given(days.clone(), "[null]"), Err("Q104"));
    assert_eq!(given(days.clone(), "[1]"), Err("Q104"));
    assert_eq!(given(days, "\"1970-01-02\""), Err("Q104"));
    let vector = ValueType::Vector(2);
    let held = Value::List(vec![Value::Float(1.0), Value::Float(f64::from(0.1_f32))]);
    assert_eq!(given(vector.clone(), "[1, 0.1]"), Ok(held));
    assert_eq!(given(vector.clone(), "[1]"), Err("Q104"));
    assert_eq!(given(vector.clone(), "[1, 1e39]"), Err("Q104"));
    assert_eq!(given(vector, "[[1], 2]"), Err("Q106"));
}

#[test]
fn null_and_nothing_need_a_nullable_parameter() {
    let text = ValueType::Scalar(Scalar::String);
    for json in ["", " \n", "{}", "{\"x\": null}"] {
        assert_eq!(
            params::from_json(json, &param(text.clone(), true)).unwrap(),
            [Value::Null]
        );
    }
    let code = |json: &str| {
        findings(params::from_json(json, &param(text.clone(), false)).unwrap_err())[0].code
    };
    assert_eq!(code(""), "Q101");
    assert_eq!(code("{}"), "Q101");
    assert_eq!(code("{\"x\": null}"), "Q103");
}

#[test]
fn names_are_known_and_given_once() {
    let query = whole("query t($doi: String, $year: I32?) { match { $p: Paper } return { $p } }");
    let values = query.bind_json("{\"year\": 3, \"doi\": \"a\"}").unwrap();
    assert_eq!(values, [Value::String("a".into()), Value::Int(3)]);
    let wrong = |json: &str| findings(query.bind_json(json).unwrap_err());
    let all = wrong("{\"dio\": \"a\"}");
    let codes: Vec<_> = all.iter().map(|f| f.code).collect();
    assert_eq!(codes, ["Q102", "Q101"]);
    assert_eq!(all[0].fix, "write `doi`");
    assert_eq!(wrong("{\"doi\": \"a\", \"doi\": \"b\"}")[0].code, "Q106");
    let twice = vec![
        ("doi".to_owned(), Value::Null),
        ("doi".to_owned(), Value::Null),
    ];
    assert_eq!(findings(query.bind(twice).unwrap_err())[0].code, "Q105");
}

#[test]
fn parameters_are_one_object_of_values() {
    let query = whole("query t($x: I32?) { match { $p: Paper } return { $p } }");
    for json in [
        "[]",
        "1",
        "\"secret\"",
        "{\"x\": {\"secret\": 1}}",
        "{\"x\": 1",
        "{\"x\": 1} 2",
        "{x: 1}",
        "{\"x\": NaN}",
    ] {
        let error = query.bind_json(json).unwrap_err();
        assert!(!error.to_string().contains("secret"), "{error}");
        assert_eq!(findings(error)[0].code, "Q106", "{json}");
    }
    let deep = format!("{{\"x\": {}", "[".repeat(1_000_000));
    assert_eq!(
        findings(query.bind_json(&deep).unwrap_err())[0].code,
        "Q106"
    );
    // Where it is wrong is a place of the JSON text.
    let found = findings(query.bind_json("{\n \"x\": }").unwrap_err()).remove(0);
    assert_eq!((found.line, found.column), (2, 7));
}

#[test]
fn refusals_do_not_show_values() {
    let query = whole("query t($x: I32, $d: Date, $e: F64) { match { $p: Paper } return { $p } }");
    let error = query
        .bind_json("{\"x\": \"secret\", \"d\": \"secret\", \"e\": \"secret\"}")
        .unwrap_err();
    assert_eq!(error.code(), "QueryInvalid");
    assert!(!error.to_string().contains("secret"), "{error}");
}

#[test]
fn numbers_of_rows_are_not_negative() {
    let query =
        whole("query t($n: I64, $m: U64) { match { $p: Paper } return { $p } skip $m limit $n }");
    let values = query
        .bind_json("{\"n\": 3, \"m\": 18446744073709551615}")
        .unwrap();
    assert_eq!(query.limit.as_ref().unwrap().rows(&values), Some(3));
    assert_eq!(query.skip.as_ref().unwrap().rows(&values), Some(u64::MAX));
    assert_eq!(Count::Literal(7).rows(&[]), Some(7));
    assert_eq!(Count::Param(0).rows(&[]), None);
    let error = query.bind_json("{\"n\": -1, \"m\": 0}").unwrap_err();
    assert_eq!(findings(error)[0].code, "Q104");
}

#[test]
fn typed_values_need_no_text() {
    let query =
        whole("query t($d: Date, $m: DateTime, $f: F64) { match { $p: Paper } return { $p } }");
    let values = vec![
        ("f".to_owned(), Value::Int(2)),
        ("m".to_owned(), Value::DateTime(5)),
        ("d".to_owned(), Value::Date(9)),
    ];
    assert_eq!(
        query.bind(values).unwrap(),
        [Value::Date(9), Value::DateTime(5), Value::Float(2.0)]
    );
}
