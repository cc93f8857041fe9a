//! Overwrite, append and merge.

use super::support::*;
use crate::world::strings;
use stratagraph_udfs::GraphLoad;

async fn people(world: &crate::world::World) -> Vec<String> {
    let sql = "SELECT id, age FROM sg.g.\"Person\" ORDER BY id";
    world
        .sql(sql)
        .await
        .into_iter()
        .map(|r| r.join(" "))
        .collect()
}

#[tokio::test]
async fn nodes_and_edges_come_in_any_order_in_one_commit() {
    let text = lines(&[
        "// people".to_owned(),
        edge("Knows", "", "bo", "ann"),
        edge("knows", "", "bo", "bo"),
        person("bo", "\"age\": 3"),
        String::new(),
        edge("Knows", "", "ann", "bo"),
        edge("Lives", "l", "ann", "home"),
        place("home", "Home", 1),
        person("ann", ""),
    ]);
    let world = world(SCHEMA).await;
    let report = load(&world.sg, &text, Append).await.unwrap();
    assert_eq!((report.nodes_loaded, report.edges_loaded), (3, 4));
    assert_eq!(
        (report.graph.as_str(), report.branch.as_str()),
        ("g", "main")
    );
    assert!(report.base_branch.is_none() && !report.branch_created);
    assert_eq!(people(&world).await, strings(&["ann NULL", "bo 3"]));
    let knows = world
        .sql("SELECT src, dst FROM sg.g.\"Knows\" ORDER BY src, dst")
        .await;
    assert_eq!(knows.concat(), ["ann", "bo", "bo", "ann", "bo", "bo"]);
    assert_eq!(rows(&world, "Lives").await, ["l ann home NULL"]);
    let state = snapshot(&world.sg).await;
    assert_eq!(state.commit_id(), report.commit_id);
    assert_eq!(state.manifest.version, 1);
    assert_whole(&world.sg).await;
}

#[tokio::test]
async fn the_order_of_records_changes_no_row() {
    let mut all = vec![place("h", "Home", 1)];
    for at in 0..40 {
        all.push(person(&format!("p{at:02}"), &format!("\"age\": {at}")));
        let (from, to) = (format!("p{at:02}"), format!("p{:02}", (at * 7) % 40));
        all.push(edge("Knows", &format!("k{at}"), &from, &to));
    }
    let mut states = Vec::new();
    for turn in [0, 13, 50] {
        let mut text = all.clone();
        text.rotate_left(turn);
        let world = world(SCHEMA).await;
        load(&world.sg, &lines(&text), Overwrite).await.unwrap();
        assert_whole(&world.sg).await;
        let state = snapshot(&world.sg).await;
        let mut files = Vec::new();
        for of in &state.schema.types {
            let table = state
                .table(world.sg.catalog().store(), of.id)
                .await
                .unwrap();
            let entries = table
                .table
                .entries
                .entries(world.sg.catalog().store())
                .await
                .unwrap();
            let sums = entries.into_iter().filter_map(|(_, e)| e.fragment);
            files.extend(sums.map(|f| f.file.object.sha256));
        }
        states.push(files);
    }
    assert_eq!(states[0].len(), 3);
    assert!(states.windows(2).all(|pair| pair[0] == pair[1]));
}

#[tokio::test]
async fn append_is_a_strict_insert() {
    let world = world(SCHEMA).await;
    let first = lines(&[person("b", "\"age\": 1"), person("d", "\"age\": 1")]);
    load(&world.sg, &first, Append).await.unwrap();
    let again = lines(&[person("a", ""), person("d", ""), person("b", "")]);
    let error = load(&world.sg, &again, Append).await.unwrap_err();
    assert_eq!(error.code(), "KeyConflict");
    // The first record of the input that is there already.
    assert!(
        error.to_string().contains("\"d\" of \"g.Person\""),
        "{error}"
    );
    let twice = lines(&[
        person("x", ""),
        person("b", ""),
        person("x", ""),
        person("x", ""),
    ]);
    let found = refused(&world.sg, &twice, Append).await;
    let found: Vec<_> = found
        .iter()
        .map(|(r, _, id, rule)| (*r, id.as_str(), *rule))
        .collect();
    assert_eq!(found, [(2, "b", "key"), (3, "x", "key"), (4, "x", "key")]);
    assert_eq!(people(&world).await, strings(&["b 1", "d 1"]));
    load(&world.sg, &person("c", ""), Append).await.unwrap();
    assert_eq!(people(&world).await.len(), 3);
    assert_whole(&world.sg).await;
}

#[tokio::test]
async fn merge_replaces_whole_rows_and_the_last_occurrence_wins() {
    let world = world(SCHEMA).await;
    let first = lines(&[
        person("a", "\"age\": 1, \"email\": \"a@x\""),
        person("b", "\"age\": 2"),
        edge("Knows", "k1", "a", "b"),
        edge("Knows", "k2", "b", "b"),
    ]);
    load(&world.sg, &first, Append).await.unwrap();
    let second = lines(&[
        person("b", "\"age\": 7"),
        person("c", "\"age\": 3"),
        person("a", "\"age\": 8"),
        person("b", "\"age\": 9"),
        edge("Knows", "k1", "c", "a"),
        edge("Knows", "k1", "c", "c"),
        edge("Knows", "k3", "b", "c"),
    ]);
    let report = load(&world.sg, &second, Merge).await.unwrap();
    assert_eq!((report.nodes_loaded, report.edges_loaded), (4, 3));
    let people = rows(&world, "Person").await;
    // What a record leaves out is NULL then.
    assert_eq!(people[0], "a a 8 NULL NULL NULL");
    assert_eq!(people[1], "b b 9 NULL NULL NULL");
    assert_eq!(people.len(), 3);
    assert_eq!(
        rows(&world, "Knows").await,
        ["k1 c c NULL", "k2 b b NULL", "k3 b c NULL"]
    );
    assert_whole(&world.sg).await;
    // Row ids: a, b were 0, 1 and stay; c is new. A moved edge keeps its own.
    let state = snapshot(&world.sg).await;
    assert_eq!(
        state
            .dataset
            .next_rids
            .values()
            .copied()
            .collect::<Vec<_>>(),
        [3, 3]
    );
    // Again over several fragments.
    for turn in 0..3 {
        let text = lines(&[
            person("b", &format!("\"age\": {turn}")),
            person(&format!("n{turn}"), ""),
            edge("Knows", "k2", &format!("n{turn}"), "a"),
        ]);
        load(&world.sg, &text, Merge).await.unwrap();
        assert_whole(&world.sg).await;
    }
    assert_eq!(rows(&world, "Knows").await[1], "k2 n2 a NULL");
    assert_eq!(rows(&world, "Person").await[1], "b b 2 NULL NULL NULL");
    assert_eq!(rows(&world, "Person").await.len(), 6);
}

#[tokio::test]
async fn overwrite_replaces_the_types_that_are_named() {
    let world = world(SCHEMA).await;
    let first = lines(&[
        person("a", ""),
        person("b", ""),
        place("h", "Home", 0),
        edge("Knows", "k", "a", "b"),
        edge("Lives", "l", "a", "h"),
    ]);
    load(&world.sg, &first, Overwrite).await.unwrap();
    let rids = |state: stratagraph::catalog::graph::GraphSnapshot| state.dataset.next_rids;
    let before = rids(snapshot(&world.sg).await);
    // Knows still needs b.
    let second = lines(&[person("a", ""), person("c", "")]);
    let found = refused(&world.sg, &second, Overwrite).await;
    assert_eq!(
        found,
        [(0, "Person".to_owned(), "b".to_owned(), "reference")]
    );
    let load_with = |text: String, types: &[&str]| GraphLoad {
        types: strings(types),
        ..GraphLoad::of_text("g", text, Overwrite)
    };
    world
        .sg
        .graph_load(load_with(second, &["Knows"]))
        .await
        .unwrap();
    assert_eq!(rows(&world, "Person").await.len(), 2);
    assert!(rows(&world, "Knows").await.is_empty());
    // The other types are as they were, and the edge of `a` finds it under its row id.
    assert_eq!(rows(&world, "Lives").await, ["l a h NULL"]);
    assert_whole(&world.sg).await;
    let after = rids(snapshot(&world.sg).await);
    assert_eq!(
        after.values().sum::<u64>(),
        before.values().sum::<u64>() + 1
    );
    // An empty input with types.
    let all = ["Person", "Place", "Knows", "lives"];
    world
        .sg
        .graph_load(load_with(String::new(), &all))
        .await
        .unwrap();
    for of in ["Person", "Place", "Knows", "Lives"] {
        assert!(rows(&world, of).await.is_empty());
    }
    assert_whole(&world.sg).await;
    let error = world
        .sg
        .graph_load(load_with(String::new(), &["No"]))
        .await
        .unwrap_err();
    assert_eq!(error.code(), "InvalidArgument");
    let duplicate = lines(&[person("a", ""), person("a", "")]);
    assert_eq!(refused(&world.sg, &duplicate, Overwrite).await.len(), 1);
}

#[tokio::test]
async fn an_empty_input_is_one_commit_in_every_mode() {
    let world = world(SCHEMA).await;
    for (at, mode) in [Overwrite, Append, Merge].into_iter().enumerate() {
        let report = load(&world.sg, "// nothing\n\n", mode).await.unwrap();
        assert_eq!((report.nodes_loaded, report.edges_loaded), (0, 0));
        assert_eq!(snapshot(&world.sg).await.manifest.version, at as u64 + 1);
    }
    assert_whole(&world.sg).await;
}

#[tokio::test]
async fn ids_that_are_not_given_are_minted() {
    let world = world(SCHEMA).await;
    let untitled = r#"{"type":"Place","data":{"title":"T"}}"#;
    let text = lines(&[
        untitled.to_owned(),
        place("zz", "Given", 1),
        untitled.to_owned(),
        person("a", ""),
        edge("Knows", "", "a", "a"),
    ]);
    load(&world.sg, &text, Append).await.unwrap();
    // The same again: nothing says that they are the same.
    let again = lines(&[untitled.to_owned(), edge("Knows", "", "a", "a")]);
    load(&world.sg, &again, Merge).await.unwrap();
    let ids = world
        .sql("SELECT id FROM sg.g.\"Place\" ORDER BY id")
        .await
        .concat();
    assert_eq!(ids.len(), 4);
    assert_eq!(ids.iter().filter(|id| id.len() == 26).count(), 3);
    assert_eq!(rows(&world, "Knows").await.len(), 2);
    assert_whole(&world.sg).await;
}

#[tokio::test]
async fn a_request_is_done_once() {
    let world = world(SCHEMA).await;
    let call = |text: String, id: &str| GraphLoad {
        requester: stratagraph_udfs::Requester {
            actor: Some("me".to_owned()),
            request_id: Some(id.to_owned()),
        },
        ..GraphLoad::of_text("g", text, Append)
    };
    let first = world
        .sg
        .graph_load(call(person("a", ""), "r1"))
        .await
        .unwrap();
    let again = world
        .sg
        .graph_load(call(person("a", ""), "r1"))
        .await
        .unwrap();
    assert_eq!(first, again);
    world
        .sg
        .graph_load(call(person("b", ""), "r2"))
        .await
        .unwrap();
    let again = world
        .sg
        .graph_load(call(String::new(), "r1"))
        .await
        .unwrap();
    assert_eq!(first, again);
    assert_eq!(snapshot(&world.sg).await.manifest.version, 2);
    let actors = world
        .sql("SELECT actor, kind FROM commits('g') WHERE kind = 'load'")
        .await;
    assert_eq!(actors.concat(), ["me", "load", "me", "load"]);
}

#[tokio::test]
async fn rust_has_both_grammars_under_the_names_of_the_specification() {
    let world = world(SCHEMA).await;
    let strict = person("a", "\"nope\": 1");
    let error = world
        .sg
        .load_graph_batch("g", "main", &strict, Append)
        .await
        .unwrap_err();
    assert_eq!(error.code(), "RecordsInvalid");
    // Compatible: unknown members are passed over, several records on a line.
    let two = format!("{strict} {}", person("b", ""));
    let report = world.sg.load("g", "main", &two, Append).await.unwrap();
    assert_eq!(report.nodes_loaded, 2);
    let actor = Some("me");
    let other = world
        .sg
        .load_graph_batch_as("g", "b", None, "", Append, actor)
        .await;
    assert_eq!(other.unwrap_err().code(), "NotFound");
    // A branch that is there needs no base.
    let based = world
        .sg
        .load_as("g", "main", Some("main"), "", Append, actor)
        .await;
    let based = based.unwrap();
    assert_eq!(based.base_branch.as_deref(), Some("main"));
    assert!(!based.branch_created);
    let missing = world
        .sg
        .load_as("g", "b", Some("c"), "", Append, actor)
        .await;
    assert_eq!(missing.unwrap_err().code(), "NotFound");
    let missing = world.sg.load("nope", "main", "", Append).await;
    assert_eq!(missing.unwrap_err().code(), "NotFound");
}
