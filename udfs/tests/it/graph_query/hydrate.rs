//! Rows of few nodes, which are looked up one by one, and rows of too many for that.

use std::fmt::Write;

use crate::graph_load::support::{Merge, Overwrite, load, world};
use crate::world::World;

const SCHEMA: &str = "node N { name: String @key  x: I32?  y: String? } edge E: N -> N";
const NODES: usize = 2_600;

fn node(text: &mut String, number: usize, x: &str) {
    let name = format!("n{number:04}");
    let data = format!("{{\"name\":\"{name}\",\"x\":{x},\"y\":\"of {number}\"}}");
    writeln!(text, "{{\"type\":\"N\",\"data\":{data}}}").unwrap();
}

/// The first node knows `ends` others, each of which knows the last one.
async fn star(ends: usize) -> World {
    let world = world(SCHEMA).await;
    let mut text = String::new();
    (0..NODES).for_each(|number| node(&mut text, number, &(number % 9).to_string()));
    let last = NODES - 1;
    for end in 1..=ends {
        for (from, to) in [(0, end), (end, last)] {
            let ends = format!("\"from\":\"n{from:04}\",\"to\":\"n{to:04}\"");
            writeln!(text, "{{\"edge\":\"E\",{ends}}}").unwrap();
        }
    }
    load(&world.sg, &text, Overwrite).await.unwrap();
    world
}

async fn sorted(world: &World, sql: &str) -> Vec<Vec<String>> {
    let mut rows = world.sql(sql).await;
    rows.sort();
    rows
}

fn call(body: &str, rest: &str) -> String {
    format!("SELECT * FROM graph_query('g', $$ query q() {{ {body} }} $${rest})")
}

const ONE: &str = "match { $a: N { name: \"n0000\" }  $a e $b } return { $b.name, $b.x, $b.y }";
const TWO: &str =
    "match { $a: N { name: \"n0000\" }  $a e $b  $b e $c } return { $c.y, $c.x, $b.name }";

async fn check(world: &World, rest: &str, ends: usize) {
    let one = "SELECT b.id, b.x, b.y FROM sg.g.\"E\" e JOIN sg.g.\"N\" b ON b.id = e.dst \
               WHERE e.src = 'n0000'";
    let two = "SELECT c.y, c.x, e.dst FROM sg.g.\"E\" e JOIN sg.g.\"E\" f ON f.src = e.dst \
               JOIN sg.g.\"N\" c ON c.id = f.dst WHERE e.src = 'n0000'";
    for (body, sql) in [(ONE, one), (TWO, two)] {
        let expected = sorted(world, sql).await;
        assert_eq!(expected.len(), ends);
        for (mode, partitions) in [("auto", 1), ("index", 3), ("adjacency", 2), ("auto", 7)] {
            for set in [
                format!("SET stratagraph.traversal = '{mode}'"),
                format!("SET datafusion.execution.target_partitions = {partitions}"),
            ] {
                world.sql(&set).await;
            }
            let found = sorted(world, &call(body, rest)).await;
            assert_eq!(found, expected, "{mode} {partitions} {body}");
        }
    }
}

#[tokio::test]
async fn few_nodes_are_looked_up_and_many_are_scanned() {
    for ends in [0, 1, 30, 512, 513, 2_500] {
        let world = star(ends).await;
        check(&world, "", ends).await;
        let before = world
            .row("SELECT max(version), max(commit_id) FROM commits('g')")
            .await[0]
            .clone();
        let past = sorted(&world, &call(ONE, "")).await;
        // Nodes move to another fragment, without a value.
        let mut changed = String::new();
        (1..NODES)
            .step_by(7)
            .for_each(|number| node(&mut changed, number, "null"));
        load(&world.sg, &changed, Merge).await.unwrap();
        check(&world, "", ends).await;
        let at = format!(", snapshot => {before}");
        assert_eq!(sorted(&world, &call(ONE, &at)).await, past);
        world
            .sql("SELECT * FROM graph_branch_create('g', 'draft')")
            .await;
        check(&world, ", branch => 'draft'", ends).await;
    }
}

#[tokio::test]
async fn explain_says_whether_nodes_were_looked_up() {
    let world = star(30).await;
    for (body, match_or_expand) in [(ONE, "MatchExec"), (TWO, "MatchExec")] {
        let sql = call(body, "");
        let plan = world.sql(&format!("EXPLAIN ANALYZE {sql}")).await;
        let plan: Vec<String> = plan.into_iter().flatten().collect();
        let plan = plan.join("\n");
        for part in [
            match_or_expand,
            "HydrateExec: nodes=N, rid=b.#, output=[",
            "looked_up_nodes=30",
        ] {
            assert!(plan.contains(part), "{part} in {plan}");
        }
    }
}
