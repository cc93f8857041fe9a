//! What a host lets SQL text name as a model.

use std::path::PathBuf;

use super::redact::{names_location, redact};
use crate::{Error, Result};

/// The model of calls that name none: the built-in semantic one, or the lexical one in a build that
/// leaves its table out.
pub fn default_model() -> &'static str {
    if cfg!(feature = "minilm") {
        "static:minilm-l6-128"
    } else {
        "hash:384"
    }
}

/// What a host lets SQL text name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ModelPolicy {
    /// Whether a spec may hold a path or a URL. Off by default: whoever writes SQL could otherwise
    /// probe the files and the network of the host, and send it any environment variable as a key.
    pub allow_paths_and_urls: bool,
    /// The local cache of the Hugging Face hub, in which names such as `org/model` are looked up. The
    /// default is where the hub's own tools keep it: `HF_HUB_CACHE`, `HF_HOME/hub`,
    /// `XDG_CACHE_HOME/huggingface/hub`, or `~/.cache/huggingface/hub`. Nothing is ever downloaded.
    pub hub_cache: Option<PathBuf>,
}

impl Default for ModelPolicy {
    fn default() -> Self {
        Self {
            allow_paths_and_urls: false,
            hub_cache: hub_cache_of_user(),
        }
    }
}

fn hub_cache_of_user() -> Option<PathBuf> {
    let path = |name: &str| {
        let value = std::env::var_os(name).filter(|value| !value.is_empty());
        value.map(PathBuf::from)
    };
    path("HF_HUB_CACHE")
        .or_else(|| Some(path("HF_HOME")?.join("hub")))
        .or_else(|| Some(path("XDG_CACHE_HOME")?.join("huggingface").join("hub")))
        .or_else(|| Some(path("HOME")?.join(".cache").join("huggingface").join("hub")))
}

impl ModelPolicy {
    /// Refuses a text that holds a path or a URL in any place and any letter case, when those are not
    /// allowed, with [`Error::SourceNotAllowed`].
    pub fn check(&self, text: &str) -> Result<()> {
        if self.allow_paths_and_urls || !names_location(text) {
            return Ok(());
        }
        Err(Error::SourceNotAllowed {
            what: "embedding model",
            value: redact(text),
        })
    }
}
