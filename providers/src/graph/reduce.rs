//! Patterns of which not every assignment is wanted: variables that nobody reads are counted or tested
//! for existence instead of being bound, and cycles are closed by intersection.
//!
//! A condition on one variable narrows the nodes that it may be before anything is followed; conditions
//! on several, and the blocks that mention several, are applied to the rows that are left.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use datafusion::common::plan_err;
use datafusion::error::Result;
use datafusion::logical_expr::{Extension, LogicalPlan, LogicalPlanBuilder};
use stratagraph::graph::query::{Aggregate, Block, Expr, Query, Var};
use stratagraph::graph::topology::TraversalMode;

use super::lower::Lowering;
use super::needs::{Needs, fields, introduced, mentioned, orders_by_ids, variables};
use super::ranks::searches;
use super::row::{Field, Row};
use crate::error::ResultExt;
use crate::exec::{MatchEdge, MatchNode, MatchSpec};

/// What is wanted of the assignments of a block.
pub(super) struct Goal {
    /// The columns that are read of them, by variable; `None` for each assignment as it is.
    reads: Option<Needs>,
    /// Whether it matters how many assignments agree in these.
    counted: bool,
    /// A variable and how many of its nodes, those with most assignments, are wanted.
    top: Option<(Var, usize)>,
}

impl Goal {
    /// Each assignment.
    pub(super) fn rows() -> Self {
        Self {
            reads: None,
            counted: true,
            top: None,
        }
    }

    /// Whether there is one, for each node of `keys`; `conditions` are applied to the answer.
    pub(super) fn existence(keys: &[Var], conditions: &[&Expr]) -> Self {
        let mut reads = Needs::new();
        for var in keys {
            reads.entry(*var).or_default();
        }
        for condition in conditions {
            read(&mut reads, condition);
        }
        Self {
            reads: Some(reads),
            counted: false,
            top: None,
        }
    }

    /// What the results of a query are made of. `top` is how many of its first rows are wanted, and
    /// `deferred` the variable that its groups are one for one with.
    pub(super) fn of(query: &Query, deferred: Option<Var>, top: Option<usize>) -> Self {
        if !query.aggregates() && !query.distinct {
            return Self::rows();
        }
        let outputs = query.outputs.iter().map(|output| &output.expr);
        let keys = query.order.iter().map(|key| &key.expr);
        let (mut reads, mut counted) = (Needs::new(), false);
        for expr in outputs.chain(keys) {
            read(&mut reads, expr);
            expr.visit(&mut |inner| {
                if let Expr::Aggregate {
                    function, distinct, ..
                } = inner
                {
                    counted |= !distinct && !matches!(function, Aggregate::Min | Aggregate::Max);
                }
            });
        }
        let by_count = query.order.first().is_some_and(|key| {
            let expr = match &key.expr {
                Expr::Output(at) => query.outputs.get(*at).map_or(&key.expr, |o| &o.expr),
                other => other,
            };
            key.descending && counts_rows(query, expr)
        });
        Self {
            reads: Some(reads),
            counted,
            top: top
                .filter(|_| by_count)
                .and_then(|top| Some((deferred?, top))),
        }
    }
}

/// Whether an expression is the number of assignments: of a node that is always there, or of rows.
pub(super) fn counts_rows(query: &Query, expr: &Expr) -> bool {
    let Expr::Aggregate {
        function: Aggregate::Count,
        argument,
        distinct: false,
    } = expr
    else {
        return false;
    };
    match argument.as_deref() {
        None => true,
        Some(Expr::Id(var)) => query.variables.get(*var).is_some_and(|v| !v.optional),
        Some(_) => false,
    }
}

/// Adds the columns that an expression reads. What is counted once a value is read too.
fn read(reads: &mut Needs, expr: &Expr) {
    fields(expr, &mut |var, field| {
        reads.entry(var).or_default().insert(field);
    });
    expr.visit(&mut |inner| {
        if let Expr::Aggregate {
            argument,
            distinct: true,
            ..
        } = inner
            && let Some(Expr::Id(var)) = argument.as_deref()
        {
            reads.entry(*var).or_default();
        }
    });
}

/// A block without what its rows no longer need.
pub(super) struct Reduced {
    pub(super) row: Row,
    /// Conditions that are still to be applied.
    pub(super) filters: Vec<Expr>,
    /// The block without negations that were applied.
    pub(super) block: Block,
    /// Columns that are still to be read.
    pub(super) reads: Needs,
}

/// Conditions and negations of one variable.
type Own<'e> = (Vec<&'e Expr>, Vec<&'e Block>);

/// Conditions of single variables, and what is left.
struct Split<'e> {
    own: BTreeMap<Var, Own<'e>>,
    filters: Vec<&'e Expr>,
    block: Block,
    reads: Needs,
}

impl Lowering<'_> {
    /// The block as a pattern of which only some variables are kept; `None` where that would gain
    /// nothing or cannot be.
    pub(super) fn reduce(
        &self,
        block: &Block,
        filters: &[&Expr],
        extra: &[Var],
        goal: &Goal,
    ) -> Result<Option<Reduced>> {
        let nodes: Vec<Var> = block.nodes.iter().chain(extra).copied().collect();
        if self.mode == TraversalMode::Index
            || !self.is_plain(block, &nodes, goal)
            || self.searched(block, filters)
        {
            return Ok(None);
        }
        let split = self.split(block, filters, &nodes, goal);
        let kept: Vec<Var> = match goal.reads {
            Some(_) => nodes
                .iter()
                .copied()
                .filter(|v| split.reads.contains_key(v))
                .collect(),
            None if extra.is_empty() => self.shown(&nodes, &split),
            None => nodes.clone(),
        };
        // A tree whose variables are all wanted is followed hop by hop.
        let is_tree = block.hops.iter().filter(|h| h.left != h.right).count() < nodes.len();
        if is_tree && kept.len() == nodes.len() || split.reads.keys().any(|v| self.is_edge(*v)) {
            return Ok(None);
        }
        let keyed = |(var, (filters, _)): (&Var, &Own<'_>)| {
            filters
                .iter()
                .any(|filter| self.keyed(*var, filter).is_some())
        };
        let selective = split.own.iter().any(keyed);
        let held = block.hops.iter().all(|hop| self.held.contains(&hop.edge));
        let all_found = split
            .own
            .iter()
            .all(|(var, own)| self.found(*var, own).is_some());
        // Few pages are read for few nodes, whose properties tell which of them to follow.
        if selective && !all_found && !held && self.mode == TraversalMode::Auto {
            return Ok(None);
        }
        let counted = goal.counted && goal.reads.is_some();
        let top = goal.top.filter(|_| counted);
        let mut row = self.matched(block, (&nodes, &kept), &split, (counted, top))?;
        row.selective = selective;
        Ok(Some(Reduced {
            row,
            filters: split.filters.into_iter().cloned().collect(),
            block: split.block,
            reads: split.reads,
        }))
    }

    /// All variables but those of which there is one node that nothing else reads: without them, rows
    /// stay as many.
    fn shown(&self, nodes: &[Var], split: &Split<'_>) -> Vec<Var> {
        let query = self.query;
        let outputs = query.outputs.iter().map(|output| &output.expr);
        let keys = query.order.iter().map(|key| &key.expr);
        let filters = split.filters.iter().copied();
        let mut read: BTreeSet<Var> = outputs
            .chain(keys)
            .chain(filters)
            .flat_map(variables)
            .collect();
        let inner = split.block.optionals.iter().chain(&split.block.negations);
        read.extend(inner.flat_map(mentioned));
        let one = |var: &Var| {
            let own = split.own.get(var);
            own.is_some_and(|own| self.found(*var, own).is_some())
        };
        let shown = nodes.iter().copied();
        let shown: Vec<Var> = shown
            .filter(|var| read.contains(var) || !one(var))
            .collect();
        match shown.is_empty() || orders_by_ids(query) {
            true => nodes.to_vec(),
            false => shown,
        }
    }

    /// The id of the only node that a variable can be, where its conditions say nothing else.
    fn found(&self, var: Var, (filters, negations): &Own<'_>) -> Option<String> {
        match filters[..] {
            [filter] if negations.is_empty() => self.keyed(var, filter),
            _ => None,
        }
    }

    /// Whether a block is single hops that join all its variables.
    fn is_plain(&self, block: &Block, nodes: &[Var], goal: &Goal) -> bool {
        let hops = block.hops.iter();
        let single = hops.clone().all(|hop| {
            let ends = nodes.contains(&hop.left) && nodes.contains(&hop.right);
            let edge = hop.binding.is_none_or(|edge| {
                let read = self
                    .needs
                    .get(&edge)
                    .is_some_and(|fields| !fields.is_empty());
                goal.reads.is_some() && !read
            });
            ends && edge && (hop.min, hop.max) == (1, 1)
        });
        let mut joined: BTreeSet<Var> = nodes.first().copied().into_iter().collect();
        for _ in nodes {
            for hop in block.hops.iter() {
                if joined.contains(&hop.left) || joined.contains(&hop.right) {
                    joined.extend([hop.left, hop.right]);
                }
            }
        }
        single && !block.hops.is_empty() && joined.len() == nodes.len()
    }

    fn is_edge(&self, var: Var) -> bool {
        self.query.variables.get(var).is_none_or(|v| v.is_edge)
    }

    /// Whether anything is searched or ranked; searches are of rows.
    fn searched(&self, block: &Block, filters: &[&Expr]) -> bool {
        fn within(block: &Block, found: &mut bool) {
            for filter in &block.filters {
                searches(filter, &mut |_| *found = true);
            }
            for inner in block.optionals.iter().chain(&block.negations) {
                within(inner, found);
            }
        }
        let mut found = false;
        within(block, &mut found);
        let outputs = self.query.outputs.iter().map(|output| &output.expr);
        let keys = self.query.order.iter().map(|key| &key.expr);
        for expr in outputs.chain(keys).chain(filters.iter().copied()) {
            searches(expr, &mut |_| found = true);
        }
        found
    }

    /// Parts conditions and negations of one variable from the others, whose variables are kept.
    fn split<'e>(
        &self,
        block: &'e Block,
        filters: &[&'e Expr],
        nodes: &[Var],
        goal: &Goal,
    ) -> Split<'e> {
        let mut split = Split {
            own: BTreeMap::new(),
            filters: Vec::new(),
            block: Block {
                negations: Vec::new(),
                ..block.clone()
            },
            reads: goal.reads.clone().unwrap_or_else(|| self.needs.clone()),
        };
        let one = |vars: &BTreeSet<Var>| match vars.iter().collect::<Vec<_>>()[..] {
            [var] if nodes.contains(var) => Some(*var),
            _ => None,
        };
        for filter in filters {
            match one(&variables(filter)) {
                Some(var) => split.own.entry(var).or_default().0.push(filter),
                None => {
                    read(&mut split.reads, filter);
                    split.filters.push(filter);
                }
            }
        }
        for negation in &block.negations {
            let own = introduced(negation);
            let outer: BTreeSet<Var> = mentioned(negation).difference(&own).copied().collect();
            match one(&outer) {
                Some(var) => split.own.entry(var).or_default().1.push(negation),
                None => split.block.negations.push(negation.clone()),
            }
        }
        for inner in split.block.optionals.iter().chain(&split.block.negations) {
            read_within(inner, &mut split.reads);
        }
        split
    }

    /// The kept variables of the pattern.
    fn matched(
        &self,
        block: &Block,
        (nodes, kept): (&[Var], &[Var]),
        split: &Split<'_>,
        (counted, top): (bool, Option<(Var, usize)>),
    ) -> Result<Row> {
        let place = |var: Var| nodes.iter().position(|node| *node == var);
        let mut columns = BTreeMap::new();
        let mut shown = Vec::new();
        for var in kept {
            let name = self.names.unique(&self.wanted_name(*var, Field::Rid));
            columns.insert((*var, Field::Rid), name.clone());
            shown.extend(place(*var).map(|at| (at, name)));
        }
        let (mut inputs, mut keys) = (Vec::new(), Vec::new());
        for (var, own) in &split.own {
            let (Some(at), Some(variable)) = (place(*var), self.query.variables.get(*var)) else {
                continue;
            };
            match self.found(*var, own) {
                Some(id) => {
                    let table = self.sources.nodes(variable.type_id).df()?;
                    keys.push((at, table, id));
                }
                None => inputs.push((at, self.nodes(*var, own)?)),
            }
        }
        let names = nodes.iter().map(|var| {
            let variable = self.query.variables.get(*var);
            variable.map_or_else(|| "_".to_owned(), |v| v.name.clone())
        });
        let mut spec = MatchSpec {
            variables: names.collect(),
            hops: self.match_edges(block, nodes)?,
            keys,
            mode: self.mode,
            kept: shown,
            count: counted.then(|| self.names.unique("paths")),
            top: None,
        };
        let alone = match kept {
            [var] if spec.is_unique() => Some(*var),
            _ => None,
        };
        let left = &split.block;
        let done =
            split.filters.is_empty() && left.optionals.is_empty() && left.negations.is_empty();
        let top = top.filter(|(var, _)| done && alone == Some(*var));
        spec.top = top.map(|(_, top)| top);
        let count = spec.count.clone();
        let node = MatchNode::try_new(inputs, spec)?;
        let plan = LogicalPlan::Extension(Extension {
            node: Arc::new(node),
        });
        Ok(Row {
            count,
            unique: alone,
            ..Row::of(plan, columns)
        })
    }

    fn match_edges(&self, block: &Block, nodes: &[Var]) -> Result<Vec<MatchEdge>> {
        let place = |var: Var| match nodes.iter().position(|node| *node == var) {
            Some(place) => Ok(place),
            None => plan_err!("variable {var} is not one of the pattern"),
        };
        let edges = block.hops.iter().map(|hop| {
            Ok(MatchEdge {
                left: place(hop.left)?,
                right: place(hop.right)?,
                edge: self.sources.edges(hop.edge).df()?,
                direction: hop.direction,
                distinct: hop.binding.is_none(),
            })
        });
        edges.collect()
    }

    /// The row ids of the nodes that a variable may be.
    fn nodes(&self, var: Var, own: &Own<'_>) -> Result<LogicalPlan> {
        let (filters, negations) = own;
        let mut row = self.scan_node(var, filters, false)?;
        row = self.filter(row, filters.iter().copied())?;
        for negation in negations {
            row = self.negate(row, negation)?;
        }
        let rid = row.expr(var, Field::Rid)?;
        LogicalPlanBuilder::from(row.plan)
            .project(vec![rid])?
            .build()
    }
}

/// Adds all that a block reads of outer variables, and of its own.
fn read_within(block: &Block, reads: &mut Needs) {
    for var in mentioned(block) {
        reads.entry(var).or_default();
    }
    for filter in &block.filters {
        read(reads, filter);
    }
    for inner in block.optionals.iter().chain(&block.negations) {
        read_within(inner, reads);
    }
}
