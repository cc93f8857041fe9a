//! A small graph, and calls on it.

use stratagraph::graph::value::Value;
use stratagraph::graph::violation::Violation;
use stratagraph_udfs::{GraphMutate, GraphMutateReport, QueryParams, Stratagraph};

pub use crate::graph_load::support::*;
use crate::world::World;

/// A mutation of `g` of a body without parameters.
pub fn call(body: &str) -> GraphMutate {
    GraphMutate::new("g", format!("query m() {{ {body} }}"))
}

/// The same with declared parameters and their values.
pub fn with(declared: &str, values: &[(&str, Value)], body: &str) -> GraphMutate {
    let values = values
        .iter()
        .map(|(name, v)| ((*name).to_owned(), v.clone()));
    GraphMutate {
        params: QueryParams::Values(values.collect()),
        ..GraphMutate::new("g", format!("query m({declared}) {{ {body} }}"))
    }
}

pub fn text(value: &str) -> Value {
    Value::String(value.to_owned())
}

/// Affected nodes and edges of a call that makes a commit.
pub async fn done(sg: &Stratagraph, call: GraphMutate) -> (u64, u64) {
    let shown = call.query.clone();
    let report = sg.graph_mutate(call).await;
    let report = report.unwrap_or_else(|error| panic!("{shown}\n{error}"));
    assert!(report.commit_id.is_some(), "{shown}");
    assert_whole(sg).await;
    (report.affected_nodes, report.affected_edges)
}

/// That a call affects nothing and makes no commit.
pub async fn nothing(sg: &Stratagraph, call: GraphMutate) -> GraphMutateReport {
    let before = version(sg).await;
    let report = sg.graph_mutate(call).await.unwrap();
    assert_eq!(report.commit_id, None);
    assert_eq!(version(sg).await, before);
    report
}

/// The code of a call that fails, which changes nothing.
pub async fn fails(sg: &Stratagraph, call: GraphMutate) -> &'static str {
    let before = version(sg).await;
    let shown = call.query.clone();
    let error = match sg.graph_mutate(call).await {
        Ok(report) => panic!("{shown}\n{report:?}"),
        Err(error) => error,
    };
    assert_eq!(version(sg).await, before);
    error.code()
}

/// Type, id and rule of each violation of a call that fails.
pub async fn breaks(sg: &Stratagraph, call: GraphMutate) -> Vec<(String, String, &'static str)> {
    let before = version(sg).await;
    let error = sg.graph_mutate(call).await.unwrap_err();
    assert_eq!(version(sg).await, before);
    let row = |v: Violation| (v.type_name, v.id, v.rule);
    violations(error).into_iter().map(row).collect()
}

pub async fn version(sg: &Stratagraph) -> u64 {
    snapshot(sg).await.manifest.version
}

/// Three people who know each other in a ring, two of whom live somewhere.
pub async fn people() -> World {
    let world = world(SCHEMA).await;
    let all = lines(&[
        person("ann", "\"age\": 30, \"email\": \"ann@x\""),
        person("bo", "\"age\": 40"),
        person("cy", ""),
        place("h", "Home", 1),
        edge("Knows", "k1", "ann", "bo"),
        edge("Knows", "k2", "bo", "cy"),
        edge("Knows", "k3", "cy", "ann"),
        edge("Lives", "l1", "ann", "h"),
        edge("Lives", "l2", "bo", "h"),
    ]);
    load(&world.sg, &all, Append).await.unwrap();
    world
}
