//! What a store call was, and how a list of calls is written down.

use std::fmt;

use super::fault::Fault;

/// Kind of a store call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Op {
    /// Create-only put.
    PutCreate,
    /// Put over what is there.
    PutOverwrite,
    /// Put that expects a version.
    PutUpdate,
    /// Start of an upload in parts.
    UploadBegin,
    /// One part.
    UploadPart,
    /// End of an upload: the object appears.
    UploadComplete,
    /// End of an upload without an object.
    UploadAbort,
    /// Read of a whole object.
    Get,
    /// Read of one range.
    GetRange,
    /// Read of several ranges.
    GetRanges,
    /// Read of the description only.
    Head,
    /// Delete of one object.
    Delete,
    /// List below a prefix.
    List,
    /// List below a prefix, past an offset.
    ListOffset,
    /// List of one level.
    ListLevel,
    /// Copy over what is there.
    Copy,
    /// Create-only copy.
    CopyCreate,
    /// Rename.
    Rename,
}

impl Op {
    /// Whether the call changes the store.
    pub fn is_write(self) -> bool {
        !matches!(
            self,
            Self::Get
                | Self::GetRange
                | Self::GetRanges
                | Self::Head
                | Self::List
                | Self::ListOffset
                | Self::ListLevel
        )
    }
}

impl fmt::Display for Op {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::PutCreate => "PUT create",
            Self::PutOverwrite => "PUT overwrite",
            Self::PutUpdate => "PUT update",
            Self::UploadBegin => "UPLOAD begin",
            Self::UploadPart => "UPLOAD part",
            Self::UploadComplete => "UPLOAD complete",
            Self::UploadAbort => "UPLOAD abort",
            Self::Get => "GET",
            Self::GetRange => "GET range",
            Self::GetRanges => "GET ranges",
            Self::Head => "HEAD",
            Self::Delete => "DELETE",
            Self::List => "LIST",
            Self::ListOffset => "LIST offset",
            Self::ListLevel => "LIST level",
            Self::Copy => "COPY",
            Self::CopyCreate => "COPY create",
            Self::Rename => "RENAME",
        })
    }
}

/// One store call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Call {
    /// Its number, from 0.
    pub number: u64,
    /// What it was.
    pub op: Op,
    /// The key, or the prefix of a list.
    pub key: String,
    /// Bytes of the payload or of the answered range.
    pub bytes: u64,
    /// The fault that it met.
    pub fault: Option<Fault>,
}

impl fmt::Display for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            number, op, key, ..
        } = self;
        write!(f, "{number} {op} {key} {}", self.bytes)?;
        match self.fault {
            Some(fault) => write!(f, " !{fault:?}"),
            None => Ok(()),
        }
    }
}

/// What a key is for, without ids: `catalog` for slots, else the extension, else the first part.
pub fn kind_of_key(key: &str) -> String {
    let (first, last) = (key.split('/').next(), key.rsplit('/').next());
    let first = first.unwrap_or_default();
    match last.and_then(|name| name.rsplit_once('.')) {
        Some((_, extension)) if first != "catalog" => format!(".{extension}"),
        _ => first.to_owned(),
    }
}

/// The calls by kind, in order, one a line, runs of equal lines as `line xN`: equal for equal work,
/// whatever the ids are.
pub fn canonical(calls: &[Call]) -> String {
    let mut lines: Vec<(String, u64)> = Vec::new();
    for call in calls {
        let line = format!("{} {}", call.op, kind_of_key(&call.key));
        match lines.last_mut() {
            Some((last, count)) if *last == line => *count += 1,
            _ => lines.push((line, 1)),
        }
    }
    let mut text = String::new();
    for (line, count) in lines {
        text.push_str(line.trim_end());
        if count > 1 {
            text.push_str(&format!(" x{count}"));
        }
        text.push('\n');
    }
    text
}
