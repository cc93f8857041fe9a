//! Verbs and statements that nobody waits for any more.

use super::*;
use crate::world::{doc, docs};

/// Runs a statement until the server has seen `requests` requests, and drops it.
async fn drop_after(served: &Served, sql: &str, requests: usize) {
    tokio::select! {
        outcome = served.world.try_sql(sql) => panic!("{sql}: {outcome:?}"),
        () = until(|| served.server.requests().len() >= requests) => {}
    }
}

/// No request comes any more: a connection that is gone is noticed at once.
async fn is_quiet(served: &Served, requests: usize) {
    tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    assert_eq!(served.server.requests().len(), requests);
}

#[tokio::test]
async fn a_dropped_verb_leaves_nothing_and_sends_no_more() {
    for kind in KINDS {
        let served = Served::new(kind).await;
        let world = &served.world;
        world.docs.set(&docs(2_000));
        let empty = served.objects().await;
        let generate = format!(
            "SELECT rows FROM generate_embeddings(docs, '{}', 'title', 'id', name => 't')",
            served.spec()
        );
        // Within the handshake.
        served.server.gate(usize::MAX);
        drop_after(&served, &generate, 1).await;
        served.server.gate(0);
        is_quiet(&served, 1).await;
        assert_eq!(served.objects().await, empty);
        served.server.reset();

        // With four requests for rows in flight.
        served.spare_handshake();
        served.server.set(Some(Fault::Hang));
        let flying = kind.handshake() + 4;
        drop_after(&served, &generate, flying).await;
        until(|| served.server.abandoned() == 4).await;
        served.server.set(None);
        is_quiet(&served, flying).await;
        assert_eq!(served.objects().await, empty, "{kind:?}");
        assert!(world.sg.embedding_tables().await.unwrap().is_empty());

        // With some rows there already.
        served.server.reset();
        served.spare_handshake();
        for _ in 0..8 {
            served.server.push(Fault::Chunked);
        }
        served.server.set(Some(Fault::Hang));
        let flying = kind.handshake() + 8 + 4;
        drop_after(&served, &generate, flying).await;
        until(|| served.server.abandoned() == 4).await;
        served.server.set(None);
        is_quiet(&served, flying).await;
        assert!(world.sg.embedding_tables().await.unwrap().is_empty());
        assert_eq!(world.row(&generate).await, ["2000"], "{kind:?}");
        assert_eq!(served.right_rows().await, ["2000", "2000"]);

        // A refresh.
        let mut rows = docs(2_000);
        rows[9] = doc("k0009", "edited", "");
        world.docs.set(&rows);
        served.server.reset();
        served.spare_handshake();
        served.server.set(Some(Fault::Hang));
        let refresh = "SELECT changed FROM refresh_embeddings('t')";
        drop_after(&served, refresh, kind.handshake() + 1).await;
        until(|| served.server.abandoned() == 1).await;
        served.server.set(None);
        assert_eq!(world.sql("SELECT * FROM versions('t')").await.len(), 1);
        assert_eq!(world.row(refresh).await, ["1"]);
        assert_eq!(served.right_rows().await, ["2000", "2000"]);
    }
}

#[tokio::test]
async fn a_dropped_statement_sends_no_more() {
    let served = Served::new(Kind::OpenAi).await;
    let world = &served.world;
    world.docs.set(&docs(2_000));
    world.sg.open_model(&served.spec()).await.unwrap();
    served.server.reset();
    served.server.set(Some(Fault::Hang));
    let select = format!("SELECT embed(title, '{}') FROM docs", served.spec());
    drop_after(&served, &select, 4).await;
    until(|| served.server.abandoned() >= 4).await;
    served.server.set(None);
    let seen = served.server.requests().len();
    is_quiet(&served, seen).await;
    let count = format!("SELECT count(embed(title, '{}')) FROM docs", served.spec());
    let rows = world.sql(&select).await;
    assert_eq!(rows.len(), 2_000);
    assert_eq!(world.code(&count).await, "InvalidArgument");
}
