//! The protocol and a refresh through `object_store`'s own S3 client, with the answers that S3 gives.

use std::sync::Arc;

use object_store::path::Path;
use stratagraph::catalog::Catalog;
use stratagraph::env::Env;
use stratagraph::publish::Deletes;
use stratagraph::store::Store;

use crate::s3_server::{Answer, Fault, S3Server};
use crate::support::audit::{Told, audit};
use crate::support::embedding::{Source, content, expected, generate, refresh};

fn open(server: &S3Server, seed: u64) -> Arc<Catalog> {
    let store = Store::new(server.store(), Path::default(), "s3://bucket", true);
    Catalog::new(Arc::new(store), Env::fixed(seed))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refresh_survives_what_s3_answers() {
    let answers = [
        Answer::PreconditionFailed,
        Answer::Conflict,
        Answer::UnavailableBefore,
        Answer::UnavailableAfter,
        Answer::ResetAfter,
    ];
    let mut cases = 0;
    for answer in answers {
        // (method, target, nth): slots, staged objects, lists, reads.
        for (method, target, nth) in [
            ("PUT", "catalog", 0),
            ("PUT", "catalog", 1),
            ("PUT", "data", 0),
            ("PUT", "data", 3),
            ("GET", "catalog", 0),
            ("GET", "catalog", 2),
            ("GET", "list-type", 0),
            ("GET", "list-type", 2),
            ("GET", "data", 0),
            ("GET", "data", 1),
        ] {
            // A read is never answered with 412 or 409.
            if method == "GET" && matches!(answer, Answer::PreconditionFailed | Answer::Conflict) {
                continue;
            }
            let server = S3Server::start().await;
            let source = Source::new(&[("a", "one"), ("b", "two")]);
            server.script(vec![Fault {
                method,
                target,
                nth,
                answer,
            }]);
            let what = format!("{answer:?} to {method} {target} number {nth}");
            let mut told = Told::default();
            let catalog = open(&server, 1);
            let (txn, outcome) = generate(&catalog, &source).await;
            told.tell(txn, &outcome);
            if outcome.is_err() {
                generate(&open(&server, 2), &source)
                    .await
                    .1
                    .unwrap_or_else(|e| panic!("{what}: {e}"));
            }
            source.set("a", "changed");
            let (txn, outcome) = refresh(&catalog, &source, Deletes::Tombstone).await;
            told.tell(txn, &outcome);
            if outcome.is_err() {
                refresh(&open(&server, 3), &source, Deletes::Tombstone)
                    .await
                    .1
                    .unwrap_or_else(|e| panic!("{what}: {e}"));
            }
            let found = content(&open(&server, 4), None)
                .await
                .unwrap_or_else(|e| panic!("{what}: {e}"));
            assert_eq!(found, expected(&source.rows()), "{what}");
            audit(server.store(), &told)
                .await
                .unwrap_or_else(|e| panic!("{what}: {e}"));
            cases += 1;
        }
    }
    println!("{cases} scripted S3 cases");
}
