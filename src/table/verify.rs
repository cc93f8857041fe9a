//! Checks everything that one version consists of against what its manifest says.
//!
//! A check never stops the others: what cannot be read is a row of the result.

mod content;
mod graph;
mod objects;

use std::panic::resume_unwind;
use std::sync::Arc;

use tokio::task::JoinSet;

use self::objects::Rehashed;
use super::manifest::{Entry, Layout, TableManifest, TableRoot};
use super::{identity, mask};
use crate::catalog::manifest::BranchManifest;
use crate::digest::{Digest, parse_canonical};
use crate::env::Env;
use crate::publish::definition::Definition;
use crate::store::{ObjRef, Store};
use crate::{Error, Result};

/// The outcome of a check.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Verdict {
    /// Found what was expected.
    Match,
    /// Found something else.
    Mismatch,
    /// The object is not there.
    Missing,
    /// It could not be read.
    Unreadable,
}

impl Verdict {
    /// Its stable name.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Match => "match",
            Self::Mismatch => "mismatch",
            Self::Missing => "missing",
            Self::Unreadable => "unreadable",
        }
    }
}

/// One check of one artifact.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Check {
    /// Key of the object that was checked, or whose content was.
    pub artifact: String,
    /// What was checked.
    pub kind: &'static str,
    /// What the manifest says or what follows from it.
    pub expected: String,
    /// What was found.
    pub found: String,
    /// The outcome.
    pub verdict: Verdict,
}

/// Collects checks.
#[derive(Default)]
struct Checks(Vec<Check>);

impl Checks {
    fn push(
        &mut self,
        artifact: &str,
        kind: &'static str,
        expected: String,
        found: Result<String>,
    ) {
        let (found, verdict) = match found {
            Ok(found) if found == expected => (found, Verdict::Match),
            Ok(found) => (found, Verdict::Mismatch),
            Err(error) => (error.to_string(), verdict(&error)),
        };
        self.0.push(Check {
            artifact: artifact.to_owned(),
            kind,
            expected,
            found,
            verdict,
        });
    }
}

impl Checks {
    /// A metadata object that was read, or why it could not be.
    fn metadata(&mut self, kind: &'static str, object: &ObjRef, error: Option<&Error>) {
        let expected = object.sha256.to_string();
        let (found, verdict) = match error {
            None => (expected.clone(), Verdict::Match),
            Some(error) => (error.to_string(), verdict(error)),
        };
        self.0.push(Check {
            artifact: object.key.clone(),
            kind,
            expected,
            found,
            verdict,
        });
    }
}

fn verdict(error: &Error) -> Verdict {
    match error {
        Error::Corrupt { .. } => Verdict::Mismatch,
        error if error.is_missing_object() => Verdict::Missing,
        _ => Verdict::Unreadable,
    }
}

/// A table with the entries that could be read.
struct Surveyed {
    table: Arc<TableManifest>,
    entries: Vec<Entry>,
    /// Key of the object that holds the table's root.
    key: String,
}

/// Verifies the version of `manifest`, which was read from `object`. The last row has kind
/// `identity`; a version without an identity matches `none`.
///
/// Reads every object of the version past the cache, and every fragment's key columns.
pub async fn verify(
    store: &Arc<Store>,
    env: &Env,
    manifest: &BranchManifest,
    object: &ObjRef,
) -> Vec<Check> {
    let mut checks = Checks::default();
    objects::check(store, &mut checks, "manifest", object).await;
    if let Some(definition) = &manifest.definition {
        objects::check(store, &mut checks, "definition", definition).await;
    }
    for killed in manifest.delta.iter().flat_map(|d| &d.killed) {
        for (_, bitmap) in &killed.positions.chunks {
            objects::check(store, &mut checks, "bitmap", bitmap).await;
        }
    }
    let tables = Arc::new(survey_tables(store, &mut checks, manifest, object).await);
    // Digests cost as much as the contents: each has a core.
    let mut hashing = JoinSet::new();
    hashing.spawn(rehash(Arc::clone(store), Arc::clone(&tables)));
    let mut contents = Checks::default();
    for table in tables.iter() {
        content::check_table(store, env, &mut contents, table).await;
        if matches!(table.table.layout, Layout::Node | Layout::Edge) {
            graph::check_table(store, env, &mut contents, table, &tables).await;
        }
    }
    let (hashes, rehashed) = match hashing.join_next().await {
        Some(Ok(done)) => done,
        Some(Err(failed)) if failed.is_panic() => resume_unwind(failed.into_panic()),
        // The runtime is shutting down, so nobody waits for an answer.
        Some(Err(_)) | None => Default::default(),
    };
    checks.0.extend(hashes.0);
    checks.0.extend(contents.0);
    let entries: Vec<&Entry> = tables.iter().flat_map(|t| &t.entries).collect();
    let found = recompute(store, manifest, &entries, &rehashed).await;
    let expected = shown(manifest.identity);
    checks.push(&object.key, "identity", expected, found);
    checks.0
}

/// Checks the objects of every entry, in their order.
async fn rehash(store: Arc<Store>, tables: Arc<Vec<Surveyed>>) -> (Checks, Vec<Rehashed>) {
    let (mut checks, mut rehashed) = (Checks::default(), Vec::new());
    for entry in tables.iter().flat_map(|t| &t.entries) {
        rehashed.push(objects::check_entry(&store, &mut checks, entry).await);
    }
    (checks, rehashed)
}

fn shown(identity: Option<Digest>) -> String {
    identity.map_or_else(|| "none".to_owned(), |identity| identity.to_string())
}

async fn survey_tables(
    store: &Arc<Store>,
    checks: &mut Checks,
    manifest: &BranchManifest,
    object: &ObjRef,
) -> Vec<Surveyed> {
    let mut page = |page: &ObjRef, error: Option<&Error>| checks.metadata("page", page, error);
    let roots = manifest.tables.survey(store, &mut page).await;
    let mut tables = Vec::new();
    for (_, root) in roots {
        let (table, key) = match root {
            TableRoot::Inline(table) => (*table, object.key.clone()),
            TableRoot::Object(root) => {
                let bytes = store.get_uncached("table manifest", &root).await;
                let table: Result<TableManifest> =
                    bytes.and_then(|b| parse_canonical("table manifest", &root.key, &b));
                checks.metadata("table", &root, table.as_ref().err());
                match table {
                    Ok(table) => (table, root.key),
                    Err(_) => continue,
                }
            }
        };
        let mut page = |page: &ObjRef, error: Option<&Error>| checks.metadata("page", page, error);
        let entries = table.entries.survey(store, &mut page).await;
        tables.push(Surveyed {
            entries: entries.into_iter().map(|(_, entry)| entry).collect(),
            table: Arc::new(table),
            key,
        });
    }
    tables
}

/// The identity that follows from the objects as they were found; `rehashed` holds the digests of each
/// entry's fragment and mask.
async fn recompute(
    store: &Store,
    manifest: &BranchManifest,
    entries: &[&Entry],
    rehashed: &[Rehashed],
) -> Result<String> {
    if manifest.identity.is_none() {
        return Ok(shown(None));
    }
    let unreadable = |what: &str| {
        let expected = "every fragment and mask of the version";
        Error::corrupt(
            "identity",
            &manifest.dataset,
            expected,
            format!("{what} that cannot be read"),
        )
    };
    if rehashed.len() != entries.len() {
        return Err(unreadable("objects"));
    }
    let mut found = Vec::with_capacity(entries.len());
    for (entry, rehashed) in entries.iter().zip(rehashed) {
        let mut entry = (*entry).clone();
        if let Some(fragment) = &mut entry.fragment {
            fragment.file.object.sha256 =
                rehashed.fragment.ok_or_else(|| unreadable("a fragment"))?;
        }
        if let Some(mask) = &mut entry.mask {
            mask.object.sha256 = rehashed.mask.ok_or_else(|| unreadable("a mask"))?;
        }
        found.push(entry);
    }
    let Some((parent, descriptor)) = parent_identity(manifest)? else {
        return Ok(shown(Some(identity::base(&identity::fragment_digests(
            &found,
        )))));
    };
    let definition = Definition::hash_of(store, manifest.definition.as_ref()).await?;
    let added = |entry: &&Entry| manifest.delta.iter().any(|d| d.added.contains(&entry.id));
    let fragments = identity::fragment_digests(found.iter().filter(added));
    let mask = mask::mask_digest(&found);
    let chained = identity::chain(&parent, &definition, descriptor, &fragments, mask.as_ref());
    Ok(shown(Some(chained)))
}

/// The parent's identity as the delta descriptor names it, and the descriptor's bytes; `None` for a
/// version without a parent.
fn parent_identity(manifest: &BranchManifest) -> Result<Option<(Digest, &[u8])>> {
    let Some(text) = &manifest.descriptor else {
        return Ok(None);
    };
    let wrong = |found: &str| {
        let expected = format!("a member {:?} with a digest", identity::PARENT);
        Error::corrupt("delta descriptor", &manifest.dataset, expected, found)
    };
    let value: serde_json::Value = serde_json::from_str(text).map_err(|e| wrong(&e.to_string()))?;
    match value.get(identity::PARENT) {
        None | Some(serde_json::Value::Null) => Ok(None),
        Some(serde_json::Value::String(hex)) => {
            let parent = Digest::parse(hex).ok_or_else(|| wrong(hex))?;
            Ok(Some((parent, text.as_bytes())))
        }
        Some(other) => Err(wrong(&other.to_string())),
    }
}
