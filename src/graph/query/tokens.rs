//! The limits of a query's text, checked before the grammar sees it, because the grammar recurses.

use super::findings::refuse;
use crate::{Error, Result, limits};

/// Checks bytes, tokens and nesting, and that texts and comments end. Errors with
/// `ResourceLimitExceeded` or `QueryInvalid`.
pub(super) fn check(text: &str) -> Result<()> {
    within("bytes of a query", text.len(), limits::LANGUAGE_BYTES)?;
    let mut depth = Depth::default();
    let (bytes, mut at, mut tokens) = (text.as_bytes(), 0, 0);
    while let Some(&byte) = bytes.get(at) {
        let rest = &bytes[at..];
        let end = match byte {
            b' ' | b'\t' | b'\r' | b'\n' => {
                at += 1;
                continue;
            }
            b'/' if rest.starts_with(b"//") => {
                at = memchr::memchr(b'\n', rest).map_or(bytes.len(), |length| at + length);
                continue;
            }
            b'/' if rest.starts_with(b"/*") => {
                let close = memchr::memmem::find(&rest[2..], b"*/");
                at = match close {
                    Some(length) => at + length + 4,
                    None => return unclosed(text, at, 2, "comment", "*/"),
                };
                continue;
            }
            b'"' => match quoted(bytes, at) {
                Some(end) => end,
                None => return unclosed(text, at, 1, "text", "\""),
            },
            _ if word(byte) => at + rest.iter().take_while(|b| word(**b)).count(),
            b'!' | b'<' | b'>' if rest.get(1) == Some(&b'=') => at + 2,
            _ => at + 1,
        };
        tokens += 1;
        within("tokens of a query", tokens, limits::LANGUAGE_TOKENS)?;
        within(
            "nesting of a query",
            depth.after(&bytes[at..end]),
            limits::LANGUAGE_DEPTH,
        )?;
        at = end;
    }
    Ok(())
}

/// Brackets and `not`s within each other.
#[derive(Default)]
struct Depth {
    /// The weight of each open bracket: itself and the `not`s before it.
    open: Vec<usize>,
    sum: usize,
    nots: usize,
}

impl Depth {
    fn after(&mut self, token: &[u8]) -> usize {
        match token {
            b"not" => self.nots += 1,
            b"(" | b"[" | b"{" => {
                let weight = 1 + std::mem::take(&mut self.nots);
                self.open.push(weight);
                self.sum += weight;
            }
            b")" | b"]" | b"}" => {
                self.nots = 0;
                self.sum -= self.open.pop().unwrap_or(0);
            }
            _ => self.nots = 0,
        }
        self.sum + self.nots
    }
}

fn word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'$' || byte >= 0x80
}

/// The end of the text that begins at `at`.
fn quoted(bytes: &[u8], at: usize) -> Option<usize> {
    let mut end = at + 1;
    loop {
        end += memchr::memchr2(b'"', b'\\', bytes.get(end..)?)?;
        if bytes[end] == b'"' {
            return Some(end + 1);
        }
        end += 2;
    }
}

fn unclosed(text: &str, at: usize, length: usize, what: &str, close: &str) -> Result<()> {
    let message = format!("this {what} does not end");
    let fix = format!("close it with `{close}`");
    refuse(text, "Q001", &(at..at + length), message, fix)
}

/// Errors with `ResourceLimitExceeded` when `value` exceeds `limit`.
pub(super) fn within(what: &'static str, value: usize, limit: usize) -> Result<()> {
    if value <= limit {
        return Ok(());
    }
    Err(Error::ResourceLimitExceeded {
        what,
        value: value as u64,
        limit: limit as u64,
    })
}
