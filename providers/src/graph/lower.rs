//! Patterns as logical plans: scans of nodes, traversals, joins, filters.

use std::collections::BTreeSet;
use std::sync::Arc;

use datafusion::common::{Column, JoinType, ScalarValue, plan_err};
use datafusion::error::Result;
use datafusion::logical_expr::utils::conjunction;
use datafusion::logical_expr::{
    Expr as Df, Extension, LogicalPlan, LogicalPlanBuilder, TableSource, lit,
};
use stratagraph::graph::query::{Block, Compare, Direction, Expr, Hop, Query, Rank, Var};
use stratagraph::graph::schema::GraphType;
use stratagraph::graph::topology::TraversalMode;
use stratagraph::graph::value::{Scalar, Value};
use stratagraph::table::schema::id;

use super::expr::Scalars;
use super::names::{Names, column, column_expr};
use super::needs::{Needs, introduced, variables};
use super::reduce::Goal;
use super::row::{Field, Row};
use super::sources::GraphSources;
use crate::error::ResultExt;
use crate::exec::{ExpandNode, ExpandSpec, HydrateNode, HydrateSpec, QueryEmbedder};

/// One query on its way to a plan.
pub(super) struct Lowering<'a> {
    pub(super) query: &'a Query,
    pub(super) scalars: Scalars<'a>,
    pub(super) sources: &'a GraphSources,
    pub(super) needs: Needs,
    pub(super) names: Names,
    pub(super) mode: TraversalMode,
    /// A variable whose columns are joined after the grouping, of which there are fewer rows.
    pub(super) deferred: Option<Var>,
    /// Traversals whose distances are ranked.
    pub(super) distances: BTreeSet<(Var, Var)>,
    /// Variables whose columns are joined after the best rows are chosen.
    pub(super) late: BTreeSet<Var>,
    /// Makes the vectors of texts when the plan runs.
    pub(super) embedder: &'a Arc<dyn QueryEmbedder>,
    /// Whether indexes over vectors are left aside.
    pub(super) exact: bool,
    /// Edge types whose neighbours are in memory.
    pub(super) held: BTreeSet<u64>,
}

impl Lowering<'_> {
    /// The assignments of a block that `goal` wants, from nothing. `extra` are variables of outer scopes
    /// that the block binds on its own.
    pub(super) fn wanted(
        &self,
        block: &Block,
        filters: &[&Expr],
        extra: &[Var],
        goal: &Goal,
    ) -> Result<Row> {
        let Some(reduced) = self.reduce(block, filters, extra, goal)? else {
            return self.block(block, filters, extra, None);
        };
        let mut row = reduced.row;
        for var in block.nodes.iter().filter(|v| self.deferred != Some(**v)) {
            if reduced
                .reads
                .get(var)
                .is_some_and(|fields| !fields.is_empty())
            {
                row = self.hydrate(row, *var)?;
            }
        }
        let filters: Vec<&Expr> = reduced.filters.iter().collect();
        self.conditions(row, &reduced.block, &filters)
    }

    /// The assignments of a block: on top of `seed`, or from nothing. `extra` are variables of outer
    /// scopes that the block binds on its own.
    pub(super) fn block(
        &self,
        block: &Block,
        filters: &[&Expr],
        extra: &[Var],
        seed: Option<Row>,
    ) -> Result<Row> {
        let own: Vec<Var> = block
            .nodes
            .iter()
            .copied()
            .chain(extra.iter().copied())
            .collect();
        let mut hops: Vec<&Hop> = block.hops.iter().collect();
        let mut row = seed;
        loop {
            if let Some(known) = row.take() {
                match next_hop(&hops, &known) {
                    Some(at) => {
                        let hop = hops.remove(at);
                        row = Some(self.hop(known, hop, filters)?);
                        continue;
                    }
                    None => row = Some(known),
                }
            }
            let unbound = |var: &&Var| row.as_ref().is_none_or(|row| !row.binds(**var));
            let left: Vec<Var> = own.iter().filter(unbound).copied().collect();
            let Some(root) = self.root(&left, filters) else {
                break;
            };
            let scan = self.scan_node(root, filters, self.late.contains(&root))?;
            row = Some(match row {
                None => scan,
                Some(row) => cross(row, scan)?,
            });
        }
        let Some(mut row) = row else {
            return plan_err!("a pattern binds no variable");
        };
        if let Some(hop) = hops.first() {
            return plan_err!("the traversal {hop:?} has no bound end");
        }
        for var in block
            .nodes
            .iter()
            .filter(|var| self.deferred != Some(**var) && !self.late.contains(var))
        {
            row = self.hydrate(row, *var)?;
        }
        self.conditions(row, block, filters)
    }

    /// Filters, then optional blocks, then what mentions their variables.
    fn conditions(&self, row: Row, block: &Block, filters: &[&Expr]) -> Result<Row> {
        let late: BTreeSet<Var> = block.optionals.iter().flat_map(introduced).collect();
        let is_late = |filter: &&&Expr| !variables(filter).is_disjoint(&late);
        let (after, before): (Vec<&&Expr>, Vec<&&Expr>) = filters.iter().partition(|f| is_late(f));
        let mut row = self.filter(row, before.into_iter().copied())?;
        for optional in &block.optionals {
            row = self.optional(row, optional)?;
        }
        row = self.filter(row, after.into_iter().copied())?;
        for negation in &block.negations {
            row = self.negate(row, negation)?;
        }
        Ok(row)
    }

    pub(super) fn filter<'e>(
        &self,
        row: Row,
        filters: impl Iterator<Item = &'e Expr>,
    ) -> Result<Row> {
        let filters: Vec<&Expr> = filters.collect();
        let row = self.with_searches(row, &filters)?;
        let lowered = filters.iter().map(|f| self.scalars.lower(f, &row));
        let lowered = lowered.collect::<Result<Vec<_>>>()?;
        let Some(predicate) = conjunction(lowered) else {
            return Ok(row);
        };
        let plan = LogicalPlanBuilder::from(row.plan)
            .filter(predicate)?
            .build()?;
        Ok(Row { plan, ..row })
    }

    /// The variable to begin with: one that is found by its key, else the one with most conditions,
    /// else the first.
    fn root(&self, vars: &[Var], filters: &[&Expr]) -> Option<Var> {
        let mut best = None;
        for var in vars {
            let weight = self.weight(*var, filters);
            if best.is_none_or(|(_, most)| weight > most) {
                best = Some((*var, weight));
            }
        }
        best.map(|(var, _)| var)
    }

    /// How much the conditions on a variable alone narrow it.
    fn weight(&self, var: Var, filters: &[&Expr]) -> u32 {
        let own = filters.iter().filter(|f| {
            let named = variables(f);
            named.len() == 1 && named.contains(&var)
        });
        let weigh = |filter: &&Expr| match self.keyed(var, filter) {
            Some(_) => 3,
            None if matches!(filter, Expr::Compare(Compare::Eq, ..)) => 2,
            None => 1,
        };
        own.map(weigh).max().unwrap_or(0)
    }

    /// The id that `id = text` asks for, or `key = value` where the key is one property.
    pub(super) fn keyed(&self, var: Var, filter: &Expr) -> Option<String> {
        let Expr::Compare(Compare::Eq, a, b) = filter else {
            return None;
        };
        let (side, value) = match (self.scalars.value(a), self.scalars.value(b)) {
            (None, Some(value)) => (a.as_ref(), value),
            (Some(value), None) => (b.as_ref(), value),
            _ => return None,
        };
        match side {
            Expr::Id(of) if *of == var => key_text(Scalar::String, value),
            Expr::Property(of, property) if *of == var => {
                let is_key = self.type_of(var)?.key == [*property];
                let scalar = self.scalars.type_of(side)?.scalar()?;
                is_key.then(|| key_text(scalar, value)).flatten()
            }
            _ => None,
        }
    }

    pub(super) fn type_of(&self, var: Var) -> Option<&GraphType> {
        let variable = self.query.variables.get(var)?;
        self.sources.schema().by_id(variable.type_id)
    }

    /// The name under which a column of a variable is shown.
    pub(super) fn wanted_name(&self, var: Var, field: Field) -> String {
        let name = self
            .query
            .variables
            .get(var)
            .map_or("_", |v| v.name.as_str());
        let of = match field {
            Field::Rid => "#".to_owned(),
            Field::Id => "id".to_owned(),
            Field::Property(id) => self
                .type_of(var)
                .and_then(|t| t.property_by_id(id))
                .map_or_else(|| id.to_string(), |p| p.name.clone()),
        };
        format!("{name}.{of}")
    }

    /// The stored name of a column.
    fn stored_name(&self, var: Var, field: Field) -> Result<String> {
        match field {
            Field::Rid => Ok("_rid".to_owned()),
            Field::Id => Ok("id".to_owned()),
            Field::Property(id) => match self.type_of(var).and_then(|t| t.property_by_id(id)) {
                Some(property) => Ok(property.name.clone()),
                None => plan_err!("variable {var} has no property {id}"),
            },
        }
    }

    /// The stored columns of a variable under names of their own: row id and what the query reads.
    fn columns_of(&self, var: Var, row: &mut Row, late: bool) -> Result<Vec<Df>> {
        let needed = self.needs.get(&var).filter(|_| !late);
        let needed = needed.into_iter().flatten().copied();
        let mut shown = Vec::new();
        let needed = needed.filter(|field| *field != Field::Rid);
        for field in std::iter::once(Field::Rid).chain(needed) {
            let name = self.names.unique(&self.wanted_name(var, field));
            shown.push(column_expr(&self.stored_name(var, field)?).alias(&name));
            row.columns.insert((var, field), name);
        }
        Ok(shown)
    }

    /// A scan of the table of a type, whose columns have the stored names.
    fn scan(&self, type_id: u64) -> Result<LogicalPlan> {
        let source = self.sources.get(type_id).df()?;
        let table: Arc<dyn TableSource> = Arc::clone(&source.table);
        let scan = LogicalPlanBuilder::scan(source.name.as_str(), table, None)?;
        // Unqualified from here on: qualified names of two scans of one type would collide.
        let names = scan.schema().fields().iter();
        let names: Vec<Df> = names
            .map(|f| {
                let qualified = Column::new(Some(source.name.as_str()), f.name());
                Df::Column(qualified).alias(f.name())
            })
            .collect();
        scan.project(names)?.build()
    }

    pub(super) fn scan_node(&self, var: Var, filters: &[&Expr], late: bool) -> Result<Row> {
        let Some(variable) = self.query.variables.get(var) else {
            return plan_err!("variable {var} is not declared");
        };
        let mut scan = LogicalPlanBuilder::from(self.scan(variable.type_id)?);
        let empty = LogicalPlanBuilder::empty(false).build()?;
        let mut row = Row::of(empty, Default::default());
        // The id is sorted, bounded and in the bloom filter; the key property is none of these.
        for id in filters.iter().filter_map(|f| self.keyed(var, f)) {
            let id = ScalarValue::Utf8View(Some(id));
            scan = scan.filter(column_expr("id").eq(lit(id)))?;
            row.selective = true;
        }
        let shown = self.columns_of(var, &mut row, late)?;
        row.plan = scan.project(shown)?.build()?;
        Ok(row)
    }

    /// Gives a bound variable the columns that the query reads of it.
    pub(super) fn hydrate(&self, row: Row, var: Var) -> Result<Row> {
        let needed = self.needs.get(&var).into_iter().flatten();
        let lacks = needed
            .into_iter()
            .any(|field| row.name(var, *field).is_none());
        let (Some(rid), true) = (row.name(var, Field::Rid).map(str::to_owned), lacks) else {
            return Ok(row);
        };
        let nodes = self.scan_node(var, &[], false)?;
        let Some(key) = nodes.name(var, Field::Rid) else {
            return plan_err!("variable {var} has no row id");
        };
        let plan = match row.selective {
            // A few rows are likely.
            true => self.looked_up(&row, &rid, var, &nodes)?,
            false => {
                let keys = (vec![column(&rid)], vec![column(key)]);
                let joined = LogicalPlanBuilder::from(row.plan.clone());
                let joined = joined.join(nodes.plan, JoinType::Inner, keys, None)?;
                joined.build()?
            }
        };
        let mut columns = nodes.columns;
        columns.extend(row.columns.clone());
        Ok(Row {
            plan,
            columns,
            unique: None,
            ..row
        })
    }

    /// Rows with the columns of their nodes, of which few are read alone.
    fn looked_up(&self, row: &Row, rid: &str, var: Var, nodes: &Row) -> Result<LogicalPlan> {
        let (Some(variable), Some(scanned)) =
            (self.query.variables.get(var), nodes.name(var, Field::Rid))
        else {
            return plan_err!("variable {var} has no row id");
        };
        let columns = nodes.columns.iter().filter_map(|((_, field), name)| {
            let id = match field {
                Field::Rid => return None,
                Field::Id => id::ID,
                Field::Property(id) => *id,
            };
            Some((name.clone(), id))
        });
        let spec = HydrateSpec {
            table: self.sources.nodes(variable.type_id).df()?,
            rid: rid.to_owned(),
            scanned: scanned.to_owned(),
            columns: columns.collect(),
        };
        let node = HydrateNode::try_new(row.plan.clone(), nodes.plan.clone(), spec)?;
        Ok(LogicalPlan::Extension(Extension {
            node: Arc::new(node),
        }))
    }

    /// Follows a traversal of which one end is bound.
    fn hop(&self, row: Row, hop: &Hop, filters: &[&Expr]) -> Result<Row> {
        let mut row = match hop.binding {
            Some(edge) => self.bound_hop(row, hop, edge)?,
            None => self.expand(row, hop)?,
        };
        // A filter on the new end is worth its columns now: it makes fewer rows of what follows.
        for var in [hop.left, hop.right] {
            if self.weight(var, filters) > 0 {
                row = self.hydrate(row, var)?;
            }
        }
        Ok(row)
    }

    fn expand(&self, row: Row, hop: &Hop) -> Result<Row> {
        let (from, to, direction) = match row.binds(hop.left) {
            true => (hop.left, hop.right, hop.direction),
            false => (hop.right, hop.left, reversed(hop.direction)),
        };
        let dst = self.names.unique(&self.wanted_name(to, Field::Rid));
        let mut spec = ExpandSpec::bounded(direction, hop.min, hop.max, &dst).with_mode(self.mode);
        let ranked = [(hop.left, hop.right), (hop.right, hop.left)];
        let ranked = ranked
            .into_iter()
            .filter(|ends| self.distances.contains(ends));
        let ranked: Vec<Expr> = ranked
            .map(|(from, to)| Expr::Rank(Box::new(Rank::Hops { from, to })))
            .filter(|expr| !row.has_score(expr))
            .collect();
        let mut scores = Vec::new();
        if !ranked.is_empty() {
            let hops = self.names.unique("hops#");
            spec = spec.with_hops(&hops);
            scores.extend(ranked.into_iter().map(|expr| (expr, hops.clone())));
        }
        let src = row.expr(from, Field::Rid)?;
        let edges = self.sources.edges(hop.edge).df()?;
        let known = row.name(to, Field::Rid).map(column_expr);
        let mut node = ExpandNode::try_new(row.plan.clone(), src, edges, spec)?;
        // Pages are read from one end only.
        let in_memory = match self.mode {
            TraversalMode::Auto => self.held.contains(&hop.edge),
            mode => mode == TraversalMode::Adjacency,
        };
        let from_both = known.is_some() && in_memory;
        if let (Some(known), true) = (known, in_memory) {
            node = node.with_target(known)?;
        }
        let plan = LogicalPlan::Extension(Extension {
            node: Arc::new(node),
        });
        let mut next = Row { plan, ..row };
        next.scores.extend(scores);
        match next.name(to, Field::Rid) {
            Some(_) if from_both => {}
            // Both ends are known: the traversal is a condition.
            Some(known) => {
                let closes = column_expr(known).eq(column_expr(&dst));
                let plan = LogicalPlanBuilder::from(next.plan);
                next.plan = plan.filter(closes)?.build()?;
            }
            None => {
                next.columns.insert((to, Field::Rid), dst);
            }
        }
        Ok(next)
    }

    /// A traversal that binds its edge: one row for each edge.
    fn bound_hop(&self, row: Row, hop: &Hop, edge: Var) -> Result<Row> {
        let mut edges = Row::of(row.plan.clone(), Default::default());
        let shown = self.columns_of(edge, &mut edges, false)?;
        let left = self
            .names
            .unique(&format!("{}.from", self.wanted_name(edge, Field::Rid)));
        let right = self
            .names
            .unique(&format!("{}.to", self.wanted_name(edge, Field::Rid)));
        edges.plan = self.oriented(hop, &shown, (&left, &right))?;
        let (mut from, mut to) = (Vec::new(), Vec::new());
        for (var, end) in [(hop.left, &left), (hop.right, &right)] {
            match row.name(var, Field::Rid) {
                Some(known) => {
                    from.push(column(known));
                    to.push(column(end));
                }
                None => {
                    edges.columns.insert((var, Field::Rid), end.clone());
                }
            }
        }
        let joined = LogicalPlanBuilder::from(row.plan.clone());
        let plan = joined
            .join(edges.plan, JoinType::Inner, (from, to), None)?
            .build()?;
        let mut columns = row.columns.clone();
        columns.extend(edges.columns);
        Ok(Row {
            plan,
            columns,
            unique: None,
            ..row
        })
    }

    /// The edges of a type with their ends seen from the written left side.
    pub(super) fn oriented(
        &self,
        hop: &Hop,
        shown: &[Df],
        ends: (&str, &str),
    ) -> Result<LogicalPlan> {
        let side = |from: &str, to: &str, condition: Option<Df>| {
            let mut edges = LogicalPlanBuilder::from(self.scan(hop.edge)?);
            if let Some(condition) = condition {
                edges = edges.filter(condition)?;
            }
            let mut columns = shown.to_vec();
            columns.push(column_expr(from).alias(ends.0));
            columns.push(column_expr(to).alias(ends.1));
            edges.project(columns)?.build()
        };
        match hop.direction {
            Direction::Out => side("_src_rid", "_dst_rid", None),
            Direction::In => side("_dst_rid", "_src_rid", None),
            Direction::Both => {
                // An edge from a node to itself is one edge, seen from either end.
                let apart = column_expr("_src_rid").not_eq(column_expr("_dst_rid"));
                let forth = side("_src_rid", "_dst_rid", None)?;
                let back = side("_dst_rid", "_src_rid", Some(apart))?;
                LogicalPlanBuilder::from(forth).union(back)?.build()
            }
        }
    }
}

/// The traversal to follow next: one that closes a cycle, else the first with a bound end.
fn next_hop(hops: &[&Hop], row: &Row) -> Option<usize> {
    let bound = |hop: &&Hop| (row.binds(hop.left), row.binds(hop.right));
    let closing = hops.iter().position(|hop| bound(hop) == (true, true));
    closing.or_else(|| hops.iter().position(|hop| bound(hop) != (false, false)))
}

/// The id of a node whose key is this value, where every equal value is spelled the same.
fn key_text(of: Scalar, value: &Value) -> Option<String> {
    match (of, value) {
        (Scalar::String, Value::String(text)) => Some(text.clone()),
        (of, Value::Int(n)) if of.is_integer() => Some(n.to_string()),
        (Scalar::Date, Value::Date(days)) => Some(days.to_string()),
        _ => None,
    }
}

fn reversed(direction: Direction) -> Direction {
    match direction {
        Direction::Out => Direction::In,
        Direction::In => Direction::Out,
        Direction::Both => Direction::Both,
    }
}

/// Two patterns that share no variable.
fn cross(left: Row, right: Row) -> Result<Row> {
    let plan = LogicalPlanBuilder::from(left.plan)
        .cross_join(right.plan)?
        .build()?;
    let mut columns = left.columns;
    columns.extend(right.columns);
    let mut scores = left.scores;
    scores.extend(right.scores);
    Ok(Row {
        plan,
        columns,
        scores,
        selective: left.selective && right.selective,
        count: None,
        unique: None,
    })
}
