//! Every store call of a load x faults, and every await cancelled: the old state or the new one.

use futures::FutureExt;
use stratagraph_udfs::{GraphLoad, LoadMode};

use super::support::*;
use crate::graph_sweep::{Case, cancellations, faults};

/// What each mode loads: every type is touched.
fn second(mode: LoadMode) -> String {
    let mut text = vec![person("c", "\"age\": 3"), edge("Knows", "k2", "c", "c")];
    if mode != Append {
        text.push(person("a", "\"age\": 9"));
        text.push(edge("Knows", "k1", "c", "a"));
    }
    if mode == Overwrite {
        text.extend([place("h", "House", 2), edge("Lives", "l2", "a", "h")]);
    }
    lines(&text)
}

/// Each mode on a branch that is there, and on one that the load makes.
fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for (mode, branch) in [
        (Overwrite, "main"),
        (Append, "main"),
        (Merge, "main"),
        (Merge, "made"),
    ] {
        let name = format!("{mode:?} into {branch}");
        cases.push(Case::new(name, false, move |process| {
            async move {
                let load = GraphLoad {
                    branch: branch.to_owned(),
                    base: (branch != "main").then(|| "main".to_owned()),
                    ..GraphLoad::of_text("g", second(mode), mode)
                };
                let report = process.sg.graph_load(load).await;
                report.map(drop).map_err(|e| e.to_string())
            }
            .boxed()
        }));
    }
    cases
}

#[test]
fn every_call_of_a_load_meets_every_fault() {
    faults(&cases());
}

#[test]
fn a_load_is_dropped_at_every_await() {
    cancellations(&cases());
}
