//! Vectors that a load fills.

use super::support::*;
use stratagraph_udfs::GraphLoad;
use stratagraph_udfs::LoadMode;

const SCHEMA: &str = r#"
node Doc {
    name: String @key
    text: String?
    n: I32?
    v: Vector(16)? @embed("text", model="counting")
}
node Must {
    name: String @key
    text: String?
    v: Vector(16) @embed("text", model="counting")
}
edge Says: Doc -> Doc
"#;

async fn fill(
    world: &crate::world::World,
    text: &str,
    mode: LoadMode,
) -> stratagraph::Result<usize> {
    world.model.reset();
    let load = GraphLoad {
        fill: true,
        ..GraphLoad::of_text("g", text, mode)
    };
    world.sg.graph_load(load).await?;
    assert_whole(&world.sg).await;
    Ok(world.model.rows())
}

fn node(of: &str, name: &str, rest: &str) -> String {
    format!("{{\"type\":\"{of}\",\"data\":{{\"name\":\"{name}\"{rest}}}}}")
}

#[tokio::test]
async fn texts_that_did_not_change_are_not_embedded_again() {
    let world = world(SCHEMA).await;
    let doc = |name: &str, rest: &str| node("Doc", name, rest);
    let given = format!(", \"text\": \"one\", \"v\": {:?}", vec![0.25; 16]);
    let text = lines(&[
        doc("a", ", \"text\": \"one\""),
        doc("b", ", \"text\": \"two\""),
        doc("c", &given),
        doc("d", ""),
        doc("e", ", \"text\": \"one\""),
        "{\"edge\":\"Says\",\"from\":\"a\",\"to\":\"b\",\"data\":{\"id\":\"s\"}}".to_owned(),
    ]);
    // Equal texts are given once; a supplied vector and a missing text need no model.
    assert_eq!(fill(&world, &text, Append).await.unwrap(), 2);
    let vectors = |sql: &'static str| world.sql(sql);
    let all = "SELECT id, v FROM sg.g.\"Doc\" ORDER BY id";
    let before = vectors(all).await;
    assert_eq!(before[0][1], before[4][1]);
    assert_ne!(before[0][1], before[1][1]);
    assert!(before[2][1].starts_with("[0.25, 0.25"));
    assert_eq!(before[3][1], "NULL");
    // Other properties change, the text does not; even the supplied vector stays.
    let text = lines(&[
        doc("a", ", \"text\": \"one\", \"n\": 1"),
        doc("b", ", \"text\": \"three\""),
        doc("c", ", \"text\": \"one\", \"n\": 1"),
        "{\"edge\":\"Says\",\"from\":\"b\",\"to\":\"b\",\"data\":{\"id\":\"s\"}}".to_owned(),
    ]);
    assert_eq!(fill(&world, &text, Merge).await.unwrap(), 1);
    let after = vectors(all).await;
    assert_eq!(
        (&after[0], &after[2], &after[4]),
        (&before[0], &before[2], &before[4])
    );
    assert_ne!(after[1], before[1]);
    assert_eq!(
        world
            .sql("SELECT n FROM sg.g.\"Doc\" ORDER BY id")
            .await
            .concat()[0],
        "1"
    );
    // An overwrite keeps the vectors of keys that stay.
    let text = lines(&[
        doc("a", ", \"text\": \"one\""),
        doc("b", ", \"text\": \"four\""),
        doc("f", ", \"text\": \"one\""),
        "{\"edge\":\"Says\",\"from\":\"b\",\"to\":\"b\"}".to_owned(),
    ]);
    assert_eq!(fill(&world, &text, Overwrite).await.unwrap(), 2);
    let last = vectors(all).await;
    assert_eq!((last.len(), &last[0]), (3, &before[0]));
}

#[tokio::test]
async fn without_fill_nothing_is_embedded() {
    let world = world(SCHEMA).await;
    let text = node("Doc", "a", ", \"text\": \"one\"");
    load(&world.sg, &text, Append).await.unwrap();
    assert_eq!(world.model.rows(), 0);
    assert_eq!(
        world.sql("SELECT v FROM sg.g.\"Doc\"").await.concat(),
        ["NULL"]
    );
    let required = node("Must", "a", ", \"text\": \"one\"");
    let found = refused(&world.sg, &required, Append).await;
    assert_eq!((found[0].0, found[0].3), (1, "required"));
    assert_eq!(fill(&world, &required, Append).await.unwrap(), 1);
}

#[tokio::test]
async fn a_text_that_gets_no_vector_breaks_a_required_one_only() {
    let world = world(SCHEMA).await;
    let text = lines(&[
        node("Must", "a", ", \"text\": \"\""),
        node("Must", "b", ""),
        node("Must", "c", ", \"text\": \"fine\""),
        node("Doc", "d", ", \"text\": \"  \""),
    ]);
    let error = fill(&world, &text, Append).await.unwrap_err();
    let found: Vec<_> = violations(error)
        .into_iter()
        .map(|v| (v.record, v.id, v.rule))
        .collect();
    assert_eq!(
        found,
        [(1, "a".to_owned(), "embed"), (2, "b".to_owned(), "embed")]
    );
    assert_eq!(
        fill(
            &world,
            &lines(&[node("Doc", "d", ", \"text\": \"  \"")]),
            Append
        )
        .await
        .unwrap(),
        1
    );
    assert_eq!(
        world.sql("SELECT v FROM sg.g.\"Doc\"").await.concat(),
        ["NULL"]
    );
}

#[tokio::test]
async fn a_model_of_another_width_is_refused_before_it_runs() {
    let schema = SCHEMA.replace("Vector(16)?", "Vector(8)?");
    let world = world(&schema).await;
    let error = fill(&world, &node("Doc", "a", ", \"text\": \"one\""), Append)
        .await
        .unwrap_err();
    assert_eq!(error.code(), "InvalidArgument");
    assert_eq!(world.model.rows(), 0);
    // A type that the load does not bring is not asked.
    assert_eq!(
        fill(&world, &node("Must", "a", ", \"text\": \"one\""), Append)
            .await
            .unwrap(),
        1
    );
}
