//! The key of a server is sent, and comes out nowhere else.

use std::process::Command;

use object_store::ObjectStoreExt;

use stratagraph::embed::testing::log::PrintAll;

use super::*;
use crate::world::{docs, table};

/// The variable that holds the key in the child.
const VARIABLE: &str = "STRATAGRAPH_TEST_SERVED_KEY";
const KEY: &str = "c4nary/5erved-0987654321";

/// Runs a statement and prints whatever comes of it.
async fn say(served: &Served, sql: &str) {
    match served.world.try_sql(sql).await {
        Ok(batches) => println!("{sql}\n{:?}\n{batches:?}", table(&batches)),
        Err(error) => {
            println!("{sql}\nerror {error}\nerror {error:?}");
            if let Some(typed) = stratagraph_udfs::find_error(&error) {
                println!("typed {} {typed} {typed:?}", typed.code());
            }
        }
    }
}

/// Statements that ask the server who it is; `n` makes their names new.
fn verbs(spec: &str, n: usize) -> Vec<String> {
    let name = format!("u{n}");
    vec![
        format!(
            "SELECT * FROM generate_embeddings(docs, '{spec}', 'title', 'id', name => '{name}')"
        ),
        "SELECT * FROM refresh_embeddings('t')".to_owned(),
        "SELECT * FROM refresh_plan('t')".to_owned(),
        "SELECT * FROM staleness('t')".to_owned(),
        "SELECT * FROM recompute('t')".to_owned(),
    ]
}

/// Statements that send a text to the server that is known; `n` makes it a new one.
fn texts(spec: &str, n: usize) -> Vec<String> {
    vec![
        format!("SELECT _row_id FROM search('t', 'question {n}', 2)"),
        format!("SELECT embed('text {n}', '{spec}')"),
        format!("SELECT id, embed_checked(title, '{spec}') FROM docs"),
        format!(
            "SELECT id FROM docs ORDER BY cosine_distance(embed(title, 'hash:16'), embed('{n}', '{spec}'))"
        ),
    ]
}

/// Statements that tell of the models, the tables and the session.
fn questions(spec: &str) -> Vec<String> {
    let mut all: Vec<String> = [
        "SHOW ALL",
        "SELECT * FROM embedding_tables()",
        "SELECT * FROM embedding_models()",
        "SELECT * FROM commits()",
        "SELECT * FROM commits('t')",
        "SELECT * FROM versions('t')",
        "SELECT * FROM segments('t')",
        "SELECT * FROM rejected_rows('t')",
        "SELECT * FROM verify_materialization('t')",
        "SELECT * FROM sg.embeddings.t",
        "SELECT * FROM information_schema.tables",
        "SELECT * FROM information_schema.routines",
    ]
    .map(str::to_owned)
    .into();
    for explain in ["EXPLAIN", "EXPLAIN VERBOSE", "EXPLAIN ANALYZE"] {
        for sql in texts(spec, 0) {
            all.push(format!("{explain} {sql}"));
        }
    }
    all
}

/// Every request bore the key, in one header alone.
fn assert_sent(served: &Served) {
    let requests = served.server.requests();
    assert!(!requests.is_empty());
    for mut request in requests {
        let expected = format!("Bearer {KEY}");
        assert_eq!(request.header("authorization"), Some(&*expected));
        request.headers.retain(|(name, _)| name != "authorization");
        assert!(!format!("{request:?}").contains(KEY), "{request:?}");
    }
}

async fn a_life(kind: Kind) {
    let served = Served::new(kind).await;
    let world = &served.world;
    world.docs.set(&docs(20));
    let spec = format!("{}?key_env={VARIABLE}", served.spec());
    let table = served.table().model(&spec);
    let made = world.sg.generate_embeddings(table).await.unwrap();
    println!("{made:?} {:?} {:?}", world.sg, world.sg.models());
    let mut rows = docs(20);
    rows[3].1 = Some("edited".to_owned());
    world.docs.set(&rows);
    let default = format!("SET stratagraph.default_model = '{spec}'");
    say(&served, &default).await;
    say(&served, "SHOW stratagraph.default_model").await;
    let calls = verbs(&spec, 0).into_iter().chain(texts(&spec, 0));
    for sql in calls.chain(questions(&spec)) {
        println!("{sql}\n{:?}", world.sql(&sql).await);
    }
    assert_sent(&served);
    assert_eq!(served.right_rows().await, ["20", "20"]);

    // Now everything goes wrong.
    let mut n = 0;
    rows[4].1 = Some("edited too".to_owned());
    world.docs.set(&rows);
    for fault in [
        Fault::EchoHeaders,
        Fault::OtherModel(KEY.to_owned()),
        Fault::OtherModel(format!("m of {KEY}")),
        Fault::Redirect(format!("http://127.0.0.1:1/{KEY}")),
        Fault::status(400),
        Fault::status(401),
        Fault::status(503),
        Fault::ResetBefore,
        Fault::ResetWithin,
        Fault::TruncatedJson,
        Fault::EndlessBody,
        Fault::MissingVector,
        Fault::WrongWidth,
        Fault::Poison("edited".to_owned()),
    ] {
        println!("fault {}", format!("{fault:?}").replace(KEY, "the key"));
        for past_handshake in [false, true] {
            n += 1;
            for sql in verbs(&spec, n) {
                if past_handshake {
                    served.spare_handshake();
                }
                served.server.set(Some(fault.clone()));
                say(&served, &sql).await;
            }
            for sql in texts(&spec, n) {
                say(&served, &sql).await;
            }
            // Nobody is taken for another one from now on.
            served.server.set(None);
            world.sql("SELECT * FROM refresh_plan('t')").await;
        }
    }
    assert_sent(&served);
    for sql in questions(&spec) {
        say(&served, &sql).await;
    }
    println!("{:?} {:?}", world.sg, world.sg.models());
    let metas: Vec<_> = served.store.list(None).try_collect().await.unwrap();
    for meta in metas {
        let object = served.store.get(&meta.location).await.unwrap();
        let bytes = object.bytes().await.unwrap();
        let text = String::from_utf8_lossy(&bytes).into_owned();
        println!("object {} {text}", meta.location);
    }
}

/// Not a test of its own: the parent runs this binary with this name and the key, and reads what it
/// prints.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn child() {
    if std::env::var_os(VARIABLE).is_none() {
        return;
    }
    tracing::subscriber::set_global_default(PrintAll).unwrap();
    for kind in KINDS {
        a_life(kind).await;
    }
    println!("the child is done");
}

#[test]
fn the_key_is_sent_and_never_told() {
    let child = Command::new(std::env::current_exe().unwrap())
        .args([
            "--exact",
            "served::secrets::child",
            "--nocapture",
            "--test-threads=1",
        ])
        .env(VARIABLE, KEY)
        .env("RUST_BACKTRACE", "1")
        .output()
        .unwrap();
    let told = [child.stdout, child.stderr].map(|out| String::from_utf8_lossy(&out).into_owned());
    let told = told.concat();
    let end: String = {
        let from = told.char_indices().rev().nth(3_000).map_or(0, |(at, _)| at);
        told[from..].to_owned()
    };
    assert!(child.status.success(), "{end}");
    for expected in [
        "the child is done",
        "***",
        "event Event",
        "span Attributes",
        "typed ModelFailed",
        "typed DefinitionDrift",
        "physical_plan",
        VARIABLE,
        "object ",
    ] {
        assert!(told.contains(expected), "{expected:?} is not in ...{end}");
    }
    for spelling in [
        KEY.to_owned(),
        KEY.replace('/', "\\/"),
        KEY.replace('/', "%2F"),
    ] {
        if let Some(at) = told.find(&spelling) {
            let from = told[..at]
                .char_indices()
                .rev()
                .nth(600)
                .map_or(0, |(i, _)| i);
            panic!("{}", &told[from..at]);
        }
    }
}

#[tokio::test]
async fn a_key_that_is_not_there_is_named_before_anything_is_sent() {
    for kind in KINDS {
        let served = Served::new(kind).await;
        served.world.docs.set(&docs(3));
        served.generate().await;
        let spec = format!("{}?key_env=STRATAGRAPH_NO_SUCH_KEY", served.spec());
        let error = served.world.sg.open_model(&spec).await.unwrap_err();
        assert_eq!(error.code(), "InvalidArgument");
        let sql = format!(
            "SELECT * FROM generate_embeddings(docs, '{spec}', 'title', 'id', name => 'u')"
        );
        let (code, message) = served.world.error(&sql).await;
        assert_eq!(code, "InvalidArgument");
        assert!(message.contains("STRATAGRAPH_NO_SUCH_KEY"), "{message}");
        assert_eq!(served.sent().0, 0);
    }
}
