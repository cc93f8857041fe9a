//! Who asks, on which state, and how often.

use std::sync::Arc;

use object_store::memory::InMemory;
use stratagraph::publish::Requester;
use stratagraph_udfs::{GraphMutate, QueryParams};

use super::support::*;

fn asked(id: &str, call: GraphMutate) -> GraphMutate {
    GraphMutate {
        requester: Requester {
            actor: Some("me".to_owned()),
            request_id: Some(id.to_owned()),
        },
        ..call
    }
}

#[tokio::test]
async fn a_request_is_done_once() {
    let world = people().await;
    let sg = &world.sg;
    let body = r#"delete Person where name = "ann""#;
    let first = sg.graph_mutate(asked("one", call(body))).await.unwrap();
    assert_eq!((first.affected_nodes, first.affected_edges), (1, 3));
    done(sg, call(r#"insert Person { name: "ann" }"#)).await;
    let again = sg.graph_mutate(asked("one", call(body))).await.unwrap();
    assert_eq!(again, first);
    assert_eq!(rows(&world, "Person").await.len(), 3);
    let other = asked("one", call(r#"delete Person where name = "bo""#));
    assert_eq!(fails(sg, other).await, "RequestIdReused");
    let commit = snapshot(sg).await;
    assert_eq!(commit.manifest.version, 3);
}

#[tokio::test]
async fn parameters_are_part_of_a_request() {
    let world = people().await;
    let sg = &world.sg;
    let query = "query m($n: String) { insert Person { name: $n } }";
    let json = |json: &str| {
        let params = QueryParams::Json(json.to_owned());
        let call = GraphMutate {
            params,
            ..GraphMutate::new("g", query)
        };
        asked("p", call)
    };
    let first = sg.graph_mutate(json(r#"{"n": "x"}"#)).await.unwrap();
    assert_eq!(
        sg.graph_mutate(json(r#"{ "n" : "x" }"#)).await.unwrap(),
        first
    );
    let values = QueryParams::Values(vec![("n".to_owned(), text("x"))]);
    let typed = GraphMutate {
        params: values,
        ..json("")
    };
    assert_eq!(sg.graph_mutate(typed).await.unwrap(), first);
    assert_eq!(fails(sg, json(r#"{"n": "y"}"#)).await, "RequestIdReused");
}

#[tokio::test]
async fn a_branch_is_expected_at_a_commit() {
    let world = people().await;
    let sg = &world.sg;
    let at = |commit: &str, body: &str| GraphMutate {
        if_commit: Some(commit.to_owned()),
        ..call(body)
    };
    let head = snapshot(sg).await.commit_id().to_owned();
    let insert = r#"insert Person { name: "x" }"#;
    assert_eq!(done(sg, at(&head, insert)).await, (1, 0));
    for body in [
        insert,
        r#"update Person set { age: 1 } where name = "x""#,
        r#"delete Person where name = "nobody""#,
    ] {
        assert_eq!(
            fails(sg, at(&head, body)).await,
            "PreconditionFailed",
            "{body}"
        );
    }
    let head = snapshot(sg).await.commit_id().to_owned();
    nothing(sg, at(&head, r#"delete Person where name = "nobody""#)).await;
}

#[tokio::test]
async fn the_commit_names_its_actor() {
    let world = people().await;
    let call = asked("one", call(r#"insert Person { name: "x" }"#));
    let report = world.sg.graph_mutate(call).await.unwrap();
    let commit = snapshot(&world.sg).await.manifest.commit.clone();
    assert_eq!(Some(&commit.id), report.commit_id.as_ref());
    assert_eq!(commit.actor.as_deref(), Some("me"));
    assert_eq!(commit.kind.as_str(), "mutate");
}

#[tokio::test]
async fn a_graph_and_a_branch_must_be_there() {
    let world = people().await;
    let sg = &world.sg;
    let body = r#"insert Person { name: "x" }"#;
    let branch = GraphMutate {
        branch: Some("other".to_owned()),
        ..call(body)
    };
    assert_eq!(fails(sg, branch).await, "NotFound");
    let graph = GraphMutate {
        graph: "nothing".to_owned(),
        ..call(body)
    };
    assert_eq!(fails(sg, graph).await, "NotFound");
    let named = GraphMutate {
        graph: "g@main".to_owned(),
        ..call(body)
    };
    assert_eq!(done(sg, named).await, (1, 0));
}

#[tokio::test]
async fn two_writers_lose_nothing() {
    let store = Arc::new(InMemory::new());
    let one = world_over(Arc::clone(&store), 1, SCHEMA).await;
    let two = crate::world::World::over(store, 2).await;
    let writers = [&one, &two].into_iter().enumerate().map(|(at, world)| {
        let sg = world.sg.clone();
        tokio::spawn(async move {
            for turn in 0..6 {
                // Keys of both and keys of one of them.
                let body = format!(
                    "insert Person {{ name: \"same{turn}\", age: {at} }} \
                     insert Person {{ name: \"own{at}{turn}\" }}"
                );
                let report = sg.graph_mutate(call(&body)).await.unwrap();
                assert_eq!(report.affected_nodes, 2);
            }
        })
    });
    for writer in writers.collect::<Vec<_>>() {
        writer.await.unwrap();
    }
    assert_whole(&one.sg).await;
    let found = one.sql("SELECT count(*) FROM sg.g.\"Person\"").await;
    assert_eq!(found, [["18"]]);
    assert_eq!(version(&one.sg).await, 12);
}
