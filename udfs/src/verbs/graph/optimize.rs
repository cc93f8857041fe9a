//! `graph_optimize`: one fragment a type, no dead rows, every index that is declared.

use std::sync::Arc;

use stratagraph::publish::Requester;
use stratagraph::publish::optimize::{OptimizeRequest, optimize};
use stratagraph::{Error, Result};
use stratagraph_providers::{ArgSpec, ArgType, FunctionSpec, TableFunction};
use tracing::Instrument;

use super::query::graph_and_branch;
use crate::engine::{Engine, Run};
use crate::function::{ReportFunction, answer};
use crate::report::GraphOptimizeRow;
use crate::verbs::finished;

const VERB: &str = "graph_optimize";
/// Times that it begins again because a garbage collection fenced it.
const FENCED_ATTEMPTS: u32 = 4;

/// Runs the verb. Writers of the branch neither wait for it nor fail because of it.
pub(crate) async fn graph_optimize(
    run: &Run,
    graph: &str,
    branch: Option<&str>,
) -> Result<Vec<GraphOptimizeRow>> {
    let (graph, branch) = graph_and_branch(VERB, graph, branch)?;
    let span = tracing::info_span!("graph_optimize", %graph, %branch);
    let work = async {
        run.host.check_writes(VERB)?;
        let env = run.host.env(run.catalog().env());
        let request = OptimizeRequest {
            graph: graph.clone(),
            branch: branch.clone(),
            requester: Requester::default(),
        };
        let mut attempt = 1;
        let done = loop {
            let stage = run.begin().await?;
            match optimize(run.catalog(), &env, stage, request.clone()).await {
                // What was merged may be deleted by now: it is merged anew.
                Err(Error::WriterFenced { .. }) if attempt < FENCED_ATTEMPTS => attempt += 1,
                other => break other?,
            }
        };
        if done.commit.is_some() {
            run.learn_branch(&graph, &branch).await;
        }
        let row = |of: stratagraph::publish::optimize::TypeFragments| GraphOptimizeRow {
            r#type: of.name,
            fragments_before: of.before,
            fragments_after: of.after,
            commit_id: done.head.clone(),
        };
        let rows: Vec<GraphOptimizeRow> = done.types.into_iter().map(row).collect();
        Ok(finished(rows))
    };
    work.instrument(span).await
}

/// The SQL function.
pub(crate) fn function(engine: &Arc<Engine>) -> Arc<dyn TableFunction> {
    let args = vec![
        ArgSpec::required("graph", ArgType::Name),
        ArgSpec::optional("branch", ArgType::Name),
    ];
    let spec = FunctionSpec::verb(VERB, args);
    ReportFunction::of::<GraphOptimizeRow>(engine, spec, |call| {
        Box::pin(async move {
            let (graph, branch) = (call.args.text("graph")?, call.args.opt_text("branch"));
            answer(&graph_optimize(&call.run, graph, branch).await?)
        })
    })
}
