//! What a process has changed on a branch is what its next statement sees there, by the branch's tables.

use stratagraph_udfs::{GraphMutate, LoadMode};

use super::support::*;

async fn names(world: &crate::world::World, branch: &str) -> String {
    let sql = format!("SELECT name FROM sg.\"g@{branch}\".\"Person\" ORDER BY name");
    world.sql(&sql).await.concat().join(" ")
}

#[tokio::test]
async fn every_write_of_a_branch_is_seen_at_once() {
    let world = people().await;
    // Tables are planned from what the process knows, however old the head may be.
    world.sql("SET stratagraph.max_staleness = '60s'").await;
    assert_eq!(names(&world, "b").await, "ann bo cy");
    let mutation = GraphMutate {
        branch: Some("b".to_owned()),
        ..GraphMutate::new("g", "query m() { insert Person { name: \"dee\" } }")
    };
    world.sg.graph_mutate(mutation).await.unwrap();
    assert_eq!(names(&world, "b").await, "ann bo cy dee");
    world
        .sql("DELETE FROM sg.\"g@b\".\"Person\" WHERE name = 'ann'")
        .await;
    assert_eq!(names(&world, "b").await, "bo cy dee");
    let record = person("eve", "");
    world
        .sg
        .load_as("g", "b", None, &record, LoadMode::Append, None)
        .await
        .unwrap();
    assert_eq!(names(&world, "b").await, "bo cy dee eve");
    // A branch that a load has made.
    let record = person("fay", "");
    world
        .sg
        .load_as("g", "c", Some("b"), &record, LoadMode::Append, None)
        .await
        .unwrap();
    assert_eq!(names(&world, "c").await, "bo cy dee eve fay");
    assert_eq!(names(&world, "main").await, "ann bo cy");
}
