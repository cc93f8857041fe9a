//! Damaged lines: never a panic, and what strict reading accepts is what serde_json reads.

use std::collections::HashSet;

use arrow::array::{Array, AsArray};
use arrow::datatypes::{Float64Type, Int64Type, UInt64Type};
use serde_json::Value;

use super::super::mutate::fuzz;
use super::support::*;

const SEEDS: [&str; 6] = [
    r#"{"type":"Person","data":{"name":"ann","b":true,"i32":-7,"i64":9007199254740993,"u32":7,"u64":18446744073709551615}}"#,
    r#"{"type":"Person","data":{"name":"b\u006fb \ud83d\ude00","f32":1.5e3,"f64":-0.25,"day":"2024-02-29","at":"2024-05-01T12:00:00.5Z"}}"#,
    r#"{"type":"Person","data":{"name":"cy","color":"red","tags":["a","b"],"nums":[1,2,3],"v":[1,2,3],"id":"cy"}}"#,
    r#"{"edge":"Knows","from":"ann","to":"bob","data":{"since":"2020-01-01","id":null}}"#,
    r#"{"edge":"owns","from":"ann","to":"7"}"#,
    r#"{"type":"Note","data":{"text":"a \"quoted\" text\n"}}"#,
];

const TOKENS: [&str; 22] = [
    "{",
    "}",
    "[",
    "]",
    ",",
    ":",
    "\"",
    "\\",
    "\\u12",
    "null",
    "true",
    "1e400",
    "-",
    "0",
    "\"id\"",
    "\"type\":\"Note\",",
    "\"edge\"",
    "\"data\":{",
    "\n",
    "//",
    "\u{0}",
    "{\"type\":\"Note\"}",
];

fn check_person(line: &Value, loaded: &Loaded) {
    let data = &line["data"];
    assert_eq!(
        loaded.texts(PERSON, "name")[0].as_deref(),
        data["name"].as_str()
    );
    assert_eq!(
        loaded.texts(PERSON, "id")[0].as_deref(),
        data["name"].as_str()
    );
    let column = |name| loaded.column(PERSON, name);
    let i64s = column("i64");
    let i64s = i64s.as_primitive::<Int64Type>();
    // To serde_json, -0 is a float.
    let zero = |name: &str| (data[name].as_f64() == Some(0.0)).then_some(0);
    let read = data["i64"].as_i64().or(zero("i64"));
    assert_eq!(i64s.iter().next().flatten(), read);
    let u64s = column("u64");
    let u64s = u64s.as_primitive::<UInt64Type>();
    let read = data["u64"].as_u64().or(zero("u64").map(|zero| zero as u64));
    assert_eq!(u64s.iter().next().flatten(), read);
    let f64s = column("f64");
    let f64s = f64s.as_primitive::<Float64Type>().iter().next().flatten();
    match (f64s, data["f64"].as_f64()) {
        // serde_json may round to a neighbour.
        (Some(ours), Some(theirs)) => {
            assert!(
                (ours - theirs).abs() <= theirs.abs() * 1e-15,
                "{ours} {theirs}"
            );
        }
        (ours, theirs) => assert_eq!(ours, theirs),
    }
    let tags = column("tags");
    assert_eq!(tags.is_null(0), data["tags"].is_null());
    if let Some(read) = data["tags"].as_array() {
        let tags = tags.as_list::<i32>().value(0);
        let tags: Vec<_> = tags.as_string::<i32>().iter().flatten().collect();
        let read: Vec<_> = read.iter().map(|tag| tag.as_str().unwrap()).collect();
        assert_eq!(tags, read);
    }
}

#[test]
fn damaged_lines_are_rows_or_violations() {
    let (mut accepted, mut rules) = (0, HashSet::new());
    fuzz(&SEEDS, &TOKENS, |text| {
        // Lines end at LF, so a text is one line at a time.
        for line in text.split('\n') {
            let loaded = load(line, strict());
            let rows: usize = loaded.batches.iter().map(|b| b.batch.num_rows()).sum();
            let records = loaded.summary.records as usize;
            assert_eq!(
                rows > 0,
                records > 0 && loaded.violations.is_empty(),
                "{line}"
            );
            rules.extend(loaded.violations.iter().map(|v| v.rule));
            if rows == 0 {
                continue;
            }
            accepted += 1;
            let value: Value = serde_json::from_str(line).unwrap();
            let compatible = load(line, compatible());
            assert_eq!(compatible.violations, vec![], "{line}");
            assert_eq!(compatible.batches.len(), 1);
            assert_eq!(
                compatible.batches[0].batch, loaded.batches[0].batch,
                "{line}"
            );
            match value["type"].as_str() {
                Some("Person") => check_person(&value, &loaded),
                Some(name) => {
                    assert_eq!(name, "Note");
                    let text = loaded.texts(NOTE, "text");
                    assert_eq!(text[0].as_deref(), value["data"]["text"].as_str());
                }
                None => {
                    let ends = if loaded.batches[0].type_id == KNOWS {
                        KNOWS
                    } else {
                        OWNS
                    };
                    assert_eq!(
                        loaded.texts(ends, "src")[0].as_deref(),
                        value["from"].as_str()
                    );
                    assert_eq!(
                        loaded.texts(ends, "dst")[0].as_deref(),
                        value["to"].as_str()
                    );
                }
            }
        }
        let loaded = load(text, nulls());
        let rows: usize = loaded.batches.iter().map(|b| b.batch.num_rows()).sum();
        let broken: HashSet<u64> = loaded.violations.iter().map(|v| v.record).collect();
        assert_eq!(
            rows + broken.len(),
            loaded.summary.records as usize,
            "{text}"
        );
    });
    assert!(accepted > 300, "{accepted}");
    for rule in ["syntax", "type", "enum", "check", "required"] {
        assert!(rules.contains(rule), "{rule}");
    }
}

#[test]
fn text_that_is_no_json_is_refused_as_serde_json_does() {
    fuzz(&SEEDS, &TOKENS, |text| {
        // Unknown members keep the record good, so that only its syntax counts.
        let line = format!("{{\"type\":\"Note\",\"x\":{}}}", text.replace('\n', " "));
        let read = serde_json::from_str::<Value>(&line);
        // A number beyond every float is one of JSON; this reader looks at it when it has a type.
        if read
            .as_ref()
            .is_err_and(|e| e.to_string().contains("number out of range"))
        {
            return;
        }
        let loaded = load(&line, compatible());
        if read.is_ok() != loaded.violations.is_empty() {
            // A mutation that closes the record early may name a type or an id of its own.
            let rule = loaded.violations.first().map(|v| v.rule);
            let one = serde_json::Deserializer::from_str(&line).into_iter::<Value>();
            let all = one.collect::<Result<Vec<_>, _>>();
            assert!(
                all.is_ok() && rule != Some("syntax")
                    || rule.is_some()
                        && all.is_ok_and(|v| v.len() > 1
                            || v[0]["type"] != "Note"
                            || !v[0]["data"].is_null()
                            || v[0].get("id").is_some()),
                "{line}: {read:?} {:?}",
                loaded.violations
            );
        }
    });
}
