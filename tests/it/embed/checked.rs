//! The contract that every model is held to.

use std::sync::Arc;

use arrow::array::Array;
use stratagraph::embed::testing::{CountingEmbedder, Fault, FaultyEmbedder};
use stratagraph::embed::{
    BatchLimits, Embedder, RejectReason, Role, embed_checked, embed_checked_sync,
};

use super::{embed, model};

const TEXTS: [Option<&str>; 4] = [Some("one"), None, Some("three three"), Some("four")];

#[tokio::test]
async fn batches_follow_the_model_and_the_answer_keeps_the_order() {
    let counting = CountingEmbedder::new("counting", Arc::new(model(16)));
    let whole = embed_checked(&counting, Role::Document, &TEXTS)
        .await
        .unwrap();
    assert_eq!(whole, embed(16, &TEXTS));
    assert_eq!((counting.calls(), counting.rows()), (1, 4));

    let narrow = CountingEmbedder::new("counting", Arc::new(model(16)))
        .with_limits(BatchLimits { rows: 3, bytes: 11 });
    let parts = embed_checked(&narrow, Role::Document, &TEXTS)
        .await
        .unwrap();
    assert_eq!(parts, whole);
    assert_eq!((narrow.calls(), narrow.rows()), (3, 4));
    let seen: Vec<Option<String>> = TEXTS.iter().map(|t| t.map(str::to_owned)).collect();
    assert_eq!(narrow.texts(), seen);

    narrow.reset();
    let sync = embed_checked_sync(&narrow, Role::Document, &TEXTS);
    assert_eq!(sync.unwrap().unwrap(), whole);
    assert_eq!((narrow.calls(), narrow.rows()), (3, 4));
    assert_eq!(narrow.definition(), model(16).definition());

    let nothing = embed_checked(&narrow, Role::Query, &[]).await.unwrap();
    assert_eq!((nothing.vectors.len(), narrow.calls()), (0, 3));
}

#[tokio::test]
async fn every_breach_of_the_contract_fails_the_call() {
    let faulty = FaultyEmbedder::new("faulty", Arc::new(model(16)));
    assert!(embed_checked(&faulty, Role::Document, &TEXTS).await.is_ok());
    for (fault, said) in [
        (Fault::MissingVector, "3 vectors for 4 texts"),
        (Fault::WrongWidth, "FixedSizeList(17"),
        (Fault::Component(f32::NAN), "row 0 is not finite"),
        (Fault::Component(f32::INFINITY), "row 0 is not finite"),
        (Fault::Component(f32::NEG_INFINITY), "row 0 is not finite"),
        (Fault::ZeroVector, "row 0 is zero"),
        (Fault::WrongErrors, "refused rows"),
        (Fault::FailAfter { calls: 0 }, "told to fail"),
    ] {
        faulty.set(Some(fault.clone()));
        let error = embed_checked(&faulty, Role::Document, &TEXTS)
            .await
            .unwrap_err();
        assert_eq!(error.code(), "ModelFailed", "{fault:?}");
        let error = error.to_string();
        assert!(
            error.contains(said) && error.contains("\"faulty\""),
            "{error}"
        );
    }
    faulty.set(Some(Fault::Component(f32::MIN_POSITIVE)));
    assert!(embed_checked(&faulty, Role::Document, &TEXTS).await.is_ok());
    faulty.set(None);
    assert!(embed_checked(&faulty, Role::Document, &TEXTS).await.is_ok());
    assert!(embed_checked_sync(&faulty, Role::Document, &TEXTS).is_none());
}

#[tokio::test]
async fn refused_rows_are_an_answer_and_a_late_failure_is_not() {
    let faulty = FaultyEmbedder::new("faulty", Arc::new(model(16)));
    faulty.set(Some(Fault::Reject {
        needle: "three".to_owned(),
        reason: RejectReason::Rejected,
    }));
    let out = embed_checked(&faulty, Role::Document, &TEXTS)
        .await
        .unwrap();
    assert_eq!(
        out.errors,
        [(1, RejectReason::Empty), (2, RejectReason::Rejected)]
    );
    assert!(out.vectors.is_valid(0) && out.vectors.is_null(2));

    faulty.set(Some(Fault::FailAfter { calls: 1 }));
    let narrow = CountingEmbedder::new("narrow", Arc::new(faulty))
        .with_limits(BatchLimits { rows: 1, bytes: 1 });
    let error = embed_checked(&narrow, Role::Document, &TEXTS)
        .await
        .unwrap_err();
    assert_eq!((error.code(), narrow.calls()), ("ModelFailed", 2));
}
