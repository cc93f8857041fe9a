//! `refresh_embeddings` and `refresh_plan`: counts, policies, versions.

use stratagraph_udfs::{Deletes, RefreshOptions};

use crate::world::{World, docs, strings};

const COUNTS: &str = "inferred_rows, added, changed, deleted, unchanged, dropped_rows, live_rows, masked_rows, outcome";

async fn refreshed(world: &World, args: &str) -> Vec<String> {
    world
        .row(&format!(
            "SELECT {COUNTS} FROM refresh_embeddings('t'{args})"
        ))
        .await
}

#[tokio::test]
async fn only_what_changed_is_embedded() {
    let mut rows = docs(200);
    let world = World::generated(&rows).await;
    world.model.reset();
    assert_eq!(
        refreshed(&world, "").await,
        strings(&["0", "0", "0", "0", "200", "0", "200", "0", "no_change"])
    );
    rows[3].1 = Some("edited".to_owned());
    world.docs.set(&rows);
    assert_eq!(
        refreshed(&world, "").await,
        strings(&["1", "0", "1", "0", "199", "0", "200", "1", "published"])
    );
    assert_eq!(
        world.model.texts(),
        [Some(format!("edited {}", rows[3].2.clone().unwrap()))]
    );
    let live = world
        .row("SELECT count(*), count(DISTINCT _row_id) FROM sg.embeddings.t")
        .await;
    assert_eq!(live, strings(&["200", "200"]));
    let old = world
        .row("SELECT count(*) FROM sg.embeddings.\"t@0\"")
        .await;
    assert_eq!(old, ["200"]);

    rows.drain(10..15);
    rows.extend(docs(205).split_off(200));
    world.docs.set(&rows);
    let plan = world.row("SELECT * FROM refresh_plan('t')").await;
    assert_eq!(plan, strings(&["5", "0", "5", "195", "0"]));
    assert_eq!(world.model.rows(), 1, "a plan runs no model");
    assert_eq!(
        refreshed(&world, "").await,
        strings(&["5", "5", "0", "5", "195", "0", "200", "6", "published"])
    );
    let versions = world.sql("SELECT version, parent_version, kind, live_rows, masked_rows, fragments, segments, current FROM versions('t')").await;
    assert_eq!(
        versions,
        [
            strings(&["2", "1", "refresh", "200", "6", "3", "3", "true"]),
            strings(&["1", "0", "refresh", "200", "1", "2", "2", "false"]),
            strings(&["0", "NULL", "generate", "200", "0", "1", "1", "false"]),
        ]
    );
}

#[tokio::test]
async fn retained_rows_stay_until_a_tombstone_refresh() {
    let mut rows = docs(10);
    let world = World::generated(&rows).await;
    rows.remove(0);
    rows[0].2 = Some("edited".to_owned());
    world.docs.set(&rows);
    assert_eq!(
        refreshed(&world, ", deletes => 'retain'").await,
        strings(&["1", "0", "1", "0", "8", "0", "10", "1", "published"])
    );
    assert_eq!(
        refreshed(&world, ", 'retain'").await,
        strings(&["0", "0", "0", "0", "9", "0", "10", "1", "no_change"])
    );
    let hit = world
        .row("SELECT _row_id FROM search_by_id('t', 'k0000', 1)")
        .await;
    assert_eq!(hit, ["k0000"], "a retained row is found");
    // The source is as it was, and yet there is something to do.
    assert_eq!(
        refreshed(&world, "").await,
        strings(&["0", "0", "0", "1", "9", "0", "9", "2", "published"])
    );
    let report = world
        .sg
        .refresh_embeddings("t", RefreshOptions::retain())
        .await
        .unwrap();
    assert_eq!((report.outcome.as_str(), report.version), ("no_change", 2));
    let plan = world.sg.refresh_plan("t", Deletes::Retain).await.unwrap();
    assert_eq!((plan.unchanged, plan.deleted), (9, 0));
}

#[tokio::test]
async fn policies_have_different_identities() {
    let (tombstone, retain) = (
        World::generated(&docs(5)).await,
        World::generated(&docs(5)).await,
    );
    let mut rows = docs(5);
    rows[0].1 = Some("edited".to_owned());
    let mut identities = Vec::new();
    for (world, args) in [(&tombstone, ""), (&retain, ", 'retain'")] {
        world.docs.set(&rows);
        refreshed(world, args).await;
        identities.push(world.sg.versions("t").await.unwrap()[0].identity.clone());
    }
    assert_ne!(identities[0], identities[1]);
}

#[tokio::test]
async fn an_edit_to_empty_removes_the_row() {
    let mut rows = docs(5);
    let world = World::generated(&rows).await;
    rows[2].1 = None;
    rows[2].2 = Some(String::new());
    world.docs.set(&rows);
    assert_eq!(
        refreshed(&world, "").await,
        strings(&["1", "0", "1", "0", "4", "1", "4", "1", "published"])
    );
    let fragments = world
        .row("SELECT fragments FROM versions('t') LIMIT 1")
        .await;
    assert_eq!(fragments, ["1"], "a mask-only version has no fragment");
    assert_eq!(
        refreshed(&world, "").await,
        strings(&["0", "0", "0", "0", "5", "0", "4", "1", "no_change"])
    );
    let verified = world
        .sql("SELECT DISTINCT verdict FROM verify_materialization('t')")
        .await;
    assert_eq!(verified.concat(), ["match"]);
}

#[tokio::test]
async fn another_session_sees_the_same_table() {
    let store = std::sync::Arc::new(object_store::memory::InMemory::new());
    let (one, two) = (
        World::over(store.clone(), 1).await,
        World::over(store, 2).await,
    );
    let mut rows = docs(30);
    one.docs.set(&rows);
    one.generate("t").await;
    rows[4].1 = Some("edited".to_owned());
    two.docs.set(&rows);
    let report = two
        .row("SELECT version, changed FROM refresh_embeddings('t')")
        .await;
    assert_eq!(report, strings(&["1", "1"]));
    let read = |world: &World| {
        let ctx = world.ctx.clone();
        async move {
            let sql = "SELECT * FROM read_vectors('t')";
            crate::world::table(&ctx.sql(sql).await.unwrap().collect().await.unwrap())
        }
    };
    assert_eq!(read(&one).await, read(&two).await);
}
