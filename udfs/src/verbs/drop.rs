//! `drop_embeddings`: a table that is no more.

use std::sync::Arc;

use stratagraph::Result;
use stratagraph::catalog::resolve;
use stratagraph::ident::Name;
use stratagraph_providers::{ArgSpec, ArgType, FunctionSpec, TableFunction};
use tracing::Instrument;

use crate::engine::{Engine, Run};
use crate::function::{ReportFunction, answer};
use crate::report::DropReport;

const VERB: &str = "drop_embeddings";

/// Runs the verb. The table's objects go with the next garbage collection.
pub(crate) async fn drop_embeddings(run: &Run, name: &Name) -> Result<DropReport> {
    let span = tracing::info_span!("drop_embeddings", table = %name);
    let work = async {
        run.host.check_writes(VERB)?;
        let head = run.catalog().look().await?;
        // A graph of this name is not dropped by this verb.
        resolve::embedding_dataset(run.catalog().store(), &head, name).await?;
        run.catalog().drop_dataset(name).await?;
        run.learn(name).await;
        Ok(DropReport {
            table: name.to_string(),
            outcome: "dropped".to_owned(),
        })
    };
    work.instrument(span).await
}

/// The SQL function.
pub(crate) fn function(engine: &Arc<Engine>) -> Arc<dyn TableFunction> {
    let args = vec![ArgSpec::required("table", ArgType::Name)];
    let spec = FunctionSpec::verb(VERB, args);
    ReportFunction::of::<DropReport>(engine, spec, |call| {
        Box::pin(async move {
            let name = call.name("table")?;
            answer(&[drop_embeddings(&call.run, &name).await?])
        })
    })
}
