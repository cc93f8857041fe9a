//! The files of a model directory: read once, digested as they are read, and stamped, so that a
//! change of any of them is noticed without reading them again.

use std::collections::BTreeMap;
use std::fs::{File, Metadata};
use std::io::Read as _;
use std::path::{Component, Path, PathBuf};

use serde_json::{Map, Value};

use crate::digest::Digest;
use crate::{Error, Result, limits};

/// Bytes of a file that describes a model or lists its tensors.
const JSON_BYTES: usize = 16 * 1024 * 1024;

/// Reads the files of one model. What was read, and what was looked for in vain, is remembered.
#[derive(Debug)]
pub(super) struct ModelFiles {
    /// The spec, for messages.
    model: String,
    root: PathBuf,
    seen: BTreeMap<String, Option<Seen>>,
    total: u64,
}

#[derive(Debug)]
struct Seen {
    digest: Digest,
    stamp: Stamp,
}

/// What a file system says of a file. Writing a file moves its ctime, whatever becomes of its mtime.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Stamp {
    length: u64,
    modified: (i64, i64),
    changed: (i64, i64),
    file: (u64, u64),
}

impl Stamp {
    #[cfg(unix)]
    fn of(metadata: &Metadata) -> Self {
        use std::os::unix::fs::MetadataExt as _;
        Self {
            length: metadata.len(),
            modified: (metadata.mtime(), metadata.mtime_nsec()),
            changed: (metadata.ctime(), metadata.ctime_nsec()),
            file: (metadata.dev(), metadata.ino()),
        }
    }

    #[cfg(not(unix))]
    fn of(metadata: &Metadata) -> Self {
        let since = |time: std::io::Result<std::time::SystemTime>| {
            let span = time
                .ok()
                .and_then(|t| t.duration_since(std::time::UNIX_EPOCH).ok());
            span.map_or((0, 0), |s| {
                (s.as_secs() as i64, i64::from(s.subsec_nanos()))
            })
        };
        Self {
            length: metadata.len(),
            modified: since(metadata.modified()),
            changed: since(metadata.created()),
            file: (0, 0),
        }
    }
}

impl ModelFiles {
    /// The files below `root` of the model that `model` names.
    ///
    /// A `root` that is not a directory is [`Error::ModelInvalid`].
    pub(super) fn new(model: &str, root: &Path) -> Result<Self> {
        let files = Self {
            model: model.to_owned(),
            root: root.to_owned(),
            seen: BTreeMap::new(),
            total: 0,
        };
        match std::fs::metadata(root) {
            Ok(metadata) if metadata.is_dir() => Ok(files),
            Ok(_) => Err(files.invalid("", "it is not a directory")),
            Err(error) => Err(files.invalid("", error.to_string())),
        }
    }

    /// The spec, for messages.
    #[cfg(feature = "candle")]
    pub(super) fn model(&self) -> &str {
        &self.model
    }

    /// The bytes of a file, or `None` where there is none.
    ///
    /// Names come from other files of the model, so they must stay below the root. More than
    /// [`limits::MODEL_BYTES`] in all are [`Error::ResourceLimitExceeded`].
    pub(super) fn read(&mut self, name: &str) -> Result<Option<Vec<u8>>> {
        let below = !name.is_empty()
            && Path::new(name)
                .components()
                .all(|part| matches!(part, Component::Normal(_)));
        if !below {
            return Err(self.invalid(name, "a file below the model's directory is expected"));
        }
        let path = self.root.join(name);
        // Opening what is no file could wait for ever.
        if std::fs::metadata(&path).is_ok_and(|metadata| !metadata.is_file()) {
            return Err(self.invalid(name, "a regular file is expected"));
        }
        let mut file = match File::open(&path) {
            Ok(file) => file,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                self.seen.insert(name.to_owned(), None);
                return Ok(None);
            }
            Err(error) => return Err(self.invalid(name, error.to_string())),
        };
        let metadata = file
            .metadata()
            .map_err(|e| self.invalid(name, e.to_string()))?;
        let stamp = Stamp::of(&metadata);
        self.total = self.total.saturating_add(stamp.length);
        if self.total > limits::MODEL_BYTES {
            return Err(Error::ResourceLimitExceeded {
                what: "bytes of a model",
                value: self.total,
                limit: limits::MODEL_BYTES,
            });
        }
        let mut bytes = Vec::with_capacity(usize::try_from(stamp.length).unwrap_or(0));
        let read = file.by_ref().take(stamp.length + 1).read_to_end(&mut bytes);
        read.map_err(|e| self.invalid(name, e.to_string()))?;
        let after = file
            .metadata()
            .map_err(|e| self.invalid(name, e.to_string()))?;
        if bytes.len() as u64 != stamp.length || Stamp::of(&after) != stamp {
            return Err(self.invalid(name, "it changed while it was read; try again"));
        }
        let digest = Digest::of(&bytes);
        self.seen
            .insert(name.to_owned(), Some(Seen { digest, stamp }));
        Ok(Some(bytes))
    }

    /// As [`read`](Self::read); a file that is not there is [`Error::ModelInvalid`].
    pub(super) fn require(&mut self, name: &str) -> Result<Vec<u8>> {
        let bytes = self.read(name)?;
        bytes.ok_or_else(|| self.invalid(name, "it does not exist"))
    }

    /// A file as JSON, or `None` where there is none.
    pub(super) fn json(&mut self, name: &str) -> Result<Option<Value>> {
        match self.read(name)? {
            None => Ok(None),
            Some(bytes) if bytes.len() > JSON_BYTES => {
                Err(self.invalid(name, "it is too long for a description of a model"))
            }
            Some(bytes) => serde_json::from_slice(&bytes)
                .map(Some)
                .map_err(|e| self.invalid(name, format!("it is not JSON: {e}"))),
        }
    }

    /// The error that a file is not what it should be.
    pub(super) fn invalid(&self, name: &str, reason: impl Into<String>) -> Error {
        Error::ModelInvalid {
            model: self.model.clone(),
            file: name.to_owned(),
            reason: reason.into(),
        }
    }

    /// SHA-256 in hex of every file that was read, by name: what a definition says of them.
    pub(super) fn digests(&self) -> Map<String, Value> {
        let hex = |(name, seen): (&String, &Option<Seen>)| {
            let digest = seen.as_ref()?.digest.to_string();
            Some((name.clone(), Value::String(digest)))
        };
        self.seen.iter().filter_map(hex).collect()
    }

    /// The stamps of everything that was looked at.
    pub(super) fn stamps(self) -> FileStamps {
        let stamp = |(name, seen): (String, Option<Seen>)| {
            let path = self.root.join(name);
            (path, seen.map(|seen| seen.stamp))
        };
        FileStamps(self.seen.into_iter().map(stamp).collect())
    }
}

/// The files of an opened model as they were when they were read.
#[derive(Debug, Clone)]
pub(super) struct FileStamps(Vec<(PathBuf, Option<Stamp>)>);

impl FileStamps {
    /// The stamp of one file as it is now.
    #[cfg(feature = "candle")]
    pub(super) fn of(path: &Path) -> Self {
        let stamp = std::fs::metadata(path).ok().map(|m| Stamp::of(&m));
        Self(vec![(path.to_owned(), stamp)])
    }

    /// Both.
    #[cfg(feature = "candle")]
    pub(super) fn joined(mut self, other: Self) -> Self {
        self.0.extend(other.0);
        self
    }

    /// Whether each file is still the same one, and what was missing is still missing.
    pub(super) fn are_current(&self) -> bool {
        self.0.iter().all(|(path, stamp)| {
            let now = std::fs::metadata(path).ok().map(|m| Stamp::of(&m));
            now == *stamp
        })
    }
}
