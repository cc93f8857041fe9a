//! Texts at their limits.

use stratagraph::graph::query::{compile, params, parse};
use stratagraph::limits;

use super::fixture::schema;

fn code<T>(result: stratagraph::Result<T>) -> Option<&'static str> {
    result.err().map(|error| error.code())
}

/// Compiles what `text` makes of n-1, n and n+1.
fn around(limit: usize, text: impl Fn(usize) -> String) {
    for (size, expected) in [
        (limit - 1, None),
        (limit, None),
        (limit + 1, Some("ResourceLimitExceeded")),
    ] {
        let compiled = compile(&text(size), None, &schema());
        assert_eq!(code(compiled), expected, "{size} of {limit}");
    }
}

#[test]
fn bytes_of_a_text() {
    let query = "query t() { match { $p: Paper } return { $p } }";
    around(limits::LANGUAGE_BYTES, |size| {
        format!("{query}{}", " ".repeat(size - query.len()))
    });
}

#[test]
fn tokens_of_a_text() {
    // The conditions `$p.open` and `$p.year = 1` have three and five tokens, so any number from 8 on
    // is made of them.
    let around_them = "query t() { match { $p: Paper  } return { $p } }";
    let fixed = 16;
    around(limits::LANGUAGE_TOKENS, |size| {
        let five = (size - fixed) % 3;
        let five = if five == 0 { 0 } else { 3 - five };
        let three = (size - fixed - 5 * five) / 3;
        assert_eq!(fixed + 5 * five + 3 * three, size);
        let clauses = "$p.year = 1 ".repeat(five) + &"$p.open ".repeat(three);
        around_them.replace("  ", &format!(" {clauses}"))
    });
}

#[test]
fn nesting_of_a_text() {
    let fixed = 2;
    around(limits::LANGUAGE_DEPTH, |depth| {
        let (open, close) = ("(".repeat(depth - fixed), ")".repeat(depth - fixed));
        format!("query t() {{ match {{ $p: Paper {open}$p.open{close} }} return {{ $p }} }}")
    });
    around(limits::LANGUAGE_DEPTH, |depth| {
        let nots = "not ".repeat(depth - fixed);
        format!("query t() {{ match {{ $p: Paper {nots}$p.open }} return {{ $p }} }}")
    });
    // `not (` weighs two.
    around(limits::LANGUAGE_DEPTH, |depth| {
        let nots = (depth - fixed) / 2;
        let (open, close) = ("not (".repeat(nots), ")".repeat(nots));
        let odd = if depth % 2 == 1 { "not " } else { "" };
        format!("query t() {{ match {{ $p: Paper {open}{odd}$p.open{close} }} return {{ $p }} }}")
    });
    // Blocks within blocks.
    let blocks = |depth: usize| {
        let inner = depth - fixed;
        let open: String = (0..inner)
            .map(|at| format!("optional {{ $p cites $q{at} "))
            .collect();
        let close = "}".repeat(inner);
        format!("query t() {{ match {{ $p: Paper {open}{close} }} return {{ $p }} }}")
    };
    around(limits::LANGUAGE_DEPTH, blocks);
}

#[test]
fn nesting_far_beyond_the_limit_is_refused_before_anything_recurses() {
    for open in ["(", "[", "{", "not ", "not {", "query t() { match { not {"] {
        let text = open.repeat(limits::LANGUAGE_BYTES / open.len() / 2);
        assert_eq!(code(parse(&text)), Some("ResourceLimitExceeded"), "{open}");
    }
}

#[test]
fn hops_of_a_traversal() {
    for (hops, expected) in [
        (limits::HOPS - 1, None),
        (limits::HOPS, None),
        (limits::HOPS + 1, Some("QueryInvalid")),
    ] {
        let text = format!(
            "query t() {{ match {{ $p: Paper $p cites{{1,{hops}}} $q }} return {{ $q }} }}"
        );
        assert_eq!(code(compile(&text, None, &schema())), expected, "{hops}");
    }
}

#[test]
fn bytes_of_parameters() {
    let limit = limits::PARAMETER_BYTES;
    for (size, expected) in [
        (limit - 1, None),
        (limit, None),
        (limit + 1, Some("ResourceLimitExceeded")),
    ] {
        let text = format!("{{}}{}", " ".repeat(size - 2));
        assert_eq!(code(params::from_json(&text, &[])), expected, "{size}");
    }
}

#[test]
fn one_error_lists_as_many_findings_as_the_limit_says() {
    let clauses = "$p: Nothing ".repeat(limits::VIOLATIONS * 20);
    let text = format!("query t() {{ match {{ {clauses} }} return {{ $p }} }}");
    let error = compile(&text, None, &schema()).unwrap_err();
    assert_eq!(super::fixture::findings(error).len(), limits::VIOLATIONS);
}

#[test]
fn the_largest_texts_compile_in_reasonable_time() {
    // A chain of traversals that types itself from its far end.
    let hops = 10_000;
    let chain: String = (0..hops)
        .map(|at| format!("$a{at} cites $a{} ", at + 1))
        .collect();
    let text = format!("query t() {{ match {{ {chain} }} return {{ $a0 }} }}");
    let query = compile(&text, None, &schema()).unwrap();
    assert_eq!(query.pattern.hops.len(), hops);
    assert!(query.explain(&schema()).lines().count() > hops);
}
