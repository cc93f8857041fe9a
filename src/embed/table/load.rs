//! Tables of files.

use safetensors::tensor::TensorView;
use safetensors::{Dtype, SafeTensors};
use serde_json::Value;

use super::super::files::ModelFiles;
use super::floats::{of_bf16, of_f16};
use super::rows::{Rows, Values};
use crate::{Result, limits};

const TENSORS: &str = "model.safetensors";
const CONFIG: &str = "config.json";

/// Whether `config.json` leaves vectors at length 1; where it says nothing they are.
pub(super) fn normalised(files: &mut ModelFiles) -> Result<bool> {
    match files.json(CONFIG)? {
        None => Ok(true),
        Some(Value::Object(config)) => match config.get("normalize") {
            None | Some(Value::Null) => Ok(true),
            Some(Value::Bool(normalise)) => Ok(*normalise),
            Some(_) => Err(files.invalid(CONFIG, "its normalize is not true or false")),
        },
        Some(_) => Err(files.invalid(CONFIG, "it is not a JSON object")),
    }
}

/// The table of `model.safetensors` for a tokenizer whose ids are below `tokens`.
pub(super) fn rows(files: &mut ModelFiles, tokens: usize) -> Result<Rows> {
    let bytes = files.require(TENSORS)?;
    let rows = SafeTensors::deserialize(&bytes)
        .map_err(|e| format!("it is not a file of tensors: {e}"))
        .and_then(|tensors| rows_of(&tensors, tokens));
    rows.map_err(|reason| files.invalid(TENSORS, reason))
}

fn rows_of(tensors: &SafeTensors<'_>, tokens: usize) -> Result<Rows, String> {
    let table = ["embeddings", "embedding.weight"]
        .iter()
        .find_map(|name| tensors.tensor(name).ok())
        .ok_or("it has neither a tensor embeddings nor embedding.weight")?;
    let &[_, dimensions] = table.shape() else {
        return Err(format!(
            "its table has the shape {:?}, not [tokens, dimensions]",
            table.shape()
        ));
    };
    if !(1..=limits::DIMENSIONS).contains(&dimensions) {
        let most = limits::DIMENSIONS;
        return Err(format!(
            "its rows have {dimensions} components, not 1 to {most}"
        ));
    }
    let list = |name: &str| tensors.tensor(name).ok();
    let rows = list("mapping").map(|t| mapping(&t)).transpose()?;
    let weights = list("weights").map(|t| weights(&t)).transpose()?;
    Rows::new(values(&table)?, dimensions, rows, weights, tokens)
}

fn values(table: &TensorView<'_>) -> Result<Values, String> {
    let data = table.data();
    let half = |of: fn(u16) -> f32| numbers(data, |bytes| of(u16::from_le_bytes(bytes)));
    let floats = match table.dtype() {
        Dtype::I8 => return Ok(Values::Integers(data.to_vec().into())),
        Dtype::F32 => numbers(data, f32::from_le_bytes),
        Dtype::F16 => half(of_f16),
        Dtype::BF16 => half(of_bf16),
        other => {
            return Err(format!(
                "its table is of type {other}, not F32, F16, BF16 or I8"
            ));
        }
    };
    if floats.iter().any(|value| !value.is_finite()) {
        return Err("a number of its table is not finite".to_owned());
    }
    Ok(Values::Floats(floats))
}

fn weights(list: &TensorView<'_>) -> Result<Vec<f64>, String> {
    one_per_token(list, "weights")?;
    let weights: Vec<f64> = match list.dtype() {
        Dtype::F64 => numbers(list.data(), f64::from_le_bytes),
        Dtype::F32 => numbers(list.data(), |bytes| f64::from(f32::from_le_bytes(bytes))),
        other => return Err(format!("its weights are of type {other}, not F32 or F64")),
    };
    if weights.iter().any(|weight| !weight.is_finite()) {
        return Err("one of its weights is not finite".to_owned());
    }
    Ok(weights)
}

fn mapping(list: &TensorView<'_>) -> Result<Vec<u32>, String> {
    one_per_token(list, "mapping")?;
    let wide: Vec<i64> = match list.dtype() {
        Dtype::I64 => numbers(list.data(), i64::from_le_bytes),
        Dtype::I32 => numbers(list.data(), |bytes| i64::from(i32::from_le_bytes(bytes))),
        other => return Err(format!("its mapping is of type {other}, not I32 or I64")),
    };
    let row = |row: i64| u32::try_from(row).map_err(|_| format!("its mapping names row {row}"));
    wide.into_iter().map(row).collect()
}

fn one_per_token(list: &TensorView<'_>, name: &str) -> Result<(), String> {
    match list.shape() {
        [_] => Ok(()),
        shape => Err(format!("its {name} have the shape {shape:?}, not [tokens]")),
    }
}

/// The file has checked that `data` is a whole number of them.
fn numbers<const N: usize, T>(data: &[u8], number: impl Fn([u8; N]) -> T) -> Vec<T> {
    data.as_chunks()
        .0
        .iter()
        .map(|bytes| number(*bytes))
        .collect()
}
