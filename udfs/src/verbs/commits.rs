//! `commits` and `commit_status`: what was committed, by whom, and what became of a transaction.

use std::collections::BTreeMap;
use std::sync::Arc;

use futures::{StreamExt, TryStreamExt, stream};
use stratagraph::Result;
use stratagraph::catalog::Head;
use stratagraph::catalog::history::HistoryEntry;
use stratagraph::catalog::manifest::BranchManifest;
use stratagraph::catalog::slot::{BranchEntry, CommitRecord, SlotBody};
use stratagraph::catalog::{Status, resolve};
use stratagraph::ident::{BranchName, Name, TxnId};
use stratagraph_providers::{ArgSpec, ArgType, FunctionSpec, TableFunction};

use crate::engine::{Engine, Run};
use crate::function::{ReportFunction, answer};
use crate::report::{CommitRow, CommitStatus, Micros};

/// Slots that are read at once.
const CONCURRENT: usize = 16;

/// Which commits to list.
#[derive(Debug, Clone, Default)]
pub struct CommitFilter {
    /// Only of this dataset.
    pub dataset: Option<String>,
    /// Only of this branch.
    pub branch: Option<String>,
}

impl CommitFilter {
    fn wants_dataset(&self, name: &str) -> bool {
        self.dataset.as_deref().is_none_or(|wanted| wanted == name)
    }

    fn wants_branch(&self, name: &str) -> bool {
        self.branch.as_deref().is_none_or(|wanted| wanted == name)
    }
}

/// Commits of the retained versions, newest first, and of the other commits (pins, expiry, garbage
/// collection, drops) those that the log still holds.
pub(crate) async fn commits(run: &Run, filter: &CommitFilter) -> Result<Vec<CommitRow>> {
    let head = run.snapshot().await?;
    let store = run.catalog().store();
    let mut rows = BTreeMap::new();
    for (name, dataset) in resolve::datasets(store, &head).await? {
        if !filter.wants_dataset(&name) {
            continue;
        }
        for (branch, entry) in &dataset.branches {
            // The log below still knows the newest commits of a branch that cannot be read.
            if let Err(error) = branch_commits(run, &name, branch, entry, &mut rows).await {
                tracing::warn!(dataset = %name, %branch, %error, "a history cannot be read");
            }
        }
    }
    log_commits(run, &head, &mut rows).await?;
    let wanted =
        |row: &CommitRow| filter.wants_dataset(&row.dataset) && filter.wants_branch(&row.branch);
    let newest_first = rows.into_values().rev();
    Ok(newest_first.filter(wanted).collect())
}

async fn branch_commits(
    run: &Run,
    dataset: &str,
    branch: &BranchName,
    entry: &BranchEntry,
    rows: &mut BTreeMap<u64, CommitRow>,
) -> Result<()> {
    let store = run.catalog().store();
    let manifest = BranchManifest::load(store, &entry.manifest).await?;
    let current = manifest.history_entry(entry, &[]);
    let mut entries = manifest.history.walk(store, &mut |_| {}).await?;
    entries.push(current);
    let row = |entry: HistoryEntry| CommitRow {
        version: entry.catalog_version,
        commit_id: entry.commit_id,
        parent_ids: entry.parents.join(","),
        dataset: dataset.to_owned(),
        branch: branch.to_string(),
        kind: entry.kind.as_str().to_owned(),
        actor: entry.actor,
        created_at: Micros(entry.time),
        txn: entry.txn.to_string(),
    };
    rows.extend(entries.into_iter().map(|e| (e.catalog_version, row(e))));
    Ok(())
}

/// Commits of slots that no retained version speaks of. A slot that is gone was trimmed.
async fn log_commits(run: &Run, head: &Head, rows: &mut BTreeMap<u64, CommitRow>) -> Result<()> {
    let missing = (head.body.floor..=head.version).filter(|version| !rows.contains_key(version));
    let missing: Vec<u64> = missing.collect();
    let found: Vec<Option<CommitRow>> = stream::iter(missing)
        .map(|version| async move {
            let Some(slot) = run.catalog().store().read_slot(version).await? else {
                return Ok::<_, stratagraph::Error>(None);
            };
            let (body, _) = SlotBody::decode(version, &slot.bytes)?;
            Ok(body
                .commits
                .into_iter()
                .next()
                .map(|record| log_row(version, record)))
        })
        .buffer_unordered(CONCURRENT)
        .try_collect()
        .await?;
    rows.extend(found.into_iter().flatten().map(|row| (row.version, row)));
    Ok(())
}

fn log_row(version: u64, record: CommitRecord) -> CommitRow {
    CommitRow {
        version,
        commit_id: record.id,
        parent_ids: String::new(),
        dataset: record.dataset_name,
        branch: record.branch,
        kind: record.kind.as_str().to_owned(),
        actor: record.actor,
        created_at: Micros(record.time),
        txn: record.txn.to_string(),
    }
}

/// The outcome of a transaction.
pub(crate) async fn commit_status(run: &Run, txn: &TxnId) -> Result<CommitStatus> {
    let status = run.catalog().commit_status(txn, None).await?;
    let version = match status {
        Status::Committed(version) => Some(version),
        Status::NotCommitted | Status::Unknown => None,
    };
    Ok(CommitStatus {
        txn: txn.to_string(),
        status: status.as_str().to_owned(),
        version,
    })
}

/// The SQL functions.
pub(crate) fn functions(engine: &Arc<Engine>) -> [Arc<dyn TableFunction>; 2] {
    let list = FunctionSpec::read(
        "commits",
        vec![
            ArgSpec::optional("dataset", ArgType::Name),
            ArgSpec::optional("branch", ArgType::Name),
        ],
    );
    let status = FunctionSpec::read(
        "commit_status",
        vec![ArgSpec::required("txn", ArgType::Text)],
    );
    [
        ReportFunction::of::<CommitRow>(engine, list, |call| {
            Box::pin(async move {
                let text = |name: &str| call.args.opt_text(name).map(str::to_owned);
                let filter = CommitFilter {
                    dataset: text("dataset"),
                    branch: text("branch"),
                };
                if let Some(dataset) = &filter.dataset {
                    Name::parse(dataset)?;
                }
                answer(&commits(&call.run, &filter).await?)
            })
        }),
        ReportFunction::of::<CommitStatus>(engine, status, |call| {
            Box::pin(async move {
                let txn = TxnId::parse(call.args.text("txn")?)?;
                answer(&[commit_status(&call.run, &txn).await?])
            })
        }),
    ]
}
