//! One request to a server, with its retries.

use std::error::Error as _;
use std::fmt::Write as _;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use reqwest::header::{AUTHORIZATION, CONTENT_TYPE, RETRY_AFTER};
use tokio::sync::Semaphore;
use url::{Host, Url};

use super::key::Key;
use super::retry::{Verdict, backoff, retry_after, verdict};
use crate::embed::Role;
use crate::embed::spec::invalid;
use crate::env::Env;
use crate::{Error, Result, limits};

/// Bytes that are read of the body of a failure.
const FAILURE_BYTES: usize = 16 * 1024;

/// Why a request brought nothing.
#[derive(Debug)]
pub(super) enum Failure {
    /// The server refuses these texts, and says so in these words.
    Refused(String),
    /// The call as a whole fails.
    Whole(Error),
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::Whole(error)
    }
}

/// One call of a model: when it ends, and what it took so far.
#[derive(Debug)]
pub(super) struct Call {
    limit: Duration,
    deadline_micros: i64,
    /// What goes into the log.
    pub(super) meters: Meters,
}

/// Counters of one call.
#[derive(Debug, Default)]
pub(super) struct Meters {
    pub(super) requests: AtomicU64,
    pub(super) retries: AtomicU64,
    pub(super) rejected: AtomicU64,
    pub(super) tokens: AtomicU64,
    pub(super) bytes: AtomicU64,
}

/// A request: GET without a body, else POST.
#[derive(Debug)]
pub(super) struct Request {
    pub(super) path: &'static str,
    pub(super) body: Option<Bytes>,
    /// Bytes of the answer that are read.
    pub(super) most: usize,
}

/// The connection to one server. Its `Debug` shows neither the address nor the key.
pub(super) struct Client {
    http: reqwest::Client,
    base: String,
    key: Key,
    model: String,
    env: Env,
    permits: Semaphore,
}

impl std::fmt::Debug for Client {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Client")
            .field("model", &self.model)
            .field("key", &self.key)
            .finish_non_exhaustive()
    }
}

/// One attempt that did not succeed but may the next time.
struct Later {
    why: String,
    /// What the server asks for.
    wait: Option<Duration>,
}

enum Attempt {
    Good(Vec<u8>),
    Later(Later),
}

impl Client {
    /// A client of `base`; `model` is what errors show. Nothing is sent yet.
    ///
    /// Plain http to another machine is `InvalidArgument` unless `allow_http`: texts and the key would
    /// travel in the open.
    pub(super) fn new(
        model: String,
        base: &Url,
        key: Key,
        allow_http: bool,
        env: &Env,
    ) -> Result<Self> {
        let plain = base.scheme() == "http";
        let here = is_loopback(base);
        if plain && !here && !allow_http {
            return Err(invalid(
                "plain http is for servers on this machine; use https, or add allow_http=true where the network is trusted",
            ));
        }
        let mut http = reqwest::Client::builder()
            .redirect(reqwest::redirect::Policy::none())
            .connect_timeout(Duration::from_secs(limits::REMOTE_CONNECT_SECONDS))
            .https_only(!plain)
            // Reading the certificates of the system takes long, and plain http needs none.
            .tls_built_in_root_certs(!plain)
            .user_agent(concat!("stratagraph/", env!("CARGO_PKG_VERSION")));
        if here {
            // What is for this machine must not leave it.
            http = http.no_proxy();
        }
        let http = http.build().map_err(|e| Error::ModelFailed {
            model: model.clone(),
            reason: key.excerpt(&describe(e), false),
        })?;
        Ok(Self {
            http,
            base: base.as_str().trim_end_matches('/').to_owned(),
            key,
            model,
            env: env.clone(),
            permits: Semaphore::new(limits::REMOTE_REQUESTS),
        })
    }

    /// What errors show of the model.
    pub(super) fn model(&self) -> &str {
        &self.model
    }

    /// Begins a call, whose time runs from here.
    pub(super) fn begin(&self, role: Role) -> Call {
        let limit = Duration::from_secs(match role {
            Role::Document => limits::REMOTE_DOCUMENT_SECONDS,
            Role::Query => limits::REMOTE_QUERY_SECONDS,
        });
        let now = self.env.clock.now_micros();
        let limit_micros = i64::try_from(limit.as_micros()).unwrap_or(i64::MAX);
        Call {
            limit,
            deadline_micros: now.saturating_add(limit_micros),
            meters: Meters::default(),
        }
    }

    /// The failure of a whole call.
    pub(super) fn failed(&self, reason: impl AsRef<str>) -> Error {
        Error::ModelFailed {
            model: self.model.clone(),
            reason: self.key.hide(reason.as_ref(), false),
        }
    }

    /// What may be shown of a server's own words.
    pub(super) fn excerpt(&self, text: &str) -> String {
        self.key.excerpt(text, false)
    }

    /// Refuses a name that a server gave itself when it cannot be recorded and shown.
    pub(super) fn check_name(&self, name: Option<&str>) -> Result<()> {
        let name = name.unwrap_or_default();
        if name.len() > limits::REMOTE_NAME_BYTES {
            return Err(Error::ResourceLimitExceeded {
                what: "bytes of the name by which a server calls its model",
                value: name.len() as u64,
                limit: limits::REMOTE_NAME_BYTES as u64,
            });
        }
        if self.key.is_in(name) {
            return Err(self.failed("the server calls its model by the key that it was sent"));
        }
        Ok(())
    }

    /// The body of the server's answer to `request`.
    pub(super) async fn send(&self, call: &Call, request: &Request) -> Result<Vec<u8>, Failure> {
        let mut attempt = 0;
        loop {
            let later = match self.attempt(call, request).await? {
                Attempt::Good(body) => return Ok(body),
                Attempt::Later(later) => later,
            };
            attempt += 1;
            if attempt == limits::REMOTE_ATTEMPTS {
                let why = later.why;
                return Err(self
                    .failed(format!("{attempt} attempts failed; the last: {why}"))
                    .into());
            }
            let jitter = || backoff(attempt - 1, self.env.ids.jitter());
            let wait = later.wait.filter(|wait| !wait.is_zero());
            let wait = wait.unwrap_or_else(jitter);
            if wait >= self.time_left(call) {
                return Err(self.late(call, &later.why).into());
            }
            call.meters.retries.fetch_add(1, Ordering::Relaxed);
            self.env.clock.sleep(wait).await;
        }
    }

    fn time_left(&self, call: &Call) -> Duration {
        let now = self.env.clock.now_micros();
        let left = call.deadline_micros.saturating_sub(now);
        Duration::from_micros(u64::try_from(left).unwrap_or(0))
    }

    fn late(&self, call: &Call, why: &str) -> Error {
        let seconds = call.limit.as_secs();
        let last = if why.is_empty() {
            ""
        } else {
            "; the last attempt: "
        };
        self.failed(format!(
            "no answer within the {seconds} s of the call{last}{why}"
        ))
    }

    async fn attempt(&self, call: &Call, request: &Request) -> Result<Attempt, Failure> {
        let permit = self.permits.acquire().await;
        let _permit = permit.map_err(|e| Error::TaskFailed {
            operation: "asking a model's server",
            source: Box::new(e),
        })?;
        let left = self.time_left(call);
        if left.is_zero() {
            return Err(self.late(call, "").into());
        }
        let timeout = left.min(Duration::from_secs(limits::REMOTE_REQUEST_SECONDS));
        call.meters.requests.fetch_add(1, Ordering::Relaxed);
        let mut response = match self.build(request, timeout).send().await {
            Ok(response) => response,
            Err(error) => return self.broken(error, timeout),
        };
        let status = response.status().as_u16();
        let good = verdict(status, "") == Verdict::Good;
        let most = if good { request.most } else { FAILURE_BYTES };
        let mut body = Vec::new();
        let whole = read(&mut response, most, &mut body).await;
        call.meters
            .bytes
            .fetch_add(body.len() as u64, Ordering::Relaxed);
        match (good, whole) {
            (true, Ok(true)) => Ok(Attempt::Good(body)),
            (true, Ok(false)) => Err(Failure::Whole(Error::ResourceLimitExceeded {
                what: "bytes of the answer of a model's server",
                value: response.content_length().unwrap_or(most as u64 + 1),
                limit: most as u64,
            })),
            (true, Err(error)) => self.broken(error, timeout),
            // A failure says enough by its status, however its body ends.
            (false, whole) => {
                let header = response.headers().get(RETRY_AFTER);
                let header = header.and_then(|value| value.to_str().ok());
                self.refused(status, &body, !matches!(whole, Ok(true)), header)
            }
        }
    }

    fn build(&self, request: &Request, timeout: Duration) -> reqwest::RequestBuilder {
        let url = format!("{}{}", self.base, request.path);
        let built = match &request.body {
            None => self.http.get(url),
            Some(body) => {
                let post = self.http.post(url).body(body.clone());
                post.header(CONTENT_TYPE, "application/json")
            }
        };
        let built = built.timeout(timeout);
        match self.key.header() {
            Some(key) => built.header(AUTHORIZATION, key),
            None => built,
        }
    }

    /// A connection that brought no whole answer.
    fn broken(&self, error: reqwest::Error, timeout: Duration) -> Result<Attempt, Failure> {
        if error.is_builder() {
            return Err(self.failed(self.excerpt(&describe(error))).into());
        }
        let why = if error.is_timeout() && !error.is_connect() {
            format!("no answer within {:.1} s", timeout.as_secs_f64())
        } else {
            self.excerpt(&describe(error))
        };
        let wait = None;
        Ok(Attempt::Later(Later { why, wait }))
    }

    /// An answer that says no. `cut` says that its body goes on.
    fn refused(
        &self,
        status: u16,
        body: &[u8],
        cut: bool,
        after: Option<&str>,
    ) -> Result<Attempt, Failure> {
        let body = String::from_utf8_lossy(body);
        let said = self.key.excerpt(&body, cut);
        let mut why = format!("the server answered {status}");
        if !said.is_empty() {
            why = format!("{why}: {said}");
        }
        match verdict(status, &body) {
            Verdict::Refused => Err(Failure::Refused(why)),
            Verdict::Later => {
                let now = self.env.clock.now_micros();
                let wait = after.and_then(|value| retry_after(value, now));
                Ok(Attempt::Later(Later { why, wait }))
            }
            Verdict::Good | Verdict::Lost => {
                let next = match status {
                    300..=399 => "; redirects are not followed, name the final address in the spec",
                    401 | 403 => "; look at the key in the variable that key_env names",
                    404 => "; look at the address and the name of the model in the spec",
                    _ => "",
                };
                Err(self.failed(why + next).into())
            }
        }
    }
}

/// Reads at most `most` bytes of a body; `false` when there are more.
async fn read(
    response: &mut reqwest::Response,
    most: usize,
    body: &mut Vec<u8>,
) -> Result<bool, reqwest::Error> {
    if response.status().is_success() && response.content_length() > Some(most as u64) {
        return Ok(false);
    }
    while let Some(chunk) = response.chunk().await? {
        let room = most - body.len();
        body.extend_from_slice(&chunk[..chunk.len().min(room)]);
        if chunk.len() > room {
            return Ok(false);
        }
    }
    Ok(true)
}

fn is_loopback(url: &Url) -> bool {
    match url.host() {
        Some(Host::Domain(name)) => name == "localhost",
        Some(Host::Ipv4(address)) => address.is_loopback(),
        Some(Host::Ipv6(address)) => address.is_loopback(),
        None => false,
    }
}

/// An error with its causes and without the address, which may hold a secret of its own.
fn describe(error: reqwest::Error) -> String {
    let error = error.without_url();
    let mut out = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        // Writing to a string cannot fail.
        let _ = write!(out, ": {error}");
        cause = error.source();
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_this_machine_is_near() {
        for (url, near) in [
            ("http://localhost:1", true),
            ("http://LOCALHOST", true),
            ("http://127.0.0.1", true),
            ("http://127.9.9.9:80", true),
            ("http://2130706433", true),
            ("http://[::1]:80", true),
            ("http://localhost.example.com", false),
            ("http://127.0.0.1.example.com", false),
            ("http://0.0.0.0", false),
            ("http://10.0.0.1", false),
            ("http://[::2]", false),
        ] {
            assert_eq!(is_loopback(&Url::parse(url).unwrap()), near, "{url}");
        }
    }
}
