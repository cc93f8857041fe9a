//! As much of HTTP/1.1 as one client library speaks.

use std::collections::BTreeMap;
use std::io::{BufRead, Write};

use bytes::Bytes;

use super::BUCKET;

#[derive(Debug, Default)]
pub(super) struct Request {
    pub(super) method: String,
    pub(super) key: String,
    pub(super) query: BTreeMap<String, String>,
    pub(super) headers: BTreeMap<String, String>,
    pub(super) body: Bytes,
}

#[derive(Debug)]
pub(super) struct Response {
    pub(super) status: u16,
    pub(super) headers: Vec<(&'static str, String)>,
    pub(super) body: Bytes,
}

pub(super) fn read_request(reader: &mut impl BufRead) -> Option<(Request, String)> {
    let mut line = String::new();
    if reader.read_line(&mut line).ok()? == 0 {
        return None;
    }
    let mut words = line.split_whitespace();
    let (method, uri) = (words.next()?.to_owned(), words.next()?.to_owned());
    let mut request = Request {
        method,
        ..Request::default()
    };
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).ok()?;
        let Some((name, value)) = line.trim_end().split_once(':') else {
            break;
        };
        let name = name.to_ascii_lowercase();
        request.headers.insert(name, value.trim().to_owned());
    }
    let length = request.headers.get("content-length");
    let mut body = vec![0; length.map_or(0, |l| l.parse().unwrap())];
    reader.read_exact(&mut body).ok()?;
    request.body = body.into();
    let (path, query) = uri.split_once('?').unwrap_or((&uri, ""));
    let key = decode(path.strip_prefix('/')?.strip_prefix(BUCKET)?);
    request.key = key.trim_start_matches('/').to_owned();
    request.query = (url::form_urlencoded::parse(query.as_bytes()).into_owned()).collect();
    let mark = if query.is_empty() { "" } else { "?" };
    let target = format!("{}{mark}{}", request.key, decode(query));
    Some((request, target))
}

/// Undoes percent encoding.
fn decode(text: &str) -> String {
    let mut bytes = Vec::new();
    let mut rest = text.as_bytes();
    while let [first, tail @ ..] = rest {
        let hex = (*first == b'%').then(|| tail.get(..2)).flatten();
        let byte = hex.and_then(|h| u8::from_str_radix(std::str::from_utf8(h).ok()?, 16).ok());
        bytes.push(byte.unwrap_or(*first));
        rest = if byte.is_some() { &tail[2..] } else { tail };
    }
    String::from_utf8(bytes).unwrap()
}

pub(super) fn write_response(
    writer: &mut impl Write,
    response: &Response,
    head: bool,
) -> std::io::Result<()> {
    let mut text = format!("HTTP/1.1 {} -\r\n", response.status);
    for (name, value) in &response.headers {
        text.push_str(&format!("{name}: {value}\r\n"));
    }
    text.push_str(&format!("Content-Length: {}\r\n\r\n", response.body.len()));
    let mut bytes = text.into_bytes();
    if !head {
        bytes.extend_from_slice(&response.body);
    }
    writer.write_all(&bytes)
}
