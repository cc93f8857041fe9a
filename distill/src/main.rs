//! Makes the token table of the built-in model from the weights of a sentence transformer.
//!
//! Every token of the vocabulary goes alone through the transformer, as `[CLS] token [SEP]`; its row
//! is the last state of its own position. The rows are centred and projected on their principal
//! components, weighted by how rare the token is (smooth inverse frequency, Arora et al., 2017, with
//! frequencies from Zipf's law over the vocabulary, which is sorted by frequency), and rounded to
//! integers of 8 bits with one scale for the whole table. A text's vector is the sum of its tokens'
//! rows; the recipe is that of static distillation (Tulkens and van Dongen, 2024, "Model2Vec").

use std::fmt::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;
use faer::{Mat, Side};
use serde_json::{Map, Value};
use sha2::{Digest as _, Sha256};
use stratagraph::embed::Transformer;

/// Tokens that go through the transformer together.
const BATCH: usize = 512;
/// The weight of a token is `SMOOTH / (SMOOTH + p)`.
const SMOOTH: f64 = 1e-4;

/// Makes a table of 8-bit token vectors from a sentence transformer.
#[derive(Debug, Parser)]
struct Arguments {
    /// A sentence-transformers directory of the BERT family, with vocab.txt.
    #[arg(long)]
    model: PathBuf,
    /// SHA-256 of its model.safetensors, so that the table is made of the weights that were meant.
    #[arg(long)]
    sha256: String,
    /// Components of a row.
    #[arg(long, default_value_t = 128)]
    dimensions: usize,
    /// Where table.i8, vocab.txt and provenance.json go.
    #[arg(long)]
    out: PathBuf,
}

type Failure = Box<dyn std::error::Error>;

fn main() -> ExitCode {
    match run(&Arguments::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &Arguments) -> Result<(), Failure> {
    let source = source(arguments)?;
    let vocabulary = std::fs::read_to_string(arguments.model.join("vocab.txt"))?;
    let tokens: Vec<&str> = vocabulary.lines().collect();
    let model = Transformer::from_directory(&arguments.model)?;
    if tokens.len() != model.vocabulary() {
        return Err("vocab.txt and the tokenizer differ in their number of tokens".into());
    }
    if !(1..=model.width()).contains(&arguments.dimensions) {
        return Err(format!("--dimensions is from 1 to {}", model.width()).into());
    }
    let kept: Vec<usize> = (0..tokens.len())
        .filter(|id| is_used(tokens[*id]))
        .collect();
    let states = states(&model, &kept)?;
    let projected = project(&states, arguments.dimensions)?;
    let weights = rarity(tokens.len());
    let table = quantise(&projected, |row| weights[kept[row]]);
    let mut kept_tokens = String::new();
    for id in &kept {
        writeln!(kept_tokens, "{}", tokens[*id])?;
    }
    write(arguments, &source, &table, &kept_tokens)
}

/// The digests of what the table depends on, of which that of the weights must be the expected one.
fn source(arguments: &Arguments) -> Result<Map<String, Value>, Failure> {
    let mut digests = Map::new();
    for name in [
        "config.json",
        "model.safetensors",
        "tokenizer.json",
        "vocab.txt",
    ] {
        let bytes = std::fs::read(arguments.model.join(name))?;
        digests.insert(name.to_owned(), Value::String(digest(&bytes)));
    }
    if digests["model.safetensors"] != arguments.sha256.to_ascii_lowercase() {
        let found = &digests["model.safetensors"];
        return Err(format!("model.safetensors has the SHA-256 {found}, not --sha256").into());
    }
    Ok(digests)
}

fn digest(bytes: &[u8]) -> String {
    hex::encode(Sha256::digest(bytes))
}

/// Whether a text can hold the token. What the tokenizer puts around texts, and places that no token
/// was ever given, cannot be.
fn is_used(token: &str) -> bool {
    let reserved = matches!(token, "[PAD]" | "[CLS]" | "[SEP]" | "[MASK]");
    !reserved && !token.starts_with("[unused")
}

/// The state of every token at its own position.
fn states(model: &Transformer, ids: &[usize]) -> Result<Mat<f64>, Failure> {
    let width = model.width();
    let mut states = Mat::zeros(ids.len(), width);
    for (batch, ids) in ids.chunks(BATCH).enumerate() {
        let inputs = ids.iter().map(|id| u32::try_from(*id));
        let inputs = inputs.collect::<Result<Vec<u32>, _>>()?;
        let answer = model.states(&inputs, 1)?;
        // Three positions an input; the token's own is the second.
        for (at, input) in answer.chunks_exact(3 * width).enumerate() {
            for (column, x) in input[width..2 * width].iter().enumerate() {
                states[(batch * BATCH + at, column)] = f64::from(*x);
            }
        }
        eprint!("\r{} tokens", batch * BATCH + ids.len());
    }
    eprintln!();
    Ok(states)
}

/// The rows, centred, in the coordinates of their first `dimensions` principal components.
fn project(rows: &Mat<f64>, dimensions: usize) -> Result<Mat<f64>, Failure> {
    let (count, width) = (rows.nrows(), rows.ncols());
    let mut centred = rows.clone();
    for column in 0..width {
        let mean = (0..count).map(|row| rows[(row, column)]).sum::<f64>() / count as f64;
        for row in 0..count {
            centred[(row, column)] -= mean;
        }
    }
    let covariance = centred.transpose() * &centred;
    let eigen = covariance
        .self_adjoint_eigen(Side::Lower)
        .map_err(|error| format!("the covariance has no eigenvectors: {error:?}"))?;
    // Eigenvalues come in ascending order. A direction has no sign of its own; its largest component
    // is made positive.
    let directions = Mat::from_fn(width, dimensions, |row, column| {
        let source = width - 1 - column;
        let largest = (0..width)
            .map(|row| eigen.U()[(row, source)])
            .max_by(|a, b| a.abs().total_cmp(&b.abs()));
        let sign = largest.map_or(1.0, f64::signum);
        sign * eigen.U()[(row, source)]
    });
    Ok(&centred * &directions)
}

/// The weight of each token by its rank.
fn rarity(tokens: usize) -> Vec<f64> {
    let inverse = |rank: usize| 1.0 / (rank as f64 + 2.0);
    let total: f64 = (0..tokens).map(inverse).sum();
    (0..tokens)
        .map(|rank| SMOOTH / (SMOOTH + inverse(rank) / total))
        .collect()
}

/// Rows of 8-bit integers, the largest component of the table as 127.
fn quantise(rows: &Mat<f64>, weight: impl Fn(usize) -> f64) -> Vec<u8> {
    let weighted = Mat::from_fn(rows.nrows(), rows.ncols(), |row, column| {
        rows[(row, column)] * weight(row)
    });
    let mut largest = 0f64;
    for row in 0..weighted.nrows() {
        for column in 0..weighted.ncols() {
            largest = largest.max(weighted[(row, column)].abs());
        }
    }
    let scale = if largest > 0.0 { 127.0 / largest } else { 1.0 };
    let mut table = Vec::with_capacity(weighted.nrows() * weighted.ncols());
    for row in 0..weighted.nrows() {
        for column in 0..weighted.ncols() {
            let rounded = (weighted[(row, column)] * scale).round() as i8;
            table.extend_from_slice(&rounded.to_le_bytes());
        }
    }
    table
}

fn write(
    arguments: &Arguments,
    source: &Map<String, Value>,
    table: &[u8],
    vocabulary: &str,
) -> Result<(), Failure> {
    let provenance = serde_json::json!({
        "tool": concat!("stratagraph-distill ", env!("CARGO_PKG_VERSION")),
        "dimensions": arguments.dimensions,
        "source": source,
        "output": {
            "table.i8": digest(table),
            "vocab.txt": digest(vocabulary.as_bytes()),
        },
    });
    std::fs::create_dir_all(&arguments.out)?;
    let put = |name: &str, bytes: &[u8]| std::fs::write(arguments.out.join(name), bytes);
    put("table.i8", table)?;
    put("vocab.txt", vocabulary.as_bytes())?;
    put("provenance.json", format!("{provenance:#}\n").as_bytes())?;
    println!("{provenance:#}");
    Ok(())
}
