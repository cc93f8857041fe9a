//! Scalar functions.

mod content_hash;
mod embed;
mod embed_function;
mod embed_remote;
mod embed_rows;
mod not_yet;

use std::sync::Arc;

use datafusion::logical_expr::ScalarUDF;
use stratagraph_providers::Settings;

pub(crate) use content_hash::ContentHash;
pub(crate) use embed_remote::RemoteCalls;

use crate::engine::Engine;

/// All scalar functions of the plugin, for a session with these settings.
pub(crate) fn all(engine: &Arc<Engine>, settings: &Settings) -> Vec<ScalarUDF> {
    let mut all = vec![ScalarUDF::new_from_impl(ContentHash::new())];
    all.extend(embed::all(engine, settings));
    all.extend(not_yet::all());
    all
}
