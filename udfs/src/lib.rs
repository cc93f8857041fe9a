//! STUB of the SQL surface: one table function, `stub_verb(code)`, that fails with a typed error.

use std::sync::Arc;

use datafusion::catalog::{TableFunctionArgs, TableFunctionImpl, TableProvider};
use datafusion::error::DataFusionError;
use datafusion::prelude::SessionContext;
use stratagraph::embed::ModelPolicy;
use stratagraph::env::{Env, Progress};
use stratagraph::{Error, Result};

/// How the plugin is installed.
#[derive(Debug, Clone)]
pub struct Options {
    root: String,
}

impl Options {
    /// The store at `root`.
    pub fn new(root: impl Into<String>) -> Self {
        Self { root: root.into() }
    }
    /// Progress.
    pub fn with_progress(self, _progress: Arc<dyn Progress>) -> Self {
        self
    }
    /// Models.
    pub fn with_model_policy(self, _policy: ModelPolicy) -> Self {
        self
    }
    /// Environment.
    pub fn with_env(self, _env: Env) -> Self {
        self
    }
}

/// The handle.
#[derive(Debug)]
pub struct Stratagraph;

/// Installs the plugin.
pub async fn install(ctx: &SessionContext, options: Options) -> Result<Stratagraph> {
    for verb in ["refresh_embeddings", "generate_embeddings"] {
        ctx.register_udtf(verb, Arc::new(Stub(verb, options.root.clone())));
    }
    Ok(Stratagraph)
}

/// The typed error inside `error`.
pub fn find_error(error: &DataFusionError) -> Option<&Error> {
    match error.find_root() {
        DataFusionError::External(inner) => inner.downcast_ref(),
        _ => None,
    }
}

#[derive(Debug)]
struct Stub(&'static str, String);

impl TableFunctionImpl for Stub {
    fn call_with_args(
        &self,
        _args: TableFunctionArgs,
    ) -> datafusion::error::Result<Arc<dyn TableProvider>> {
        if self.0 == "generate_embeddings" {
            let _ = std::fs::create_dir_all(&self.1);
            let schema = Arc::new(datafusion::arrow::datatypes::Schema::empty());
            return Ok(Arc::new(datafusion::datasource::empty::EmptyTable::new(
                schema,
            )));
        }
        Err(DataFusionError::External(Box::new(Error::NotFound {
            what: "embedding table",
            name: "nope".to_owned(),
        })))
    }
}
