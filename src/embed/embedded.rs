//! The answer of a model: vectors, and why rows have none.

use std::sync::Arc;

use arrow::array::{Array, FixedSizeListArray, Float32Array};
use arrow::buffer::{NullBuffer, ScalarBuffer};
use arrow::datatypes::{DataType, Field, FieldRef};

use super::redact::redact;
use crate::{Error, Result, limits};

/// Why a row got no vector. The text of [`as_str`](Self::as_str) is stored and shown, and stable.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum RejectReason {
    /// There is no text. Lasting.
    Empty,
    /// The model finds nothing in the text (white space alone), so its vector would have no
    /// direction. Lasting.
    ZeroNorm,
    /// The text is longer than the definition allows. Lasting.
    TooLong,
    /// The model computed a NaN or an infinity. Passing: it is a fault of a model or of a machine,
    /// and a row that was set aside for it for good would outlive the repair.
    NonFinite,
    /// A remote model refused this one text. Passing: the server's rules are not in the definition,
    /// and another server of the same model may take it.
    Rejected,
}

impl RejectReason {
    const ALL: [Self; 5] = [
        Self::Empty,
        Self::ZeroNorm,
        Self::TooLong,
        Self::NonFinite,
        Self::Rejected,
    ];

    /// The stable text.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Empty => "empty",
            Self::ZeroNorm => "zero_norm",
            Self::TooLong => "too_long",
            Self::NonFinite => "non_finite",
            Self::Rejected => "rejected",
        }
    }

    /// The reason with this stable text.
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|reason| reason.as_str() == text)
    }

    /// Whether the refusal is a function of the text and the definition: the same call is refused
    /// again, so a refresh does not repeat it while neither has changed.
    pub fn is_lasting(self) -> bool {
        match self {
            Self::Empty | Self::ZeroNorm | Self::TooLong => true,
            Self::NonFinite | Self::Rejected => false,
        }
    }
}

impl std::fmt::Display for RejectReason {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

/// What a model made of a list of texts.
#[derive(Debug, Clone, PartialEq)]
pub struct Embedded {
    /// One slot per text, of [`vector_type`]; null where the text was refused.
    pub vectors: FixedSizeListArray,
    /// The refused rows in ascending order: exactly the null slots.
    pub errors: Vec<(usize, RejectReason)>,
    /// Rows of which the model read only the beginning, as its definition says.
    pub truncated: u64,
}

/// The type of vectors of `dimensions` components: a fixed-size list of non-null Float32 `item`s.
///
/// Fails when `dimensions` is not within 1 to [`limits::DIMENSIONS`].
pub fn vector_type(dimensions: usize) -> Result<DataType> {
    Ok(DataType::FixedSizeList(
        item_field(),
        list_size(dimensions)?,
    ))
}

fn item_field() -> FieldRef {
    Arc::new(Field::new_list_field(DataType::Float32, false))
}

fn list_size(dimensions: usize) -> Result<i32> {
    check_dimensions(dimensions)?;
    i32::try_from(dimensions).map_err(|_| too_many(dimensions))
}

/// Refuses a width outside 1 to [`limits::DIMENSIONS`].
pub(super) fn check_dimensions(dimensions: usize) -> Result<()> {
    if dimensions == 0 {
        return Err(Error::InvalidArgument {
            function: "embedding model".to_owned(),
            argument: "dimensions".to_owned(),
            reason: format!("a number from 1 to {} is expected", limits::DIMENSIONS),
        });
    }
    if dimensions > limits::DIMENSIONS {
        return Err(too_many(dimensions));
    }
    Ok(())
}

fn too_many(dimensions: usize) -> Error {
    Error::ResourceLimitExceeded {
        what: "dimensions of a vector",
        value: dimensions as u64,
        limit: limits::DIMENSIONS as u64,
    }
}

/// Collects vectors and refusals row by row.
#[derive(Debug)]
pub struct EmbeddedBuilder {
    model: String,
    dimensions: usize,
    values: Vec<f32>,
    valid: Vec<bool>,
    errors: Vec<(usize, RejectReason)>,
    truncated: u64,
}

impl EmbeddedBuilder {
    /// A builder for `model` (its spec, for error messages), with room for `rows` rows.
    pub fn new(model: &str, dimensions: usize, rows: usize) -> Result<Self> {
        check_dimensions(dimensions)?;
        Ok(Self {
            model: redact(model),
            dimensions,
            values: Vec::with_capacity(rows.saturating_mul(dimensions)),
            valid: Vec::with_capacity(rows),
            errors: Vec::new(),
            truncated: 0,
        })
    }

    /// Adds a vector; one of another width is [`Error::ModelFailed`].
    pub fn push(&mut self, vector: &[f32]) -> Result<()> {
        if vector.len() != self.dimensions {
            return Err(Error::ModelFailed {
                model: self.model.clone(),
                reason: format!(
                    "the vector of row {} has {} components, not {}",
                    self.valid.len(),
                    vector.len(),
                    self.dimensions
                ),
            });
        }
        self.values.extend_from_slice(vector);
        self.valid.push(true);
        Ok(())
    }

    /// Counts rows of which the model read only the beginning.
    pub fn truncated(&mut self, rows: u64) {
        self.truncated += rows;
    }

    /// Adds a refused row.
    pub fn reject(&mut self, reason: RejectReason) {
        self.errors.push((self.valid.len(), reason));
        // The child has no nulls, so a null slot is still as wide as the others.
        self.values.resize(self.values.len() + self.dimensions, 0.0);
        self.valid.push(false);
    }

    /// Adds every row of `other`, which has passed [`super::validate`] for the same model.
    pub fn append(&mut self, other: &Embedded) -> Result<()> {
        let start = self.valid.len();
        let slots = other.vectors.len();
        self.values.extend_from_slice(components(&other.vectors)?);
        self.valid
            .extend((0..slots).map(|row| other.vectors.is_valid(row)));
        let moved = other.errors.iter().map(|(row, why)| (start + row, *why));
        self.errors.extend(moved);
        self.truncated += other.truncated;
        Ok(())
    }

    /// The rows added so far.
    pub fn finish(self) -> Result<Embedded> {
        let values = Float32Array::new(ScalarBuffer::from(self.values), None);
        let nulls = (!self.errors.is_empty()).then(|| NullBuffer::from(self.valid));
        let size = list_size(self.dimensions)?;
        Ok(Embedded {
            vectors: FixedSizeListArray::try_new(item_field(), size, Arc::new(values), nulls)?,
            errors: self.errors,
            truncated: self.truncated,
        })
    }
}

/// The components of all slots, one slot after the other; null slots hold any numbers.
pub(super) fn components(vectors: &FixedSizeListArray) -> Result<&[f32]> {
    let child = vectors.values().as_any().downcast_ref::<Float32Array>();
    match child {
        Some(child) if child.null_count() == 0 => Ok(child.values()),
        _ => Err(Error::InvalidArgument {
            function: "embedding model".to_owned(),
            argument: "vectors".to_owned(),
            reason: format!(
                "non-null Float32 components are expected, not {}",
                vectors.data_type()
            ),
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_round_trip_through_their_text() {
        for reason in RejectReason::ALL {
            assert_eq!(RejectReason::parse(reason.as_str()), Some(reason));
        }
        assert_eq!(RejectReason::parse("Empty"), None);
        let lasting: Vec<&str> = RejectReason::ALL
            .into_iter()
            .filter(|reason| reason.is_lasting())
            .map(RejectReason::as_str)
            .collect();
        assert_eq!(lasting, ["empty", "zero_norm", "too_long"]);
    }

    #[test]
    fn the_width_is_checked_at_both_ends() {
        for good in [1, 2, limits::DIMENSIONS - 1, limits::DIMENSIONS] {
            assert!(vector_type(good).is_ok(), "{good}");
        }
        assert_eq!(vector_type(0).unwrap_err().code(), "InvalidArgument");
        let above = vector_type(limits::DIMENSIONS + 1).unwrap_err();
        assert_eq!(above.code(), "ResourceLimitExceeded");
    }

    #[test]
    fn a_builder_keeps_rows_and_refusals_apart() {
        let mut builder = EmbeddedBuilder::new("m", 2, 3).unwrap();
        builder.push(&[1.0, 0.0]).unwrap();
        builder.reject(RejectReason::Empty);
        builder.push(&[0.0, 1.0]).unwrap();
        assert_eq!(builder.push(&[1.0]).unwrap_err().code(), "ModelFailed");
        let once = builder.finish().unwrap();
        assert_eq!(once.vectors.data_type(), &vector_type(2).unwrap());
        assert_eq!((once.vectors.len(), once.vectors.null_count()), (3, 1));
        assert_eq!(once.errors, [(1, RejectReason::Empty)]);

        let mut twice = EmbeddedBuilder::new("m", 2, 6).unwrap();
        twice.append(&once).unwrap();
        twice.append(&once).unwrap();
        let twice = twice.finish().unwrap();
        assert_eq!(
            twice.errors,
            [(1, RejectReason::Empty), (4, RejectReason::Empty)]
        );
        assert_eq!(twice.vectors.slice(3, 3), once.vectors);
    }
}
