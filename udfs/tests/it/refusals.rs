//! What verbs refuse: typed, before any model call, with nothing changed.

use std::sync::Arc;

use stratagraph::embed::testing::CountingEmbedder;
use stratagraph::embed::{HashEmbedder, ModelRegistry};
use stratagraph_udfs::{Options, install};

use crate::world::{Doc, World, docs};

const GENERATE: &str = "SELECT * FROM generate_embeddings";

#[tokio::test]
async fn arguments_are_checked_before_the_source_is_read() {
    let world = World::new().await;
    world.docs.set(&docs(3));
    for (call, code) in [
        ("('nothing', 'counting', 'body', 'id')", "NotFound"),
        ("('docs', 'counting', 'nothing', 'id')", "InvalidArgument"),
        ("('docs', 'counting', 'body', 'nothing')", "InvalidArgument"),
        ("('docs', 'counting', '', 'id')", "InvalidArgument"),
        ("('docs', 'unknown', 'body', 'id')", "ModelNotFound"),
        ("('docs', 'hash:0', 'body', 'id')", "InvalidArgument"),
        ("('docs', 'candle:/etc', 'body', 'id')", "SourceNotAllowed"),
        (
            "('docs', 'tei:http://localhost:1', 'body', 'id')",
            "SourceNotAllowed",
        ),
        (
            "('docs', 'counting', 'body', 'id', 'a b')",
            "InvalidIdentifier",
        ),
        (
            "('docs', 'counting', 'body', 'id', 'embeddings')",
            "InvalidIdentifier",
        ),
        (
            "('docs', 'counting', 'body', 'id', include => 'nothing')",
            "InvalidArgument",
        ),
        (
            "('docs', 'counting', 'body', 'id', metric => 'odd')",
            "InvalidArgument",
        ),
        (
            "('docs', 'counting', 'body', 'id', dimensions => 8)",
            "NotYetSupported",
        ),
        (
            "('docs', 'counting', 'body', 'id', dimensions => 17)",
            "InvalidArgument",
        ),
        (
            "('docs', 'counting', 'body', 'id', dimensions => -1)",
            "InvalidArgument",
        ),
        ("('docs', 'counting', 'body')", "InvalidArgument"),
        (
            "('docs', 'counting', 'body', 'id', unknown => 1)",
            "InvalidArgument",
        ),
    ] {
        assert_eq!(
            world.code(&format!("{GENERATE}{call}")).await,
            code,
            "{call}"
        );
    }
    assert_eq!((world.model.calls(), world.docs.scans()), (0, 0));
    assert!(
        world
            .sql("SELECT * FROM embedding_tables()")
            .await
            .is_empty()
    );
}

#[tokio::test]
async fn null_keys_are_counted_and_nothing_is_written() {
    let mut rows: Vec<Doc> = docs(40);
    for row in [3, 17, 39] {
        rows[row].0 = None;
    }
    let world = World::new().await;
    world.docs.set(&rows);
    let call = format!("{GENERATE}('docs', 'counting', 'body', 'id', 't')");
    let (code, text) = world.error(&call).await;
    assert_eq!(code, "InvalidKey");
    assert!(text.contains("\"id\" has 3 NULLs"), "{text}");
    assert_eq!(world.model.calls(), 0);

    let world = World::generated(&docs(40)).await;
    world.model.reset();
    // Duplicates beside the NULLs change nothing: NULLs are told first.
    rows[5] = rows[4].clone();
    world.docs.set(&rows);
    for verb in ["refresh_embeddings", "refresh_plan"] {
        let (code, text) = world.error(&format!("SELECT * FROM {verb}('t')")).await;
        assert_eq!(code, "InvalidKey", "{verb}");
        assert!(text.contains("3 NULLs"), "{text}");
    }
    assert_eq!(world.model.calls(), 0);
    assert_eq!(world.sql("SELECT * FROM versions('t')").await.len(), 1);
}

#[tokio::test]
async fn a_missing_or_another_source_is_typed() {
    let world = World::generated(&docs(5)).await;
    world.model.reset();
    let refresh = "SELECT * FROM refresh_embeddings('t')";
    world.ctx.deregister_table("docs").unwrap();
    let (code, text) = world.error(refresh).await;
    assert_eq!(code, "SourceNotFound");
    assert!(text.contains("datafusion.public.docs"), "{text}");
    world
        .sql("CREATE TABLE docs AS SELECT 1 AS id, 'a' AS title, 'b' AS body")
        .await;
    let (code, text) = world.error(refresh).await;
    assert_eq!(code, "SourceMismatch");
    assert!(text.contains("was utf8, is int64"), "{text}");
    world.sql("DROP TABLE docs").await;
    world
        .sql("CREATE TABLE docs AS SELECT 'x' AS id, 'a' AS title")
        .await;
    assert_eq!(
        world.code("SELECT * FROM refresh_plan('t')").await,
        "SourceMismatch"
    );
    assert_eq!(world.model.calls(), 0);
    // What the table does not use may come and go.
    world.sql("DROP TABLE docs").await;
    world
        .sql("CREATE TABLE docs AS SELECT 'k0000' AS id, 'a' AS title, 'b' AS body, 2 AS more")
        .await;
    let row = world
        .row("SELECT changed, deleted FROM refresh_embeddings('t')")
        .await;
    assert_eq!(row, ["1", "4"]);
}

#[tokio::test]
async fn another_model_under_the_name_is_drift() {
    let store = Arc::new(object_store::memory::InMemory::new());
    let world = World::over(store.clone(), 1).await;
    world.docs.set(&docs(5));
    world.generate("t").await;

    let ctx = datafusion::prelude::SessionContext::new();
    ctx.register_table("docs", Arc::clone(&world.docs) as _)
        .unwrap();
    let other = Arc::new(CountingEmbedder::new(
        "counting",
        Arc::new(HashEmbedder::new(17).unwrap()),
    ));
    let models = ModelRegistry::default();
    models
        .register("counting", Arc::clone(&other) as _)
        .unwrap();
    let options = Options::new("memory:///test")
        .with_object_store(store.clone(), Default::default(), true)
        .with_models(models);
    let sg = install(&ctx, options).await.unwrap();
    let mut rows = docs(5);
    rows[0].1 = Some("edited".to_owned());
    world.docs.set(&rows);
    let scans = world.docs.scans();
    let error = sg
        .refresh_embeddings("t", Default::default())
        .await
        .unwrap_err();
    assert_eq!(error.code(), "DefinitionDrift");
    let query = stratagraph_udfs::Search::new(stratagraph_udfs::Wanted::Text("a".into()), 1);
    assert_eq!(
        sg.search("t", query).await.unwrap_err().code(),
        "DefinitionDrift"
    );
    assert_eq!((other.calls(), world.docs.scans()), (0, scans));

    let nothing =
        Options::new("memory:///other").with_object_store(store, Default::default(), true);
    let ctx = datafusion::prelude::SessionContext::new();
    let sg = install(&ctx, nothing).await.unwrap();
    let error = sg
        .refresh_embeddings("t", Default::default())
        .await
        .unwrap_err();
    assert_eq!(error.code(), "ModelNotFound");
}

// Planning waits for a table that it has not seen: it needs a second thread for that.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unknown_names_and_switched_off_writes_are_typed() {
    let world = World::generated(&docs(3)).await;
    world.model.reset();
    for (call, code) in [
        ("refresh_embeddings('u')", "NotFound"),
        ("refresh_plan('u')", "NotFound"),
        ("rejected_rows('u')", "NotFound"),
        ("versions('u')", "NotFound"),
        ("read_vectors('u')", "NotFound"),
        ("read_vectors('t', 7)", "VersionUnavailable"),
        ("search('u', 'a', 1)", "NotFound"),
        ("search('t', 'a', 1, version => 9)", "VersionUnavailable"),
        ("search_by_id('t', 'nokey', 1)", "NotFound"),
        ("verify_materialization('u')", "NotFound"),
        ("drop_embeddings('u')", "NotFound"),
        ("refresh_embeddings('a/b')", "InvalidIdentifier"),
        ("refresh_embeddings('t', 'purge')", "InvalidArgument"),
        ("commit_status('x')", "InvalidIdentifier"),
        ("graph_query('g', 'q')", "NotFound"),
        ("graph_reach('g', 'e', 'a', 1, 1)", "NotFound"),
        ("graph_schema('g')", "NotFound"),
        ("graph_drop('t')", "NotFound"),
        ("graph_branches('g')", "NotFound"),
        ("graph_branch_create('g', 'b')", "NotFound"),
        ("graph_branch_merge('g', 'b', 'main')", "NotFound"),
        ("graph_expire('g', 1)", "NotFound"),
        ("graph_optimize('g')", "NotFound"),
        ("graph_indexes('g')", "NotFound"),
        ("graph_table('g', 'MATCH (a)')", "NotYetSupported"),
        ("build_index('t', 'body')", "InvalidArgument"),
        ("build_index('t', 'vector', 'text')", "InvalidArgument"),
        (
            "build_index('t', 'vector', metric => 'l2')",
            "InvalidArgument",
        ),
        ("build_index('t@0', 'nothing')", "InvalidArgument"),
        ("build_index('u', 'vector')", "NotFound"),
        ("vector_search('t', '_row_id', 'a', 1)", "InvalidArgument"),
        ("vector_search('t', 'vector', 'a', 0)", "InvalidArgument"),
        ("vector_search('t', 'vector', [1.0], 1)", "InvalidArgument"),
        ("text_search('t', 'vector', 'a', 1)", "InvalidArgument"),
        (
            "text_search('t', '_row_id', 'a', 1, mode => 'odd')",
            "InvalidArgument",
        ),
        (
            "text_search('t', '_row_id', 'a', 1, filter => 'nothing > 1')",
            "InvalidArgument",
        ),
        (
            "hybrid_search('t', 'vector', '_row_id', [1.0], 1)",
            "InvalidArgument",
        ),
        (
            "hybrid_search('t', 'vector', '_row_id', 'a', 1, rrf_k => 0)",
            "InvalidArgument",
        ),
        (
            "hybrid_search('t', 'vector', '_row_id', 'a', 1, weights => [1.0])",
            "InvalidArgument",
        ),
    ] {
        assert_eq!(
            world.code(&format!("SELECT * FROM {call}")).await,
            code,
            "{call}"
        );
    }
    assert_eq!(world.code("SELECT blob_read('a')").await, "NotYetSupported");
    world.sql("SET stratagraph.allow_writes = false").await;
    for call in [
        "refresh_embeddings('t')",
        "drop_embeddings('t')",
        "graph_create('g', 'node A { name: String @key }')",
        "graph_drop('g')",
        "graph_load('g', 'a.jsonl', 'append')",
    ] {
        assert_eq!(
            world.code(&format!("SELECT * FROM {call}")).await,
            "WritesNotAllowed"
        );
    }
    let rust = world
        .sg
        .refresh_embeddings("t", Default::default())
        .await
        .unwrap_err();
    assert_eq!(rust.code(), "WritesNotAllowed");
    assert_eq!(world.sql("SELECT * FROM refresh_plan('t')").await.len(), 1);
    assert_eq!(world.model.calls(), 0);
}
