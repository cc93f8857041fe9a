//! What verbs send, and that vectors come back to their rows.

use super::*;
use crate::world::{Doc, doc, docs, strings};

const REPORT: &str = "SELECT inferred_rows, added, changed, deleted, unchanged, dropped_rows, live_rows, outcome FROM refresh_embeddings('t')";
const STATE: &str = "SELECT state, reason FROM staleness('t')";

fn titles(rows: &[Doc]) -> Vec<String> {
    let mut titles: Vec<String> = rows.iter().filter_map(|row| row.1.clone()).collect();
    titles.push(GREETING.to_owned());
    titles.sort();
    titles
}

#[tokio::test]
async fn a_table_lives_on_a_server() {
    for kind in KINDS {
        let served = Served::new(kind).await;
        let world = &served.world;
        let mut rows = docs(100);
        world.docs.set(&rows);
        let generate = format!(
            "SELECT version, rows, dropped_rows, dimensions, model FROM generate_embeddings(docs, '{}', 'title', 'id', name => 't')",
            served.spec()
        );
        let made = world.row(&generate).await;
        assert_eq!(made, strings(&["0", "100", "0", "16", &served.spec()]));
        let requests = kind.handshake() + 100_usize.div_ceil(kind.rows());
        assert_eq!(served.sent(), (requests, titles(&rows)), "{kind:?}");
        assert_eq!(served.right_rows().await, ["100", "100"]);

        let same = strings(&["0", "0", "0", "0", "100", "0", "100", "no_change"]);
        assert_eq!(world.row(REPORT).await, same);
        served.only_handshake("a refresh of nothing");
        assert_eq!(world.row(STATE).await, ["fresh", "NULL"]);
        served.only_handshake("staleness");

        rows[40].1 = Some("edited".to_owned());
        rows.remove(70);
        rows.push(doc("new", "brand new", ""));
        world.docs.set(&rows);
        assert_eq!(world.row(STATE).await, ["stale", "input_advanced"]);
        world.row("SELECT * FROM refresh_plan('t')").await;
        let (requests, texts) = served.sent();
        assert_eq!((requests, texts.len()), (2 * kind.handshake(), 2));
        let some = strings(&["2", "1", "1", "1", "98", "0", "100", "published"]);
        assert_eq!(world.row(REPORT).await, some);
        let texts = strings(&["brand new", "edited", GREETING]);
        assert_eq!(served.sent(), (kind.handshake() + 1, texts), "{kind:?}");
        assert_eq!(served.right_rows().await, ["100", "100"]);

        rows[3].1 = Some("one more".to_owned());
        world.docs.set(&rows);
        world.row(REPORT).await;
        let texts = strings(&[GREETING, "one more"]);
        assert_eq!(served.sent(), (kind.handshake() + 1, texts), "{kind:?}");

        let again = "SELECT original, recomputed, outcome FROM recompute('t')";
        let made = world.row(again).await;
        assert_eq!(made, ["t", "t__r1", "recomputed"]);
        assert_eq!(served.sent().1, titles(&rows));
        let (old, new) = (vectors(&world.sg, "t"), vectors(&world.sg, "t__r1"));
        assert_eq!(old.await, new.await);
    }
}

#[tokio::test]
async fn the_text_of_a_search_is_sent_once() {
    for kind in KINDS {
        let served = Served::new(kind).await;
        let world = &served.world;
        world.docs.set(&docs(50));
        served.generate().await;
        let local =
            "SELECT * FROM generate_embeddings(docs, 'hash:16', 'title', 'id', name => 'l')";
        world.sql(local).await;
        let search = |table: &str| {
            format!("SELECT _row_id, similarity, rank FROM search('{table}', 'title 7', 5)")
        };
        let expected = world.sql(&search("l")).await;
        assert_eq!(expected.len(), 5);
        for texts in [&["title 7"][..], &[]] {
            assert_eq!(world.sql(&search("t")).await, expected);
            assert_eq!(served.sent(), (texts.len(), strings(texts)), "{kind:?}");
        }
        // A verb looks who answers, and what is known of searches stays.
        world.row(REPORT).await;
        served.only_handshake("a refresh");
        assert_eq!(world.sql(&search("t")).await, expected);
        // embed shares what search knows.
        let sql = format!("SELECT embed('title 7', '{}', 'query')", served.spec());
        let local = world.row("SELECT embed('title 7', 'hash:16')").await;
        assert_eq!(world.row(&sql).await, local);
        assert_eq!(served.sent().0, 0, "{kind:?}");

        // Another session knows nothing.
        let (server, store) = (Arc::clone(&served.server), Arc::clone(&served.store));
        let other = Served::over(kind, server, store, Env::fixed(2)).await;
        assert_eq!(other.world.sql(&search("t")).await, expected);
        let texts = strings(&[GREETING, "title 7"]);
        assert_eq!(other.sent(), (kind.handshake() + 1, texts), "{kind:?}");
    }
}

#[tokio::test]
async fn a_server_that_moved_is_no_drift() {
    let served = Served::new(Kind::OpenAi).await;
    let world = &served.world;
    world.docs.set(&docs(5));
    served.generate().await;
    // The same model by another name of the same machine.
    let url = served.server.url();
    let port = url.rsplit(':').next().unwrap();
    let moved = format!("openai:m@http://localhost:{port}/v1?probe=false");
    let generate = format!(
        "SELECT definition_hash FROM generate_embeddings(docs, '{moved}', 'title', 'id', name => 'u')"
    );
    world.row(&generate).await;
    let same = "SELECT count(*) FROM sg.embeddings.t t JOIN sg.embeddings.u u ON t._row_id = u._row_id AND t.vector = u.vector";
    assert_eq!(world.row(same).await, ["5"]);
}

#[tokio::test]
async fn a_refused_row_is_dropped_and_tried_again() {
    for kind in KINDS {
        let served = Served::new(kind).await;
        let world = &served.world;
        let mut rows = docs(20);
        rows[7].1 = Some("a poison".to_owned());
        world.docs.set(&rows);
        served.server.set(Some(Fault::Poison("poison".to_owned())));
        let report = world.sg.generate_embeddings(served.table()).await.unwrap();
        assert_eq!((report.rows, report.dropped_rows), (19, 1), "{kind:?}");
        assert_eq!(served.right_rows().await, ["19", "19"]);
        // It is not held against the row.
        let lasting = world.sql("SELECT * FROM rejected_rows('t')").await;
        assert!(lasting.is_empty(), "{lasting:?}");
        let sql = format!(
            "SELECT embed_checked(title, '{}')['error'] FROM docs WHERE id = 'k0007'",
            served.spec()
        );
        assert_eq!(world.row(&sql).await, ["rejected"]);
        served.server.reset();

        let refused = strings(&["1", "1", "0", "0", "19", "1", "19"]);
        assert_eq!(world.row(REPORT).await[..7], refused);
        let texts = strings(&["a poison", GREETING]);
        assert_eq!(served.sent(), (kind.handshake() + 1, texts), "{kind:?}");
        assert_eq!(served.right_rows().await, ["19", "19"]);
        assert_eq!(world.row(STATE).await[0], "stale");

        served.server.set(None);
        let healed = strings(&["1", "1", "0", "0", "19", "0", "20", "published"]);
        assert_eq!(world.row(REPORT).await, healed);
        assert_eq!(served.right_rows().await, ["20", "20"]);
        assert_eq!(world.row(REPORT).await[7], "no_change");
        assert_eq!(world.row(STATE).await[0], "fresh");
    }
}
