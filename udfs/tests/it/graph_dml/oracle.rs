//! Every shape of a condition against the same condition in a SELECT over copies in memory, and random
//! statements against a model.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use datafusion::datasource::MemTable;
use datafusion::prelude::{SessionConfig, SessionContext};
use object_store::memory::InMemory;

use super::support::*;
use crate::graph_load::model::Random;
use crate::world::{World, counting, table};

const SCHEMA: &str = r#"
node P { name: String @key  a: I32?  b: String? }
node Q { title: String  n: I64? }
edge E: P -> P { w: I32? }
edge F: P -> Q { note: String? }
"#;

/// Types, their columns, and the columns of edges that name a node.
const TYPES: [(&str, &[&str]); 4] = [
    ("P", &["id", "name", "a", "b"]),
    ("Q", &["id", "title", "n"]),
    ("E", &["id", "src", "dst", "w"]),
    ("F", &["id", "src", "dst", "note"]),
];

/// Rows of a type by id, as text.
type Rows = BTreeMap<String, Vec<String>>;

/// The graph in a session, and copies of its tables in another one.
struct Pair {
    world: World,
    copy: SessionContext,
    model: BTreeMap<&'static str, Rows>,
}

fn columns(of: &str) -> &'static [&'static str] {
    let found = TYPES.iter().find(|(name, _)| *name == of);
    found.unwrap().1
}

fn text(of: &str, id: &str, rest: &str) -> String {
    let kind = if of == "P" { "name" } else { "id" };
    format!("{{\"type\":\"{of}\",\"data\":{{\"{kind}\":\"{id}\"{rest}}}}}")
}

fn start(random: &mut Random) -> String {
    let mut all = Vec::new();
    let null = |random: &mut Random, value: String| match random.below(4) == 0 {
        true => "null".to_owned(),
        false => value,
    };
    for at in 0..12 {
        let a = random.below(6).to_string();
        let a = null(random, a);
        let b = format!("\"{}{}\"", one_of(random, &["x", "y", ""]), at % 4);
        let b = null(random, b);
        all.push(text(
            "P",
            &format!("p{at}"),
            &format!(", \"a\":{a},\"b\":{b}"),
        ));
    }
    for at in 0..5 {
        let n = random.below(9).to_string();
        let n = null(random, n);
        let rest = format!(", \"title\":\"t{}\",\"n\":{n}", at % 2);
        all.push(text("Q", &format!("q{at}"), &rest));
    }
    for at in 0..18 {
        let (from, to) = (random.below(12), random.below(12));
        let w = random.below(6).to_string();
        let w = null(random, w);
        all.push(format!(
            "{{\"edge\":\"E\",\"from\":\"p{from}\",\"to\":\"p{to}\",\"data\":{{\"id\":\"e{at}\",\"w\":{w}}}}}"
        ));
    }
    for at in 0..6 {
        let (from, to) = (random.below(12), random.below(5));
        all.push(format!(
            "{{\"edge\":\"F\",\"from\":\"p{from}\",\"to\":\"q{to}\",\"data\":{{\"id\":\"f{at}\",\"note\":\"n{at}\"}}}}"
        ));
    }
    all.join("\n")
}

impl Pair {
    async fn new(seed: u64) -> Self {
        let mut random = Random((seed + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15));
        let partitions = [1, 2, 7][seed as usize % 3];
        let mut config = SessionConfig::new().with_target_partitions(partitions);
        let options = config.options_mut();
        options.execution.parquet.pushdown_filters = seed % 2 == 1;
        options.optimizer.prefer_hash_join = seed % 4 != 3;
        let ctx = SessionContext::new_with_config(config);
        let model = counting();
        let (store, as_model) = (Arc::new(InMemory::new()), Arc::clone(&model) as _);
        let world = World::with(ctx, store, seed, as_model, model).await;
        world.sg.graph_create("g", SCHEMA).await.unwrap();
        load(&world.sg, &start(&mut random), Append).await.unwrap();
        let mut pair = Self {
            world,
            copy: SessionContext::new(),
            model: BTreeMap::new(),
        };
        pair.copy_tables().await;
        for (of, _) in TYPES {
            let rows = pair
                .select(&pair.world.ctx, &format!("SELECT * FROM sg.g.\"{of}\""))
                .await;
            pair.model.insert(of, by_id(rows.unwrap()));
        }
        pair
    }

    /// Makes the copies what the graph is now.
    async fn copy_tables(&self) {
        for (of, _) in TYPES {
            let sql = format!("SELECT * FROM sg.g.\"{of}\"");
            let frame = self.world.ctx.sql(&sql).await.unwrap();
            let schema = Arc::new(frame.schema().as_arrow().clone());
            let batches = frame.collect().await.unwrap();
            let copy = MemTable::try_new(schema, vec![batches]).unwrap();
            let name = format!("\"{of}\"");
            self.copy.deregister_table(name.as_str()).unwrap();
            self.copy
                .register_table(name.as_str(), Arc::new(copy))
                .unwrap();
        }
    }

    /// `None` for a query that DataFusion cannot plan.
    async fn select(&self, ctx: &SessionContext, sql: &str) -> Option<Vec<Vec<String>>> {
        let batches = ctx.sql(sql).await.ok()?.collect().await.ok()?;
        Some(table(&batches))
    }

    /// The graph is what the model says, and sound.
    async fn check(&self, what: &str) {
        for (of, _) in TYPES {
            let sql = format!("SELECT * FROM sg.g.\"{of}\"");
            let found = self.select(&self.world.ctx, &sql).await.unwrap();
            assert_eq!(by_id(found), self.model[of], "{of} after {what}");
        }
        assert_whole(&self.world.sg).await;
        self.copy_tables().await;
    }

    /// Runs a statement that is written with `{P}` for the table of a type.
    async fn run(&self, sql: &str) -> u64 {
        let sql = graph(sql);
        self.world.row(&sql).await.concat().parse().unwrap()
    }

    /// `DELETE`: what a SELECT with the condition finds goes, with its edges. `false` if there is no
    /// such SELECT.
    async fn delete(&mut self, of: &'static str, condition: &str) -> bool {
        let sql = format!("SELECT id FROM \"{of}\" WHERE {}", copy(condition));
        let Some(found) = self.select(&self.copy, &sql).await else {
            return false;
        };
        let gone: BTreeSet<String> = found.into_iter().flatten().collect();
        let statement = format!("DELETE FROM {{{of}}} WHERE {condition}");
        assert_eq!(self.run(&statement).await, gone.len() as u64, "{statement}");
        self.model
            .get_mut(of)
            .unwrap()
            .retain(|id, _| !gone.contains(id));
        let ends: &[(&str, usize)] = match of {
            "P" => &[("E", 1), ("E", 2), ("F", 1)],
            "Q" => &[("F", 2)],
            _ => &[],
        };
        for (edges, end) in ends {
            let edges = self.model.get_mut(edges).unwrap();
            edges.retain(|_, row| !gone.contains(&row[*end]));
        }
        self.check(&statement).await;
        true
    }

    /// `UPDATE`: the rows of a SELECT of the new values.
    async fn update(&mut self, of: &'static str, set: &[(&str, &str)], condition: &str) -> bool {
        let values =
            columns(of)
                .iter()
                .map(|column| match set.iter().find(|(name, _)| name == column) {
                    Some((_, value)) => copy(value),
                    None => format!("\"{of}\".{column}"),
                });
        let values: Vec<String> = values.collect();
        let condition_sql = copy(condition);
        let sql = format!(
            "SELECT {} FROM \"{of}\" WHERE {condition_sql}",
            values.join(", ")
        );
        let Some(found) = self.select(&self.copy, &sql).await else {
            return false;
        };
        let set: Vec<String> = set
            .iter()
            .map(|(name, value)| format!("{name} = {value}"))
            .collect();
        let statement = format!("UPDATE {{{of}}} SET {} WHERE {condition}", set.join(", "));
        assert_eq!(
            self.run(&statement).await,
            found.len() as u64,
            "{statement}"
        );
        self.model.get_mut(of).unwrap().extend(by_id(found));
        self.check(&statement).await;
        true
    }

    /// `INSERT` or `REPLACE` of people.
    async fn insert(&mut self, words: &str, rows: &[(String, Option<i32>)]) {
        let shown = |a: &Option<i32>| a.map_or("NULL".to_owned(), |a| a.to_string());
        let values = rows.iter();
        let values = values.map(|(name, a)| format!("('{name}', CAST({} AS INT))", shown(a)));
        let values: Vec<String> = values.collect();
        let statement = format!("{words} {{P}} (name, a) VALUES {}", values.join(", "));
        assert_eq!(self.run(&statement).await, rows.len() as u64, "{statement}");
        for (name, a) in rows {
            let row = [name, name, &shown(a), "NULL"].map(str::to_owned);
            self.model
                .get_mut("P")
                .unwrap()
                .insert(name.clone(), row.to_vec());
        }
        self.check(&statement).await;
    }

    /// `MERGE INTO` people.
    async fn merge(&mut self, rows: &[(String, Option<i32>)]) {
        let shown = |a: &Option<i32>| a.map_or("NULL".to_owned(), |a| a.to_string());
        let values = rows.iter();
        let values = values.map(|(name, a)| format!("('{name}', CAST({} AS INT))", shown(a)));
        let values: Vec<String> = values.collect();
        let statement = format!(
            "MERGE INTO {{P}} t USING (VALUES {}) s(k, v) ON t.name = s.k \
             WHEN MATCHED AND s.v > t.a THEN UPDATE SET a = s.v \
             WHEN MATCHED AND s.v IS NULL THEN UPDATE SET b = 'none' \
             WHEN NOT MATCHED AND s.v <> 0 THEN INSERT (name, a, b) VALUES (s.k, s.v, 'new')",
            values.join(", ")
        );
        let mut count = 0;
        let people = self.model.get_mut("P").unwrap();
        for (name, v) in rows {
            match (people.get_mut(name), v) {
                (Some(row), Some(v)) if row[2].parse::<i32>().is_ok_and(|a| *v > a) => {
                    row[2] = v.to_string();
                }
                (Some(row), None) => row[3] = "none".to_owned(),
                (None, Some(v)) if *v != 0 => {
                    let row = [name, name, &v.to_string(), "new"].map(str::to_owned);
                    people.insert(name.clone(), row.to_vec());
                }
                _ => continue,
            }
            count += 1;
        }
        assert_eq!(self.run(&statement).await, count, "{statement}");
        self.check(&statement).await;
    }
}

fn by_id(rows: Vec<Vec<String>>) -> Rows {
    rows.into_iter().map(|row| (row[0].clone(), row)).collect()
}

/// The text with the tables of the graph.
fn graph(sql: &str) -> String {
    TYPES.iter().fold(sql.to_owned(), |sql, (of, _)| {
        sql.replace(&format!("{{{of}}}"), &format!("sg.g.\"{of}\""))
    })
}

/// The text with the copies.
fn copy(sql: &str) -> String {
    TYPES.iter().fold(sql.to_owned(), |sql, (of, _)| {
        sql.replace(&format!("{{{of}}}"), &format!("\"{of}\""))
    })
}

/// Conditions on people.
const CONDITIONS: [&str; 27] = [
    "true",
    "false",
    "NULL",
    "1 = 0 AND a > 1",
    "a > 2",
    "a = NULL",
    "a IS NULL",
    "NOT (a > 2)",
    "a NOT IN (1, NULL)",
    "b LIKE 'x%' OR b IS NULL",
    "coalesce(a, 9) > 3",
    "id IN (SELECT dst FROM {E} WHERE w > 2)",
    "id NOT IN (SELECT dst FROM {E})",
    "a NOT IN (SELECT w FROM {E})",
    "a IN (SELECT w FROM {E}) AND b IS NOT NULL",
    "a > 1 OR id IN (SELECT src FROM {F})",
    "EXISTS (SELECT 1 FROM {E} e WHERE e.src = \"P\".id AND e.w < 3)",
    "NOT EXISTS (SELECT 1 FROM {E} e WHERE e.src = \"P\".id)",
    "EXISTS (SELECT 1 FROM {Q} WHERE n > 100)",
    "EXISTS (SELECT 1 FROM {E} e WHERE e.src = \"P\".id) OR a IS NULL",
    "a > (SELECT avg(x.a) FROM {P} x)",
    "a = (SELECT max(x.a) FROM {P} x WHERE x.b = \"P\".b)",
    "(SELECT count(*) FROM {E} e WHERE e.dst = \"P\".id) > 1",
    "id IN (WITH c AS (SELECT dst FROM {E} WHERE w IS NULL) SELECT dst FROM c)",
    "id IN (SELECT id FROM {P} ORDER BY a DESC NULLS LAST, id LIMIT 3)",
    "id IN (SELECT x.id FROM {P} x JOIN {P} y ON x.a = y.a WHERE x.id <> y.id)",
    "id IN (SELECT src FROM {E} UNION ALL SELECT src FROM {F}) AND NOT a = 1",
];

#[tokio::test]
async fn every_shape_of_a_condition_deletes_what_it_selects() {
    for (at, condition) in CONDITIONS.into_iter().enumerate() {
        let mut pair = Pair::new(at as u64).await;
        assert!(pair.delete("P", condition).await, "{condition}");
    }
}

#[tokio::test]
async fn every_shape_of_a_condition_updates_what_it_selects() {
    let sets: [&[(&str, &str)]; 4] = [
        &[("a", "a + 10")],
        &[("a", "CAST(NULL AS INT)"), ("b", "'set'")],
        // Both read the row as it was.
        &[("a", "CAST(length(b) AS INT)"), ("b", "CAST(a AS VARCHAR)")],
        &[("a", "CAST((SELECT max(w) FROM {E}) AS INT)")],
    ];
    for (at, condition) in CONDITIONS.into_iter().enumerate() {
        let mut pair = Pair::new(100 + at as u64).await;
        let set = sets[at % sets.len()];
        assert!(pair.update("P", set, condition).await, "{condition}");
    }
}

/// A random condition on a type, of up to three parts.
fn condition(random: &mut Random, of: &str) -> String {
    let atom = |random: &mut Random| {
        let n = random.below(6);
        let of_edges = [
            format!("w < {n}"),
            "w IS NULL".to_owned(),
            "src = dst".to_owned(),
            format!("src IN (SELECT id FROM {{P}} WHERE a = {n})"),
            "NOT EXISTS (SELECT 1 FROM {E} e WHERE e.src = \"E\".dst)".to_owned(),
            "w = (SELECT max(e.w) FROM {E} e WHERE e.dst = \"E\".dst)".to_owned(),
        ];
        let of_places = [
            format!("n > {n}"),
            "title = 't1'".to_owned(),
            "id IN (SELECT dst FROM {F})".to_owned(),
        ];
        match of {
            "E" => one_of(random, &of_edges).clone(),
            "Q" => one_of(random, &of_places).clone(),
            _ => match random.below(3) == 0 {
                true => format!("a = {n}"),
                false => (*one_of(random, &CONDITIONS)).to_owned(),
            },
        }
    };
    let mut whole = atom(random);
    for _ in 0..random.below(3) {
        let other = atom(random);
        whole = match random.below(4) {
            0 => format!("({whole}) OR ({other})"),
            1 => format!("({whole}) AND NOT ({other})"),
            _ => format!("({whole}) AND ({other})"),
        };
    }
    whole
}

/// Some of the names, each once, with values.
fn people(random: &mut Random, names: &[String]) -> Vec<(String, Option<i32>)> {
    let mut names = names.to_vec();
    let mut chosen = Vec::new();
    for _ in 0..1 + random.below(3) {
        if names.is_empty() {
            break;
        }
        let name = names.swap_remove(random.below(names.len() as u64) as usize);
        let value = random.below(6) as i32;
        chosen.push((name, (random.below(5) > 0).then_some(value)));
    }
    chosen
}

fn one_of<'a, T>(random: &mut Random, all: &'a [T]) -> &'a T {
    &all[random.below(all.len() as u64) as usize]
}

/// One random statement; `false` if DataFusion has no SELECT of its condition.
async fn step(pair: &mut Pair, random: &mut Random, fresh: &mut u32) -> bool {
    let mut new = || {
        *fresh += 1;
        format!("n{fresh}")
    };
    match random.below(10) {
        0..3 => {
            // Few rows at once, so that some stay.
            let of = *one_of(random, &["P", "E", "E", "Q"]);
            let condition = condition(random, of);
            let some = format!(
                "id IN (SELECT id FROM {{{of}}} WHERE id LIKE '%{}')",
                random.below(10)
            );
            pair.delete(of, &format!("({condition}) AND {some}")).await
        }
        3..7 => {
            let of = *one_of(random, &["P", "P", "E", "Q"]);
            let condition = condition(random, of);
            let set: &[(&str, &str)] = match of {
                "P" if random.below(2) == 0 => &[("a", "a + 1")],
                "P" => &[("b", "coalesce(b, '') || 'x'"), ("a", "CAST(NULL AS INT)")],
                "E" => &[("w", "w + 1"), ("dst", "src")],
                _ => &[("n", "n * 2")],
            };
            pair.update(of, set, &condition).await
        }
        7 => {
            let names = [new(), new()];
            let rows = people(random, &names);
            pair.insert("INSERT INTO", &rows).await;
            true
        }
        8 => {
            let mut names: Vec<String> = pair.model["P"].keys().cloned().collect();
            names.push(new());
            let rows = people(random, &names);
            pair.insert("REPLACE INTO", &rows).await;
            true
        }
        _ => {
            let mut names: Vec<String> = pair.model["P"].keys().cloned().collect();
            names.extend([new(), new()]);
            let rows = people(random, &names);
            pair.merge(&rows).await;
            true
        }
    }
}

/// `SIM_SEED=n` replays one seed.
#[tokio::test]
async fn random_statements_do_what_a_model_says() {
    let seeds = match std::env::var("SIM_SEED") {
        Ok(seed) => vec![seed.parse().unwrap()],
        Err(_) if std::env::var_os("SOAK").is_some() => (0..100).collect(),
        Err(_) => (0..12).collect::<Vec<u64>>(),
    };
    let (mut done, all) = (0, seeds.len() * 25);
    for seed in seeds {
        println!("SIM_SEED={seed}");
        let mut random = Random((seed + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15));
        let mut pair = Pair::new(seed).await;
        let mut fresh = 0;
        let mut of_seed = 0;
        while of_seed < 25 {
            of_seed += usize::from(step(&mut pair, &mut random, &mut fresh).await);
        }
        done += of_seed;
    }
    assert_eq!(done, all);
}
