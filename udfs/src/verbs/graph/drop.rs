//! `graph_drop`: a graph that is no more, with all its branches.

use std::sync::Arc;

use stratagraph::Result;
use stratagraph::catalog::graph::graph_dataset;
use stratagraph::ident::{BranchName, Name};
use stratagraph_providers::{ArgSpec, ArgType, FunctionSpec, TableFunction};
use tracing::Instrument;

use crate::authorize::GraphAction;
use crate::engine::{Engine, Run};
use crate::function::{ReportFunction, answer};
use crate::report::GraphDropReport;

const VERB: &str = "graph_drop";

/// Runs the verb. The graph's objects go with the next garbage collection.
pub(crate) async fn graph_drop(run: &Run, name: &Name) -> Result<GraphDropReport> {
    let span = tracing::info_span!("graph_drop", graph = %name);
    let work = async {
        run.host.check_writes(VERB)?;
        let (requester, main) = (run.requester(), BranchName::main());
        run.authorize(&requester, GraphAction::SchemaApply, name, &main)?;
        let head = run.catalog().look().await?;
        // An embedding table of this name is not dropped by this verb.
        graph_dataset(run.catalog().store(), &head, name).await?;
        run.catalog().drop_dataset(name).await?;
        run.learn_graph(name).await;
        Ok(GraphDropReport {
            graph: name.to_string(),
            outcome: "dropped".to_owned(),
        })
    };
    work.instrument(span).await
}

/// The SQL function.
pub(crate) fn function(engine: &Arc<Engine>) -> Arc<dyn TableFunction> {
    let args = vec![ArgSpec::required("graph", ArgType::Name)];
    let spec = FunctionSpec::verb(VERB, args);
    ReportFunction::of::<GraphDropReport>(engine, spec, |call| {
        Box::pin(async move {
            let name = call.name("graph")?;
            answer(&[graph_drop(&call.run, &name).await?])
        })
    })
}
