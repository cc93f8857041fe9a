//! Keys that occur more than once: tolerated by generate, refused by refresh.

use crate::world::{Doc, World, doc, docs, strings};

fn with_duplicates() -> Vec<Doc> {
    let mut rows = docs(5);
    rows.push(doc("k0001", "second", "zebra"));
    rows.push(doc("k0003", "second", "yak"));
    rows.push(doc("k0003", "third", "xerus"));
    rows
}

#[tokio::test]
async fn generate_writes_every_row_and_search_shows_a_key_once() {
    let world = World::generated(&with_duplicates()).await;
    assert_eq!(
        world.row("SELECT count(*) FROM sg.embeddings.t").await,
        ["8"]
    );
    let hits = world
        .sql("SELECT _row_id FROM search('t', 'body', 100)")
        .await
        .concat();
    let mut sorted = hits.clone();
    sorted.sort();
    assert_eq!(
        sorted,
        strings(&["k0000", "k0001", "k0002", "k0003", "k0004"])
    );
    // The last row of a key is the one with the greatest content hash, and only it is compared.
    let last = world
        .row("SELECT title, body FROM docs WHERE id = 'k0003' ORDER BY content_hash(title, body) DESC LIMIT 1")
        .await
        .join(" ");
    let hit = world
        .row(&format!(
            "SELECT _row_id, similarity > 0.99 FROM search('t', '{last}', 1)"
        ))
        .await;
    assert_eq!(hit, strings(&["k0003", "true"]));
    let rows = world.sql("SELECT * FROM read_vectors('t')").await;
    assert_eq!(rows.len(), 8);
    assert!(rows.windows(2).all(|w| w[0][0] <= w[1][0]));
}

#[tokio::test]
async fn refresh_names_the_keys_of_the_source_then_of_the_parent() {
    let world = World::generated(&with_duplicates()).await;
    world.model.reset();
    for call in ["refresh_embeddings('t')", "refresh_plan('t')"] {
        let (code, text) = world.error(&format!("SELECT * FROM {call}")).await;
        assert_eq!(code, "NonUniqueKey");
        assert!(text.contains("scan source: 2 keys"), "{text}");
        assert!(text.contains("(\"k0001\" x 2, \"k0003\" x 3)"), "{text}");
    }
    world.docs.set(&docs(5));
    let (code, text) = world.error("SELECT * FROM refresh_embeddings('t')").await;
    assert_eq!(code, "NonUniqueKey");
    assert!(text.contains("scan parent: 2 keys"), "{text}");
    assert_eq!(world.model.calls(), 0);
    assert_eq!(world.sql("SELECT * FROM versions('t')").await.len(), 1);
}

#[tokio::test]
async fn at_most_ten_keys_are_shown_with_exact_counts() {
    let mut rows = docs(30);
    let world = World::generated(&rows).await;
    for i in (4..30).rev() {
        rows.push(rows[i].clone());
    }
    world.docs.set(&rows);
    let (_, text) = world.error("SELECT * FROM refresh_embeddings('t')").await;
    assert!(text.contains("26 keys"), "{text}");
    assert_eq!(text.matches(" x 2").count(), 10, "{text}");
    let first = text.find("k0004").unwrap();
    assert!(
        first < text.find("k0013").unwrap() && !text.contains("k0014"),
        "{text}"
    );
}

#[tokio::test]
async fn a_key_with_a_live_row_is_no_reject() {
    let empty = |id: &str| (Some(id.to_owned()), None, Some(String::new()));
    let rows = [doc("a", "x", "y"), empty("a"), empty("b"), empty("b")];
    let world = World::generated(&rows).await;
    assert_eq!(
        world.sql("SELECT * FROM rejected_rows('t')").await,
        [strings(&["b", "empty"])]
    );
    world.docs.set(&rows[..1]);
    // One live row of `a`, so the parent is unique although its source was not.
    let row = world
        .row("SELECT outcome, unchanged FROM refresh_embeddings('t')")
        .await;
    assert_eq!(row, strings(&["no_change", "1"]));
}
