//! Every rule, with the number of the record, and in a fixed order.

use super::support::*;

type Row<'a> = (u64, &'a str, &'a str, &'static str);

async fn check(
    base: &[String],
    text: &[String],
    mode: stratagraph_udfs::LoadMode,
    expected: &[Row<'_>],
) {
    let world = world(SCHEMA).await;
    load(&world.sg, &lines(base), Append).await.unwrap();
    let before = snapshot(&world.sg).await.manifest.version;
    let found = refused(&world.sg, &lines(text), mode).await;
    let found: Vec<Row<'_>> = found
        .iter()
        .map(|(r, t, i, rule)| (*r, t.as_str(), i.as_str(), *rule))
        .collect();
    assert_eq!(found, expected);
    assert_eq!(snapshot(&world.sg).await.manifest.version, before);
}

#[tokio::test]
async fn rules_of_one_record_and_of_several_are_listed_together() {
    let text = [
        edge("Knows", "k", "a", "nobody"),
        person("a", "\"age\": 200"),
        person("b", "\"status\": \"gone\""),
        person("c", "\"code\": \"X1\""),
        person("d", "\"age\": \"x\""),
        r#"{"type":"Place","data":{}}"#.to_owned(),
        "{".to_owned(),
        person("e", "\"email\": \"e@x\""),
        person("f", "\"email\": \"e@x\""),
    ];
    let expected = [
        (1, "Knows", "k", "reference"),
        (2, "Person", "a", "range"),
        (3, "Person", "b", "enum"),
        (4, "Person", "c", "check"),
        (5, "Person", "d", "type"),
        (6, "Place", "", "required"),
        (7, "", "", "syntax"),
        (9, "Person", "f", "unique"),
    ];
    // The edge is refused for its destination alone: its source is refused for itself.
    check(&[], &text, Append, &expected).await;
    check(&[], &text, Overwrite, &expected).await;
    check(&[], &text, Merge, &expected).await;
}

#[tokio::test]
async fn tuples_are_unique_in_the_load_and_beside_what_stays() {
    let base = [
        place("p1", "A", 1),
        place("p2", "B", 1),
        person("x", "\"email\": \"x@x\""),
    ];
    let text = [
        place("q1", "A", 2),
        place("q2", "A", 2),
        place("q3", "A", 1),
        person("y", "\"email\": \"x@x\""),
        // A NULL in the tuple exempts it.
        r#"{"type":"Place","data":{"title":"A"}}"#.to_owned(),
        r#"{"type":"Place","data":{"title":"A"}}"#.to_owned(),
    ];
    let expected = [
        (2, "Place", "q2", "unique"),
        (3, "Place", "q3", "unique"),
        (4, "Person", "y", "unique"),
    ];
    check(&base, &text, Append, &expected).await;
    check(&base, &text, Merge, &expected).await;
    check(&base, &text, Overwrite, &expected[..1]).await;
    // A replaced row frees its tuple.
    let world = world(SCHEMA).await;
    load(&world.sg, &lines(&base), Append).await.unwrap();
    let swap = lines(&[place("p1", "B", 1), place("p2", "A", 1)]);
    load(&world.sg, &swap, Merge).await.unwrap();
    let found = refused(&world.sg, &place("p1", "A", 1), Merge).await;
    assert_eq!(found.len(), 1);
}

#[tokio::test]
async fn edges_are_unique_by_their_ends() {
    let base = [
        person("a", ""),
        place("h", "H", 1),
        place("i", "I", 1),
        edge("Lives", "l1", "a", "h"),
    ];
    let again = [edge("Lives", "l2", "a", "h")];
    check(&base, &again, Append, &[(1, "Lives", "l2", "unique")]).await;
    let moved = [edge("Lives", "l1", "a", "i"), edge("Lives", "l2", "a", "h")];
    let world = world(SCHEMA).await;
    load(&world.sg, &lines(&base), Append).await.unwrap();
    load(&world.sg, &lines(&moved), Merge).await.unwrap();
    assert_eq!(rows(&world, "Lives").await, ["l1 a i NULL", "l2 a h NULL"]);
    assert_whole(&world.sg).await;
}

#[tokio::test]
async fn ends_are_found_in_the_load_and_in_the_store() {
    let base = [person("a", ""), person("b", "")];
    let text = [
        edge("Knows", "k1", "a", "c"),
        edge("Knows", "k2", "c", "x"),
        edge("Lives", "l", "a", "b"),
        person("c", ""),
    ];
    let expected = [
        (2, "Knows", "k2", "reference"),
        (3, "Lives", "l", "reference"),
    ];
    check(&base, &text, Append, &expected).await;
    check(&base, &text, Merge, &expected).await;
    // An overwrite of the type leaves only its own rows.
    let expected = [
        (1, "Knows", "k1", "reference"),
        (2, "Knows", "k2", "reference"),
        (3, "Lives", "l", "reference"),
        (3, "Lives", "l", "reference"),
    ];
    check(&base, &text, Overwrite, &expected).await;
}

#[tokio::test]
async fn sources_that_the_load_touches_keep_to_their_cardinality() {
    let schema = "
node N { name: String @key }
edge Has: N -> N @card(2..3)
";
    let world = world(schema).await;
    let node = |name: &str| format!("{{\"type\":\"N\",\"data\":{{\"name\":\"{name}\"}}}}");
    let has = |id: &str, from: &str| edge("Has", id, from, "a");
    let base = lines(&[
        node("a"),
        node("b"),
        node("c"),
        has("1", "a"),
        has("2", "a"),
        has("3", "b"),
        has("4", "b"),
        has("5", "b"),
    ]);
    load(&world.sg, &base, Append).await.unwrap();
    let ids = |found: Vec<(u64, String, String, &'static str)>| -> Vec<(u64, String)> {
        assert!(found.iter().all(|(_, _, _, rule)| *rule == "cardinality"));
        found
            .into_iter()
            .map(|(record, _, id, _)| (record, id))
            .collect()
    };
    // Too many, and too few of a new source.
    let text = lines(&[has("6", "b"), has("7", "c")]);
    let found = ids(refused(&world.sg, &text, Append).await);
    assert_eq!(found, [(1, "b".to_owned()), (2, "c".to_owned())]);
    // A moved edge counts at the source that it leaves.
    let text = lines(&[has("1", "c"), has("7", "c")]);
    let found = ids(refused(&world.sg, &text, Merge).await);
    assert_eq!(found, [(0, "a".to_owned())]);
    let text = lines(&[has("3", "a"), node("d")]);
    load(&world.sg, &text, Merge).await.unwrap();
    assert_whole(&world.sg).await;
    // An overwrite of the edges touches all sources; one that loses all edges has too few.
    let text = lines(&[has("x", "a"), has("y", "a")]);
    let found = ids(refused(&world.sg, &text, Overwrite).await);
    assert_eq!(found, [(0, "b".to_owned())]);
    // Sources that go themselves are not asked.
    let text = lines(&[node("a"), has("x", "a"), has("y", "a")]);
    load(&world.sg, &text, Overwrite).await.unwrap();
    assert_eq!(rows(&world, "Has").await.len(), 2);
    assert_whole(&world.sg).await;
}

#[tokio::test]
async fn a_dry_run_lists_and_a_full_list_ends() {
    let world = world(SCHEMA).await;
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.jsonl");
    let many: Vec<String> = (0..150)
        .map(|at| person(&format!("p{at}"), "\"age\": -1"))
        .collect();
    std::fs::write(&path, lines(&many)).unwrap();
    let file = path.display();
    let sql = format!("SELECT * FROM graph_load('g', '{file}', 'append', dry_run => true)");
    let rows = world.sql(&sql).await;
    assert_eq!(rows.len(), 100);
    assert_eq!(rows[99][..4], ["100", "Person", "p99", "range"]);
    let (code, text) = world.error(&sql.replace(", dry_run => true", "")).await;
    assert_eq!(code, "RecordsInvalid");
    assert!(text.contains("150 violations"), "{text}");
    std::fs::write(&path, person("a", "")).unwrap();
    assert!(world.sql(&sql).await.is_empty());
    assert_eq!(snapshot(&world.sg).await.manifest.version, 0);
}

#[tokio::test]
async fn words_and_files_are_checked() {
    let world = world(SCHEMA).await;
    let dir = tempfile::tempdir().unwrap();
    for (name, text) in [
        ("b.jsonl", person("b", "")),
        ("a.ndjson", person("a", "\"age\": 1")),
    ] {
        std::fs::write(dir.path().join(name), text).unwrap();
    }
    let dir = dir.path().display().to_string();
    let call = |rest: &str| format!("SELECT * FROM graph_load('g', '{dir}/*', {rest})");
    for wrong in [
        "'upsert'",
        "'append', grammar => 'loose'",
        "'append', embed => 'yes'",
        "'append', on_error => 'skip'",
        "'append', on_error => 'null'",
        "'append', types => 'Person'",
    ] {
        let (code, text) = world.error(&call(wrong)).await;
        assert_eq!(code, "InvalidArgument", "{wrong}");
        assert!(text.contains('\''), "{text}");
    }
    let missing = "'append', branch => 'b'";
    assert_eq!(world.code(&call(missing)).await, "NotFound");
    let none = "SELECT * FROM graph_load('g', '/nowhere/x.jsonl', 'append')";
    assert_eq!(world.code(none).await, "NotFound");
    let row = world.row(&call("'append'")).await;
    assert_eq!(row[..6], ["g", "main", "NULL", "false", "2", "0"]);
    world.sql("SET stratagraph.allow_writes = false").await;
    assert_eq!(world.code(&call("'merge'")).await, "WritesNotAllowed");
}
