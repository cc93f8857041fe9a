//! Searches and ranks, as they are checked.

use stratagraph::graph::query::{Expr, Rank, SearchMode};
use stratagraph::graph::value::Value;

use super::fixture::{refused, whole, with_params, wrong};

fn ordered(rest: &str) -> String {
    with_params("$p: Paper $p $e:cites $c", rest)
}

fn fine(rest: &str) {
    whole(&ordered(rest));
}

fn bad(rest: &str, expected: &[(&str, &str)]) {
    refused(&ordered(rest), expected);
}

#[test]
fn searches_are_conditions_on_texts() {
    let clauses = "$p: Paper search($p.title, $s) fuzzy($p.abstract, \"x\", $i) fuzzy($p.title, \"x\") \
                   match_text($p.title, \"x\") or $p.open = true search($p.title, \"x\") = true";
    let query = whole(&with_params(clauses, "return { $p }"));
    let modes: Vec<SearchMode> = query
        .pattern
        .filters
        .iter()
        .filter_map(|filter| match filter {
            Expr::Search(search) => Some(search.mode),
            _ => None,
        })
        .collect();
    assert_eq!(
        modes,
        [SearchMode::Any, SearchMode::Fuzzy, SearchMode::Fuzzy]
    );
    for (clause, code, at) in [
        ("search($p.year, \"x\")", "T19", "$p.year"),
        ("search($p.title, 1)", "T19", "1"),
        ("search($p.title, $c.title)", "T19", "$c.title"),
        ("search($p, \"x\")", "T19", "$p"),
        ("search(\"x\", \"x\")", "T19", "\"x\""),
        ("fuzzy($p.title, \"x\", \"2\")", "T19", "\"2\""),
        ("fuzzy($p.title, \"x\", 1.5)", "T19", "1.5"),
        ("fuzzy($p.title, \"x\", -1)", "T19", "fuzzy"),
        ("match_text($p.tags, \"x\")", "T20", "$p.tags"),
        ("match_text($p.title, $i)", "T20", "$i"),
        ("search($p.id, \"x\")", "T19", "$p.id"),
        ("search($p.title)", "T32", "search"),
        ("search($u.note, \"x\")", "T23", "$u"),
        ("nearest($p.emb, $v) < 0.5", "T34", "nearest"),
        ("bm25($p.title, \"x\")", "T34", "bm25"),
    ] {
        refused(
            &with_params(
                &format!("$p: Paper $p $u:cites $c {clause}"),
                "return { $p }",
            ),
            &[(code, at)],
        );
    }
    bad(
        "return { search($p.title, \"x\") as x }",
        &[("T34", "search")],
    );
}

#[test]
fn nearest_takes_a_vector_of_the_width_or_a_text() {
    for query in ["$v", "$s", "\"words\"", "[0.5, 1, -2]", "[1, 2, 3]"] {
        fine(&format!(
            "return {{ $p }} order {{ nearest($p.emb, {query}) }} limit 3"
        ));
    }
    for (call, at) in [
        ("nearest($p.emb, $w)", "$w"),
        ("nearest($p.emb, [1.0])", "[1.0]"),
        ("nearest($p.emb, [])", "[]"),
        (
            "nearest($p.emb, [\"x\", \"y\", \"z\"])",
            "[\"x\", \"y\", \"z\"]",
        ),
        ("nearest($p.emb, 1)", "1"),
        ("nearest($p.emb, $i)", "$i"),
        ("nearest($p.emb, $c.emb)", "$c.emb"),
        ("nearest($p.title, $v)", "$p.title"),
        ("nearest($p, $v)", "$p"),
    ] {
        bad(
            &format!("return {{ $p }} order {{ {call} }} limit 3"),
            &[("T15", at)],
        );
    }
    bad(
        "return { $p } order { nearest($e.vec, $v) } limit 3",
        &[("T23", "$e")],
    );
}

#[test]
fn ranks_need_a_limit() {
    let (nearest, bm25) = ("nearest($p.emb, $v)", "bm25($p.title, $s)");
    let rrf = format!("rrf({nearest}, {bm25})");
    bad(
        &format!("return {{ $p }} order {{ {nearest} }}"),
        &[("T17", nearest)],
    );
    bad(
        &format!("return {{ $p, {nearest} as d }} order {{ d }}"),
        &[("T17", "d")],
    );
    bad(
        &format!("return {{ $p }} order {{ {rrf} }}"),
        &[("T21", &rrf)],
    );
    bad(
        &format!("return {{ $p, {rrf} as r }} order {{ r desc }}"),
        &[("T21", "r")],
    );
    fine(&format!("return {{ $p }} order {{ {bm25} }}"));
    fine(&format!("return {{ $p, {nearest} as d }}"));
    fine(&format!(
        "return {{ $p, {rrf} as r }} order {{ r desc }} limit $i"
    ));
}

#[test]
fn ranks_are_first_and_best_first() {
    let (nearest, bm25) = ("nearest($p.emb, $v)", "bm25($p.title, $s)");
    let query = whole(&ordered(&format!(
        "return {{ $p }} order {{ {bm25}, $p.year }} limit 1"
    )));
    assert!(query.order[0].descending && !query.order[1].descending);
    let query = whole(&ordered(&format!(
        "return {{ $p }} order {{ {nearest}, $p.year }} limit 1"
    )));
    assert!(!query.order[0].descending);
    fine(&format!(
        "return {{ $p }} order {{ rrf({nearest}, {bm25}) desc }} limit 1"
    ));
    bad(
        &format!("return {{ $p }} order {{ {nearest} asc }} limit 1"),
        &[("T34", nearest)],
    );
    bad(
        &format!("return {{ $p }} order {{ {nearest} desc }} limit 1"),
        &[("T34", nearest)],
    );
    bad(
        &format!("return {{ $p }} order {{ {bm25} asc }} limit 1"),
        &[("T34", bm25)],
    );
    bad(
        &format!("return {{ $p }} order {{ $p.year, {bm25} }} limit 1"),
        &[("T34", bm25)],
    );
    bad(
        &format!("return {{ $p.doi as d }} order {{ {nearest}, d }} limit 1"),
        &[("T18", "d")],
    );
    fine(&format!(
        "return {{ $p.doi as d }} order {{ rrf({nearest}, {bm25}), d }} limit 1"
    ));
    // A rank ranks rows; it is no value of a group, and no part of another value.
    bad(&format!("return {{ {bm25}, count() }}"), &[("T9", bm25)]);
    bad(
        &format!("return {{ $p.kind, count() }} order {{ {bm25} }}"),
        &[("T33", bm25)],
    );
    bad(
        &format!("return {{ {bm25} > 0.5 as x }}"),
        &[("T34", &format!("{bm25} > 0.5"))],
    );
    bad(
        &format!("return {{ max({bm25}) as x }}"),
        &[("T34", "bm25")],
    );
}

#[test]
fn fusions_take_two_ranks_and_a_constant() {
    let (nearest, bm25) = ("nearest($p.emb, $v)", "bm25($p.title, $s)");
    let query = whole(&ordered(&format!(
        "return {{ $p }} order {{ rrf({nearest}, {bm25}, 7) }} limit 1"
    )));
    let Expr::Rank(rank) = &query.order[0].expr else {
        panic!()
    };
    let Rank::Rrf { arms, k } = rank.as_ref() else {
        panic!()
    };
    assert_eq!((arms[0].name(), arms[1].name()), ("nearest", "bm25"));
    assert_eq!(*k, Some(Expr::Literal(Value::Int(7))));
    let query = whole(&with_params(
        "$p: Paper $p cites{1,3} $c",
        &format!(
            "return {{ $c }} order {{ rrf(bm25($c.title, $s), hops($p, $c), {nearest}, 7) }} limit 1"
        ),
    ));
    let Expr::Rank(rank) = &query.order[0].expr else {
        panic!()
    };
    assert!(matches!(rank.as_ref(), Rank::Rrf { arms, .. } if arms.len() == 3));
    for (call, code, at) in [
        (format!("rrf({bm25}, hops($p, $c))"), "T21", "hops($p, $c)"),
        (
            format!("rrf({bm25}, hops($p, $p.title))"),
            "T21",
            "$p.title",
        ),
        (format!("rrf({nearest}, {bm25}, 0)"), "T21", "0"),
        (format!("rrf({nearest}, {bm25}, -1)"), "T21", "-1"),
        (format!("rrf({nearest}, {bm25}, 1.5)"), "T21", "1.5"),
        (format!("rrf({nearest}, $p.year)"), "T21", "$p.year"),
        (
            format!("rrf({nearest}, rrf({nearest}, {bm25}))"),
            "T21",
            "rrf(nearest($p.emb, $v), bm25($p.title, $s))",
        ),
        (format!("rrf({nearest})"), "T32", "rrf"),
        (
            "rrf(nearest($p.emb, $w), bm25($p.title, 1))".to_owned(),
            "T15",
            "$w",
        ),
    ] {
        let text = ordered(&format!("return {{ $p }} order {{ {call} }} limit 1"));
        let found = wrong(&text);
        assert_eq!((found[0].0, found[0].1.as_str()), (code, at), "{text}");
    }
}
