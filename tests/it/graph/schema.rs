//! The schema language: what compiles to what, every diagnostic, limits, stored schemas.

use std::fmt::Write;

use stratagraph::graph::diagnostic::Diagnostic;
use stratagraph::graph::schema::{Bound, GraphSchema, Member, pattern, table_columns};
use stratagraph::graph::value::{Scalar, ValueType};
use stratagraph::table::manifest::Layout;
use stratagraph::table::schema::{arrow_schema, graph_schema, id};
use stratagraph::{Error, limits};

use super::mutate;

const GOLDEN: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/golden/schema.txt");
const DOCS: &str = include_str!("../../../docs/pg.md");

const PAPERS: &str = r#"
interface Named { title: String @index  created: DateTime? }
node Paper implements Named {
  doi: String @key
  kind: enum(article, preprint, book) @index
  year: I32 @index
  tags: [String]?
  abstract_text: String? @index(analyzer = "english")
  emb: Vector(384) @embed("title", model = "static") @index(metric = "cosine", kind = "hnsw")
  pdf: Blob?
  @unique(title, year)
  @range(year, 1900..2100)
  @check(doi, "^10\\.")
}
node Author { orcid: String @key  name: String }
edge Cites: Paper -> Paper @card(0..) { weight: F32?  note: String?  @index(weight) }
edge WrittenBy: Paper -> Author @card(1..) { pos: U32  @unique(src, dst) }
"#;

fn compile(text: &str) -> GraphSchema {
    GraphSchema::compile(text).unwrap_or_else(|e| panic!("{e}\n{text}"))
}

fn findings(text: &str) -> Vec<Diagnostic> {
    match GraphSchema::compile(text) {
        Err(Error::SchemaInvalid { diagnostics }) => diagnostics.0,
        other => panic!("{other:?}\n{text}"),
    }
}

/// What `what` names when a limit refuses `text`; `None` if it compiles.
fn limited(text: &str) -> Option<&'static str> {
    match GraphSchema::compile(text) {
        Ok(_) => None,
        Err(Error::ResourceLimitExceeded { what, .. }) => Some(what),
        Err(other) => panic!("{other}"),
    }
}

fn outcome(text: &str) -> String {
    let mut out = String::new();
    match GraphSchema::compile(text) {
        Ok(schema) => {
            for interface in &schema.interfaces {
                writeln!(out, "{}", serde_json::to_string(interface).unwrap()).unwrap();
            }
            for graph_type in &schema.types {
                writeln!(out, "{}", serde_json::to_string(graph_type).unwrap()).unwrap();
            }
        }
        Err(Error::SchemaInvalid { diagnostics }) => {
            for diagnostic in diagnostics.0 {
                let at = text.get(diagnostic.span.clone()).unwrap();
                writeln!(out, "{diagnostic}\n     <- {at:?}").unwrap();
            }
        }
        Err(other) => writeln!(out, "{other}").unwrap(),
    }
    out
}

#[test]
fn every_case_has_its_outcome() {
    let golden = std::fs::read_to_string(GOLDEN).unwrap();
    let mut made = String::new();
    for case in golden.split("=== ").skip(1) {
        let (name, rest) = case.split_once('\n').unwrap();
        let (text, _) = rest.split_once("\n---\n").unwrap();
        made += &format!("=== {name}\n{text}\n---\n{}", outcome(text));
    }
    if std::env::var_os("UPDATE").is_some() {
        std::fs::write(GOLDEN, &made).unwrap();
    }
    let golden = std::fs::read_to_string(GOLDEN).unwrap();
    assert!(
        made == golden,
        "outcomes changed; UPDATE=1 rewrites tests/it/golden/schema.txt:\n{made}"
    );
}

#[test]
fn a_schema_compiles_to_types_with_ids_in_the_order_of_the_text() {
    let schema = compile(PAPERS);
    assert_eq!(schema.source, PAPERS);
    let types: Vec<_> = schema
        .types
        .iter()
        .map(|t| (t.id, t.name.as_str()))
        .collect();
    let names = [(1, "Paper"), (2, "Author"), (3, "Cites"), (4, "WrittenBy")];
    assert_eq!(types, names);
    assert_eq!((schema.next_type, schema.next_property), (5, 16 + 14));

    let paper = schema.node("Paper").unwrap();
    let inherited: Vec<_> = paper
        .properties
        .iter()
        .map(|p| (p.id, p.name.as_str()))
        .collect();
    assert_eq!(
        inherited[..3],
        [(16, "title"), (17, "created"), (18, "doi")]
    );
    assert_eq!(paper.key, [18]);
    assert_eq!(paper.implements, ["Named"]);
    assert_eq!(paper.unique, [[Member::Property(16), Member::Property(20)]]);
    let embed = paper.property("emb").unwrap().embed.as_ref().unwrap();
    assert_eq!((embed.source, embed.model.as_deref()), (16, Some("static")));
    let kind = &paper.property("kind").unwrap().value_type;
    let sorted = ["article", "book", "preprint"].map(str::to_owned);
    assert_eq!(*kind, ValueType::Enum(sorted.to_vec()));
    // The injected `@index` comes first.
    assert_eq!(paper.indexes[0].members, [Member::Property(16)]);
    assert_eq!(paper.ranges[0].min, Some(Bound::Int("1900".to_owned())));
    assert_eq!(paper.checks[0].pattern, "^10\\.");
    assert!(
        pattern(&paper.checks[0].pattern)
            .unwrap()
            .is_match("10.1/x")
    );

    let cites = schema.edge("cites").unwrap().edge.as_ref().unwrap();
    assert_eq!(
        (cites.from, cites.to, cites.min, cites.max),
        (1, 1, 0, None)
    );
    let written = schema.edge("WRITTENBY").unwrap();
    assert_eq!(written.edge.as_ref().unwrap().min, 1);
    assert_eq!(written.unique, [[Member::Src, Member::Dst]]);
    assert!(schema.edge("Schröder").is_none() && schema.node("paper").is_none());
}

#[test]
fn tables_have_the_properties_behind_the_system_columns() {
    let schema = compile(PAPERS);
    for graph_type in &schema.types {
        let columns = table_columns(graph_type).unwrap();
        let table = graph_schema(graph_type.layout(), 0, &columns).unwrap();
        let arrow = arrow_schema(&table).unwrap();
        let system = table.columns.len() - columns.len();
        assert_eq!(system, if graph_type.is_edge() { 6 } else { 2 });
        assert_eq!(graph_type.layout() == Layout::Edge, graph_type.is_edge());
        for (field, property) in arrow.fields()[system..].iter().zip(&graph_type.properties) {
            assert_eq!(field.data_type(), &property.value_type.arrow());
            assert_eq!(field.is_nullable(), property.nullable);
        }
    }
}

#[test]
fn a_blob_is_a_type_that_graphs_cannot_hold_yet() {
    let error = compile(PAPERS).unsupported().unwrap();
    let named = "the Blob property Paper.pdf";
    assert!(matches!(error, Error::NotYetSupported { feature } if feature == named));
    assert!(compile("node N { a: String }").unsupported().is_none());
}

#[test]
fn every_code_has_an_example_and_a_fix_in_the_documentation() {
    let mut codes = Vec::new();
    for row in DOCS.lines().filter(|line| line.starts_with("| `S0")) {
        let cells: Vec<_> = row.trim_matches('|').split(" | ").map(str::trim).collect();
        let [code, _, wrong, right] = cells[..] else {
            panic!("four cells: {row}")
        };
        let plain = |cell: &str| cell.trim_matches('`').to_owned();
        let found = findings(&plain(wrong));
        assert!(
            found.iter().any(|d| d.code == plain(code)),
            "{row}\n{found:?}"
        );
        assert_eq!(found.len(), 1, "{row}\n{found:?}");
        compile(&plain(right));
        codes.push(plain(code));
    }
    let all: Vec<_> = (1..=24).map(|n| format!("S{n:03}")).collect();
    assert_eq!(codes, all);
    for code in all {
        let golden = std::fs::read_to_string(GOLDEN).unwrap();
        assert!(
            golden.contains(&format!("\n{code} at ")),
            "{code} has a case"
        );
    }
}

#[test]
fn the_schemas_of_the_documentation_compile() {
    let blocks: Vec<_> = DOCS.split("```pg\n").skip(1).collect();
    assert!(blocks.len() >= 2);
    for block in blocks {
        compile(block.split("```").next().unwrap());
    }
}

#[test]
fn diagnostics_have_exact_spans() {
    let text = "node N {\n  ok: String @description(\"ä€\") bad: Foo }";
    let found = findings(text);
    assert_eq!(&text[found[0].span.clone()], "Foo");
    assert_eq!((found[0].line, found[0].column), (2, 38));
    let again = Diagnostic::new(text, found[0].span.clone(), "S007", "", "");
    assert_eq!((again.line, again.column), (2, 38));
}

#[test]
fn all_findings_come_in_the_order_of_their_places() {
    let found = findings("node a { B: Foo c: Vector(0) }\nedge d: X -> Y { src: Bar }");
    let codes: Vec<_> = found.iter().map(|d| d.code).collect();
    let expected = [
        "S003", "S003", "S007", "S008", "S003", "S011", "S011", "S006", "S007",
    ];
    assert_eq!(codes, expected);
    assert!(found.is_sorted_by_key(|d| d.span.start));
}

fn properties(count: usize, value_type: &str) -> String {
    (0..count).map(|n| format!("p{n}:{value_type} ")).collect()
}

#[test]
fn a_text_has_limits_of_bytes_tokens_and_nesting() {
    let node = "node N{a:Bool}";
    let bytes = |n: usize| format!("{node}{}", " ".repeat(n - node.len()));
    let most = limits::LANGUAGE_BYTES;
    assert_eq!(limited(&bytes(most - 1)), None);
    assert_eq!(limited(&bytes(most)), None);
    assert_eq!(limited(&bytes(most + 1)), Some("bytes of a schema"));

    // 7 tokens are the node; each `@a` is two.
    let tokens = |n: usize| {
        let odd = if n.is_multiple_of(2) { "?" } else { "" };
        format!("node N{{a:Bool{odd}{}}}", " @a".repeat((n - 7) / 2))
    };
    let most = limits::LANGUAGE_TOKENS;
    assert_eq!(limited(&tokens(most - 1)), None);
    assert_eq!(limited(&tokens(most)), None);
    assert_eq!(limited(&tokens(most + 1)), Some("tokens of a schema"));

    // The brace is one level; the grammar reads lists in lists, the compiler refuses them.
    let nested = |n: usize| {
        let (open, close) = ("[".repeat(n - 1), "]".repeat(n - 1));
        GraphSchema::compile(&format!("node N {{ a: {open}Bool{close} }}")).unwrap_err()
    };
    let most = limits::LANGUAGE_DEPTH;
    assert_eq!(nested(most - 1).code(), "SchemaInvalid");
    assert_eq!(nested(most).code(), "SchemaInvalid");
    assert_eq!(nested(most + 1).code(), "ResourceLimitExceeded");
}

#[test]
fn a_schema_has_limits_of_types_properties_and_widths() {
    let types = |n: usize| {
        (0..n)
            .map(|n| format!("node N{n}{{}} "))
            .collect::<String>()
    };
    let most = limits::GRAPH_TYPES;
    assert_eq!(limited(&types(most - 1)), None);
    assert_eq!(limited(&types(most)), None);
    assert_eq!(limited(&types(most + 1)), Some("types of a graph"));

    for (system, head) in [(2, "node N"), (6, "node N {} edge E: N -> N")] {
        let text = |n: usize| format!("{head} {{ {} }}", properties(n - system, "Bool"));
        assert_eq!(limited(&text(limits::COLUMNS - 1)), None);
        assert_eq!(limited(&text(limits::COLUMNS)), None);
        assert_eq!(limited(&text(limits::COLUMNS + 1)), Some("columns"));
    }

    let width = |n: u128| limited(&format!("node N {{ v: Vector({n}) }}"));
    let most = limits::DIMENSIONS as u128;
    assert_eq!((width(most - 1), width(most)), (None, None));
    assert_eq!(width(most + 1), Some("dimensions"));
    assert_eq!(width(u128::MAX), Some("dimensions"));

    let name = |n: usize| GraphSchema::compile(&format!("node {} {{}}", "N".repeat(n)));
    assert!(name(limits::NAME_BYTES - 1).is_ok() && name(limits::NAME_BYTES).is_ok());
    assert_eq!(
        name(limits::NAME_BYTES + 1).unwrap_err().code(),
        "SchemaInvalid"
    );
}

#[test]
fn interfaces_do_not_multiply_past_the_limits() {
    let wide = |own: usize| {
        let nodes: String = (0..16)
            .map(|n| format!("node N{n} implements I {{}} "))
            .collect();
        let own = properties(own, "Bool");
        format!(
            "interface I {{ {} }} {nodes} node O {{ {own} }}",
            properties(4_090, "Bool")
        )
    };
    let rest = limits::GRAPH_PROPERTIES - 16 * 4_090;
    assert_eq!(limited(&wide(rest - 1)), None);
    assert_eq!(limited(&wide(rest)), None);
    assert_eq!(limited(&wide(rest + 1)), Some("properties of a graph"));

    let long = "x".repeat(900_000);
    let nodes: String = (0..20)
        .map(|n| format!("node N{n} implements I {{}} "))
        .collect();
    let text = format!("interface I {{ a: Bool @description(\"{long}\") }} {nodes}");
    assert_eq!(limited(&text), Some("bytes of a compiled schema"));

    let patterns = |n: usize| {
        let checks: String = (0..n).map(|n| format!("@check(\"{n}\") ")).collect();
        limited(&format!(
            "node N {{ a: String {checks} b: String @check(\"0\") }}"
        ))
    };
    let most = limits::GRAPH_PATTERNS;
    assert_eq!((patterns(most - 1), patterns(most)), (None, None));
    assert_eq!(patterns(most + 1), Some("patterns of a schema"));
}

#[test]
fn a_stored_schema_reads_back_and_another_spelling_is_refused() {
    let schema = compile(PAPERS);
    let bytes = schema.encode().unwrap();
    assert_eq!(GraphSchema::decode("p", &bytes).unwrap(), schema);

    let text = String::from_utf8(bytes).unwrap();
    let newer = text.replacen("\"format\":1", "\"format\":2", 1);
    let error = GraphSchema::decode("p", newer.as_bytes()).unwrap_err();
    assert!(matches!(
        error,
        Error::IncompatibleFormat {
            found: 2,
            supported: 1,
            ..
        }
    ));
    let spaced = text.replacen("\"format\":1", "\"format\": 1", 1);
    let error = GraphSchema::decode("p", spaced.as_bytes()).unwrap_err();
    assert_eq!(error.code(), "Corrupt");
    let long = vec![b' '; limits::METADATA_BYTES as usize + 1];
    let error = GraphSchema::decode("p", &long).unwrap_err();
    assert_eq!(error.code(), "ResourceLimitExceeded");
}

type Change = fn(&mut GraphSchema);
/// Damages of [`PAPERS`].
const CHANGES: [(&str, Change); 33] = [
    ("types", |s| s.types.clear()),
    ("type name", |s| s.types[0].name = "paper".to_owned()),
    ("type name twice", |s| s.types[1].name = "Paper".to_owned()),
    ("edge name in case", |s| {
        s.types[3].name = "CITES".to_owned()
    }),
    ("type id 0", |s| s.types[0].id = 0),
    ("type id twice", |s| s.types[1].id = 1),
    ("type id above", |s| s.next_type = 4),
    ("property id below", |s| s.types[0].properties[0].id = 15),
    ("property id twice", |s| s.types[1].properties[0].id = 16),
    ("property id above", |s| s.next_property = 20),
    ("property id past the last", |s| {
        s.types[1].properties[1].id = id::LAST + 1;
        s.next_property = u64::MAX;
    }),
    ("property name", |s| {
        s.types[1].properties[1].name = "Name".to_owned()
    }),
    ("property name twice", |s| {
        s.types[1].properties[1].name = "orcid".to_owned()
    }),
    ("reserved name", |s| {
        s.types[1].properties[1].name = "id".to_owned()
    }),
    ("vector", |s| {
        s.types[0].properties[7].value_type = ValueType::Vector(0)
    }),
    ("wide vector", |s| {
        s.types[0].properties[7].value_type = ValueType::Vector(65_537)
    }),
    ("enum order", |s| {
        let values = ["b", "a"].map(str::to_owned).to_vec();
        s.types[0].properties[3].value_type = ValueType::Enum(values);
    }),
    ("enum without values", |s| {
        s.types[0].properties[3].value_type = ValueType::Enum(Vec::new());
    }),
    ("interface", |s| {
        s.types[0].implements = vec!["Other".to_owned()]
    }),
    ("interface of an edge", |s| {
        s.types[2].implements = vec!["Named".to_owned()]
    }),
    ("interface name", |s| {
        s.interfaces[0].name = "Paper".to_owned()
    }),
    ("edge to an edge", |s| {
        s.types[2].edge.as_mut().unwrap().to = 4
    }),
    ("cardinality", |s| {
        s.types[3].edge.as_mut().unwrap().max = Some(0)
    }),
    ("key of an edge", |s| {
        s.types[3].key = vec![s.types[3].properties[0].id]
    }),
    ("nullable key", |s| s.types[0].properties[2].nullable = true),
    ("unknown key", |s| s.types[0].key = vec![99]),
    ("unique is the key", |s| {
        s.types[0].unique = vec![vec![Member::Property(18)]]
    }),
    ("ends of a node", |s| {
        s.types[0].unique = vec![vec![Member::Src]]
    }),
    ("index twice", |s| {
        s.types[0].indexes[1] = s.types[0].indexes[0].clone()
    }),
    ("option", |s| {
        let option = ("metric".to_owned(), "l2".to_owned());
        s.types[0].indexes[0].options.extend([option]);
    }),
    ("bound", |s| {
        s.types[0].ranges[0].max = Some(Bound::Int("01".to_owned()))
    }),
    ("pattern", |s| s.types[0].checks[0].pattern = "(".to_owned()),
    ("embed", |s| {
        s.types[0].properties[7].embed.as_mut().unwrap().source = 20
    }),
];

#[test]
fn a_stored_schema_that_no_compiler_made_is_corrupt() {
    for (what, change) in CHANGES {
        let mut schema = compile(PAPERS);
        change(&mut schema);
        let error = GraphSchema::decode("p", &schema.encode().unwrap()).unwrap_err();
        assert_eq!(error.code(), "Corrupt", "{what}: {error}");
    }
}

#[test]
fn bounds_are_exact() {
    let bounds = |text: &str| {
        let schema = compile(&format!("node N {{ {text} }}"));
        let range = schema.types[0].ranges[0].clone();
        (range.min, range.max)
    };
    let int = |text: &str| Some(Bound::Int(text.to_owned()));
    let float = |text: &str| Some(Bound::Float(text.to_owned()));
    // A one-sided upper bound is no lower bound.
    assert_eq!(bounds("a: I32 @range(a, ..5)"), (None, int("5")));
    assert_eq!(bounds("a: I32 @range(a, -5..)"), (int("-5"), None));
    let large = "18446744073709551615";
    let text = format!("a: U64 @range(9007199254740993..{large})");
    assert_eq!(bounds(&text), (int("9007199254740993"), int(large)));
    assert_eq!(
        bounds("a: F64 @range(a, -0..0.1)"),
        (float("0.0"), float("0.1"))
    );
    // The bound is the value of the type, so that a stored 0.1 is within it.
    let (_, max) = bounds("a: F32 @range(a, ..0.1)");
    assert_eq!(max, float("0.10000000149011612"));
}

/// Seeds of the fuzz test: the cases of the golden file, those that compile more often, and the
/// schema above.
fn seeds() -> Vec<String> {
    let golden = std::fs::read_to_string(GOLDEN).unwrap();
    let cases = golden.split("=== ").skip(1);
    let text = |case: &str| Some(case.split_once('\n')?.1.split_once("\n---\n")?.0.to_owned());
    let mut seeds: Vec<_> = cases.filter_map(text).collect();
    seeds.push(PAPERS.to_owned());
    let good = |text: &&String| GraphSchema::compile(text).is_ok();
    let good: Vec<_> = seeds.iter().filter(good).cloned().collect();
    seeds.extend(good.into_iter().cycle().take(500));
    seeds
}

#[test]
fn no_text_panics_and_what_compiles_stays_the_same() {
    let seeds = seeds();
    let seeds: Vec<_> = seeds.iter().map(String::as_str).collect();
    let tokens = [
        "node ",
        "edge ",
        "interface ",
        " implements ",
        "{",
        "}",
        "(",
        ")",
        "[",
        "]",
        ":",
        ",",
        "?",
        "->",
        "..",
        "@key",
        "@unique(",
        "@index",
        "@range(",
        "@check(\"",
        "@embed(\"",
        "@card(",
        "String",
        "Vector(",
        "enum(",
        "src",
        "dst",
        "-1",
        "1.5e3",
        "\"",
        "\\",
        "/*",
        "*/",
        "//",
    ];
    let mut compiled = 0;
    mutate::fuzz(&seeds, &tokens, |text| match GraphSchema::compile(text) {
        Ok(schema) => {
            compiled += 1;
            let bytes = schema.encode().unwrap();
            let read = GraphSchema::decode("p", &bytes);
            let read = read.unwrap_or_else(|e| panic!("{e}\n{text}"));
            assert_eq!(read, schema, "{text}");
            assert_eq!(compile(&schema.source), schema, "{text}");
            for graph_type in &schema.types {
                let columns = table_columns(graph_type).unwrap();
                graph_schema(graph_type.layout(), 0, &columns).unwrap();
            }
        }
        Err(Error::SchemaInvalid { diagnostics }) => {
            assert!(!diagnostics.0.is_empty(), "{text}");
            for d in &diagnostics.0 {
                assert!(text.get(d.span.clone()).is_some(), "{text}\n{d}");
                assert!(!d.message.is_empty() && !d.fix.is_empty(), "{text}\n{d}");
                let plain = Diagnostic::new(text, d.span.clone(), d.code, "", "");
                assert_eq!(
                    (plain.line, plain.column),
                    (d.line, d.column),
                    "{text}\n{d}"
                );
            }
        }
        Err(Error::ResourceLimitExceeded { .. }) => {}
        Err(other) => panic!("{other}\n{text}"),
    });
    assert!(compiled > 200, "{compiled} inputs compile");
}

#[test]
fn every_scalar_is_a_type_and_a_list() {
    for scalar in Scalar::ALL {
        let name = scalar.name();
        let schema = compile(&format!("node N {{ a: {name} b: [{name}]? }}"));
        let [a, b] = &schema.types[0].properties[..] else {
            panic!("two properties")
        };
        assert_eq!(a.value_type, ValueType::Scalar(scalar));
        assert_eq!(
            (&b.value_type, b.nullable),
            (&ValueType::List(scalar), true)
        );
    }
}
