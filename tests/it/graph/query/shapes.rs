//! Traversals: directions, bounds, edges that are bound, ends that nothing else types.

use stratagraph::graph::query::{Direction, Hop};

use super::fixture::{explained, pattern, refused_pattern, schema, var, wrong};

fn hop(clauses: &str) -> Hop {
    let mut hops = pattern(clauses).pattern.hops;
    assert_eq!(hops.len(), 1);
    hops.remove(0)
}

fn direction(clauses: &str) -> Direction {
    hop(clauses).direction
}

#[test]
fn directions_follow_from_the_types_of_the_ends() {
    assert_eq!(
        direction("$p: Paper $a: Person $p writtenBy $a"),
        Direction::Out
    );
    assert_eq!(
        direction("$p: Paper $a: Person $a writtenBy $p"),
        Direction::In
    );
    assert_eq!(direction("$p: Paper $p writtenBy $a"), Direction::Out);
    assert_eq!(direction("$a: Person $a writtenBy $p"), Direction::In);
    assert_eq!(direction("$a: Person $p writtenBy $a"), Direction::Out);
    assert_eq!(direction("$p: Paper $a writtenBy $p"), Direction::In);
    assert_eq!(direction("$x writtenBy $y"), Direction::Out);
    // Between nodes of one type the left side is the source, whatever is bound.
    assert_eq!(direction("$a: Paper $b: Paper $a cites $b"), Direction::Out);
    assert_eq!(direction("$b: Paper $a cites $b"), Direction::Out);
    assert_eq!(direction("$a <cites> $b"), Direction::Both);
    assert_eq!(direction("$p: Paper $p cites $p"), Direction::Out);
}

#[test]
fn edges_are_named_without_regard_to_case() {
    for word in ["cites", "Cites", "CITES"] {
        let clauses = format!("$a {word} $b");
        assert_eq!(hop(&clauses).edge, schema().edge("Cites").unwrap().id);
    }
}

#[test]
fn ends_are_typed_by_other_traversals_whatever_their_order() {
    // $y is typed as a person by the second traversal only.
    let query = pattern("$x writtenBy $y $y knows $z");
    assert_eq!(
        explained(&query),
        "node $x: Paper\nnode $y: Person\nnode $z: Person\n\
         hop $x -[WrittenBy]-> $y\nhop $y -[Knows]-> $z"
    );
    let query = pattern("$y writtenBy $x $y knows $z");
    assert!(explained(&query).contains("hop $y <-[WrittenBy]- $x"));
    // Neither is typed before the last one, which types both in turn.
    let query = pattern("$c worksAt $b $a writtenBy $b $b knows $d");
    assert!(explained(&query).contains("hop $c <-[WorksAt]- $b\nhop $a -[WrittenBy]-> $b"));
    // A binding below does as one above.
    assert_eq!(direction("$a writtenBy $p $p: Paper"), Direction::In);
}

#[test]
fn edge_only_patterns_have_all_their_parts() {
    let query = pattern("$p: Paper $a knows $b $b worksAt $_");
    assert_eq!(query.pattern.nodes.len(), 4);
    assert_eq!(query.pattern.hops.len(), 2);
    let types: Vec<u64> = query.variables.iter().map(|v| v.type_id).collect();
    let person = schema().node("Person").unwrap().id;
    assert_eq!(types[1..3], [person, person]);
}

#[test]
fn each_anonymous_variable_is_one_of_its_own() {
    let query = pattern("$p: Paper $p cites $_ $p writtenBy $_ $_: Company { name: \"x\" }");
    assert_eq!(
        explained(&query),
        "node $p: Paper\nnode $_#1: Paper\nnode $_#2: Person\nnode $_#3: Company\n\
         hop $p -[Cites]-> $_#1\nhop $p -[WrittenBy]-> $_#2\nfilter $_#3.name = \"x\""
    );
}

#[test]
fn ends_of_other_types_are_refused() {
    refused_pattern("$p: Paper $p knows $q", &[("T5", "knows")]);
    refused_pattern(
        "$p: Paper $q: Paper $p writtenBy $q",
        &[("T5", "writtenBy")],
    );
    refused_pattern("$c: Company $c writtenBy $q", &[("T5", "writtenBy")]);
    refused_pattern("$a writtenBy $a", &[("T5", "writtenBy")]);
    refused_pattern("$a cites $b $a knows $b", &[("T5", "knows")]);
    let message = wrong("query t() { match { $c: Company $c writtenBy $q } return { count() } }");
    assert!(message[0].2.contains("`Paper` and `Person`"), "{message:?}");
}

#[test]
fn only_edges_of_one_type_have_no_direction() {
    refused_pattern("$p: Paper $p <writtenBy> $a", &[("T22", "writtenBy")]);
    refused_pattern(
        "$q: Paper not { $q cites $p $p <writtenBy> $a }",
        &[("T22", "writtenBy")],
    );
}

#[test]
fn bounds_are_distances_from_one_to_the_limit() {
    let bounded = |clauses: &str| {
        let hop = hop(clauses);
        (hop.min, hop.max, hop.bounded)
    };
    assert_eq!(bounded("$a cites $b"), (1, 1, false));
    assert_eq!(bounded("$a cites{1,3} $b"), (1, 3, true));
    assert_eq!(bounded("$a <cites> { 2 , 2 } $b"), (2, 2, true));
    for bounds in [
        "{0,1}",
        "{3,2}",
        "{1,65}",
        "{1,99999999999}",
        "{1,}",
        "{0,0}",
    ] {
        refused_pattern(&format!("$a cites{bounds} $b"), &[("T26", bounds)]);
    }
    // Between two types there is one hop.
    assert_eq!(bounded("$a writtenBy{1,3} $b"), (1, 1, true));
    refused_pattern("$a writtenBy{2,3} $b", &[("T29", "{2,3}")]);
}

#[test]
fn bound_edges_are_variables_of_their_own() {
    let query = pattern("$a: Paper $a $w:cites $b $w.weight >= 0.5 $a $u:<cites> $c");
    let w = &query.variables[var(&query, "w")];
    assert!(w.is_edge && w.type_id == schema().edge("Cites").unwrap().id);
    assert_eq!(query.pattern.hops[0].binding, Some(var(&query, "w")));
    assert_eq!(query.pattern.hops[1].direction, Direction::Both);
    assert!(!query.pattern.nodes.contains(&var(&query, "w")));
    refused_pattern("$a $w:cites $b $w.zzz = 1", &[("T6", "zzz")]);
}

#[test]
fn bound_edges_are_refused_where_they_are_no_edges() {
    refused_pattern("$a $w:cites{1,2} $b", &[("T23", "$w")]);
    refused_pattern("$w: Paper $a $w:cites $b", &[("T23", "$w")]);
    refused_pattern("$a $w:cites $b $w: Paper", &[("T23", "$w")]);
    refused_pattern("$a $w:cites $b $b $w:cites $c", &[("T23", "$w")]);
    refused_pattern("$a $b:cites $b", &[("T23", "$b")]);
    refused_pattern("$a $w:cites $b $w cites $c", &[("T23", "$w")]);
    refused_pattern("$a $w:cites $b $w = $a", &[("T23", "$w")]);
    refused_pattern("$a $w:cites $b search($w.note, \"x\")", &[("T23", "$w")]);
    refused_pattern("$a $w:cites $b not { $a $w:cites $c }", &[("T23", "$w")]);
}

#[test]
fn rows_are_bound_once_a_name_and_again_only_as_the_same_type() {
    let query = pattern("$a: Paper { year: 1 } $a: Paper { doi: \"x\" } $a cites $a");
    assert_eq!(query.variables.len(), 1);
    assert_eq!(query.pattern.filters.len(), 2);
    refused_pattern("$a: Paper $a: Person", &[("T27", "$a")]);
    let clash = "query t($p: String) { match { $p: Paper } return { count() } }";
    super::fixture::refused(clash, &[("T27", "$p")]);
}

#[test]
fn cycles_and_triangles_keep_every_hop() {
    let query =
        pattern("$a: Paper $b: Paper $a cites $b $b cites $a $a cites $b $a cites $c $b cites $c");
    assert_eq!(query.pattern.nodes.len(), 3);
    assert_eq!(query.pattern.hops.len(), 5);
}
