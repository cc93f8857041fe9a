//! Plans inside a scan: the host's logical optimizer once, our own physical planner, and none of the
//! host's physical rules, which see the one tree of the statement later.

use std::any::Any;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use datafusion::catalog::{CatalogProviderList, Session};
use datafusion::common::config::{ConfigOptions, TableOptions};
use datafusion::common::{DFSchema, internal_err};
use datafusion::error::Result;
use datafusion::execution::TaskContext;
use datafusion::execution::context::QueryPlanner;
use datafusion::execution::runtime_env::RuntimeEnv;
use datafusion::logical_expr::execution_props::ExecutionProps;
use datafusion::logical_expr::registry::ExtensionTypeRegistryRef;
use datafusion::logical_expr::{
    AggregateUDF, Expr, HigherOrderUDF, LogicalPlan, ScalarUDF, WindowUDF,
};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::empty::EmptyExec;
use datafusion::physical_planner::{DefaultPhysicalPlanner, PhysicalPlanner};
use datafusion::prelude::SessionConfig;

use crate::exec::{ExpandPlanner, HydratePlanner, MatchPlanner, RankPlanner};

/// Optimises a plan with the host's rules and plans it with ours; the physical plan is not optimised
/// yet, and must become part of a plan that the host optimises.
///
/// # Errors
/// Those of the optimizer and of the planner.
pub async fn plan_inner(state: &dyn Session, plan: &LogicalPlan) -> Result<Arc<dyn ExecutionPlan>> {
    let optimized = state.optimize(plan)?;
    let capture = Arc::new(Capture::default());
    let rule: Arc<dyn PhysicalOptimizerRule + Send + Sync> = Arc::clone(&capture) as _;
    let session = InnerSession {
        host: state,
        table_options: state.table_options().clone(),
        rules: vec![rule],
    };
    planner().create_physical_plan(&optimized, &session).await?;
    let captured = capture.0.lock().unwrap_or_else(PoisonError::into_inner);
    match captured.as_ref() {
        Some(plan) => Ok(Arc::clone(plan)),
        None => internal_err!("the planner of a pattern ran no rule"),
    }
}

fn planner() -> DefaultPhysicalPlanner {
    DefaultPhysicalPlanner::with_extension_planners(vec![
        Arc::new(ExpandPlanner),
        Arc::new(RankPlanner),
        Arc::new(MatchPlanner),
        Arc::new(HydratePlanner),
    ])
}

/// Keeps the first plan that it sees. The planner checks that a plan can be executed after its rules,
/// which this one cannot yet: an empty plan takes its place.
#[derive(Debug, Default)]
struct Capture(Mutex<Option<Arc<dyn ExecutionPlan>>>);

impl PhysicalOptimizerRule for Capture {
    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        _config: &ConfigOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let schema = plan.schema();
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(plan);
        Ok(Arc::new(EmptyExec::new(schema)))
    }

    fn name(&self) -> &str {
        "stratagraph_capture"
    }

    fn schema_check(&self) -> bool {
        true
    }
}

/// The host's session with our physical rules in place of its own.
struct InnerSession<'a> {
    host: &'a dyn Session,
    table_options: TableOptions,
    rules: Vec<Arc<dyn PhysicalOptimizerRule + Send + Sync>>,
}

#[async_trait]
impl Session for InnerSession<'_> {
    fn session_id(&self) -> &str {
        self.host.session_id()
    }

    fn config(&self) -> &SessionConfig {
        self.host.config()
    }

    fn catalog_list(&self) -> Arc<dyn CatalogProviderList> {
        self.host.catalog_list()
    }

    fn query_planner(&self) -> Arc<dyn QueryPlanner + Send + Sync> {
        self.host.query_planner()
    }

    fn optimize(&self, plan: &LogicalPlan) -> Result<LogicalPlan> {
        self.host.optimize(plan)
    }

    fn physical_optimizers(&self) -> &[Arc<dyn PhysicalOptimizerRule + Send + Sync>] {
        &self.rules
    }

    async fn create_physical_plan(&self, plan: &LogicalPlan) -> Result<Arc<dyn ExecutionPlan>> {
        let optimized = self.host.optimize(plan)?;
        planner().create_physical_plan(&optimized, self).await
    }

    fn create_physical_expr(&self, expr: Expr, schema: &DFSchema) -> Result<Arc<dyn PhysicalExpr>> {
        self.host.create_physical_expr(expr, schema)
    }

    fn scalar_functions(&self) -> &HashMap<String, Arc<ScalarUDF>> {
        self.host.scalar_functions()
    }

    fn higher_order_functions(&self) -> &HashMap<String, Arc<HigherOrderUDF>> {
        self.host.higher_order_functions()
    }

    fn aggregate_functions(&self) -> &HashMap<String, Arc<AggregateUDF>> {
        self.host.aggregate_functions()
    }

    fn window_functions(&self) -> &HashMap<String, Arc<WindowUDF>> {
        self.host.window_functions()
    }

    fn extension_type_registry(&self) -> &ExtensionTypeRegistryRef {
        self.host.extension_type_registry()
    }

    fn runtime_env(&self) -> &Arc<RuntimeEnv> {
        self.host.runtime_env()
    }

    fn execution_props(&self) -> &ExecutionProps {
        self.host.execution_props()
    }

    fn as_any(&self) -> &dyn Any {
        self.host.as_any()
    }

    fn table_options(&self) -> &TableOptions {
        &self.table_options
    }

    fn table_options_mut(&mut self) -> &mut TableOptions {
        &mut self.table_options
    }

    fn task_ctx(&self) -> Arc<TaskContext> {
        self.host.task_ctx()
    }
}
