//! What users of other systems report of searches, by the numbers of their trackers: each with the answer
//! that is expected here.

use crate::graph_load::support::{Append, Merge, load, world};
use crate::world::World;

const SCHEMA: &str = r#"
node Doc { name: String @key  body: String?  size: I32  v: Vector(2)? }
edge Cites: Doc -> Doc
"#;

fn doc(n: usize, body: &str, size: usize) -> String {
    let angle = n as f64 / 100.0;
    format!(
        "{{\"type\":\"Doc\",\"data\":{{\"name\":\"d{n:03}\",\"body\":\"{body}\",\"size\":{size},\"v\":[{}, {}]}}}}",
        angle.cos(),
        angle.sin()
    )
}

/// A hundred rows, nearer to [1, 0] the smaller their number.
async fn docs() -> World {
    let world = world(SCHEMA).await;
    let rows: Vec<String> = (0..100)
        .map(|n| {
            doc(
                n,
                if n % 10 == 3 {
                    "red apple"
                } else {
                    "green pear"
                },
                n,
            )
        })
        .collect();
    load(&world.sg, &rows.join("\n"), Append).await.unwrap();
    world
}

async fn nearest(world: &World, k: usize, filter: &str) -> Vec<String> {
    let filter = match filter {
        "" => String::new(),
        filter => format!(", filter => '{filter}'"),
    };
    let rows = world
        .sql(&format!(
            "SELECT name FROM vector_search('g.Doc', 'v', [1.0, 0.0], {k}{filter})"
        ))
        .await;
    rows.into_iter().map(|mut row| row.remove(0)).collect()
}

async fn texts(world: &World, words: &str) -> Vec<String> {
    let rows = world
        .sql(&format!(
            "SELECT name FROM text_search('g.Doc', 'body', '{words}', 1000) ORDER BY name"
        ))
        .await;
    rows.into_iter().map(|mut row| row.remove(0)).collect()
}

/// lance#7370: the old and the new vector of a changed row are both found.
#[tokio::test]
async fn a_changed_row_is_found_once_by_its_new_vector() {
    let world = docs().await;
    load(
        &world.sg,
        &doc(200, "green pear", 0).replace("d200", "d000"),
        Merge,
    )
    .await
    .unwrap();
    let all = nearest(&world, 1_000, "").await;
    assert_eq!(all.len(), 100);
    assert_eq!(all.iter().filter(|name| *name == "d000").count(), 1);
    assert_eq!(all.last().unwrap(), "d000");
}

/// lance#7359, #3812: a predicate on a changed column gives the rows of before.
#[tokio::test]
async fn a_predicate_sees_changed_columns_with_an_index_and_without() {
    for indexed in [false, true] {
        let world = docs().await;
        if indexed {
            world
                .sql("SELECT * FROM build_index('g.Doc', 'body')")
                .await;
        }
        load(&world.sg, &doc(5, "red apple", 999), Merge)
            .await
            .unwrap();
        assert_eq!(nearest(&world, 10, "size = 999").await, ["d005"]);
        assert!(nearest(&world, 10, "size = 5").await.is_empty());
        let red = texts(&world, "apple").await;
        assert!(
            red.contains(&"d005".to_owned()) && red.len() == 11,
            "{red:?}"
        );
    }
}

/// lance#4929: rows of a later fragment drop out of the index and of the answers.
#[tokio::test]
async fn coverage_is_all_rows_after_any_number_of_loads() {
    let world = docs().await;
    world
        .sql("SELECT * FROM build_index('g.Doc', 'body')")
        .await;
    for n in 100..110 {
        load(&world.sg, &doc(n, "red apple", n), Append)
            .await
            .unwrap();
    }
    let covered = world
        .sql(
            "SELECT sum(covered_rows - dead_rows) FROM segments('g.Doc') WHERE \"column\" = 'body'",
        )
        .await;
    assert_eq!(covered, [["110"]]);
    assert_eq!(texts(&world, "apple").await.len(), 20);
    let again = world
        .sql("SELECT rows FROM build_index('g.Doc', 'body')")
        .await;
    assert_eq!(again, [["110"]]);
    assert_eq!(texts(&world, "apple").await.len(), 20);
}

/// lance#5872, lancedb#1365, duckdb-fts#62: a changed text is found by its old words or not by its new ones.
#[tokio::test]
async fn texts_are_found_by_their_words_of_now() {
    let world = docs().await;
    world
        .sql("SELECT * FROM build_index('g.Doc', 'body')")
        .await;
    load(&world.sg, &doc(3, "blue plum", 3), Merge)
        .await
        .unwrap();
    assert_eq!(texts(&world, "plum").await, ["d003"]);
    assert!(!texts(&world, "apple").await.contains(&"d003".to_owned()));
}

/// lancedb#2762, #511: a selective predicate leaves fewer rows than there are; pgvector#259: so do dead ones.
#[tokio::test]
async fn there_are_always_as_many_rows_as_match() {
    let world = docs().await;
    for (filter, matches) in [
        ("size = 77", 1),
        ("size < 10", 10),
        ("size % 2 = 0", 50),
        ("size > 1000", 0),
    ] {
        for k in [1, 10, 200] {
            assert_eq!(
                nearest(&world, k, filter).await.len(),
                matches.min(k),
                "{filter} {k}"
            );
        }
    }
    // The forty nearest go; the next ten are found without any maintenance.
    let rest: Vec<String> = (40..100).map(|n| doc(n, "green pear", n)).collect();
    load(
        &world.sg,
        &rest.join("\n"),
        crate::graph_load::support::Overwrite,
    )
    .await
    .unwrap();
    let names: Vec<String> = (40..50).map(|n| format!("d{n:03}")).collect();
    assert_eq!(nearest(&world, 10, "").await, names);
}

/// lancedb#3095, neo4j-graphrag#443: the predicate of a hybrid search is applied to one leg, or not at all.
#[tokio::test]
async fn a_hybrid_search_with_one_match_finds_it() {
    let world = world(
        r#"node Doc { name: String @key  body: String  size: I32  v: Vector(8)? @embed("body", model = "hash:8") }"#,
    )
    .await;
    let rows: Vec<String> = (0..60)
        .map(|n| format!("{{\"type\":\"Doc\",\"data\":{{\"name\":\"d{n:02}\",\"body\":\"word{n} apple\",\"size\":{n}}}}}"))
        .collect();
    let load = stratagraph_udfs::GraphLoad {
        fill: true,
        ..stratagraph_udfs::GraphLoad::of_text("g", rows.join("\n"), Append)
    };
    world.sg.graph_load(load).await.unwrap();
    let found = world
        .sql("SELECT name, _vector_rank, _text_rank FROM hybrid_search('g.Doc', 'v', 'body', 'apple', 5, filter => 'size = 41')")
        .await;
    assert_eq!(found, [["d41", "1", "1"]]);
}

/// paimon-rust#613: the rows of an answer are not in the order of their relevance.
#[tokio::test]
async fn answers_are_best_first_and_ranked_from_one() {
    let world = docs().await;
    let rows = world
        .sql("SELECT _rank, _distance FROM vector_search('g.Doc', 'v', [0.7, 0.7], 20)")
        .await;
    let ranks: Vec<usize> = rows.iter().map(|row| row[0].parse().unwrap()).collect();
    let distances: Vec<f32> = rows.iter().map(|row| row[1].parse().unwrap()).collect();
    assert_eq!(ranks, (1..=20).collect::<Vec<_>>());
    assert!(distances.is_sorted());
}

/// kuzu#5521, #5965, ladybug#377, #67: a deleted node is found, a changed vector is refused, an emptied table
/// stays empty.
#[tokio::test]
async fn nodes_may_go_and_come_back() {
    let world = docs().await;
    world
        .sql("SELECT * FROM build_index('g.Doc', 'body')")
        .await;
    let one = doc(7, "red apple", 7);
    load(&world.sg, &one, crate::graph_load::support::Overwrite)
        .await
        .unwrap();
    assert_eq!(nearest(&world, 10, "").await, ["d007"]);
    assert_eq!(texts(&world, "apple").await, ["d007"]);
    load(&world.sg, &doc(8, "red apple", 8), Append)
        .await
        .unwrap();
    assert_eq!(nearest(&world, 10, "").await, ["d007", "d008"]);
    assert_eq!(texts(&world, "apple").await, ["d007", "d008"]);
}

/// omnigraph#665, #567, #563: a traversal or a condition after the rank leaves fewer rows than the limit;
/// #750, #789: a search of a variable that a traversal introduces is dropped.
#[tokio::test]
async fn a_rank_sees_only_rows_for_which_the_pattern_holds() {
    let world = docs().await;
    let edges: Vec<String> = (50..70)
        .map(|n| format!("{{\"edge\":\"Cites\",\"from\":\"d000\",\"to\":\"d{n:03}\"}}"))
        .collect();
    load(&world.sg, &edges.join("\n"), Append).await.unwrap();
    let query = |conditions: &str, order: &str| {
        format!(
            "SELECT * FROM graph_query('g', $$ query q() {{ match {{ $a: Doc {{ name: \"d000\" }} \
             $a cites $b {conditions} }} return {{ $b.name as name }} order {{ {order} }} limit 3 }} $$)"
        )
    };
    let near = "nearest($b.v, [1.0, 0.0])";
    assert_eq!(
        world.sql(&query("", near)).await,
        [["d050"], ["d051"], ["d052"]]
    );
    let late = query("$b.size > 66", near);
    assert_eq!(world.sql(&late).await, [["d067"], ["d068"], ["d069"]]);
    let red = query("search($b.body, \"apple\")", near);
    assert_eq!(world.sql(&red).await, [["d053"], ["d063"]]);
    let both = query(
        "search($b.body, \"apple\") search($b.body, \"red\") fuzzy($b.body, \"aple\")",
        near,
    );
    assert_eq!(world.sql(&both).await, [["d053"], ["d063"]]);
    let none = query("search($b.body, \"apple\") search($b.body, \"pear\")", near);
    assert!(world.sql(&none).await.is_empty());
    let words = query("", "bm25($b.body, \"apple\")");
    assert_eq!(world.sql(&words).await, [["d053"], ["d063"]]);
    // A bound edge and a node in the pattern that is not ranked: the order survives.
    let bound = "SELECT * FROM graph_query('g', $$ query q() { match { $a: Doc $a $w:cites $b $b.size > 60 } \
                 return { $a.name as a, $b.name as b, nearest($b.v, [1.0, 0.0]) as d } \
                 order { nearest($b.v, [1.0, 0.0]) } limit 2 } $$)";
    let rows = world.sql(bound).await;
    assert_eq!((rows[0][1].as_str(), rows[1][1].as_str()), ("d061", "d062"));
}

/// omnigraph#747: what an index finds depends on its analyser, what a scan finds does not; #640: a score in
/// `return` fails; #787, #788: further order keys are ignored.
#[tokio::test]
async fn indexed_and_unindexed_texts_match_alike() {
    let mut answers = Vec::new();
    for indexed in [false, true] {
        let world = world("node Doc { name: String @key  body: String? }").await;
        let rows: Vec<String> = ["Running shoes", "a RUNNER", "runs", "walk", "the run"]
            .iter()
            .enumerate()
            .map(|(n, body)| {
                format!("{{\"type\":\"Doc\",\"data\":{{\"name\":\"d{n}\",\"body\":\"{body}\"}}}}")
            })
            .collect();
        load(&world.sg, &rows.join("\n"), Append).await.unwrap();
        if indexed {
            world
                .sql("SELECT * FROM build_index('g.Doc', 'body')")
                .await;
        }
        let query = "SELECT * FROM graph_query('g', $$ query q() { match { $d: Doc } \
                     return { $d.name as name, bm25($d.body, \"RUN\") as score } \
                     order { bm25($d.body, \"RUN\"), $d.name desc } limit 10 } $$)";
        answers.push(world.sql(query).await);
    }
    assert_eq!(answers[0], answers[1]);
    let names: Vec<&str> = answers[0].iter().map(|row| row[0].as_str()).collect();
    assert_eq!(names, ["d4", "d2", "d0"]);
}
