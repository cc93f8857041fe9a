//! `restore_version`: the content of an older version as a new one.

use std::sync::Arc;

use stratagraph::Result;
use stratagraph::catalog::resolve;
use stratagraph::ident::Name;
use stratagraph::publish::{Requester, RestoreRequest, restore};
use stratagraph_providers::{ArgSpec, ArgType, FunctionSpec, TableFunction};
use tracing::Instrument;

use crate::engine::{Engine, Run, check_embeddings};
use crate::function::{ReportFunction, answer};
use crate::report::RefreshReport;

const VERB: &str = "restore_version";

/// Runs the verb.
pub(crate) async fn restore_version(run: &Run, name: &Name, version: u64) -> Result<RefreshReport> {
    let span = tracing::info_span!("restore_version", table = %name, version);
    let work = async {
        run.host.check_writes(VERB)?;
        let stage = run.catalog().begin().await?;
        let pin = run.catalog().pin().await?;
        let store = run.catalog().store();
        check_embeddings(&resolve::table(store, &pin, name, Some(version)).await?)?;
        let request = RestoreRequest {
            name: name.clone(),
            version,
            requester: Requester::default(),
        };
        let (published, attempts) = restore(run.catalog(), stage, request).await?;
        drop(pin);
        run.learn(name).await;
        let head = run.catalog().known().await?;
        let now = Some(published.version);
        let table = resolve::table(run.catalog().store(), &head, name, now).await?;
        Ok(RefreshReport::nothing(&table, attempts).published(&published))
    };
    work.instrument(span).await
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
