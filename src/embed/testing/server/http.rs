//! Enough of HTTP/1.1 for a client that is not of this project.

use std::time::Duration;

use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// Bytes of a request.
const MOST: usize = 256 * 1024 * 1024;

/// A request as it arrived.
#[derive(Debug, Clone, PartialEq)]
pub struct Recorded {
    /// `GET` or `POST`.
    pub method: String,
    /// The path, as `/v1/embeddings`.
    pub path: String,
    /// Names in lower case, with their values.
    pub headers: Vec<(String, String)>,
    /// The body, null where there is none.
    pub json: Value,
    /// Its texts.
    pub texts: Vec<String>,
}

impl Recorded {
    /// The value of a header, by its name in lower case.
    pub fn header(&self, name: &str) -> Option<&str> {
        let found = self.headers.iter().find(|(n, _)| n == name);
        found.map(|(_, value)| value.as_str())
    }
}

/// How a body travels.
#[derive(Debug, Clone, Copy)]
pub(super) enum Shape {
    Plain,
    Truncated,
    Slow(Duration),
    Chunked,
    Endless,
    Reset,
}

#[derive(Debug)]
pub(super) struct Reply {
    pub(super) status: u16,
    pub(super) headers: Vec<(&'static str, String)>,
    pub(super) body: Vec<u8>,
    pub(super) shape: Shape,
}

impl Reply {
    pub(super) fn new(status: u16, body: Value) -> Self {
        Self {
            status,
            headers: Vec::new(),
            body: body.to_string().into_bytes(),
            shape: Shape::Plain,
        }
    }
}

/// One connection of a client.
#[derive(Debug)]
pub(super) struct Connection {
    stream: TcpStream,
    buffer: Vec<u8>,
}

impl Connection {
    pub(super) fn new(stream: TcpStream) -> Self {
        // The head and the body go out in two writes: without this the second waits for an
        // acknowledgement. Failure costs time alone.
        let _ = stream.set_nodelay(true);
        Self {
            stream,
            buffer: Vec::new(),
        }
    }

    /// The next request; `None` when the client is gone or speaks another language.
    pub(super) async fn read(&mut self) -> Option<Recorded> {
        let end = loop {
            let end = self.buffer.windows(4).position(|w| w == b"\r\n\r\n");
            match end {
                Some(end) => break end + 4,
                None => self.more().await?,
            }
        };
        let head = String::from_utf8(self.buffer[..end].to_vec()).ok()?;
        let mut lines = head.lines();
        let mut words = lines.next()?.split(' ');
        let (method, path) = (words.next()?.to_owned(), words.next()?.to_owned());
        let header = |line: &str| {
            let (name, value) = line.split_once(':')?;
            Some((name.to_ascii_lowercase(), value.trim().to_owned()))
        };
        let mut out = Recorded {
            method,
            path,
            headers: lines.filter_map(header).collect(),
            json: Value::Null,
            texts: Vec::new(),
        };
        let length: usize = out.header("content-length").unwrap_or("0").parse().ok()?;
        let whole = end.checked_add(length).filter(|whole| *whole <= MOST)?;
        while self.buffer.len() < whole {
            self.more().await?;
        }
        let body = &self.buffer[end..whole];
        out.json = serde_json::from_slice(body).unwrap_or_default();
        let inputs = out.json.get("input").or_else(|| out.json.get("inputs"));
        let texts = inputs.and_then(Value::as_array).into_iter().flatten();
        out.texts = texts
            .filter_map(|t| t.as_str().map(str::to_owned))
            .collect();
        self.buffer.drain(..whole);
        Some(out)
    }

    async fn more(&mut self) -> Option<()> {
        let read = self.stream.read_buf(&mut self.buffer).await.ok()?;
        (read > 0).then_some(())
    }

    /// Waits until the client closes its side.
    pub(super) async fn wait_for_end(&mut self) {
        while self.more().await.is_some() {}
    }

    /// Makes the end of the connection a reset.
    pub(super) fn reset(&self) {
        // A client that is gone already needs no reset.
        let _ = self.stream.set_zero_linger();
    }

    /// Sends `reply`; whether the connection can carry another one.
    pub(super) async fn write(&mut self, reply: Reply) -> bool {
        self.try_write(reply).await.unwrap_or(false)
    }

    async fn try_write(&mut self, mut reply: Reply) -> std::io::Result<bool> {
        let half = reply.body.len() / 2;
        if matches!(reply.shape, Shape::Truncated) {
            reply.body.truncate(half);
        }
        let chunked = matches!(reply.shape, Shape::Chunked | Shape::Endless);
        let mut head = format!("HTTP/1.1 {} Scripted\r\n", reply.status);
        head += "Content-Type: application/json\r\n";
        for (name, value) in &reply.headers {
            head += &format!("{name}: {value}\r\n");
        }
        head += &if chunked {
            "Transfer-Encoding: chunked\r\n\r\n".to_owned()
        } else {
            format!("Content-Length: {}\r\n\r\n", reply.body.len())
        };
        self.stream.write_all(head.as_bytes()).await?;
        let (first, second) = reply.body.split_at(half.min(reply.body.len()));
        match reply.shape {
            Shape::Plain | Shape::Truncated => self.stream.write_all(&reply.body).await?,
            Shape::Slow(wait) => {
                self.stream.write_all(first).await?;
                tokio::time::sleep(wait).await;
                self.stream.write_all(second).await?;
            }
            Shape::Chunked => {
                self.chunk(first).await?;
                self.chunk(second).await?;
                self.stream.write_all(b"0\r\n\r\n").await?;
            }
            // Ends with the client, whose closed side is an error here.
            Shape::Endless => loop {
                self.chunk(&[b' '; 64 * 1024]).await?;
            },
            Shape::Reset => {
                self.stream.write_all(first).await?;
                // Long enough for the client to read what there is.
                tokio::time::sleep(Duration::from_millis(20)).await;
                self.reset();
                return Ok(false);
            }
        }
        Ok(true)
    }

    async fn chunk(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        if bytes.is_empty() {
            return Ok(());
        }
        let size = format!("{:x}\r\n", bytes.len());
        self.stream.write_all(size.as_bytes()).await?;
        self.stream.write_all(bytes).await?;
        self.stream.write_all(b"\r\n").await
    }
}
