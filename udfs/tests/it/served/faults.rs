//! Every fault, through `generate_embeddings` and `refresh_embeddings`: right vectors in their rows, or
//! a typed error and nothing changed.

use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use stratagraph::embed::{HashEmbedder, Role, SyncEmbedder};
use stratagraph::env::Clock;

use super::*;
use crate::world::{Doc, docs};

#[derive(Debug, Clone, Copy, PartialEq)]
enum Outcome {
    /// Every row has its vector.
    Good,
    /// The first row that is sent has none, for this reason.
    First(&'static str),
    /// The row whose title holds a 2 has none: it was refused.
    Poisoned,
    /// The verb fails with this code.
    Fails(&'static str),
}
use Outcome::{Fails, First, Good, Poisoned};

/// What becomes of a verb.
struct Case {
    fault: Fault,
    /// When the first request with rows meets it.
    once: Outcome,
    /// When every request of a `generate_embeddings` meets it, the handshake's too.
    generate: Outcome,
    /// And every request of a `refresh_embeddings`.
    refresh: Outcome,
}

const FAILED: Outcome = Fails("ModelFailed");

/// A fault that a verb outlives when it comes once.
fn passing(fault: Fault) -> Case {
    same(fault, Good, FAILED)
}

fn same(fault: Fault, once: Outcome, lasting: Outcome) -> Case {
    Case {
        fault,
        once,
        generate: lasting,
        refresh: lasting,
    }
}

/// A fault that makes the server another model's.
fn drift(fault: Fault, once: Outcome) -> Case {
    Case {
        fault,
        once,
        generate: Good,
        refresh: Fails("DefinitionDrift"),
    }
}

fn cases(kind: Kind) -> Vec<Case> {
    let limit = Fails("ResourceLimitExceeded");
    let quota = Fault::Status {
        status: 429,
        code: "insufficient_quota",
        retry_after: None,
    };
    let other = || Fault::OtherModel("other".to_owned());
    let mut cases: Vec<Case> = [400, 408, 413, 422, 429, 500, 502, 503, 504]
        .map(|status| passing(Fault::status(status)))
        .into();
    let lost = [401, 403, 404, 418, 424, 501].map(Fault::status);
    cases.extend(lost.map(|fault| same(fault, FAILED, FAILED)));
    cases.extend([
        passing(Fault::retry_after(503, "2")),
        passing(Fault::ResetBefore),
        passing(Fault::ResetWithin),
        passing(Fault::RowsAbove(0)),
        same(Fault::retry_after(503, "86400"), FAILED, FAILED),
        same(quota, FAILED, FAILED),
        same(Fault::Hang, FAILED, FAILED),
        same(Fault::SlowBody(Duration::from_millis(5)), Good, Good),
        same(Fault::Chunked, Good, Good),
        same(Fault::Floats, Good, Good),
        same(Fault::NoBase64, Good, Good),
        same(Fault::RowsAbove(1), Good, Good),
        same(Fault::OtherVectors, Good, Good),
        same(Fault::Poison("2".to_owned()), Good, Poisoned),
        same(Fault::NonFinite, First("non_finite"), First("non_finite")),
        same(Fault::ZeroVector, First("zero_norm"), First("zero_norm")),
        same(Fault::MissingVector, FAILED, FAILED),
        same(Fault::ExtraVector, FAILED, FAILED),
        same(Fault::TruncatedJson, FAILED, FAILED),
        same(Fault::EndlessBody, limit, limit),
        same(Fault::EchoHeaders, FAILED, FAILED),
        same(
            Fault::Redirect("http://127.0.0.1:1/v1".to_owned()),
            FAILED,
            FAILED,
        ),
        drift(Fault::WrongWidth, FAILED),
    ]);
    // An answer of /embed holds neither names nor indices.
    cases.extend(match kind {
        Kind::OpenAi => vec![
            same(Fault::Shuffled, Good, Good),
            same(Fault::DuplicateIndex, FAILED, FAILED),
            same(Fault::NoIndex, FAILED, FAILED),
            drift(other(), FAILED),
            drift(Fault::NoModel, FAILED),
        ],
        Kind::Tei => vec![
            same(Fault::DuplicateIndex, Good, Good),
            same(Fault::NoIndex, Good, Good),
            drift(other(), Good),
            same(Fault::NoModel, Good, Good),
        ],
    });
    cases
}

/// A clock of small steps, and of large ones from when the server has had so many requests: a call that
/// begins then has a tenth of a second left.
#[derive(Debug)]
struct Steps {
    server: Arc<FaultServer>,
    passed: AtomicI64,
    from: AtomicUsize,
    step: AtomicI64,
}

impl Steps {
    fn new(server: &Arc<FaultServer>) -> Arc<Self> {
        Arc::new(Self {
            server: Arc::clone(server),
            passed: AtomicI64::new(1_767_225_600_000_000),
            from: AtomicUsize::new(usize::MAX),
            step: AtomicI64::new(0),
        })
    }

    fn leap(&self, from: usize, seconds: i64) {
        self.step
            .store(seconds * 1_000_000 - 100_000, Ordering::SeqCst);
        self.from.store(from, Ordering::SeqCst);
    }

    fn heal(&self) {
        self.from.store(usize::MAX, Ordering::SeqCst);
    }
}

#[async_trait]
impl Clock for Steps {
    fn now_micros(&self) -> i64 {
        let from = self.from.load(Ordering::SeqCst);
        let leaps = from < usize::MAX && self.server.requests().len() >= from;
        let step = if leaps {
            self.step.load(Ordering::SeqCst)
        } else {
            1_000
        };
        self.passed.fetch_add(step, Ordering::SeqCst)
    }

    async fn sleep(&self, _duration: Duration) {
        tokio::task::yield_now().await;
    }
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Verb {
    Generate,
    Refresh,
}

/// A verb that is about to meet a fault.
struct Scene {
    served: Served,
    clock: Arc<Steps>,
    verb: Verb,
    what: String,
}

/// Four rows are edited, one stays, one goes.
fn edited() -> Vec<Doc> {
    let mut rows = docs(5);
    for (at, row) in rows.iter_mut().take(4).enumerate() {
        row.1 = Some(format!("edited {at}"));
    }
    rows
}

impl Scene {
    async fn new(base: &InMemory, server: &Arc<FaultServer>, kind: Kind, verb: Verb) -> Self {
        let clock = Steps::new(server);
        let env = Env {
            clock: clock.clone(),
            ..Env::fixed(2)
        };
        let store = match verb {
            Verb::Generate => Arc::default(),
            Verb::Refresh => Arc::new(base.fork()),
        };
        let served = Served::over(kind, Arc::clone(server), store, env).await;
        served.world.docs.set(&edited());
        Self {
            served,
            clock,
            verb,
            what: String::new(),
        }
    }

    /// Number of rows without a vector.
    async fn run(&self) -> stratagraph::Result<u64> {
        let sg = &self.served.world.sg;
        match self.verb {
            Verb::Generate => {
                let made = sg.generate_embeddings(self.served.table()).await;
                made.map(|report| report.dropped_rows)
            }
            Verb::Refresh => {
                let made = sg.refresh_embeddings("t", Default::default()).await;
                made.map(|report| report.dropped_rows)
            }
        }
    }

    fn arm(&self, fault: &Fault, lasting: bool) {
        let server = &self.served.server;
        server.reset();
        if lasting {
            server.set(Some(fault.clone()));
        } else {
            self.served.spare_handshake();
            server.push(fault.clone());
        }
        if *fault == Fault::Hang {
            match lasting {
                true => self.clock.leap(0, 60),
                false => self.clock.leap(self.served.kind.handshake(), 600),
            }
        }
    }

    fn heal(&self) {
        self.served.server.set(None);
        self.clock.heal();
    }

    /// Asserts that the table has the rows of the source, in order, but for `without`.
    async fn assert_rows(&self, without: Option<usize>, spoilt: Option<&Fault>) {
        let found = vectors(&self.served.world.sg, "t").await;
        let mut expected = Vec::new();
        for (at, row) in edited().into_iter().enumerate() {
            if Some(at) == without {
                continue;
            }
            // A refresh does not send the row that stays.
            let sent = self.verb == Verb::Generate || at < 4;
            let vector = vector(&row.1.unwrap(), spoilt.filter(|_| sent));
            expected.push((row.0.unwrap(), vector));
        }
        assert_eq!(found, expected, "{}", self.what);
    }

    async fn check(&self, case: &Case, lasting: bool) {
        let outcome = match (lasting, self.verb) {
            (false, _) => case.once,
            (true, Verb::Generate) => case.generate,
            (true, Verb::Refresh) => case.refresh,
        };
        let (served, what) = (&self.served, &self.what);
        let sg = &served.world.sg;
        let before = served.objects().await;
        let rows_before = match self.verb {
            Verb::Generate => Vec::new(),
            Verb::Refresh => vectors(sg, "t").await,
        };
        self.arm(&case.fault, lasting);
        let answer = self.run().await;
        self.heal();
        let dropped = match outcome {
            Fails(code) => {
                let error = answer.expect_err(what);
                assert_eq!(error.code(), code, "{what}: {error}");
                assert_eq!(served.objects().await, before, "{what}");
                match self.verb {
                    Verb::Generate => {
                        assert!(sg.embedding_tables().await.unwrap().is_empty(), "{what}");
                    }
                    Verb::Refresh => assert_eq!(vectors(sg, "t").await, rows_before, "{what}"),
                }
                assert_eq!(self.run().await.expect(what), 0, "{what}: healed");
                self.assert_rows(None, None).await;
                return;
            }
            Good => None,
            First(_) => Some(0),
            Poisoned => Some(2),
        };
        let answer = answer.unwrap_or_else(|error| panic!("{what}: {error}"));
        assert_eq!(answer, u64::from(dropped.is_some()), "{what}");
        self.assert_rows(dropped, Some(&case.fault)).await;
        let rejected = sg.rejected_rows("t").await.unwrap();
        if outcome == First("zero_norm") {
            // That is the model's word on a text, for good.
            let reasons: Vec<&str> = rejected.iter().map(|row| &*row.reason).collect();
            assert_eq!(reasons, ["zero_norm"], "{what}");
        } else if dropped.is_some() {
            assert!(rejected.is_empty(), "{what}");
            let again = sg.refresh_embeddings("t", Default::default()).await;
            assert_eq!(again.unwrap().dropped_rows, 0, "{what}");
            self.assert_rows(None, None).await;
        }
    }
}

/// The vector that the server makes of a text.
fn vector(text: &str, spoilt: Option<&Fault>) -> Vec<f32> {
    let text = match spoilt {
        Some(Fault::OtherVectors) => format!("{text} and more"),
        _ => text.to_owned(),
    };
    let model = HashEmbedder::new(16).unwrap();
    let answer = model.embed_now(Role::Document, &[Some(&text)]).unwrap();
    let values = answer.vectors.value(0);
    let mut vector = values.as_primitive::<Float32Type>().values().to_vec();
    if spoilt == Some(&Fault::WrongWidth) {
        vector.push(1.0);
    }
    vector
}

async fn every_fault(kind: Kind) {
    let server = Arc::new(FaultServer::start().await);
    let base = Arc::new(InMemory::new());
    let made = Served::over(kind, Arc::clone(&server), Arc::clone(&base), Env::fixed(1)).await;
    made.world.docs.set(&docs(6));
    made.generate().await;
    for case in cases(kind) {
        for verb in [Verb::Generate, Verb::Refresh] {
            for lasting in [false, true] {
                let mut scene = Scene::new(&base, &server, kind, verb).await;
                let when = if lasting { "lasting" } else { "once" };
                scene.what = format!("{kind:?} {verb:?} {:?} {when}", case.fault);
                scene.check(&case, lasting).await;
            }
        }
    }
}

#[tokio::test]
async fn every_fault_of_openai_gives_right_vectors_or_changes_nothing() {
    every_fault(Kind::OpenAi).await;
}

#[tokio::test]
async fn every_fault_of_tei_gives_right_vectors_or_changes_nothing() {
    every_fault(Kind::Tei).await;
}

#[tokio::test]
async fn too_many_refusals_fail_the_verb() {
    for kind in KINDS {
        let served = Served::new(kind).await;
        let sg = &served.world.sg;
        served.world.docs.set(&docs(32));
        let before = served.objects().await;
        served.server.set(Some(Fault::Poison("title".to_owned())));
        let error = sg.generate_embeddings(served.table()).await.unwrap_err();
        assert_eq!(error.code(), "ModelFailed", "{error}");
        assert!(error.to_string().contains("refused too much"), "{error}");
        assert_eq!(served.objects().await, before);
    }
}

#[tokio::test]
async fn a_server_that_is_gone_changes_nothing() {
    for kind in KINDS {
        let mut served = Served::new(kind).await;
        served.world.docs.set(&docs(10));
        served.generate().await;
        let (before, good) = (served.objects().await, vectors(&served.world.sg, "t").await);
        served.server = Arc::new(FaultServer::start().await);
        served.world.docs.set(&edited());
        for verb in [
            "SELECT * FROM refresh_embeddings('t')",
            "SELECT * FROM staleness('t')",
            "SELECT * FROM recompute('t')",
            "SELECT * FROM search('t', 'never seen', 2)",
        ] {
            let (code, message) = served.world.error(verb).await;
            assert_eq!(code, "ModelFailed", "{verb}: {message}");
            assert!(!message.contains("127.0.0.1"), "{verb}: {message}");
        }
        assert_eq!(served.objects().await, before);
        assert_eq!(vectors(&served.world.sg, "t").await, good);
        // What needs no model goes on.
        let by_id = "SELECT _row_id FROM search_by_id('t', 'k0003', 1)";
        assert_eq!(served.world.row(by_id).await, ["k0003"]);
        let compared = served
            .world
            .sql("SELECT * FROM verify_materialization('t')");
        assert!(
            compared
                .await
                .iter()
                .all(|row| row.contains(&"match".to_owned()))
        );
    }
}
