//! What differs between two states, against a model that remembers them all.

use std::collections::BTreeMap;

use stratagraph::sim::Rng;
use stratagraph_udfs::{ApplySchema, GraphChangeRow, GraphState};

use crate::graph_mutate::support::*;
use crate::world::World;

const TYPES: [&str; 3] = ["Person", "Place", "Knows"];

/// Rows by type and id.
type Content = BTreeMap<(String, String), String>;

/// The rows of the head in the columns that every schema of this test has.
async fn content(world: &World) -> Content {
    let mut content = Content::new();
    for (of, columns) in [
        ("Person", "id, name, age, email"),
        ("Place", "id, title, floor"),
        ("Knows", "id, src, dst, since"),
    ] {
        let sql = format!("SELECT {columns} FROM sg.g.\"{of}\"");
        for row in world.sql(&sql).await {
            content.insert((of.to_owned(), row[0].clone()), row[1..].join(" "));
        }
    }
    content
}

fn expected(from: &Content, to: &Content) -> Vec<(String, String, String)> {
    let mut rows = Vec::new();
    for of in TYPES {
        let ids = from.keys().chain(to.keys()).filter(|key| key.0 == of);
        let ids: std::collections::BTreeSet<_> = ids.collect();
        for key in ids {
            let change = match (from.get(key), to.get(key)) {
                (None, Some(_)) => "added",
                (Some(_), None) => "deleted",
                (was, is) if was != is => "changed",
                _ => continue,
            };
            rows.push((key.0.clone(), key.1.clone(), change.to_owned()));
        }
    }
    rows
}

fn shown(rows: Vec<GraphChangeRow>) -> Vec<(String, String, String)> {
    let row = |r: GraphChangeRow| (r.r#type, r.id, r.change);
    rows.into_iter().map(row).collect()
}

fn statement(rng: &mut Rng) -> String {
    let (a, b, n) = (rng.below(9), rng.below(9), rng.below(50));
    match rng.below(7) {
        0 | 1 => format!("insert Person {{ name: \"p{a}\", age: {n} }}"),
        2 => format!("update Person set {{ age: {n} }} where name = \"p{a}\""),
        3 => format!("delete Person where name = \"p{a}\""),
        4 => format!("insert Place {{ title: \"t{a}\", floor: {n} }}"),
        5 => format!("update Knows set {{ since: {n} }} where from = \"p{a}\""),
        _ => format!("insert Knows {{ from: \"p{a}\", to: \"p{b}\", since: {n} }}"),
    }
}

#[tokio::test]
async fn any_two_states_differ_as_a_model_says() {
    let world = world(SCHEMA).await;
    let mut rng = Rng::new(5);
    let mut states = vec![(
        snapshot(&world.sg).await.commit_id().to_owned(),
        Content::new(),
    )];
    for turn in 0..60 {
        match world.sg.graph_mutate(call(&statement(&mut rng))).await {
            Ok(report) => match report.commit_id {
                Some(commit) => states.push((commit, content(&world).await)),
                None => continue,
            },
            Err(error) => assert_eq!(error.code(), "RecordsInvalid"),
        }
        // A property that only one of two states has changes no row.
        if turn == 30 {
            let more = SCHEMA.replace("floor: I64?", "floor: I64? note: String?");
            world
                .sg
                .graph_apply_schema(&ApplySchema::new("g", more))
                .await
                .unwrap();
        }
    }
    assert!(states.len() > 30);
    for _ in 0..60 {
        let pick = |rng: &mut Rng| usize::try_from(rng.below(states.len() as u64)).unwrap();
        let (from, to) = (&states[pick(&mut rng)], &states[pick(&mut rng)]);
        let commit = |id: &String| GraphState::Commit(id.clone());
        let (a, b) = (commit(&from.0), commit(&to.0));
        let found = world.sg.graph_changes("g", None, &a, &b).await.unwrap();
        assert_eq!(shown(found), expected(&from.1, &to.1));
    }
}

#[tokio::test]
async fn branches_and_versions_are_states_too() {
    let world = people().await;
    let before = snapshot(&world.sg).await.catalog_version;
    world
        .sg
        .graph_branch_create("g", "b", Default::default())
        .await
        .unwrap();
    let mut on_b =
        call("insert Person { name: \"new\" } update Person set { age: 1 } where name = \"ann\"");
    on_b.branch = Some("b".to_owned());
    world.sg.graph_mutate(on_b).await.unwrap();
    let now = snapshot(&world.sg).await.catalog_version;
    let all = GraphState::Catalog(now);
    let made = GraphState::Catalog(before + 1);
    let found = world
        .sg
        .graph_changes("g", Some("b"), &made, &all)
        .await
        .unwrap();
    let found: Vec<String> = shown(found)
        .into_iter()
        .map(|r| format!("{} {}", r.1, r.2))
        .collect();
    assert_eq!(found, ["ann changed", "new added"]);
    let none = world
        .sg
        .graph_changes("g@b", None, &all, &all)
        .await
        .unwrap();
    assert!(none.is_empty());
    let main = world
        .sg
        .graph_changes("g", None, &made, &all)
        .await
        .unwrap();
    assert!(main.is_empty());
    for (from, code) in [
        (GraphState::Commit("none".to_owned()), "NotFound"),
        (GraphState::Catalog(0), "VersionUnavailable"),
    ] {
        let error = world
            .sg
            .graph_changes("g", None, &from, &all)
            .await
            .unwrap_err();
        assert_eq!(error.code(), code);
    }
}

/// A row that was deleted and made again with the same values is the same row.
#[tokio::test]
async fn a_row_that_came_back_is_no_change() {
    let world = people().await;
    let before = GraphState::Commit(snapshot(&world.sg).await.commit_id().to_owned());
    done(&world.sg, call("delete Knows where from = \"ann\"")).await;
    done(
        &world.sg,
        call("update Person set { age: 99 } where name = \"ann\""),
    )
    .await;
    done(
        &world.sg,
        call("update Person set { age: 30 } where name = \"ann\""),
    )
    .await;
    let after = GraphState::Commit(snapshot(&world.sg).await.commit_id().to_owned());
    let found = world
        .sg
        .graph_changes("g", None, &before, &after)
        .await
        .unwrap();
    assert_eq!(
        shown(found),
        [("Knows".to_owned(), "k1".to_owned(), "deleted".to_owned())]
    );
    let found = world
        .sg
        .graph_changes("g", None, &after, &before)
        .await
        .unwrap();
    assert_eq!(
        shown(found),
        [("Knows".to_owned(), "k1".to_owned(), "added".to_owned())]
    );
}
