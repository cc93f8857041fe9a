//! The measures of a ranking: what the engine finds, by row id.

use std::collections::HashMap;
use std::sync::Arc;

use arrow::array::{AsArray, RecordBatch};
use arrow::datatypes::UInt32Type;
use roaring::RoaringTreemap;
use stratagraph::ann::Query;
use stratagraph::env::Budget;
use stratagraph::search::{Allowed, Found, Fused, Nearest, Slack, TableSearch, VectorColumn};
use stratagraph::{Error, Result};

use super::rank::{Entities, column_of};
use super::rank_node::{Arm, Leg, Measure, Near, RankSpec, Ranking};
use super::search_metrics::SearchMetrics;
use crate::error::from_datafusion;

/// Computes the measures of one ranking.
pub(super) struct Measures {
    spec: RankSpec,
    budget: Arc<dyn Budget>,
    metrics: SearchMetrics,
}

impl Measures {
    pub(super) fn new(spec: &RankSpec, budget: Arc<dyn Budget>, metrics: SearchMetrics) -> Self {
        Self {
            spec: spec.clone(),
            budget,
            metrics,
        }
    }

    /// Measures by row id of the first column. `batches` are the rows, where they are needed.
    pub(super) async fn of(
        &self,
        entities: &Entities,
        batches: &[RecordBatch],
        rids: &[usize],
    ) -> Result<HashMap<u64, f32>> {
        match self.spec.ranking.as_ref() {
            Ranking::Single(leg) => {
                let table = leg.table.with_budget(Arc::clone(&self.budget));
                let found = match &leg.measure {
                    Measure::Score { column, query } => {
                        let all = &Allowed::All;
                        table.scored(column, query, None, all).await?
                    }
                    Measure::Distance { .. } => {
                        let eligible = eligible(entities, leg.rid)?;
                        self.nearest(&table, leg, eligible, self.spec.top).await?
                    }
                };
                let rids = table.rids_of(&found).await?;
                let values = found.iter().map(|f| f.value);
                Ok(rids.into_iter().zip(values).collect())
            }
            Ranking::Fused { arms, constant } => {
                let mut fused: HashMap<u64, f32> = HashMap::new();
                for arm in arms {
                    let ranks = match arm {
                        Arm::Leg(leg) => self.ranks(leg, entities, batches, rids).await?,
                        Arm::Column(at) => by_column(batches, rids, *at)?,
                    };
                    for (rid, rank) in ranks {
                        *fused.entry(rid).or_default() += 1.0 / (constant + rank as f32);
                    }
                }
                Ok(fused)
            }
        }
    }

    /// The best of some entities by distance, nearest first; all of them without `top`.
    async fn nearest(
        &self,
        table: &TableSearch,
        leg: &Leg,
        eligible: &RoaringTreemap,
        top: Option<usize>,
    ) -> Result<Vec<Found>> {
        let Measure::Distance {
            column,
            near,
            exact,
        } = &leg.measure
        else {
            return Ok(Vec::new());
        };
        let query = query(column, near).await?;
        let rows = table.rows_of(eligible).await?;
        let all = usize::try_from(eligible.len()).unwrap_or(usize::MAX);
        let wanted = Nearest {
            query: &query,
            k: top.unwrap_or(all).max(1),
            exact: *exact,
        };
        let none = Slack::default();
        let allowed = Allowed::Rows(rows);
        let found = table.nearest_within(column, wanted, &allowed, none);
        let (found, searched) = found.await?;
        self.metrics.add(&searched);
        Ok(found)
    }

    /// The ranks of a leg, from 1, by row id of the first column. An entity has the rank of the best row
    /// it is in; entities in equally good rows have one rank.
    async fn ranks(
        &self,
        leg: &Leg,
        entities: &Entities,
        batches: &[RecordBatch],
        rids: &[usize],
    ) -> Result<Vec<(u64, u64)>> {
        let table = leg.table.with_budget(Arc::clone(&self.budget));
        let eligible = eligible(entities, leg.rid)?;
        let depth = Fused::depth(self.spec.top.unwrap_or(usize::MAX / 8));
        let found = match &leg.measure {
            Measure::Distance { .. } => {
                let depth = depth.min(usize::try_from(eligible.len()).unwrap_or(usize::MAX));
                self.nearest(&table, leg, eligible, Some(depth)).await?
            }
            Measure::Score { column, query } => {
                let allowed = Allowed::Rows(table.rows_of(eligible).await?);
                table.matching(column, query, depth, &allowed).await?
            }
        };
        let own = table.rids_of(&found).await?.into_iter().zip(1u64..);
        if leg.rid == 0 {
            return Ok(own.take(depth).collect());
        }
        let own: HashMap<u64, u64> = own.collect();
        let mut best: HashMap<u64, u64> = HashMap::new();
        for batch in batches {
            let (first, other) = (place(rids, 0)?, place(rids, leg.rid)?);
            let first = column_of(batch, first).map_err(from_datafusion)?;
            let other = column_of(batch, other).map_err(from_datafusion)?;
            for (entity, other) in first.iter().zip(other.iter()) {
                let ranked = other.and_then(|other| own.get(&other));
                if let (Some(entity), Some(rank)) = (entity, ranked) {
                    let known = best.entry(entity).or_insert(*rank);
                    *known = (*known).min(*rank);
                }
            }
        }
        Ok(placed(best))
    }
}

/// The ranks of entities by the least number that a row of theirs has in a column.
fn by_column(batches: &[RecordBatch], rids: &[usize], at: usize) -> Result<Vec<(u64, u64)>> {
    let mut best: HashMap<u64, u64> = HashMap::new();
    for batch in batches {
        let entities = column_of(batch, place(rids, 0)?).map_err(from_datafusion)?;
        let numbers = batch.columns().get(place(rids, at)?);
        let Some(numbers) = numbers.and_then(|c| c.as_primitive_opt::<UInt32Type>()) else {
            return Err(Error::corrupt(
                "plan",
                "ranking",
                "a column of distances",
                "none",
            ));
        };
        for (entity, number) in entities.iter().zip(numbers.iter()) {
            if let (Some(entity), Some(number)) = (entity, number) {
                let known = best.entry(entity).or_insert(u64::from(number));
                *known = (*known).min(u64::from(number));
            }
        }
    }
    Ok(placed(best))
}

/// The places of entities by a number, the least first; equal numbers have one place.
fn placed(best: HashMap<u64, u64>) -> Vec<(u64, u64)> {
    let mut numbers: Vec<(u64, u64)> = best.into_iter().map(|(e, number)| (number, e)).collect();
    numbers.sort_unstable();
    let mut placed = Vec::with_capacity(numbers.len());
    let mut last = (None, 0);
    for ((number, entity), at) in numbers.into_iter().zip(1u64..) {
        if last.0 != Some(number) {
            last = (Some(number), at);
        }
        placed.push((entity, last.1));
    }
    placed
}

fn eligible(entities: &Entities, rid: usize) -> Result<&RoaringTreemap> {
    let found = entities.0.get(rid);
    found.ok_or_else(|| Error::corrupt("plan", "ranking", "a column of row ids", "none"))
}

fn place(rids: &[usize], of: usize) -> Result<usize> {
    let found = rids.get(of).copied();
    found.ok_or_else(|| Error::corrupt("plan", "ranking", "a column of row ids", "none"))
}

/// The query of a distance; a text gets its vector now.
async fn query(column: &VectorColumn, near: &Near) -> Result<Query> {
    let invalid = |reason: String| Error::InvalidArgument {
        function: "nearest".to_owned(),
        argument: "query".to_owned(),
        reason,
    };
    let vector = match near {
        Near::Vector(vector) => vector.clone(),
        Near::Text {
            text,
            type_id,
            embedder,
        } => embedder.embed(*type_id, column.column, text).await?,
    };
    if vector.len() != column.dimensions {
        let (found, width) = (vector.len(), column.dimensions);
        return Err(invalid(format!(
            "has {found} components, the property {width}"
        )));
    }
    Query::new(column.metric, vector)
        .ok_or_else(|| invalid("expected finite components that are not all zero".to_owned()))
}
