//! `embedding_models`: what a call can name as a model without a path or an address.

use std::sync::Arc;

use stratagraph::Result;
use stratagraph::embed::default_model;
use stratagraph_providers::{FunctionSpec, TableFunction};

use crate::engine::{Engine, Run};
use crate::function::{ReportFunction, answer};
use crate::report::ModelRow;

/// The default model and the registered ones, by name.
pub(crate) fn embedding_models(run: &Run) -> Result<Vec<ModelRow>> {
    let (spec, model) = run.engine.model(None)?;
    let mut rows: Vec<ModelRow> = run
        .engine
        .models
        .list()
        .into_iter()
        .map(|(name, model)| ModelRow {
            model: name,
            spec: model.spec().to_owned(),
            dimensions: model.dimensions() as u64,
            is_default: false,
        })
        .collect();
    rows.push(ModelRow {
        model: default_model().to_owned(),
        spec,
        dimensions: model.dimensions() as u64,
        is_default: true,
    });
    rows.sort_by(|a, b| a.model.cmp(&b.model));
    Ok(rows)
}

/// The SQL function.
pub(crate) fn function(engine: &Arc<Engine>) -> Arc<dyn TableFunction> {
    let spec = FunctionSpec::read("embedding_models", Vec::new());
    ReportFunction::of::<ModelRow>(engine, spec, |call| {
        Box::pin(async move { answer(&embedding_models(&call.run)?) })
    })
}
