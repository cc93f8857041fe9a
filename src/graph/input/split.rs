//! Records of the compatible grammar: several on a line, or one over several lines.
//!
//! Only brackets and quotes are looked at, line by line. A string cannot hold the end of a line, so
//! that every line begins outside of strings.

use crate::{Error, Result};

/// A piece of the input.
#[derive(Debug)]
pub(super) enum Piece<'a> {
    /// The text of one object, from the line that it begins on.
    Record { line: u64, text: &'a str },
    /// What no record can be made of.
    Bad { line: u64, message: String },
}

/// Cuts lines into records.
#[derive(Debug, Default)]
pub(super) struct Splitter {
    limit: usize,
    /// The lines of a record that goes on.
    pending: String,
    /// The line that it begins on.
    begun: u64,
    depth: usize,
    /// The last byte that is no blank.
    last: u8,
    /// After something bad: lines are passed over until one begins with `{`.
    lost: bool,
}

impl Splitter {
    /// Records have at most `limit` bytes.
    pub fn new(limit: usize) -> Self {
        Self {
            limit,
            ..Self::default()
        }
    }

    fn reset(&mut self) {
        self.pending.clear();
        self.depth = 0;
    }

    /// Forgets a record that goes on and passes over lines until one begins with `{`.
    pub fn give_up(&mut self) {
        self.reset();
        self.lost = true;
    }

    /// The line and the message about a record that the end of a file cuts.
    pub fn end(&mut self) -> Option<(u64, String)> {
        self.lost = false;
        let open = self.depth > 0;
        self.reset();
        let message = "the record that begins here does not end in its file; close its brackets";
        open.then(|| (self.begun, message.to_owned()))
    }

    /// Cuts the line into pieces and keeps what goes on in the next line.
    pub fn push(
        &mut self,
        line: u64,
        text: &str,
        mut each: impl FnMut(Piece<'_>) -> Result<()>,
    ) -> Result<()> {
        let bytes = text.as_bytes();
        let first = bytes.iter().position(|byte| !byte.is_ascii_whitespace());
        let Some(first) = first else { return Ok(()) };
        if self.lost && bytes[first] != b'{' {
            return Ok(());
        }
        self.lost = false;
        let (mut at, mut from) = (first, 0);
        while at < bytes.len() {
            let byte = bytes[at];
            if byte.is_ascii_whitespace() {
                at += 1;
                continue;
            }
            if self.depth == 0 {
                if byte != b'{' {
                    let message = format!("column {}: {BETWEEN}", at + 1);
                    return self.lose(line, &message, &mut each);
                }
                (self.begun, self.depth, self.last, from) = (line, 1, byte, at);
                at += 1;
                continue;
            }
            match byte {
                b'"' => match string_end(bytes, at) {
                    Some(end) => at = end,
                    None => {
                        let message = "a string is not closed on its line; expected '\"'";
                        return self.lose(self.begun, message, &mut each);
                    }
                },
                b'{' | b'[' if !matches!(self.last, b':' | b',' | b'[') => {
                    let message = "the record that begins here is not closed before the next value";
                    self.lose(self.begun, message, &mut each)?;
                    if at > first || byte != b'{' {
                        return Ok(());
                    }
                    // The line is the beginning of another record.
                    self.lost = false;
                    continue;
                }
                b'{' | b'[' => self.depth += 1,
                b'}' | b']' => self.depth -= 1,
                _ => {}
            }
            self.last = byte;
            at += 1;
            if self.depth == 0 {
                self.record(&text[from..at], line, &mut each)?;
                from = at;
            }
        }
        if self.depth > 0 {
            self.keep(&text[from..], line)?;
            self.pending.push('\n');
        }
        Ok(())
    }

    /// Gives up and says why.
    fn lose(
        &mut self,
        line: u64,
        message: &str,
        each: &mut impl FnMut(Piece<'_>) -> Result<()>,
    ) -> Result<()> {
        self.give_up();
        each(Piece::Bad {
            line,
            message: message.to_owned(),
        })
    }

    fn keep(&mut self, text: &str, line: u64) -> Result<()> {
        if self.pending.len() + text.len() > self.limit {
            self.give_up();
            return Err(Error::LineTooLong {
                place: String::new(),
                line,
                limit: self.limit as u64,
            });
        }
        self.pending.push_str(text);
        Ok(())
    }

    fn record(
        &mut self,
        text: &str,
        line: u64,
        each: &mut impl FnMut(Piece<'_>) -> Result<()>,
    ) -> Result<()> {
        let begun = self.begun;
        if self.pending.is_empty() {
            return each(Piece::Record { line: begun, text });
        }
        self.keep(text, line)?;
        let record = std::mem::take(&mut self.pending);
        let result = each(Piece::Record {
            line: begun,
            text: &record,
        });
        self.pending = record;
        self.pending.clear();
        result
    }
}

const BETWEEN: &str = "expected '{': an input is a sequence of objects";

/// The closing quote of the string that begins at `at`.
fn string_end(bytes: &[u8], at: usize) -> Option<usize> {
    let mut at = at + 1;
    loop {
        match bytes.get(at)? {
            b'"' => return Some(at),
            b'\\' => at += 2,
            _ => at += 1,
        }
    }
}
