//! Random statements against a model of the graph.

use std::collections::BTreeMap;

use super::support::*;
use crate::graph_load::model::Random;

const NODES: u64 = 8;

/// Ages by name; ends and `since` of edges. Edges have no order.
#[derive(Debug, Default, Clone, PartialEq)]
struct Model {
    people: BTreeMap<String, Option<i64>>,
    knows: Vec<(String, String, Option<i64>)>,
}

impl Model {
    fn shown(&self) -> (Vec<String>, Vec<String>) {
        let number = |n: &Option<i64>| n.map_or("NULL".to_owned(), |n| n.to_string());
        let people = self.people.iter();
        let people = people.map(|(name, age)| format!("{name} {}", number(age)));
        let knows = self.knows.iter();
        let mut knows: Vec<String> = knows
            .map(|(from, to, since)| format!("{from} {to} {}", number(since)))
            .collect();
        knows.sort();
        (people.collect(), knows)
    }

    /// Does a random statement: its text, and the nodes and edges that it affects, or `None` if it
    /// is refused.
    fn step(&mut self, rng: &mut Random) -> (String, Option<(u64, u64)>) {
        let name = |rng: &mut Random| format!("n{}", rng.below(NODES));
        let (a, b, n) = (name(rng), name(rng), i64::try_from(rng.below(6)).unwrap());
        match rng.below(9) {
            0 | 1 => {
                self.people.insert(a.clone(), Some(n));
                (
                    format!("insert Person {{ name: \"{a}\", age: {n} }}"),
                    Some((1, 0)),
                )
            }
            2 => {
                self.people.entry(a.clone()).or_insert(None);
                (
                    format!("upsert Person partial {{ name: \"{a}\" }}"),
                    Some((1, 0)),
                )
            }
            3 | 4 => {
                let text = format!("insert Knows {{ from: \"{a}\", to: \"{b}\", since: {n} }}");
                if !self.people.contains_key(&a) || !self.people.contains_key(&b) {
                    return (text, None);
                }
                self.knows.push((a, b, Some(n)));
                (text, Some((0, 1)))
            }
            5 => {
                let hit = |age: &Option<i64>| age.is_none_or(|age| age > n);
                let mut count = 0;
                for age in self.people.values_mut().filter(|age| hit(age)) {
                    *age = Some(n);
                    count += 1;
                }
                let text =
                    format!("update Person set {{ age: {n} }} where age > {n} or age is null");
                (text, Some((count, 0)))
            }
            6 => {
                let exists = self.people.contains_key(&b);
                let hits: Vec<_> = self.knows.iter_mut().filter(|k| k.0 == a).collect();
                let count = hits.len() as u64;
                let text =
                    format!("update Knows set {{ to: \"{b}\", since: null }} where from = \"{a}\"");
                if count > 0 && !exists {
                    return (text, None);
                }
                for edge in hits {
                    edge.1.clone_from(&b);
                    edge.2 = None;
                }
                (text, Some((0, count)))
            }
            7 => {
                let before = self.knows.len();
                self.knows.retain(|k| !(k.2 == Some(n) && k.0 != a));
                let text = format!("delete Knows where since = {n} and not (from = \"{a}\")");
                (text, Some((0, (before - self.knows.len()) as u64)))
            }
            _ => {
                let gone = self.people.remove(&a).is_some();
                let before = self.knows.len();
                self.knows.retain(|k| k.0 != a && k.1 != a);
                let edges = (before - self.knows.len()) as u64;
                (
                    format!("delete Person where name = \"{a}\""),
                    Some((gone.into(), edges)),
                )
            }
        }
    }
}

#[tokio::test]
async fn random_statements_do_what_a_model_does() {
    let world = world(SCHEMA).await;
    let mut rng = Random(7);
    let mut model = Model::default();
    for turn in 0..200 {
        let mut next = model.clone();
        let (body, affected) = next.step(&mut rng);
        match (world.sg.graph_mutate(call(&body)).await, affected) {
            (Ok(report), Some(expected)) => {
                let found = (report.affected_nodes, report.affected_edges);
                assert_eq!(found, expected, "{turn}: {body}");
                assert_eq!(
                    report.commit_id.is_some(),
                    expected != (0, 0),
                    "{turn}: {body}"
                );
                model = next;
            }
            (Err(error), None) => assert_eq!(error.code(), "RecordsInvalid", "{turn}: {body}"),
            (found, expected) => panic!("{turn}: {body}\n{found:?} instead of {expected:?}"),
        }
        if turn % 10 == 9 {
            let people = "SELECT name, age FROM sg.g.\"Person\" ORDER BY id";
            let knows = "SELECT src, dst, since FROM sg.g.\"Knows\"";
            let shown = |rows: Vec<Vec<String>>| rows.into_iter().map(|row| row.join(" "));
            let people: Vec<String> = shown(world.sql(people).await).collect();
            let mut knows: Vec<String> = shown(world.sql(knows).await).collect();
            knows.sort();
            assert_eq!((people, knows), model.shown(), "{turn}: {body}");
        }
    }
    assert_whole(&world.sg).await;
}
