//! `restore_version`: the content of an older version as a new one.

use std::sync::Arc;

use stratagraph::catalog::resolve;
use stratagraph::ident::Name;
use stratagraph::publish::{Published, Requester, RestoreRequest, restore};
use stratagraph::{Error, Result};
use stratagraph_providers::{ArgSpec, ArgType, FunctionSpec, TableFunction};
use tracing::Instrument;

use super::finished;
use crate::engine::{Engine, Run, check_embeddings};
use crate::function::{ReportFunction, answer};
use crate::report::RefreshReport;

const VERB: &str = "restore_version";

/// Runs the verb.
pub(crate) async fn restore_version(run: &Run, name: &Name, version: u64) -> Result<RefreshReport> {
    let span = tracing::info_span!("restore_version", table = %name, version);
    let work = async {
        run.host.check_writes(VERB)?;
        let done = match once(run, name, version).await {
            // An expiry has rewritten the manifest of a version that is still there.
            Err(Error::HistoricalVersionReclaimed { .. }) => once(run, name, version).await,
            other => other,
        };
        let (published, attempts) = done?;
        run.learn(name).await;
        Ok(finished(RefreshReport::of(name, &published, attempts)))
    };
    work.instrument(span).await
}

async fn once(run: &Run, name: &Name, version: u64) -> Result<(Published, u32)> {
    let stage = run.begin().await?;
    let pin = run.catalog().pin().await?;
    let store = run.catalog().store();
    check_embeddings(&resolve::table(store, &pin, name, Some(version)).await?)?;
    let request = RestoreRequest {
        name: name.clone(),
        version,
        requester: Requester::default(),
    };
    restore(run.catalog(), stage, request).await
}

/// The SQL function.
pub(crate) fn function(engine: &Arc<Engine>) -> Arc<dyn TableFunction> {
    let args = vec![
        ArgSpec::required("table", ArgType::Name),
        ArgSpec::required("version", ArgType::Int),
    ];
    ReportFunction::of::<RefreshReport>(engine, FunctionSpec::verb(VERB, args), |call| {
        Box::pin(async move {
            let version = call.args.opt_unsigned("version")?.unwrap_or(0);
            let name = call.name("table")?;
            answer(&[restore_version(&call.run, &name, version).await?])
        })
    })
}
