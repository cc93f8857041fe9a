//! `refresh_embeddings` and `refresh_plan`: a table brought to the state of its source.

use std::sync::Arc;

use stratagraph::catalog::resolve::{self, TableSnapshot};
use stratagraph::embed::Handshake;
use stratagraph::ident::Name;
use stratagraph::publish::{Deletes, RefreshRequest, Refreshed, Requester, refresh};
use stratagraph::{Error, NotRefreshableReason, Result};
use stratagraph_providers::{ArgSpec, ArgType, ArgValue, BoundArgs, FunctionSpec, TableFunction};
use tracing::Instrument;

use super::finished;
use crate::engine::{Engine, Run, check_embeddings};
use crate::function::{ReportFunction, answer};
use crate::refresh::delta::RefreshSource;
use crate::refresh::included::Included;
use crate::report::{RefreshPlan, RefreshReport};

const VERB: &str = "refresh_embeddings";
const PLAN: &str = "refresh_plan";

/// How a table is refreshed.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct RefreshOptions {
    /// What becomes of rows whose key left the source.
    pub deletes: Deletes,
    /// Who asks.
    pub requester: Requester,
}

impl RefreshOptions {
    /// Rows whose key left the source stay.
    pub fn retain() -> Self {
        Self {
            deletes: Deletes::Retain,
            ..Self::default()
        }
    }
}

/// Everything that can refuse a refresh before its source is read: the table was made from a source
/// by the very model that this environment has.
async fn gate(run: &Run, table: &TableSnapshot, deletes: Deletes) -> Result<RefreshSource> {
    check_embeddings(table)?;
    let Some(definition) = run.engine.definition(table).await? else {
        return Err(Error::NotRefreshable {
            table: table.name.to_string(),
            reason: NotRefreshableReason::MissingContentHash,
        });
    };
    let model = run
        .engine
        .model_of(&table.name, &definition, Handshake::Fresh)
        .await?;
    let missing = || Error::corrupt("table manifest", table.name.as_str(), "a schema", "none");
    let schema = table.table.current_schema().ok_or_else(missing)?;
    let included = Included::of_table(schema)?;
    Ok(RefreshSource::new(
        run, definition, included, model, deletes,
    ))
}

/// Runs the verb.
pub(crate) async fn refresh_embeddings(
    run: &Run,
    name: &Name,
    options: RefreshOptions,
) -> Result<RefreshReport> {
    let span = tracing::info_span!("refresh_embeddings", table = %name);
    let work = async {
        run.host.check_writes(VERB)?;
        let head = run.catalog().look().await?;
        let table = resolve::table(run.catalog().store(), &head, name, None).await?;
        let source = gate(run, &table, options.deletes).await?;
        let stage = run.begin().await?;
        let request = RefreshRequest {
            name: name.clone(),
            dataset: table.dataset.id.clone(),
            deletes: options.deletes,
            requester: options.requester,
        };
        let refreshed = refresh(run.catalog(), stage, request, source).await?;
        run.learn(name).await;
        Ok(finished(report(&refreshed)))
    };
    work.instrument(span).await
}

fn report(refreshed: &Refreshed<RefreshSource>) -> RefreshReport {
    let tally = &refreshed.driver.tally;
    let nothing = RefreshReport {
        inferred_rows: tally.inferred,
        added: tally.classes.added,
        changed: tally.classes.changed,
        deleted: tally.classes.deleted,
        unchanged: tally.classes.unchanged,
        dropped_rows: tally.dropped,
        truncated_rows: tally.truncated,
        ..RefreshReport::nothing(&refreshed.base, refreshed.attempts)
    };
    match &refreshed.published {
        None => nothing,
        Some(published) => nothing.published(published),
    }
}

/// Counts what a refresh would do; runs no model and writes nothing.
pub(crate) async fn refresh_plan(run: &Run, name: &Name, deletes: Deletes) -> Result<RefreshPlan> {
    let span = tracing::info_span!("refresh_plan", table = %name);
    let work = async {
        let table = run.table(name, None).await?;
        let source = gate(run, &table, deletes).await?;
        let classes = source.plan(&table).await?;
        Ok(RefreshPlan {
            added: classes.added,
            changed: classes.changed,
            deleted: classes.deleted,
            unchanged: classes.unchanged,
            rejected_rows: classes.rejected,
        })
    };
    work.instrument(span).await
}

fn args() -> Vec<ArgSpec> {
    let tombstone = ArgValue::Text("tombstone".to_owned());
    vec![
        ArgSpec::required("table", ArgType::Name),
        ArgSpec::or("deletes", ArgType::Text, tombstone),
    ]
}

fn deletes(args: &BoundArgs) -> Result<Deletes> {
    match args.opt_text("deletes") {
        None | Some("tombstone") => Ok(Deletes::Tombstone),
        Some("retain") => Ok(Deletes::Retain),
        Some(_) => Err(args.invalid("deletes", "expected tombstone or retain")),
    }
}

/// The SQL functions.
pub(crate) fn functions(engine: &Arc<Engine>) -> [Arc<dyn TableFunction>; 2] {
    let verb = FunctionSpec::verb(VERB, args());
    let plan = FunctionSpec::read(PLAN, args());
    [
        ReportFunction::of::<RefreshReport>(engine, verb, |call| {
            Box::pin(async move {
                let options = RefreshOptions {
                    deletes: deletes(&call.args)?,
                    ..RefreshOptions::default()
                };
                let name = call.name("table")?;
                answer(&[refresh_embeddings(&call.run, &name, options).await?])
            })
        }),
        ReportFunction::of::<RefreshPlan>(engine, plan, |call| {
            Box::pin(async move {
                let (name, deletes) = (call.name("table")?, deletes(&call.args)?);
                answer(&[refresh_plan(&call.run, &name, deletes).await?])
            })
        }),
    ]
}
