//! The retained versions of a branch: a log-structured tree of immutable pages.
//!
//! Sixteen entries make a page that is written once; the root holds the open page and fewer than
//! sixteen references a level. A version's own entry is added by its successor.

use futures::future::BoxFuture;
use serde::{Deserialize, Serialize};

use super::slot::CommitKind;
use crate::digest::{Digest, parse_canonical};
use crate::ident::TxnId;
use crate::store::{ObjRef, Stager, Store};
use crate::{Result, limits};

/// A retained version.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HistoryEntry {
    /// Version number.
    pub version: u64,
    /// The version it was made from.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parent_version: Option<u64>,
    /// Its manifest.
    pub manifest: ObjRef,
    /// Identity of its content.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub identity: Option<Digest>,
    /// Commit id.
    pub commit_id: String,
    /// Commit ids of its parents.
    pub parents: Vec<String>,
    /// Transaction.
    pub txn: TxnId,
    /// Idempotence key of the caller.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub request_id: Option<String>,
    /// Who asked for it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub actor: Option<String>,
    /// Catalog version of the commit.
    pub catalog_version: u64,
    /// What the commit did.
    pub kind: CommitKind,
    /// Microseconds since 1970-01-01 UTC.
    pub time: i64,
    /// Live rows of all tables.
    pub live_rows: u64,
    /// Dead rows of all tables.
    pub dead_rows: u64,
    /// Fragments of all tables.
    pub fragments: u64,
    /// Numbers of the objects that the commit wrote under its transaction, as runs.
    pub objects: String,
    /// Whether it references objects that its parent did not.
    pub imports: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct PageRef {
    first: u64,
    last: u64,
    page: ObjRef,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
enum Page {
    Entries(Vec<HistoryEntry>),
    Refs(Vec<PageRef>),
}

const ARTIFACT: &str = "history page";

/// The root of a branch's history, inline in its manifest.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct History {
    open: Vec<HistoryEntry>,
    levels: Vec<Vec<PageRef>>,
}

async fn load(store: &Store, page: &ObjRef) -> Result<Page> {
    parse_canonical(ARTIFACT, &page.key, &store.get(ARTIFACT, page).await?)
}

impl History {
    /// Adds the newest version; a page that is full is added to `stage`.
    pub fn push(&mut self, entry: HistoryEntry, stage: &mut Stager) -> Result<()> {
        self.open.push(entry);
        if self.open.len() < limits::PAGE_ENTRIES {
            return Ok(());
        }
        let entries = std::mem::take(&mut self.open);
        let (first, last) = (entries[0].version, entries[entries.len() - 1].version);
        let mut full = PageRef {
            first,
            last,
            page: stage.add_json(&Page::Entries(entries))?,
        };
        for level in 0.. {
            if self.levels.len() == level {
                self.levels.push(Vec::new());
            }
            self.levels[level].push(full);
            if self.levels[level].len() < limits::PAGE_ENTRIES {
                break;
            }
            let refs = std::mem::take(&mut self.levels[level]);
            let (first, last) = (refs[0].first, refs[refs.len() - 1].last);
            full = PageRef {
                first,
                last,
                page: stage.add_json(&Page::Refs(refs))?,
            };
        }
        Ok(())
    }

    /// The entry of a version.
    pub async fn get(&self, store: &Store, version: u64) -> Result<Option<HistoryEntry>> {
        if let Some(entry) = self.open.iter().find(|e| e.version == version) {
            return Ok(Some(entry.clone()));
        }
        let covers = |r: &&PageRef| r.first <= version && version <= r.last;
        let mut next = self.levels.iter().flatten().find(covers).cloned();
        while let Some(reference) = next {
            match load(store, &reference.page).await? {
                Page::Entries(entries) => {
                    return Ok(entries.into_iter().find(|e| e.version == version));
                }
                Page::Refs(refs) => next = refs.iter().find(covers).cloned(),
            }
        }
        Ok(None)
    }

    /// At most `limit` entries, newest first.
    pub async fn newest(&self, store: &Store, limit: usize) -> Result<Vec<HistoryEntry>> {
        let mut out: Vec<HistoryEntry> = self.open.iter().rev().take(limit).cloned().collect();
        // Level 0 is newer than level 1, and so on; within a level the last reference is newest.
        let mut stack: Vec<PageRef> = self
            .levels
            .iter()
            .rev()
            .flat_map(|level| level.iter().cloned())
            .collect();
        while out.len() < limit
            && let Some(reference) = stack.pop()
        {
            match load(store, &reference.page).await? {
                Page::Entries(entries) => {
                    out.extend(entries.into_iter().rev().take(limit - out.len()));
                }
                Page::Refs(refs) => stack.extend(refs),
            }
        }
        Ok(out)
    }

    /// The newest entry that `wanted` holds of, and the next newer one if there is one here; reads pages
    /// until it is found. Between the two there were others if the newer one was not made from it.
    pub async fn find(
        &self,
        store: &Store,
        wanted: &(dyn Fn(&HistoryEntry) -> bool + Sync),
    ) -> Result<Option<(HistoryEntry, Option<HistoryEntry>)>> {
        let mut newer = None;
        if let Some(found) = last_of(&self.open, wanted, &mut newer) {
            return Ok(Some((found, newer)));
        }
        let mut stack: Vec<PageRef> = self
            .levels
            .iter()
            .rev()
            .flat_map(|level| level.iter().cloned())
            .collect();
        while let Some(reference) = stack.pop() {
            match load(store, &reference.page).await? {
                Page::Entries(entries) => {
                    if let Some(found) = last_of(&entries, wanted, &mut newer) {
                        return Ok(Some((found, newer)));
                    }
                }
                Page::Refs(refs) => stack.extend(refs),
            }
        }
        Ok(None)
    }

    /// All entries, oldest first; `page` is called with every page.
    pub async fn walk(
        &self,
        store: &Store,
        page: &mut (dyn FnMut(&ObjRef) + Send),
    ) -> Result<Vec<HistoryEntry>> {
        let mut entries = Vec::new();
        let mut stack: Vec<PageRef> = self
            .levels
            .iter()
            .flat_map(|l| l.iter().rev().cloned())
            .collect();
        while let Some(reference) = stack.pop() {
            page(&reference.page);
            match load(store, &reference.page).await? {
                Page::Entries(mut more) => entries.append(&mut more),
                Page::Refs(refs) => stack.extend(refs.into_iter().rev()),
            }
        }
        entries.extend(self.open.iter().cloned());
        Ok(entries)
    }

    /// The history without the versions that `drop` names; pages that lose nothing are shared.
    pub async fn without(
        &self,
        store: &Store,
        stage: &mut Stager,
        drop: &(dyn Fn(u64) -> bool + Sync),
    ) -> Result<Self> {
        let mut levels = Vec::with_capacity(self.levels.len());
        for level in &self.levels {
            levels.push(retain(store, stage, level.clone(), drop).await?);
        }
        let open = self
            .open
            .iter()
            .filter(|e| !drop(e.version))
            .cloned()
            .collect();
        Ok(Self { open, levels })
    }
}

/// The last entry that is wanted; `newer` becomes the one after it, else the first.
fn last_of(
    entries: &[HistoryEntry],
    wanted: &(dyn Fn(&HistoryEntry) -> bool + Sync),
    newer: &mut Option<HistoryEntry>,
) -> Option<HistoryEntry> {
    let at = entries.iter().rposition(wanted);
    if let Some(next) = entries.get(at.map_or(0, |at| at + 1)) {
        *newer = Some(next.clone());
    }
    at.and_then(|at| entries.get(at)).cloned()
}

fn retain<'a>(
    store: &'a Store,
    stage: &'a mut Stager,
    refs: Vec<PageRef>,
    drop: &'a (dyn Fn(u64) -> bool + Sync),
) -> BoxFuture<'a, Result<Vec<PageRef>>> {
    Box::pin(async move {
        let mut kept = Vec::with_capacity(refs.len());
        for reference in refs {
            if !(reference.first..=reference.last).any(drop) {
                kept.push(reference);
                continue;
            }
            let (page, span) = match load(store, &reference.page).await? {
                Page::Entries(mut entries) => {
                    entries.retain(|e| !drop(e.version));
                    let span = entries
                        .first()
                        .map(|e| e.version)
                        .zip(entries.last().map(|e| e.version));
                    (Page::Entries(entries), span)
                }
                Page::Refs(refs) => {
                    let refs = retain(store, stage, refs, drop).await?;
                    let span = refs
                        .first()
                        .map(|r| r.first)
                        .zip(refs.last().map(|r| r.last));
                    (Page::Refs(refs), span)
                }
            };
            if let Some((first, last)) = span {
                kept.push(PageRef {
                    first,
                    last,
                    page: stage.add_json(&page)?,
                });
            }
        }
        Ok(kept)
    })
}
