//! Types of bindings and conditions.

use stratagraph::graph::query::{Compare, Expr, compile};
use stratagraph::graph::value::Value;

use super::fixture::{
    Builder, explained, findings, pattern, refused, refused_pattern, schema, var, whole,
    with_params, wrong,
};

const COUNT: &str = "return { count() }";

fn fine(clauses: &str) {
    whole(&with_params(clauses, COUNT));
}

fn bad(clauses: &str, expected: &[(&str, &str)]) {
    refused(&with_params(clauses, COUNT), expected);
}

/// The fix of a pattern's only finding.
fn fix(clauses: &str) -> String {
    let mut all = wrong(&with_params(clauses, COUNT));
    assert_eq!(all.len(), 1, "{all:?}");
    all.remove(0).2
}

#[test]
fn misspelt_names_have_the_nearest_one_as_fix() {
    refused_pattern("$p: Papr", &[("T1", "Papr")]);
    assert_eq!(fix("$p: Papr"), "write `Paper`");
    assert_eq!(fix("$p: Paper { titel: \"x\" }"), "write `title`");
    assert_eq!(fix("$p: Paper $p citse $q"), "write `Cites`");
    assert_eq!(fix("$p: Paper $p.titel = \"x\""), "write `title`");
    assert_eq!(fix("$paper: Paper $papr.title = \"x\""), "write `paper`");
    assert_eq!(fix("$p: Paper serch($p.title, \"x\")"), "write `search`");
    assert!(fix("$p: Zzzzzz").contains("`Paper`, `Person`, `Company`"));
    assert!(fix("$p: Cites").contains("it is an edge type"));
}

#[test]
fn unknown_names_are_found_where_they_stand() {
    refused_pattern("$p: Paper { titel: \"x\" }", &[("T2", "titel")]);
    refused_pattern("$p: Paper $p citse $q", &[("T4", "citse")]);
    refused_pattern("$p: Paper $p.titel = \"x\"", &[("T6", "titel")]);
    refused_pattern("$p: Paper $q.title = \"x\"", &[("T6", "$q")]);
    refused_pattern("$p: Paper $_ cites $p $_.title = \"x\"", &[("T6", "$_")]);
    refused_pattern("$p: Paper serch($p.title, \"x\")", &[("T32", "serch")]);
    refused_pattern("$p: Paper title = \"x\"", &[("T6", "title")]);
}

#[test]
fn undeclared_parameters_are_found_everywhere() {
    refused_pattern("$p: Paper { doi: $doi }", &[("T14", "$doi")]);
    refused_pattern("$p: Paper $p.doi = $doi", &[("T14", "$doi")]);
    refused_pattern(
        "$p: Paper not { $p cites $q $q.doi = $doi }",
        &[("T14", "$doi")],
    );
    refused_pattern("$p: Paper search($p.title, $q)", &[("T14", "$q")]);
    refused(
        "query t() { match { $p: Paper } return { $x } }",
        &[("T14", "$x")],
    );
    refused(
        "query t() { match { $p: Paper } return { $p } limit $n }",
        &[("T14", "$n")],
    );
    refused(
        "query t() { match { $p: Paper } return { $p } skip $n }",
        &[("T14", "$n")],
    );
    refused(
        "query t() { match { $p: Paper } return { $p } order { $x } }",
        &[("T14", "$x")],
    );
    // Declared ones may stay unused, and a variable does not stand for one in a binding.
    fine("$p: Paper");
    refused_pattern("$p: Paper $q: Paper { doi: $p }", &[("T14", "$p")]);
}

#[test]
fn bindings_take_values_of_the_property() {
    for value in [
        "doi: \"x\"",
        "doi: $s",
        "kind: \"book\"",
        "kind: $s",
        "year: 1",
        "year: -1",
        "year: 1.5",
        "year: $i",
        "year: $f",
        "year: 18446744073709551615",
        "day: date(\"2020-01-01\")",
        "day: $d",
        "at: now()",
        "at: $m",
        "open: true",
        "open: $b",
        "tags: \"x\"",
        "tags: $s",
        "counts: 2.5",
        "big: $n",
    ] {
        fine(&format!("$p: Paper {{ {value} }}"));
    }
    for (value, at) in [
        ("doi: 1", "1"),
        ("doi: $i", "$i"),
        ("kind: \"bok\"", "\"bok\""),
        ("year: \"1\"", "\"1\""),
        ("year: true", "true"),
        ("day: \"2020-01-01\"", "\"2020-01-01\""),
        ("day: $m", "$m"),
        ("at: $d", "$d"),
        ("day: now()", "now()"),
        ("tags: [\"x\"]", "[\"x\"]"),
        ("tags: $l", "$l"),
        ("tags: 1", "1"),
        ("emb: $v", "$v"),
        ("emb: [1.0]", "[1.0]"),
        ("pdf: \"x\"", "\"x\""),
        ("year: count()", "count()"),
    ] {
        bad(&format!("$p: Paper {{ {value} }}"), &[("T3", at)]);
    }
    bad("$p: Paper $q: Paper { doi: $p.doi }", &[("T3", "$p.doi")]);
    assert_eq!(fix("$p: Paper { kind: \"bok\" }"), "write `book`");
    assert!(fix("$p: Paper { day: \"2020-01-01\" }").contains("date("));
}

#[test]
fn the_literal_null_is_compared_with_nothing() {
    for clauses in [
        "$p: Paper { doi: null }",
        "$p: Paper $p.doi = null",
        "$p: Paper null != $p.doi",
        "$p: Paper $p.tags contains null",
    ] {
        bad(clauses, &[("T31", "null")]);
        assert!(fix(clauses).contains("is null"));
    }
    refused(
        "query t() { match { $p: Paper } return { null as x } }",
        &[("T31", "null")],
    );
    fine("$p: Paper $p.tags is null $p.emb is not null $n is null $p.doi is not null");
}

#[test]
fn a_binding_is_equality_or_membership() {
    let query =
        whole("query t($s: String) { match { $p: Paper { doi: $s, tags: \"x\" } } return { $p } }");
    let p = var(&query, "p");
    let schema = schema();
    let id = |name: &str| schema.node("Paper").unwrap().property(name).unwrap().id;
    let property = |name: &str| Box::new(Expr::Property(p, id(name)));
    assert_eq!(
        query.pattern.filters,
        [
            Expr::Compare(Compare::Eq, property("doi"), Box::new(Expr::Param(0))),
            Expr::HasItem(
                property("tags"),
                Box::new(Expr::Literal(Value::String("x".into())))
            ),
        ]
    );
}

#[test]
fn numbers_compare_with_numbers_and_nothing_else_mixes() {
    let columns = ["year", "big", "pages", "score", "ratio"];
    for a in columns {
        for b in [
            "1",
            "1.5",
            "-1",
            "18446744073709551615",
            "$i",
            "$f",
            "$n",
            "$p.year",
            "$p.ratio",
            "$p.big",
        ] {
            fine(&format!("$p: Paper $p.{a} >= {b}"));
            fine(&format!("$p: Paper {b} != $p.{a}"));
        }
        for b in ["\"x\"", "$s", "true", "date(\"2020-01-01\")", "now()"] {
            let clause = format!("$p.{a} = {b}");
            bad(&format!("$p: Paper {clause}"), &[("T7", &clause)]);
        }
    }
    for clause in [
        "$p.day = $p.at",
        "$p.day = \"2020-01-01\"",
        "$p.at = \"2020-01-01T00:00:00Z\"",
        "$p.day = $m",
        "$p.at < $d",
        "$p.tags = \"x\"",
        "$p.tags = $l",
        "$p.emb = $v",
        "$p.doi < 1",
        "$p.open = 1",
        "$p.kind = \"bok\"",
        "\"bok\" != $p.kind",
    ] {
        bad(&format!("$p: Paper {clause}"), &[("T7", clause)]);
    }
    fine(
        "$p: Paper $p.day <= $d $p.at < now() $p.open = true $p.kind = $s $p.kind > \"a\" $p.kind = $p.doi",
    );
}

#[test]
fn operators_resolve_by_their_left_side() {
    let query = pattern(
        "$a: Paper $b: Paper $a $w:cites $b $a.tags contains \"x\" $a.title contains \"x\" \
         $w.note contains $b.title $a.title starts_with \"x\" \"xyz\" contains $a.title",
    );
    assert_eq!(
        explained(&query).lines().skip(3).collect::<Vec<_>>(),
        [
            "filter $a.tags has item \"x\"",
            "filter $a.title has text \"x\"",
            "filter $w.note has text $b.title",
            "filter $a.title starts_with \"x\"",
            "filter \"xyz\" has text $a.title",
        ]
    );
    for clause in [
        "$p.year contains 1",
        "$p.title contains 1",
        "$p.tags contains $l",
        "$p.tags contains 1",
        "$p.emb contains 1.0",
        "$p.year starts_with \"1\"",
        "$p.title starts_with 1",
        "$p.tags starts_with \"x\"",
    ] {
        bad(&format!("$p: Paper {clause}"), &[("T7", clause)]);
    }
}

#[test]
fn contains_between_variables_is_a_traversal_where_an_edge_has_that_name() {
    // Two nodes are two texts, their ids, where there is none.
    let query = pattern("$a: Paper $b: Paper $a contains $b");
    assert!(explained(&query).contains("filter $a.id has text $b.id"));
    let schema = Builder::new()
        .node("Box", "label:String")
        .edge("Contains", "Box", "Box", "")
        .build();
    let shown = |clauses: &str| {
        let text = format!(
            "query t($q: String, $m: String) {{ match {{ {clauses} }} return {{ $q as x }} }}"
        );
        compile(&text, None, &schema).unwrap().explain(&schema)
    };
    assert!(shown("$a contains $b").contains("hop $a -[Contains]-> $b\n"));
    assert!(shown("$a contains{1,2} $b").contains("hop $a -[Contains]->{1,2} $b\n"));
    assert!(shown("$a <contains> $b").contains("hop $a -[Contains]- $b\n"));
    assert!(shown("$a $w:contains $b").contains("hop $a -[$w: Contains]-> $b\n"));
    assert!(shown("$a: Box $q contains $m").contains("filter $q has text $m\n"));
    assert!(shown("$a: Box $a contains $m").contains("filter $a.id has text $m\n"));
    assert!(shown("$a: Box $a.label contains $m").contains("filter $a.label has text $m\n"));
    assert!(
        shown("$a: Box $b: Box $a contains $b or true")
            .contains("filter ($a.id has text $b.id or true)\n")
    );
}

#[test]
fn floats_beside_f32_are_as_f32_holds_them() {
    let query = pattern("$p: Paper $p.score = 0.1 $p.ratio = 0.1 $p.weights contains 0.1");
    let literals: Vec<f64> = query
        .pattern
        .filters
        .iter()
        .map(|filter| match filter {
            Expr::Compare(_, _, b) | Expr::HasItem(_, b) => match **b {
                Expr::Literal(Value::Float(value)) => value,
                ref other => panic!("{other:?}"),
            },
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(literals, [f64::from(0.1_f32), 0.1, f64::from(0.1_f32)]);
}

#[test]
fn conditions_have_precedence_and_three_values() {
    let query = pattern(
        "$p: Paper $p.year = 1 or $p.year = 2 and not $p.open or not not ($p.year = 3 and $p.open) \
         $p.year > 1 and $p.year < 9 $p.doi is not null",
    );
    assert_eq!(
        explained(&query).lines().skip(1).collect::<Vec<_>>(),
        [
            "filter ($p.year = 1 or ($p.year = 2 and not ($p.open)) or ($p.year = 3 and $p.open))",
            "filter $p.year > 1",
            "filter $p.year < 9",
            "filter not ($p.doi is null)",
        ]
    );
}

#[test]
fn a_condition_is_a_truth_value() {
    fine("$p: Paper $p.open $b");
    fine("$p: Paper ($p.open or $b) and true");
    bad("$p: Paper $p.title", &[("T7", "$p.title")]);
    bad("$p: Paper not $p.title", &[("T7", "$p.title")]);
    bad("$p: Paper $p.open or 1", &[("T7", "1")]);
    bad("$p: Paper $s", &[("T7", "$s")]);
    bad("$p: Paper count()", &[("T8", "count")]);
    bad("$p: Paper $p.year > count()", &[("T8", "count")]);
}

#[test]
fn nodes_compare_as_the_same_or_not() {
    let query = pattern("$a: Paper $b: Paper $a != $b $a.id = \"x\"");
    assert!(explained(&query).contains("filter $a.id != $b.id\nfilter $a.id = \"x\""));
    refused_pattern("$a: Paper $b: Person $a = $b", &[("T7", "$a = $b")]);
    refused_pattern("$a: Paper $a = 1", &[("T7", "$a = 1")]);
}

#[test]
fn ids_are_read_of_nodes_and_edges_and_ends_are_not() {
    let query = pattern("$a: Paper $a $w:cites $b $w.id != $b.id");
    assert!(explained(&query).contains("filter $w.id != $b.id"));
    refused_pattern("$a: Paper $a $w:cites $b $w.src = \"x\"", &[("T6", "src")]);
    refused_pattern("$a: Paper $a $w:cites $b $w.dst = \"x\"", &[("T6", "dst")]);
    assert!(fix("$a: Paper $a $x:cites $c $x.src = \"x\"").contains("name the variables"));
    refused_pattern("$a: Paper $a.src = \"x\"", &[("T6", "src")]);
    // A property of that name goes first.
    let schema = Builder::new().node("Thing", "id:I64").build();
    let text = "query t() { match { $a: Thing $a.id = 1 } return { $a.id } }";
    let query = compile(text, None, &schema).unwrap();
    assert_eq!(query.outputs[0].expr, Expr::Property(0, 16));
}

#[test]
fn blobs_are_no_values_of_a_read() {
    refused_pattern("$p: Paper $p.pdf = \"x\"", &[("T24", "pdf")]);
    refused_pattern("$p: Paper $p.pdf is null", &[("T24", "pdf")]);
    refused_pattern(
        "$p: Paper $p $w:cites $q $w.scan is null",
        &[("T24", "scan")],
    );
    refused(
        "query t() { match { $p: Paper } return { $p.pdf } }",
        &[("T24", "pdf")],
    );
    refused(
        "query t() { match { $p: Paper } return { count($p.pdf) } }",
        &[("T24", "pdf")],
    );
    refused(
        "query t($x: Blob) { match { $p: Paper } return { $p } }",
        &[("T24", "$x")],
    );
    refused(
        "query t($x: Blob?) { match { $p: Paper } return { $x } }",
        &[("T24", "$x")],
    );
}

#[test]
fn findings_do_not_cascade() {
    refused_pattern(
        "$p: Papr { x: 1 } $p cites $q $q.title = 1 $p.zzz = 2",
        &[("T1", "Papr"), ("T7", "$q.title = 1")],
    );
    refused_pattern("$a citse $b $a.x = $b.y", &[("T4", "citse")]);
    let text = "query t() { match { $p: Papr } return { $p.x as y, count() } order { y } }";
    refused(text, &[("T1", "Papr")]);
}

#[test]
fn messages_cut_long_names() {
    let long = "x".repeat(100_000);
    let text = format!("query t() {{ match {{ ${long}: {long} }} return {{ ${long}.{long} }} }}");
    let error = compile(&text, None, &schema()).unwrap_err();
    assert!(error.to_string().len() < 2_000);
    assert!(!findings(error).is_empty());
}
