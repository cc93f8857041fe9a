//! Asking a server who it is.

use serde_json::{Map, Value, json};

use super::answer::Answer;
use super::cache::QueryCache;
use super::client::Call;
use super::server::{Server, Wire, request_rows};
use super::{RemoteEmbedder, tei};
use crate::digest::{Digest, Hasher};
use crate::embed::embedded::check_dimensions;
use crate::embed::spec::ModelSpec;
use crate::embed::{BatchLimits, ModelDefinition, Role};
use crate::env::Env;
use crate::{Result, limits};

/// The version of what is asked of a server: without prompts, whole texts only, normalised where the
/// server can be told to. Raise it when other requests give other vectors.
const ALGORITHM: u32 = 1;

/// The text whose vector tells the width.
const GREETING: &str = "hello";

/// The texts whose vectors are the fingerprint of `probe=true`.
const PROBES: [&str; 3] = [
    "The quick brown fox jumps over the lazy dog.",
    "Snow fell on the harbour before dawn.",
    "SELECT name, price FROM products WHERE price < 10",
];
const PROBE_DOMAIN: &str = "stratagraph.model.probe.v1";
/// Steps of a cosine in one unit. A server that computes in parallel does not repeat its last bits; of
/// three cosines in steps this wide, noise of a millionth moves one in some thousand handshakes.
const PROBE_STEPS: f64 = 100.0;

/// Asks the server of `spec` who it is.
///
/// It learns the definition from one request for the vector of a fixed text (and, with
/// `probe=true`, of three more), after `GET /info` where the server is a text-embeddings-inference.
/// A missing key, or plain http to another machine, is `InvalidArgument` before anything is sent; a
/// server that cannot be used is `ModelFailed`.
pub(in crate::embed) async fn open(spec: &ModelSpec, env: &Env) -> Result<RemoteEmbedder> {
    let server = Server::new(spec, env)?;
    // Opening is part of a query that names the model first.
    let call = server.client.begin(Role::Query);
    let info = match server.wire {
        Wire::OpenAi { .. } => None,
        Wire::Tei => Some(server.info(&call).await?),
    };
    let asked = match &server.wire {
        Wire::OpenAi { dimensions, .. } => *dimensions,
        Wire::Tei => None,
    };
    let greeting = server
        .ask_plainly(&call, &[GREETING], asked.unwrap_or(limits::DIMENSIONS))
        .await?;
    let dimensions = greeting.vectors.first().map_or(0, Vec::len);
    check_dimensions(dimensions)?;
    if let Some(asked) = asked.filter(|asked| *asked != dimensions) {
        return Err(server.client.failed(format!(
            "it gave {dimensions} dimensions where the spec asks for {asked}; leave the option out or use a model that can be shortened"
        )));
    }
    let (rows, tokens) = match &info {
        Some(info) => (info.max_client_batch_size, info.max_batch_tokens),
        None => (limits::REMOTE_ROWS, limits::REMOTE_TOKENS),
    };
    let request = BatchLimits {
        rows: request_rows(rows, dimensions),
        bytes: tokens.saturating_mul(3).clamp(1, limits::TEXT_BYTES),
    };
    let mut parameters = parameters(&server.wire, &greeting, info.as_ref());
    if server.probe {
        let probe = fingerprint(&server, &call, &greeting, dimensions, request.rows).await?;
        parameters.insert("probe".to_owned(), json!(probe));
    }
    let (kind, normalised) = match server.wire {
        Wire::OpenAi { .. } => ("openai", false),
        Wire::Tei => ("tei", true),
    };
    let definition = ModelDefinition::new(kind, ALGORITHM, dimensions, normalised, parameters)?;
    tracing::debug!(model = server.client.model(), dimensions, ?request, hash = %definition.hash(), "opened");
    Ok(RemoteEmbedder {
        spec: spec.to_string(),
        server,
        reported: greeting.model,
        dimensions,
        definition,
        request,
        cache: QueryCache::new(),
    })
}

/// The members of the definition that only these kinds have. What a server does not say is null.
fn parameters(wire: &Wire, greeting: &Answer, info: Option<&tei::Info>) -> Map<String, Value> {
    let mut out = Map::new();
    let mut add = |name: &str, value: Value| _ = out.insert(name.to_owned(), value);
    add("max_text_bytes", json!(limits::TEXT_BYTES));
    if let Wire::OpenAi {
        model, dimensions, ..
    } = wire
    {
        add("requested_model", json!(model));
        add("requested_dimensions", json!(dimensions));
        add("reported_model", json!(greeting.model));
    }
    if let Some(info) = info {
        add("model_id", json!(info.model_id));
        add("model_sha", json!(info.model_sha));
        add("model_dtype", json!(info.model_dtype));
    }
    out
}

/// A hash of how similar fixed texts are to each other, which tells models apart that bear the same
/// name.
async fn fingerprint(
    server: &Server,
    call: &Call,
    greeting: &Answer,
    dimensions: usize,
    rows: usize,
) -> Result<Digest> {
    let mut vectors = Vec::new();
    for texts in PROBES.chunks(rows) {
        let answer = server.ask_plainly(call, texts, dimensions).await?;
        if answer.model != greeting.model {
            let reason = "another model answered while the server was asked who it is";
            return Err(server.client.failed(reason));
        }
        vectors.extend(answer.vectors);
    }
    let sound = |v: &Vec<f32>| v.len() == dimensions && v.iter().all(|x| x.is_finite());
    if !vectors.iter().all(sound) {
        let reason = "the vector of a fixed text is not finite or has another width";
        return Err(server.client.failed(reason));
    }
    let mut hasher = Hasher::new(PROBE_DOMAIN);
    for (at, a) in vectors.iter().enumerate() {
        for b in &vectors[at + 1..] {
            let steps = (cosine(a, b) * PROBE_STEPS).round() as i32;
            hasher.part(&steps.to_le_bytes());
        }
    }
    Ok(hasher.finish())
}

fn cosine(a: &[f32], b: &[f32]) -> f64 {
    let dot = |a: &[f32], b: &[f32]| -> f64 {
        let products = a.iter().zip(b).map(|(x, y)| f64::from(*x) * f64::from(*y));
        products.sum()
    };
    dot(a, b) / (dot(a, a) * dot(b, b)).sqrt()
}
