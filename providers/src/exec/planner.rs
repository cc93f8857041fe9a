//! The planner of the operators that DataFusion does not have.

use std::sync::Arc;

use async_trait::async_trait;
use datafusion::catalog::Session;
use datafusion::common::internal_err;
use datafusion::error::Result;
use datafusion::logical_expr::physical_planning_context::PhysicalPlanningContext;
use datafusion::logical_expr::{LogicalPlan, UserDefinedLogicalNode};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_planner::{ExtensionPlanner, PhysicalPlanner};

use super::expand::ExpandExec;
use super::expand_node::ExpandNode;
use super::hydrate::HydrateExec;
use super::hydrate_node::HydrateNode;
use super::match_node::MatchNode;
use super::matching::MatchExec;
use super::rank::RankExec;
use super::rank_node::RankNode;

/// Plans [`ExpandNode`] as [`ExpandExec`]. For the inner physical planner of a graph query.
#[derive(Debug, Default, Clone, Copy)]
pub struct ExpandPlanner;

#[async_trait]
impl ExtensionPlanner for ExpandPlanner {
    async fn plan_extension(
        &self,
        planner: &dyn PhysicalPlanner,
        node: &dyn UserDefinedLogicalNode,
        _logical_inputs: &[&LogicalPlan],
        physical_inputs: &[Arc<dyn ExecutionPlan>],
        session: &dyn Session,
        planning_ctx: &PhysicalPlanningContext,
    ) -> Result<Option<Arc<dyn ExecutionPlan>>> {
        let Some(node) = node.as_any().downcast_ref::<ExpandNode>() else {
            return Ok(None);
        };
        let [input] = physical_inputs else {
            return internal_err!("a traversal has one input");
        };
        let schema = node.input().schema();
        let src: Arc<dyn PhysicalExpr> =
            planner.create_physical_expr(node.src(), schema, session, planning_ctx)?;
        let Some(src) = src.downcast_ref::<Column>() else {
            return internal_err!("the source of a traversal is a column");
        };
        let (edge, spec) = (node.edge().clone(), node.spec().clone());
        let mut plan = ExpandExec::try_new(Arc::clone(input), src.clone(), edge, spec)?;
        if let Some(target) = node.target() {
            let target: Arc<dyn PhysicalExpr> =
                planner.create_physical_expr(target, schema, session, planning_ctx)?;
            let Some(target) = target.downcast_ref::<Column>() else {
                return internal_err!("the target of a traversal is a column");
            };
            plan = plan.with_target(target.clone())?;
        }
        Ok(Some(Arc::new(plan)))
    }
}

/// Plans [`RankNode`] as [`RankExec`]. For the inner physical planner of a graph query.
#[derive(Debug, Default, Clone, Copy)]
pub struct RankPlanner;

#[async_trait]
impl ExtensionPlanner for RankPlanner {
    async fn plan_extension(
        &self,
        planner: &dyn PhysicalPlanner,
        node: &dyn UserDefinedLogicalNode,
        _logical_inputs: &[&LogicalPlan],
        physical_inputs: &[Arc<dyn ExecutionPlan>],
        session: &dyn Session,
        planning_ctx: &PhysicalPlanningContext,
    ) -> Result<Option<Arc<dyn ExecutionPlan>>> {
        let Some(node) = node.as_any().downcast_ref::<RankNode>() else {
            return Ok(None);
        };
        let [input] = physical_inputs else {
            return internal_err!("a ranking has one input");
        };
        let schema = node.input().schema();
        let mut rids = Vec::with_capacity(node.rids().len());
        for rid in node.rids() {
            let rid: Arc<dyn PhysicalExpr> =
                planner.create_physical_expr(rid, schema, session, planning_ctx)?;
            let Some(rid) = rid.downcast_ref::<Column>() else {
                return internal_err!("what a ranking is of is a column");
            };
            rids.push(rid.clone());
        }
        let plan = RankExec::try_new(Arc::clone(input), rids, node.spec().clone())?;
        Ok(Some(Arc::new(plan)))
    }
}

/// Plans [`MatchNode`] as [`MatchExec`]. For the inner physical planner of a graph query.
#[derive(Debug, Default, Clone, Copy)]
pub struct MatchPlanner;

#[async_trait]
impl ExtensionPlanner for MatchPlanner {
    async fn plan_extension(
        &self,
        _planner: &dyn PhysicalPlanner,
        node: &dyn UserDefinedLogicalNode,
        _logical_inputs: &[&LogicalPlan],
        physical_inputs: &[Arc<dyn ExecutionPlan>],
        session: &dyn Session,
        _planning_ctx: &PhysicalPlanningContext,
    ) -> Result<Option<Arc<dyn ExecutionPlan>>> {
        let Some(node) = node.as_any().downcast_ref::<MatchNode>() else {
            return Ok(None);
        };
        let partitions = session.config().target_partitions();
        let (of, spec) = (node.of().to_vec(), node.spec().clone());
        let plan = MatchExec::new(physical_inputs.to_vec(), of, spec, partitions);
        Ok(Some(Arc::new(plan)))
    }
}

/// Plans [`HydrateNode`] as [`HydrateExec`]. For the inner physical planner of a graph query.
#[derive(Debug, Default, Clone, Copy)]
pub struct HydratePlanner;

#[async_trait]
impl ExtensionPlanner for HydratePlanner {
    async fn plan_extension(
        &self,
        _planner: &dyn PhysicalPlanner,
        node: &dyn UserDefinedLogicalNode,
        _logical_inputs: &[&LogicalPlan],
        physical_inputs: &[Arc<dyn ExecutionPlan>],
        _session: &dyn Session,
        _planning_ctx: &PhysicalPlanningContext,
    ) -> Result<Option<Arc<dyn ExecutionPlan>>> {
        let Some(node) = node.as_any().downcast_ref::<HydrateNode>() else {
            return Ok(None);
        };
        let [rows, scan] = physical_inputs else {
            return internal_err!("a hydration has two inputs");
        };
        let (rows, scan) = (Arc::clone(rows), Arc::clone(scan));
        let plan = HydrateExec::try_new(rows, scan, node.spec().clone())?;
        Ok(Some(Arc::new(plan)))
    }
}
