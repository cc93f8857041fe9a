//! A loopback server that speaks enough of the S3 protocol for `object_store`'s own client, with
//! scripted faults: what that client does after a lost answer is not ours to simulate.
#![allow(clippy::unwrap_used)]

mod tests;
mod wire;

use std::collections::BTreeMap;
use std::io::BufReader;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use object_store::aws::AmazonS3Builder;
use object_store::{BackoffConfig, ObjectStore, RetryConfig};
use sha2::{Digest, Sha256};

use wire::{Request, Response, read_request, write_response};

/// Entries of one list page.
const PAGE: usize = 3;
const BUCKET: &str = "bucket";
const MODIFIED: &str = "Thu, 01 Jan 2026 00:00:00 GMT";
const MODIFIED_ISO: &str = "2026-01-01T00:00:00.000Z";

/// What a scripted request is answered with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answer {
    /// 412, nothing done.
    PreconditionFailed,
    /// 409 `ConditionalRequestConflict`, nothing done.
    Conflict,
    /// 503, nothing done.
    UnavailableBefore,
    /// 503 although it was done.
    UnavailableAfter,
    /// Done, then the connection is closed without an answer.
    ResetAfter,
    /// Answered properly, after a while.
    Slow(Duration),
}

/// The `nth` (from 0) request with this method whose target (key and query) contains `target`.
#[derive(Debug, Clone)]
pub struct Fault {
    pub method: &'static str,
    pub target: &'static str,
    pub nth: usize,
    pub answer: Answer,
}

#[derive(Debug, Default)]
struct State {
    objects: BTreeMap<String, Bytes>,
    uploads: BTreeMap<String, BTreeMap<u32, Bytes>>,
    script: Vec<(Fault, usize)>,
    requests: Vec<String>,
}

/// The server; it ends with its last connection and this value.
#[derive(Debug)]
pub struct S3Server {
    address: SocketAddr,
    state: Arc<Mutex<State>>,
}

impl S3Server {
    /// A server with an empty bucket on a free port.
    pub async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let state = Arc::new(Mutex::new(State::default()));
        let weak = Arc::downgrade(&state);
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let Some(state) = weak.upgrade() else { return };
                std::thread::spawn(move || serve(stream.unwrap(), &state));
            }
        });
        Self { address, state }
    }

    /// A client of the bucket that retries up to five times, quickly.
    pub fn store(&self) -> Arc<dyn ObjectStore> {
        let retry = RetryConfig {
            backoff: BackoffConfig {
                init_backoff: Duration::from_millis(1),
                max_backoff: Duration::from_millis(5),
                base: 2.0,
            },
            max_retries: 5,
            retry_timeout: Duration::from_secs(20),
        };
        let builder = AmazonS3Builder::new()
            .with_endpoint(format!("http://{}", self.address))
            .with_bucket_name(BUCKET)
            .with_region("us-east-1")
            .with_access_key_id("loopback")
            .with_secret_access_key("loopback")
            .with_allow_http(true)
            .with_virtual_hosted_style_request(false)
            .with_retry(retry);
        Arc::new(builder.build().unwrap())
    }

    /// Replaces the script; counting starts anew.
    pub fn script(&self, faults: Vec<Fault>) {
        self.state.lock().unwrap().script = faults.into_iter().map(|f| (f, 0)).collect();
    }

    /// Method and target of every request so far.
    pub fn requests(&self) -> Vec<String> {
        self.state.lock().unwrap().requests.clone()
    }
}

impl Drop for S3Server {
    fn drop(&mut self) {
        // Wakes the listening thread, which then finds the state gone.
        self.state = Arc::default();
        let _ = TcpStream::connect(self.address);
    }
}

/// Answers the requests of one connection until it ends.
fn serve(stream: TcpStream, state: &Mutex<State>) {
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    let mut writer = stream;
    while let Some((request, target)) = read_request(&mut reader) {
        let fault = scripted(&mut state.lock().unwrap(), &request.method, &target);
        let response = match fault {
            Some(Answer::PreconditionFailed) => error(412, "PreconditionFailed"),
            Some(Answer::Conflict) => error(409, "ConditionalRequestConflict"),
            Some(Answer::UnavailableBefore) => error(503, "SlowDown"),
            _ => handle(&mut state.lock().unwrap(), &request),
        };
        let response = match fault {
            Some(Answer::ResetAfter) => return,
            Some(Answer::UnavailableAfter) => error(503, "SlowDown"),
            Some(Answer::Slow(delay)) => {
                std::thread::sleep(delay);
                response
            }
            _ => response,
        };
        if write_response(&mut writer, &response, request.method == "HEAD").is_err() {
            return;
        }
    }
}

/// Notes the request, and finds the fault that it meets.
fn scripted(state: &mut State, method: &str, target: &str) -> Option<Answer> {
    state.requests.push(format!("{method} {target}"));
    let mut met = None;
    for (fault, seen) in &mut state.script {
        if fault.method == method && target.contains(fault.target) {
            if *seen == fault.nth {
                met = met.or(Some(fault.answer));
            }
            *seen += 1;
        }
    }
    met
}

fn ok(headers: Vec<(&'static str, String)>, body: impl Into<Bytes>) -> Response {
    Response {
        status: 200,
        headers,
        body: body.into(),
    }
}

fn error(status: u16, code: &str) -> Response {
    Response {
        status,
        ..ok(vec![], format!("<Error><Code>{code}</Code></Error>"))
    }
}

/// As in S3, equal bytes have equal tags.
fn e_tag(data: &[u8]) -> String {
    format!("\"{}\"", hex::encode(&Sha256::digest(data)[..16]))
}

fn handle(state: &mut State, request: &Request) -> Response {
    let upload = request.query.get("uploadId");
    match (request.method.as_str(), upload) {
        ("PUT", Some(id)) => put_part(state, id, request),
        ("POST", Some(id)) => complete(state, id, request),
        ("DELETE", Some(id)) => {
            state.uploads.remove(id);
            empty(204)
        }
        ("POST", None) if request.query.contains_key("uploads") => {
            let id = format!("upload-{}", state.requests.len());
            state.uploads.insert(id.clone(), BTreeMap::new());
            let id = format!("<UploadId>{id}</UploadId>");
            ok(vec![], tagged("InitiateMultipartUploadResult", &id))
        }
        ("POST", None) if request.query.contains_key("delete") => delete_many(state, request),
        ("GET", None) if request.key.is_empty() => list(state, &request.query),
        ("GET" | "HEAD", None) => get(state, request),
        ("PUT", None) if request.headers.contains_key("x-amz-copy-source") => {
            error(501, "NotImplemented")
        }
        ("PUT", None) => put(state, request),
        ("DELETE", None) => {
            state.objects.remove(&request.key);
            empty(204)
        }
        _ => error(501, "NotImplemented"),
    }
}

fn empty(status: u16) -> Response {
    Response {
        status,
        ..ok(vec![], "")
    }
}

fn tagged(name: &str, body: &str) -> String {
    format!("<{name}>{body}</{name}>")
}

fn put(state: &mut State, request: &Request) -> Response {
    let old = state.objects.get(&request.key);
    let exclusive = request
        .headers
        .get("if-none-match")
        .is_some_and(|m| m == "*");
    let expected = request.headers.get("if-match");
    if (exclusive && old.is_some())
        || expected.is_some_and(|e| old.is_none_or(|old| *e != e_tag(old)))
    {
        return error(412, "PreconditionFailed");
    }
    let data = request.body.clone();
    let tag = e_tag(&data);
    state.objects.insert(request.key.clone(), data);
    ok(vec![("ETag", tag)], "")
}

fn put_part(state: &mut State, id: &str, request: &Request) -> Response {
    let Some(parts) = state.uploads.get_mut(id) else {
        return error(404, "NoSuchUpload");
    };
    let number = request.query["partNumber"].parse().unwrap();
    parts.insert(number, request.body.clone());
    ok(vec![("ETag", e_tag(&request.body))], "")
}

fn complete(state: &mut State, id: &str, request: &Request) -> Response {
    let Some(parts) = state.uploads.remove(id) else {
        return error(404, "NoSuchUpload");
    };
    let data: Bytes = parts.into_values().flatten().collect();
    let tag = e_tag(&data);
    state.objects.insert(request.key.clone(), data);
    let body = tagged("ETag", &escape(&tag));
    ok(vec![], tagged("CompleteMultipartUploadResult", &body))
}

fn delete_many(state: &mut State, request: &Request) -> Response {
    let text = std::str::from_utf8(&request.body).unwrap();
    let mut deleted = String::new();
    for part in text.split("<Key>").skip(1) {
        let key = part.split("</Key>").next().unwrap();
        let plain = key
            .replace("&lt;", "<")
            .replace("&gt;", ">")
            .replace("&amp;", "&");
        state.objects.remove(&plain);
        deleted.push_str(&tagged("Deleted", &tagged("Key", key)));
    }
    ok(vec![], tagged("DeleteResult", &deleted))
}

fn get(state: &State, request: &Request) -> Response {
    let Some(data) = state.objects.get(&request.key) else {
        return error(404, "NoSuchKey");
    };
    let tag = e_tag(data);
    if request.headers.get("if-match").is_some_and(|m| *m != tag) {
        return error(412, "PreconditionFailed");
    }
    if request
        .headers
        .get("if-none-match")
        .is_some_and(|m| *m == tag)
    {
        return empty(304);
    }
    let mut headers = vec![("ETag", tag), ("Last-Modified", MODIFIED.to_owned())];
    let Some(range) = request.headers.get("range") else {
        return ok(headers, data.clone());
    };
    let (first, last) = range
        .strip_prefix("bytes=")
        .unwrap()
        .split_once('-')
        .unwrap();
    let end = data.len();
    let (start, stop) = match (first.parse::<usize>(), last.parse::<usize>()) {
        (Ok(first), last) => (first, last.map_or(end, |last| end.min(last + 1))),
        (Err(_), last) => (end.saturating_sub(last.unwrap()), end),
    };
    if start >= stop {
        return error(416, "InvalidRange");
    }
    headers.push(("Content-Range", format!("bytes {start}-{}/{end}", stop - 1)));
    Response {
        status: 206,
        ..ok(headers, data.slice(start..stop))
    }
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('"', "&quot;")
}

/// One page of ListObjectsV2. The continuation token is the last key or common prefix shown.
fn list(state: &State, query: &BTreeMap<String, String>) -> Response {
    let text = |name: &str| query.get(name).map_or("", String::as_str);
    let (prefix, delimiter) = (text("prefix"), text("delimiter"));
    let token = text("continuation-token");
    let after = token.max(text("start-after"));
    let (mut body, mut last, mut shown) = (String::new(), token.to_owned(), 0);
    for (key, data) in &state.objects {
        let in_shown_prefix =
            !delimiter.is_empty() && last.ends_with(delimiter) && key.starts_with(last.as_str());
        if !key.starts_with(prefix) || key.as_str() <= after || in_shown_prefix {
            continue;
        }
        if shown == PAGE {
            body.push_str(&tagged("NextContinuationToken", &escape(&last)));
            break;
        }
        shown += 1;
        let common = key[prefix.len()..]
            .split_once(delimiter)
            .map(|(head, _)| head);
        if let (false, Some(head)) = (delimiter.is_empty(), common) {
            last = format!("{prefix}{head}{delimiter}");
            body.push_str(&tagged("CommonPrefixes", &tagged("Prefix", &escape(&last))));
            continue;
        }
        last.clone_from(key);
        let key = tagged("Key", &escape(key)) + &tagged("Size", &data.len().to_string());
        let tag = tagged("ETag", &escape(&e_tag(data)));
        let modified = tagged("LastModified", MODIFIED_ISO);
        body.push_str(&tagged("Contents", &(key + &tag + &modified)));
    }
    ok(vec![], tagged("ListBucketResult", &body))
}
