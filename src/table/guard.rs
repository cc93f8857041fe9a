//! Runs the Parquet decoder so that a panic of it is an error.
//!
//! The decoder trusts page headers and level streams that a forged file can bend until it panics.
//! What it was working on is dropped then, so nothing broken is used again.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

use futures::FutureExt;

use crate::{Error, Result};

/// Runs a call of the decoder on the object `key`.
pub(crate) fn decode<T>(
    artifact: &'static str,
    key: &str,
    call: impl FnOnce() -> Result<T>,
) -> Result<T> {
    catch_unwind(AssertUnwindSafe(call)).unwrap_or_else(|p| Err(panicked(artifact, key, &*p)))
}

/// As [`decode`], for a future.
pub(crate) async fn decode_async<T>(
    artifact: &'static str,
    key: &str,
    call: impl Future<Output = Result<T>>,
) -> Result<T> {
    let outcome = AssertUnwindSafe(call).catch_unwind().await;
    outcome.unwrap_or_else(|p| Err(panicked(artifact, key, &*p)))
}

fn panicked(artifact: &'static str, key: &str, payload: &(dyn Any + Send)) -> Error {
    let text = payload.downcast_ref::<String>().map(String::as_str);
    let text = text.or_else(|| payload.downcast_ref::<&str>().copied());
    let found = format!(
        "bytes that the decoder gives up on: {}",
        text.unwrap_or("no reason")
    );
    Error::corrupt(artifact, key, "a Parquet file of this format", found)
}
