//! Another commit comes first, while a mutation waits for its model.

use std::sync::Arc;

use datafusion::prelude::SessionContext;
use object_store::memory::InMemory;
use stratagraph_udfs::{GraphMutate, GraphMutateReport};

use super::support::*;
use crate::models::GateEmbedder;
use crate::world::{World, counting};

const GATED: &str = r#"
node Doc {
    name: String @key
    text: String?
    v: Vector(16)? @embed("text", model="counting")
}
edge Cites: Doc -> Doc @card(0..1)
"#;

fn insert(name: &str, text: &str) -> String {
    format!("insert Doc {{ name: \"{name}\", text: \"{text}\" }}")
}

/// A mutation that waits in its model until another process has done `between`.
async fn race(
    body: &str,
    expects: bool,
    between: &str,
) -> (stratagraph::Result<GraphMutateReport>, World) {
    let store = Arc::new(InMemory::new());
    let fast = world_over(Arc::clone(&store), 1, GATED).await;
    done(&fast.sg, call(&insert("old", "old"))).await;
    let head = snapshot(&fast.sg).await.commit_id().to_owned();
    let counted = counting();
    let gate = GateEmbedder::new(Arc::clone(&counted) as _);
    let model = Arc::clone(&gate) as _;
    let slow = World::with(SessionContext::new(), store, 2, model, counted).await;
    let sg = slow.sg.clone();
    let mutation = GraphMutate {
        fill: true,
        if_commit: expects.then_some(head),
        ..call(body)
    };
    let running = tokio::spawn(async move { sg.graph_mutate(mutation).await });
    gate.entered().await;
    done(&fast.sg, call(between)).await;
    gate.release(1_000);
    let outcome = running.await.unwrap();
    assert_whole(&fast.sg).await;
    (outcome, slow)
}

#[tokio::test]
async fn inserts_are_prepared_anew_and_compute_nothing_twice() {
    let (outcome, world) = race(&insert("a", "one"), false, &insert("b", "two")).await;
    assert_eq!(outcome.unwrap().affected_nodes, 1);
    assert_eq!(world.model.rows(), 1);
    let ids = world.sql("SELECT id FROM sg.g.\"Doc\" ORDER BY id").await;
    assert_eq!(ids.concat(), ["a", "b", "old"]);
}

#[tokio::test]
async fn an_update_of_another_row_commits() {
    let body = r#"update Doc set { text: "new" } where name = "old""#;
    let (outcome, world) = race(body, false, &insert("b", "two")).await;
    assert_eq!(outcome.unwrap().affected_nodes, 1);
    assert_eq!(version(&world.sg).await, 3);
    let texts = world.sql("SELECT text FROM sg.g.\"Doc\" ORDER BY id").await;
    assert_eq!(texts.concat(), ["two", "new"]);
}

#[tokio::test]
async fn an_update_goes_to_its_caller() {
    let body = r#"update Doc set { text: "new" } where name = "old""#;
    let (outcome, world) = race(body, false, &insert("old", "two")).await;
    let error = outcome.unwrap_err();
    assert_eq!(error.code(), "ReadSetChanged");
    assert!(error.is_retryable());
    assert!(error.to_string().contains("g@main.Doc \"old\""), "{error}");
    assert_eq!(version(&world.sg).await, 2);
}

/// The same request of two callers is one commit, whoever comes first.
#[tokio::test]
async fn a_request_is_done_once() {
    let store = Arc::new(InMemory::new());
    let world = world_over(Arc::clone(&store), 1, SCHEMA).await;
    done(&world.sg, call("insert Person { name: \"ann\", age: 1 }")).await;
    let update = || GraphMutate {
        requester: stratagraph_udfs::Requester {
            actor: None,
            request_id: Some("r1".to_owned()),
        },
        ..call("update Person set { age: 2 } where name = \"ann\"")
    };
    let all = (0..8).map(|_| {
        let sg = world.sg.clone();
        tokio::spawn(async move { sg.graph_mutate(update()).await.unwrap() })
    });
    let mut commits = std::collections::BTreeSet::new();
    for one in all.collect::<Vec<_>>() {
        let report = one.await.unwrap();
        assert_eq!(report.affected_nodes, 1);
        commits.insert(report.commit_id);
    }
    assert_eq!(commits.len(), 1);
    assert_eq!(version(&world.sg).await, 2);
}

/// Eight writers that update, insert and connect rows of their own: all commit, in one line.
#[tokio::test(flavor = "multi_thread")]
async fn eight_writers_of_other_rows_all_commit() {
    let world = world(SCHEMA).await;
    let all: Vec<String> = (0..8).map(|w| person(&format!("w{w}"), "")).collect();
    load(&world.sg, &lines(&all), Append).await.unwrap();
    let writers = (0..8).map(|w| {
        let sg = world.sg.clone();
        tokio::spawn(async move {
            for n in 0..5 {
                let body = format!("update Person set {{ age: {n} }} where name = \"w{w}\"");
                assert_eq!(sg.graph_mutate(call(&body)).await.unwrap().affected_nodes, 1);
                let body = format!(
                    "insert Person {{ name: \"w{w}-{n}\" }} insert Knows {{ from: \"w{w}\", to: \"w{w}-{n}\" }}"
                );
                sg.graph_mutate(call(&body)).await.unwrap();
            }
        })
    });
    for writer in writers.collect::<Vec<_>>() {
        writer.await.unwrap();
    }
    assert_whole(&world.sg).await;
    assert_eq!(version(&world.sg).await, 1 + 80);
    let ages = "SELECT count(*), count(age), min(age) FROM sg.g.\"Person\"";
    assert_eq!(world.sql(ages).await.concat(), ["48", "8", "4"]);
    assert_eq!(
        world
            .sql("SELECT count(*) FROM sg.g.\"Knows\"")
            .await
            .concat(),
        ["40"]
    );
}

#[tokio::test]
async fn what_was_expected_is_never_prepared_anew() {
    for body in [
        insert("a", "one"),
        r#"update Doc set { text: "new" } where name = "old""#.to_owned(),
    ] {
        let (outcome, world) = race(&body, true, &insert("b", "two")).await;
        assert_eq!(outcome.unwrap_err().code(), "PreconditionFailed", "{body}");
        assert_eq!(version(&world.sg).await, 2);
    }
}

/// The edge of another writer counts, whether this one had read it or not.
#[tokio::test]
async fn rules_are_checked_on_the_state_that_a_commit_extends() {
    let cites = "insert Cites { from: \"old\", to: \"old\" }";
    let body = format!("{} {cites}", insert("a", "one"));
    let (outcome, world) = race(&body, false, cites).await;
    assert_eq!(outcome.unwrap_err().code(), "RecordsInvalid");
    assert_eq!(version(&world.sg).await, 2);
    assert_eq!(rows(&world, "Doc").await.len(), 1);
    // An end that another writer deleted is missing.
    let body = format!(
        "{} insert Cites {{ from: \"a\", to: \"old\" }}",
        insert("a", "one")
    );
    let (outcome, world) = race(&body, false, "delete Doc where name = \"old\"").await;
    assert_eq!(outcome.unwrap_err().code(), "RecordsInvalid");
    assert!(rows(&world, "Doc").await.is_empty());
}

/// An optimisation comes first: rows of the state that was read lie elsewhere, and nothing else changed.
#[tokio::test]
async fn an_update_finds_rows_again_that_an_optimisation_moved() {
    for expects in [false, true] {
        let store = Arc::new(InMemory::new());
        let fast = world_over(Arc::clone(&store), 1, GATED).await;
        for name in ["old", "other", "third", "fourth"] {
            done(&fast.sg, call(&insert(name, name))).await;
        }
        let head = snapshot(&fast.sg).await.commit_id().to_owned();
        let counted = counting();
        let gate = GateEmbedder::new(Arc::clone(&counted) as _);
        let model = Arc::clone(&gate) as _;
        let slow = World::with(SessionContext::new(), store, 2, model, counted).await;
        let sg = slow.sg.clone();
        let mutation = GraphMutate {
            fill: true,
            if_commit: expects.then_some(head.clone()),
            ..call(r#"update Doc set { text: "new" } where name = "old""#)
        };
        let running = tokio::spawn(async move { sg.graph_mutate(mutation).await });
        gate.entered().await;
        let optimized = fast.sg.graph_optimize("g").await.unwrap();
        assert_ne!(optimized[0].commit_id, head);
        gate.release(1_000);
        assert_eq!(running.await.unwrap().unwrap().affected_nodes, 1);
        assert_whole(&fast.sg).await;
        let texts = slow.sql("SELECT text FROM sg.g.\"Doc\" ORDER BY id").await;
        assert_eq!(texts.concat(), ["fourth", "new", "other", "third"]);
    }
}
