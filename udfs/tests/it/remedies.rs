//! What an error tells to do works.

use std::error::Error as _;
use std::sync::Arc;

use datafusion::prelude::SessionContext;
use futures::TryStreamExt;
use object_store::memory::InMemory;
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt};
use stratagraph::embed::HashEmbedder;
use stratagraph::store::layout::split_part;
use stratagraph_udfs::{Cascade, Search, Wanted};

use crate::world::{World, counting, doc, docs};

#[tokio::test]
async fn after_a_drift_nothing_is_allocated_and_recompute_goes_on() {
    let store = Arc::new(InMemory::new());
    let before = World::over(Arc::clone(&store), 1).await;
    before.docs.set(&docs(4));
    before.generate("t").await;
    let other = Arc::new(HashEmbedder::new(17).unwrap());
    let world = World::with(SessionContext::new(), store, 2, other, counting()).await;
    world.docs.set(&docs(5));
    assert_eq!(
        world.code("SELECT * FROM refresh_embeddings('t')").await,
        "DefinitionDrift"
    );
    assert_eq!(world.sg.versions("t").await.unwrap().len(), 1);
    let state = world.row("SELECT state, reason FROM staleness('t')").await;
    assert_eq!(state, ["stale", "definition_changed"]);
    world
        .sg
        .recompute("t", Cascade::ReportOnly, Some("r"))
        .await
        .unwrap();
    let row = world
        .row("SELECT dimensions, live_rows FROM embedding_tables() WHERE \"table\" = 'r'")
        .await;
    assert_eq!(row, ["17", "5"]);
    assert_eq!(
        world
            .row("SELECT outcome FROM refresh_embeddings('r')")
            .await,
        ["no_change"]
    );
}

#[tokio::test]
async fn a_source_without_duplicates_can_be_refreshed_again() {
    let world = World::generated(&docs(3)).await;
    let mut twice = docs(3);
    twice.push(twice[0].clone());
    world.docs.set(&twice);
    assert_eq!(
        world.code("SELECT * FROM refresh_embeddings('t')").await,
        "NonUniqueKey"
    );
    world.docs.set(&docs(3));
    assert_eq!(
        world
            .row("SELECT outcome FROM refresh_embeddings('t')")
            .await,
        ["no_change"]
    );
}

#[tokio::test]
async fn a_parent_with_duplicates_is_recomputed_once() {
    let mut twice = docs(3);
    twice.push(doc("k0000", "another", "row of the key"));
    let world = World::generated(&twice).await;
    world.docs.set(&docs(3));
    let (code, text) = world.error("SELECT * FROM refresh_embeddings('t')").await;
    assert!(code == "NonUniqueKey" && text.contains("parent"), "{text}");
    world.row("SELECT * FROM recompute('t', name => 'r')").await;
    assert_eq!(
        world
            .row("SELECT outcome FROM refresh_embeddings('r')")
            .await,
        ["no_change"]
    );
}

/// The source changes between any two steps: a key comes twice, rows go, a column goes. Each refresh is
/// typed or consistent, and the next good one goes on.
#[tokio::test]
async fn a_source_that_changes_its_shape_never_poisons_the_table() {
    let world = World::generated(&docs(6)).await;
    let mut twice = docs(6);
    twice.push(doc("k0001", "again", "another"));
    for (rows, code) in [
        (twice, "NonUniqueKey"),
        (vec![(None, None, None)], "InvalidKey"),
    ] {
        world.docs.set(&rows);
        assert_eq!(
            world.code("SELECT * FROM refresh_embeddings('t')").await,
            code
        );
        assert_eq!(world.sg.versions("t").await.unwrap().len(), 1);
    }
    world.docs.set(&[]);
    let row = world
        .row("SELECT outcome, deleted, live_rows FROM refresh_embeddings('t')")
        .await;
    assert_eq!(row, ["published", "6", "0"]);
    assert!(
        world
            .sql("SELECT * FROM search('t', 'red', 3)")
            .await
            .is_empty()
    );
    let docs_table = world.ctx.deregister_table("docs").unwrap().unwrap();
    world
        .sql("CREATE TABLE docs AS SELECT 'k' AS id, 't' AS title")
        .await;
    assert_eq!(
        world.code("SELECT * FROM refresh_embeddings('t')").await,
        "SourceMismatch"
    );
    world.sql("DROP TABLE docs").await;
    assert_eq!(
        world.code("SELECT * FROM refresh_embeddings('t')").await,
        "SourceNotFound"
    );
    world.ctx.register_table("docs", docs_table).unwrap();
    world.docs.set(&docs(6));
    let row = world
        .row("SELECT outcome, added, live_rows FROM refresh_embeddings('t')")
        .await;
    assert_eq!(row, ["published", "6", "6"]);
    let verdicts = world
        .sql("SELECT DISTINCT verdict FROM verify_materialization('t')")
        .await;
    assert_eq!(verdicts.concat(), ["match"]);
}

/// The key of the manifest of the current version.
async fn manifest(world: &World) -> Path {
    let checks = world.sg.verify_materialization("t").await.unwrap();
    let manifest = checks.iter().find(|c| c.kind == "manifest").unwrap();
    Path::from(split_part(&manifest.artifact).0)
}

#[tokio::test]
async fn a_table_whose_manifest_is_lost_is_recomputed_from_its_definition() {
    let store = Arc::new(InMemory::new());
    let world = World::over(Arc::clone(&store), 1).await;
    world.docs.set(&docs(7));
    world.generate("t").await;
    world.docs.set(&docs(8));
    world.row("SELECT * FROM refresh_embeddings('t')").await;
    let expected = world
        .sql("SELECT _row_id, vector FROM sg.embeddings.t ORDER BY 1")
        .await;
    store.delete(&manifest(&world).await).await.unwrap();
    let cold = World::over(store, 2).await;
    cold.docs.set(&docs(8));
    for statement in [
        "SELECT * FROM sg.embeddings.t",
        "SELECT * FROM refresh_embeddings('t')",
        "SELECT * FROM search('t', 'red', 1)",
    ] {
        assert_eq!(
            cold.code(statement).await,
            "VersionUnavailable",
            "{statement}"
        );
    }
    let row = cold
        .row("SELECT recomputed, outcome FROM recompute('t')")
        .await;
    assert_eq!(row, ["t__r1", "recomputed"]);
    let found = cold
        .sql("SELECT _row_id, vector FROM sg.embeddings.\"t__r1\" ORDER BY 1")
        .await;
    assert_eq!(found, expected);
}

#[tokio::test]
async fn a_new_session_finds_the_same_hits() {
    let store = Arc::new(InMemory::new());
    let world = World::over(Arc::clone(&store), 1).await;
    world.docs.set(&docs(30));
    world.generate("t").await;
    let mut rows = docs(30);
    rows.drain(3..9);
    rows[0].1 = Some("edited".to_owned());
    world.docs.set(&rows);
    world.row("SELECT * FROM refresh_embeddings('t')").await;
    let cold = World::over(store, 2).await;
    for wanted in [
        Wanted::Text("red body".to_owned()),
        Wanted::Row("k0020".to_owned()),
    ] {
        let search = Search::new(wanted, 12);
        let hits = world.sg.search("t", search.clone()).await.unwrap();
        assert_eq!(hits.len(), 12);
        assert_eq!(cold.sg.search("t", search).await.unwrap(), hits);
    }
    let all = "SELECT * FROM sg.embeddings.t ORDER BY _row_id";
    assert_eq!(cold.sql(all).await, world.sql(all).await);
}

#[tokio::test]
async fn a_vanished_object_is_named_as_the_cause() {
    let store = Arc::new(InMemory::new());
    let world = World::over(Arc::clone(&store), 1).await;
    world.docs.set(&docs(3));
    world.generate("t").await;
    let objects: Vec<_> = store.list(None).try_collect().await.unwrap();
    for object in objects
        .iter()
        .filter(|o| o.location.as_ref().ends_with(".parquet"))
    {
        store.delete(&object.location).await.unwrap();
    }
    let cold = World::over(store, 2).await;
    let error = cold
        .try_sql("SELECT vector FROM sg.embeddings.t")
        .await
        .unwrap_err();
    let error = stratagraph_udfs::find_error(&error).unwrap();
    assert_eq!(error.code(), "Storage");
    let mut cause = error.source();
    let mut found = false;
    while let Some(next) = cause {
        found |= matches!(
            next.downcast_ref::<object_store::Error>(),
            Some(object_store::Error::NotFound { .. })
        );
        cause = next.source();
    }
    assert!(found, "{error:?}");
}

/// Names as long as names may be still get their suffixes.
#[tokio::test]
async fn the_longest_names_can_be_recomputed_again_and_again() {
    let world = World::new().await;
    world.docs.set(&docs(2));
    let name = "n".repeat(128);
    world.generate(&name).await;
    for n in 1..=11 {
        let row = world
            .row(&format!("SELECT recomputed FROM recompute('{name}')"))
            .await;
        assert!(row[0].ends_with(&format!("__r{n}")), "{row:?}");
    }
    world
        .row(&format!("SELECT * FROM neighbor_graph('{name}', 1)"))
        .await;
}

/// Keys that a first version repeats: comparing, staleness and compaction see rows, not pairs of rows.
#[tokio::test]
async fn repeated_keys_change_nothing_by_themselves() {
    let mut twice = docs(3);
    twice.push(doc("k0000", "another", "row of the key"));
    let world = World::generated(&twice).await;
    assert_eq!(
        world.row("SELECT state FROM staleness('t')").await,
        ["fresh"]
    );
    world.row("SELECT * FROM compact_embeddings('t')").await;
    assert!(
        world
            .sql("SELECT * FROM changes('t', 0, 1)")
            .await
            .is_empty()
    );
    assert_eq!(
        world.row("SELECT state FROM staleness('t')").await,
        ["fresh"]
    );
    twice.pop();
    world.docs.set(&twice);
    let state = world.row("SELECT state, reason FROM staleness('t')").await;
    assert_eq!(state, ["stale", "input_advanced"]);
}

/// What a refresh retained is no reason to be stale, compacted and restored or not.
#[tokio::test]
async fn retained_rows_leave_a_table_fresh() {
    let world = World::generated(&docs(5)).await;
    world.docs.set(&docs(4));
    world
        .row("SELECT * FROM refresh_embeddings('t', deletes => 'retain')")
        .await;
    let mut rows = docs(4);
    rows[0].1 = Some("edited".to_owned());
    world.docs.set(&rows);
    world
        .row("SELECT * FROM refresh_embeddings('t', deletes => 'retain')")
        .await;
    for verb in [
        "compact_embeddings('t')",
        "restore_version('t', 1)",
        "compact_embeddings('t')",
    ] {
        assert_eq!(
            world.row("SELECT state FROM staleness('t')").await,
            ["fresh"],
            "{verb}"
        );
        world.row(&format!("SELECT * FROM {verb}")).await;
    }
    assert_eq!(
        world.row("SELECT state FROM staleness('t')").await,
        ["fresh"]
    );
}

/// A process that knew an old head is not fenced by a collection that came before its verb, and sees
/// tables that others have made or renamed since.
#[tokio::test]
async fn verbs_begin_on_the_head_as_it_is() {
    let store = Arc::new(InMemory::new());
    let idle = World::over(Arc::clone(&store), 1).await;
    idle.docs.set(&docs(4));
    idle.generate("t").await;
    let busy = World::over(store, 2).await;
    busy.docs.set(&docs(5));
    busy.row("SELECT * FROM refresh_embeddings('t')").await;
    busy.generate("u").await;
    for verb in [
        "restore_version('t', 0)",
        "rename_embeddings('u', 'v')",
        "compact_embeddings('t')",
        "neighbor_graph('v', 1)",
        "recompute('v')",
        "generate_embeddings('docs', 'counting', 'title', 'id', 'w')",
    ] {
        busy.row("SELECT * FROM create_pin('t', 'p')").await;
        busy.row("SELECT * FROM drop_pin('p')").await;
        busy.row("SELECT * FROM collect_garbage()").await;
        assert!(!idle.sql(&format!("SELECT * FROM {verb}")).await.is_empty());
    }
}

/// A pin shows the name that its table has now; another table may have taken the old one.
#[tokio::test]
async fn pins_follow_their_table() {
    let world = World::generated(&docs(2)).await;
    world.row("SELECT * FROM create_pin('t', 'p')").await;
    world
        .row("SELECT * FROM rename_embeddings('t', 'moved')")
        .await;
    world.generate("t").await;
    assert_eq!(world.row("SELECT \"table\" FROM pins()").await, ["moved"]);
    assert_eq!(
        world.code("SELECT * FROM drop_embeddings('moved')").await,
        "Pinned"
    );
    world.row("SELECT * FROM drop_embeddings('t')").await;
    for ttl in ["0", "-1", "9223372036854775807"] {
        let call = format!("SELECT * FROM create_pin('moved', 'q', ttl => {ttl})");
        assert_eq!(world.code(&call).await, "InvalidArgument", "{ttl}");
    }
    assert_eq!(
        world.row("SELECT \"table\" FROM drop_pin('p')").await,
        ["moved"]
    );
}
