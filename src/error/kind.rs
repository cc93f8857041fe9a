//! What errors are about.

/// What a caller can do about an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Kind {
    /// The request is wrong; change it.
    Invalid,
    /// The named thing does not exist.
    NotFound,
    /// Another commit came first; try again on the new head.
    Conflict,
    /// This transaction was fenced by a garbage collection; begin again.
    Fenced,
    /// The outcome of a commit is not known; ask `commit_status`.
    Unknown,
    /// A resource could not be reached.
    Unavailable,
    /// Stored bytes are not what was written.
    Corrupt,
    /// A limit was reached.
    Limit,
    /// Refused by policy.
    Refused,
}

/// Why a table cannot be refreshed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum NotRefreshableReason {
    /// The table carries no content hashes (it was imported).
    MissingContentHash,
    /// The table was not produced by an embedding pipeline.
    NotEmbeddingTable,
}

impl std::fmt::Display for NotRefreshableReason {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::MissingContentHash => "missing_content_hash",
            Self::NotEmbeddingTable => "not_embedding_table",
        })
    }
}

/// Which scan found duplicate keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum KeyScan {
    /// The scan of the source.
    Source,
    /// The scan of the parent version.
    Parent,
}

impl std::fmt::Display for KeyScan {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Source => "source",
            Self::Parent => "parent",
        })
    }
}

/// Why a branch cannot be deleted.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Protection {
    /// It is the main branch.
    Main,
    /// These branches were made from it.
    Descendants(Vec<String>),
}

impl std::fmt::Display for Protection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Main => f.write_str("every graph has it; drop the graph instead"),
            Self::Descendants(names) => {
                let names = names.join(", ");
                write!(f, "branches were made from it ({names}); delete them first")
            }
        }
    }
}
