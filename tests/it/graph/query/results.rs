//! Results: columns, aggregates, order, numbers of rows.

use stratagraph::graph::query::{Count, Expr, Query};
use stratagraph::graph::value::{Scalar, ValueType};

use super::fixture::{good, refused, refused_result, schema, var, whole, wrong};

fn result(rest: &str) -> Query {
    good(&format!("match {{ $p: Paper $p $e:cites $c }} {rest}"))
}

fn columns(query: &Query) -> Vec<(String, String, bool)> {
    let all = query.outputs.iter();
    all.map(|o| (o.name.clone(), o.value_type.to_string(), o.nullable))
        .collect()
}

fn column(item: &str) -> (String, String, bool) {
    columns(&result(&format!("return {{ {item} }}"))).remove(0)
}

fn is(name: &str, value_type: &str, nullable: bool) -> (String, String, bool) {
    (name.to_owned(), value_type.to_owned(), nullable)
}

/// What `explain` shows of the order.
fn order(rest: &str) -> Vec<String> {
    let text = result(rest).explain(&schema());
    let lines = text.lines().skip_while(|line| *line != "order").skip(1);
    lines
        .take_while(|line| line.starts_with(' '))
        .map(|line| line.trim().to_owned())
        .collect()
}

#[test]
fn columns_have_names_types_and_nullability() {
    assert_eq!(column("$p.doi"), is("p.doi", "String", false));
    assert_eq!(column("$p.year as y"), is("y", "I32", false));
    assert_eq!(column("$p.tags"), is("p.tags", "[String]", true));
    assert_eq!(column("$p.emb"), is("p.emb", "Vector(3)", true));
    assert_eq!(
        column("$p.kind"),
        is("p.kind", "enum(article, book, preprint)", false)
    );
    assert_eq!(column("$p"), is("p", "String", false));
    assert_eq!(column("$p.id"), is("p.id", "String", false));
    assert_eq!(column("$e.weight"), is("e.weight", "F32", true));
    assert_eq!(column("$e.id"), is("e.id", "String", false));
    assert_eq!(column("now()"), is("now", "DateTime", false));
    assert_eq!(column("1 as one"), is("one", "I64", false));
    assert_eq!(column("18446744073709551615 as x"), is("x", "U64", false));
    assert_eq!(column("[1, 2.5] as x"), is("x", "[F64]", false));
    assert_eq!(
        column("[1, 18446744073709551615] as x"),
        is("x", "[U64]", false)
    );
    assert_eq!(column("$p.year > 3 as big"), is("big", "Bool", false));
    assert_eq!(
        column("$p.open or $p.score > 3 as x"),
        is("x", "Bool", true)
    );
    assert_eq!(column("$p.open is null as x"), is("x", "Bool", false));
    let query =
        whole("query t($v: Vector(3)?, $s: String) { match { $p: Paper } return { $v, $s } }");
    assert_eq!(
        columns(&query),
        [is("v", "Vector(3)", true), is("s", "String", false)]
    );
}

#[test]
fn aggregates_have_the_widest_type_of_their_kind() {
    assert_eq!(column("count()"), is("count", "I64", false));
    assert_eq!(column("count($p)"), is("count", "I64", false));
    assert_eq!(column("count($e.id) as n"), is("n", "I64", false));
    assert_eq!(
        column("count(distinct $p.kind) as n"),
        is("n", "I64", false)
    );
    assert_eq!(column("count($p.emb) as n"), is("n", "I64", false));
    assert_eq!(column("sum($p.year)"), is("sum", "I64", true));
    assert_eq!(column("sum($p.big)"), is("sum", "U64", true));
    assert_eq!(column("sum($p.pages)"), is("sum", "U64", true));
    assert_eq!(column("sum($p.score)"), is("sum", "F64", true));
    assert_eq!(column("avg($p.year)"), is("avg", "F64", true));
    assert_eq!(column("avg($e.weight)"), is("avg", "F64", true));
    for (property, value_type) in [
        ("year", "I32"),
        ("title", "String"),
        ("day", "Date"),
        ("at", "DateTime"),
        ("open", "Bool"),
        ("score", "F32"),
        ("kind", "enum(article, book, preprint)"),
        ("big", "U64"),
    ] {
        assert_eq!(
            column(&format!("min($p.{property})")),
            is("min", value_type, true)
        );
        assert_eq!(
            column(&format!("max($p.{property})")),
            is("max", value_type, true)
        );
    }
    assert_eq!(column("min($p)"), is("min", "String", true));
    // A group has a row.
    let query = result("return { $p.kind, max($p.year), max($p.day) as d, sum($p.pages) }");
    let nullable: Vec<bool> = query.outputs.iter().map(|o| o.nullable).collect();
    assert_eq!(nullable, [false, false, true, false]);
    assert!(query.aggregates());
}

#[test]
fn aggregates_take_what_they_can_aggregate() {
    for (item, at) in [
        ("sum($p.title)", "$p.title"),
        ("avg($p.open)", "$p.open"),
        ("sum($p.tags)", "$p.tags"),
        ("min($p.tags)", "$p.tags"),
        ("max($p.emb)", "$p.emb"),
        ("sum($p)", "$p"),
        ("avg($p.day)", "$p.day"),
        ("count(distinct $p.tags)", "$p.tags"),
        ("sum()", "sum"),
        ("count($p, $c)", "count"),
        ("count(distinct)", "count"),
        ("sum(distinct $p.year)", "sum"),
        ("sum(count($p))", "count"),
        ("count(count())", "count"),
    ] {
        refused_result(&format!("return {{ {item} as x }}"), &[("T8", at)]);
    }
    refused_result("return { count($e) }", &[("T23", "$e")]);
    refused_result("return { $e }", &[("T23", "$e")]);
    refused_result("return { kount($p) }", &[("T32", "kount")]);
    refused_result("return { now(1) }", &[("T32", "now")]);
    refused_result("return { date($p.title) }", &[("T32", "date")]);
}

#[test]
fn columns_beside_aggregates_are_keys() {
    result("return { $p.kind, $c, count() as n, count() > 3 as many }");
    result("return { $p.kind, count() = 1 and $p.kind = \"book\" as x }");
    result("return { $p.open, count() > 3 or $p.open as x }");
    refused_result(
        "return { $p.kind, count() > 3 or $p.open as x }",
        &[("T9", "count() > 3 or $p.open")],
    );
    refused_result(
        "return { sum($p.year) > $p.year as x }",
        &[("T9", "sum($p.year) > $p.year")],
    );
}

#[test]
fn names_of_columns_are_unique_and_there() {
    refused_result("return { $p.doi, $p.doi }", &[("T30", "$p.doi")]);
    refused_result("return { $p.doi as x, $c.doi as x }", &[("T30", "x")]);
    refused_result("return { count(), count($p) }", &[("T30", "count($p)")]);
    refused_result("return { 1 }", &[("T30", "1")]);
    refused_result("return { $p.year > 1 }", &[("T30", "$p.year > 1")]);
    assert!(
        wrong("query t() { match { $p: Paper } return { $p, $p } }")[0]
            .2
            .contains("`as`")
    );
    refused_result("return { doi }", &[("T6", "doi")]);
    refused_result(
        "return { [] as x }",
        &[("T7", "[] as x".split(' ').next().unwrap())],
    );
}

#[test]
fn rows_are_ordered_by_anything_of_one_value() {
    assert_eq!(
        order(
            "return { $p.doi as d, $p.year } order { $c.title desc, d, $p.year asc, $p.open, $e.id, $p.year > 3 }"
        ),
        [
            "$c.title desc",
            "output d asc",
            "output p.year asc",
            "$p.open asc",
            "$e.id asc",
            "output p.year > 3 asc",
        ]
    );
    let query = result("return { $p.doi } order { $c desc }");
    assert_eq!(query.order[0].expr, Expr::Id(var(&query, "c")));
    assert!(query.order[0].descending);
    refused_result("return { $p } order { $p.tags }", &[("T33", "$p.tags")]);
    refused_result("return { $p } order { $p.emb }", &[("T33", "$p.emb")]);
    refused_result("return { $p as one } order { ones }", &[("T6", "ones")]);
    assert_eq!(
        wrong("query t() { match { $p: Paper } return { $p as one } order { ones } }")[0].2,
        "write `one`"
    );
}

#[test]
fn groups_are_ordered_by_keys_and_aggregates() {
    assert_eq!(
        order(
            "return { $p.kind, count() as n } order { n desc, max($c.year), $p.kind, $p.kind = \"book\" }"
        ),
        [
            "output n desc",
            "max($c.year) asc",
            "output p.kind asc",
            "output p.kind = \"book\" asc"
        ]
    );
    refused_result(
        "return { $p.kind, count() } order { $p.year }",
        &[("T33", "$p.year")],
    );
    refused_result(
        "return { $p.kind } order { count() }",
        &[("T33", "count()")],
    );
}

#[test]
fn distinct_rows_are_ordered_by_what_is_returned() {
    let query = result("return distinct { $p.kind } order { $p.kind desc }");
    assert!(query.distinct);
    assert_eq!(query.order[0].expr, Expr::Output(0));
    refused_result(
        "return distinct { $p.kind } order { $p.year }",
        &[("T33", "$p.year")],
    );
    refused_result(
        "return distinct { $p.kind, count() as n } order { n, max($p.year) }",
        &[("T33", "max($p.year)")],
    );
}

#[test]
fn numbers_of_rows_are_literals_or_parameters() {
    let query =
        whole("query t($n: U32, $m: I64) { match { $p: Paper } return { $p } limit $n skip $m }");
    assert_eq!(query.limit, Some(Count::Param(0)));
    assert_eq!(query.skip, Some(Count::Param(1)));
    let query = result("return { $p } order { $p.year } skip 2 limit 0");
    assert_eq!(
        (query.skip, query.limit),
        (Some(Count::Literal(2)), Some(Count::Literal(0)))
    );
    for value_type in ["U32?", "F64", "String", "[I64]"] {
        refused(
            &format!(
                "query t($n: {value_type}) {{ match {{ $p: Paper }} return {{ $p }} limit $n }}"
            ),
            &[("T35", "$n")],
        );
    }
}

#[test]
fn explain_shows_a_clause_a_line() {
    let text = "query shown($doi: String, $n: U64, $k: I64?) { match { $p: Paper { doi: $doi } \
                $p <cites>{1,3} $c optional { $c $w:writtenBy $a } not { $p worksFor $c } \
                } return distinct { $c, $a.name as name } order { name desc } skip 1 limit $n }"
        .replace("worksFor", "cites");
    assert_eq!(
        whole(&text).explain(&schema()),
        "query shown($doi: String, $n: U64, $k: I64?)\n\
         match\n\
         \u{20} node $p: Paper\n\
         \u{20} node $c: Paper\n\
         \u{20} hop $p -[Cites]-{1,3} $c\n\
         \u{20} filter $p.doi = $doi\n\
         \u{20} optional\n\
         \u{20}   node $a: Person\n\
         \u{20}   hop $c -[$w: WrittenBy]-> $a\n\
         \u{20} not\n\
         \u{20}   hop $p -[Cites]-> $c\n\
         return distinct\n\
         \u{20} $c.id as c: String\n\
         \u{20} $a.name as name: String?\n\
         order\n\
         \u{20} output name desc\n\
         skip 1\n\
         limit $n\n"
    );
    assert_eq!(
        Scalar::I64.name(),
        ValueType::Scalar(Scalar::I64).to_string()
    );
}
