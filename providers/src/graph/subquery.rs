//! `not { }` and `optional { }`: anti joins and left joins with the rows outside.
//!
//! A block is computed once for all rows. Where it can be computed without the outer rows it is, and
//! joined with them by the row ids of the variables that they share; else, or where there are few outer
//! rows, it starts from the distinct values that the outer rows have.

use std::collections::BTreeSet;

use datafusion::common::{Column, JoinType, NullEquality};
use datafusion::error::Result;
use datafusion::logical_expr::utils::conjunction;
use datafusion::logical_expr::{Expr as Df, LogicalPlanBuilder};
use stratagraph::graph::query::{Block, Expr, Var};

use super::lower::Lowering;
use super::names::{column, column_expr};
use super::needs::{fields, introduced, mentioned, searches_outer, variables};
use super::reduce::Goal;
use super::row::{Field, Joined, Row};

/// A block that is ready to be joined with the rows outside.
struct Inner {
    row: Row,
    /// Columns outside and inside that must be equal.
    keys: (Vec<Column>, Vec<Column>),
    /// What else must hold of a pair.
    condition: Option<Df>,
    /// Whether two nulls are equal keys.
    nulls: NullEquality,
}

/// What is asked of a block.
#[derive(Clone, Copy)]
enum Asked {
    /// Whether it has an assignment.
    Existence,
    /// All of them.
    Rows,
}

impl Lowering<'_> {
    /// Rows for which the block has no assignment.
    pub(super) fn negate(&self, row: Row, block: &Block) -> Result<Row> {
        let inner = self.inner(&row, block, Asked::Existence)?;
        let plan = LogicalPlanBuilder::from(row.plan)
            .join_detailed(
                inner.row.plan,
                JoinType::LeftAnti,
                inner.keys,
                inner.condition,
                inner.nulls,
            )?
            .build()?;
        Ok(Row { plan, ..row })
    }

    /// Rows with each assignment of the block, or with nulls where it has none.
    pub(super) fn optional(&self, row: Row, block: &Block) -> Result<Row> {
        let inner = self.inner(&row, block, Asked::Rows)?;
        let plan = LogicalPlanBuilder::from(row.plan.clone())
            .join_detailed(
                inner.row.plan,
                JoinType::Left,
                inner.keys,
                inner.condition,
                inner.nulls,
            )?
            .build()?;
        let own = introduced(block);
        let added = inner.row.columns.into_iter();
        let mut columns = row.columns.clone();
        columns.extend(added.filter(|((var, _), _)| own.contains(var)));
        Ok(Row {
            plan,
            columns,
            unique: None,
            ..row
        })
    }

    fn inner(&self, outer: &Row, block: &Block, asked: Asked) -> Result<Inner> {
        let own = introduced(block);
        let shared: BTreeSet<Var> = mentioned(block).difference(&own).copied().collect();
        let ends = block.hops.iter().flat_map(|hop| [hop.left, hop.right]);
        let ends: BTreeSet<Var> = ends.filter(|var| shared.contains(var)).collect();
        let nested = block.optionals.iter().chain(&block.negations);
        let nested: BTreeSet<Var> = nested.flat_map(mentioned).collect();
        let alone = nested.intersection(&shared).all(|var| ends.contains(var));
        // A block of conditions alone has no rows of its own to start from.
        let has_rows = !block.nodes.is_empty() || !ends.is_empty();
        let alone = alone && !searches_outer(block, &own);
        match alone && has_rows && !outer.selective && !self.mentions_outer_property(block, &ends) {
            true => self.independent(outer, block, &ends, asked),
            false => self.seeded(outer, block, &shared),
        }
    }

    /// Whether a block within the block reads a property of a shared variable, which an independent
    /// block has no columns of.
    fn mentions_outer_property(&self, block: &Block, shared: &BTreeSet<Var>) -> bool {
        fn reads(block: &Block, shared: &BTreeSet<Var>) -> bool {
            let mut found = false;
            for filter in &block.filters {
                fields(filter, &mut |var, _| found |= shared.contains(&var));
            }
            let mut inner = block.optionals.iter().chain(&block.negations);
            found || inner.any(|block| reads(block, shared))
        }
        let mut inner = block.optionals.iter().chain(&block.negations);
        inner.any(|block| reads(block, shared))
    }

    /// The block over the whole graph; conditions on outer variables become conditions of the join.
    fn independent(
        &self,
        outer: &Row,
        block: &Block,
        ends: &BTreeSet<Var>,
        asked: Asked,
    ) -> Result<Inner> {
        let own = introduced(block);
        let is_own = |filter: &&Expr| variables(filter).is_subset(&own);
        let (inside, across): (Vec<&Expr>, Vec<&Expr>) = block.filters.iter().partition(is_own);
        let extra: Vec<Var> = ends.iter().copied().collect();
        let neighbours = match asked {
            Asked::Existence => self.neighbours(block, &own)?,
            Asked::Rows => None,
        };
        let row = match neighbours {
            Some(row) => row,
            None => {
                let goal = match asked {
                    Asked::Existence => Goal::existence(&extra, &across),
                    Asked::Rows => Goal::rows(),
                };
                self.wanted(block, &inside, &extra, &goal)?
            }
        };
        let mut keys = (Vec::new(), Vec::new());
        for var in ends {
            keys.0.push(key(outer, *var)?);
            keys.1.push(key(&row, *var)?);
        }
        let columns = Joined(outer, &row);
        let across = across.iter().map(|f| self.scalars.lower(f, &columns));
        let condition = conjunction(across.collect::<Result<Vec<_>>>()?);
        Ok(Inner {
            row,
            keys,
            condition,
            nulls: NullEquality::NullEqualsNothing,
        })
    }

    /// The nodes that have a neighbour at all, where that is all that a block asks: the row ids of one
    /// side of the edges.
    fn neighbours(&self, block: &Block, own: &BTreeSet<Var>) -> Result<Option<Row>> {
        let ([hop], [], [], []) = (
            block.hops.as_slice(),
            block.filters.as_slice(),
            block.optionals.as_slice(),
            block.negations.as_slice(),
        ) else {
            return Ok(None);
        };
        let single = (hop.min, hop.max) == (1, 1) && hop.binding.is_none();
        let shared = match (own.contains(&hop.left), own.contains(&hop.right)) {
            (true, false) => hop.right,
            (false, true) => hop.left,
            _ => return Ok(None),
        };
        if !single || own.len() != 1 {
            return Ok(None);
        }
        let rid = self.names.unique("neighbour");
        let other = self.names.unique("of");
        let ends = match shared == hop.left {
            true => (rid.as_str(), other.as_str()),
            false => (other.as_str(), rid.as_str()),
        };
        let plan = self.oriented(hop, &[], ends)?;
        let columns = [((shared, Field::Rid), rid.clone())].into();
        Ok(Some(Row::of(plan, columns)))
    }

    /// The block from the distinct values that the outer rows have of what it shares with them.
    fn seeded(&self, outer: &Row, block: &Block, shared: &BTreeSet<Var>) -> Result<Inner> {
        let mut seed = Row {
            selective: outer.selective,
            ..Row::of(outer.plan.clone(), Default::default())
        };
        let mut shown = Vec::new();
        let mut keys = (Vec::new(), Vec::new());
        for ((var, field), name) in &outer.columns {
            if !shared.contains(var) {
                continue;
            }
            let renamed = self.names.unique(name);
            shown.push(column_expr(name).alias(&renamed));
            if *field == Field::Rid {
                keys.0.push(column(name));
                keys.1.push(column(&renamed));
            }
            seed.columns.insert((*var, *field), renamed);
        }
        seed.plan = LogicalPlanBuilder::from(seed.plan)
            .project(shown)?
            .distinct()?
            .build()?;
        let filters: Vec<&Expr> = block.filters.iter().collect();
        let row = self.block(block, &filters, &[], Some(seed))?;
        Ok(Inner {
            row,
            keys,
            condition: None,
            nulls: NullEquality::NullEqualsNull,
        })
    }
}

fn key(row: &Row, var: Var) -> Result<Column> {
    match row.expr(var, Field::Rid)? {
        Df::Column(column) => Ok(column),
        other => datafusion::common::internal_err!("{other} is not a column"),
    }
}
