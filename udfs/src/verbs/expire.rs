//! `expire_versions`: older versions and what only they referenced, gone.

use std::sync::Arc;

use stratagraph::Result;
use stratagraph::catalog::{Expire, resolve};
use stratagraph::ident::{BranchName, Name};
use stratagraph_providers::{ArgSpec, ArgType, ArgValue, FunctionSpec, TableFunction};
use tracing::Instrument;

use super::finished;
use crate::engine::{Engine, Run};
use crate::function::{ReportFunction, answer};
use crate::report::ExpireReport;

const VERB: &str = "expire_versions";

/// Runs the verb. The versions go with one commit; only then are objects deleted.
pub(crate) async fn expire_versions(
    run: &Run,
    name: &Name,
    before: u64,
    include_base: bool,
) -> Result<ExpireReport> {
    let span = tracing::info_span!("expire_versions", table = %name, before);
    let work = async {
        run.host.check_writes(VERB)?;
        let head = run.catalog().look().await?;
        // A graph of this name is expired by another verb.
        let entry = resolve::embedding_dataset(run.catalog().store(), &head, name).await?;
        let expire = Expire {
            name: name.clone(),
            dataset: Some(entry.id),
            branch: BranchName::main(),
            branch_id: None,
            before,
            include_base,
            expired: Vec::new(),
        };
        let (mut expired, swept) = run.catalog().expire(expire).await?;
        run.learn(name).await;
        expired.sort_unstable();
        let numbers: Vec<String> = expired.iter().map(u64::to_string).collect();
        Ok(finished(ExpireReport {
            table: name.to_string(),
            expired_versions: numbers.join(","),
            objects_deleted: swept.objects,
        }))
    };
    work.instrument(span).await
}

/// The SQL function.
pub(crate) fn function(engine: &Arc<Engine>) -> Arc<dyn TableFunction> {
    let args = vec![
        ArgSpec::required("table", ArgType::Name),
        ArgSpec::required("before", ArgType::Int),
        ArgSpec::or("include_base", ArgType::Bool, ArgValue::Bool(false)),
    ];
    let spec = FunctionSpec::verb(VERB, args);
    ReportFunction::of::<ExpireReport>(engine, spec, |call| {
        Box::pin(async move {
            let (name, base) = (call.name("table")?, call.args.flag("include_base"));
            let before = call.args.opt_unsigned("before")?.unwrap_or(0);
            answer(&[expire_versions(&call.run, &name, before, base).await?])
        })
    })
}
