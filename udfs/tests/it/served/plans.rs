//! What planning asks of a server, and what statements get from it.

use datafusion::physical_plan::collect;

use super::*;
use crate::world::{docs, strings, typed};

async fn plan(served: &Served, sql: &str) -> String {
    let rows = served.world.sql(&format!("EXPLAIN {sql}")).await;
    rows.concat().join("\n")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn planning_waits_for_the_handshake_and_sends_no_text() {
    for kind in KINDS {
        let served = Served::new(kind).await;
        served.world.docs.set(&docs(10));
        let spec = served.spec();
        let sql = format!("SELECT embed('a secret', '{spec}')");
        assert!(plan(&served, &sql).await.contains("embed_remote("));
        served.only_handshake("EXPLAIN");
        for sql in [
            sql.clone(),
            format!("SELECT embed(title, '{spec}') FROM docs"),
            format!("SELECT id FROM docs WHERE embed_checked(title, '{spec}')['error'] IS NULL"),
        ] {
            plan(&served, &sql).await;
            let frame = served.world.ctx.sql(&sql).await.unwrap();
            frame.create_physical_plan().await.unwrap();
        }
        // A server that was asked is not asked again, though it may be gone by now.
        assert_eq!(served.sent().0, 0, "{kind:?}");
        let local = served
            .world
            .row("SELECT embed('a secret', 'hash:16')")
            .await;
        assert_eq!(served.world.row(&sql).await, local);
        assert_eq!(served.sent(), (1, strings(&["a secret"])), "{kind:?}");

        // What a server is not is not remembered.
        let other = Served::new(kind).await;
        other.server.set(Some(Fault::status(404)));
        let sql = format!("SELECT embed('x', '{}')", other.spec());
        assert_eq!(other.world.code(&sql).await, "ModelFailed");
        other.server.set(None);
        assert_eq!(other.world.sql(&sql).await.len(), 1);
    }
}

#[tokio::test]
async fn where_planning_cannot_wait_a_call_opens_the_model() {
    for kind in KINDS {
        let served = Served::new(kind).await;
        let sql = format!("SELECT embed('x', '{}')", served.spec());
        let (code, message) = served.world.error(&sql).await;
        assert_eq!(code, "MetadataNotLoaded");
        assert!(message.contains("Stratagraph::open_model()"), "{message}");
        assert_eq!(served.sent().0, 0);
        served.world.sg.open_model(&served.spec()).await.unwrap();
        served.only_handshake("open_model");
        let local = served.world.row("SELECT embed('x', 'hash:16')").await;
        assert_eq!(served.world.row(&sql).await, local);
        // Verbs wait, and open it too.
        let other = Served::new(kind).await;
        other.world.docs.set(&docs(3));
        other.generate().await;
        let sql = format!("SELECT embed('x', '{}')", other.spec());
        assert_eq!(other.world.row(&sql).await, local);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rows_keep_their_order() {
    for kind in KINDS {
        let served = Served::new(kind).await;
        let world = &served.world;
        let mut rows = docs(3_000);
        for (at, row) in rows.iter_mut().enumerate() {
            row.1 = (at % 7 > 0).then(|| format!("title {}", at % 1_000));
        }
        world.docs.set(&rows);
        let spec = served.spec();
        world.sg.open_model(&spec).await.unwrap();
        served.server.gate(4);
        let wrong = world
            .row(&format!(
                "SELECT count(*), count(v), count(*) FILTER (WHERE v IS DISTINCT FROM embed(title, 'hash:16')) \
                 FROM (SELECT title, embed(title, '{spec}') AS v FROM docs)"
            ))
            .await;
        assert_eq!(wrong, ["3000", "2571", "0"], "{kind:?}");
        assert_eq!(served.server.most_in_flight(), 4);
        served.server.gate(0);
        let sql = "SELECT id, embed(title, '$m') FROM docs";
        let (mut remote, mut local) = (
            world.sql(&sql.replace("$m", &spec)).await,
            world.sql(&sql.replace("$m", "hash:16")).await,
        );
        remote.sort();
        local.sort();
        assert_eq!(remote, local, "{kind:?}");
        let near = "SELECT id FROM docs WHERE cosine_distance(embed(title, '$m'), embed('title 7', '$m', 'query')) < 0.6 ORDER BY id";
        let near = |model: &str| near.replace("$m", model);
        assert_eq!(
            world.sql(&near(&spec)).await,
            world.sql(&near("hash:16")).await
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refused_text_has_a_reason_and_its_neighbours_their_vectors() {
    for kind in KINDS {
        let served = Served::new(kind).await;
        let world = &served.world;
        let mut rows = docs(40);
        rows[11].1 = Some("a poison".to_owned());
        rows[12].1 = None;
        world.docs.set(&rows);
        let spec = served.spec();
        world.sg.open_model(&spec).await.unwrap();
        served.server.set(Some(Fault::Poison("poison".to_owned())));
        let sql = format!(
            "SELECT id, e['error'], e['value'] IS NOT DISTINCT FROM embed(title, 'hash:16') \
             FROM (SELECT id, title, embed_checked(title, '{spec}') AS e FROM docs) ORDER BY id"
        );
        let answer = world.sql(&sql).await;
        assert_eq!(answer.len(), 40);
        for (at, row) in answer.iter().enumerate() {
            let id = format!("k{at:04}");
            let expected = match at {
                11 => [&id, "rejected", "false"],
                _ => [&id, "NULL", "true"],
            };
            assert_eq!(row[..], strings(&expected), "{kind:?}");
        }
        let (code, message) = world
            .error(&format!("SELECT embed(title, '{spec}') FROM docs"))
            .await;
        assert_eq!(code, "InvalidArgument");
        assert!(!message.contains("127.0.0.1"), "{message}");
        assert!(
            message.contains("refuses \"a poison\": rejected; use embed_checked"),
            "{message}"
        );
        served.server.set(None);
        let sql = format!(
            "SELECT count(*) FROM docs WHERE embed_checked(title, '{spec}')['error'] IS NOT NULL"
        );
        assert_eq!(world.row(&sql).await, ["0"]);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_plan_of_another_width_is_made_anew() {
    for kind in KINDS {
        let served = Served::new(kind).await;
        let world = &served.world;
        world.docs.set(&docs(3));
        served.generate().await;
        let sql = format!("SELECT embed(title, '{}') AS v FROM docs", served.spec());
        let frame = world.ctx.sql(&sql).await.unwrap();
        let planned = frame.create_physical_plan().await.unwrap();
        served.server.set(Some(Fault::WrongWidth));
        // A verb finds the server to be another one.
        world.sql("SELECT * FROM staleness('t')").await;
        served.server.reset();
        let error = collect(planned, world.ctx.task_ctx()).await.unwrap_err();
        let (code, message) = typed(&error, &sql);
        assert_eq!(code, "SchemaChanged", "{message}");
        assert!(!message.contains("127.0.0.1"), "{message}");
        assert_eq!(served.sent().0, 0);
        let width = format!("SELECT array_length(v) FROM ({sql}) LIMIT 1");
        assert_eq!(world.row(&width).await, ["17"]);
    }
}
