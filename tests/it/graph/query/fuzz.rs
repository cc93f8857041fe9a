//! Damaged queries and parameters: never a panic, and what compiles is well formed.

use stratagraph::Error;
use stratagraph::graph::query::{
    Action, Block, Expr, Mutation, Query, Rank, compile, compile_mutation, params, parse,
};
use stratagraph::graph::schema::GraphSchema;
use stratagraph::graph::value::Value;
use stratagraph::limits;

use super::fixture::schema;
use crate::graph::mutate::fuzz;

const QUERIES: [&str; 10] = [
    r#"query a($doi: String, $from: Date?, $q: Vector(3)) @description("x") {
        match { $p: Paper { doi: $doi, kind: "article" } $c $e:cites $p $e.weight >= 0.5
        $c.title starts_with "Graph" $c <cites>{1,3} $x
        not { $c writtenBy $a $a.name = "Anon" } search($c.abstract, "index") }
        return { $c.doi, $e.weight as w, $x.title } order { nearest($c.emb, $q) } limit 10 }"#,
    r#"query b($n: U64, $k: I64) { match { $p: Paper optional { $p cites $q $q.year > -1
        optional { $q writtenBy $a } } $q.year is null or ($a.age > 3 and not $p.open) }
        return distinct { $p.kind, $q.year as y } order { y desc, $p.kind } skip $k limit $n }"#,
    r#"query c() { match { $a: Person $a knows{1,2} $b $a worksAt $_ } return { $b.name,
        count() as n, count(distinct $a) as d, sum($a.age), avg($a.age), min($a.name), max($b) }
        order { n desc, max($a.age) } } // end"#,
    r#"query d($s: String) { match { $p: Paper { tags: "x", at: now(), day: date("2020-01-01") }
        $p.tags contains $s $p.title contains "y" fuzzy($p.title, $s, 2) match_text($p.title, "z") }
        return { $p, rrf(nearest($p.emb, [1, 2.5, -3]), bm25($p.title, $s), 60) as r }
        order { r desc } limit 3 } query e() { match { $x cites $y } return { $x } }"#,
    r#"query f() { insert Paper { doi: "x" } delete Cites where src = "y" }"#,
    r#"query g($m: DateTime) { match { $w: Company $p $k:knows $q $k.since < date("2020-02-29")
        $p != $q $p worksAt $w /* x */ } return { $k.id as i, $p.age = 3 as t, now(), $m } }"#,
    "query h() { match { $p cites $q } return { $p } }",
    "query i() { match { $p: Paper optional { $p cites $q } } return { $q.year } limit 1 }",
    "query j() { match { $a: Person not { $a knows $c } } return { count() } }",
    "query k($s: String) { match { $p: Paper { doi: $s } not $p.open } return { $p.day } }",
];

const TOKENS: [&str; 60] = [
    "query",
    "match",
    "return",
    "distinct",
    "order",
    "skip",
    "limit",
    "not",
    "optional",
    "{",
    "}",
    "(",
    ")",
    "[",
    "]",
    ",",
    ":",
    ".",
    "@",
    "?",
    "<",
    ">",
    "=",
    "!=",
    "<=",
    "contains",
    "starts_with",
    "is",
    "null",
    "and",
    "or",
    "as",
    "asc",
    "desc",
    "$p",
    "$c",
    "$_",
    "$q",
    "$s",
    "Paper",
    "Person",
    "cites",
    "knows",
    "writtenBy",
    "{1,3}",
    "{2,2}",
    "\"x\"",
    "1",
    "-2.5",
    "true",
    "now()",
    "count()",
    "count($p)",
    "sum($p.year)",
    "$p.year",
    "$p.tags",
    "date(\"2020-01-01\")",
    "\"",
    "\\",
    "//",
];

const MUTATIONS: [&str; 4] = [
    r#"query a($t: String, $n: I64?, $v: Vector(3)?) { insert Paper { doi: $t, title: "x", kind: "book",
        year: 3 open: true, tags: ["a"], emb: [1, 2.5, -3], at: now(), pages: $n, note: null } }"#,
    r#"query b($y: I32) @description("x") { update Paper set { year: $y, abstract: title, big: 7 }
        where (year >= $y or day is null) and not kind = "book" and title starts_with "A"
        update Cites set { to: $y, note: from } where from = "x" and to != "y" }"#,
    r#"query c($i: String) { delete Cites where id = $i delete Paper where tags contains $i } // end"#,
    "query d() { insert Person { name: \"a\" } insert Knows { from: \"a\", to: \"a\", since: null }
        upsert Person { name: \"b\" } upsert Paper partial { doi: \"c\" } }",
];

const WORDS: [&str; 48] = [
    "query",
    "insert",
    "upsert",
    "partial",
    "update",
    "set",
    "delete",
    "where",
    "not",
    "and",
    "or",
    "is",
    "null",
    "{",
    "}",
    "(",
    ")",
    "[",
    "]",
    ",",
    ":",
    "=",
    "!=",
    "<=",
    "contains",
    "starts_with",
    "Paper",
    "Person",
    "Cites",
    "Knows",
    "doi",
    "title",
    "year",
    "tags",
    "from",
    "to",
    "id",
    "note",
    "$t",
    "$y",
    "\"x\"",
    "1",
    "-2.5",
    "true",
    "now()",
    "count()",
    "$p.x",
    "\"",
];

#[test]
fn damaged_mutations_are_refused_or_well_formed() {
    let schema = schema();
    let mut compiled = 0;
    fuzz(&MUTATIONS, &WORDS, |text| {
        let Ok(decls) = parse(text) else {
            typed(text, compile_mutation(text, None, &schema, true).err());
            return;
        };
        for decl in &decls {
            match compile_mutation(text, Some(&decl.name.text), &schema, true) {
                Ok(mutation) => {
                    compiled += 1;
                    sound(&mutation, &schema);
                }
                Err(error) => typed(text, Some(error)),
            }
        }
    });
    assert!(compiled > 50, "{compiled} compile");
}

fn sound(mutation: &Mutation, schema: &GraphSchema) {
    assert!(!mutation.statements.is_empty());
    for statement in &mutation.statements {
        let owner = schema.by_id(statement.row.type_id).unwrap();
        assert_eq!(owner.is_edge(), statement.row.is_edge);
        let (values, condition) = match &statement.action {
            Action::Insert(values) | Action::Upsert { values, .. } => (values.as_slice(), None),
            Action::Update { values, condition } => (values.as_slice(), Some(condition)),
            Action::Delete { condition } => (&[][..], Some(condition)),
        };
        for expr in values.iter().map(|v| &v.value).chain(condition) {
            expr.visit(&mut |expr| match expr {
                Expr::Param(at) => assert!(*at < mutation.params.len()),
                Expr::Property(0, id) => assert!(owner.property_by_id(*id).is_some()),
                Expr::End(0, _) => assert!(owner.is_edge()),
                Expr::Id(var) => assert_eq!(*var, 0),
                Expr::Property(..) | Expr::End(..) => panic!("{expr:?}"),
                Expr::Aggregate { .. } | Expr::Output(_) | Expr::Search(_) | Expr::Rank(_) => {
                    panic!("{expr:?}")
                }
                _ => {}
            });
        }
    }
}

#[test]
fn damaged_queries_are_refused_or_well_formed() {
    let schema = schema();
    let mut compiled = 0;
    fuzz(&QUERIES, &TOKENS, |text| {
        let Ok(decls) = parse(text) else {
            typed(text, compile(text, None, &schema).err());
            return;
        };
        for decl in &decls {
            match compile(text, Some(&decl.name.text), &schema) {
                Ok(query) => {
                    compiled += 1;
                    well_formed(&query, &schema);
                }
                Err(error) => typed(text, Some(error)),
            }
        }
    });
    assert!(compiled > 200, "{compiled} compile");
}

#[test]
fn the_seeds_are_well_formed() {
    let schema = schema();
    for text in QUERIES {
        for decl in parse(text).unwrap() {
            match compile(text, Some(&decl.name.text), &schema) {
                Ok(query) => well_formed(&query, &schema),
                Err(error) => assert!(error.to_string().contains("Q012"), "{error}"),
            }
        }
    }
}

#[test]
fn damaged_parameters_are_refused_or_fit() {
    let text = "query t($a: I32, $b: [String]?, $c: Vector(2)?, $d: Date?, $e: DateTime?, $f: F64?, \
                $g: U64?, $h: Bool?) { match { $p: Paper } return { $p } }";
    let query = compile(text, None, &schema()).unwrap();
    let seeds = [
        r#"{"a": 3}"#,
        r#"{"a": 3, "b": []}"#,
        r#"{"a": 3, "b": ["x", "y"], "c": [1.5, -2], "d": "2020-01-31", "h": true}"#,
        r#"{"a": -7, "e": "2020-01-31T00:00:00.5Z", "f": 1e3, "g": 18446744073709551615}"#,
    ];
    let tokens = [
        "{", "}", "[", "]", ",", ":", "null", "1", "-1", "1.5", "1e400", "\"a\"", "\"", "\\u00e9",
        "true",
    ];
    let mut fitted = 0;
    fuzz(&seeds, &tokens, |text| {
        match params::from_json(text, &query.params) {
            Ok(values) => {
                fitted += 1;
                assert_eq!(values.len(), 8);
                assert!(
                    matches!(values[0], Value::Int(a) if i32::try_from(a).is_ok()),
                    "{text}"
                );
            }
            Err(error) => typed(text, Some(error)),
        }
    });
    assert!(fitted > 200, "{fitted} fit");
}

/// That an error is one of the languages', with findings inside the text.
fn typed(text: &str, error: Option<Error>) {
    match error {
        Some(Error::QueryInvalid { diagnostics }) => {
            assert!(!diagnostics.0.is_empty(), "{text}");
            for found in &diagnostics.0 {
                let about = found.span.end == 0 || text.get(found.span.clone()).is_some();
                assert!(about && !found.fix.is_empty(), "{text}\n{found:?}");
            }
        }
        Some(Error::ResourceLimitExceeded { .. }) => {}
        Some(other) => panic!("{text}\n{other}"),
        None => panic!("parses only: {text}"),
    }
}

fn well_formed(query: &Query, schema: &GraphSchema) {
    for variable in &query.variables {
        let owner = schema.by_id(variable.type_id).unwrap();
        assert_eq!(owner.is_edge(), variable.is_edge);
    }
    let mut introduced = vec![0; query.variables.len()];
    block(&query.pattern, query, schema, &mut introduced);
    assert!(introduced.iter().all(|times| *times == 1), "{introduced:?}");
    assert!(!query.outputs.is_empty());
    for expr in query.exprs() {
        expr.visit(&mut |expr| expression(expr, query, schema));
    }
    let outputs = query.outputs.iter().map(|output| &output.expr);
    for expr in outputs.chain(&query.pattern.filters) {
        expr.visit(&mut |expr| assert!(!matches!(expr, Expr::Output(_))));
    }
    for filter in &query.pattern.filters {
        assert!(!filter.aggregates());
    }
    query.explain(schema);
}

fn block(block_of: &Block, query: &Query, schema: &GraphSchema, introduced: &mut [u32]) {
    for var in &block_of.nodes {
        introduced[*var] += 1;
        assert!(!query.variables[*var].is_edge);
    }
    for hop in &block_of.hops {
        let edge = schema.by_id(hop.edge).unwrap().edge.as_ref().unwrap();
        let ends = [
            query.variables[hop.left].type_id,
            query.variables[hop.right].type_id,
        ];
        assert!(ends == [edge.from, edge.to] || ends == [edge.to, edge.from]);
        assert!(1 <= hop.min && hop.min <= hop.max && hop.max <= limits::HOPS);
        assert!(hop.bounded || hop.max == 1);
        if let Some(var) = hop.binding {
            assert!(!hop.bounded && query.variables[var].type_id == hop.edge);
            introduced[var] += 1;
        }
    }
    for inner in block_of.optionals.iter().chain(&block_of.negations) {
        block(inner, query, schema, introduced);
    }
}

fn expression(expr: &Expr, query: &Query, schema: &GraphSchema) {
    let property = |(var, id): (usize, u64)| {
        let owner = schema.by_id(query.variables[var].type_id).unwrap();
        assert!(owner.property_by_id(id).is_some());
    };
    match expr {
        Expr::Literal(value) => {
            let null = matches!(value, Value::Null);
            let infinite = matches!(value, Value::Float(value) if !value.is_finite());
            assert!(!null && !infinite);
        }
        Expr::Param(at) => assert!(*at < query.params.len()),
        Expr::Id(var) => assert!(*var < query.variables.len()),
        Expr::Property(var, id) => property((*var, *id)),
        Expr::Output(at) => assert!(*at < query.outputs.len()),
        Expr::And(all) | Expr::Or(all) => assert!(all.len() > 1),
        Expr::Search(search) => property(search.field),
        Expr::Rank(rank) => match rank.as_ref() {
            Rank::Nearest { field, .. } | Rank::Bm25 { field, .. } => property(*field),
            Rank::Hops { .. } | Rank::Rrf { .. } => {}
        },
        _ => {}
    }
}
