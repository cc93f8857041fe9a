//! The one commit function.
//!
//! Stage, look, prepare on exactly that head, create the next slot, and resolve whatever the store
//! answers by reading the slot back and then listing once (on local files: asking for the slot before).
//! `docs/architecture.md` tells why each step is needed; the protocol model in `tests/it` has a mutant
//! for each.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;

use super::log::{Catalog, Head, floor_of, is_live_under};
use super::slot::{CommitRecord, DatasetEntry, FORMAT, Pin, SlotBody};
use crate::digest::Digest;
use crate::ident::TxnId;
use crate::store::{Created, ListedSlot, ObjRef, ReadySlot, Stager, Store, layout};
use crate::{Error, Result, limits};

/// How long an in-doubt slot is resolved before the outcome is `CommitUnknown`.
const RESOLVE_DEADLINE: Duration = Duration::from_secs(60);
/// Number of the object that probes the backend; beyond what a transaction stages.
const PROBE_OBJECT: u32 = 999_999;
/// Rounds of resolution; with back-off they last about as long as the deadline.
const RESOLVE_ROUNDS: u32 = 24;

/// An older version that a commit will reference.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Import {
    /// Dataset name, for messages.
    pub dataset_name: String,
    /// Dataset id.
    pub dataset: String,
    /// Branch id.
    pub branch: String,
    /// Version.
    pub version: u64,
    /// Its manifest.
    pub manifest: ObjRef,
}

/// One attempt of a commit, on one head.
#[derive(Debug)]
pub struct Attempt<'a> {
    /// The catalog.
    pub catalog: &'a Arc<Catalog>,
    /// The head that the slot will extend.
    pub head: &'a Arc<Head>,
    /// The version of the slot.
    pub version: u64,
    /// Objects of the transaction; those added here belong to this attempt alone.
    pub stage: &'a mut Stager,
    /// 1, 2, ...
    pub number: u32,
}

impl Attempt<'_> {
    /// The store.
    pub fn store(&self) -> &Arc<Store> {
        self.catalog.store()
    }
}

/// What an attempt wants to change.
#[derive(Debug)]
pub struct Edit {
    /// Datasets by name; `None` removes.
    pub datasets: BTreeMap<String, Option<DatasetEntry>>,
    /// Pins by name; `None` removes.
    pub pins: BTreeMap<String, Option<Pin>>,
    /// A new horizon; never lowered, never above the slot's version.
    pub horizon: Option<u64>,
    /// The commit.
    pub record: CommitRecord,
}

impl Edit {
    /// An edit of nothing but what the caller adds.
    pub fn new(record: CommitRecord) -> Self {
        Self {
            datasets: BTreeMap::new(),
            pins: BTreeMap::new(),
            horizon: None,
            record,
        }
    }
}

/// What a transaction does to the head it meets.
#[async_trait]
pub trait Operation: Send + 'static {
    /// Older versions that it will reference; fixed before the commit begins.
    fn imports(&self) -> Vec<Import> {
        Vec::new()
    }

    /// Prepares on exactly `attempt.head`, with typed conflicts. `None`: nothing is left to commit.
    async fn prepare(&mut self, attempt: &mut Attempt<'_>) -> Result<Option<Edit>>;
}

/// A finished commit with the operation that made it.
#[derive(Debug)]
pub struct Outcome<O> {
    /// The operation, with what it found out.
    pub operation: O,
    /// The head after the commit, or the head on which nothing was left to do.
    pub head: Arc<Head>,
    /// The head that was extended.
    pub parent: Arc<Head>,
    /// Whether a slot was created.
    pub committed: bool,
    /// Attempts made.
    pub attempts: u32,
    /// The transaction.
    pub txn: TxnId,
}

/// What a slot turned out to hold.
enum Resolved {
    Ours(Arc<Head>),
    Lost,
}

/// What one round of resolution saw.
enum Seen {
    Resolved(Resolved),
    /// The slot is live and missing.
    Missing,
    /// The store did not answer, or not readably.
    Nothing,
}

struct Transaction<O> {
    catalog: Arc<Catalog>,
    stage: Stager,
    operation: O,
    imports: Vec<Import>,
}

struct Prepared {
    parent: Arc<Head>,
    body: SlotBody,
    bytes: Bytes,
    digest: Digest,
    ready: Option<ReadySlot>,
}

/// Logs the transaction of a verb whose caller went away while its outcome was open.
struct LogIfDropped(Option<TxnId>);

impl Drop for LogIfDropped {
    fn drop(&mut self) {
        if let Some(txn) = &self.0 {
            tracing::warn!(%txn, "the caller went away; the commit goes on, ask commit_status");
        }
    }
}

impl Catalog {
    /// Begins a transaction: fixes its `begin`, under which all its objects are staged.
    ///
    /// # Errors
    /// `StoreNotSupported` if the backend does not honour create-only puts; asked once a process.
    pub async fn begin(&self) -> Result<Stager> {
        let begin = self.known().await?.version;
        let mint = || TxnId::new(begin, &self.env().ids.unique());
        let txn = mint()?;
        let others = [mint()?, mint()?];
        let probe = || self.probe([txn.clone(), others[0].clone(), others[1].clone()]);
        self.probed.get_or_try_init(probe).await?;
        Ok(Stager::new(txn))
    }

    /// One refusal of a second create proves the backend; an answer that proves nothing (the first
    /// create was lost, a sweep came between) is asked again.
    async fn probe(&self, txns: [TxnId; 3]) -> Result<()> {
        for txn in &txns {
            if self
                .store()
                .honours_create(&layout::object_key(txn, PROBE_OBJECT, "probe"))
                .await?
            {
                return Ok(());
            }
        }
        let reason = "it lets a create-only put overwrite; commits would be lost";
        Err(Error::StoreNotSupported {
            root: self.store().display().to_owned(),
            reason,
        })
    }

    /// Commits `operation` with the objects of `stage`.
    ///
    /// Cancellation: dropping the future before the first slot is put leaves the old snapshot and
    /// unreferenced objects; from then on the commit goes on in a task of its own.
    ///
    /// # Errors
    /// Typed conflicts of the operation, `WriterFenced`, `HistoricalVersionReclaimed`,
    /// `CommitConflict` (all of these: nothing was changed) and `CommitUnknown`.
    pub async fn commit<O: Operation>(
        self: &Arc<Self>,
        stage: Stager,
        operation: O,
    ) -> Result<Outcome<O>> {
        let imports = operation.imports();
        let mut txn = Transaction {
            catalog: Arc::clone(self),
            stage,
            operation,
            imports,
        };
        let head = self.known().await?;
        let (head, first) = txn.prepare_on(head, 1).await?;
        let Some(first) = first else {
            return Ok(txn.finish(Arc::clone(&head), head, false, 1));
        };
        let mut open = LogIfDropped(Some(txn.stage.txn().clone()));
        let task = tokio::spawn(txn.run(first));
        let outcome = task.await;
        open.0 = None;
        outcome.map_err(|e| Error::TaskFailed {
            operation: "commit",
            source: Box::new(e),
        })?
    }

    /// Reads a slot back and lists, in this order, until it is known whose it is.
    async fn resolve(
        &self,
        txn: &TxnId,
        prepared: &Prepared,
        mut created: Created,
    ) -> Result<Resolved> {
        let slot = prepared.body.version;
        let started = self.env().clock.now_micros();
        for round in 0..RESOLVE_ROUNDS {
            let seen = self.resolve_once(txn, prepared, created).await?;
            if let Seen::Resolved(resolved) = seen {
                return Ok(resolved);
            }
            let waited = self.env().clock.now_micros().saturating_sub(started);
            if waited > RESOLVE_DEADLINE.as_micros() as i64 {
                break;
            }
            self.env()
                .clock
                .sleep(back_off(round, self.env().ids.jitter()))
                .await;
            if matches!(seen, Seen::Missing) {
                // The same bytes to the same slot: the first create may still land.
                created = self.store().create_slot(slot, prepared.bytes.clone()).await;
            }
        }
        Err(Error::CommitUnknown {
            txn: txn.clone().into(),
            slot,
        })
    }

    /// The slot that extends `parent`, with its e_tag if that is known, unless it may be one that was deleted:
    /// then no answer about it is evidence. To be asked after the answer.
    async fn live_slot(&self, version: u64, parent: &Head) -> Result<Option<ListedSlot>> {
        let unknown = ListedSlot {
            version,
            e_tag: None,
        };
        if !self.store().has_atomic_list() {
            let slot = self.store().slot(version).await?;
            if self.is_kept(parent).await? {
                return Ok(Some(slot.unwrap_or(unknown)));
            }
        }
        let listed = self.list_head(version).await?;
        let head = listed.as_ref().map_or(version, |listed| listed.version);
        let slot = listed.filter(|listed| listed.version == version);
        Ok(is_live_under(version, head).then(|| slot.unwrap_or(unknown)))
    }

    /// One round: the answer about the slot first, whether it is evidence second.
    async fn resolve_once(
        &self,
        txn: &TxnId,
        prepared: &Prepared,
        created: Created,
    ) -> Result<Seen> {
        let slot = prepared.body.version;
        let read = match created {
            Created::Created => None,
            Created::Unresolved => match self.store().read_slot(slot).await {
                Ok(read) => Some(read),
                Err(_) => return Ok(Seen::Nothing),
            },
        };
        let Ok(live) = self.live_slot(slot, &prepared.parent).await else {
            return Ok(Seen::Nothing);
        };
        let Some(live) = live else {
            return Err(Error::CommitUnknown {
                txn: txn.clone().into(),
                slot,
            });
        };
        let ours = |e_tag| {
            let (body, digest) = (prepared.body.clone(), Some(prepared.digest));
            let head = Head {
                version: slot,
                e_tag,
                digest,
                body,
            };
            Ok(Seen::Resolved(Resolved::Ours(Arc::new(head))))
        };
        let read = match read {
            None => return ours(live.e_tag),
            Some(None) => return Ok(Seen::Missing),
            Some(Some(read)) => read,
        };
        // A slot that cannot be decoded is no proof of a loss.
        let Ok((body, digest)) = SlotBody::decode(slot, &read.bytes) else {
            return Ok(Seen::Nothing);
        };
        if !body.is_of(txn) {
            return Ok(Seen::Resolved(Resolved::Lost));
        }
        if digest != prepared.digest {
            let key = layout::slot_key(slot);
            return Err(Error::corrupt("catalog slot", key, prepared.digest, digest));
        }
        ours(read.e_tag)
    }
}

impl<O: Operation> Transaction<O> {
    /// Creates slots until one is ours or the operation gives up. Runs in a task of its own.
    async fn run(mut self, first: Prepared) -> Result<Outcome<O>> {
        let mut prepared = first;
        for attempt in 1..=limits::COMMIT_ATTEMPTS {
            let store = self.catalog.store();
            let slot = prepared.body.version;
            let ready = prepared.ready.take();
            let created = store.create_ready(slot, prepared.bytes.clone(), ready);
            let created = created.await;
            match self
                .catalog
                .resolve(self.stage.txn(), &prepared, created)
                .await?
            {
                Resolved::Ours(head) => {
                    let head = self.catalog.remember(head);
                    return Ok(self.finish(head, prepared.parent, true, attempt));
                }
                Resolved::Lost if attempt == limits::COMMIT_ATTEMPTS => break,
                Resolved::Lost => {}
            }
            let env = self.catalog.env().clone();
            env.clock.sleep(back_off(attempt, env.ids.jitter())).await;
            let head = self.catalog.look().await?;
            let (head, next) = self.prepare_on(head, attempt + 1).await?;
            match next {
                Some(next) => prepared = next,
                None => return Ok(self.finish(Arc::clone(&head), head, false, attempt + 1)),
            }
        }
        let dataset = prepared
            .body
            .commits
            .first()
            .map(|c| c.dataset_name.clone());
        Err(Error::CommitConflict {
            dataset: dataset.unwrap_or_default(),
            attempts: limits::COMMIT_ATTEMPTS,
        })
    }

    /// Prepares on `head`, or on a newer one where a sweep has deleted meanwhile what only `head` read.
    async fn prepare_on(
        &mut self,
        mut head: Arc<Head>,
        number: u32,
    ) -> Result<(Arc<Head>, Option<Prepared>)> {
        loop {
            match self.prepare(Arc::clone(&head), number).await {
                Err(error) if error.is_missing_object() => {
                    let newer = self.catalog.look().await?;
                    if newer.version <= head.version {
                        return Err(error);
                    }
                    head = newer;
                }
                prepared => return Ok((head, prepared?)),
            }
        }
    }

    /// Checks and prepares on `head`, and puts the attempt's objects.
    async fn prepare(&mut self, head: Arc<Head>, number: u32) -> Result<Option<Prepared>> {
        let txn = self.stage.txn().clone();
        if txn.begin() < head.body.horizon {
            return Err(Error::WriterFenced {
                txn: txn.into(),
                horizon: head.body.horizon,
            });
        }
        for import in &self.imports {
            check_import(self.catalog.store(), &head, import).await?;
        }
        let version = head.version + 1;
        let (catalog, stage) = (&self.catalog, &mut self.stage);
        let mut attempt = Attempt {
            catalog,
            head: &head,
            version,
            stage,
            number,
        };
        let Some(edit) = self.operation.prepare(&mut attempt).await? else {
            return Ok(None);
        };
        let body = next_body(self.catalog.store(), &mut self.stage, &head, edit).await?;
        let (bytes, digest) = body.encode()?;
        let (bytes, store) = (Bytes::from(bytes), self.catalog.store());
        let (flushed, ready) = futures::join!(
            self.stage.flush(store),
            store.ready_slot(body.version, bytes.clone())
        );
        flushed?;
        Ok(Some(Prepared {
            parent: head,
            body,
            bytes,
            digest,
            ready,
        }))
    }

    fn finish(
        self,
        head: Arc<Head>,
        parent: Arc<Head>,
        committed: bool,
        attempts: u32,
    ) -> Outcome<O> {
        let txn = self.stage.txn().clone();
        Outcome {
            operation: self.operation,
            head,
            parent,
            committed,
            attempts,
            txn,
        }
    }
}

async fn next_body(store: &Store, stage: &mut Stager, head: &Head, edit: Edit) -> Result<SlotBody> {
    let version = head.version + 1;
    let horizon = edit
        .horizon
        .unwrap_or(0)
        .min(version)
        .max(head.body.horizon);
    Ok(SlotBody {
        format: FORMAT,
        version,
        parent: head.digest,
        commits: vec![edit.record],
        floor: head.body.floor.max(floor_of(version)),
        horizon,
        pins: head.body.pins.apply(store, stage, edit.pins).await?,
        datasets: head
            .body
            .datasets
            .apply(store, stage, edit.datasets)
            .await?,
    })
}

/// The reference rule: an older version must still be retained or pinned in the very head that the
/// slot extends.
async fn check_import(store: &Store, head: &Head, import: &Import) -> Result<()> {
    let gone = || Error::HistoricalVersionReclaimed {
        dataset: import.dataset_name.clone(),
        version: import.version,
    };
    let pins = head.body.pins.entries(store).await?;
    if pins.iter().any(|(_, pin)| pin.manifest == import.manifest) {
        return Ok(());
    }
    let datasets = head.body.datasets.entries(store).await?;
    let dataset = datasets
        .iter()
        .map(|(_, d)| d)
        .find(|d| d.id == import.dataset)
        .ok_or_else(gone)?;
    let branch = dataset
        .branches
        .values()
        .find(|b| b.id == import.branch)
        .ok_or_else(gone)?;
    if branch.manifest == import.manifest {
        return Ok(());
    }
    let manifest = super::manifest::BranchManifest::load(store, &branch.manifest).await?;
    match manifest.history.get(store, import.version).await? {
        Some(entry) if entry.manifest == import.manifest => Ok(()),
        _ => Err(gone()),
    }
}

/// How long a writer that lost `round` times waits, so that another one gets through.
pub fn back_off(round: u32, jitter: u64) -> Duration {
    let ceiling = (5u64 << round.min(9)).min(2_500);
    Duration::from_millis(ceiling / 2 + jitter % (ceiling / 2 + 1))
}
