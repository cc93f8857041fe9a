//! Damage and what must not pass: typed errors, never wrong rows, never an empty answer.

use std::sync::Arc;

use bytes::Bytes;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::prelude::{SessionConfig, SessionContext};
use datafusion_proto::bytes::physical_plan_to_bytes;
use object_store::{ObjectStoreExt, path::Path};
use stratagraph::store::layout::split_part;

use super::world::{Change, World, code, query, rows};

async fn objects(world: &World, kind: &str) -> Vec<String> {
    let listed = world.store.list("data").await.unwrap();
    let keys = listed.into_iter().map(|(key, _)| key);
    keys.filter(|key| key.ends_with(kind)).collect()
}

#[allow(clippy::disallowed_methods)]
async fn overwrite(world: &World, key: &str, bytes: Bytes) {
    world
        .store
        .inner()
        .put(&Path::from(key), bytes.into())
        .await
        .unwrap();
}

const READS: [&str; 3] = [
    "select * from sg.embeddings.t",
    "select count(n) from sg.embeddings.t where city <> 'x'",
    "select a.n from sg.embeddings.t a join sg.embeddings.t b using (_row_id) order by 1 limit 3",
];

/// Reads through processes that have cached nothing.
async fn read_damaged(world: &World, what: &str, right: &[Vec<String>]) {
    for pushdown in [false, true] {
        let other = world.other();
        let mut config = SessionConfig::new().with_target_partitions(2);
        config.options_mut().execution.parquet.pushdown_filters = pushdown;
        let ctx = other.session(config).await;
        for (sql, right) in READS.iter().zip(right) {
            match query(&ctx, sql).await {
                // The damaged block may be of a column that the query does not read.
                Ok(found) => {
                    assert!(what == "flipped" && !sql.contains('*'), "{what}: {sql}");
                    assert_eq!(found, *right, "{what}: {sql}");
                }
                Err(error) => {
                    let found = stratagraph_providers::find_error(&error);
                    let code = found.map(stratagraph::Error::code);
                    let gone = what == "missing" || what == "short";
                    let expected = code == Some("Corrupt") || gone && code == Some("Storage");
                    assert!(expected, "{what}: {sql}: {error}");
                }
            }
        }
    }
}

#[tokio::test]
async fn damaged_fragments_are_typed_errors() {
    for size in [300usize, 90_000] {
        let world = World::new();
        world.publish("t", Change::add(rows(0..size, 1))).await;
        let ctx = world.session(SessionConfig::new()).await;
        let mut right = Vec::new();
        for sql in READS {
            right.push(query(&ctx, sql).await.unwrap());
        }
        let key = objects(&world, "parquet").await.remove(0);
        let path = Path::from(key.as_str());
        let whole = world.store.inner().get(&path).await.unwrap();
        let whole = whole.bytes().await.unwrap();
        let mut flipped = whole.to_vec();
        flipped[whole.len() / 3] ^= 1;
        overwrite(&world, &key, flipped.into()).await;
        read_damaged(&world, "flipped", &right).await;
        overwrite(&world, &key, whole.slice(..whole.len() - 9)).await;
        read_damaged(&world, "short", &right).await;
        overwrite(&world, &key, vec![0u8; whole.len()].into()).await;
        read_damaged(&world, "exchanged", &right).await;
        world.store.inner().delete(&path).await.unwrap();
        read_damaged(&world, "missing", &right).await;
    }
}

#[tokio::test]
async fn a_table_without_its_manifest_plans_and_fails_typed() {
    let world = World::new();
    world.publish("t", Change::add(rows(0..30, 1))).await;
    world.publish("t", Change::add(rows(30..40, 1))).await;
    let head = world.catalog.look().await.unwrap();
    let name = stratagraph::ident::Name::parse("t").unwrap();
    let snapshot = stratagraph::catalog::resolve::table(&world.store, &head, &name, None)
        .await
        .unwrap();
    let old = stratagraph::catalog::resolve::table(&world.store, &head, &name, Some(0))
        .await
        .unwrap();
    world
        .store
        .inner()
        .delete(&world.store.path(split_part(&old.manifest_ref.key).0))
        .await
        .unwrap();
    let config = SessionConfig::new().with_information_schema(true);
    let ctx = world.other().session(config.clone()).await;
    assert_eq!(
        code(&ctx, "select * from sg.embeddings.\"t@0\"").await,
        "VersionUnavailable"
    );
    assert_eq!(
        code(&ctx, "select n from sg.embeddings.t with (version = 0)").await,
        "VersionUnavailable"
    );
    assert_eq!(
        code(&ctx, "select n from sg.embeddings.t").await,
        "no error, 40 rows"
    );

    world
        .store
        .inner()
        .delete(&world.store.path(split_part(&snapshot.manifest_ref.key).0))
        .await
        .unwrap();
    let ctx = world.other().session(config).await;
    for sql in [
        "select * from sg.embeddings.t",
        "select count(*) from sg.embeddings.t",
        "select _row_id from sg.embeddings.\"t@1\" limit 1",
    ] {
        assert_eq!(code(&ctx, sql).await, "VersionUnavailable", "{sql}");
    }
    let listed = "select count(*) from information_schema.columns where table_name = 't'";
    assert_eq!(query(&ctx, listed).await.unwrap(), ["5"]);
}

async fn physical(ctx: &SessionContext, sql: &str) -> Arc<dyn ExecutionPlan> {
    ctx.sql(sql)
        .await
        .unwrap()
        .create_physical_plan()
        .await
        .unwrap()
}

#[tokio::test]
async fn plans_cannot_be_encoded_without_their_masks() {
    let world = World::new();
    let mut dead = roaring::RoaringBitmap::new();
    dead.insert(1);
    world
        .publish("t", Change::add_masked(rows(0..30, 1), dead))
        .await;
    let ctx = world.session(SessionConfig::new()).await;
    for sql in [
        "select * from sg.embeddings.t",
        "select city, count(*) from sg.embeddings.t where n > 3 group by city",
        "select * from probe('h1')",
    ] {
        let error = physical_plan_to_bytes(physical(&ctx, sql).await).unwrap_err();
        let found = stratagraph_providers::find_error(&error).map(stratagraph::Error::code);
        assert_eq!(found, Some("NotYetSupported"), "{sql}: {error}");
    }
    let logical = ctx.sql("select * from sg.embeddings.t").await.unwrap();
    assert!(datafusion_proto::bytes::logical_plan_to_bytes(logical.logical_plan()).is_err());
}
