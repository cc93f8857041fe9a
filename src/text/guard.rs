//! Runs tantivy so that a panic of it is an error.
//!
//! Its readers trust offsets and lengths that a forged object can bend until they panic. What they were
//! working on is dropped then, so nothing broken is used again.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

use super::ARTIFACT;
use crate::{Error, Result};

/// Runs a call on the object `key`.
pub(super) fn read<T>(key: &str, call: impl FnOnce() -> Result<T>) -> Result<T> {
    catch_unwind(AssertUnwindSafe(call)).unwrap_or_else(|p| Err(panicked(key, &*p)))
}

/// A failure of tantivy on the object `key`.
pub(super) fn unreadable(key: &str, error: impl ToString) -> Error {
    Error::corrupt(ARTIFACT, key, "a readable inverted index", error)
}

fn panicked(key: &str, payload: &(dyn Any + Send)) -> Error {
    let text = payload.downcast_ref::<String>().map(String::as_str);
    let text = text.or_else(|| payload.downcast_ref::<&str>().copied());
    let reason = text.unwrap_or("no reason");
    unreadable(key, format!("bytes that its reader gives up on: {reason}"))
}
