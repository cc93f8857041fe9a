//! From a text to the ids of its tokens.
//!
//! BERT's tokenizer is our own, so that the built-in model needs no other crate and a long text costs
//! no more than its beginning. Every other `tokenizer.json` is read by the crate `tokenizers`, in
//! builds that have it.

mod classes;
#[cfg(feature = "candle")]
mod foreign;
mod normal;
#[cfg(test)]
mod parity;
mod settings;
mod trie;
mod word_piece;

use self::settings::Refused;
use self::word_piece::WordPiece;
use super::files::ModelFiles;
use crate::{Error, Result};

/// The file of a tokenizer, and the older one of a vocabulary alone.
const TOKENIZER: &str = "tokenizer.json";
const VOCABULARY: &str = "vocab.txt";
const CONFIG: &str = "tokenizer_config.json";

/// Bytes of a tokenizer's file.
const FILE_BYTES: usize = 256 * 1024 * 1024;

/// A model's tokenizer.
#[derive(Debug)]
pub(super) struct Tokenizer(Kind);

#[derive(Debug)]
enum Kind {
    WordPiece(Box<WordPiece>),
    #[cfg(feature = "candle")]
    Foreign(Box<foreign::Foreign>),
}

/// Refuses a `tokenizer_config.json` that contradicts the normalizer: the libraries that made the model
/// follow the one or the other, by their version.
fn check_config(files: &mut ModelFiles, file: &serde_json::Value) -> Result<()> {
    const SAME: [(&str, &str); 3] = [
        ("do_lower_case", "lowercase"),
        ("strip_accents", "strip_accents"),
        ("tokenize_chinese_chars", "handle_chinese_chars"),
    ];
    let normalizer = &file["normalizer"];
    let config = files.json(CONFIG)?.unwrap_or_default();
    if normalizer["type"] != "BertNormalizer" {
        return Ok(());
    }
    let differ = |(ours, theirs): &&(&str, &str)| {
        config
            .get(*ours)
            .is_some_and(|value| *value != normalizer[*theirs])
    };
    match SAME.iter().find(differ) {
        None => Ok(()),
        Some((ours, theirs)) => {
            let reason = format!("its {ours} contradicts {theirs} in {TOKENIZER}; make them equal");
            Err(files.invalid(CONFIG, reason))
        }
    }
}

impl Tokenizer {
    /// The tokenizer of a model directory: `tokenizer.json`, else `vocab.txt` with what
    /// `tokenizer_config.json` says of it. Truncation and padding of the files are not applied.
    ///
    /// Files that cannot be read, and in a build without the feature `candle` any tokenizer but
    /// BERT's, are [`Error::ModelInvalid`].
    pub(in crate::embed) fn of_directory(files: &mut ModelFiles) -> Result<Self> {
        let word_piece = if let Some(bytes) = read(files, TOKENIZER)? {
            let file: serde_json::Value = serde_json::from_slice(&bytes)
                .map_err(|e| files.invalid(TOKENIZER, format!("it is not JSON: {e}")))?;
            check_config(files, &file)?;
            match settings::of_tokenizer(&file) {
                Ok(word_piece) => word_piece,
                Err(Refused::Invalid(reason)) => return Err(files.invalid(TOKENIZER, reason)),
                Err(Refused::Foreign(reason)) => {
                    return foreign(files, &bytes, &file, &reason);
                }
            }
        } else if let Some(bytes) = read(files, VOCABULARY)? {
            let config = files.json(CONFIG)?.unwrap_or_default();
            let text = str::from_utf8(&bytes)
                .map_err(|e| files.invalid(VOCABULARY, format!("it is not UTF-8: {e}")))?;
            settings::of_vocabulary(text, &config).map_err(|reason| {
                files.invalid(CONFIG, format!("{reason}; {TOKENIZER} would say it all"))
            })?
        } else {
            let reason = format!("neither {TOKENIZER} nor {VOCABULARY} is there");
            return Err(files.invalid("", reason));
        };
        Ok(Self(Kind::WordPiece(Box::new(word_piece))))
    }

    /// BERT's tokenizer without case, over a `vocab.txt`. Its special tokens are not found in texts:
    /// whoever writes `[SEP]` writes a word between brackets.
    #[cfg(any(test, feature = "minilm"))]
    pub(in crate::embed) fn of_vocab(vocabulary: &str) -> Self {
        Self(Kind::WordPiece(Box::new(settings::uncased(vocabulary))))
    }

    /// Appends the ids of `text`, without those around it, at most `limit`; `true` when the text has
    /// more tokens. Nothing behind the first token too many is read.
    ///
    /// A tokenizer of another kind sees at most 1,024 bytes of a text per token of the limit.
    pub(in crate::embed) fn encode(
        &self,
        text: &str,
        limit: usize,
        ids: &mut Vec<u32>,
    ) -> Result<bool> {
        match &self.0 {
            Kind::WordPiece(word_piece) => Ok(word_piece.encode(text, limit, ids)),
            #[cfg(feature = "candle")]
            Kind::Foreign(foreign) => foreign.encode(text, limit, ids),
        }
    }

    /// The tokens before and after a text, `[CLS]` and `[SEP]`; `None` when a text stands in another
    /// frame or in none.
    #[cfg_attr(
        not(feature = "candle"),
        allow(dead_code, reason = "only transformers frame their texts")
    )]
    pub(in crate::embed) fn frame(&self) -> Option<(u32, u32)> {
        match &self.0 {
            Kind::WordPiece(word_piece) => word_piece.frame(),
            #[cfg(feature = "candle")]
            Kind::Foreign(foreign) => foreign.frame(),
        }
    }

    /// The token of words that have no other, `[UNK]`.
    pub(in crate::embed) fn unknown(&self) -> Option<u32> {
        match &self.0 {
            Kind::WordPiece(word_piece) => word_piece.unknown(),
            #[cfg(feature = "candle")]
            Kind::Foreign(foreign) => foreign.unknown(),
        }
    }

    /// Every id is below this.
    pub(in crate::embed) fn size(&self) -> usize {
        match &self.0 {
            Kind::WordPiece(word_piece) => word_piece.size(),
            #[cfg(feature = "candle")]
            Kind::Foreign(foreign) => foreign.size(),
        }
    }
}

fn read(files: &mut ModelFiles, name: &str) -> Result<Option<Vec<u8>>> {
    let bytes = files.read(name)?;
    match bytes {
        Some(bytes) if bytes.len() > FILE_BYTES => Err(Error::ResourceLimitExceeded {
            what: "bytes of a tokenizer",
            value: bytes.len() as u64,
            limit: FILE_BYTES as u64,
        }),
        bytes => Ok(bytes),
    }
}

#[cfg(feature = "candle")]
fn foreign(
    files: &ModelFiles,
    bytes: &[u8],
    file: &serde_json::Value,
    _reason: &str,
) -> Result<Tokenizer> {
    let foreign = foreign::Foreign::new(files.model(), bytes, file)
        .map_err(|reason| files.invalid(TOKENIZER, reason))?;
    Ok(Tokenizer(Kind::Foreign(Box::new(foreign))))
}

#[cfg(not(feature = "candle"))]
fn foreign(
    files: &ModelFiles,
    _bytes: &[u8],
    _file: &serde_json::Value,
    reason: &str,
) -> Result<Tokenizer> {
    let reason = format!(
        "{reason}; a build with the cargo feature candle reads it, this build leaves that out"
    );
    Err(files.invalid(TOKENIZER, reason))
}
