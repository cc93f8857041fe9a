//! Every store call of the upkeep of a graph x faults, and every await cancelled: the old state or the
//! new one, and every state of the past that is to stay.

use crate::graph_sweep::{Case, cancellations, faults};

/// Dead rows, some fragments of each type, and texts that no index covers.
const DOCS: &str = "node Doc { name: String @key  body: String? @index }";
const OPTIMIZED: [&str; 5] = [
    "INSERT INTO sg.g.\"Doc\" (name, body) VALUES ('d1', 'some words'), ('d2', NULL)",
    "SELECT * FROM graph_optimize('g')",
    "INSERT INTO sg.g.\"Doc\" (name, body) VALUES ('d3', 'other words')",
    "INSERT INTO sg.g.\"Person\" (name) VALUES ('c'), ('d')",
    "DELETE FROM sg.g.\"Person\" WHERE name = 'b' OR name = 'd'",
];

/// A state that a branch was made from, one that is merged, one that is pinned, and others.
const EXPIRED: [&str; 9] = [
    "UPDATE sg.g.\"Person\" SET age = 2",
    "SELECT * FROM graph_branch_create('g', 'b')",
    "INSERT INTO sg.\"g@b\".\"Person\" (name) VALUES ('c')",
    "UPDATE sg.g.\"Person\" SET age = 3",
    "SELECT * FROM create_pin('g', 'p')",
    "UPDATE sg.g.\"Person\" SET age = 4 WHERE name = 'a'",
    "SELECT * FROM graph_branch_merge('g', 'b', 'main')",
    "DELETE FROM sg.g.\"Person\" WHERE name = 'b'",
    "INSERT INTO sg.g.\"Knows\" (id, src, dst) VALUES ('k9', 'a', 'c')",
];

fn cases() -> Vec<Case> {
    let optimize = Case::sql("SELECT * FROM graph_optimize('g')", false);
    let expire = Case::sql("SELECT * FROM graph_expire('g', 1000)", false);
    vec![
        optimize.with_types(DOCS).given(&OPTIMIZED).once(),
        expire.given(&EXPIRED).once(),
    ]
}

#[test]
fn every_call_of_upkeep_meets_every_fault() {
    faults(&cases());
}

#[test]
fn upkeep_is_dropped_at_every_await() {
    cancellations(&cases());
}
