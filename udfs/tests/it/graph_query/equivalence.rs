//! Index path, adjacency path and SQL give the same rows, over random graphs with loops, parallel
//! edges, several fragments and masks, under 1, 2 and 7 partitions.

use std::fmt::Write;
use std::ops::Range;

use super::pattern::{Random, question};
use crate::graph_load::support::{Append, Merge, Overwrite, load, world};
use crate::world::World;

const SCHEMA: &str = "
node A { name: String @key  x: I32? }
node B { name: String @key }
edge K: A -> A { w: I32? }
edge L: A -> B
";

/// Graphs, and questions of each: 500 cases.
const GRAPHS: u64 = 20;
const QUESTIONS: usize = 25;

fn node(random: &mut Random, number: usize) -> String {
    let x = match random.one_in(5) {
        true => "null".to_owned(),
        false => random.below(5).to_string(),
    };
    format!("{{\"type\":\"A\",\"data\":{{\"name\":\"a{number}\",\"x\":{x}}}}}\n")
}

fn edges(random: &mut Random, nodes: usize, count: usize, first: usize) -> String {
    let mut text = String::new();
    for number in first..first + count {
        let (from, to) = (random.below(nodes), random.below(nodes));
        let line = match random.one_in(4) {
            true => format!(
                "{{\"edge\":\"L\",\"from\":\"a{from}\",\"to\":\"b{}\",\"data\":{{\"id\":\"l{number}\"}}}}",
                to % 3
            ),
            false => format!(
                "{{\"edge\":\"K\",\"from\":\"a{from}\",\"to\":\"a{to}\",\"data\":{{\"id\":\"k{number}\",\"w\":{}}}}}",
                random.below(3)
            ),
        };
        writeln!(text, "{line}").unwrap();
    }
    text
}

/// A graph in several fragments, some rows of which are dead.
async fn graph(random: &mut Random) -> World {
    let world = world(SCHEMA).await;
    let nodes = 2 + random.below(7);
    let mut text: String = (0..nodes).map(|n| node(random, n)).collect();
    for b in 0..3 {
        writeln!(text, "{{\"type\":\"B\",\"data\":{{\"name\":\"b{b}\"}}}}").unwrap();
    }
    let size = random.below(12);
    text.push_str(&edges(random, nodes, size, 0));
    load(&world.sg, &text, Overwrite).await.unwrap();
    let more = random.below(8);
    let added = edges(random, nodes, more, 100);
    load(&world.sg, &added, Append).await.unwrap();
    // Edges move and nodes change: rows of both fragments die.
    let mut changed = edges(random, nodes, size / 2, 0);
    let again = random.below(nodes);
    changed.push_str(&node(random, again));
    load(&world.sg, &changed, Merge).await.unwrap();
    world
}

async fn sorted(world: &World, sql: &str) -> Vec<Vec<String>> {
    let mut rows = world.sql(sql).await;
    rows.sort();
    rows
}

/// Unoptimised planners recurse deeply over the nested relations of the SQL.
const STACK: usize = 64 * 1024 * 1024;

#[test]
fn every_path_gives_what_sql_gives_in_small_graphs() {
    with_stack(0..GRAPHS / 2);
}

#[test]
fn every_path_gives_what_sql_gives_in_more_of_them() {
    with_stack(GRAPHS / 2..GRAPHS);
}

fn with_stack(seeds: Range<u64>) {
    let run = move || {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .thread_stack_size(STACK)
            .enable_all()
            .build()
            .unwrap();
        runtime.block_on(compare(seeds));
    };
    let thread = std::thread::Builder::new().stack_size(STACK).spawn(run);
    thread.unwrap().join().unwrap();
}

async fn compare(seeds: Range<u64>) {
    let mut found = 0;
    for seed in seeds {
        let mut random = Random::new(seed + 1);
        let world = graph(&mut random).await;
        for _ in 0..QUESTIONS {
            let question = question(&mut random);
            let partitions = [1, 7][found % 2];
            let set = format!("SET datafusion.execution.target_partitions = {partitions}");
            world.sql(&set).await;
            let expected = sorted(&world, &question.sql).await;
            found += usize::from(!expected.is_empty());
            for (mode, partitions) in [("index", 1), ("adjacency", 2), ("auto", 7)] {
                for set in [
                    format!("SET stratagraph.traversal = '{mode}'"),
                    format!("SET datafusion.execution.target_partitions = {partitions}"),
                ] {
                    world.sql(&set).await;
                }
                let sql = format!("SELECT * FROM graph_query('g', '{}')", question.gq);
                let rows = sorted(&world, &sql).await;
                if rows != expected {
                    let mut tables = String::new();
                    for table in ["A", "K", "L"] {
                        let all = sorted(&world, &format!("SELECT * FROM sg.g.\"{table}\"")).await;
                        write!(tables, "\n{table}: {all:?}").unwrap();
                    }
                    let plan = world.sql(&format!("EXPLAIN {sql}")).await;
                    let plan: Vec<String> = plan.into_iter().flatten().collect();
                    let (gq, sql) = (question.gq, question.sql);
                    let shown = plan.join("\n");
                    panic!("{mode}: {rows:?}, in SQL {expected:?}\n{gq}\n{sql}{tables}\n{shown}");
                }
            }
        }
    }
    assert!(found > 75, "only {found} questions have an answer");
}
