//! `search` and `search_by_id` against a plain computation.

use stratagraph::embed::{HashEmbedder, SyncEmbedder};
use stratagraph_udfs::{Search, Wanted};

use crate::world::{Doc, World, docs, strings};

fn cosine(a: &[f32], b: &[f32]) -> f64 {
    let dot = |a: &[f32], b: &[f32]| -> f64 {
        a.iter()
            .zip(b)
            .map(|(x, y)| f64::from(*x) * f64::from(*y))
            .sum()
    };
    dot(a, b) / (dot(a, a).sqrt() * dot(b, b).sqrt())
}

fn vector(text: &str) -> Vec<f32> {
    use arrow::array::AsArray;
    let model = HashEmbedder::new(16).unwrap();
    let answer = model
        .embed_now(stratagraph::embed::Role::Query, &[Some(text)])
        .unwrap();
    let vector = answer.vectors.value(0);
    vector
        .as_primitive::<arrow::datatypes::Float32Type>()
        .values()
        .to_vec()
}

/// Keys by similarity, then by key.
fn oracle(rows: &[Doc], query: &[f32]) -> Vec<(String, f64)> {
    let mut all: Vec<(String, f64)> = rows
        .iter()
        .map(|(id, title, body)| {
            let text = format!("{} {}", title.clone().unwrap(), body.clone().unwrap());
            (id.clone().unwrap(), cosine(query, &vector(&text)))
        })
        .collect();
    all.sort_by(|a, b| b.1.total_cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
    all
}

#[tokio::test]
async fn the_best_rows_are_found_exactly() {
    let rows = docs(300);
    let world = World::generated(&rows).await;
    for query in ["title 17", "red body", "violet", "something else"] {
        let expected = oracle(&rows, &vector(query));
        for k in [1, 7, 299, 300, 1000] {
            let search = Search::new(Wanted::Text(query.to_owned()), k);
            let hits = world.sg.search("t", search).await.unwrap();
            assert_eq!(hits.len(), (k as usize).min(300));
            for (i, (hit, (_, similarity))) in hits.iter().zip(&expected).enumerate() {
                assert_eq!(hit.rank, i as u64 + 1);
                assert!(
                    (f64::from(hit.similarity) - similarity).abs() < 1e-6,
                    "{query} {i}"
                );
            }
            for pair in hits.windows(2) {
                let order = pair[1].similarity.total_cmp(&pair[0].similarity);
                assert!(
                    order
                        .then_with(|| pair[0]._row_id.cmp(&pair[1]._row_id))
                        .is_lt()
                );
            }
        }
    }
}

#[tokio::test]
async fn sql_takes_texts_vectors_filters_and_versions() {
    let mut rows = docs(50);
    let world = World::generated(&rows).await;
    rows[7].1 = Some("zebra".to_owned());
    rows[7].2 = Some("zebra".to_owned());
    rows.remove(9);
    world.docs.set(&rows);
    world.sql("SELECT * FROM refresh_embeddings('t')").await;

    let hit = world
        .row("SELECT * FROM search('t', 'zebra zebra', 1)")
        .await;
    assert_eq!(hit, strings(&["k0007", "1.0", "1"]));
    let old = world
        .row("SELECT _row_id = 'k0007', rank FROM search('t', 'zebra zebra', 1, version => 0)")
        .await;
    assert_eq!(old[1], "1");
    let count = |args: &str| {
        let sql = format!("SELECT count(*) FROM search({args})");
        let world = &world;
        async move { world.row(&sql).await[0].clone() }
    };
    assert_eq!(count("'t', 'body', 100").await, "49");
    assert_eq!(count("'t@0', 'body', 100").await, "50");
    assert_eq!(
        count("'t', 'body', 100, filter => '_row_id < ''k0010'''").await,
        "9"
    );
    assert_eq!(
        count("'t', 'body', 100, \"filter\" => '_row_id IN (''k0001'', ''k0009'')'").await,
        "1"
    );
    assert_eq!(count("'t', 'body', 100, filter => 'NULL'").await, "0");
    assert_eq!(count("'t', 'body', 3, exact => true").await, "3");
    let ones: Vec<&str> = std::iter::repeat_n("1", 16).collect();
    assert_eq!(count(&format!("'t', [{}], 5", ones.join(","))).await, "5");
    assert_eq!(
        count(&format!(
            "table => 't', query => make_array({}), k => 5",
            ones.join(",0.5+")
        ))
        .await,
        "5"
    );

    let by_id = world
        .sql("SELECT _row_id, rank FROM search_by_id('t', 'k0007', 2)")
        .await;
    assert_eq!(by_id[0], strings(&["k0007", "1"]));
    assert_eq!(by_id.len(), 2);
}

#[tokio::test]
async fn odd_searches_are_refused() {
    let world = World::generated(&docs(5)).await;
    for (args, code) in [
        ("'t', 'a', 0", "InvalidArgument"),
        ("'t', 'a', -1", "InvalidArgument"),
        ("'t', 'a', 1000001", "ResourceLimitExceeded"),
        ("'t', '', 1", "InvalidArgument"),
        ("'t', [1.0], 1", "InvalidArgument"),
        (
            "'t', [0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0], 1",
            "InvalidArgument",
        ),
        ("'t', 1, 1", "InvalidArgument"),
        ("'t', 'a', 1, 'vector IS NULL'", "InvalidArgument"),
        ("'t', 'a', 1, '_row_id'", "InvalidArgument"),
        ("'t', 'a', 1, '_row_id ='", "InvalidArgument"),
        (
            "'t', 'a', 1, '_row_id = ''a'' garbage more'",
            "InvalidArgument",
        ),
        (
            "'t', 'a', 1, '_row_id IN (SELECT id FROM docs)'",
            "InvalidArgument",
        ),
        ("'t', 'a', 1, 'count(*) > 1'", "InvalidArgument"),
        ("'t@0', 'a', 1, version => 1", "InvalidArgument"),
    ] {
        assert_eq!(
            world.code(&format!("SELECT * FROM search({args})")).await,
            code,
            "{args}"
        );
    }
}

#[tokio::test]
async fn partitions_and_batches_do_not_show() {
    let rows = docs(500);
    let mut answers = Vec::new();
    for (partitions, batch) in [(1, 8192), (2, 64), (7, 3)] {
        let world = World::generated(&rows).await;
        world
            .sql(&format!(
                "SET datafusion.execution.target_partitions = {partitions}"
            ))
            .await;
        world
            .sql(&format!("SET datafusion.execution.batch_size = {batch}"))
            .await;
        world
            .sql("SET datafusion.execution.parquet.pushdown_filters = true")
            .await;
        let search =
            Search::new(Wanted::Text("amber body".to_owned()), 40).filter("_row_id > 'k0100'");
        answers.push(world.sg.search("t", search).await.unwrap());
    }
    assert_eq!(answers[0], answers[1]);
    assert_eq!(answers[0], answers[2]);
    assert_eq!(answers[0].len(), 40);
}
