//! The small transformer of the tests: random weights, and vectors that sentence-transformers gave.

use std::path::{Path, PathBuf};

/// Every file of it that changes its vectors.
pub const FILES: [&str; 11] = [
    "config.json",
    "config_sentence_transformers.json",
    "model.safetensors",
    "modules.json",
    "sentence_bert_config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "1_Pooling/config.json",
    "2_Dense/config.json",
    "2_Dense/model.safetensors",
    "3_Normalize/config.json",
];

/// Where it is.
pub fn directory() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/golden/tiny-bert")
}

/// Copies its files below `to`, for tests that change them.
pub fn copy_to(to: &Path) -> std::io::Result<()> {
    for name in FILES {
        let file = to.join(name);
        if let Some(parent) = file.parent() {
            std::fs::create_dir_all(parent)?;
        }
        std::fs::copy(directory().join(name), file)?;
    }
    Ok(())
}
