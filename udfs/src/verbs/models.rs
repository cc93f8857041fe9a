//! `embedding_models`: what a call can name as a model without a path or an address.

use std::sync::Arc;

use stratagraph::Result;
use stratagraph::embed::{Embedder, Handshake};
use stratagraph_providers::{FunctionSpec, TableFunction};

use crate::engine::{Engine, Run};
use crate::function::{ReportFunction, answer};
use crate::report::ModelRow;

/// The session's default model and the registered ones, by name.
pub(crate) async fn embedding_models(run: &Run) -> Result<Vec<ModelRow>> {
    let default = run.host.settings().default_model;
    let registered = run.engine.models.list();
    let is_registered = registered.iter().any(|(name, _)| *name == default);
    let row = |name: String, model: Arc<dyn Embedder>| ModelRow {
        is_default: name == default,
        spec: model.spec().to_owned(),
        dimensions: model.dimensions() as u64,
        local: model.sync().is_some(),
        definition_hash: model.definition().hash().to_string(),
        model: name,
    };
    let mut rows = Vec::new();
    if !is_registered {
        let (_, model) = run.engine.model(&default, Handshake::Known).await?;
        rows.push(row(default.clone(), model));
    }
    rows.extend(registered.into_iter().map(|(name, model)| row(name, model)));
    rows.sort_by(|a, b| a.model.cmp(&b.model));
    Ok(rows)
}

/// The SQL function.
pub(crate) fn function(engine: &Arc<Engine>) -> Arc<dyn TableFunction> {
    let spec = FunctionSpec::read("embedding_models", Vec::new());
    ReportFunction::of::<ModelRow>(engine, spec, |call| {
        Box::pin(async move { answer(&embedding_models(&call.run).await?) })
    })
}
