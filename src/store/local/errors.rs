//! Failures of file operations as errors of the store.

use std::fmt;
use std::io;

use object_store::Error;
use object_store::path::Path;

use super::STORE;

/// What a file operation was for and why it failed.
#[derive(Debug, thiserror::Error)]
#[error("{operation} of {path:?} failed: {source}")]
struct LocalError {
    operation: &'static str,
    path: String,
    source: io::Error,
}

/// The store's error of a failed file operation. `NotFound` and `AlreadyExists` mean the object
/// `path` itself: callers map those that mean something else.
pub(super) fn store_error(
    operation: &'static str,
    path: impl fmt::Display,
    source: io::Error,
) -> Error {
    let path = path.to_string();
    let kind = source.kind();
    let cause = Box::new(LocalError {
        operation,
        path: path.clone(),
        source,
    });
    match kind {
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory | io::ErrorKind::IsADirectory => {
            Error::NotFound {
                path,
                source: cause,
            }
        }
        io::ErrorKind::AlreadyExists => Error::AlreadyExists {
            path,
            source: cause,
        },
        io::ErrorKind::PermissionDenied => Error::PermissionDenied {
            path,
            source: cause,
        },
        io::ErrorKind::Unsupported => Error::NotSupported { source: cause },
        _ => generic(cause),
    }
}

/// The error of a step that is not about the object itself: never `NotFound` or `AlreadyExists`,
/// which callers read as statements about the object.
pub(super) fn write_error(
    operation: &'static str,
    path: impl fmt::Display,
    source: io::Error,
) -> Error {
    match source.kind() {
        io::ErrorKind::PermissionDenied => store_error(operation, path, source),
        _ => generic(LocalError {
            operation,
            path: path.to_string(),
            source,
        }),
    }
}

pub(super) fn generic(source: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Error {
    Error::Generic {
        store: STORE,
        source: source.into(),
    }
}

pub(super) fn not_implemented(operation: &str) -> Error {
    Error::NotImplemented {
        operation: operation.to_owned(),
        implementer: STORE.to_owned(),
    }
}

/// Whether a link failed because the file system has no hard links: Linux says `EPERM` there.
fn lacks_links(error: &io::Error) -> bool {
    const EPERM: i32 = 1;
    error.kind() == io::ErrorKind::Unsupported
        || (cfg!(unix) && error.raw_os_error() == Some(EPERM))
}

/// The error of giving a file its final name.
pub(super) fn name_error(location: &Path, source: io::Error) -> Error {
    if lacks_links(&source) {
        return Error::NotSupported {
            source: "this file system has no hard links, which exclusive creation needs".into(),
        };
    }
    match source.kind() {
        io::ErrorKind::AlreadyExists => store_error("naming", location, source),
        _ => write_error("naming", location, source),
    }
}
