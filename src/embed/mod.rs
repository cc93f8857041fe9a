//! STUB of the models that hosts let SQL name.

/// What a host lets SQL text name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ModelPolicy {
    /// Whether a spec may hold a path or a URL.
    pub allow_paths_and_urls: bool,
}
