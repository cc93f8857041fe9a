//! Planted secrets never come out: errors, plans, settings, manifests.

use std::sync::Arc;

use futures::TryStreamExt;
use object_store::ObjectStoreExt;
use object_store::memory::InMemory;
use object_store::{ObjectStore, path::Path};

use crate::world::{World, docs};

const CANARY: &str = "canary-3f9d";

#[tokio::test]
async fn planted_secrets_come_out_nowhere() {
    let store = Arc::new(InMemory::new());
    let world = World::over(Arc::clone(&store), 1).await;
    world.docs.set(&docs(5));
    world.generate("t").await;
    let mut said = Vec::new();
    for spec in [
        format!("openai:m@https://user:{CANARY}@host/v1"),
        format!("openai:m@https://host/v1?api_key={CANARY}"),
        format!("tei:https://{CANARY}@host"),
        format!("tei:https://host/embed#{CANARY}"),
        format!("candle:/models/x?token={CANARY}"),
        format!("https://user:{CANARY}@host/model"),
        format!("hash:8?key={CANARY}"),
    ] {
        for sql in [
            format!(
                "SELECT * FROM generate_embeddings(docs, '{spec}', 'title', 'id', name => 'x')"
            ),
            format!("SELECT embed('text', '{spec}')"),
        ] {
            let error = world.try_sql(&sql).await.expect_err(&spec);
            said.push(format!("{error} {error:?}").replace(&sql, ""));
        }
    }
    for sql in [
        "SHOW ALL",
        "SELECT * FROM embedding_tables()",
        "SELECT * FROM commits()",
    ] {
        said.push(format!("{:?}", world.sql(sql).await));
    }
    let metas: Vec<_> = store.list(None::<&Path>).try_collect().await.unwrap();
    for meta in metas {
        let bytes = store
            .get(&meta.location)
            .await
            .unwrap()
            .bytes()
            .await
            .unwrap();
        said.push(String::from_utf8_lossy(&bytes).into_owned());
    }
    for text in &said {
        assert!(
            !text.contains(CANARY),
            "{}",
            text.chars().take(600).collect::<String>()
        );
    }
}
