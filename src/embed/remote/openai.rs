//! The wire shapes of OpenAI's embeddings endpoint, which many servers speak.

use serde::{Deserialize, Serialize};

use super::answer::{Answer, Components, Rows, in_order};

pub(super) const PATH: &str = "/embeddings";

#[derive(Serialize)]
struct Body<'a> {
    model: &'a str,
    input: &'a [&'a str],
    encoding_format: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    dimensions: Option<usize>,
}

#[derive(Deserialize)]
struct Reply {
    data: Rows<Item>,
    model: Option<String>,
    usage: Option<Usage>,
}

#[derive(Deserialize)]
struct Item {
    index: u64,
    embedding: Components,
}

#[derive(Deserialize)]
struct Usage {
    total_tokens: Option<u64>,
}

/// The body of a request. `floats` asks for lists of numbers instead of base64, which is shorter.
pub(super) fn body(
    model: &str,
    dimensions: Option<usize>,
    floats: bool,
    texts: &[&str],
) -> serde_json::Result<Vec<u8>> {
    serde_json::to_vec(&Body {
        model,
        input: texts,
        encoding_format: if floats { "float" } else { "base64" },
        dimensions,
    })
}

/// Reads the answer for `rows` texts.
pub(super) fn read(body: &[u8], rows: usize) -> Result<Answer, String> {
    let reply: Reply = serde_json::from_slice(body).map_err(|e| e.to_string())?;
    let items = reply.data.0.into_iter();
    Ok(Answer {
        model: reply.model,
        vectors: in_order(items.map(|item| (item.index, item.embedding.0)), rows)?,
        tokens: reply.usage.and_then(|u| u.total_tokens).unwrap_or(0),
    })
}

/// Whether a refusal speaks of the encoding that was asked for and not of the texts.
pub(super) fn is_about_encoding(said: &str) -> bool {
    let said = said.to_ascii_lowercase();
    said.contains("encoding_format") || said.contains("base64")
}
