//! Tokenizers of other kinds, through the crate `tokenizers`.

use std::fmt;

use serde_json::Value;

use crate::{Error, Result};

/// Bytes of a text that are read for every token that it may have. The crate reads a text whole and
/// keeps more than ten times its size meanwhile.
const BYTES_PER_TOKEN: usize = 1024;

/// Any `tokenizer.json`.
pub(super) struct Foreign {
    model: String,
    tokenizer: tokenizers::Tokenizer,
    frame: Option<(u32, u32)>,
    unknown: Option<u32>,
    size: usize,
}

impl fmt::Debug for Foreign {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Foreign")
            .field("model", &self.model)
            .field("frame", &self.frame)
            .field("unknown", &self.unknown)
            .field("size", &self.size)
            .finish_non_exhaustive()
    }
}

impl Foreign {
    /// The tokenizer of `bytes`, which parse as `file`; or why the crate refuses them.
    pub(super) fn new(
        model: &str,
        bytes: &[u8],
        file: &Value,
    ) -> std::result::Result<Self, String> {
        let refused = |e: tokenizers::Error| format!("it is not a tokenizer: {e}");
        let mut tokenizer = tokenizers::Tokenizer::from_bytes(bytes).map_err(refused)?;
        tokenizer.with_truncation(None).map_err(refused)?;
        tokenizer.with_padding(None);
        let unknown = file["model"]["unk_token"].as_str();
        let ids = tokenizer.get_vocab(true).into_values();
        let mut foreign = Self {
            model: model.to_owned(),
            frame: None,
            unknown: unknown.and_then(|token| tokenizer.token_to_id(token)),
            size: ids.max().map_or(0, |id| id as usize + 1),
            tokenizer,
        };
        foreign.frame = foreign.seen_frame();
        Ok(foreign)
    }

    /// What stands around a text, if that is one token on each side.
    fn seen_frame(&self) -> Option<(u32, u32)> {
        let ids = |framed| {
            let encoding = self.tokenizer.encode_fast("a", framed).ok()?;
            Some(encoding.get_ids().to_vec())
        };
        let (bare, framed) = (ids(false)?, ids(true)?);
        match framed.as_slice() {
            [first, inner @ .., last] if inner == bare => Some((*first, *last)),
            _ => None,
        }
    }

    pub(super) fn frame(&self) -> Option<(u32, u32)> {
        self.frame
    }

    pub(super) fn unknown(&self) -> Option<u32> {
        self.unknown
    }

    pub(super) fn size(&self) -> usize {
        self.size
    }

    /// As [`super::Tokenizer::encode`].
    pub(super) fn encode(&self, text: &str, limit: usize, ids: &mut Vec<u32>) -> Result<bool> {
        let seen = text.floor_char_boundary(limit.saturating_mul(BYTES_PER_TOKEN));
        let encoding = self
            .tokenizer
            .encode_fast(&text[..seen], false)
            .map_err(|e| Error::ModelFailed {
                model: self.model.clone(),
                reason: format!("its tokenizer failed: {e}"),
            })?;
        let all = encoding.get_ids();
        ids.extend_from_slice(&all[..all.len().min(limit)]);
        Ok(all.len() > limit || seen < text.len())
    }
}
