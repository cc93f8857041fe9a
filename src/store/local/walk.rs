//! Lists, in key order, one directory in memory at a time.

use std::io;
use std::sync::Arc;

use object_store::path::{DELIMITER, Path};
use object_store::{ListResult, ObjectMeta, Result};

use super::errors::store_error;
use super::read::object_meta;
use super::{Inner, TEMP};
use crate::store::disk::DirEntry;

/// A list in progress: the directories from the prefix down to the current one.
#[derive(Debug)]
pub(super) struct Walk {
    prefix: Path,
    offset: Option<Path>,
    /// None before the first step.
    levels: Option<Vec<Level>>,
}

#[derive(Debug)]
struct Level {
    /// What the keys of this directory begin with: empty, or ending in `/`.
    prefix: String,
    entries: std::vec::IntoIter<DirEntry>,
}

impl Walk {
    pub(super) fn new(prefix: Option<&Path>, offset: Option<&Path>) -> Self {
        Self {
            prefix: prefix.cloned().unwrap_or_default(),
            offset: offset.cloned(),
            levels: None,
        }
    }

    /// The next objects; `limit` of them, unless the list ends.
    pub(super) fn next_batch(
        &mut self,
        inner: &Arc<Inner>,
        limit: usize,
    ) -> Result<Vec<ObjectMeta>> {
        let mut levels = match self.levels.take() {
            Some(levels) => levels,
            None => self.first_level(inner)?,
        };
        let mut batch = Vec::new();
        while batch.len() < limit {
            let Some(level) = levels.last_mut() else {
                break;
            };
            let Some(entry) = level.entries.next() else {
                levels.pop();
                continue;
            };
            let key = format!("{}{}", level.prefix, entry.name);
            if entry.is_dir {
                let prefix = key + DELIMITER;
                if !self.is_below_offset(&prefix) {
                    levels.push(read_level(inner, prefix, self.offset.as_ref())?);
                }
            } else if self
                .offset
                .as_ref()
                .is_none_or(|o| key.as_str() > o.as_ref())
            {
                batch.extend(describe(inner, &key)?);
            }
        }
        self.levels = Some(levels);
        Ok(batch)
    }

    /// Whether every directory has been read to its end.
    pub(super) fn is_done(&self) -> bool {
        self.levels.as_ref().is_some_and(Vec::is_empty)
    }

    fn first_level(&self, inner: &Arc<Inner>) -> Result<Vec<Level>> {
        let prefix = level_prefix(&self.prefix);
        if self.is_below_offset(&prefix) {
            return Ok(Vec::new());
        }
        Ok(vec![read_level(inner, prefix, self.offset.as_ref())?])
    }

    /// Whether no key that begins with `prefix` is past the offset.
    fn is_below_offset(&self, prefix: &str) -> bool {
        let Some(offset) = self.offset.as_ref().map(AsRef::as_ref) else {
            return false;
        };
        let offset: &str = offset;
        prefix < offset && !offset.starts_with(prefix)
    }
}

/// The objects and directories directly below `prefix`.
pub(super) fn list_level(inner: &Arc<Inner>, prefix: &Path) -> Result<ListResult> {
    let level = read_level(inner, level_prefix(prefix), None)?;
    let mut listed = ListResult {
        common_prefixes: Vec::new(),
        objects: Vec::new(),
    };
    for entry in level.entries {
        let key = format!("{}{}", level.prefix, entry.name);
        if !entry.is_dir {
            listed.objects.extend(describe(inner, &key)?);
        } else if let Ok(path) = Path::parse(&key) {
            listed.common_prefixes.push(path);
        }
    }
    Ok(listed)
}

fn level_prefix(prefix: &Path) -> String {
    if prefix.is_root() {
        String::new()
    } else {
        format!("{prefix}{DELIMITER}")
    }
}

/// Reads one directory in key order, without files that are not past `offset`; one that is not there is
/// empty.
fn read_level(inner: &Arc<Inner>, prefix: String, offset: Option<&Path>) -> Result<Level> {
    let dir = match prefix.strip_suffix(DELIMITER) {
        None => inner.root.clone(),
        Some(key) => match Path::parse(key) {
            Ok(path) => inner.file_of(&path)?,
            // A directory that no object can be in.
            Err(_) => {
                let entries = Vec::new().into_iter();
                return Ok(Level { prefix, entries });
            }
        },
    };
    let mut entries = match inner.disk.read_dir(&dir) {
        Err(e) if is_absent(&e) => Vec::new(),
        entries => entries.map_err(|e| store_error("listing", &prefix, e))?,
    };
    if prefix.is_empty() {
        entries.retain(|e| e.name != TEMP);
    }
    // A look at the head lists a thousand slots for the one or none that is new.
    if let Some(last) = offset.and_then(|o| o.as_ref().strip_prefix(prefix.as_str())) {
        entries.retain(|e| e.is_dir || e.name.as_str() > last);
    }
    // The keys of a directory go on with a delimiter, which sorts after `-` and `.`.
    let order =
        |e: &DirEntry| (e.name.clone() + if e.is_dir { DELIMITER } else { "" }).into_bytes();
    entries.sort_by_cached_key(order);
    Ok(Level {
        prefix,
        entries: entries.into_iter(),
    })
}

/// The description of a listed file, unless it went away or its name is no object's.
fn describe(inner: &Arc<Inner>, key: &str) -> Result<Option<ObjectMeta>> {
    let Ok(location) = Path::parse(key) else {
        return Ok(None);
    };
    match inner.disk.metadata(&inner.file_of(&location)?) {
        Ok(meta) => Ok((!meta.is_dir).then(|| object_meta(location, &meta))),
        Err(e) if is_absent(&e) => Ok(None),
        Err(e) => Err(store_error("describing", key, e)),
    }
}

fn is_absent(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory
    )
}
