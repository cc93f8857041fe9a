//! SHA-256 digests, length-prefixed hashing and canonical JSON.

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de::DeserializeOwned};
use sha2::{Digest as _, Sha256};

use crate::{Error, Result, limits};

/// A SHA-256 digest; lowercase hex in text.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Digest([u8; 32]);

impl Digest {
    /// The digest of `bytes`.
    pub fn of(bytes: &[u8]) -> Self {
        Self(Sha256::digest(bytes).into())
    }

    /// A digest from its 32 bytes.
    pub fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// The 32 bytes.
    pub fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// Parses 64 lowercase hex digits.
    pub fn parse(text: &str) -> Option<Self> {
        let mut out = [0u8; 32];
        let lower = !text.bytes().any(|b| b.is_ascii_uppercase());
        (lower && hex::decode_to_slice(text, &mut out).is_ok()).then_some(Self(out))
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex::encode(self.0))
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Digest({self})")
    }
}

impl Serialize for Digest {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.serialize_str(&self.to_string())
    }
}

impl<'de> Deserialize<'de> for Digest {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        let text = <std::borrow::Cow<'de, str>>::deserialize(d)?;
        Self::parse(&text).ok_or_else(|| serde::de::Error::custom("not a SHA-256 hex digest"))
    }
}

/// A hash over a domain and length-prefixed parts, so that no two part lists share a preimage.
pub struct Hasher(Sha256);

impl Hasher {
    /// Starts with a domain such as `stratagraph.version.identity.v1`.
    pub fn new(domain: &str) -> Self {
        let mut hasher = Self(Sha256::new());
        hasher.part(domain.as_bytes());
        hasher
    }

    /// Adds one part: its length as u64 little-endian, then its bytes.
    pub fn part(&mut self, bytes: &[u8]) -> &mut Self {
        self.0.update((bytes.len() as u64).to_le_bytes());
        self.0.update(bytes);
        self
    }

    /// Adds a list: its length as a part, then each item as a part.
    pub fn list<'a>(&mut self, items: impl ExactSizeIterator<Item = &'a [u8]>) -> &mut Self {
        self.part(&(items.len() as u64).to_le_bytes());
        for item in items {
            self.part(item);
        }
        self
    }

    /// The digest of all parts.
    pub fn finish(self) -> Digest {
        Digest(self.0.finalize().into())
    }
}

/// SHA-256 of bytes that arrive in pieces.
#[derive(Default, Clone)]
pub struct Running(Sha256);

impl Running {
    /// Adds bytes.
    pub fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    /// The digest of all bytes.
    pub fn finish(self) -> Digest {
        Digest(self.0.finalize().into())
    }
}

/// Canonical JSON: object members sorted by name, no white space, integers only as numbers.
pub fn canonical_json<T: Serialize>(value: &T) -> Result<Vec<u8>> {
    let invalid = |e: serde_json::Error| Error::Source {
        source: Box::new(e),
    };
    // serde_json's map is a BTreeMap unless a dependency asks for insertion order; sort either way.
    let mut value = serde_json::to_value(value).map_err(invalid)?;
    value.sort_all_objects();
    serde_json::to_vec(&value).map_err(invalid)
}

/// Parses canonical JSON and refuses any other spelling of the same value (duplicate or unknown
/// members, white space, another order), so that one changed bit never goes unseen.
pub fn parse_canonical<T: Serialize + DeserializeOwned>(
    artifact: &'static str,
    path: &str,
    bytes: &[u8],
) -> Result<T> {
    if bytes.len() as u64 > limits::METADATA_BYTES {
        return Err(Error::ResourceLimitExceeded {
            what: "bytes of a metadata object",
            value: bytes.len() as u64,
            limit: limits::METADATA_BYTES,
        });
    }
    let value: T = serde_json::from_slice(bytes)
        .map_err(|e| Error::corrupt(artifact, path, "canonical JSON of this format", e))?;
    if canonical_json(&value)? != bytes {
        return Err(Error::corrupt(
            artifact,
            path,
            "canonical JSON",
            "another spelling",
        ));
    }
    Ok(value)
}
