//! Variables of `not` and `optional` blocks.

use super::fixture::{explained, good, pattern, refused, refused_pattern, schema, var};

#[test]
fn a_block_sees_what_is_around_it() {
    let query = pattern(
        "$p: Paper not { $p cites $q $q.year > $p.year not { $q writtenBy $a $a.name = $p.title } }",
    );
    assert_eq!(
        explained(&query),
        "node $p: Paper\n\
         not\n\
         \u{20} node $q: Paper\n\
         \u{20} hop $p -[Cites]-> $q\n\
         \u{20} filter $q.year > $p.year\n\
         \u{20} not\n\
         \u{20}   node $a: Person\n\
         \u{20}   hop $q -[WrittenBy]-> $a\n\
         \u{20}   filter $a.name = $p.title"
    );
}

#[test]
fn directions_and_operators_resolve_inside_blocks_too() {
    let query = pattern(
        "$a: Person not { $a writtenBy $p $p.title contains $a.name $p.tags contains \"x\" $p <cites> $_ }",
    );
    let shown = explained(&query);
    for line in [
        "hop $a <-[WrittenBy]- $p",
        "hop $p -[Cites]- $_#2",
        "filter $p.title has text $a.name",
        "filter $p.tags has item \"x\"",
    ] {
        assert!(shown.contains(line), "{shown}");
    }
}

#[test]
fn the_same_name_inside_is_the_same_variable() {
    let query = pattern("$p: Paper not { $p: Paper { year: 1 } $p cites $p }");
    assert_eq!(query.variables.len(), 1);
    assert!(query.pattern.negations[0].nodes.is_empty());
    // The order of the text does not matter for what the outer pattern binds.
    let query = pattern("$p: Paper not { $p cites $q } $q: Paper");
    assert_eq!(query.variables.len(), 2);
    refused_pattern("$p: Paper not { $p: Person }", &[("T27", "$p")]);
}

#[test]
fn siblings_have_variables_of_their_own() {
    let query = pattern("$p: Paper not { $p cites $x } not { $p writtenBy $x }");
    assert_eq!(
        explained(&query),
        "node $p: Paper\n\
         not\n\
         \u{20} node $x#1: Paper\n\
         \u{20} hop $p -[Cites]-> $x#1\n\
         not\n\
         \u{20} node $x#2: Person\n\
         \u{20} hop $p -[WrittenBy]-> $x#2"
    );
    // Nothing of a `not` is seen outside.
    refused_pattern("$p: Paper not { $p cites $x } $x.year = 1", &[("T6", "$x")]);
    refused(
        "query t() { match { $p: Paper not { $p cites $x } } return { $x } order { $x.year } }",
        &[("T14", "$x"), ("T6", "$x")],
    );
}

#[test]
fn blocks_name_a_variable_of_the_scope_around() {
    let clause = "not { $q: Paper }";
    refused_pattern(&format!("$p: Paper {clause}"), &[("T25", clause)]);
    let clause = "optional { $q: Paper }";
    refused_pattern(&format!("$p: Paper {clause}"), &[("T25", clause)]);
    pattern("$p: Paper not { $q: Paper $q.year = $p.year }");
    pattern("$p: Paper not { $q: Paper not { $q cites $p } }");
    pattern("$p: Paper not { $p.year = 1 }");
    // The innermost one names something, the one around it does not.
    let clause = "not { $q: Paper not { $q cites $r } }";
    refused_pattern(&format!("$p: Paper {clause}"), &[("T25", clause)]);
    refused_pattern("1 = 1", &[("T25", "{")]);
    let clause = "not { $q: Paper }";
    refused_pattern(clause, &[("T25", "{"), ("T25", clause)]);
    // What changes nothing is an oversight.
    for clause in ["optional { $p.year = 1 }", "optional { $p cites $p }"] {
        refused_pattern(&format!("$p: Paper {clause}"), &[("T25", clause)]);
    }
    pattern("$p: Paper optional { $p $w:cites $p }");
}

#[test]
fn optional_variables_are_read_afterwards() {
    let query = good(
        "match { $p: Paper optional { $p $w:cites $q $q.year > 1 optional { $q writtenBy $a } } \
         $q.year is null or $a.name != \"x\" not { $q cites $z } } \
         return { $p, $q, $q.year, $a.name, $w.id, $p.year as y } order { $a.age }",
    );
    let optional: Vec<(&str, bool)> = query
        .variables
        .iter()
        .map(|v| (v.name.as_str(), v.optional))
        .collect();
    assert_eq!(
        optional,
        [
            ("p", false),
            ("q", true),
            ("w", true),
            ("a", true),
            ("z", false)
        ]
    );
    let nullable: Vec<bool> = query.outputs.iter().map(|output| output.nullable).collect();
    assert_eq!(nullable, [false, true, true, true, true, false]);
    assert_eq!(
        explained(&query),
        "node $p: Paper\n\
         filter ($q.year is null or $a.name != \"x\")\n\
         optional\n\
         \u{20} node $q: Paper\n\
         \u{20} hop $p -[$w: Cites]-> $q\n\
         \u{20} filter $q.year > 1\n\
         \u{20} optional\n\
         \u{20}   node $a: Person\n\
         \u{20}   hop $q -[WrittenBy]-> $a\n\
         not\n\
         \u{20} node $z: Paper\n\
         \u{20} hop $q -[Cites]-> $z"
    );
}

#[test]
fn an_optional_variable_is_no_end_of_a_later_outer_traversal() {
    refused_pattern(
        "$p: Paper optional { $p cites $q } $q cites $r",
        &[("T28", "$q")],
    );
    refused_pattern(
        "$p: Paper optional { $p cites $q } $r cites $q",
        &[("T28", "$q")],
    );
    refused_pattern(
        "$p: Paper optional { $p cites $q } $q: Paper",
        &[("T28", "$q")],
    );
    refused_pattern(
        "$p: Paper optional { $p $w:cites $q } $p $w:cites $r",
        &[("T28", "$w")],
    );
    refused_pattern(
        "$p: Paper optional { $p cites $q optional { $q cites $r } } $r cites $s",
        &[("T28", "$r")],
    );
    // Above the block it is a variable of the outer pattern.
    let query = pattern("$p: Paper $q cites $r optional { $p cites $q $q $w:cites $r }");
    assert!(!query.variables[var(&query, "q")].optional);
    // A later block goes on from it.
    let query = pattern("$p: Paper optional { $p cites $q } optional { $q cites $r }");
    assert_eq!(query.pattern.optionals[1].nodes, [var(&query, "r")]);
    assert!(query.variables[var(&query, "r")].optional);
}

#[test]
fn a_negation_above_an_optional_block_has_its_own_variable() {
    let query =
        pattern("$p: Paper not { $p cites $q } optional { $p cites $q } not { $q cites $p }");
    let named = query.variables.iter().filter(|v| v.name == "q").count();
    assert_eq!(named, 2);
    let optional = query.pattern.optionals[0].nodes[0];
    assert!(query.variables[optional].optional);
    assert_eq!(query.pattern.negations[1].hops[0].left, optional);
    assert_ne!(query.pattern.negations[0].nodes[0], optional);
    // A condition above it does not know it.
    refused_pattern(
        "$p: Paper $q.year = 1 optional { $p cites $q }",
        &[("T6", "$q")],
    );
    assert_eq!(schema().types.len(), 7);
}
