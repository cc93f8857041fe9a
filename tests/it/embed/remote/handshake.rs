//! Who a server says it is.

use serde_json::json;
use stratagraph::embed::testing::server::Settings;

use super::*;

async fn definition(room: &Room, spec: &str) -> serde_json::Value {
    let model = room.ask(spec).await.unwrap();
    let definition = model.definition();
    assert!(!definition.canonical().contains("127.0.0.1"));
    definition.value().clone()
}

#[tokio::test]
async fn the_definition_is_what_the_server_says_and_nothing_else() {
    let (room, other) = (Room::new().await, Room::new().await);
    let openai = definition(&room, &room.openai()).await;
    assert_eq!(
        openai["parameters"],
        json!({
            "max_text_bytes": 16_777_216,
            "requested_model": "m",
            "requested_dimensions": null,
            "reported_model": "m",
        })
    );
    assert_eq!(
        (&openai["kind"], &openai["dimensions"]),
        (&json!("openai"), &json!(16))
    );
    assert_eq!(openai["normalised"], json!(false));
    let tei = definition(&room, &room.tei()).await;
    assert_eq!(
        tei["parameters"],
        json!({
            "max_text_bytes": 16_777_216,
            "model_id": "test/hash",
            "model_sha": "0123456789abcdef",
            "model_dtype": "float32",
        })
    );
    assert_eq!(
        (&tei["kind"], &tei["normalised"]),
        (&json!("tei"), &json!(true))
    );
    // Another address, and options that change no vector.
    assert_eq!(openai, definition(&other, &other.openai()).await);
    assert_eq!(tei, definition(&other, &other.tei()).await);
    let options = "?allow_http=true&probe=false";
    assert_eq!(openai, definition(&room, &(room.openai() + options)).await);

    room.server.set(Some(Fault::OtherModel("new".to_owned())));
    let renamed = definition(&room, &room.openai()).await;
    assert_eq!(renamed["parameters"]["reported_model"], json!("new"));
    let renamed = definition(&room, &room.tei()).await;
    assert_eq!(renamed["parameters"]["model_sha"], json!("new"));
    room.server.set(Some(Fault::NoModel));
    let nameless = room.ask(&room.openai()).await.unwrap();
    let nameless_definition = nameless.definition().value();
    assert_eq!(
        nameless_definition["parameters"]["reported_model"],
        json!(null)
    );
    assert_rows(
        &documents(&*nameless, &["one"]).await.unwrap(),
        &["one"],
        &[],
    );
}

#[tokio::test]
async fn a_probe_sees_another_model_of_the_same_name() {
    let room = Room::new().await;
    for base in [room.openai(), room.tei()] {
        let probed = format!("{base}?probe=true");
        let (plain, probe) = (
            definition(&room, &base).await,
            definition(&room, &probed).await,
        );
        assert_eq!(plain["parameters"].get("probe"), None);
        let hash = probe["parameters"]["probe"].as_str().unwrap();
        assert_eq!(hash.len(), 64);
        assert_eq!(probe, definition(&room, &probed).await);

        room.server.set(Some(Fault::OtherVectors));
        assert_eq!(plain, definition(&room, &base).await);
        assert_ne!(probe, definition(&room, &probed).await);
        room.server.set(None);
    }
    // A server that takes one text at a time is asked three times.
    let narrow = Settings {
        max_client_batch_size: Some(1),
        ..Settings::default()
    };
    let narrow = Room::with(FaultServer::with(narrow).await);
    let one_by_one = definition(&narrow, &format!("{}?probe=true", narrow.tei())).await;
    assert_eq!(narrow.requests(), 1 + 1 + 3);
    let together = definition(&room, &format!("{}?probe=true", room.tei())).await;
    assert_eq!(one_by_one, together);
}

#[tokio::test]
async fn another_model_is_not_taken_for_the_one_that_was_opened() {
    let room = Room::new().await;
    let registry = ModelRegistry::default();
    let resolve = |handshake| {
        let (registry, env, spec) = (registry.clone(), room.env.clone(), room.openai());
        async move {
            registry
                .resolve(&spec, &OPEN, &env, handshake)
                .await
                .unwrap()
        }
    };
    let first = resolve(Handshake::Fresh).await;
    assert!(Arc::ptr_eq(&first, &resolve(Handshake::Fresh).await));
    room.server.set(Some(Fault::OtherModel("new".to_owned())));
    let known = resolve(Handshake::Known).await;
    assert!(Arc::ptr_eq(&first, &known));
    failure(known.embed(Role::Query, &[Some("q")]).await, "ModelFailed");
    let fresh = resolve(Handshake::Fresh).await;
    assert_ne!(first.definition(), fresh.definition());
    let answer = fresh.embed(Role::Query, &[Some("q")]).await.unwrap();
    assert_rows(&answer, &["q"], &[]);
}

#[tokio::test]
async fn limits_are_the_servers_within_ours() {
    for (rows, tokens, expected) in [
        (Some(32), Some(16_384), (32, 49_152)),
        (None, None, (32, 49_152)),
        (Some(5), Some(10), (5, 30)),
        (Some(0), Some(0), (1, 1)),
        (Some(u64::MAX), Some(u64::MAX), (1_024, 16_777_216)),
    ] {
        let settings = Settings {
            max_client_batch_size: rows,
            max_batch_tokens: tokens,
            ..Settings::default()
        };
        let room = Room::with(FaultServer::with(settings).await);
        let model = room.open(&room.tei()).await;
        let limits = model.limits();
        assert_eq!(
            (limits.rows, limits.bytes),
            (4 * expected.0, 4 * expected.1)
        );
        let texts = names(9);
        let texts = refs(&texts);
        assert_rows(&documents(&*model, &texts).await.unwrap(), &texts, &[]);
        let most = room.server.requests().iter().map(|r| r.texts.len()).max();
        assert!(most <= Some(expected.0));
    }
}

#[tokio::test]
async fn the_handshake_is_retried_and_only_its_success_is_kept() {
    let room = Room::new().await;
    for spec in [room.openai(), room.tei()] {
        room.server.push(Fault::status(503));
        room.server.push(Fault::ResetBefore);
        room.ask(&spec).await.unwrap();
        room.requests();
        let registry = ModelRegistry::default();
        let resolve = || registry.resolve(&spec, &OPEN, &room.env, Handshake::Known);
        for fault in [Fault::status(404), Fault::status(401), Fault::TruncatedJson] {
            room.server.push(fault);
            failure(resolve().await, "ModelFailed");
            assert_eq!(room.requests(), 1);
        }
        resolve().await.unwrap();
        room.requests();
        resolve().await.unwrap();
        assert_eq!(room.requests(), 0);
    }
    for fault in [
        Fault::EndlessBody,
        Fault::MissingVector,
        Fault::Redirect("/".to_owned()),
    ] {
        room.server.set(Some(fault));
        room.ask(&room.openai()).await.unwrap_err();
    }
    room.server.set(None);
    // A server of another kind.
    let error = room.ask(&format!("{}/v1", room.tei())).await.unwrap_err();
    assert!(error.to_string().contains("404"), "{error}");
}

#[tokio::test]
async fn dimensions_are_asked_for_and_held_against_the_answer() {
    let room = Room::new().await;
    let spec = room.openai() + "?dimensions=8";
    let model = room.ask(&spec).await.unwrap();
    assert_eq!(room.server.requests()[0].json["dimensions"], json!(8));
    assert_eq!((model.spec(), model.dimensions()), (&*spec, 8));
    let asked = &model.definition().value()["parameters"]["requested_dimensions"];
    assert_eq!(asked, &json!(8));
    let answer = documents(&*model, &["one"]).await.unwrap();
    assert_eq!(vector(&answer, 0), super::super::one(8, "one"));

    room.server.set(Some(Fault::WrongWidth));
    let error = failure(room.ask(&spec).await, "ModelFailed");
    assert!(error.to_string().contains("9 dimensions"), "{error}");
}

#[tokio::test]
async fn numbers_are_asked_for_as_lists_where_base64_is_refused() {
    let room = Room::new().await;
    let formats = || -> Vec<String> {
        let requests = room.server.requests();
        room.server.reset();
        let format = |r: &stratagraph::embed::testing::server::Recorded| {
            r.json["encoding_format"].as_str().unwrap().to_owned()
        };
        requests.iter().map(format).collect()
    };
    let model = room.ask(&room.openai()).await.unwrap();
    assert_eq!(formats(), ["base64"]);
    assert_rows(&documents(&*model, &["one"]).await.unwrap(), &["one"], &[]);
    assert_eq!(formats(), ["base64"]);
    // A server that changes its mind later.
    room.server.set(Some(Fault::NoBase64));
    for expected in [&["base64", "float"][..], &["float"]] {
        assert_rows(&documents(&*model, &["one"]).await.unwrap(), &["one"], &[]);
        assert_eq!(formats(), expected);
    }
    let model = room.ask(&room.openai()).await.unwrap();
    assert_eq!(formats(), ["base64", "float"]);
    assert_rows(&documents(&*model, &["one"]).await.unwrap(), &["one"], &[]);
    assert_eq!(formats(), ["float"]);
}
