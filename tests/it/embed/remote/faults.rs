//! Every fault gives right vectors or a typed error.

use super::*;

const TEXTS: [&str; 4] = ["one", "two", "three three", "four"];

#[derive(Debug)]
enum Outcome {
    /// All vectors, after this many requests.
    Good(usize),
    /// The first row has none.
    First(RejectReason),
    /// The third row was refused.
    Third,
    /// The call fails with this code and these words, after one request.
    Fails(&'static str, &'static str),
}
use Outcome::{Fails, First, Good, Third};

/// Faults of one request that both languages show alike.
fn common() -> Vec<(Fault, Outcome)> {
    let failed = "ModelFailed";
    vec![
        (Fault::status(408), Good(2)),
        (Fault::status(429), Good(2)),
        (Fault::status(500), Good(2)),
        (Fault::status(502), Good(2)),
        (Fault::status(503), Good(2)),
        (Fault::status(504), Good(2)),
        (Fault::ResetBefore, Good(2)),
        (Fault::ResetWithin, Good(2)),
        (Fault::SlowBody(Duration::from_millis(20)), Good(1)),
        (Fault::Chunked, Good(1)),
        (Fault::Floats, Good(1)),
        // A refusal that does not come again.
        (Fault::status(400), Good(3)),
        (Fault::status(413), Good(3)),
        (Fault::status(422), Good(3)),
        (Fault::NonFinite, First(RejectReason::NonFinite)),
        (Fault::ZeroVector, First(RejectReason::ZeroNorm)),
        (Fault::MissingVector, Fails(failed, "3 vectors for 4 texts")),
        (Fault::ExtraVector, Fails(failed, "index 4 for 4 texts")),
        (Fault::WrongWidth, Fails(failed, "17 components, not 16")),
        (Fault::TruncatedJson, Fails(failed, "cannot be used")),
        (
            Fault::EndlessBody,
            Fails("ResourceLimitExceeded", "bytes of the answer"),
        ),
        (Fault::status(401), Fails(failed, "key_env")),
        (Fault::status(403), Fails(failed, "key_env")),
        (Fault::status(404), Fails(failed, "name of the model")),
        (Fault::status(418), Fails(failed, "418")),
        (Fault::status(424), Fails(failed, "424")),
        (Fault::status(501), Fails(failed, "501")),
        (
            Fault::Redirect("http://127.0.0.1:1/v1".to_owned()),
            Fails(failed, "redirects are not followed"),
        ),
        (Fault::EchoHeaders, Fails(failed, "401")),
    ]
}

/// Faults that only an answer with names and indices can show.
fn openai_only() -> Vec<(Fault, Outcome)> {
    let failed = "ModelFailed";
    vec![
        (Fault::Shuffled, Good(1)),
        (Fault::DuplicateIndex, Fails(failed, "index 0 twice")),
        (Fault::NoIndex, Fails(failed, "index")),
        (
            Fault::OtherModel("other".to_owned()),
            Fails(failed, "model \"other\" answered, not \"m\""),
        ),
        (Fault::NoModel, Fails(failed, "model \"\" answered")),
    ]
}

async fn check(room: &Room, model: &dyn Embedder, fault: Fault, outcome: &Outcome) {
    room.server.push(fault.clone());
    let answer = documents(model, &TEXTS).await;
    let requests = room.requests();
    match outcome {
        Good(expected) => {
            assert_rows(&answer.unwrap(), &TEXTS, &[]);
            assert_eq!(requests, *expected, "{fault:?}");
        }
        First(reason) => {
            assert_rows(&answer.unwrap(), &TEXTS, &[(0, *reason)]);
            assert_eq!(requests, 1, "{fault:?}");
        }
        Third => {
            let refused = [(2, RejectReason::Rejected)];
            assert_rows(&answer.unwrap(), &TEXTS, &refused);
            assert_eq!(requests, 5, "{fault:?}");
        }
        Fails(code, said) => {
            let error = failure(answer, code).to_string();
            assert!(error.contains(said), "{fault:?}: {error}");
            // The words of the server are its own.
            if fault != Fault::EchoHeaders {
                assert!(!error.contains("127.0.0.1"), "{fault:?}: {error}");
            }
            assert_eq!(requests, 1, "{fault:?}");
        }
    }
}

#[tokio::test]
async fn one_fault_never_misaligns() {
    let room = Room::new().await;
    for spec in [room.openai(), room.tei()] {
        let model = room.open(&spec).await;
        let more = if spec.starts_with("openai") {
            openai_only()
        } else {
            Vec::new()
        };
        for (fault, outcome) in common().into_iter().chain(more) {
            check(&room, &*model, fault, &outcome).await;
            // The next call is as good as the first.
            let next = documents(&*model, &TEXTS).await.unwrap();
            assert_rows(&next, &TEXTS, &[]);
            assert_eq!(room.requests(), 1);
        }
    }
}

#[tokio::test]
async fn lasting_faults_end_in_time() {
    let room = Room::new().await;
    for spec in [room.openai(), room.tei()] {
        let model = room.open(&spec).await;
        for fault in [
            Fault::status(503),
            Fault::ResetBefore,
            Fault::ResetWithin,
            Fault::status(429),
        ] {
            room.server.set(Some(fault.clone()));
            let error = failure(documents(&*model, &TEXTS).await, "ModelFailed");
            assert!(error.to_string().contains("5 attempts"), "{error}");
            // The pool of connections may try a dead one again by itself.
            assert!((5..=10).contains(&room.requests()), "{fault:?}");
        }
        room.server.set(Some(Fault::Poison("three".to_owned())));
        let check = check(&room, &*model, Fault::Poison("three".to_owned()), &Third);
        check.await;
        room.server.set(None);
        assert_rows(&documents(&*model, &TEXTS).await.unwrap(), &TEXTS, &[]);
        room.requests();
    }
}

#[tokio::test]
async fn a_server_that_is_gone_is_typed() {
    let room = Room::new().await;
    let (openai, tei) = (room.openai(), room.tei());
    let model = room.open(&openai).await;
    let Room {
        server, clock, env, ..
    } = room;
    drop(server);
    let gone = Room {
        server: FaultServer::start().await,
        clock,
        jitter: Arc::default(),
        env,
    };
    let errors = [
        documents(&*model, &TEXTS).await.unwrap_err(),
        gone.ask(&openai).await.unwrap_err(),
        gone.ask(&tei).await.unwrap_err(),
    ];
    for error in errors {
        assert_eq!(error.code(), "ModelFailed");
        let said = error.to_string();
        assert!(said.contains("5 attempts"), "{said}");
        assert!(!said.contains("127.0.0.1"), "{said}");
    }
    assert!(gone.requests() == 0);
}

#[tokio::test]
async fn waits_follow_the_server_or_double() {
    let room = Room::new().await;
    let model = room.open(&room.openai()).await;
    let seconds = Duration::from_secs;
    for (status, header, wait) in [
        (429, "7", seconds(7)),
        (503, "3", seconds(3)),
        (500, "45", seconds(45)),
    ] {
        room.server.push(Fault::retry_after(status, header));
        assert_rows(&documents(&*model, &TEXTS).await.unwrap(), &TEXTS, &[]);
        assert_eq!(room.clock.take(), [wait], "{header}");
    }
    // The clock stands 55 s after the start.
    let date = "Thu, 01 Jan 2026 00:01:05 GMT";
    room.server.push(Fault::retry_after(429, date));
    documents(&*model, &TEXTS).await.unwrap();
    assert_eq!(room.clock.take(), [seconds(10)]);

    room.jitter.0.store(u64::MAX, Ordering::SeqCst);
    for no_wait in ["0", "soon", "Thu, 01 Jan 2026 00:00:01 GMT"] {
        room.server.push(Fault::retry_after(429, no_wait));
        documents(&*model, &TEXTS).await.unwrap();
        let jittered = Duration::from_micros(u64::MAX % 250_001);
        assert_eq!(room.clock.take(), [jittered], "{no_wait}");
    }
    room.server.set(Some(Fault::status(503)));
    failure(documents(&*model, &TEXTS).await, "ModelFailed");
    let bounds = [250_001, 500_001, 1_000_001, 2_000_001];
    let expected = bounds.map(|bound| Duration::from_micros(u64::MAX % bound));
    assert_eq!(room.clock.take(), expected);
}

#[tokio::test]
async fn some_waits_are_not_worth_it() {
    let room = Room::new().await;
    let model = room.open(&room.openai()).await;
    for beyond in ["600", "86400", "99999999999999999999999"] {
        room.server.push(Fault::retry_after(429, beyond));
        let error = failure(documents(&*model, &TEXTS).await, "ModelFailed");
        assert!(error.to_string().contains("600 s of the call"), "{error}");
        assert_eq!((room.requests(), room.clock.take().len()), (1, 0));
    }
    room.server.push(Fault::Status {
        status: 429,
        code: "insufficient_quota",
        retry_after: Some("1".to_owned()),
    });
    let error = failure(documents(&*model, &TEXTS).await, "ModelFailed");
    assert!(error.to_string().contains("insufficient_quota"), "{error}");
    assert_eq!((room.requests(), room.clock.take().len()), (1, 0));
}

#[tokio::test]
async fn refused_texts_are_found_by_halving() {
    let room = Room::new().await;
    let marked = |bad: &[usize]| -> Vec<String> {
        let text = |i| {
            let mark = if bad.contains(&i) { "poison" } else { "text" };
            format!("{mark} number {i}")
        };
        (0..64).map(text).collect()
    };
    let every_other: Vec<usize> = (0..32).step_by(2).collect();
    for bad in [&[0][..], &[63], &[31, 32], &[5, 40, 41], &every_other] {
        for rows in [32, 64] {
            let spec = if rows == 32 {
                room.tei()
            } else {
                room.openai()
            };
            let model = room.open(&spec).await;
            room.server.set(Some(Fault::Poison("poison".to_owned())));
            let texts = marked(bad);
            let refused: Vec<_> = bad.iter().map(|i| (*i, RejectReason::Rejected)).collect();
            let answer = documents(&*model, &refs(&texts)).await.unwrap();
            assert_rows(&answer, &refs(&texts), &refused);
            let requests = room.requests();
            let parts = 64 / rows;
            assert!(requests <= parts + 2 * 6 * bad.len(), "{bad:?}: {requests}");
            room.server.set(None);
        }
    }
    let model = room.open(&room.openai()).await;
    room.server.set(Some(Fault::Poison("poison".to_owned())));
    let texts = marked(&(0..17).collect::<Vec<_>>());
    let error = failure(documents(&*model, &refs(&texts)).await, "ModelFailed");
    assert!(error.to_string().contains("a text is not valid"), "{error}");
    assert!(room.requests() <= 1 + 2 * 6 * 16);
    let texts = marked(&(0..16).collect::<Vec<_>>());
    let answer = documents(&*model, &refs(&texts)).await.unwrap();
    assert_eq!(answer.errors.len(), 16);
}

#[tokio::test]
async fn requests_that_are_too_large_are_halved() {
    let room = Room::new().await;
    let model = room.open(&room.openai()).await;
    let texts = names(64);
    let texts = refs(&texts);
    for (most, requests) in [(64, 1), (63, 3), (8, 15), (1, 127)] {
        room.server.set(Some(Fault::RowsAbove(most)));
        let answer = documents(&*model, &texts).await.unwrap();
        assert_rows(&answer, &texts, &[]);
        assert_eq!(room.requests(), requests, "{most}");
    }
    room.server.set(Some(Fault::RowsAbove(0)));
    failure(documents(&*model, &texts).await, "ModelFailed");
    assert!(room.requests() < 64);
}
