//! Every store call of a change of schema x faults, and every await cancelled: the old schema with its
//! history, or the new one.

use futures::FutureExt;
use stratagraph_udfs::ApplySchema;

use crate::graph_load::support::*;
use crate::graph_sweep::{Case, cancellations, faults};

/// A rename, a new type, a new property and a proof; then a drop that takes the history.
fn cases() -> Vec<Case> {
    let soft = SCHEMA
        .replace(
            "floor: I64?",
            "level: I64? @rename_from(\"floor\")  size: F64?",
        )
        .replace("@unique(title, floor)", "@unique(title)")
        + "node Pet { name: String @key }";
    let hard = SCHEMA.replace("    email: String? @unique\n", "");
    let changes = [
        ApplySchema::new("g", soft),
        ApplySchema {
            allow_data_loss: true,
            ..ApplySchema::new("g", hard)
        },
    ];
    let case = |change: ApplySchema| {
        let name = format!("data loss: {}", change.allow_data_loss);
        let case = Case::new(name, false, move |process| {
            let change = change.clone();
            async move {
                let steps = process.sg.graph_apply_schema(&change).await;
                steps.map(drop).map_err(|e| e.to_string())
            }
            .boxed()
        });
        case.once()
    };
    changes.into_iter().map(case).collect()
}

#[test]
fn every_call_of_a_change_meets_every_fault() {
    faults(&cases());
}

#[test]
fn a_change_is_dropped_at_every_await() {
    cancellations(&cases());
}
