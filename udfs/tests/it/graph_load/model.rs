//! Random loads against a model of a few lines.

use std::collections::BTreeMap;

use stratagraph_udfs::LoadMode;

use super::support::*;

const MODELLED: &str = r#"
node N {
    name: String @key
    tag: I32? @unique
}
edge E: N -> N @card(0..3) {
    w: I32?
}
"#;

/// A small generator with a fixed sequence (xorshift64*).
pub struct Random(pub u64);

impl Random {
    pub fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 33) % end
    }
}

type Nodes = BTreeMap<String, Option<i32>>;
type Edges = BTreeMap<String, (String, String, i32)>;

#[derive(Debug, Clone)]
enum Record {
    Node(String, Option<i32>),
    Edge(String, (String, String, i32)),
}

impl Record {
    fn json(&self) -> String {
        match self {
            Self::Node(name, tag) => {
                let tag = tag.map_or("null".to_owned(), |tag| tag.to_string());
                format!("{{\"type\":\"N\",\"data\":{{\"name\":\"{name}\",\"tag\":{tag}}}}}")
            }
            Self::Edge(id, (from, to, w)) => format!(
                "{{\"edge\":\"E\",\"from\":\"{from}\",\"to\":\"{to}\",\"data\":{{\"id\":\"{id}\",\"w\":{w}}}}}"
            ),
        }
    }
}

fn records(random: &mut Random) -> Vec<Record> {
    let node = |random: &mut Random| format!("n{}", random.below(9));
    (0..random.below(9))
        .map(|_| match random.below(2) {
            0 => {
                let tag = (random.below(3) == 0).then(|| random.below(12) as i32);
                Record::Node(node(random), tag)
            }
            _ => {
                let ends = (node(random), node(random), random.below(5) as i32);
                Record::Edge(format!("e{}", random.below(12)), ends)
            }
        })
        .collect()
}

/// The state after a load, or `None` where it is refused.
fn model(state: &(Nodes, Edges), records: &[Record], mode: LoadMode) -> Option<(Nodes, Edges)> {
    let (mut nodes, mut edges) = state.clone();
    let has_nodes = records.iter().any(|r| matches!(r, Record::Node(..)));
    let has_edges = records.iter().any(|r| matches!(r, Record::Edge(..)));
    if mode == Overwrite && has_nodes {
        nodes.clear();
    }
    if mode == Overwrite && has_edges {
        edges.clear();
    }
    let mut touched = Vec::new();
    for record in records {
        match record {
            Record::Node(name, tag) => {
                let old = nodes.insert(name.clone(), *tag);
                if old.is_some() && mode != Merge {
                    return None;
                }
            }
            Record::Edge(id, edge) => {
                touched.push(edge.0.clone());
                let old = edges.insert(id.clone(), edge.clone());
                if old.is_some() && mode != Merge {
                    return None;
                }
            }
        }
    }
    let tags: Vec<i32> = nodes.values().flatten().copied().collect();
    let mut unique = tags.clone();
    unique.sort_unstable();
    unique.dedup();
    let ends = edges
        .values()
        .all(|(from, to, _)| nodes.contains_key(from) && nodes.contains_key(to));
    let few = touched
        .iter()
        .all(|source| edges.values().filter(|e| e.0 == *source).count() <= 3);
    (unique.len() == tags.len() && ends && few).then_some((nodes, edges))
}

async fn stored(world: &crate::world::World) -> (Nodes, Edges) {
    let nodes = world.sql("SELECT id, tag FROM sg.g.\"N\"").await;
    let edges = world.sql("SELECT id, src, dst, w FROM sg.g.\"E\"").await;
    let nodes = nodes
        .into_iter()
        .map(|row| (row[0].clone(), row[1].parse().ok()));
    let edge = |row: Vec<String>| (row[1].clone(), row[2].clone(), row[3].parse().unwrap());
    let edges = edges.into_iter().map(|row| (row[0].clone(), edge(row)));
    (nodes.collect(), edges.collect())
}

#[tokio::test]
async fn random_loads_are_what_the_model_says() {
    let (mut accepted, mut refused) = (0, 0);
    for seed in 1..=12 {
        let mut random = Random(seed * 0x9E37_79B9);
        let world = world(MODELLED).await;
        let mut state = (Nodes::new(), Edges::new());
        for step in 0..14 {
            let mode = [Overwrite, Append, Merge, Merge][random.below(4) as usize];
            let records = records(&mut random);
            let text: Vec<String> = records.iter().map(Record::json).collect();
            let outcome = load(&world.sg, &lines(&text), mode).await;
            let what = format!("seed {seed}, step {step}, {mode:?}: {records:?} on {state:?}");
            match (model(&state, &records, mode), outcome) {
                (Some(next), Ok(_)) => {
                    state = next;
                    accepted += 1;
                }
                (None, Err(error)) => {
                    let code = error.code();
                    assert!(
                        matches!(code, "RecordsInvalid" | "KeyConflict"),
                        "{what}: {error}"
                    );
                    refused += 1;
                }
                (expected, found) => panic!("{what}: {expected:?}, {found:?}"),
            }
            assert_eq!(stored(&world).await, state, "{what}");
        }
        assert_whole(&world.sg).await;
    }
    assert!(
        accepted > 40 && refused > 40,
        "{accepted} accepted, {refused} refused"
    );
}
