//! What leaves the process, and what is told of it.

use std::process::Command;

use stratagraph::embed::testing::log::PrintAll;

use super::*;

/// The variable that holds the key in the child.
const VARIABLE: &str = "STRATAGRAPH_TEST_SERVER_KEY";
const KEY: &str = "c4nary/f00d-1234567890";

/// Not a test of its own: the parent runs this binary with this name and the key, and reads what it
/// prints.
#[tokio::test]
async fn child() {
    if std::env::var_os(VARIABLE).is_none() {
        return;
    }
    tracing::subscriber::set_global_default(PrintAll).unwrap();
    let room = Room::new().await;
    let bare = room.ask(&room.openai()).await.unwrap();
    room.server.reset();
    for base in [room.openai(), room.tei()] {
        let spec = format!("{base}?key_env={VARIABLE}");
        let model = room.ask(&spec).await.unwrap();
        println!(
            "{model:?} {:?} {}",
            model.spec(),
            model.definition().canonical()
        );
        if base.starts_with("openai") {
            assert_eq!(model.definition(), bare.definition());
        }
        documents(&*model, &["one", "two"]).await.unwrap();
        for request in room.server.requests() {
            let expected = format!("Bearer {KEY}");
            assert_eq!(request.header("authorization"), Some(&*expected));
            let mut rest = request.clone();
            rest.headers.retain(|(name, _)| name != "authorization");
            assert!(!format!("{rest:?}").contains(KEY));
        }
        for fault in [
            Fault::EchoHeaders,
            Fault::OtherModel(KEY.to_owned()),
            Fault::OtherModel(format!("m of {KEY}")),
            Fault::status(401),
            Fault::ResetBefore,
            Fault::TruncatedJson,
            Fault::EndlessBody,
            Fault::Redirect(format!("http://127.0.0.1:1/{KEY}")),
        ] {
            room.server.set(Some(fault));
            for error in [
                documents(&*model, &["one"]).await.err(),
                room.ask(&spec).await.err(),
            ] {
                println!("{error:?}");
                if let Some(error) = error {
                    println!("{error}");
                }
            }
        }
        room.server.set(Some(Fault::OtherModel(KEY.to_owned())));
        failure(room.ask(&spec).await, "ModelFailed");
        room.server.set(None);
        room.server.reset();
    }
    println!("the child is done");
}

#[test]
fn the_key_is_sent_and_never_told() {
    let child = Command::new(std::env::current_exe().unwrap())
        .args([
            "--exact",
            "embed::remote::secrets::child",
            "--nocapture",
            "--test-threads=1",
        ])
        .env(VARIABLE, KEY)
        .output()
        .unwrap();
    let told = [child.stdout, child.stderr].map(|out| String::from_utf8(out).unwrap());
    let told = told.concat();
    assert!(child.status.success(), "{told}");
    for expected in ["the child is done", "***", "event Event", "embedded"] {
        assert!(told.contains(expected), "{expected:?} is not in {told}");
    }
    assert!(!told.contains(KEY), "{told}");
    assert!(!told.contains(&KEY.replace('/', "\\/")), "{told}");
}

#[tokio::test]
async fn a_key_that_is_not_there_is_named_before_anything_is_sent() {
    let room = Room::new().await;
    for base in [room.openai(), room.tei()] {
        let spec = format!("{base}?key_env=STRATAGRAPH_NO_SUCH_KEY");
        let error = failure(room.ask(&spec).await, "InvalidArgument");
        assert!(error.to_string().contains("STRATAGRAPH_NO_SUCH_KEY"));
    }
    assert_eq!(room.requests(), 0);
}

#[tokio::test]
async fn plain_http_stays_on_this_machine() {
    let room = Room::new().await;
    // The address of every interface reaches this server, but is not a loopback address.
    let port = room.server.url().rsplit(':').next().unwrap().to_owned();
    for spec in [
        format!("openai:m@http://0.0.0.0:{port}/v1"),
        format!("tei:http://0.0.0.0:{port}"),
        format!("tei:http://0.0.0.0:{port}?allow_http=false"),
        "openai:m@http://example.invalid/v1".to_owned(),
        "openai:m@http://localhost.example.invalid/v1".to_owned(),
    ] {
        let error = failure(room.ask(&spec).await, "InvalidArgument");
        assert!(error.to_string().contains("allow_http"), "{error}");
    }
    assert_eq!(room.requests(), 0);
    room.ask(&format!("openai:m@http://localhost:{port}/v1"))
        .await
        .unwrap();
    let allowed = format!("openai:m@http://0.0.0.0:{port}/v1?allow_http=true");
    room.ask(&allowed).await.unwrap();
    assert_eq!(room.requests(), 2);
}

#[tokio::test]
async fn redirects_are_not_followed() {
    let (room, target) = (Room::new().await, Room::new().await);
    let model = room.open(&room.openai()).await;
    let to = format!("{}/v1/embeddings", target.server.url());
    room.server.set(Some(Fault::Redirect(to)));
    let error = failure(documents(&*model, &["one"]).await, "ModelFailed");
    assert!(error.to_string().contains("redirects"), "{error}");
    failure(room.ask(&room.openai()).await, "ModelFailed");
    failure(room.ask(&room.tei()).await, "ModelFailed");
    assert_eq!((room.requests(), target.requests()), (3, 0));
}

#[tokio::test]
async fn nothing_shows_the_address() {
    let room = Room::new().await;
    for spec in [room.openai(), room.tei()] {
        let model = room.open(&spec).await;
        let shown = format!("{model:?}");
        assert!(!shown.contains("127.0.0.1"), "{shown}");
        let closed = ModelPolicy {
            allow_paths_and_urls: false,
            hub_cache: None,
        };
        let registry = ModelRegistry::default();
        let resolve = registry.resolve(&spec, &closed, &room.env, Handshake::Fresh);
        let error = failure(resolve.await, "SourceNotAllowed");
        assert!(!error.to_string().contains("127.0.0.1"), "{error}");
    }
    assert_eq!(room.requests(), 0);
}
