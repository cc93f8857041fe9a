//! Scalar functions.

mod content_hash;
mod not_yet;

use datafusion::logical_expr::ScalarUDF;

pub(crate) use content_hash::ContentHash;

/// All scalar functions of the plugin.
pub(crate) fn all() -> Vec<ScalarUDF> {
    let mut all = vec![ScalarUDF::new_from_impl(ContentHash::new())];
    all.extend(not_yet::all());
    all
}
