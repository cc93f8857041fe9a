//! Texts to syntax trees, and what a text is refused for.

use stratagraph::graph::query::ast::{Body, Clause, ExprKind, Verb};
use stratagraph::graph::query::{compile, parse};
use stratagraph::graph::value::{Scalar, Value, ValueType};

use super::fixture::{findings, good, refused, schema, whole, wrong};

fn read(body: &str) -> stratagraph::graph::query::ast::Read {
    let text = format!("query t() {{ {body} }}");
    let decl = parse(&text)
        .unwrap_or_else(|error| panic!("{text}\n{error}"))
        .remove(0);
    match decl.body {
        Body::Read(read) => read,
        Body::Mutation(verb) => panic!("{verb:?}"),
    }
}

/// The literal of `return { literal as x }`.
fn literal(text: &str) -> Value {
    let read = read(&format!("match {{ $p: Paper }} return {{ {text} as x }}"));
    match &read.items[0].expr.kind {
        ExprKind::Literal(value) => value.clone(),
        other => panic!("{other:?}"),
    }
}

fn syntax(text: &str) -> (&'static str, String, String) {
    let mut all = wrong(text);
    assert_eq!(all.len(), 1, "{all:?}");
    all.remove(0)
}

#[test]
fn a_file_has_several_queries_with_annotations_and_comments() {
    let text = r#"
        // Papers by year.
        query by_year($year: I32, $tags: [String]?, $q: Vector( 3 ), $at: DateTime?,)
            @description("By \"year\"") @instruction("Give a year")
        { match { $p: Paper { year: $year, } } return { $p.doi, $p.title as t, } limit 5 }
        /* Nothing
           to give. */
        query all() { match { $p: Paper } return { $p } }
    "#;
    let decls = parse(text).unwrap();
    assert_eq!(decls.len(), 2);
    let first = &decls[0];
    assert_eq!(first.name.text, "by_year");
    assert_eq!(&text[first.name.span.clone()], "by_year");
    assert_eq!(first.description.as_deref(), Some("By \"year\""));
    assert_eq!(first.instruction.as_deref(), Some("Give a year"));
    let types: Vec<_> = first
        .params
        .iter()
        .map(|(p, _)| (&p.value_type, p.nullable))
        .collect();
    assert_eq!(
        types,
        [
            (&ValueType::Scalar(Scalar::I32), false),
            (&ValueType::List(Scalar::String), true),
            (&ValueType::Vector(3), false),
            (&ValueType::Scalar(Scalar::DateTime), true),
        ]
    );
    let query = compile(text, Some("all"), &schema()).unwrap();
    assert_eq!((query.name.as_str(), query.params.len()), ("all", 0));
}

#[test]
fn one_of_several_queries_is_named() {
    let text = "query a() { match { $p: Paper } return { $p } } \
                query b() { match { $p: Nothing } return { $p } }";
    let no_name = findings(compile(text, None, &schema()).unwrap_err()).remove(0);
    assert_eq!(no_name.code, "Q005");
    assert!(no_name.message.contains("`a`, `b`"), "{}", no_name.message);
    let unknown = findings(compile(text, Some("bb"), &schema()).unwrap_err()).remove(0);
    assert_eq!((unknown.code, unknown.fix.as_str()), ("Q006", "write `b`"));
    // Only the query that is asked for is checked.
    compile(text, Some("a"), &schema()).unwrap();
    assert_eq!(
        findings(compile(text, Some("b"), &schema()).unwrap_err())[0].code,
        "T1"
    );
    assert_eq!(syntax(" // none\n").0, "Q004");
}

#[test]
fn missing_parentheses_have_a_message_of_their_own() {
    let (code, at, fix) = syntax("query find { match { $p: Paper } return { $p } }");
    assert_eq!((code, at.as_str()), ("Q002", "find"));
    assert!(fix.starts_with("write `query find()`"), "{fix}");
}

#[test]
fn names_and_annotations_are_there_once() {
    let body = "{ match { $p: Paper } return { $p } }";
    refused(
        &format!("query a() {body} query a() {body}"),
        &[("Q003", "a")],
    );
    refused(
        &format!("query a($x: I32, $x: I64) {body}"),
        &[("Q010", "$x")],
    );
    refused(
        &format!("query a() @description(\"x\") @description(\"y\") {body}"),
        &[("Q009", "description")],
    );
    refused(
        &format!("query a() @descripton(\"x\") {body}"),
        &[("Q011", "descripton")],
    );
    let twice = "query a() { match { $p: Paper } return { $p } limit 1 limit 2 }";
    refused(twice, &[("Q009", "limit 2")]);
}

#[test]
fn parameter_types_are_the_languages_own() {
    let body = "{ match { $p: Paper } return { $p } }";
    refused(&format!("query a($x: Strin) {body}"), &[("Q007", "Strin")]);
    assert_eq!(
        wrong(&format!("query a($x: Strin) {body}"))[0].2,
        "write `String`"
    );
    refused(&format!("query a($x: Vector(0)) {body}"), &[("Q008", "0")]);
    refused(
        &format!("query a($x: Vector(65537)) {body}"),
        &[("Q008", "65537")],
    );
    whole(&format!("query a($x: Vector(65536)) {body}"));
    assert_eq!(syntax(&format!("query a($x: [[I32]]) {body}")).0, "Q001");
}

#[test]
fn syntax_errors_have_a_place_and_say_what_may_stand_there() {
    let text = "query t() {\n  match { $p: Paper }\n  retrun { $p }\n}";
    let error = findings(compile(text, None, &schema()).unwrap_err()).remove(0);
    assert_eq!((error.code, error.line, error.column), ("Q001", 3, 3));
    assert_eq!(&text[error.span.clone()], "retrun");
    assert_eq!(error.fix, "write `return` here");
    for (text, at) in [
        ("query t() { match { $p: Paper } return { $p }", ""),
        ("query t() { match { } return { $p } }", "}"),
        ("query t() { match { $p: Paper } return { } }", "}"),
        (
            "query t() { match { $p: Paper } return { $p } limit -1 }",
            "-",
        ),
        (
            "query t() { match { $p: Paper $p.year > 1 + 2 } return { $p } }",
            "+",
        ),
        (
            "query t() { match { $p: Paper { year: 12abc } } return { $p } }",
            "12abc",
        ),
        ("query t() { match { $p: Paper } return { $p } } x", "x"),
        ("query t() { match { not { } } return { $p } }", "}"),
        (
            "query t() { match { $p: Paper \u{e9} } return { $p } }",
            "\u{e9}",
        ),
    ] {
        let found = syntax(text);
        assert_eq!((found.0, found.1.as_str()), ("Q001", at), "{text}");
        assert!(!found.2.is_empty());
    }
}

#[test]
fn unended_texts_and_comments_point_at_their_start() {
    let (code, at, fix) = syntax("query t() { match { $p: Paper { doi: \"x } } return { $p } }");
    assert_eq!(
        (code, at.as_str(), fix.as_str()),
        ("Q001", "\"", "close it with `\"`")
    );
    let (code, at, fix) = syntax("query t() { match { /* $p: Paper } return { $p } }");
    assert_eq!(
        (code, at.as_str(), fix.as_str()),
        ("Q001", "/*", "close it with `*/`")
    );
}

#[test]
fn literals_are_exact() {
    assert_eq!(literal("-9223372036854775808"), Value::Int(i64::MIN.into()));
    assert_eq!(literal("18446744073709551615"), Value::Int(u64::MAX.into()));
    assert_eq!(literal("-0.5"), Value::Float(-0.5));
    assert_eq!(literal("1.5e3"), Value::Float(1500.0));
    assert_eq!(literal("true"), Value::Bool(true));
    assert_eq!(literal("null"), Value::Null);
    assert_eq!(
        literal(r#""a\"\\\n\r\t'b // no comment""#),
        Value::String("a\"\\\n\r\t'b // no comment".into())
    );
    assert_eq!(literal("date(\"1970-01-02\")"), Value::Date(1));
    assert_eq!(literal("date(\"1969-12-31\")"), Value::Date(-1));
    let moment = literal("datetime(\"1970-01-01T01:00:00.000001+01:00\")");
    assert_eq!(moment, Value::DateTime(1));
}

#[test]
fn literals_that_no_value_holds_are_refused() {
    for (text, at) in [
        ("18446744073709551616", "18446744073709551616"),
        ("-9223372036854775809", "-9223372036854775809"),
        ("1e999", "1e999"),
        (r#""a\q""#, r"\q"),
        ("date(\"2023-02-29\")", "\"2023-02-29\""),
        ("date(\"2023-2-1\")", "\"2023-2-1\""),
        ("datetime(\"2023-02-01\")", "\"2023-02-01\""),
        (
            "datetime(\"2023-02-01T00:00:00.0000001Z\")",
            "\"2023-02-01T00:00:00.0000001Z\"",
        ),
        (
            "datetime(\"2023-02-01T00:00:00.0000000000001Z\")",
            "\"2023-02-01T00:00:00.0000000000001Z\"",
        ),
        (
            "datetime(\"2016-12-31T23:59:60Z\")",
            "\"2016-12-31T23:59:60Z\"",
        ),
    ] {
        let text = format!("query t() {{ match {{ $p: Paper }} return {{ {text} as x }} }}");
        refused(&text, &[("Q008", at)]);
    }
    let text = "query t() { match { $p: Paper } return { $p } limit 18446744073709551616 }";
    refused(text, &[("Q008", "18446744073709551616")]);
}

#[test]
fn all_findings_of_a_text_come_in_the_order_of_their_places() {
    refused(
        "query a { match { $p: Paper { doi: \"\\q\" } } return { 1e999 as x } } query a() { match { $p: Paper } return { $p } }",
        &[
            ("Q002", "a"),
            ("Q008", "\\q"),
            ("Q008", "1e999"),
            ("Q003", "a"),
        ],
    );
}

#[test]
fn clauses_have_their_shapes() {
    let read = read(
        "match { $a: Paper $a cites $b $a <cites> $b $a $w:cites $b $a $w:<cites> $b \
         $a cites {1,3} $b $a cites{2,} $b not { $a cites $b } optional { $a cites $c } \
         search($a.title, \"x\") $a.open $a.title contains \"x\" } return { $a }",
    );
    let shapes = read.clauses.iter().map(|clause| match clause {
        Clause::Binding(_) => "binding".to_owned(),
        Clause::Traversal(t) => format!(
            "{}{}{}{}",
            t.edge.text,
            if t.undirected { " both" } else { "" },
            t.binding
                .as_ref()
                .map_or(String::new(), |w| format!(" ${}", w.text)),
            t.bounds
                .as_ref()
                .map_or(String::new(), |(m, n, _)| format!(" {m}..{n:?}")),
        ),
        Clause::Condition(_) => "condition".to_owned(),
        Clause::Not(..) => "not".to_owned(),
        Clause::Optional(..) => "optional".to_owned(),
    });
    assert_eq!(
        shapes.collect::<Vec<_>>(),
        [
            "binding",
            "cites",
            "cites both",
            "cites $w",
            "cites both $w",
            "cites 1..Some(\"3\")",
            "cites 2..None",
            "not",
            "optional",
            "condition",
            "condition",
            "condition",
        ]
    );
}

#[test]
fn a_result_takes_commas_or_lines() {
    let query = good("match { $p: Paper } return { $p.doi\n $p.title as t $p.year, count() }");
    let names: Vec<&str> = query
        .outputs
        .iter()
        .map(|output| output.name.as_str())
        .collect();
    assert_eq!(names, ["p.doi", "t", "p.year", "count"]);
}

#[test]
fn mutations_parse() {
    for (body, verbs) in [
        ("insert Paper { doi: \"}\", title: $t }", vec![Verb::Insert]),
        ("upsert Paper { doi: $t }", vec![Verb::Upsert]),
        (
            "upsert Paper partial { doi: $t title: $t, }",
            vec![Verb::UpsertPartial],
        ),
        (
            "update Paper set { year: 3 } where doi = \"x\"",
            vec![Verb::Update],
        ),
        (
            "delete Cites where from = \"x\" delete Paper where not (doi = $t) or year is null",
            vec![Verb::Delete, Verb::Delete],
        ),
    ] {
        let text = format!("query w($t: String) {{ {body} }}");
        let Body::Mutation(statements) = &parse(&text).unwrap()[0].body else {
            panic!("{text}");
        };
        let found: Vec<Verb> = statements.iter().map(|s| s.verb).collect();
        assert_eq!(found, verbs, "{text}");
        refused(&text, &[("Q012", "w")]);
    }
    for body in [
        "update Paper set { year: 3 }",
        "delete Paper",
        "insert Paper { }",
        "update Paper set { } where year = 1",
        "insert Paper { year: 1 + 2 }",
        "insert partial Paper { year: 1 }",
        "insert Paper { year: 1 } match { $p: Paper } return { $p }",
    ] {
        let text = format!("query w() {{ {body} }}");
        let found = wrong(&text);
        assert_eq!(found[0].0, "Q001", "{text}");
    }
}
