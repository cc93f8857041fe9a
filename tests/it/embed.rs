//! Embedding models and the functions between a row and its vector.

#![expect(
    clippy::unwrap_used,
    reason = "helpers of tests are not tests to clippy"
)]

mod checked;
mod hash;
#[cfg(feature = "http")]
mod remote;
mod rows;
#[cfg(feature = "minilm")]
mod semantics;
mod spec;
mod table;
#[cfg(feature = "candle")]
mod transformer;

use arrow::array::{Array, AsArray};
use arrow::datatypes::Float32Type;
use stratagraph::embed::{Embedded, HashEmbedder, Role, SyncEmbedder};

fn model(dimensions: usize) -> HashEmbedder {
    HashEmbedder::new(dimensions).unwrap()
}

fn embed(dimensions: usize, texts: &[Option<&str>]) -> Embedded {
    model(dimensions).embed_now(Role::Document, texts).unwrap()
}

/// The vector at `row`, or `None` where the text was refused.
fn vector(embedded: &Embedded, row: usize) -> Option<Vec<f32>> {
    embedded.vectors.is_valid(row).then(|| {
        let vector = embedded.vectors.value(row);
        vector.as_primitive::<Float32Type>().values().to_vec()
    })
}

/// The vector of one text.
fn one(dimensions: usize, text: &str) -> Option<Vec<f32>> {
    vector(&embed(dimensions, &[Some(text)]), 0)
}

fn cosine(a: &[f32], b: &[f32]) -> f32 {
    a.iter().zip(b).map(|(x, y)| x * y).sum()
}
