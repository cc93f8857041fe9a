//! Identities of versions of embedding tables: what was computed, not when, where or by whom.

use super::manifest::Entry;
use crate::digest::{Digest, Hasher};

/// The member of a delta descriptor that names the parent's identity in hex; absent or null in the
/// descriptor of a version without a parent.
pub const PARENT: &str = "parent_identity";

/// The identity of a version that has no parent: the digest of its one fragment; for none or several,
/// the digest of a domain and their digests in entry order.
pub fn base(fragments: &[Digest]) -> Digest {
    if let [only] = fragments {
        return *only;
    }
    let mut hasher = Hasher::new("stratagraph.version.base.v1");
    hasher.list(fragments.iter().map(|d| d.as_bytes().as_slice()));
    hasher.finish()
}

/// The identity of a version that was made from another: a hash over the parent's identity, the hash
/// of the definition, the canonical JSON of the delta descriptor, the digests of the
/// fragments that it added, and the mask digest.
pub fn chain(
    parent: &Digest,
    definition: &Digest,
    descriptor: &[u8],
    fragments: &[Digest],
    mask: Option<&Digest>,
) -> Digest {
    let mut hasher = Hasher::new("stratagraph.version.identity.v1");
    hasher.part(parent.as_bytes());
    hasher.part(definition.as_bytes());
    hasher.part(descriptor);
    hasher.list(fragments.iter().map(|d| d.as_bytes().as_slice()));
    hasher.part(mask.map_or(&[][..], |d| d.as_bytes()));
    hasher.finish()
}

/// Digests of the fragments of `entries`, in their order.
pub fn fragment_digests<'a>(entries: impl IntoIterator<Item = &'a Entry>) -> Vec<Digest> {
    let fragments = entries.into_iter().filter_map(|e| e.fragment.as_ref());
    fragments.map(|f| f.file.object.sha256).collect()
}
