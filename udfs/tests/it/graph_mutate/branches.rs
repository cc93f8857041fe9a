//! Mutations, loads and reads of branches, and what merges make of them.

use std::sync::Arc;

use object_store::memory::InMemory;
use stratagraph_udfs::{BranchFrom, GraphLoad, GraphMerge, GraphMutate, Stratagraph};

use super::support::*;
use crate::world::World;

fn on(branch: &str, body: &str) -> GraphMutate {
    GraphMutate {
        branch: Some(branch.to_owned()),
        ..call(body)
    }
}

async fn fork(sg: &Stratagraph, branch: &str) {
    sg.graph_branch_create("g", branch, BranchFrom::Main)
        .await
        .unwrap();
}

async fn changed(sg: &Stratagraph, branch: &str, body: &str) -> (u64, u64) {
    let report = sg.graph_mutate(on(branch, body)).await;
    let report = report.unwrap_or_else(|error| panic!("{body}\n{error}"));
    (report.affected_nodes, report.affected_edges)
}

fn merge_of(source: &str, into: &str) -> GraphMerge {
    GraphMerge {
        graph: "g".to_owned(),
        source: source.to_owned(),
        into: into.to_owned(),
        delete_source: false,
    }
}

async fn merged(sg: &Stratagraph, source: &str, into: &str) -> String {
    sg.graph_branch_merge(&merge_of(source, into))
        .await
        .unwrap()
        .outcome
}

/// Type, id and kind of what keeps two branches apart; the merge is refused and changes nothing.
async fn conflicts(world: &World, source: &str, into: &str) -> Vec<String> {
    let sg = &world.sg;
    let before = version(sg).await;
    let error = sg
        .graph_branch_merge(&merge_of(source, into))
        .await
        .unwrap_err();
    assert_eq!(error.code(), "MergeConflicts");
    assert_eq!(version(sg).await, before);
    let found = sg
        .graph_merge_conflicts(&merge_of(source, into))
        .await
        .unwrap();
    found
        .into_iter()
        .map(|c| format!("{} {} {}", c.r#type, c.id, c.kind))
        .collect()
}

async fn shown(world: &World, branch: &str, of: &str, columns: &str) -> Vec<String> {
    let sql = format!("SELECT {columns} FROM sg.\"g@{branch}\".\"{of}\" ORDER BY 1, 2");
    let rows = world.sql(&sql).await;
    rows.into_iter().map(|row| row.join(" ")).collect()
}

#[tokio::test]
async fn a_branch_is_changed_by_every_verb_and_main_stays() {
    let world = people().await;
    let sg = &world.sg;
    let main = rows(&world, "Person").await;
    fork(sg, "b").await;
    // The first write of a branch expects the commit that made it, a call without effect too.
    let head = world
        .sql("SELECT head FROM graph_branches('g') WHERE branch = 'b'")
        .await;
    let expecting = |body: &str| GraphMutate {
        if_commit: Some(head[0][0].clone()),
        ..on("b", body)
    };
    nothing(sg, expecting(r#"delete Person where name = "nobody""#)).await;
    let insert = r#"insert Person { name: "di" } insert Knows { from: "di", to: "ann" }"#;
    assert_eq!(
        sg.graph_mutate(expecting(insert))
            .await
            .unwrap()
            .affected_edges,
        1
    );
    for body in [insert, r#"delete Person where name = "nobody""#] {
        assert_eq!(
            fails(sg, expecting(body)).await,
            "PreconditionFailed",
            "{body}"
        );
    }
    // A delete with its edges, of two types.
    assert_eq!(
        changed(sg, "b", r#"delete Person where name = "ann""#).await,
        (1, 4)
    );
    assert_eq!(
        changed(sg, "b", r#"update Person set { age: 1 } where name = "bo""#).await,
        (1, 0)
    );
    let text = GraphLoad {
        branch: "b".to_owned(),
        ..GraphLoad::of_text(
            "g",
            lines(&[person("ed", ""), edge("Knows", "k9", "ed", "bo")]),
            Append,
        )
    };
    sg.graph_load(text).await.unwrap();
    assert_eq!(
        shown(&world, "b", "Person", "name, age").await,
        ["bo 1", "cy NULL", "di NULL", "ed NULL"]
    );
    assert_eq!(
        shown(&world, "b", "Knows", "src, dst").await,
        ["bo cy", "ed bo"]
    );
    assert_eq!(shown(&world, "b", "Lives", "src, dst").await, ["bo h"]);
    assert_eq!(rows(&world, "Person").await, main);
    assert_eq!(rows(&world, "Knows").await.len(), 3);
    // What breaks a rule is refused as on the main branch.
    let bad = sg
        .graph_mutate(on("b", r#"insert Knows { from: "bo", to: "ann" }"#))
        .await;
    assert_eq!(bad.unwrap_err().code(), "RecordsInvalid");
    assert_eq!(merged(sg, "b", "main").await, "fast_forward");
    assert_eq!(rows(&world, "Person").await.len(), 4);
    assert_whole(sg).await;
}

#[tokio::test]
async fn traversals_see_what_a_merge_brought() {
    let world = people().await;
    let sg = &world.sg;
    let friends = "SELECT * FROM graph_query('g', 'query q() { match { $p: Person { name: \"ann\" } \
                   $p knows{1,3} $f } return { $f.name } order { $f.name } }')";
    for mode in ["adjacency", "index"] {
        world
            .sql(&format!("SET stratagraph.traversal = '{mode}'"))
            .await;
        assert_eq!(world.sql(friends).await.len(), 2, "{mode}");
    }
    fork(sg, "b").await;
    let body = r#"insert Person { name: "di" } insert Knows { from: "cy", to: "di" } delete Knows where to = "ann""#;
    let mixed = GraphMutate {
        mixed: true,
        ..on("b", body)
    };
    sg.graph_mutate(mixed).await.unwrap();
    done(
        sg,
        call(r#"update Person set { age: 9 } where name = "cy""#),
    )
    .await;
    assert_eq!(merged(sg, "b", "main").await, "merged");
    for mode in ["adjacency", "index"] {
        world
            .sql(&format!("SET stratagraph.traversal = '{mode}'"))
            .await;
        assert_eq!(world.sql(friends).await, [["bo"], ["cy"], ["di"]], "{mode}");
    }
    assert_eq!(rows(&world, "Person").await[2], "cy cy 9 NULL NULL NULL");
    // One commit with two parents: the two heads.
    let last = world
        .row("SELECT kind, parent_ids FROM commits('g') ORDER BY version DESC LIMIT 1")
        .await;
    assert_eq!(last[0], "merge");
    let parents: Vec<&str> = last[1].split(',').collect();
    let b = world
        .row("SELECT head FROM graph_branches('g') WHERE branch = 'b'")
        .await;
    assert!(
        parents.len() == 2 && parents.contains(&b[0].as_str()),
        "{parents:?}"
    );
    assert_eq!(merged(sg, "b", "main").await, "already_up_to_date");
    assert_whole(sg).await;
}

#[tokio::test]
async fn rules_over_several_rows_hold_across_a_merge() {
    let world = people().await;
    let sg = &world.sg;
    fork(sg, "b").await;
    // One tuple on either side; another that only looks alike; a place that both made.
    for (branch, tuple, other, second) in [("main", "p1", "Inn", 1), ("b", "p2", "In", 11)] {
        let text = lines(&[
            place(tuple, "Same", 7),
            place(&format!("{tuple}x"), other, second),
        ]);
        let text = GraphLoad {
            branch: branch.to_owned(),
            ..GraphLoad::of_text("g", text, Append)
        };
        sg.graph_load(text).await.unwrap();
    }
    assert_eq!(
        conflicts(&world, "b", "main").await,
        ["Place p2 unique_violation"]
    );
    let away = r#"update Place set { floor: 8 } where title = "Same""#;
    assert_eq!(changed(sg, "b", away).await, (1, 0));
    assert_eq!(merged(sg, "b", "main").await, "merged");
    // A place may be lived in by each once, and each lives in two at most.
    for (branch, id, to) in [("main", "m1", "p1"), ("b", "b1", "p2")] {
        let text = GraphLoad {
            branch: branch.to_owned(),
            ..GraphLoad::of_text("g", edge("Lives", id, "ann", to), Append)
        };
        sg.graph_load(text).await.unwrap();
    }
    assert_eq!(
        conflicts(&world, "b", "main").await,
        ["Lives ann cardinality_violation"]
    );
    assert_eq!(
        changed(sg, "b", r#"delete Lives where to = "p2""#).await,
        (0, 1)
    );
    // An edge of the main branch whose end the other one deleted, into either.
    done(
        sg,
        call(r#"insert Knows { from: "bo", to: "bo" } insert Knows { from: "bo", to: "cy" }"#),
    )
    .await;
    changed(sg, "b", r#"delete Person where name = "cy""#).await;
    for (source, into) in [("b", "main"), ("main", "b")] {
        let found = conflicts(&world, source, into).await;
        assert!(
            found.len() == 1
                && found[0].starts_with("Knows ")
                && found[0].ends_with(" orphan_edge"),
            "{source} {found:?}"
        );
    }
    assert_whole(sg).await;
}

#[tokio::test]
async fn values_of_every_kind_are_compared_by_a_merge() {
    let schema =
        "node N { name: String @key  tags: [String]?  text: String?  v: Vector(2)?  day: Date? }";
    for (property, first, other) in [
        ("tags", r#"["x", "y"]"#, r#"["x", "z"]"#),
        ("tags", r#"["x,y"]"#, r#"["x", "y"]"#),
        ("tags", "[]", "null"),
        ("text", r#""""#, "null"),
        ("text", r#""null""#, "null"),
        ("v", "[1.0, 0.0]", "[1.0, -0.5]"),
        ("v", "[0.0, 0.0]", "null"),
        ("day", r#"date("2024-02-29")"#, r#"date("2024-03-01")"#),
    ] {
        let world = world(schema).await;
        let sg = &world.sg;
        let insert = format!(
            "insert N {{ name: \"n\", {property}: {first} }} insert N {{ name: \"m\", {property}: {first} }}"
        );
        done(sg, call(&insert)).await;
        fork(sg, "b").await;
        let set = |name: &str, value: &str| {
            format!("update N set {{ {property}: {value} }} where name = \"{name}\"")
        };
        // Changed there, and here another row: the change is seen and taken.
        changed(sg, "b", &set("n", other)).await;
        done(sg, call(&set("m", other))).await;
        assert_eq!(merged(sg, "b", "main").await, "merged");
        let taken = world
            .sql(&format!("SELECT {property} FROM sg.g.\"N\" ORDER BY id"))
            .await;
        assert_eq!(taken[0], taken[1], "{property} {other}");
        // Back on one side, and the same on both: no conflict; then apart.
        changed(sg, "b", &set("n", first)).await;
        done(sg, call(&set("n", first))).await;
        merged(sg, "b", "main").await;
        changed(sg, "b", &set("n", other)).await;
        let third = match property {
            "tags" => r#"["q"]"#,
            "text" => r#""q""#,
            "v" => "[3.0, 4.0]",
            _ => r#"date("1999-01-01")"#,
        };
        done(sg, call(&set("n", third))).await;
        assert_eq!(
            conflicts(&world, "b", "main").await,
            ["N n divergent_update"],
            "{property} {other}"
        );
    }
}

#[tokio::test]
async fn edits_that_undo_each_other_change_nothing() {
    let world = people().await;
    let sg = &world.sg;
    let before = [rows(&world, "Person").await, rows(&world, "Knows").await];
    fork(sg, "b").await;
    for body in [
        r#"update Person set { age: 77 } where name = "bo""#,
        r#"insert Person { name: "tmp" } insert Knows { from: "tmp", to: "bo" }"#,
        r#"update Knows set { since: 5 } where from = "bo""#,
        r#"delete Person where name = "tmp""#,
        r#"update Knows set { since: null } where from = "bo""#,
        r#"update Person set { age: 40 } where name = "bo""#,
    ] {
        changed(sg, "b", body).await;
    }
    // The same row is another one here, which the branch as a whole did not touch.
    done(
        sg,
        call(r#"update Person set { age: 41 } where name = "bo""#),
    )
    .await;
    assert_eq!(merged(sg, "b", "main").await, "merged");
    let mut expected = before[0].clone();
    expected[1] = expected[1].replace(" 40 ", " 41 ");
    assert_eq!(rows(&world, "Person").await, expected);
    assert_eq!(rows(&world, "Knows").await, before[1]);
    // It has been merged: its lineage is recorded.
    assert_eq!(merged(sg, "b", "main").await, "already_up_to_date");
    assert_whole(sg).await;
}

#[tokio::test]
async fn a_graph_lives_through_branches_merges_and_new_processes() {
    let store = Arc::new(InMemory::new());
    let world = world_over(Arc::clone(&store), 1, SCHEMA).await;
    load(
        &world.sg,
        &lines(&[
            person("ann", ""),
            person("bo", ""),
            edge("Knows", "k", "ann", "bo"),
        ]),
        Overwrite,
    )
    .await
    .unwrap();
    let branches = ["one", "two", "three", "four"];
    for branch in branches {
        fork(&world.sg, branch).await;
    }
    for (at, branch) in branches.into_iter().enumerate() {
        let body = format!(
            "insert Person {{ name: \"{branch}\", age: {at} }} insert Knows {{ from: \"{branch}\", to: \"ann\" }}"
        );
        changed(&world.sg, branch, &body).await;
    }
    // Each merge by a process of its own, and a commit of the main branch between any two.
    for (at, branch) in branches.into_iter().enumerate() {
        let next = World::over(Arc::clone(&store), 10 + at as u64).await;
        let outcome = merged(&next.sg, branch, "main").await;
        assert_eq!(
            outcome,
            if at == 0 { "fast_forward" } else { "merged" },
            "{branch}"
        );
        done(
            &next.sg,
            call(&format!(
                "update Person set {{ age: {at} }} where name = \"bo\""
            )),
        )
        .await;
        next.sg.collect_garbage(false).await.unwrap();
    }
    let last = World::over(store, 50).await;
    assert_eq!(
        shown(&last, "main", "Person", "name, age").await,
        ["ann NULL", "bo 3", "four 3", "one 0", "three 2", "two 1"]
    );
    let asked = "SELECT * FROM graph_query('g', 'query q() { match { $a: Person { name: \"ann\" } $p knows $a } \
                 return { count() as n } }')";
    assert_eq!(last.sql(asked).await, [["4"]]);
    // Branches that were merged are behind, and follow.
    assert_eq!(merged(&last.sg, "main", "one").await, "fast_forward");
    assert_eq!(shown(&last, "one", "Person", "name, age").await.len(), 6);
    for branch in branches {
        last.sg.graph_branch_delete("g", branch).await.unwrap();
    }
    last.sg.collect_garbage(false).await.unwrap();
    assert_whole(&last.sg).await;
    assert_eq!(rows(&last, "Knows").await.len(), 5);
    assert_eq!(rows(&world, "Person").await.len(), 6);
}

#[tokio::test]
async fn a_branch_of_the_same_name_is_another_one() {
    let world = people().await;
    let sg = &world.sg;
    let asked = "SELECT * FROM graph_query('g', 'query q() { match { $p knows $f } return { $f.name } order { $f.name } }', \
                 branch => 'b')";
    for mode in ["adjacency", "index"] {
        world
            .sql(&format!("SET stratagraph.traversal = '{mode}'"))
            .await;
        fork(sg, "b").await;
        changed(
            sg,
            "b",
            r#"insert Person { name: "di" } insert Knows { from: "ann", to: "di" }"#,
        )
        .await;
        assert_eq!(world.sql(asked).await.concat(), ["ann", "bo", "cy", "di"]);
        let old = world
            .row("SELECT head FROM graph_branches('g') WHERE branch = 'b'")
            .await;
        sg.graph_branch_delete("g", "b").await.unwrap();
        assert_eq!(world.code(asked).await, "NotFound");
        fork(sg, "b").await;
        // What the process has cached of the first one is not read for the second.
        assert_eq!(world.sql(asked).await.concat(), ["ann", "bo", "cy"]);
        let stale = GraphMutate {
            if_commit: Some(old[0].clone()),
            ..on("b", r#"insert Person { name: "x" }"#)
        };
        assert_eq!(fails(sg, stale).await, "PreconditionFailed");
        let past = asked.replace(
            "branch => 'b'",
            &format!("branch => 'b', snapshot => '{}'", old[0]),
        );
        assert_eq!(world.code(&past).await, "NotFound");
        sg.graph_branch_delete("g", "b").await.unwrap();
    }
}
