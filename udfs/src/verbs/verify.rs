//! `verify_materialization`: every artifact of the current version, read and compared.

use std::sync::Arc;

use stratagraph::ident::Name;
use stratagraph::table::verify::{Check, Verdict, verify};
use stratagraph::{Error, Result};
use stratagraph_providers::{ArgSpec, ArgType, FunctionSpec, TableFunction};
use tracing::Instrument;

use crate::engine::{Engine, Run};
use crate::function::{ReportFunction, answer};
use crate::report::VerifyRow;

fn row(check: Check) -> VerifyRow {
    VerifyRow {
        artifact: check.artifact,
        kind: check.kind.to_owned(),
        expected: check.expected,
        found: check.found,
        verdict: check.verdict.as_str().to_owned(),
    }
}

/// A manifest that is damaged is a finding like any other; nothing below it can be named then.
fn damaged(name: &Name, path: String, expected: String, found: String) -> Vec<VerifyRow> {
    let identity = VerifyRow {
        artifact: name.to_string(),
        kind: "identity".to_owned(),
        expected: String::new(),
        found: "the version manifest cannot be read".to_owned(),
        verdict: Verdict::Unreadable.as_str().to_owned(),
    };
    let manifest = VerifyRow {
        artifact: path,
        kind: "manifest".to_owned(),
        expected,
        found,
        verdict: Verdict::Mismatch.as_str().to_owned(),
    };
    vec![manifest, identity]
}

/// Checks the current version; the last row has kind `identity`.
///
/// # Errors
/// `NotFound`, and `VersionUnavailable` for a version whose manifest is gone.
pub(crate) async fn verify_materialization(run: &Run, name: &Name) -> Result<Vec<VerifyRow>> {
    let span = tracing::info_span!("verify_materialization", table = %name);
    let work = async {
        let table = match run.table(name, None).await {
            Err(Error::Corrupt {
                path,
                expected,
                found,
                ..
            }) => {
                return Ok(damaged(name, path, expected, found));
            }
            other => other?,
        };
        let (store, env) = (run.catalog().store(), run.host.env(run.catalog().env()));
        let checks = verify(store, &env, &table.manifest, &table.manifest_ref).await;
        Ok(checks.into_iter().map(row).collect())
    };
    work.instrument(span).await
}

/// The SQL function.
pub(crate) fn function(engine: &Arc<Engine>) -> Arc<dyn TableFunction> {
    let args = vec![ArgSpec::required("table", ArgType::Name)];
    let spec = FunctionSpec::read("verify_materialization", args);
    ReportFunction::of::<VerifyRow>(engine, spec, |call| {
        Box::pin(async move {
            let name = call.name("table")?;
            answer(&verify_materialization(&call.run, &name).await?)
        })
    })
}
