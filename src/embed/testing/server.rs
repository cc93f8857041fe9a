//! A server of vectors on loopback that speaks both languages of remote models and misbehaves on
//! request. It computes what [`HashEmbedder`] computes.

mod http;

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;

use super::super::embedded::components;
use crate::embed::{HashEmbedder, Role, SyncEmbedder};
use http::{Connection, Reply, Shape};

pub use http::Recorded;

/// What the server does instead of a good answer.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum Fault {
    /// This status, with an error body of the language and perhaps a `Retry-After`.
    Status {
        /// The HTTP status.
        status: u16,
        /// The `code` of OpenAI's error body.
        code: &'static str,
        /// The header's value.
        retry_after: Option<String>,
    },
    /// No answer until the client goes away.
    Hang,
    /// The last vector is left out.
    MissingVector,
    /// There is one vector more.
    ExtraVector,
    /// The vectors come in the reverse order, with their right indices where there are any.
    Shuffled,
    /// The first two vectors bear the same index.
    DuplicateIndex,
    /// The vectors bear no index.
    NoIndex,
    /// Every vector has one component more.
    WrongWidth,
    /// The first vector holds a NaN (base64) or a null (a list).
    NonFinite,
    /// The first vector is zero.
    ZeroVector,
    /// The answer ends within its JSON, although its length is right.
    TruncatedJson,
    /// More texts than this are answered with 413.
    RowsAbove(usize),
    /// A request with a text that contains this is answered with 400, or 422 from `/embed`.
    Poison(String),
    /// A redirect to this address.
    Redirect(String),
    /// The good answer, in two parts with this wait between them.
    SlowBody(Duration),
    /// The good answer in chunks, without a length.
    Chunked,
    /// An answer that never ends.
    EndlessBody,
    /// The connection is reset before an answer.
    ResetBefore,
    /// The connection is reset within the answer.
    ResetWithin,
    /// The model says that it is called so; in `/info` its revision is.
    OtherModel(String),
    /// The model says no name.
    NoModel,
    /// The vectors are those of other texts.
    OtherVectors,
    /// 401 with every header of the request in the body.
    EchoHeaders,
    /// base64 is answered with 400.
    NoBase64,
    /// Lists of numbers, whatever was asked for.
    Floats,
}

impl Fault {
    /// This status and nothing special.
    pub fn status(status: u16) -> Self {
        Self::Status {
            status,
            code: "",
            retry_after: None,
        }
    }

    /// This status with a `Retry-After`.
    pub fn retry_after(status: u16, value: &str) -> Self {
        Self::Status {
            status,
            code: "",
            retry_after: Some(value.to_owned()),
        }
    }
}

/// What `/info` says, and how wide vectors are.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Components of a vector, unless a request asks for another number.
    pub dimensions: usize,
    /// Of `/info`; `None` leaves the member out.
    pub max_client_batch_size: Option<u64>,
    /// Of `/info`; `None` leaves the member out.
    pub max_batch_tokens: Option<u64>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            dimensions: 16,
            max_client_batch_size: Some(32),
            max_batch_tokens: Some(16_384),
        }
    }
}

#[derive(Debug, Default)]
struct State {
    settings: Settings,
    next: VecDeque<Fault>,
    always: Option<Fault>,
    requests: Vec<Recorded>,
    in_flight: usize,
    most_in_flight: usize,
    abandoned: usize,
    /// Answers wait until this many requests are in flight.
    gate: usize,
}

/// The server. It runs on a thread of its own, on a free port of 127.0.0.1, until it is dropped.
#[derive(Debug)]
pub struct FaultServer {
    address: SocketAddr,
    shared: Arc<Mutex<State>>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl FaultServer {
    /// A server that is well, with the default [`Settings`].
    pub async fn start() -> Self {
        Self::with(Settings::default()).await
    }

    /// A server with these settings. Panics when this machine has no loopback.
    pub async fn with(settings: Settings) -> Self {
        let shared = Arc::new(Mutex::new(State {
            settings,
            ..State::default()
        }));
        let (stop, stopped) = oneshot::channel();
        let (told, address) = oneshot::channel();
        let state = Arc::clone(&shared);
        let thread = std::thread::spawn(move || run(state, told, stopped));
        let Ok(address) = address.await else {
            panic!("no loopback server could be started");
        };
        Self {
            address,
            shared,
            stop: Some(stop),
            thread: Some(thread),
        }
    }

    /// `http://127.0.0.1:<port>`: what a `tei:` spec names. An `openai:` spec adds `/v1`.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Misbehaves in the next request that no earlier call is for.
    pub fn push(&self, fault: Fault) {
        lock(&self.shared).next.push_back(fault);
    }

    /// Misbehaves in every request that no [`push`](Self::push) is for; `None` heals it.
    pub fn set(&self, fault: Option<Fault>) {
        lock(&self.shared).always = fault;
    }

    /// Holds answers back until `requests` are in flight at the same time.
    pub fn gate(&self, requests: usize) {
        lock(&self.shared).gate = requests;
    }

    /// Every request since the last [`reset`](Self::reset), in the order of arrival.
    pub fn requests(&self) -> Vec<Recorded> {
        lock(&self.shared).requests.clone()
    }

    /// The texts of those requests.
    pub fn texts(&self) -> Vec<String> {
        let state = lock(&self.shared);
        let texts = state.requests.iter().flat_map(|r| r.texts.iter().cloned());
        texts.collect()
    }

    /// The largest number of requests that waited for an answer at the same time.
    pub fn most_in_flight(&self) -> usize {
        lock(&self.shared).most_in_flight
    }

    /// Requests that hung and whose client went away.
    pub fn abandoned(&self) -> usize {
        lock(&self.shared).abandoned
    }

    /// Forgets requests and counters; faults and the gate stay.
    pub fn reset(&self) {
        let mut state = lock(&self.shared);
        state.requests.clear();
        state.most_in_flight = state.in_flight;
        state.abandoned = 0;
    }
}

impl Drop for FaultServer {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // A panic of the server has been printed already.
            let _ = thread.join();
        }
    }
}

fn lock(shared: &Mutex<State>) -> MutexGuard<'_, State> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The thread of the server: it ends with the runtime, which ends every connection.
fn run(
    shared: Arc<Mutex<State>>,
    told: oneshot::Sender<SocketAddr>,
    stopped: oneshot::Receiver<()>,
) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let Ok(runtime) = runtime else { return };
    runtime.block_on(async move {
        let Ok(listener) = TcpListener::bind("127.0.0.1:0").await else {
            return;
        };
        let Ok(address) = listener.local_addr() else {
            return;
        };
        if told.send(address).is_err() {
            return;
        }
        let accept = async {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(serve(stream, Arc::clone(&shared)));
            }
        };
        tokio::select! {
            () = accept => {}
            _ = stopped => {}
        }
    });
}

/// Answers the requests of one connection. Every error of it is the client's to notice.
async fn serve(stream: TcpStream, shared: Arc<Mutex<State>>) {
    let mut connection = Connection::new(stream);
    while let Some(request) = connection.read().await {
        let fault = {
            let mut state = lock(&shared);
            state.requests.push(request.clone());
            state.in_flight += 1;
            state.most_in_flight = state.most_in_flight.max(state.in_flight);
            state.next.pop_front().or_else(|| state.always.clone())
        };
        let open = answer(&mut connection, &request, fault, &shared).await;
        lock(&shared).in_flight -= 1;
        if !open {
            return;
        }
    }
}

/// Whether the connection stays open.
async fn answer(
    connection: &mut Connection,
    request: &Recorded,
    fault: Option<Fault>,
    shared: &Mutex<State>,
) -> bool {
    let waits = || {
        let state = lock(shared);
        state.most_in_flight < state.gate
    };
    while waits() {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    match fault {
        Some(Fault::Hang) => {
            connection.wait_for_end().await;
            lock(shared).abandoned += 1;
            return false;
        }
        Some(Fault::ResetBefore) => {
            connection.reset();
            return false;
        }
        _ => {}
    }
    let settings = lock(shared).settings.clone();
    let reply = reply(request, fault.as_ref(), &settings);
    connection.write(reply).await
}

fn reply(request: &Recorded, fault: Option<&Fault>, settings: &Settings) -> Reply {
    let refused = match fault {
        Some(Fault::Status {
            status,
            code,
            retry_after,
        }) => {
            let mut reply = error(*status, code, "scripted");
            if let Some(value) = retry_after {
                reply.headers.push(("Retry-After", value.clone()));
            }
            Some(reply)
        }
        Some(Fault::Redirect(to)) => {
            let mut reply = Reply::new(307, Value::Null);
            reply.headers.push(("Location", to.clone()));
            Some(reply)
        }
        Some(Fault::EchoHeaders) => Some(error(401, "", &format!("{:?}", request.headers))),
        _ => None,
    };
    if let Some(reply) = refused {
        return reply;
    }
    let mut reply = match (request.method.as_str(), request.path.as_str()) {
        ("GET", "/info") => info(fault, settings),
        ("POST", "/embed" | "/v1/embeddings") => embeddings(request, fault, settings),
        _ => error(404, "", "no such path"),
    };
    reply.shape = match fault {
        Some(Fault::TruncatedJson) => Shape::Truncated,
        Some(Fault::SlowBody(wait)) => Shape::Slow(*wait),
        Some(Fault::Chunked) => Shape::Chunked,
        Some(Fault::EndlessBody) => Shape::Endless,
        Some(Fault::ResetWithin) => Shape::Reset,
        _ => Shape::Plain,
    };
    reply
}

/// An error body that both languages read.
fn error(status: u16, code: &str, message: &str) -> Reply {
    let error = json!({"message": message, "type": "scripted", "code": code});
    Reply::new(status, json!({"error": error, "error_type": "scripted"}))
}

fn info(fault: Option<&Fault>, settings: &Settings) -> Reply {
    let sha = match fault {
        Some(Fault::OtherModel(name)) => name,
        _ => "0123456789abcdef",
    };
    let mut info = json!({
        "model_id": "test/hash",
        "model_sha": sha,
        "model_dtype": "float32",
        "max_input_length": 512,
        "version": "1.0.0",
    });
    if let Some(rows) = settings.max_client_batch_size {
        info["max_client_batch_size"] = json!(rows);
    }
    if let Some(tokens) = settings.max_batch_tokens {
        info["max_batch_tokens"] = json!(tokens);
    }
    Reply::new(200, info)
}

fn embeddings(request: &Recorded, fault: Option<&Fault>, settings: &Settings) -> Reply {
    let openai = request.path == "/v1/embeddings";
    let texts = &request.texts;
    let asked = &request.json;
    let base64 = asked["encoding_format"] == "base64";
    match fault {
        Some(Fault::RowsAbove(most)) if texts.len() > *most => {
            return error(413, "", "too many texts");
        }
        Some(Fault::Poison(mark)) if texts.iter().any(|text| text.contains(mark)) => {
            return error(if openai { 400 } else { 422 }, "", "a text is not valid");
        }
        Some(Fault::NoBase64) if base64 => {
            return error(400, "", "encoding_format must be float");
        }
        _ => {}
    }
    let dimensions = asked["dimensions"]
        .as_u64()
        .and_then(|n| usize::try_from(n).ok());
    let dimensions = dimensions.unwrap_or(settings.dimensions);
    let mut vectors = Vec::new();
    for text in texts {
        match vector(text, dimensions, fault) {
            Some(vector) => vectors.push(vector),
            // As OpenAI's: the whole request fails for one empty text.
            None => return error(if openai { 400 } else { 422 }, "", "a text has no vector"),
        }
    }
    spoil(&mut vectors, fault);
    let base64 = openai && base64 && fault != Some(&Fault::Floats);
    let vectors: Vec<Value> = vectors.iter().map(|v| written(v, base64)).collect();
    Reply::new(
        200,
        if openai {
            list(vectors, asked, fault)
        } else {
            json!(vectors)
        },
    )
}

fn vector(text: &str, dimensions: usize, fault: Option<&Fault>) -> Option<Vec<f32>> {
    let other = format!("{text} and more");
    let text = match fault {
        Some(Fault::OtherVectors) => &other,
        _ => text,
    };
    let model = HashEmbedder::new(dimensions).ok()?;
    let embedded = model.embed_now(Role::Document, &[Some(text)]).ok()?;
    let vector = components(&embedded.vectors).ok()?.to_vec();
    embedded.errors.is_empty().then_some(vector)
}

fn spoil(vectors: &mut Vec<Vec<f32>>, fault: Option<&Fault>) {
    match fault {
        Some(Fault::MissingVector) => drop(vectors.pop()),
        Some(Fault::ExtraVector) => vectors.extend(vectors.last().cloned()),
        Some(Fault::WrongWidth) => vectors.iter_mut().for_each(|v| v.push(1.0)),
        Some(Fault::NonFinite) => {
            if let Some(x) = vectors.first_mut().and_then(|v| v.first_mut()) {
                *x = f32::NAN;
            }
        }
        Some(Fault::ZeroVector) => {
            if let Some(v) = vectors.first_mut() {
                v.fill(0.0);
            }
        }
        Some(Fault::Shuffled) => vectors.reverse(),
        _ => {}
    }
}

fn written(vector: &[f32], base64: bool) -> Value {
    if base64 {
        let bytes: Vec<u8> = vector.iter().flat_map(|x| x.to_le_bytes()).collect();
        return json!(STANDARD.encode(bytes));
    }
    json!(vector)
}

/// The body of OpenAI's answer.
fn list(vectors: Vec<Value>, asked: &Value, fault: Option<&Fault>) -> Value {
    let rows = vectors.len();
    let item = |(row, vector): (usize, Value)| {
        let index = match fault {
            Some(Fault::Shuffled) => rows - 1 - row,
            Some(Fault::DuplicateIndex) => row.saturating_sub(1),
            _ => row,
        };
        let mut item = json!({"object": "embedding", "index": index, "embedding": vector});
        if let (Some(Fault::NoIndex), Some(members)) = (fault, item.as_object_mut()) {
            members.remove("index");
        }
        item
    };
    let data: Vec<Value> = vectors.into_iter().enumerate().map(item).collect();
    let mut body = json!({
        "object": "list",
        "data": data,
        "usage": {"prompt_tokens": 3 * rows, "total_tokens": 3 * rows},
    });
    match fault {
        Some(Fault::NoModel) => {}
        Some(Fault::OtherModel(name)) => body["model"] = json!(name),
        _ => body["model"] = asked["model"].clone(),
    }
    body
}
