//! Models behind a server that misbehaves.

mod faults;
mod handshake;
mod real;
mod secrets;

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use arrow::array::Array;
use async_trait::async_trait;
use stratagraph::embed::testing::server::{Fault, FaultServer};
use stratagraph::embed::{
    Embedded, Embedder, Handshake, ModelPolicy, ModelRegistry, RejectReason, Role, embed_checked,
};
use stratagraph::env::{Clock, Env, Ids};
use stratagraph::{Error, Result};

use super::{embed, vector};

const OPEN: ModelPolicy = ModelPolicy {
    allow_paths_and_urls: true,
    hub_cache: None,
};

/// What a [`FaultServer`] computes with.
const WIDTH: usize = 16;

/// 2026-01-01T00:00:00Z.
const START: i64 = 1_767_225_600_000_000;

/// A clock that moves by its sleeps, which it remembers, and by a step per reading.
#[derive(Debug, Default)]
struct Recorder {
    passed: AtomicI64,
    step: AtomicI64,
    sleeps: Mutex<Vec<Duration>>,
}

impl Recorder {
    /// Every reading from now on is this much later than the one before.
    fn step(&self, step: Duration) {
        self.step.store(step.as_micros() as i64, Ordering::SeqCst);
    }

    fn take(&self) -> Vec<Duration> {
        std::mem::take(&mut self.sleeps.lock().unwrap())
    }
}

#[async_trait]
impl Clock for Recorder {
    fn now_micros(&self) -> i64 {
        let step = self.step.load(Ordering::SeqCst);
        START + self.passed.fetch_add(step, Ordering::SeqCst)
    }

    async fn sleep(&self, duration: Duration) {
        self.sleeps.lock().unwrap().push(duration);
        let micros = duration.as_micros() as i64;
        self.passed.fetch_add(micros, Ordering::SeqCst);
    }
}

/// Jitter that a test sets.
#[derive(Debug, Default)]
struct Jitter(AtomicU64);

impl Ids for Jitter {
    fn unique(&self) -> String {
        "unused".to_owned()
    }

    fn jitter(&self) -> u64 {
        self.0.load(Ordering::SeqCst)
    }
}

/// A server, and the environment of its clients.
struct Room {
    server: FaultServer,
    clock: Arc<Recorder>,
    jitter: Arc<Jitter>,
    env: Env,
}

impl Room {
    async fn new() -> Self {
        Self::with(FaultServer::start().await)
    }

    fn with(server: FaultServer) -> Self {
        let (clock, jitter) = (Arc::<Recorder>::default(), Arc::<Jitter>::default());
        let env = Env {
            clock: clock.clone(),
            ids: jitter.clone(),
            ..Env::fixed(1)
        };
        Self {
            server,
            clock,
            jitter,
            env,
        }
    }

    fn openai(&self) -> String {
        format!("openai:m@{}/v1", self.server.url())
    }

    fn tei(&self) -> String {
        format!("tei:{}", self.server.url())
    }

    async fn ask(&self, spec: &str) -> Result<Arc<dyn Embedder>> {
        let registry = ModelRegistry::default();
        registry
            .resolve(spec, &OPEN, &self.env, Handshake::Fresh)
            .await
    }

    /// The model, with the requests of its handshake forgotten.
    async fn open(&self, spec: &str) -> Arc<dyn Embedder> {
        let model = self.ask(spec).await.unwrap();
        self.server.reset();
        self.clock.take();
        model
    }

    /// The number of requests since the last time.
    fn requests(&self) -> usize {
        let requests = self.server.requests().len();
        self.server.reset();
        requests
    }
}

async fn documents(model: &dyn Embedder, texts: &[&str]) -> Result<Embedded> {
    let texts: Vec<Option<&str>> = texts.iter().copied().map(Some).collect();
    model.embed(Role::Document, &texts).await
}

fn good(texts: &[&str]) -> Embedded {
    let texts: Vec<Option<&str>> = texts.iter().copied().map(Some).collect();
    embed(WIDTH, &texts)
}

/// Every row is the right vector, or null with the reason that `expected` has for it.
fn assert_rows(answer: &Embedded, texts: &[&str], expected: &[(usize, RejectReason)]) {
    assert_eq!(answer.errors, expected);
    let right = good(texts);
    assert_eq!(answer.vectors.len(), texts.len());
    for row in 0..texts.len() {
        let refused = expected.iter().any(|(bad, _)| *bad == row);
        let right = vector(&right, row).filter(|_| !refused);
        assert_eq!(vector(answer, row), right, "row {row}");
    }
}

fn names(count: usize) -> Vec<String> {
    (0..count).map(|i| format!("text number {i}")).collect()
}

fn refs(texts: &[String]) -> Vec<&str> {
    texts.iter().map(String::as_str).collect()
}

#[tokio::test]
async fn vectors_are_those_of_the_server_in_the_order_of_the_rows() {
    let room = Room::new().await;
    let texts = ["one", "two", "one", "three", "two"];
    for spec in [room.openai(), room.tei()] {
        let model = room.open(&spec).await;
        assert_eq!((model.spec(), model.dimensions()), (&*spec, WIDTH));
        assert!(model.sync().is_none());
        assert_rows(&documents(&*model, &texts).await.unwrap(), &texts, &[]);
        assert_eq!(room.server.texts(), ["one", "two", "three"]);
        assert_eq!(room.requests(), 1);
        let nothing = documents(&*model, &[]).await.unwrap();
        assert_eq!((nothing.vectors.len(), room.requests()), (0, 0));
    }
    let model = room.open(&room.tei()).await;
    documents(&*model, &["one"]).await.unwrap();
    let sent = &room.server.requests()[0];
    assert_eq!(sent.path, "/embed");
    let body = serde_json::json!({"inputs": ["one"], "normalize": true, "truncate": false});
    assert_eq!(sent.json, body);
    assert_eq!(sent.header("content-type"), Some("application/json"));
    assert_eq!(sent.header("authorization"), None);
}

#[tokio::test]
async fn rows_without_text_are_sent_as_the_empty_text() {
    let room = Room::new().await;
    for spec in [room.openai(), room.tei()] {
        let model = room.open(&spec).await;
        let texts = [Some("one"), None, Some(""), Some(" "), Some("two")];
        let answer = model.embed(Role::Document, &texts).await.unwrap();
        let refused = [1, 2, 3].map(|row| (row, RejectReason::Rejected));
        let shown = texts.map(Option::unwrap_or_default);
        assert_rows(&answer, &shown, &refused);
        assert_eq!(room.server.texts()[..4], ["one", "", " ", "two"]);
        room.server.reset();
    }
}

#[tokio::test]
async fn large_calls_are_cut_and_at_most_four_requests_fly() {
    let room = Room::new().await;
    let model = room.open(&room.openai()).await;
    assert_eq!(
        (model.limits().rows, model.limits().bytes),
        (256, 1_200_000)
    );
    room.server.gate(4);
    let texts = names(64 * 6 + 1);
    let texts = refs(&texts);
    assert_rows(&documents(&*model, &texts).await.unwrap(), &texts, &[]);
    assert_eq!(room.server.most_in_flight(), 4);
    let sizes: Vec<usize> = room
        .server
        .requests()
        .iter()
        .map(|r| r.texts.len())
        .collect();
    assert_eq!(sizes.iter().filter(|n| **n == 64).count(), 6);
    assert_eq!((sizes.len(), sizes.iter().sum::<usize>()), (7, texts.len()));

    room.server.gate(0);
    room.server.reset();
    // 100,000 tokens of three bytes: two of these texts are too many for one request.
    let large: Vec<String> = ["a", "b", "c"]
        .map(|c| format!("{c} ").repeat(80_000))
        .to_vec();
    let mut all = refs(&large);
    all.extend(["d", "e"]);
    let some: Vec<Option<&str>> = all.iter().copied().map(Some).collect();
    let answer = embed_checked(&*model, Role::Document, &some).await.unwrap();
    assert_rows(&answer, &all, &[]);
    assert_eq!(room.requests(), 3);
}

#[tokio::test]
async fn a_text_above_the_limit_is_not_sent() {
    let room = Room::new().await;
    let model = room.open(&room.openai()).await;
    let long = "x".repeat(stratagraph::limits::TEXT_BYTES + 1);
    let answer = documents(&*model, &["one", &long]).await.unwrap();
    assert_rows(&answer, &["one", ""], &[(1, RejectReason::TooLong)]);
    assert_eq!(room.server.texts(), ["one"]);
}

#[tokio::test]
async fn the_text_of_a_search_is_sent_once() {
    let room = Room::new().await;
    let model = room.open(&room.openai()).await;
    for (role, requests) in [(Role::Query, 1), (Role::Document, 3)] {
        for _ in 0..3 {
            let answer = model.embed(role, &[Some("q"), Some("q")]).await.unwrap();
            assert_rows(&answer, &["q", "q"], &[]);
        }
        assert_eq!(room.requests(), requests, "{role:?}");
    }
    // Only what has a vector is remembered.
    for _ in 0..2 {
        model.embed(Role::Query, &[Some("")]).await.unwrap();
    }
    assert_eq!(room.requests(), 2);
    let both = model.embed(Role::Query, &[Some("q"), Some("new")]).await;
    assert_rows(&both.unwrap(), &["q", "new"], &[]);
    assert_eq!(room.server.texts(), ["new"]);
}

#[tokio::test]
async fn a_dropped_call_ends_its_requests() {
    let room = Room::new().await;
    let model = room.open(&room.openai()).await;
    room.server.set(Some(Fault::Hang));
    let texts = names(64 * 5);
    let texts = refs(&texts);
    let call = documents(&*model, &texts);
    let all_hang = async {
        while room.server.requests().len() < 4 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    tokio::select! {
        _ = call => panic!("a server that hangs has answered"),
        () = all_hang => {}
    }
    // The connections close without the help of a time-out.
    while room.server.abandoned() < 4 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    room.server.set(None);
    assert_eq!(room.requests(), 4);
    assert_rows(&documents(&*model, &["one"]).await.unwrap(), &["one"], &[]);
}

#[tokio::test]
async fn a_call_ends_at_its_deadline() {
    let room = Room::new().await;
    let model = room.open(&room.openai()).await;
    for (role, seconds) in [(Role::Query, 60), (Role::Document, 600)] {
        room.server.set(Some(Fault::Hang));
        // The second reading leaves this call a tenth of a second.
        room.clock.step(Duration::from_millis(seconds * 1000 - 100));
        let error = model.embed(role, &[Some("q")]).await.unwrap_err();
        let said = format!("no answer within the {seconds} s of the call");
        assert!(error.to_string().contains(&said), "{error}");
        assert_eq!(error.code(), "ModelFailed");
        assert_eq!(room.requests(), 1);
        room.clock.step(Duration::ZERO);
    }
    // Waits count: the third wait would end with the minute that a search has.
    room.server.set(Some(Fault::retry_after(503, "20")));
    let error = model.embed(Role::Query, &[Some("q")]).await.unwrap_err();
    assert!(error.to_string().contains("60 s of the call"), "{error}");
    assert_eq!(room.clock.take(), [Duration::from_secs(20); 2]);
    assert_eq!(room.requests(), 3);
}

/// The error of a call that must fail.
fn failure<T: std::fmt::Debug>(outcome: Result<T>, code: &str) -> Error {
    let error = outcome.unwrap_err();
    assert_eq!(error.code(), code, "{error}");
    error
}
