//! `rename_embeddings`: another name for a table.

use std::sync::Arc;

use stratagraph::Result;
use stratagraph::ident::Name;
use stratagraph::publish::rename;
use stratagraph_providers::{ArgSpec, ArgType, FunctionSpec, TableFunction};
use tracing::Instrument;

use crate::engine::{Engine, Run};
use crate::function::{ReportFunction, answer};
use crate::report::DropReport;

const VERB: &str = "rename_embeddings";

/// Runs the verb. Versions, pins and dependents stay what they are.
pub(crate) async fn rename_embeddings(run: &Run, from: &Name, to: &Name) -> Result<DropReport> {
    let span = tracing::info_span!("rename_embeddings", table = %from, name = %to);
    let work = async {
        run.host.check_writes(VERB)?;
        let stage = run.begin().await?;
        rename(run.catalog(), stage, from.clone(), to.clone()).await?;
        run.learn(to).await;
        Ok(DropReport {
            table: to.to_string(),
            outcome: "renamed".to_owned(),
        })
    };
    work.instrument(span).await
}

/// The SQL function.
pub(crate) fn function(engine: &Arc<Engine>) -> Arc<dyn TableFunction> {
    let args = vec![
        ArgSpec::required("table", ArgType::Name),
        ArgSpec::required("name", ArgType::Name),
    ];
    ReportFunction::of::<DropReport>(engine, FunctionSpec::verb(VERB, args), |call| {
        Box::pin(async move {
            let (from, to) = (call.name("table")?, call.name("name")?);
            answer(&[rename_embeddings(&call.run, &from, &to).await?])
        })
    })
}
