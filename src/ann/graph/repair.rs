//! Edges to nodes that no search would reach.
//!
//! When a list is full, `hnsw_rs` drops its farthest entry, whose last incoming edge that may be.

use super::super::metric::Query;
use super::super::scratch::Scratch;
use super::super::vectors::Vectors;
use super::{Adjacency, Graph, Walk};

/// Candidates among which the node that gets an edge is chosen.
const CANDIDATES: usize = 64;

/// Gives every present row a path from the entry.
pub(super) fn connect(graph: &mut Graph, vectors: &Vectors) {
    let mut reached = vec![false; graph.shape.rows as usize];
    flood(&graph.base, graph.entry, &mut reached, &[]);
    let missing = |row: &u32| !reached[*row as usize];
    let lost: Vec<u32> = vectors.present().iter().filter(missing).collect();
    if lost.is_empty() {
        return;
    }
    let capacity = 2 * graph.params.m as usize;
    let mut added: Vec<Vec<u32>> = vec![Vec::new(); graph.shape.rows as usize];
    let mut scratch = Scratch::default();
    // Rows that got an edge before, nearest last: equal vectors chain instead of crowding one list.
    let mut last = graph.entry;
    for row in lost {
        if reached[row as usize] {
            continue;
        }
        let Some(query) = Query::new(vectors.metric(), vectors.row(row).to_vec()) else {
            continue;
        };
        Walk::new(graph, vectors, &query, CANDIDATES).beam(&mut scratch);
        let near = scratch.nearest_rows();
        let full = |from: u32| {
            let list = graph.base.list(from).len() + added[from as usize].len();
            list >= capacity
        };
        let usable = |from: &u32| reached[*from as usize] && *from != row;
        let from = near
            .iter()
            .copied()
            .filter(usable)
            .find(|from| !full(*from));
        let from = from
            .or_else(|| near.iter().copied().find(usable))
            .unwrap_or(last);
        let from = if full(from) && !full(last) {
            last
        } else {
            from
        };
        added[from as usize].push(row);
        last = row;
        flood(&graph.base, row, &mut reached, &added);
    }
    let lists: Vec<Vec<u32>> = (0..graph.shape.rows)
        .map(|row| [graph.base.list(row), &added[row as usize]].concat())
        .collect();
    graph.base = Adjacency::of(&lists);
}

/// Marks what is reachable from `start`.
fn flood(base: &Adjacency, start: u32, reached: &mut [bool], added: &[Vec<u32>]) {
    let mut stack = vec![start];
    while let Some(node) = stack.pop() {
        if std::mem::replace(&mut reached[node as usize], true) {
            continue;
        }
        stack.extend_from_slice(base.list(node));
        if let Some(more) = added.get(node as usize) {
            stack.extend_from_slice(more);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ann::index::Shape;
    use crate::ann::metric::Metric;

    #[test]
    fn every_row_is_reached() {
        let mut vectors = Vectors::with_capacity(Metric::L2, 2, 300).unwrap();
        for row in 0..300 {
            // Half of them are one and the same.
            let x = if row % 2 == 0 { 0.0 } else { row as f32 };
            vectors.push((row % 7 != 3).then_some(&[x, 1.0][..]));
        }
        let mut graph = Graph {
            shape: Shape::of(&vectors),
            params: Default::default(),
            entry: 0,
            base: Adjacency::of(&vec![vec![]; 300]),
            layers: Vec::new(),
            ef: 10,
            curve: Vec::new(),
        };
        connect(&mut graph, &vectors);
        let mut reached = vec![false; 300];
        flood(&graph.base, 0, &mut reached, &[]);
        for row in 0..300u32 {
            assert_eq!(reached[row as usize], vectors.present().contains(row));
            assert!(graph.base.list(row).len() <= 32);
        }
    }
}
