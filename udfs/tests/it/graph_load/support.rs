//! A graph of people and places, and what it holds.

use std::sync::Arc;

use object_store::memory::InMemory;
use stratagraph::catalog::graph::{At, GraphSnapshot, graph};
use stratagraph::env::Env;
use stratagraph::graph::violation::Violation;
use stratagraph::ident::{BranchName, Name};
use stratagraph::table::verify::{Verdict, verify};
use stratagraph::{Error, Result};
use stratagraph_udfs::{GraphLoad, GraphLoadReport, LoadMode, Stratagraph};

use crate::world::World;

pub use stratagraph_udfs::LoadMode::{Append, Merge, Overwrite};

pub const SCHEMA: &str = r#"
node Person {
    name: String @key
    age: I32? @range(0..150)
    email: String? @unique
    status: enum(active, left)?
    code: String? @check("^[a-z]+$")
}
node Place {
    title: String
    floor: I64?
    @unique(title, floor)
}
edge Knows: Person -> Person {
    since: I32?
}
edge Lives: Person -> Place @card(0..2) {
    note: String?
    @unique(src, dst)
}
"#;

pub fn person(name: &str, rest: &str) -> String {
    let rest = if rest.is_empty() {
        String::new()
    } else {
        format!(", {rest}")
    };
    format!("{{\"type\":\"Person\",\"data\":{{\"name\":\"{name}\"{rest}}}}}")
}

pub fn place(id: &str, title: &str, floor: i64) -> String {
    format!(
        "{{\"type\":\"Place\",\"data\":{{\"id\":\"{id}\",\"title\":\"{title}\",\"floor\":{floor}}}}}"
    )
}

pub fn edge(kind: &str, id: &str, from: &str, to: &str) -> String {
    let data = match id {
        "" => String::new(),
        id => format!(",\"data\":{{\"id\":\"{id}\"}}"),
    };
    format!("{{\"edge\":\"{kind}\",\"from\":\"{from}\",\"to\":\"{to}\"{data}}}")
}

pub fn lines(lines: &[String]) -> String {
    lines.join("\n")
}

/// A world with the empty graph `g`.
pub async fn world(schema: &str) -> World {
    world_over(Arc::new(InMemory::new()), 1, schema).await
}

pub async fn world_over(store: Arc<InMemory>, seed: u64, schema: &str) -> World {
    let world = World::over(store, seed).await;
    world.sg.graph_create("g", schema).await.unwrap();
    world
}

pub async fn load(sg: &Stratagraph, text: &str, mode: LoadMode) -> Result<GraphLoadReport> {
    sg.graph_load(GraphLoad::of_text("g", text, mode)).await
}

pub fn violations(error: Error) -> Vec<Violation> {
    match error {
        Error::RecordsInvalid { total, violations } => {
            assert_eq!(total as usize, violations.0.len());
            violations.0
        }
        other => panic!("{other}"),
    }
}

/// Record, type, id and rule of each violation of a load.
pub async fn refused(
    sg: &Stratagraph,
    text: &str,
    mode: LoadMode,
) -> Vec<(u64, String, String, &'static str)> {
    let error = load(sg, text, mode).await.unwrap_err();
    let row = |v: Violation| (v.record, v.type_name, v.id, v.rule);
    violations(error).into_iter().map(row).collect()
}

pub async fn snapshot(sg: &Stratagraph) -> GraphSnapshot {
    let head = sg.catalog().look().await.unwrap();
    let (name, main) = (Name::parse("g").unwrap(), BranchName::main());
    let state = graph(sg.catalog().store(), &head, &name, &main, &At::Head);
    state.await.unwrap()
}

/// Every object of the graph is whole, row ids are unique, and ends are those of their nodes.
pub async fn assert_whole(sg: &Stratagraph) {
    assert_sound(sg, &snapshot(sg).await).await;
}

/// The same of a state.
pub async fn assert_sound(sg: &Stratagraph, state: &GraphSnapshot) {
    let store = sg.catalog().store();
    let checks = verify(store, &Env::fixed(77), &state.manifest, &state.manifest_ref).await;
    let wrong: Vec<_> = checks
        .iter()
        .filter(|c| c.verdict != Verdict::Match)
        .collect();
    assert!(wrong.is_empty(), "{wrong:?}");
}

/// All rows of a type by id, as text.
pub async fn rows(world: &World, of: &str) -> Vec<String> {
    let rows = world
        .sql(&format!("SELECT * FROM sg.g.\"{of}\" ORDER BY id"))
        .await;
    rows.into_iter().map(|row| row.join(" ")).collect()
}
