//! The two grammars and what they refuse.

use arrow::array::{Array, AsArray};
use arrow::datatypes::UInt64Type;
use stratagraph::graph::input::{Grammar, Input, InputOptions, OnError};
use stratagraph::limits;

use super::support::*;

#[test]
fn both_shapes_make_rows_with_record_numbers_and_ends() {
    let text = r#"{"type":"Person","data":{"name":"ann"}}

{"data":{"since":"2020-01-02"},"to":"bob","from":"ann","edge":"knows"}
{"type": "Note"}
{"type":"Person","data":{"name":"b\u006fb","id":"bob"}}"#;
    for options in [strict(), compatible()] {
        let grammar = options.grammar;
        let loaded = load(text, options).clean();
        let persons = loaded.rows(PERSON);
        let records = persons.column(0).as_primitive::<UInt64Type>().values();
        let last = if grammar == Grammar::Strict { 5 } else { 4 };
        assert_eq!(records.to_vec(), [1, last]);
        let ids = persons.column(1).as_string::<i32>();
        assert_eq!((ids.value(0), ids.value(1)), ("ann", "bob"));
        assert_eq!(loaded.texts(KNOWS, "src"), [Some("ann".to_owned())]);
        assert_eq!(loaded.texts(KNOWS, "dst"), [Some("bob".to_owned())]);
        assert_eq!(loaded.texts(KNOWS, "id"), [None]);
        assert_eq!(loaded.texts(NOTE, "id"), [None]);
        assert_eq!((loaded.summary.nodes, loaded.summary.edges), (3, 1));
        assert_eq!(loaded.summary.records, 4);
    }
}

/// Text, rule, words of the message.
const WRONG: &[(&str, &str, &str)] = &[
    ("[1]", "syntax", "found an array; a record is"),
    ("7", "syntax", "found the number 7"),
    (r#"{"data":{}}"#, "syntax", "neither"),
    (r#"{"type":"Person","edge":"Knows"}"#, "syntax", "both"),
    (
        r#"{"type":"Note","dta":{}}"#,
        "syntax",
        r#"unknown member "dta"; did you mean "data"?"#,
    ),
    (
        r#"{"type":"Note","_rowid":1}"#,
        "syntax",
        r#"member "_rowid" is reserved"#,
    ),
    (r#"{"type":"Note","from":"a"}"#, "syntax", "only edges"),
    (
        r#"{"type":1}"#,
        "syntax",
        r#"member "type": found the number 1, expected a string"#,
    ),
    (
        r#"{"type":"Note","data":[]}"#,
        "syntax",
        r#"member "data": found an array, expected an object"#,
    ),
    (
        r#"{"type":"Note","data":null}"#,
        "syntax",
        "found null, expected an object",
    ),
    (
        r#"{"edge":"Owns","from":"a"}"#,
        "syntax",
        r#"member "to" is missing"#,
    ),
    (
        r#"{"edge":"Owns","from":"a","to":7}"#,
        "syntax",
        r#"member "to": found the number 7"#,
    ),
    (
        r#"{"type":"Persn"}"#,
        "type",
        r#"unknown node type "Persn"; did you mean "Person"?"#,
    ),
    (r#"{"type":"person"}"#, "type", "unknown node type"),
    (
        r#"{"edge":"Know","from":"a","to":"b"}"#,
        "type",
        r#"unknown edge type "Know"; did you mean "Knows"?"#,
    ),
    (
        r#"{"edge":"Owns","from":"a","to":"7","data":{"src":"a"}}"#,
        "type",
        r#"member "src" of data is reserved"#,
    ),
    (
        r#"{"type":"Note","data":{"txt":"a"}}"#,
        "type",
        r#"type Note has no property "txt"; did you mean "text"?"#,
    ),
    (
        r#"{"type":"Note","data":{"_row":"a"}}"#,
        "type",
        r#"member "_row" of data is reserved"#,
    ),
    (
        r#"{"type":"Note","data":{"id":7}}"#,
        "type",
        "expected a string or null",
    ),
    (
        r#"{"type":"Note","data":{"id":""}}"#,
        "key",
        "the id is empty",
    ),
    (
        r#"{"type":"Person","data":{"name":"ann","id":"bob"}}"#,
        "key",
        r#"the given id "bob" is not the id "ann""#,
    ),
    (
        r#"{"type":"Note","type":"Note"}"#,
        "syntax",
        r#"column 17: duplicate member "type""#,
    ),
    (
        r#"{"type":"Note","data":{"text":"a","t\u0065xt":"b"}}"#,
        "syntax",
        r#"duplicate member "text""#,
    ),
    (
        r#"{"type":"Note","data":{"text":[{"a":1,"b":[{"c":1,"c":2}]}]}}"#,
        "syntax",
        r#"duplicate member "c""#,
    ),
    (
        r#"{"type":"Note"} {"type":"Note"}"#,
        "syntax",
        "column 17: '{' follows the record",
    ),
    (r#"{"type":"Note"},"#, "syntax", "',' follows the record"),
    (
        r#"{"type":"Note""#,
        "syntax",
        "found the end, expected ',' or '}'",
    ),
    (r#"{"type":"Note}"#, "syntax", "a string is not closed"),
    (
        r#"{"type":"Note","data":{"text":"\x"}}"#,
        "syntax",
        "escape",
    ),
    (
        r#"{"type":"Note","data":{"text":"\ud800"}}"#,
        "syntax",
        "escape",
    ),
    ("{\"type\":\"No\tte\"}", "syntax", "control character"),
    (
        r#"{"type":"Person","data":{"i32":01}}"#,
        "syntax",
        "begin with 0",
    ),
    (
        r#"{"type":"Person","data":{"i32":1.}}"#,
        "syntax",
        "expected a digit",
    ),
    (
        r#"{"type":"Person","data":{"i32":NaN}}"#,
        "syntax",
        "expected a JSON value",
    ),
    (
        r#"{"type":"Person","data":{"b":tru}}"#,
        "syntax",
        "expected a JSON value",
    ),
    (r#"{type:"Note"}"#, "syntax", "name of a member in quotes"),
    (r#"{"type" "Note"}"#, "syntax", "expected ':'"),
];

#[test]
fn the_strict_grammar_says_what_is_wrong() {
    refuse(&strict(), WRONG);
}

#[test]
fn duplicates_are_found_among_many_members_too() {
    let mut members: Vec<String> = (0..40).map(|at| format!("\"m{at}\":{at}")).collect();
    members.push("\"m7\":1".to_owned());
    let text = format!(r#"{{"type":"Note","data":{{{}}}}}"#, members.join(","));
    let loaded = load(&text, strict());
    assert!(loaded.report().contains("duplicate member \"m7\""));
}

#[test]
fn the_compatible_grammar_takes_sequences_of_objects() {
    let text = r#"{"type":"Note","data":{"text":"a"}} {"type":"Note","data":{"text":"b"}}
  {"type": "Note",
   "x": [{"y": 1}, {"z": "}{"}],
   "data": {"text": "c", "text": "d", "other": [1, null]}
  }{"type":"Note","edge":"Owns","data":null}
{"edge":"OWNS","from":"ann","to":7}
{"type":3,"edge":"Owns","from":"ann","to":"7"}"#;
    let loaded = load(text, compatible()).clean();
    let texts = loaded.texts(NOTE, "text");
    let texts: Vec<_> = texts.iter().map(Option::as_deref).collect();
    assert_eq!(texts, [Some("a"), Some("b"), Some("d"), None]);
    let rows = loaded.rows(NOTE);
    let records = rows.column(0).as_primitive::<UInt64Type>();
    assert_eq!(records.values().to_vec(), [1, 2, 3, 4]);
    let ends = loaded.texts(OWNS, "dst");
    assert_eq!(ends, [Some("7".to_owned()), Some("7".to_owned())]);
}

#[test]
fn the_compatible_grammar_finds_its_way_back() {
    let text = r#"nonsense
{"type":"Note","data":{"text":"a"}}
{"type":"Note","data":{"text":"b"}
{"type":"Note","data":{"text":"c"}}
{"type":"Note","data":{"text":"d
}}
{"type":"Note","data":{"text":"e"}} tail
still tail
{"type":"Note","data":{"text":"f"]}
{"type":"Note","data":{"text":"g"}}
{"type":"Note","#;
    let loaded = load(text, compatible());
    let texts = loaded.texts(NOTE, "text");
    let texts: Vec<_> = texts.iter().flatten().map(String::as_str).collect();
    assert_eq!(texts, ["a", "c", "e", "g"]);
    assert_eq!(
        loaded.report(),
        "1 syntax line 1: column 1: expected '{': an input is a sequence of objects\n\
         3 syntax line 3: the record that begins here is not closed before the next value\n\
         5 syntax line 5: a string is not closed on its line; expected '\"'\n\
         7 syntax line 7: column 37: expected '{': an input is a sequence of objects\n\
         8 syntax line 9: column 34: found ']', expected ',' or '}'\n\
         10 syntax line 11: the record that begins here does not end in its file; close its brackets"
    );
}

#[test]
fn the_compatible_grammar_refuses_values_of_wrong_types() {
    let wrong = r#"{"type":"Person","data":{"name":"ann","i32":"7"}}"#;
    refuse(
        &compatible(),
        &[
            (
                wrong,
                "type",
                "line 1: property i32: found the string \"7\"",
            ),
            (
                r#"{"type":"Note","data":{"id":7}}"#,
                "type",
                "expected a string or null",
            ),
            (
                r#"{"type":"Note","data":7}"#,
                "syntax",
                "expected an object",
            ),
            (
                r#"{"edge":"Knows","from":1,"to":"b"}"#,
                "syntax",
                "member \"from\": found the number 1, expected a string",
            ),
            (
                r#"{"edge":"Owns","from":"a","to":1.5}"#,
                "syntax",
                "expected an id: a string or an integer",
            ),
            (r#"{"x":1}"#, "syntax", "neither"),
        ],
    );
    let loaded = load(wrong, nulls()).clean();
    assert_eq!(loaded.column(PERSON, "i32").null_count(), 1);
    let lists = r#"{"type":"Person","data":{"name":"ann","tags":["a",null],"v":[1,2],"id":7}}"#;
    let loaded = load(lists, nulls()).clean();
    assert_eq!(loaded.column(PERSON, "tags").null_count(), 1);
    assert_eq!(loaded.column(PERSON, "v").null_count(), 1);
    refuse(
        &nulls(),
        &[
            (
                r#"{"type":"Person","data":{"name":7}}"#,
                "type",
                "property name: found the number 7, expected a string",
            ),
            (
                r#"{"type":"Person","data":{"name":"ann","color":"green"}}"#,
                "enum",
                "green",
            ),
        ],
    );
}

#[test]
fn options_that_exclude_each_other_are_refused() {
    let options = InputOptions {
        on_error: OnError::Null,
        ..strict()
    };
    let error = Input::new(schema().into(), options).unwrap_err();
    assert_eq!(error.code(), "InvalidArgument");
    let options = InputOptions {
        line_bytes: limits::LINE_BYTES_MOST + 1,
        ..strict()
    };
    let error = Input::new(schema().into(), options).unwrap_err();
    assert_eq!(error.code(), "ResourceLimitExceeded");
}

#[test]
fn records_nest_up_to_the_limit() {
    for (depth, accepted) in [(-1, true), (0, true), (1, false)] {
        // The record and its data are two of the levels.
        let arrays = (limits::RECORD_DEPTH as i64 + depth - 2) as usize;
        let (open, close) = ("[".repeat(arrays), "]".repeat(arrays));
        let text = format!(r#"{{"type":"Note","data":{{"other":{open}{close}}}}}"#);
        let loaded = load(&text, compatible());
        assert_eq!(loaded.violations.is_empty(), accepted, "{depth}");
        if !accepted {
            assert!(loaded.report().contains("more than 64 deep"));
        }
    }
    let bomb = "{\"a\":".repeat(1_000_000);
    assert_eq!(load(&bomb, strict()).summary.findings.total(), 1);
    assert_eq!(load(&bomb, compatible()).summary.findings.total(), 1);
}

#[test]
fn objects_have_members_up_to_the_limit() {
    for (more, accepted) in [(-1, true), (0, true), (1, false)] {
        let count = limits::RECORD_MEMBERS as i64 + more;
        let members: Vec<String> = (0..count).map(|at| format!("\"{at}\":0")).collect();
        let text = format!(r#"{{"type":"Note","data":{{{}}}}}"#, members.join(","));
        let loaded = load(&text, compatible());
        assert_eq!(loaded.violations.is_empty(), accepted, "{more}");
    }
}

#[test]
fn violations_are_listed_in_record_order_up_to_the_limit() {
    let mut text = String::new();
    for at in 0..30_000 {
        text.push_str(&match at % 3 {
            0 => format!("{{\"type\":\"Person\",\"data\":{{\"name\":\"{at}\"}}}}\n"),
            1 => "{}\n".to_owned(),
            _ => format!("{{\"type\":\"Note\",\"data\":{{\"text\":\"{at}\"}}}}\n"),
        });
    }
    let loaded = load(&text, strict());
    assert_eq!(loaded.summary.findings.total(), 20_000);
    let records: Vec<u64> = loaded.violations.iter().map(|v| v.record).collect();
    let expected: Vec<u64> = (1..).filter(|at| at % 3 != 0).take(100).collect();
    assert_eq!(records, expected);
    assert_eq!(loaded.rows(NOTE).num_rows(), 10_000);
    let error = loaded.summary.findings.into_result().unwrap_err();
    let text = error.to_string();
    assert!(text.starts_with("[RecordsInvalid] 20000 violations; nothing was changed:\nrecord 1, Person \"0\": check: property name is \"0\""), "{text}");
}
