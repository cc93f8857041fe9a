//! Searches and ranks in patterns: the intent of the peer's own tests.

use crate::graph_load::support::{Append, load, world};
use crate::world::World;

const SCHEMA: &str = r#"
node Doc {
  slug: String @key
  title: String @index
  body: String? @index(analyzer = "english")
  kind: String
  v: Vector(4)? @embed("title", model = "counting")
  w: Vector(2)?
}
edge Cites: Doc -> Doc { weight: I32? }
"#;

/// Documents whose vectors are nearer to [1, 0] in the order ml, nlp, rl, dl, other.
async fn docs() -> World {
    let world = world(SCHEMA).await;
    let rows = [
        (
            "ml-intro",
            "Machine Learning",
            "Learning from data",
            "hit",
            0.0,
        ),
        (
            "nlp-guide",
            "Language guide",
            "Words and sentences",
            "miss",
            0.2,
        ),
        (
            "rl-intro",
            "Reinforcement Learning",
            "Learning learning by reward",
            "hit",
            0.4,
        ),
        (
            "dl-basics",
            "Deep networks",
            "Learning with many layers of neurons",
            "hit",
            0.6,
        ),
        ("other", "Cooking", "Recipes", "miss", 0.8),
    ];
    let mut lines: Vec<String> = rows
        .iter()
        .map(
            |(slug, title, body, kind, angle): &(&str, &str, &str, &str, f64)| {
                format!(
                    "{{\"type\":\"Doc\",\"data\":{{\"slug\":\"{slug}\",\"title\":\"{title}\",\
                 \"body\":\"{body}\",\"kind\":\"{kind}\",\"w\":[{},{}]}}}}",
                    angle.cos(),
                    angle.sin()
                )
            },
        )
        .collect();
    lines.push(
        "{\"type\":\"Doc\",\"data\":{\"slug\":\"bare\",\"title\":\"No vector\",\"kind\":\"miss\"}}"
            .to_owned(),
    );
    for (from, to, id) in [
        ("rl-intro", "ml-intro", "c"),
        ("ml-intro", "rl-intro", "b"),
        ("ml-intro", "nlp-guide", "a"),
    ] {
        lines.push(format!(
            "{{\"edge\":\"Cites\",\"from\":\"{from}\",\"to\":\"{to}\",\"data\":{{\"id\":\"{id}\"}}}}"
        ));
    }
    load(&world.sg, &lines.join("\n"), Append).await.unwrap();
    world
}

async fn ask(world: &World, query: &str) -> Vec<Vec<String>> {
    world
        .sql(&format!("SELECT * FROM graph_query('g', $${query}$$)"))
        .await
}

async fn slugs(world: &World, conditions: &str, order: &str, limit: usize) -> Vec<String> {
    let query = format!(
        "query q() {{ match {{ $d: Doc {conditions} }} return {{ $d.slug as slug }} order {{ {order} }} limit {limit} }}"
    );
    let rows = ask(world, &query).await;
    rows.into_iter().map(|mut row| row.remove(0)).collect()
}

const NEAR: &str = "nearest($d.w, [1.0, 0.0])";

#[tokio::test]
async fn nearest_is_in_the_order_of_distances_among_what_matches() {
    let world = docs().await;
    assert_eq!(
        slugs(&world, "", NEAR, 3).await,
        ["ml-intro", "nlp-guide", "rl-intro"]
    );
    // A row without a vector has no rank, however many rows are asked for.
    assert_eq!(slugs(&world, "", NEAR, 100).await.len(), 5);
    for condition in [
        "$d.kind = \"hit\"",
        "not { $d cites $x $x.slug = \"nlp-guide\" } $d.kind != \"miss\"",
    ] {
        let found = slugs(&world, condition, NEAR, 3).await;
        assert!(
            found.len() >= 2 && !found.contains(&"nlp-guide".to_owned()),
            "{condition}: {found:?}"
        );
    }
    assert_eq!(
        slugs(&world, "$d.kind <= \"hit\"", NEAR, 3).await,
        ["ml-intro", "rl-intro", "dl-basics"]
    );
}

#[tokio::test]
async fn a_large_limit_keeps_the_order_over_all_rows() {
    let world = world("node Doc { slug: String @key  n: I32  w: Vector(2) }").await;
    let rows: Vec<String> = (0..10_000)
        .map(|n| {
            let angle = f64::from((n * 7_919) % 10_000) / 10_000.0;
            format!(
                "{{\"type\":\"Doc\",\"data\":{{\"slug\":\"s{n:05}\",\"n\":{},\"w\":[{},{}]}}}}",
                (n * 7_919) % 10_000,
                angle.cos(),
                angle.sin()
            )
        })
        .collect();
    load(&world.sg, &rows.join("\n"), Append).await.unwrap();
    let rows = ask(
        &world,
        "query q() { match { $d: Doc } return { $d.n as n } order { nearest($d.w, [1.0, 0.0]) } limit 8193 }",
    )
    .await;
    let order: Vec<i64> = rows.iter().map(|row| row[0].parse().unwrap()).collect();
    assert_eq!(order.len(), 8_193);
    // Neighbours differ by less than f32 tells apart near 0; the order is never off by more.
    assert!(order.windows(2).all(|w| w[0] < w[1] + 60));
    assert!(order.iter().all(|n| *n < 8_300));
}

#[tokio::test]
async fn words_rank_and_filter_alike() {
    let world = docs().await;
    let learning = "bm25($d.body, \"Learning\")";
    assert_eq!(
        slugs(&world, "", learning, 10).await,
        ["rl-intro", "ml-intro", "dl-basics"]
    );
    for condition in [
        "search($d.body, \"learning\")",
        "match_text($d.body, \"learning\")",
        "fuzzy($d.body, \"lerning\")",
        "fuzzy($d.body, \"lerning\", 1)",
    ] {
        let mut found = slugs(&world, condition, "$d.slug", 10).await;
        found.sort();
        assert_eq!(found, ["dl-basics", "ml-intro", "rl-intro"], "{condition}");
    }
    for condition in [
        "search($d.body, \"absent\")",
        "fuzzy($d.body, \"learninggg\", 0)",
        "search($d.body, \"the of\")",
        "search($d.body, \"\")",
    ] {
        assert!(
            slugs(&world, condition, "$d.slug", 10).await.is_empty(),
            "{condition}"
        );
    }
    // A text that is not there does not match, and is no match either way of asking.
    let rest = slugs(
        &world,
        "not { search($d.body, \"learning\") }",
        "$d.slug",
        10,
    )
    .await;
    assert_eq!(rest, ["bare", "nlp-guide", "other"]);
}

#[tokio::test]
async fn fusions_take_any_two_ranks() {
    let world = docs().await;
    let texts = "rrf(bm25($d.body, \"learning\"), bm25($d.title, \"learning\"))";
    // First in one and second in the other, both of them: equal sums come by id.
    assert_eq!(
        slugs(&world, "", texts, 3).await[..2],
        ["ml-intro", "rl-intro"]
    );
    let vectors = "rrf(nearest($d.w, [1.0, 0.0]), nearest($d.w, [0.6, 0.8]))";
    assert_eq!(slugs(&world, "", vectors, 10).await.len(), 5);
    let both = format!("rrf({NEAR}, bm25($d.body, \"learning\"), 60)");
    assert_eq!(
        slugs(&world, "", &both, 3).await,
        ["ml-intro", "rl-intro", "dl-basics"]
    );
    assert_eq!(
        slugs(&world, "$d.kind = \"miss\"", &both, 3).await,
        ["nlp-guide", "other"]
    );
}

#[tokio::test]
async fn ranks_survive_bound_edges_and_fan_out() {
    let world = docs().await;
    let rows = ask(
        &world,
        "query q() { match { $a: Doc $a $w:cites $b } return { $a.slug as a, $w.id as edge, $b.slug as b } \
         order { nearest($a.w, [1.0, 0.0]) } limit 10 }",
    )
    .await;
    let rows: Vec<Vec<&str>> = rows
        .iter()
        .map(|r| r.iter().map(String::as_str).collect())
        .collect();
    // Equal distances come by the ids of all variables in the order of their names.
    assert_eq!(
        rows,
        [
            ["ml-intro", "a", "nlp-guide"],
            ["ml-intro", "b", "rl-intro"],
            ["rl-intro", "c", "ml-intro"]
        ]
    );
    // The ranks of two variables: each row counts for the entity of the first one.
    let rows = ask(
        &world,
        "query q() { match { $a: Doc $a cites $b } return { $a.slug as a, $b.slug as b, \
         rrf(nearest($a.w, [1.0, 0.0]), bm25($b.body, \"learning\"), 1) as s } \
         order { rrf(nearest($a.w, [1.0, 0.0]), bm25($b.body, \"learning\"), 1) } limit 10 }",
    )
    .await;
    assert_eq!(rows.len(), 3);
    assert_eq!(rows[0][0], "ml-intro");
}

#[tokio::test]
async fn a_text_is_near_by_the_model_of_its_property() {
    let world = docs().await;
    let line = "{\"type\":\"Doc\",\"data\":{\"slug\":\"filled\",\"title\":\"Machine Learning\",\"kind\":\"hit\"}}";
    let filled = stratagraph_udfs::GraphLoad {
        fill: true,
        ..stratagraph_udfs::GraphLoad::of_text("g", line, Append)
    };
    // The model of the world has another width than this property: a typed refusal, nothing loaded.
    assert_eq!(
        world.sg.graph_load(filled).await.unwrap_err().code(),
        "InvalidArgument"
    );
    let code = world
        .code("SELECT * FROM graph_query('g', $$query q() { match { $d: Doc } return { $d.slug } order { nearest($d.v, \"words\") } limit 1 }$$)")
        .await;
    assert_eq!(code, "InvalidArgument");
    // A property without a model takes vectors alone.
    let code = world
        .code("SELECT * FROM graph_query('g', $$query q() { match { $d: Doc } return { $d.slug } order { nearest($d.w, \"words\") } limit 1 }$$)")
        .await;
    assert_eq!(code, "InvalidArgument");
    // Nothing is embedded when a query is only planned; the plan says what is ranked.
    let calls = world.model.calls();
    let plan = world
        .sql("EXPLAIN SELECT * FROM graph_query('g', $$query q() { match { $d: Doc } return { $d.slug } order { nearest($d.v, \"words\") } limit 1 }$$)")
        .await;
    assert_eq!(world.model.calls(), calls);
    let plan = format!("{plan:?}");
    assert!(
        plan.contains("RankExec: nearest($d.v") || plan.contains("RankExec: nearest(d.v"),
        "{plan}"
    );
    assert!(plan.contains("top=1"), "{plan}");
}

#[tokio::test]
async fn the_model_of_a_property_is_the_default_of_when_the_graph_was_made() {
    let world = World::over(
        std::sync::Arc::new(object_store::memory::InMemory::new()),
        1,
    )
    .await;
    world.sql("SET stratagraph.default_model = 'hash:16'").await;
    let schema = "node Doc { slug: String @key  title: String  v: Vector(16)? @embed(\"title\") }";
    world.sg.graph_create("g", schema).await.unwrap();
    let line = "{\"type\":\"Doc\",\"data\":{\"slug\":\"a\",\"title\":\"red apple\"}}";
    let filled = stratagraph_udfs::GraphLoad {
        fill: true,
        ..stratagraph_udfs::GraphLoad::of_text("g", line, Append)
    };
    world.sg.graph_load(filled).await.unwrap();
    world
        .sql("SET stratagraph.default_model = 'static:minilm-l6-128'")
        .await;
    let near = "SELECT * FROM graph_query('g', $$query q() { match { $d: Doc } \
                return { $d.slug as s, nearest($d.v, \"red apple\") as d } order { nearest($d.v, \"red apple\") } limit 1 }$$)";
    let rows = world.sql(near).await;
    let distance: f64 = rows[0][1].parse().unwrap();
    assert!(rows[0][0] == "a" && distance.abs() < 1e-6, "{rows:?}");
}

#[tokio::test]
async fn a_past_state_is_searched_as_it_was() {
    let world = docs().await;
    let before = world
        .sql("SELECT commit_id FROM commits('g') ORDER BY created_at DESC LIMIT 1")
        .await;
    let line = "{\"type\":\"Doc\",\"data\":{\"slug\":\"ml-intro\",\"title\":\"Gone\",\"body\":\"nothing\",\"kind\":\"miss\",\"w\":[0,1]}}";
    load(&world.sg, line, crate::graph_load::support::Merge)
        .await
        .unwrap();
    let query = "query q() { match { $d: Doc search($d.body, \"data\") } return { $d.slug } order { nearest($d.w, [1.0, 0.0]) } limit 3 }";
    assert!(ask(&world, query).await.is_empty());
    let past = world
        .sql(&format!(
            "SELECT * FROM graph_query('g', $${query}$$, snapshot => '{}')",
            before[0][0]
        ))
        .await;
    assert_eq!(past, [["ml-intro"]]);
}
