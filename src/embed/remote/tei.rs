//! The wire shapes of text-embeddings-inference.

use serde::{Deserialize, Serialize};

use super::answer::{Answer, Components, Rows, in_order};

pub(super) const PATH: &str = "/embed";
pub(super) const INFO: &str = "/info";

/// What a server says about itself; unknown members are ignored.
#[derive(Debug, Deserialize)]
pub(super) struct Info {
    pub(super) model_id: String,
    pub(super) model_sha: Option<String>,
    pub(super) model_dtype: Option<String>,
    #[serde(default = "default_rows")]
    pub(super) max_client_batch_size: usize,
    #[serde(default = "default_tokens")]
    pub(super) max_batch_tokens: usize,
}

fn default_rows() -> usize {
    32
}

fn default_tokens() -> usize {
    16_384
}

#[derive(Serialize)]
struct Body<'a> {
    inputs: &'a [&'a str],
    normalize: bool,
    /// A vector of half a text would look like one of the whole.
    truncate: bool,
}

/// The body of a request.
pub(super) fn body(texts: &[&str]) -> serde_json::Result<Vec<u8>> {
    serde_json::to_vec(&Body {
        inputs: texts,
        normalize: true,
        truncate: false,
    })
}

/// Reads the answer for `rows` texts, whose order is the only index.
pub(super) fn read(body: &[u8], rows: usize) -> Result<Answer, String> {
    let reply: Rows<Components> = serde_json::from_slice(body).map_err(|e| e.to_string())?;
    let items = reply.0.into_iter().map(|vector| vector.0);
    Ok(Answer {
        model: None,
        vectors: in_order((0u64..).zip(items), rows)?,
        tokens: 0,
    })
}
