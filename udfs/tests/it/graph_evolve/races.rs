//! Another schema comes first, while a write waits for its model.

use std::sync::Arc;

use datafusion::prelude::SessionContext;
use object_store::memory::InMemory;
use stratagraph_udfs::{ApplySchema, GraphLoad, GraphMutate};

use crate::graph_mutate::support::*;
use crate::models::GateEmbedder;
use crate::world::{World, counting};

const GATED: &str = r#"
node Doc {
    name: String @key
    text: String?
    v: Vector(16)? @embed("text", model="counting")
}
"#;

/// What becomes of a write that waits in its model until the branch has the schema `text`.
async fn race(
    text: &str,
    write: impl AsyncFn(stratagraph_udfs::Stratagraph) -> stratagraph::Result<()> + Send + 'static,
) -> (stratagraph::Result<()>, World) {
    let store = Arc::new(InMemory::new());
    let fast = world_over(Arc::clone(&store), 1, GATED).await;
    done(
        &fast.sg,
        call("insert Doc { name: \"old\", text: \"old\" }"),
    )
    .await;
    let counted = counting();
    let gate = GateEmbedder::new(Arc::clone(&counted) as _);
    let model = Arc::clone(&gate) as _;
    let slow = World::with(SessionContext::new(), store, 2, model, counted).await;
    let sg = slow.sg.clone();
    let (outcome, ()) = tokio::join!(write(sg), async {
        gate.entered().await;
        fast.sg
            .graph_apply_schema(&ApplySchema::new("g", text))
            .await
            .unwrap();
        gate.release(1_000);
    });
    assert_whole(&fast.sg).await;
    (outcome, slow)
}

fn mutation(body: &str) -> GraphMutate {
    GraphMutate {
        fill: true,
        ..call(body)
    }
}

#[tokio::test]
async fn an_insert_is_prepared_anew_under_the_new_schema() {
    let more = GATED.replace("text: String?", "text: String?  note: String?");
    let (outcome, world) = race(&more, async |sg| {
        let body = "insert Doc { name: \"a\", text: \"one\" }";
        sg.graph_mutate(mutation(body)).await.map(drop)
    })
    .await;
    outcome.unwrap();
    let found = world
        .sql("SELECT id, note FROM sg.g.\"Doc\" ORDER BY id")
        .await;
    assert_eq!(found, [["a", "NULL"], ["old", "NULL"]]);
}

#[tokio::test]
async fn an_insert_that_the_new_schema_forbids_is_refused() {
    let strict = GATED.replace("text: String?", "text: String? @check(\"^o\")");
    let (outcome, world) = race(&strict, async |sg| {
        let body = "insert Doc { name: \"a\", text: \"bad\" }";
        sg.graph_mutate(mutation(body)).await.map(drop)
    })
    .await;
    assert_eq!(outcome.unwrap_err().code(), "RecordsInvalid");
    assert_eq!(
        world.sql("SELECT id FROM sg.g.\"Doc\"").await.concat(),
        ["old"]
    );
}

#[tokio::test]
async fn an_insert_of_a_type_that_went_is_refused() {
    let (outcome, _) = race("node Other { a: String? }", async |sg| {
        let body = "insert Doc { name: \"a\", text: \"one\" }";
        sg.graph_mutate(mutation(body)).await.map(drop)
    })
    .await;
    assert_eq!(outcome.unwrap_err().code(), "QueryInvalid");
}

#[tokio::test]
async fn an_update_and_a_load_go_to_their_callers() {
    let more = GATED.replace("text: String?", "text: String?  note: String?");
    let (outcome, _) = race(&more, async |sg| {
        let body = "update Doc set { text: \"new\" } where name = \"old\"";
        sg.graph_mutate(mutation(body)).await.map(drop)
    })
    .await;
    assert_eq!(outcome.unwrap_err().code(), "ReadSetChanged");
    // Records were read by the schema that they were given for.
    let (outcome, world) = race(&more, async |sg| {
        let text = "{\"type\": \"Doc\", \"data\": {\"name\": \"a\", \"text\": \"one\"}}";
        let load = GraphLoad {
            fill: true,
            ..GraphLoad::of_text("g", text, Append)
        };
        sg.graph_load(load).await.map(drop)
    })
    .await;
    let error = outcome.unwrap_err();
    assert_eq!(error.code(), "SchemaChanged");
    assert!(error.is_retryable());
    assert_eq!(
        world.sql("SELECT id FROM sg.g.\"Doc\"").await.concat(),
        ["old"]
    );
}

/// Eight writers insert while the schema changes under them, again and again: all of them commit.
#[tokio::test(flavor = "multi_thread")]
async fn writers_go_on_while_the_schema_changes() {
    let store = Arc::new(InMemory::new());
    let world = world_over(Arc::clone(&store), 1, "node N { name: String @key }").await;
    let writers = (0..8).map(|w| {
        let sg = world.sg.clone();
        tokio::spawn(async move {
            for n in 0..5 {
                let body = format!("insert N {{ name: \"{w}-{n}\" }}");
                sg.graph_mutate(call(&body)).await.unwrap();
            }
        })
    });
    let writers: Vec<_> = writers.collect();
    let mut text = "node N { name: String @key".to_owned();
    for n in 0..5 {
        text += &format!(" p{n}: I64?");
        let apply = ApplySchema::new("g", format!("{text} }}"));
        world.sg.graph_apply_schema(&apply).await.unwrap();
    }
    for writer in writers {
        writer.await.unwrap();
    }
    assert_whole(&world.sg).await;
    assert_eq!(
        world
            .sql("SELECT count(*), count(p4) FROM sg.g.\"N\"")
            .await
            .concat(),
        ["40", "0"]
    );
}
