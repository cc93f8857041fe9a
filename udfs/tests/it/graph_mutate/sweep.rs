//! Every store call of a mutation x faults, and every await cancelled: the old state or the new one.

use futures::FutureExt;
use stratagraph_udfs::GraphMutate;

use super::support::*;
use crate::graph_sweep::{Case, cancellations, faults};

/// Inserts, and an update with a delete and its cascade.
const BODIES: [(&str, &str); 2] = [
    (
        "inserts",
        r#"insert Person { name: "c", age: 3 } insert Person { name: "a", age: 9 }
        insert Knows { from: "c", to: "a" }"#,
    ),
    (
        "a mix",
        r#"update Person set { age: 7 } where name = "b" insert Knows { from: "b", to: "b" }
        delete Person where name = "a""#,
    ),
];

fn cases() -> Vec<Case> {
    let case = |(name, body)| {
        Case::new(name, true, move |process| {
            async move {
                let mutation = GraphMutate {
                    mixed: true,
                    ..call(body)
                };
                let report = process.sg.graph_mutate(mutation).await;
                report.map(drop).map_err(|e| e.to_string())
            }
            .boxed()
        })
    };
    BODIES.into_iter().map(case).collect()
}

#[test]
fn every_call_of_a_mutation_meets_every_fault() {
    faults(&cases());
}

#[test]
fn a_mutation_is_dropped_at_every_await() {
    cancellations(&cases());
}
