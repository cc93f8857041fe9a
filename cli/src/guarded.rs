//! The session as the prompt sees it: DDL on our catalog is refused with the name of the verb, which
//! DataFusion alone would answer with "does not exist" or, with `IF EXISTS`, not at all.

use std::sync::Arc;

use datafusion::dataframe::DataFrame;
use datafusion::error::DataFusionError;
use datafusion::execution::TaskContext;
use datafusion::execution::session_state::SessionState;
use datafusion::logical_expr::LogicalPlan;
use datafusion::prelude::SessionContext;
use datafusion_cli::cli_context::CliSessionContext;
use object_store::ObjectStore;
use stratagraph_udfs::{CATALOG, check_ddl};
use url::Url;

/// A session whose plans are checked before they run.
pub(crate) struct Guarded(pub SessionContext);

#[async_trait::async_trait]
impl CliSessionContext for Guarded {
    fn task_ctx(&self) -> Arc<TaskContext> {
        self.0.task_ctx()
    }

    fn session_state(&self) -> SessionState {
        self.0.state()
    }

    fn register_object_store(
        &self,
        url: &Url,
        object_store: Arc<dyn ObjectStore>,
    ) -> Option<Arc<dyn ObjectStore + 'static>> {
        self.0.register_object_store(url, object_store)
    }

    fn register_table_options_extension_from_scheme(&self, scheme: &str) {
        CliSessionContext::register_table_options_extension_from_scheme(&self.0, scheme);
    }

    async fn execute_logical_plan(&self, plan: LogicalPlan) -> Result<DataFrame, DataFusionError> {
        check_ddl(&plan, CATALOG)?;
        self.0.execute_logical_plan(plan).await
    }
}
