//! A server and the language that it speaks.

use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;

use super::answer::Answer;
use super::client::{Call, Client, Failure, Request};
use super::key::Key;
use super::{openai, tei};
use crate::embed::redact::redact;
use crate::embed::spec::{ModelSpec, not_found};
use crate::env::Env;
use crate::{Error, Result, limits};

/// Bytes of an answer beside its vectors, and beside the components of one vector.
const FRAME_BYTES: usize = 64 * 1024;
const ROW_BYTES: usize = 1024;
/// Bytes of one component: the longest f64 in JSON, and room for white space.
const COMPONENT_BYTES: usize = 32;

/// How a kind of server is asked.
#[derive(Debug)]
pub(super) enum Wire {
    OpenAi {
        model: String,
        /// What the spec asks for.
        dimensions: Option<usize>,
        /// Whether the server refused base64.
        floats: AtomicBool,
    },
    Tei,
}

/// A server that can be asked for vectors.
#[derive(Debug)]
pub(super) struct Server {
    pub(super) client: Client,
    pub(super) wire: Wire,
    /// Whether the spec asks for a fingerprint.
    pub(super) probe: bool,
}

impl Server {
    /// The server of a spec. Reads the key from the environment and sends nothing.
    pub(super) fn new(spec: &ModelSpec, env: &Env) -> Result<Self> {
        let text = spec.to_string();
        let (base, options, wire) = match spec {
            ModelSpec::OpenAi {
                model,
                base_url,
                options,
            } => {
                let wire = Wire::OpenAi {
                    model: model.clone(),
                    dimensions: options.get("dimensions").and_then(|n| n.parse().ok()),
                    floats: AtomicBool::new(false),
                };
                (base_url, options, wire)
            }
            ModelSpec::Tei { base_url, options } => (base_url, options, Wire::Tei),
            _ => return Err(not_found(&text)),
        };
        let key = Key::read(options.get("key_env").map(String::as_str))?;
        let is_set = |name: &str| options.get(name).is_some_and(|value| value == "true");
        let allow_http = is_set("allow_http");
        Ok(Self {
            client: Client::new(redact(&text), base, key, allow_http, env)?,
            wire,
            probe: is_set("probe"),
        })
    }

    /// The vectors of `texts`, of at most `dimensions` components.
    pub(super) async fn ask(
        &self,
        call: &Call,
        texts: &[&str],
        dimensions: usize,
    ) -> Result<Answer, Failure> {
        let floats = self.floats();
        match self.once(call, texts, dimensions, floats).await {
            Err(Failure::Refused(why)) if !floats && openai::is_about_encoding(&why) => {
                self.retreat_to_floats();
                self.once(call, texts, dimensions, true).await
            }
            other => other,
        }
    }

    /// As [`ask`](Self::ask) for texts that no server has a reason to refuse: a refusal is the
    /// encoding's fault, or the call's.
    pub(super) async fn ask_plainly(
        &self,
        call: &Call,
        texts: &[&str],
        dimensions: usize,
    ) -> Result<Answer> {
        let floats = self.floats();
        let mut answer = self.once(call, texts, dimensions, floats).await;
        if !floats && matches!(answer, Err(Failure::Refused(_))) {
            self.retreat_to_floats();
            answer = self.once(call, texts, dimensions, true).await;
        }
        answer.map_err(|failure| self.whole(failure))
    }

    /// What a text-embeddings-inference server says about itself.
    pub(super) async fn info(&self, call: &Call) -> Result<tei::Info> {
        let request = Request {
            path: tei::INFO,
            body: None,
            most: FRAME_BYTES,
        };
        let body = self.client.send(call, &request).await;
        let body = body.map_err(|failure| self.whole(failure))?;
        let info: tei::Info = serde_json::from_slice(&body).map_err(|e| {
            let said = self.client.excerpt(&e.to_string());
            self.client.failed(format!(
                "its /info is not that of text-embeddings-inference: {said}"
            ))
        })?;
        let names = [Some(&info.model_id), info.model_sha.as_ref()];
        for name in names.into_iter().chain([info.model_dtype.as_ref()]) {
            self.client.check_name(name.map(String::as_str))?;
        }
        Ok(info)
    }

    /// A refusal of what must not be refused fails the call.
    fn whole(&self, failure: Failure) -> Error {
        match failure {
            Failure::Whole(error) => error,
            Failure::Refused(why) => self.client.failed(why),
        }
    }

    /// Whether no base64 is asked for.
    fn floats(&self) -> bool {
        match &self.wire {
            Wire::OpenAi { floats, .. } => floats.load(Ordering::Relaxed),
            Wire::Tei => true,
        }
    }

    fn retreat_to_floats(&self) {
        if let Wire::OpenAi { floats, .. } = &self.wire {
            floats.store(true, Ordering::Relaxed);
        }
    }

    async fn once(
        &self,
        call: &Call,
        texts: &[&str],
        dimensions: usize,
        floats: bool,
    ) -> Result<Answer, Failure> {
        let (path, body) = match &self.wire {
            Wire::OpenAi {
                model, dimensions, ..
            } => {
                let body = openai::body(model, *dimensions, floats, texts);
                (openai::PATH, body)
            }
            Wire::Tei => (tei::PATH, tei::body(texts)),
        };
        let body = body.map_err(|e| Error::Source {
            source: Box::new(e),
        })?;
        let request = Request {
            path,
            body: Some(Bytes::from(body)),
            most: FRAME_BYTES + texts.len() * (ROW_BYTES + dimensions * COMPONENT_BYTES),
        };
        let body = self.client.send(call, &request).await?;
        let answer = match &self.wire {
            Wire::OpenAi { .. } => openai::read(&body, texts.len()),
            Wire::Tei => tei::read(&body, texts.len()),
        };
        let answer = answer.map_err(|why| {
            let why = self.client.excerpt(&why);
            self.client
                .failed(format!("its answer cannot be used: {why}"))
        })?;
        self.client.check_name(answer.model.as_deref())?;
        call.meters
            .tokens
            .fetch_add(answer.tokens, Ordering::Relaxed);
        Ok(answer)
    }
}

/// The texts of one request to a server that takes `rows` of them with vectors of `dimensions`.
pub(super) fn request_rows(rows: usize, dimensions: usize) -> usize {
    let fit = limits::REMOTE_COMPONENTS / dimensions.max(1);
    rows.min(fit).clamp(1, limits::REMOTE_ROWS_MOST)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_cannot_make_requests_large() {
        for (rows, dimensions, expected) in [
            (64, 384, 64),
            (0, 384, 1),
            (usize::MAX, 1, limits::REMOTE_ROWS_MOST),
            (64, limits::DIMENSIONS, 32),
            (64, 32_768, 64),
            (64, 32_769, 63),
        ] {
            assert_eq!(
                request_rows(rows, dimensions),
                expected,
                "{rows} {dimensions}"
            );
        }
    }
}
