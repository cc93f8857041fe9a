//! Store calls per verb, as a committed text: a new call is a change that a review must see.

use std::sync::Arc;

use stratagraph::sim::FaultStore;

use super::crash::block_on;
use super::verbs::verbs;
use crate::support::audit::process;

const GOLDEN: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/golden/calls.txt");

#[test]
fn store_calls_of_every_verb() {
    let mut text = String::new();
    for verb in verbs() {
        let stage = block_on(verb.stage());
        for (process_kind, warm) in [("cold", false), ("warm", true)] {
            let handle = FaultStore::new(Arc::new(stage.base.fork()));
            block_on(async {
                let catalog = process(handle.store(), 5);
                if warm {
                    catalog.begin().await.unwrap();
                    super::verbs::state(&catalog).await.unwrap();
                    handle.reset();
                }
                verb.run(&catalog, &stage.source).await.1.unwrap();
            });
            text += &format!("== {} ({process_kind} process)\n", verb.name);
            text += &handle.canonical_trace();
        }
    }
    if std::env::var_os("UPDATE").is_some() {
        std::fs::write(GOLDEN, &text).unwrap();
    }
    let golden = std::fs::read_to_string(GOLDEN).unwrap_or_default();
    assert!(
        text == golden,
        "store calls changed; UPDATE=1 rewrites tests/it/golden/calls.txt:\n{text}"
    );
}
