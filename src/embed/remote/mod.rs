//! Models behind a server.
//!
//! ```text
//! texts ── each once ──► known? (cache) ──► requests ──► halved where refused ──► retried ──► checked
//! ```
//!
//! A server is trusted with nothing: how much it sends, in which order, and whether it is still the
//! model that the definition names are all held against what was asked.

mod answer;
mod bisect;
mod cache;
mod client;
mod key;
mod open;
mod openai;
mod retry;
mod server;
mod tei;

use std::collections::HashMap;
use std::sync::atomic::Ordering;

use async_trait::async_trait;
use futures::future::try_join_all;

use super::{
    BatchLimits, Embedded, EmbeddedBuilder, Embedder, ModelDefinition, RejectReason, Role, batches,
};
use crate::{Result, limits};
use cache::QueryCache;
use client::Call;
use server::Server;

pub(super) use open::open;

/// A model behind a server. Its `Debug` shows neither the address nor the key.
pub(super) struct RemoteEmbedder {
    spec: String,
    server: Server,
    /// The model that the server says it is.
    reported: Option<String>,
    dimensions: usize,
    definition: ModelDefinition,
    /// The largest request.
    request: BatchLimits,
    cache: QueryCache,
}

/// What became of one text.
#[derive(Debug, Clone)]
enum Slot {
    Vector(Vec<f32>),
    Rejected(RejectReason),
}

impl std::fmt::Debug for RemoteEmbedder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RemoteEmbedder")
            .field("server", &self.server)
            .field("definition", &self.definition.canonical())
            .field("request", &self.request)
            .field("cache", &self.cache)
            .finish_non_exhaustive()
    }
}

#[async_trait]
impl Embedder for RemoteEmbedder {
    fn spec(&self) -> &str {
        &self.spec
    }

    fn dimensions(&self) -> usize {
        self.dimensions
    }

    fn definition(&self) -> &ModelDefinition {
        &self.definition
    }

    /// As many requests as may be in flight together: a call that makes one leaves the server idle
    /// while its answer travels.
    fn limits(&self) -> BatchLimits {
        BatchLimits {
            rows: self.request.rows * limits::REMOTE_REQUESTS,
            bytes: self.request.bytes * limits::REMOTE_REQUESTS,
        }
    }

    async fn embed(&self, role: Role, texts: &[Option<&str>]) -> Result<Embedded> {
        let (distinct, rows) = distinct(texts);
        let call = self.server.client.begin(role);
        let outcome = self.slots(&call, role, &distinct).await;
        let count = |n: &std::sync::atomic::AtomicU64| n.load(Ordering::Relaxed);
        tracing::debug!(
            model = self.server.client.model(),
            rows = texts.len(),
            distinct = distinct.len(),
            requests = count(&call.meters.requests),
            retries = count(&call.meters.retries),
            rejected = count(&call.meters.rejected),
            tokens = count(&call.meters.tokens),
            bytes = count(&call.meters.bytes),
            failed = outcome.is_err(),
            "embedded"
        );
        let slots = outcome?;
        let model = self.server.client.model();
        let mut out = EmbeddedBuilder::new(model, self.dimensions, texts.len())?;
        for row in rows {
            match &slots[row] {
                Slot::Vector(vector) => out.push(vector)?,
                Slot::Rejected(reason) => out.reject(*reason),
            }
        }
        out.finish()
    }
}

impl RemoteEmbedder {
    /// One slot per text of `texts`, no two of which are equal.
    async fn slots(&self, call: &Call, role: Role, texts: &[&str]) -> Result<Vec<Slot>> {
        let mut slots: Vec<Option<Slot>> = texts.iter().map(|t| self.known(role, t)).collect();
        let open = |(row, slot): (usize, &Option<Slot>)| slot.is_none().then_some(row);
        let open: Vec<usize> = slots.iter().enumerate().filter_map(open).collect();
        let sent: Vec<&str> = open.iter().map(|row| texts[*row]).collect();
        let sized: Vec<Option<&str>> = sent.iter().copied().map(Some).collect();
        let requests: Vec<_> = batches(&sized, self.request)
            .map(|range| self.request(call, &sent[range]))
            .collect();
        let answers = try_join_all(requests).await?;
        for (row, slot) in open.into_iter().zip(answers.into_iter().flatten()) {
            match &slot {
                Slot::Vector(vector) if role == Role::Query => self.cache.put(texts[row], vector),
                Slot::Vector(_) => {}
                Slot::Rejected(_) => _ = call.meters.rejected.fetch_add(1, Ordering::Relaxed),
            }
            slots[row] = Some(slot);
        }
        let slots: Option<Vec<Slot>> = slots.into_iter().collect();
        slots.ok_or_else(|| {
            self.server
                .client
                .failed("a text was left without an answer")
        })
    }

    /// What is known of a text without asking the server.
    fn known(&self, role: Role, text: &str) -> Option<Slot> {
        if text.len() > limits::TEXT_BYTES {
            return Some(Slot::Rejected(RejectReason::TooLong));
        }
        match role {
            Role::Document => None,
            Role::Query => self.cache.get(text).map(Slot::Vector),
        }
    }
}

/// The different texts in the order of their first row, and which of them each row is. A row without
/// text is the empty text: whether that has a vector is the server's to say.
fn distinct<'a>(texts: &[Option<&'a str>]) -> (Vec<&'a str>, Vec<usize>) {
    let mut seen = HashMap::new();
    let mut out = Vec::new();
    let rows = texts.iter().map(|text| {
        let text = text.unwrap_or_default();
        *seen.entry(text).or_insert_with(|| {
            out.push(text);
            out.len() - 1
        })
    });
    let rows = rows.collect();
    (out, rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_texts_are_one() {
        let texts = [Some("b"), None, Some("a"), Some("b"), Some(""), Some("a")];
        let (distinct, rows) = distinct(&texts);
        assert_eq!(distinct, ["b", "", "a"]);
        assert_eq!(rows, [0, 1, 2, 0, 1, 2]);
    }
}
