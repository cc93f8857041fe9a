//! Reads: vectors, commits, verification, dropping.

use arrow::array::AsArray;
use arrow::datatypes::Float32Type;
use stratagraph_udfs::CommitFilter;

use crate::world::{World, docs, strings};

#[tokio::test]
async fn vectors_come_in_key_order_from_any_version() {
    let mut rows = docs(40);
    rows.reverse();
    let world = World::generated(&rows).await;
    rows[3].1 = Some("edited".to_owned());
    rows.remove(5);
    world.docs.set(&rows);
    world.sql("SELECT * FROM refresh_embeddings('t')").await;
    let keys = |rows: Vec<Vec<String>>| rows.into_iter().map(|r| r[0].clone()).collect::<Vec<_>>();
    let now = keys(world.sql("SELECT * FROM read_vectors('t')").await);
    assert_eq!(now.len(), 39);
    assert!(now.is_sorted());
    let before = keys(
        world
            .sql("SELECT * FROM read_vectors('t', version => 0)")
            .await,
    );
    assert_eq!(before.len(), 40);
    assert_eq!(
        keys(world.sql("SELECT * FROM read_vectors('t@0')").await),
        before
    );
    let batches = world.sg.read_vectors("t").await.unwrap();
    let vectors = batches[0].column(1).as_fixed_size_list();
    assert_eq!(vectors.value_length(), 16);
    assert_eq!(vectors.value(0).as_primitive::<Float32Type>().len(), 16);
    let joined = world
        .row("SELECT count(*) FROM read_vectors('t') v JOIN sg.embeddings.t t ON v._row_id = t._row_id AND v.vector = t.vector")
        .await;
    assert_eq!(joined, ["39"]);
}

#[tokio::test]
async fn commits_and_their_outcome_are_listed() {
    let world = World::generated(&docs(5)).await;
    let mut rows = docs(5);
    rows[0].1 = Some("edited".to_owned());
    world.docs.set(&rows);
    world.sql("SELECT * FROM refresh_embeddings('t')").await;
    world.generate("u").await;
    world.sql("SELECT * FROM drop_embeddings('u')").await;
    let all = world
        .sql("SELECT version, dataset, branch, kind FROM commits()")
        .await;
    assert_eq!(
        all,
        [
            strings(&["4", "u", "main", "drop"]),
            strings(&["3", "u", "main", "generate"]),
            strings(&["2", "t", "main", "refresh"]),
            strings(&["1", "t", "main", "generate"]),
        ]
    );
    let of_t = world
        .sg
        .commits(CommitFilter {
            dataset: Some("t".to_owned()),
            branch: None,
        })
        .await
        .unwrap();
    assert_eq!(of_t.len(), 2);
    assert_eq!(of_t[0].parent_ids, of_t[1].commit_id);
    let status = world
        .row(&format!(
            "SELECT status, version FROM commit_status('{}')",
            of_t[0].txn
        ))
        .await;
    assert_eq!(status, strings(&["committed", "2"]));
    let unknown = world
        .row("SELECT status, version FROM commit_status('00000000000000000002-NEVER')")
        .await;
    assert_eq!(unknown, strings(&["unknown", "NULL"]));
}

#[tokio::test]
async fn a_dropped_table_is_gone_and_its_name_is_free() {
    let world = World::generated(&docs(5)).await;
    let row = world.row("SELECT * FROM drop_embeddings('t')").await;
    assert_eq!(row, strings(&["t", "dropped"]));
    assert!(
        world
            .sql("SELECT * FROM embedding_tables()")
            .await
            .is_empty()
    );
    assert!(
        world
            .try_sql("SELECT * FROM sg.embeddings.t")
            .await
            .is_err()
    );
    let report = world.generate("t").await;
    assert_eq!(report[0][1], "0");
    let row = world.row("SELECT \"table\", source, model, dimensions, version, live_rows FROM embedding_tables()").await;
    assert_eq!(row, strings(&["t", "docs", "counting", "16", "0", "5"]));
}

#[tokio::test]
async fn verification_names_every_artifact() {
    let world = World::generated(&docs(30)).await;
    let mut rows = docs(30);
    rows[0].1 = Some("edited".to_owned());
    rows[1].1 = None;
    rows[1].2 = None;
    world.docs.set(&rows);
    world.sql("SELECT * FROM refresh_embeddings('t')").await;
    let checks = world.sg.verify_materialization("t").await.unwrap();
    assert!(checks.iter().all(|c| c.verdict == "match"), "{checks:#?}");
    assert_eq!(checks.last().unwrap().kind, "identity");
    let fragments = checks
        .iter()
        .filter(|c| c.artifact.ends_with(".parquet"))
        .count();
    assert!(
        fragments >= 4,
        "two fragments, a mask, a ledger: {checks:#?}"
    );

    // A fragment that is gone is named; nothing is silently short.
    let fragment = checks
        .iter()
        .find(|c| c.kind == "fragment")
        .unwrap()
        .artifact
        .clone();
    world.sg.catalog().store().delete(&fragment).await.unwrap();
    let checks = world.sg.verify_materialization("t").await.unwrap();
    let missing = checks
        .iter()
        .find(|c| c.artifact == fragment && c.kind == "fragment")
        .unwrap();
    assert_eq!(missing.verdict, "missing");
    assert_eq!(checks.last().unwrap().verdict, "mismatch");
    assert_eq!(
        world.code("SELECT vector FROM sg.embeddings.t").await,
        "Storage"
    );
    assert_eq!(
        world.code("SELECT * FROM search('t', 'a', 3)").await,
        "Storage"
    );
}
