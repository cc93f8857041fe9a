//! How a version was made, as its identity folds it.

use serde::Serialize;

use super::definition::Definition;
use super::refresh::Deletes;
use crate::catalog::resolve::TableSnapshot;
use crate::catalog::slot::CommitKind;
use crate::digest::{Digest, canonical_json};
use crate::store::Store;
use crate::table::identity;
use crate::{Error, Result};

/// The delta descriptor of a version that has a parent.
#[derive(Debug, Serialize)]
pub(super) struct Descriptor {
    pub kind: &'static str,
    pub parent_version: u64,
    pub parent_identity: Option<Digest>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deletes: Option<Deletes>,
    /// The version whose content a restore makes current again, and its identity.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub restored: Option<(u64, Option<Digest>)>,
}

impl Descriptor {
    pub fn of(kind: CommitKind, parent: &TableSnapshot, deletes: Option<Deletes>) -> Self {
        let parent_identity = parent.manifest.identity;
        Self {
            kind: kind.as_str(),
            parent_version: parent.version(),
            parent_identity,
            deletes,
            restored: None,
        }
    }
}

/// The identity of a successor of `parent`, and the descriptor's canonical text.
pub(super) async fn chain(
    store: &Store,
    parent: &TableSnapshot,
    descriptor: &Descriptor,
    fragments: &[Digest],
    mask: Option<&Digest>,
) -> Result<(Digest, String)> {
    let key = &parent.manifest_ref.key;
    let missing = |what| Error::corrupt("version manifest", key, what, "none");
    let recorded = parent
        .manifest
        .identity
        .ok_or_else(|| missing("an identity"))?;
    let definition = Definition::hash_of(store, parent.manifest.definition.as_ref()).await?;
    let bytes = canonical_json(descriptor)?;
    let identity = identity::chain(&recorded, &definition, &bytes, fragments, mask);
    let text = String::from_utf8(bytes).map_err(|e| Error::Source {
        source: Box::new(e),
    })?;
    Ok((identity, text))
}
