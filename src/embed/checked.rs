//! Calls of a model: in batches that it takes, with its answers checked.

use std::ops::Range;

use arrow::array::Array;

use super::embedded::components;
use super::redact::redact;
use super::{BatchLimits, Embedded, EmbeddedBuilder, Embedder, Role, vector_type};
use crate::{Error, Result};

/// Embeds any number of texts: in batches within the model's limits, one after the other, every
/// answer [validated](validate). The answer holds all rows, so callers bound `texts`.
///
/// Dropping the future between batches stops the work.
pub async fn embed_checked(
    model: &dyn Embedder,
    role: Role,
    texts: &[Option<&str>],
) -> Result<Embedded> {
    let mut all = EmbeddedBuilder::new(model.spec(), model.dimensions(), texts.len())?;
    for range in batches(texts, model.limits()) {
        let whole = range.len() == texts.len();
        let batch = &texts[range];
        let answer = model.embed(role, batch).await?;
        validate(model, batch.len(), &answer)?;
        if whole {
            return Ok(answer);
        }
        all.append(&answer)?;
        // A local model never waits; without this a caller could not cancel between its batches.
        tokio::task::yield_now().await;
    }
    all.finish()
}

/// As [`embed_checked`], on the calling thread; `None` when the model has no synchronous path.
pub fn embed_checked_sync(
    model: &dyn Embedder,
    role: Role,
    texts: &[Option<&str>],
) -> Option<Result<Embedded>> {
    embed_checked_until(model, role, texts, &|| false)
}

/// As [`embed_checked_sync`]; [`Error::Cancelled`] when `stopped` says so before a batch.
pub fn embed_checked_until(
    model: &dyn Embedder,
    role: Role,
    texts: &[Option<&str>],
    stopped: &dyn Fn() -> bool,
) -> Option<Result<Embedded>> {
    let local = model.sync()?;
    let run = || {
        let mut all = EmbeddedBuilder::new(model.spec(), model.dimensions(), texts.len())?;
        for range in batches(texts, model.limits()) {
            if stopped() {
                return Err(Error::Cancelled {
                    operation: "embedding",
                });
            }
            let whole = range.len() == texts.len();
            let batch = &texts[range];
            let answer = local.embed_now(role, batch)?;
            validate(model, batch.len(), &answer)?;
            if whole {
                return Ok(answer);
            }
            all.append(&answer)?;
        }
        all.finish()
    };
    Some(run())
}

/// Cuts `texts` into consecutive ranges of at most `limits.rows` texts and `limits.bytes` bytes; a
/// text that alone is larger is a range of its own. Every row is in exactly one range.
pub fn batches(texts: &[Option<&str>], limits: BatchLimits) -> impl Iterator<Item = Range<usize>> {
    let mut start = 0;
    std::iter::from_fn(move || {
        let mut bytes = 0usize;
        let mut end = start;
        while end < texts.len() && end - start < limits.rows.max(1) {
            bytes = bytes.saturating_add(texts[end].map_or(0, str::len));
            if end > start && bytes > limits.bytes {
                break;
            }
            end += 1;
        }
        let range = start..end;
        start = end;
        (!range.is_empty()).then_some(range)
    })
}

/// Holds an answer for `rows` texts to the contract of [`Embedder::embed`]: the number of slots,
/// their width, finite components, a norm above zero, and a reason for exactly the null slots.
///
/// A breach is [`Error::ModelFailed`]: a misaligned or meaningless vector must never be stored.
pub fn validate(model: &dyn Embedder, rows: usize, answer: &Embedded) -> Result<()> {
    let breach = |reason: String| Error::ModelFailed {
        model: redact(model.spec()),
        reason,
    };
    let vectors = &answer.vectors;
    let expected = vector_type(model.dimensions())?;
    if vectors.data_type() != &expected {
        return Err(breach(format!(
            "it gave vectors of type {}, not {expected}",
            vectors.data_type()
        )));
    }
    if vectors.len() != rows {
        return Err(breach(format!(
            "it gave {} vectors for {rows} texts",
            vectors.len()
        )));
    }
    let refused = answer.errors.iter().map(|(row, _)| *row);
    if !refused.eq((0..rows).filter(|row| vectors.is_null(*row))) {
        return Err(breach(
            "its list of refused rows and its null vectors differ".to_owned(),
        ));
    }
    let slots = components(vectors)?.chunks_exact(model.dimensions());
    for (row, vector) in slots.enumerate().filter(|(row, _)| vectors.is_valid(*row)) {
        if !vector.iter().all(|x| x.is_finite()) {
            return Err(breach(format!("the vector of row {row} is not finite")));
        }
        if vector.iter().all(|x| *x == 0.0) {
            return Err(breach(format!("the vector of row {row} is zero")));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cut(lengths: &[usize], rows: usize, bytes: usize) -> Vec<(usize, usize)> {
        let text = "x".repeat(16);
        let texts: Vec<Option<&str>> = lengths.iter().map(|n| Some(&text[..*n])).collect();
        batches(&texts, BatchLimits { rows, bytes })
            .map(|range| (range.start, range.end))
            .collect()
    }

    #[test]
    fn batches_keep_both_limits_at_their_edges() {
        assert!(cut(&[], 4, 4).is_empty());
        assert_eq!(cut(&[1, 1, 1, 1], 4, 4), [(0, 4)]);
        assert_eq!(cut(&[1, 1, 1, 1, 1], 4, 9), [(0, 4), (4, 5)]);
        assert_eq!(cut(&[2, 2, 1], 4, 4), [(0, 2), (2, 3)]);
        assert_eq!(cut(&[2, 3], 4, 4), [(0, 1), (1, 2)]);
        // A text above the limit travels alone, and a limit of zero rows still makes progress.
        assert_eq!(cut(&[1, 9, 1], 4, 4), [(0, 1), (1, 2), (2, 3)]);
        assert_eq!(cut(&[0, 0], 0, 0), [(0, 1), (1, 2)]);
    }
}
