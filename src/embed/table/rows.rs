//! The rows of a table, and their mean.

use std::borrow::Cow;

use super::super::RejectReason;

/// The numbers of a table.
#[derive(Debug)]
pub(super) enum Values {
    /// Eight bits each, in two's complement.
    Integers(Cow<'static, [u8]>),
    /// Finite.
    Floats(Vec<f32>),
}

impl Values {
    fn len(&self) -> usize {
        match self {
            Self::Integers(values) => values.len(),
            Self::Floats(values) => values.len(),
        }
    }
}

/// A table, checked: every token of its tokenizer has a row.
#[derive(Debug)]
pub(super) struct Rows {
    values: Values,
    dimensions: usize,
    /// The row of every token, where that is not the token's own number.
    rows: Option<Vec<u32>>,
    /// The factor of every token, finite.
    weights: Option<Vec<f64>>,
}

impl Rows {
    /// The table of `tokens` tokens, or what is wrong with it.
    pub(super) fn new(
        values: Values,
        dimensions: usize,
        rows: Option<Vec<u32>>,
        weights: Option<Vec<f64>>,
        tokens: usize,
    ) -> Result<Self, String> {
        if dimensions == 0 || !values.len().is_multiple_of(dimensions) {
            return Err(format!(
                "{} numbers are no rows of {dimensions}",
                values.len()
            ));
        }
        let height = values.len() / dimensions;
        let mapped = rows.as_ref().map_or(height, Vec::len);
        if mapped < tokens {
            return Err(format!("{tokens} tokens have {mapped} rows"));
        }
        if let Some(row) = rows.iter().flatten().find(|row| **row as usize >= height) {
            return Err(format!("a token has row {row} of {height}"));
        }
        match &weights {
            Some(weights) if weights.len() < tokens => {
                Err(format!("{tokens} tokens have {} weights", weights.len()))
            }
            _ => Ok(Self {
                values,
                dimensions,
                rows,
                weights,
            }),
        }
    }

    pub(super) fn dimensions(&self) -> usize {
        self.dimensions
    }

    /// Where in the table the row of a token is.
    fn range(&self, id: u32) -> std::ops::Range<usize> {
        let row = self.rows.as_ref().map_or(id, |rows| rows[id as usize]);
        let start = row as usize * self.dimensions;
        start..start + self.dimensions
    }
}

/// Room for the sums of one text.
///
/// Integers are added up exactly. A text has no more tokens than bytes (bytes are what the smallest
/// pieces are made of), 2^24, so a sum stays below 2^31 and below what an f64 holds exactly; the sum of
/// the squares of 65,536 of them stays below 2^78.
///
/// Floats are added in the order of the tokens, each component by itself: IEEE 754 leaves one result,
/// on any machine.
pub(super) struct Scratch {
    integers: Vec<i64>,
    floats: Vec<f64>,
}

impl Scratch {
    pub(super) fn new(rows: &Rows) -> Self {
        Self {
            integers: vec![0; rows.dimensions],
            floats: vec![0.0; rows.dimensions],
        }
    }

    /// Writes the mean of the rows of `ids`, of length 1 if `normalised`.
    pub(super) fn pool(
        &mut self,
        rows: &Rows,
        ids: &[u32],
        normalised: bool,
        out: &mut [f32],
    ) -> Result<(), RejectReason> {
        let squares = match (&rows.values, &rows.weights) {
            (Values::Integers(values), None) => self.add_integers(rows, values, ids),
            (Values::Integers(values), Some(weights)) => {
                let number = |byte: &u8| f64::from(byte.cast_signed());
                self.add_floats(rows, values, number, Some(weights), ids)
            }
            (Values::Floats(values), weights) => {
                let number = |value: &f32| f64::from(*value);
                self.add_floats(rows, values, number, weights.as_deref(), ids)
            }
        };
        if squares == 0.0 {
            return Err(RejectReason::ZeroNorm);
        }
        let divisor = if normalised {
            squares.sqrt()
        } else {
            ids.len() as f64
        };
        for (component, sum) in out.iter_mut().zip(&self.floats) {
            *component = (*sum / divisor) as f32;
        }
        if !squares.is_finite() || out.iter().any(|component| !component.is_finite()) {
            return Err(RejectReason::NonFinite);
        }
        // A mean may be smaller than any f32.
        if out.iter().all(|component| *component == 0.0) {
            return Err(RejectReason::ZeroNorm);
        }
        Ok(())
    }

    /// The sums into `floats`; their squares' sum.
    fn add_integers(&mut self, rows: &Rows, values: &[u8], ids: &[u32]) -> f64 {
        self.integers.fill(0);
        for id in ids {
            let row = &values[rows.range(*id)];
            for (sum, byte) in self.integers.iter_mut().zip(row) {
                *sum += i64::from(byte.cast_signed());
            }
        }
        let mut squares = 0u128;
        for (float, sum) in self.floats.iter_mut().zip(&self.integers) {
            *float = *sum as f64;
            squares += u128::from(sum.unsigned_abs()).pow(2);
        }
        squares as f64
    }

    fn add_floats<T>(
        &mut self,
        rows: &Rows,
        values: &[T],
        number: impl Fn(&T) -> f64,
        weights: Option<&[f64]>,
        ids: &[u32],
    ) -> f64 {
        self.floats.fill(0.0);
        for id in ids {
            let row = &values[rows.range(*id)];
            let weight = weights.map_or(1.0, |weights| weights[*id as usize]);
            for (sum, value) in self.floats.iter_mut().zip(row) {
                *sum += weight * number(value);
            }
        }
        self.floats.iter().map(|sum| sum * sum).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pool(rows: &Rows, ids: &[u32], normalised: bool) -> Result<Vec<f32>, RejectReason> {
        let mut out = vec![9.0; rows.dimensions()];
        let mut scratch = Scratch::new(rows);
        // What was computed before does not show.
        let _ = scratch.pool(rows, &[0], true, &mut out);
        scratch.pool(rows, ids, normalised, &mut out).map(|()| out)
    }

    fn integers(values: &[i8], dimensions: usize) -> Values {
        assert!(values.len().is_multiple_of(dimensions));
        Values::Integers(values.iter().map(|x| x.cast_unsigned()).collect())
    }

    #[test]
    fn integers_are_summed_exactly() {
        let rows = Rows::new(integers(&[3, 4, -3, -4, 0, 5], 2), 2, None, None, 3).unwrap();
        assert_eq!(pool(&rows, &[0], true).unwrap(), [0.6, 0.8]);
        assert_eq!(pool(&rows, &[0, 2, 1], true).unwrap(), [0.0, 1.0]);
        assert_eq!(pool(&rows, &[0, 0, 2], false).unwrap(), [2.0, 13.0 / 3.0]);
        assert_eq!(pool(&rows, &[0, 1], true), Err(RejectReason::ZeroNorm));
        assert_eq!(pool(&rows, &[], true), Err(RejectReason::ZeroNorm));
        assert_eq!(pool(&rows, &[], false), Err(RejectReason::ZeroNorm));
    }

    #[test]
    fn the_longest_text_overflows_nothing() {
        let rows = Rows::new(integers(&[-128; 128], 128), 128, None, None, 1).unwrap();
        let ids = vec![0; crate::limits::TEXT_BYTES];
        let vector = pool(&rows, &ids, true).unwrap();
        assert!(vector.iter().all(|x| *x == -(1.0 / 128f64.sqrt()) as f32));
    }

    #[test]
    fn tokens_have_the_rows_and_weights_they_are_given() {
        let floats = || Values::Floats(vec![1.0, 0.0, 0.0, 2.0]);
        let plain = Rows::new(floats(), 2, None, None, 2).unwrap();
        assert_eq!(pool(&plain, &[0, 1], false).unwrap(), [0.5, 1.0]);
        let mapping = Some(vec![1, 0, 1]);
        let mapped = Rows::new(floats(), 2, mapping.clone(), None, 3).unwrap();
        assert_eq!(
            pool(&mapped, &[0, 1, 2], false).unwrap(),
            [1.0 / 3.0, 4.0 / 3.0]
        );
        let weights = Some(vec![0.5, -1.0, 0.25]);
        let weighed = Rows::new(floats(), 2, mapping, weights.clone(), 3).unwrap();
        assert_eq!(pool(&weighed, &[0, 1], false).unwrap(), [-0.5, 0.5]);
        assert_eq!(pool(&weighed, &[2], true).unwrap(), [0.0, 1.0]);
        let both = Rows::new(integers(&[3, 4], 1), 1, None, weights, 2).unwrap();
        assert_eq!(pool(&both, &[0, 1], false).unwrap(), [-1.25]);
    }

    #[test]
    fn numbers_beyond_f32_are_refused() {
        let rows = |value: f32, weight: f64| {
            Rows::new(Values::Floats(vec![value]), 1, None, Some(vec![weight]), 1).unwrap()
        };
        let huge = rows(1.0, 1e100);
        assert_eq!(pool(&huge, &[0], false), Err(RejectReason::NonFinite));
        assert_eq!(pool(&huge, &[0], true).unwrap(), [1.0]);
        let infinite = rows(1.0, 1e200);
        assert_eq!(pool(&infinite, &[0], true), Err(RejectReason::NonFinite));
        let tiny = rows(1.0, 1e-100);
        assert_eq!(pool(&tiny, &[0], false), Err(RejectReason::ZeroNorm));
        assert_eq!(pool(&tiny, &[0], true).unwrap(), [1.0]);
        let nothing = rows(1.0, 1e-200);
        assert_eq!(pool(&nothing, &[0], true), Err(RejectReason::ZeroNorm));
    }

    #[test]
    fn a_table_that_does_not_fit_its_tokens_is_refused() {
        let rows = |rows: Option<Vec<u32>>, weights: Option<Vec<f64>>, tokens: usize| {
            Rows::new(integers(&[1, 2, 3, 4], 2), 2, rows, weights, tokens)
        };
        assert!(rows(None, None, 2).is_ok());
        assert!(rows(None, None, 3).is_err());
        assert!(rows(Some(vec![1, 1, 0]), None, 3).is_ok());
        assert!(rows(Some(vec![1, 1, 0]), None, 4).is_err());
        assert!(rows(Some(vec![1, 2]), None, 2).is_err());
        assert!(rows(None, Some(vec![1.0]), 2).is_err());
        assert!(Rows::new(integers(&[1, 2, 3], 1), 2, None, None, 1).is_err());
        assert!(Rows::new(integers(&[], 1), 0, None, None, 0).is_err());
    }
}
