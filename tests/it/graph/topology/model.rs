//! Random edge tables and the traversal that is plainly right.

use std::collections::{BTreeMap, BTreeSet};

use arrow::array::UInt64Array;
use stratagraph::Result;
use stratagraph::graph::query::Direction;
use stratagraph::graph::topology::{EdgeTable, ReachOptions, Walk};
use stratagraph::search::build::Index;
use stratagraph::table::manifest::{Endpoints, Layout};

use crate::support::tables::{NODE_TYPE, Row, TableBuilder};

/// (row of the source, destination, distance; 0 if it was not asked for).
pub type Found = (u32, u64, u32);

pub struct Graph {
    pub builder: TableBuilder,
}

impl Graph {
    pub fn new() -> Self {
        Self {
            builder: TableBuilder::new(Layout::Edge),
        }
    }

    /// Adds a fragment, some of whose rows are dead and whose ids from (0) on are shifted by (1).
    pub async fn add(&mut self, edges: &[(u64, u64)], dead: u8, shift: Option<(u64, u64)>) {
        let first = self.builder.model.len();
        let row = |(i, (src, dst)): (usize, &(u64, u64))| {
            let mut row = Row::new(&format!("e{:07}", first + i), (first + i) as u64);
            (row.src_rid, row.dst_rid) = (*src, *dst);
            row
        };
        let rows: Vec<Row> = edges.iter().enumerate().map(row).collect();
        let entry = self.builder.add(first as u64, true, &rows).await;
        if rows.is_empty() {
            return;
        }
        if let Some((base, by)) = shift {
            self.builder.shift(entry, NODE_TYPE, base, by);
        }
        let chosen = |p: &u32| (u64::from(*p) * 37 + 11) % 100 < u64::from(dead);
        let dead = (0..rows.len() as u32).filter(chosen).collect();
        self.builder.kill(entry, &dead);
    }

    /// Kills one more position of an entry.
    pub fn kill(&mut self, entry: u64, position: u32) {
        let mine = self.builder.model.iter().filter(|p| p.entry == entry);
        let dead = mine.filter(|p| p.dead).map(|p| p.position);
        let dead: BTreeSet<u32> = dead.chain([position]).collect();
        self.builder.kill(entry, &dead);
    }

    /// Stores the lists of all fragments beside them.
    pub async fn store_lists(&mut self) {
        self.builder.index(&Index::Topology).await;
    }

    pub async fn edges(&mut self) -> EdgeTable {
        self.edges_between(NODE_TYPE, NODE_TYPE).await
    }

    pub async fn edges_between(&mut self, src: u64, dst: u64) -> EdgeTable {
        let mut table = self.builder.finish().await.as_ref().clone();
        table.endpoints = Some(Endpoints { src, dst });
        let store = std::sync::Arc::clone(&self.builder.store);
        EdgeTable::new(store, &self.builder.env, table.into()).unwrap()
    }

    pub fn live(&self) -> Vec<(u64, u64)> {
        let live = self.builder.model.iter().filter(|p| !p.dead);
        live.map(|p| (p.row.src_rid, p.row.dst_rid)).collect()
    }

    /// Both ends of all live edges.
    pub fn ends(&self) -> Vec<u64> {
        self.live()
            .into_iter()
            .flat_map(|(src, dst)| [src, dst])
            .collect()
    }
}

/// What a traversal must give.
pub fn expected(
    edges: &[(u64, u64)],
    sources: &[Option<u64>],
    direction: Direction,
    (min, max): (u32, u32),
    hops: bool,
) -> Vec<Found> {
    let mut near: BTreeMap<u64, BTreeSet<u64>> = BTreeMap::new();
    for (src, dst) in edges {
        if direction != Direction::In {
            near.entry(*src).or_default().insert(*dst);
        }
        if direction != Direction::Out {
            near.entry(*dst).or_default().insert(*src);
        }
    }
    let none = BTreeSet::new();
    let mut out = Vec::new();
    for (row, source) in sources.iter().enumerate() {
        let Some(source) = source else { continue };
        let mut distances: BTreeMap<u64, u32> = BTreeMap::new();
        let mut frontier = BTreeSet::from([*source]);
        for distance in 1..=max {
            let mut next = BTreeSet::new();
            for node in &frontier {
                for end in near.get(node).unwrap_or(&none) {
                    // The source is at distance 0; a loop of its own makes it a neighbour of itself.
                    let back = end == source && distance != 1;
                    if !back && !distances.contains_key(end) {
                        distances.insert(*end, distance);
                        next.insert(*end);
                    }
                }
            }
            next.remove(source);
            frontier = next;
        }
        let wanted = distances.into_iter().filter(|(_, d)| *d >= min);
        out.extend(wanted.map(|(dst, d)| (row as u32, dst, if hops { d } else { 0 })));
    }
    out
}

/// The whole answer of a batch, with the shape of its parts checked.
pub async fn collect(
    walk: &mut Walk,
    sources: &[Option<u64>],
    hops: bool,
    batch_rows: usize,
) -> Vec<Found> {
    try_collect(walk, sources, hops, batch_rows).await.unwrap()
}

async fn try_collect(
    walk: &mut Walk,
    sources: &[Option<u64>],
    hops: bool,
    batch_rows: usize,
) -> Result<Vec<Found>> {
    let mut out = Vec::new();
    walk.begin(&UInt64Array::from(sources.to_vec())).await?;
    while let Some(part) = walk.next().await? {
        assert!((1..=batch_rows).contains(&part.rows.len()));
        assert_eq!(part.dst.len(), part.rows.len());
        assert_eq!(part.hops.len(), if hops { part.rows.len() } else { 0 });
        for (place, (row, dst)) in part.rows.iter().zip(&part.dst).enumerate() {
            out.push((*row, *dst, part.hops.get(place).copied().unwrap_or(0)));
        }
    }
    assert!(walk.next().await?.is_none());
    Ok(out)
}

/// As [`answer`], or its error.
pub async fn walk(
    edges: &EdgeTable,
    options: ReachOptions,
    sources: &[Option<u64>],
) -> Result<Vec<Found>> {
    let (hops, batch_rows) = (options.hops, options.batch_rows);
    let mut walk = Walk::new(edges, options)?;
    // A walk takes one batch after the other.
    let (left, right) = sources.split_at(sources.len() / 3);
    let mut out = try_collect(&mut walk, left, hops, batch_rows).await?;
    let rest = try_collect(&mut walk, right, hops, batch_rows).await?;
    let moved = |(row, dst, d)| (row + left.len() as u32, dst, d);
    out.extend(rest.into_iter().map(moved));
    Ok(out)
}

/// The answer to sources that come in two batches.
pub async fn answer(
    edges: &EdgeTable,
    options: ReachOptions,
    sources: &[Option<u64>],
) -> Vec<Found> {
    walk(edges, options, sources).await.unwrap()
}
