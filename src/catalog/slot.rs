//! The body of a slot: one commit and the catalog snapshot that it makes current.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::digest::{Digest, canonical_json, parse_canonical};
use crate::ident::{BranchName, Name, TxnId};
use crate::store::{ObjRef, PageEntry, PageTree, layout};
use crate::{Error, Result};

/// Format of slots and manifests.
pub const FORMAT: u64 = 1;

/// What a commit did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum CommitKind {
    /// A new embedding table.
    Generate,
    /// A table of imported vectors.
    Import,
    /// An incremental refresh.
    Refresh,
    /// A compaction.
    Compact,
    /// An older version made current again.
    Restore,
    /// A neighbour graph.
    Neighbors,
    /// A graph load.
    Load,
    /// A graph mutation.
    Mutate,
    /// A new branch.
    BranchCreate,
    /// A deleted branch.
    BranchDelete,
    /// A merge of branches.
    Merge,
    /// A change of schema.
    Schema,
    /// Better segments for the same version.
    Optimize,
    /// Older versions expired.
    Expire,
    /// A pin made or dropped.
    Pin,
    /// A garbage collection.
    Gc,
    /// A dataset dropped.
    Drop,
    /// A dataset renamed.
    Rename,
}

impl CommitKind {
    /// Its stable name.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Generate => "generate",
            Self::Import => "import",
            Self::Refresh => "refresh",
            Self::Compact => "compact",
            Self::Restore => "restore",
            Self::Neighbors => "neighbors",
            Self::Load => "load",
            Self::Mutate => "mutate",
            Self::BranchCreate => "branch_create",
            Self::BranchDelete => "branch_delete",
            Self::Merge => "merge",
            Self::Schema => "schema",
            Self::Optimize => "optimize",
            Self::Expire => "expire",
            Self::Pin => "pin",
            Self::Gc => "gc",
            Self::Drop => "drop",
            Self::Rename => "rename",
        }
    }
}

/// Who made a commit, when and why.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CommitRecord {
    /// Transaction; decides whether a slot is ours.
    pub txn: TxnId,
    /// Commit id.
    pub id: String,
    /// Dataset id, or empty for a commit of the whole store.
    pub dataset: String,
    /// Dataset name at the time.
    pub dataset_name: String,
    /// Branch name.
    pub branch: String,
    /// What it did.
    pub kind: CommitKind,
    /// Who asked for it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub actor: Option<String>,
    /// Microseconds since 1970-01-01 UTC.
    pub time: i64,
    /// Idempotence key of the caller.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub request_id: Option<String>,
}

/// The head of a branch.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BranchEntry {
    /// Branch id; a branch made again has another.
    pub id: String,
    /// Commit id of the head.
    pub commit_id: String,
    /// Version of the head.
    pub version: u64,
    /// Its manifest.
    pub manifest: ObjRef,
    /// Where it was made from; `None` for the main branch.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub fork: Option<Fork>,
}

/// The state that a branch was made from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Fork {
    /// Id of the branch of that state.
    pub branch: String,
    /// Its version there.
    pub version: u64,
    /// Its commit id.
    pub commit_id: String,
    /// When the branch was made, in microseconds since 1970-01-01 UTC.
    pub time: i64,
}

/// What kind of dataset.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DatasetKind {
    /// An embedding table.
    Embedding,
    /// A property graph.
    Graph,
}

/// A dataset of the catalog.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DatasetEntry {
    /// Dataset id; a dataset made again under a name has another.
    pub id: String,
    /// Its kind.
    pub kind: DatasetKind,
    /// Microseconds since 1970-01-01 UTC.
    pub created_at: i64,
    /// Next row id by type id, shared by branches.
    pub next_rids: BTreeMap<u64, u64>,
    /// Branches by name.
    pub branches: BTreeMap<BranchName, BranchEntry>,
    /// The definition object of the current version, so that a table whose manifest is lost can be
    /// made again.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub definition: Option<ObjRef>,
}

impl DatasetEntry {
    /// A branch by name.
    pub fn branch(&self, name: &BranchName) -> Option<&BranchEntry> {
        self.branches.get(name)
    }

    /// The main branch.
    pub fn main(&self) -> Option<&BranchEntry> {
        self.branches.get(&BranchName::main())
    }
}

impl PageEntry for DatasetEntry {
    const ARTIFACT: &'static str = "dataset page";
}

/// A durable pin: a version that expiry and garbage collection respect.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Pin {
    /// Dataset id.
    pub dataset: String,
    /// Dataset name when it was pinned.
    pub dataset_name: Name,
    /// Branch id.
    pub branch: String,
    /// Version.
    pub version: u64,
    /// Manifest of the version.
    pub manifest: ObjRef,
    /// When policy may drop it, in microseconds since 1970-01-01 UTC.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<i64>,
}

impl PageEntry for Pin {
    const ARTIFACT: &'static str = "pin page";
}

/// Everything that is visible after a commit.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SlotBody {
    /// Format of the store.
    pub format: u64,
    /// Catalog version, the slot's number.
    pub version: u64,
    /// Digest of the slot that this one extends.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parent: Option<Digest>,
    /// Commits of this slot.
    pub commits: Vec<CommitRecord>,
    /// Slots below it are no evidence and may be deleted.
    pub floor: u64,
    /// Objects of transactions that began before it are swept unless they are reachable.
    pub horizon: u64,
    /// Pins by name.
    pub pins: PageTree<Pin>,
    /// Datasets by name.
    pub datasets: PageTree<DatasetEntry>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Slot {
    body: SlotBody,
    sha256: Digest,
}

impl SlotBody {
    /// The catalog before its first commit.
    pub fn empty() -> Self {
        Self {
            format: FORMAT,
            version: 0,
            parent: None,
            commits: Vec::new(),
            floor: 1,
            horizon: 0,
            pins: PageTree::default(),
            datasets: PageTree::default(),
        }
    }

    /// Whether `txn` made this slot.
    pub fn is_of(&self, txn: &TxnId) -> bool {
        self.commits.iter().any(|c| c.txn == *txn)
    }

    /// The slot's bytes and the digest of its body.
    pub fn encode(&self) -> Result<(Vec<u8>, Digest)> {
        let sha256 = Digest::of(&canonical_json(self)?);
        Ok((
            canonical_json(&Slot {
                body: self.clone(),
                sha256,
            })?,
            sha256,
        ))
    }

    /// Checks and reads the slot of `version`.
    pub fn decode(version: u64, bytes: &[u8]) -> Result<(Self, Digest)> {
        let key = layout::slot_key(version);
        let slot: Slot = parse_canonical("catalog slot", &key, bytes)
            .map_err(|e| newer_format(&key, bytes).unwrap_or(e))?;
        let found = Digest::of(&canonical_json(&slot.body)?);
        if found != slot.sha256 {
            return Err(Error::corrupt("catalog slot", key, slot.sha256, found));
        }
        if slot.body.format != FORMAT {
            return Err(Error::IncompatibleFormat {
                path: key,
                found: slot.body.format,
                supported: FORMAT,
            });
        }
        if slot.body.version != version {
            let (expected, found) = (format!("version {version}"), slot.body.version);
            return Err(Error::corrupt(
                "catalog slot",
                key,
                expected,
                format!("version {found}"),
            ));
        }
        Ok((slot.body, found))
    }
}

/// A newer build may have added members, so its slots do not parse here; its format number does.
fn newer_format(key: &str, bytes: &[u8]) -> Option<Error> {
    let value: serde_json::Value = serde_json::from_slice(bytes).ok()?;
    let found = value.get("body")?.get("format")?.as_u64()?;
    (found > FORMAT).then(|| Error::IncompatibleFormat {
        path: key.to_owned(),
        found,
        supported: FORMAT,
    })
}
