//! The tokens of a schema, counted before the grammar sees the text.

use std::ops::Range;

use crate::{Error, Result, limits};

/// Why a text has no tokens: where, what is wrong, what to do.
pub(super) struct Unclosed {
    pub span: Range<usize>,
    pub message: &'static str,
    pub fix: &'static str,
}

/// The length of the token at the start of `rest`, which is not empty; white space and comments are
/// tokens here.
fn token(rest: &str) -> std::result::Result<usize, (&'static str, &'static str)> {
    let word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let until = |end: fn(char) -> bool| rest.find(end).unwrap_or(rest.len());
    if rest.starts_with("//") {
        return Ok(until(|c| c == '\n'));
    }
    if let Some(comment) = rest.strip_prefix("/*") {
        let end = comment.find("*/").map(|at| at + 4);
        return end.ok_or(("a comment that nothing closes", "end it with */"));
    }
    if rest.starts_with('"') {
        let mut escaped = false;
        for (at, byte) in rest.bytes().enumerate().skip(1) {
            match byte {
                _ if escaped => escaped = false,
                b'\\' => escaped = true,
                b'"' => return Ok(at + 1),
                _ => {}
            }
        }
        return Err(("a text that nothing closes", "end it with \""));
    }
    if rest.starts_with("->") || rest.starts_with("..") {
        return Ok(2);
    }
    match rest.chars().next() {
        Some(c) if word(c) => Ok(until(|c| !(c.is_ascii_alphanumeric() || c == '_'))),
        Some(c) if blank(c) => Ok(until(|c| !blank(c))),
        Some(c) => Ok(c.len_utf8()),
        None => Ok(0),
    }
}

fn blank(c: char) -> bool {
    matches!(c, ' ' | '\t' | '\r' | '\n' | '\u{FEFF}')
}

/// The text of the token that starts at `at`; empty at the end.
pub(super) fn token_at(text: &str, at: usize) -> &str {
    let rest = text.get(at..).unwrap_or_default();
    rest.get(..token(rest).unwrap_or(rest.len()))
        .unwrap_or_default()
}

/// Refuses a text of too many bytes, tokens or brackets within each other, so that the grammar works
/// on bounded input and does not exhaust the stack.
///
/// # Errors
/// `ResourceLimitExceeded`.
pub(super) fn check(text: &str) -> Result<Option<Unclosed>> {
    limit("bytes of a schema", text.len(), limits::LANGUAGE_BYTES)?;
    let (mut at, mut tokens, mut depth) = (0, 0, 0usize);
    while let Some(rest) = text.get(at..).filter(|rest| !rest.is_empty()) {
        let len = match token(rest) {
            Ok(len) => len,
            Err((message, fix)) => {
                let opening = rest.chars().take(2).map(char::len_utf8).sum::<usize>();
                return Ok(Some(Unclosed {
                    span: at..at + if rest.starts_with('"') { 1 } else { opening },
                    message,
                    fix,
                }));
            }
        };
        let silent = rest.starts_with(blank) || rest.starts_with("//") || rest.starts_with("/*");
        tokens += usize::from(!silent);
        match rest.as_bytes().first() {
            Some(b'{' | b'(' | b'[') => depth += 1,
            Some(b'}' | b')' | b']') => depth = depth.saturating_sub(1),
            _ => {}
        }
        limit("tokens of a schema", tokens, limits::LANGUAGE_TOKENS)?;
        limit(
            "brackets of a schema within each other",
            depth,
            limits::LANGUAGE_DEPTH,
        )?;
        at += len;
    }
    Ok(None)
}

/// Refuses a number above its limit.
///
/// # Errors
/// `ResourceLimitExceeded`.
pub(super) fn limit(what: &'static str, value: usize, limit: usize) -> Result<()> {
    if value > limit {
        let (value, limit) = (value as u64, limit as u64);
        return Err(Error::ResourceLimitExceeded { what, value, limit });
    }
    Ok(())
}
