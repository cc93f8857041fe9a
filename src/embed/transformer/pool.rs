//! From token states to one vector: pooling, dense steps, normalisation. In plain loops of f64 over
//! one row, so that no other row can change a bit of it.

use super::layout::{Activation, Pooling};

/// A step after the pooling, with its weights.
#[derive(Debug)]
pub(super) enum Head {
    Normalise,
    Dense {
        /// outputs x inputs, row-major.
        weights: Vec<f32>,
        /// One per output; empty without a bias.
        bias: Vec<f32>,
        inputs: usize,
        activation: Activation,
    },
}

/// Pools the states of one input, `length x width` numbers, into `width` numbers.
pub(super) fn pool(pooling: Pooling, states: &[f32], width: usize) -> Vec<f64> {
    let mut rows = states.chunks_exact(width);
    let widen = |row: &[f32]| row.iter().map(|x| f64::from(*x)).collect::<Vec<f64>>();
    let mut out = rows.next().map(widen).unwrap_or_default();
    match pooling {
        Pooling::Cls => {}
        Pooling::Max => {
            for row in rows {
                for (max, x) in out.iter_mut().zip(row) {
                    *max = max.max(f64::from(*x));
                }
            }
        }
        Pooling::Mean => {
            let mut count = 1.0;
            for row in rows {
                count += 1.0;
                for (sum, x) in out.iter_mut().zip(row) {
                    *sum += f64::from(*x);
                }
            }
            for sum in &mut out {
                *sum /= count;
            }
        }
    }
    out
}

impl Head {
    /// Applies the step. A vector of norm zero stays as it is.
    pub(super) fn apply(&self, vector: Vec<f64>) -> Vec<f64> {
        match self {
            Self::Normalise => {
                let norm = vector.iter().map(|x| x * x).sum::<f64>().sqrt();
                match norm > 0.0 {
                    true => vector.into_iter().map(|x| x / norm).collect(),
                    false => vector,
                }
            }
            Self::Dense {
                weights,
                bias,
                inputs,
                activation,
            } => {
                let rows = weights.chunks_exact(*inputs).enumerate();
                rows.map(|(at, row)| {
                    let sum: f64 = row
                        .iter()
                        .zip(&vector)
                        .map(|(w, x)| f64::from(*w) * x)
                        .sum();
                    let sum = sum + bias.get(at).copied().map_or(0.0, f64::from);
                    match activation {
                        Activation::Identity => sum,
                        Activation::Tanh => sum.tanh(),
                    }
                })
                .collect()
            }
        }
    }
}
