//! `compact_embeddings`: fewer fragments, no dead rows, the same content.

use std::sync::Arc;

use stratagraph::Result;
use stratagraph::catalog::resolve;
use stratagraph::ident::Name;
use stratagraph::publish::{CompactRequest, Merge, Requester, compact};
use stratagraph_providers::{ArgSpec, ArgType, ArgValue, BoundArgs, FunctionSpec, TableFunction};
use tracing::Instrument;

use super::finished;
use crate::engine::{Engine, Run, check_embeddings};
use crate::function::{ReportFunction, answer};
use crate::report::RefreshReport;

const VERB: &str = "compact_embeddings";

/// How a table is compacted.
#[derive(Debug, Clone, PartialEq)]
pub struct CompactOptions {
    /// What to merge.
    pub merge: Merge,
    /// Who asks.
    pub requester: Requester,
}

impl Default for CompactOptions {
    fn default() -> Self {
        Self {
            merge: Merge::All,
            requester: Requester::default(),
        }
    }
}

impl CompactOptions {
    /// Merges fragments of fewer than `max_bytes` bytes or with more than the share `min_masked`
    /// of dead rows; large clean ones stay with their segments.
    pub fn tiered(max_bytes: u64, min_masked: f64) -> Self {
        Self {
            merge: Merge::Tiered {
                max_bytes,
                min_masked,
            },
            ..Self::default()
        }
    }
}

/// Runs the verb. A full compaction is always published.
pub(crate) async fn compact_embeddings(
    run: &Run,
    name: &Name,
    options: CompactOptions,
) -> Result<RefreshReport> {
    let span = tracing::info_span!("compact_embeddings", table = %name);
    let work = async {
        run.host.check_writes(VERB)?;
        // What is merged is read over many awaits: no sweep of this process may delete it.
        let pin = run.catalog().pin().await?;
        let table = resolve::table(run.catalog().store(), &pin, name, None).await?;
        check_embeddings(&table)?;
        let stage = run.begin().await?;
        let request = CompactRequest {
            name: name.clone(),
            dataset: table.dataset.id,
            merge: options.merge,
            requester: options.requester,
        };
        let done = compact(run.catalog(), stage, request).await?;
        run.learn(name).await;
        let nothing = RefreshReport::nothing(&done.base, done.attempts);
        Ok(finished(match &done.published {
            None => nothing,
            Some(published) => nothing.published(published),
        }))
    };
    work.instrument(span).await
}

fn options(args: &BoundArgs) -> Result<CompactOptions> {
    let given = |name| !args.get(name).is_null();
    match args.opt_text("mode") {
        None | Some("full") => match ["max_bytes", "min_masked"].into_iter().find(|n| given(n)) {
            Some(name) => Err(args.invalid(name, "belongs to mode => 'tiered'")),
            None => Ok(CompactOptions::default()),
        },
        Some("tiered") => {
            let required = |name| args.invalid(name, "is required by mode => 'tiered'");
            let max_bytes = args.opt_unsigned("max_bytes")?;
            let max_bytes = max_bytes.ok_or_else(|| required("max_bytes"))?;
            let share = args.opt_float("min_masked");
            let share = share.ok_or_else(|| required("min_masked"))?;
            if !(0.0..=1.0).contains(&share) {
                return Err(args.invalid("min_masked", "expected a share from 0 to 1"));
            }
            Ok(CompactOptions::tiered(max_bytes, share))
        }
        Some(_) => Err(args.invalid("mode", "expected full or tiered")),
    }
}

/// The SQL function.
pub(crate) fn function(engine: &Arc<Engine>) -> Arc<dyn TableFunction> {
    let args = vec![
        ArgSpec::required("table", ArgType::Name),
        ArgSpec::or("mode", ArgType::Text, ArgValue::Text("full".to_owned())),
        ArgSpec::optional("max_bytes", ArgType::Int),
        ArgSpec::optional("min_masked", ArgType::Float),
    ];
    let spec = FunctionSpec::verb(VERB, args);
    ReportFunction::of::<RefreshReport>(engine, spec, |call| {
        Box::pin(async move {
            let (name, options) = (call.name("table")?, options(&call.args)?);
            answer(&[compact_embeddings(&call.run, &name, options).await?])
        })
    })
}
