//! `install`: once, twice, on several roots.

use datafusion::prelude::SessionContext;
use stratagraph_udfs::{GenerateEmbeddings, Options, install};

use crate::world::{World, docs, typed};

#[tokio::test]
async fn twice_is_once() {
    let ctx = SessionContext::new();
    let one = install(&ctx, Options::new("memory://twice")).await.unwrap();
    let rules = ctx.state().analyzer().rules.len();
    let two = install(&ctx, Options::new("memory://twice")).await.unwrap();
    assert_eq!(ctx.state().analyzer().rules.len(), rules);
    ctx.sql("CREATE TABLE d AS SELECT 'a' AS id, 'text' AS body")
        .await
        .unwrap()
        .collect()
        .await
        .unwrap();
    one.generate_embeddings(GenerateEmbeddings::new("d", ["body"], "id").name("t"))
        .await
        .unwrap();
    assert_eq!(two.embedding_tables().await.unwrap().len(), 1);
    // Another session of this process over the same name.
    let other = install(&SessionContext::new(), Options::new("memory://twice/"))
        .await
        .unwrap();
    assert_eq!(other.embedding_tables().await.unwrap().len(), 1);
    let apart = install(&SessionContext::new(), Options::new("memory://apart"))
        .await
        .unwrap();
    assert!(apart.embedding_tables().await.unwrap().is_empty());
    assert!(!format!("{one:?}").contains("Mutex"));
}

#[tokio::test]
async fn directories_and_file_urls_are_one_store() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("data/sg");
    let ctx = SessionContext::new();
    let sg = install(&ctx, Options::new(path.display().to_string()))
        .await
        .unwrap();
    assert!(!path.exists(), "made on the first write");
    assert!(sg.embedding_tables().await.unwrap().is_empty());
    ctx.sql("CREATE TABLE d AS SELECT 'a' AS id, 'text' AS body")
        .await
        .unwrap()
        .collect()
        .await
        .unwrap();
    sg.generate_embeddings(GenerateEmbeddings::new("d", ["body"], "id").name("t"))
        .await
        .unwrap();
    let ctx = SessionContext::new();
    let url = url::Url::from_directory_path(&path).unwrap();
    let again = install(&ctx, Options::new(url.as_str())).await.unwrap();
    assert_eq!(again.embedding_tables().await.unwrap()[0].table, "t");
    let rows = ctx
        .sql("SELECT _row_id FROM sg.embeddings.t")
        .await
        .unwrap()
        .collect()
        .await
        .unwrap();
    assert_eq!(rows[0].num_rows(), 1);
}

#[tokio::test]
async fn roots_that_cannot_be_opened_are_typed() {
    for root in [
        "s3://user:secret@bucket/x?token=1",
        "gs://b",
        "odd://b",
        "file://host/x",
        "",
        "http://",
    ] {
        let error = install(&SessionContext::new(), Options::new(root))
            .await
            .unwrap_err();
        assert_eq!(error.code(), "StoreNotSupported", "{root}");
        assert!(!error.to_string().contains("secret"), "{error}");
    }
}

#[tokio::test]
async fn content_hash_is_the_stored_one() {
    let world = World::generated(&docs(4)).await;
    let row = world
        .row("SELECT count(*) FROM docs d JOIN sg.embeddings.t t ON d.id = t._row_id WHERE content_hash(title, body) = _content_hash")
        .await;
    assert_eq!(row, ["4"]);
    let row = world.row("SELECT content_hash('a') = content_hash(arrow_cast('a', 'Utf8View')), content_hash('a', NULL) = content_hash('a', ''), content_hash(1) = content_hash('1')").await;
    assert_eq!(row, ["true", "false", "true"]);
    let error = world.try_sql("SELECT content_hash()").await.unwrap_err();
    assert!(
        stratagraph_udfs::find_error(&error).is_none()
            || typed(&error, "content_hash()").0 == "InvalidArgument"
    );
}
