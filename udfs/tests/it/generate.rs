//! `generate_embeddings`, and what a first version holds.

use stratagraph_udfs::GenerateEmbeddings;

use crate::world::{World, doc, docs, strings};

#[tokio::test]
async fn a_table_is_made_once_and_read_back() {
    let world = World::new().await;
    world.docs.set(&docs(100));
    let report = world.generate("t").await;
    assert_eq!(report.len(), 1);
    assert_eq!(
        report[0][..6],
        strings(&["t", "0", "100", "0", "16", "counting"])
    );
    assert_eq!((report[0][6].len(), report[0][7].len()), (64, 64));
    assert_eq!((world.model.rows(), world.docs.scans()), (100, 1));

    let read = "SELECT _row_id, _source_id, _model_id, length(_content_hash) \
                FROM sg.embeddings.t ORDER BY 1 LIMIT 1";
    // FixedSizeBinary has no length: read it as it is instead.
    let read = read.replace(", length(_content_hash)", "");
    assert_eq!(
        world.row(&read).await,
        strings(&["k0000", "docs", "counting"])
    );
    let hash = world
        .row(
            "SELECT count(*) FROM sg.embeddings.t t JOIN docs d ON t._row_id = d.id \
             WHERE t._content_hash = content_hash(d.title, d.body)",
        )
        .await;
    assert_eq!(hash, ["100"]);
    assert_eq!(
        world
            .code("SELECT * FROM generate_embeddings('docs', 'counting', 'title', 'id', 't')")
            .await,
        "AlreadyExists"
    );
    assert_eq!(world.model.rows(), 100, "a taken name costs no model call");
}

#[tokio::test]
async fn rust_and_sql_give_the_same_identity_on_any_root() {
    let (sql, rust) = (World::new().await, World::new().await);
    for world in [&sql, &rust] {
        world.docs.set(&docs(50));
    }
    let report = sql.generate("t").await;
    let table = GenerateEmbeddings::new("docs", ["title", "body"], "id")
        .model("counting")
        .name("t");
    let made = rust.sg.generate_embeddings(table).await.unwrap();
    assert_eq!(
        [made.definition_hash.as_str(), &made.identity],
        [&report[0][6], &report[0][7]]
    );

    let mut edited = docs(50);
    edited[7].2 = Some("another text".to_owned());
    edited.remove(9);
    edited.push(doc("new", "a", "b"));
    for world in [&sql, &rust] {
        world.docs.set(&edited);
    }
    let by_sql = sql.row("SELECT * FROM refresh_embeddings('t')").await;
    let by_rust = rust
        .sg
        .refresh_embeddings("t", Default::default())
        .await
        .unwrap();
    assert_eq!(
        by_sql[1..],
        strings(&[
            "1",
            "0",
            "2",
            "1",
            "1",
            "1",
            "48",
            "0",
            "50",
            "2",
            "published",
            "0",
            "0",
            "1"
        ])
    );
    assert_eq!(
        (by_rust.version, by_rust.added, by_rust.live_rows),
        (1, 1, 50)
    );
    let identity = |world: &World| {
        let sg = world.sg.clone();
        async move { sg.versions("t").await.unwrap()[0].identity.clone() }
    };
    assert_eq!(identity(&sql).await, identity(&rust).await);
}

#[tokio::test]
async fn names_and_models_have_defaults() {
    let world = World::new().await;
    world.docs.set(&docs(3));
    let row = world
        .row("SELECT \"table\", model, dimensions FROM generate_embeddings(docs, NULL, 'title,body', id)")
        .await;
    assert_eq!(
        row,
        strings(&[
            "docs__embedding__static-minilm-l6-128",
            "static:minilm-l6-128",
            "128"
        ])
    );
    let row = world
        .row("SELECT \"table\" FROM Generate_Embeddings(source => 'datafusion.public.docs', key_column => 'id', columns => ['body'], model => 'hash:8')")
        .await;
    assert_eq!(row, ["docs__embedding__hash-8"]);
}

#[tokio::test]
async fn a_source_without_rows_or_texts_makes_an_empty_version() {
    let world = World::generated(&[]).await;
    assert_eq!(world.sql("SELECT * FROM sg.embeddings.t").await.len(), 0);
    let none = (Some("a".to_owned()), None, Some(String::new()));
    world.docs.set(std::slice::from_ref(&none));
    let report = world.generate("u").await;
    assert_eq!(report[0][..4], strings(&["u", "0", "0", "1"]));
    assert_eq!(
        world.sql("SELECT * FROM rejected_rows('u')").await,
        [strings(&["a", "empty"])]
    );
    let again = world
        .row("SELECT outcome, rejected_rows, live_rows FROM refresh_embeddings('u')")
        .await;
    assert_eq!(again, strings(&["no_change", "1", "0"]));
    let filled = world
        .row("SELECT outcome, added, inferred_rows FROM refresh_embeddings('t')")
        .await;
    assert_eq!(filled, strings(&["published", "1", "1"]));
}

#[tokio::test]
async fn any_table_of_the_session_is_a_source() {
    let world = World::new().await;
    world.docs.set(&docs(20));
    let dir = tempfile::tempdir().unwrap();
    let csv = dir.path().join("docs.csv");
    let parquet = dir.path().join("docs.parquet");
    for (path, format) in [
        (&csv, "CSV OPTIONS ('format.has_header' 'true')"),
        (&parquet, "PARQUET"),
    ] {
        let path = path.display();
        world
            .sql(&format!(
                "COPY (SELECT * FROM docs) TO '{path}' STORED AS {format}"
            ))
            .await;
    }
    let (csv, parquet) = (csv.display(), parquet.display());
    world.sql(&format!("CREATE EXTERNAL TABLE c STORED AS CSV LOCATION '{csv}' OPTIONS ('format.has_header' 'true')")).await;
    world
        .sql(&format!(
            "CREATE EXTERNAL TABLE p STORED AS PARQUET LOCATION '{parquet}'"
        ))
        .await;
    world
        .sql("CREATE VIEW v AS SELECT id, title, upper(title) AS loud, n FROM docs WHERE n < 5")
        .await;
    world.sql("CREATE SCHEMA s").await;
    world
        .sql("CREATE TABLE s.\"Odd.Name\" AS SELECT * FROM docs")
        .await;
    for (source, columns, rows) in [
        ("c", "'title,n'", "20"),
        ("p", "['title', 'n']", "20"),
        ("v", "'loud'", "10"),
        ("s.\"Odd.Name\"", "'body'", "20"),
    ] {
        let row = world
            .row(&format!("SELECT rows FROM generate_embeddings('{source}', 'hash:8', {columns}, 'id', 'of_{rows}_{}')", &source[..1]))
            .await;
        assert_eq!(row, [rows], "{source}");
    }
    let call = "generate_embeddings(s.\"Odd.Name\", 'hash:8', body, id, name => 'again')";
    let row = world.row(&format!("SELECT rows FROM {call}")).await;
    assert_eq!(row, ["20"], "an identifier");
    world.sql("SELECT * FROM drop_embeddings('again')").await;
    let again = world
        .row("SELECT outcome FROM refresh_embeddings('of_10_v')")
        .await;
    assert_eq!(again, ["no_change"]);
    let sources = world
        .sql("SELECT source FROM embedding_tables() ORDER BY 1")
        .await
        .concat();
    assert_eq!(sources, strings(&["c", "datafusion.s.Odd.Name", "p", "v"]));
}
