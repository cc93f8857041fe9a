//! Several processes and tasks that write one graph, what a write leaves behind, and how much it may hold.

use std::collections::BTreeSet;
use std::sync::Arc;

use object_store::memory::InMemory;
use stratagraph_udfs::{GraphMutate, LoadMode};

use super::support::*;
use crate::world::World;

/// The manifest keys of the tables by type, which change when a table does.
async fn tables(world: &World) -> Vec<(String, String)> {
    let state = snapshot(&world.sg).await;
    let store = world.sg.catalog().store();
    let mut all = Vec::new();
    for of in &state.schema.types {
        let table = state.table(store, of.id).await.unwrap().table;
        all.push((of.name.clone(), format!("{:?}", table.entries)));
    }
    all
}

/// Names of the types whose tables differ.
fn changed(before: &[(String, String)], after: &[(String, String)]) -> Vec<String> {
    let pairs = before.iter().zip(after);
    let changed = pairs.filter(|(a, b)| a != b);
    changed.map(|(a, _)| a.0.clone()).collect()
}

#[tokio::test]
async fn a_write_leaves_the_other_types_alone() {
    let world = people().await;
    let sg = &world.sg;
    let before = tables(&world).await;
    done(sg, call(r#"insert Person { name: "lone" }"#)).await;
    let now = tables(&world).await;
    assert_eq!(changed(&before, &now), ["Person"]);
    // A node without edges goes: the tables of edges stay what they are.
    done(sg, call(r#"delete Person where name = "lone""#)).await;
    let last = tables(&world).await;
    assert_eq!(changed(&now, &last), ["Person"]);
    done(sg, call(r#"insert Knows { from: "ann", to: "ann" }"#)).await;
    assert_eq!(changed(&last, &tables(&world).await), ["Knows"]);
}

#[tokio::test]
async fn a_write_is_one_commit_with_one_fragment_a_type() {
    let world = world(SCHEMA).await;
    let sg = &world.sg;
    let body = r#"insert Person { name: "a" } insert Person { name: "b" } insert Person { name: "c" }
        insert Knows { from: "a", to: "b" } insert Knows { from: "b", to: "c" } insert Knows { from: "c", to: "a" }
        insert Knows { from: "a", to: "c" } update Person set { age: 4 } where name = "b""#;
    assert_eq!(done(sg, call(body)).await, (3, 4));
    let state = snapshot(sg).await;
    assert_eq!(state.manifest.version, 1);
    for of in state
        .schema
        .types
        .iter()
        .filter(|t| ["Person", "Knows"].contains(&t.name.as_str()))
    {
        let table = state
            .table(sg.catalog().store(), of.id)
            .await
            .unwrap()
            .table;
        assert_eq!((table.fragments, table.dead_rows), (1, 0), "{}", of.name);
    }
    // Neither writes nor refused writes leave a branch or anything unreachable.
    fails(sg, call(r#"insert Knows { from: "a", to: "nobody" }"#)).await;
    load(sg, &person("d", ""), Append).await.unwrap();
    load(sg, &person("d", ""), Append).await.unwrap_err();
    assert_eq!(
        world.sql("SELECT branch FROM graph_branches('g')").await,
        [["main"]]
    );
    sg.collect_garbage(false).await.unwrap();
    assert_eq!(sg.collect_garbage(true).await.unwrap().objects, 0);
    assert_eq!(rows(&world, "Person").await.len(), 4);
}

#[tokio::test]
async fn conditions_that_overlap_count_a_row_once_and_nulls_are_no_match() {
    let world = people().await;
    let sg = &world.sg;
    // `cy` has no age: neither condition on it is true, and neither hides the row from the next one.
    let body = r#"delete Person where age > 35 delete Person where age > 30
        delete Person where not (age > 100) and name = "ann" delete Person where name = "cy""#;
    assert_eq!(done(sg, call(body)).await, (3, 5));
    assert!(rows(&world, "Person").await.is_empty());
    let world = people().await;
    let body = r#"delete Knows where since > 1 or since is null delete Knows where from = "ann""#;
    assert_eq!(done(&world.sg, call(body)).await, (0, 3));
}

const WRITERS: usize = 8;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn eight_writers_make_one_line_of_commits() {
    let store = Arc::new(InMemory::new());
    let first = world_over(Arc::clone(&store), 1, SCHEMA).await;
    let mut worlds = Vec::new();
    for at in 0..WRITERS {
        worlds.push(World::over(Arc::clone(&store), 2 + at as u64).await);
    }
    let writers = worlds.iter().enumerate().map(|(at, world)| {
        let sg = world.sg.clone();
        tokio::spawn(async move {
            let own = call(&format!("insert Person {{ name: \"own{at}\", age: {at} }}"));
            sg.graph_mutate(own).await.unwrap();
            // One id that all of them insert strictly, beside one of their own.
            let text = lines(&[
                person("same", &format!("\"age\": {at}")),
                person(&format!("beside{at}"), ""),
            ]);
            let strict = load(&sg, &text, Append).await;
            load(&sg, &person(&format!("more{at}"), ""), Append)
                .await
                .unwrap();
            strict.map_err(|e| e.code())
        })
    });
    let mut outcomes = Vec::new();
    for writer in writers.collect::<Vec<_>>() {
        outcomes.push(writer.await.unwrap());
    }
    let lost = outcomes
        .iter()
        .filter(|o| **o == Err("KeyConflict"))
        .count();
    assert_eq!(
        (lost, outcomes.iter().filter(|o| o.is_ok()).count()),
        (WRITERS - 1, 1),
        "{outcomes:?}"
    );
    let names: BTreeSet<String> = first
        .sql("SELECT name FROM sg.g.\"Person\"")
        .await
        .concat()
        .into_iter()
        .collect();
    assert_eq!(names.len(), 2 * WRITERS + 2);
    // The winner's rows are whole, a loser's are not there.
    let winner = outcomes.iter().position(Result::is_ok).unwrap();
    assert!(names.contains(&format!("beside{winner}")));
    let same = first
        .sql("SELECT age FROM sg.g.\"Person\" WHERE name = 'same'")
        .await;
    assert_eq!(same, [[winner.to_string()]]);
    // One line: every commit has the one before it as its only parent.
    let commits = first
        .sql("SELECT commit_id, parent_ids FROM commits('g') ORDER BY version")
        .await;
    assert_eq!(commits.len(), 2 * WRITERS + 2);
    for pair in commits.windows(2) {
        assert_eq!(pair[1][1], pair[0][0]);
    }
    assert_eq!(version(&first.sg).await, 2 * WRITERS as u64 + 1);
    assert_whole(&first.sg).await;
}

const FRIENDS: &str = "SELECT * FROM graph_query('g', 'query q() { match { $p: Person { name: \"x\" } \
                       $p knows $f } return { $f.name } order { $f.name } }')";

#[tokio::test]
async fn a_process_that_was_open_before_reads_and_changes_the_newest_state() {
    let store = Arc::new(InMemory::new());
    let one = world_over(Arc::clone(&store), 1, SCHEMA).await;
    let two = World::over(Arc::clone(&store), 2).await;
    done(
        &one.sg,
        call(r#"insert Person { name: "x" } insert Person { name: "y" }"#),
    )
    .await;
    // Nodes are there, edges come: the lists that a traversal keeps are those of its state.
    for mode in ["adjacency", "index"] {
        for world in [&one, &two] {
            world
                .sql(&format!("SET stratagraph.traversal = '{mode}'"))
                .await;
        }
        assert!(two.sql(FRIENDS).await.is_empty());
        done(&one.sg, call(r#"insert Knows { from: "x", to: "y" }"#)).await;
        assert_eq!(two.sql(FRIENDS).await, [["y"]]);
        // An update and a delete of a process that had an older head are no conflicts.
        done(
            &two.sg,
            call(r#"update Knows set { to: "x", since: 3 } where from = "x""#),
        )
        .await;
        assert_eq!(one.sql(FRIENDS).await, [["x"]]);
        let aged = format!(
            "update Person set {{ age: {} }} where name = \"y\"",
            mode.len()
        );
        done(&one.sg, call(&aged)).await;
        done(&two.sg, call(r#"delete Knows where from = "x""#)).await;
        assert!(one.sql(FRIENDS).await.is_empty());
    }
    // A process that is new sees what those see that wrote it.
    let fresh = World::over(store, 3).await;
    for of in ["Person", "Knows"] {
        assert_eq!(rows(&fresh, of).await, rows(&one, of).await);
        assert_eq!(rows(&fresh, of).await, rows(&two, of).await);
    }
    // A commit that a read has named is the one that a write expects.
    let head = two
        .sql("SELECT head FROM graph_branches('g') WHERE branch = 'main'")
        .await;
    let expected = GraphMutate {
        if_commit: Some(head[0][0].clone()),
        ..call(r#"insert Person { name: "z" }"#)
    };
    assert_eq!(done(&one.sg, expected.clone()).await, (1, 0));
    assert_eq!(fails(&two.sg, expected).await, "PreconditionFailed");
}

#[tokio::test]
async fn no_number_of_rows_is_too_many() {
    // One more than 8,192 by every verb and mode.
    const ROWS: usize = 8_193;
    let world = world(SCHEMA).await;
    let sg = &world.sg;
    let all: Vec<String> = (0..ROWS)
        .map(|n| person(&format!("p{n:05}"), "\"age\": 1"))
        .collect();
    for mode in [LoadMode::Append, LoadMode::Merge, LoadMode::Overwrite] {
        let report = load(sg, &lines(&all), mode).await.unwrap();
        assert_eq!(report.nodes_loaded as usize, ROWS, "{mode:?}");
    }
    let update = call("update Person set { age: 2 } where age = 1");
    assert_eq!(done(sg, update).await, (ROWS as u64, 0));
    let sum = world
        .sql("SELECT count(*), sum(age) FROM sg.g.\"Person\"")
        .await;
    assert_eq!(sum, [[ROWS.to_string(), (2 * ROWS).to_string()]]);
    assert_eq!(
        done(sg, call("delete Person where age = 2")).await,
        (ROWS as u64, 0)
    );
    // A row that is wider than what a table of it may hold elsewhere.
    let note = "x".repeat(40 << 20);
    world.sql("SET stratagraph.line_bytes = 60000000").await;
    let data = format!("{{\"id\":\"l\",\"note\":\"{note}\"}}");
    let wide = lines(&[
        person("a", ""),
        place("h", "Home", 1),
        edge("Lives", "l", "a", "h").replace("{\"id\":\"l\"}", &data),
    ]);
    load(sg, &wide, Append).await.unwrap();
    let length = world.sql("SELECT length(note) FROM sg.g.\"Lives\"").await;
    assert_eq!(length, [[note.len().to_string()]]);
}
