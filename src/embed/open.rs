//! From a spec to a model.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::files::{FileStamps, ModelFiles};
use super::policy::ModelPolicy;
use super::spec::{ModelSpec, StaticSource, not_found};
use super::table::TokenTable;
use super::{Embedder, HashEmbedder};
#[cfg(not(all(feature = "candle", feature = "http", feature = "minilm")))]
use crate::Error;
use crate::Result;

/// A model that was opened, and the files that it was made of.
#[derive(Debug, Clone)]
pub(super) struct Opened {
    pub(super) model: Arc<dyn Embedder>,
    /// `None` where no file is involved.
    pub(super) files: Option<FileStamps>,
}

impl Opened {
    fn without_files(model: impl Embedder + 'static) -> Self {
        Self {
            model: Arc::new(model),
            files: None,
        }
    }

    /// Whether its files are what they were when it was opened.
    pub(super) fn is_current(&self) -> bool {
        self.files.as_ref().is_none_or(FileStamps::are_current)
    }
}

/// Opens a model that computes in this process, reading its files. `None` for a model behind a server.
///
/// A path that `policy` does not allow is `SourceNotAllowed` before anything is looked at; files that
/// are not what they should be are `ModelInvalid`; a name that neither the built-in tables nor the
/// Hugging Face cache know is `ModelNotFound`.
pub(super) fn open_local(spec: &ModelSpec, policy: &ModelPolicy) -> Result<Option<Opened>> {
    let text = spec.to_string();
    policy.check(&text)?;
    Ok(Some(match spec {
        ModelSpec::Hash { dimensions } => Opened::without_files(HashEmbedder::new(*dimensions)?),
        ModelSpec::Static(StaticSource::BuiltIn(name)) => built_in(name, &text)?,
        ModelSpec::Static(StaticSource::Directory(directory)) => {
            token_table(&text, Path::new(directory))?
        }
        ModelSpec::Candle { directory, options } => {
            transformer(&text, Path::new(directory), options)?
        }
        ModelSpec::Name(name) => hub_model(name, &text, policy)?,
        ModelSpec::OpenAi { .. } | ModelSpec::Tei { .. } => return Ok(None),
    }))
}

fn built_in(name: &str, text: &str) -> Result<Opened> {
    match name {
        #[cfg(feature = "minilm")]
        "minilm-l6-128" => Ok(Opened {
            model: super::table::builtin::model()?,
            files: None,
        }),
        #[cfg(not(feature = "minilm"))]
        "minilm-l6-128" => Err(left_out(text, "minilm")),
        _ => Err(not_found(text)),
    }
}

fn token_table(text: &str, directory: &Path) -> Result<Opened> {
    let mut files = ModelFiles::new(text, directory)?;
    Ok(Opened {
        model: Arc::new(TokenTable::of_directory(text, &mut files)?),
        files: Some(files.stamps()),
    })
}

#[cfg(feature = "candle")]
fn transformer(text: &str, directory: &Path, options: &BTreeMap<String, String>) -> Result<Opened> {
    let mut files = ModelFiles::new(text, directory)?;
    let model = super::Transformer::open(text, &mut files, options)?;
    Ok(Opened {
        model: Arc::new(model),
        files: Some(files.stamps()),
    })
}

#[cfg(not(feature = "candle"))]
fn transformer(
    text: &str,
    _directory: &Path,
    _options: &BTreeMap<String, String>,
) -> Result<Opened> {
    Err(left_out(text, "candle"))
}

/// The model of the snapshot that the cache's `main` names. When `main` names another one, the model
/// is opened again.
///
/// The layout is the hub's own: `models--org--model/refs/main` holds the name of a directory below
/// `models--org--model/snapshots`.
#[cfg(feature = "candle")]
fn hub_model(name: &str, text: &str, policy: &ModelPolicy) -> Result<Opened> {
    let main = hub_main(name, policy).ok_or_else(|| not_found(text))?;
    // Taken before it is read: a change after that is noticed.
    let stamped = FileStamps::of(&main);
    let directory = hub_snapshot(&main).ok_or_else(|| not_found(text))?;
    let opened = transformer(text, &directory, &BTreeMap::new())?;
    let files = opened.files.map(|files| files.joined(stamped));
    Ok(Opened { files, ..opened })
}

#[cfg(not(feature = "candle"))]
fn hub_model(name: &str, text: &str, policy: &ModelPolicy) -> Result<Opened> {
    match hub_main(name, policy).and_then(|main| hub_snapshot(&main)) {
        Some(_) => Err(left_out(text, "candle")),
        None => Err(not_found(text)),
    }
}

/// The file that names the snapshot of `org/model`.
fn hub_main(name: &str, policy: &ModelPolicy) -> Option<PathBuf> {
    let (organisation, model) = name.split_once('/')?;
    let repository = format!("models--{organisation}--{}", model.replace('/', "--"));
    let cache = policy.hub_cache.as_ref()?;
    Some(cache.join(repository).join("refs").join("main"))
}

fn hub_snapshot(main: &Path) -> Option<PathBuf> {
    let revision = std::fs::read_to_string(main).ok()?;
    let revision = revision.trim();
    let plain = !revision.is_empty() && revision.bytes().all(|b| b.is_ascii_alphanumeric());
    let snapshot = main.parent()?.parent()?.join("snapshots").join(revision);
    (plain && snapshot.is_dir()).then_some(snapshot)
}

/// The error of a spec whose kind of model this build leaves out.
#[cfg(not(all(feature = "candle", feature = "http", feature = "minilm")))]
pub(super) fn left_out(spec: &str, feature: &'static str) -> Error {
    Error::NotYetSupported {
        feature: format!(
            "model {spec:?} needs the cargo feature {feature}, which this build leaves out;"
        ),
    }
}
