//! Lines of a file as its bytes come.

use memchr::memchr;
use tokio::io::AsyncReadExt;

use super::sources::{Bytes, Source};
use crate::{Error, Result};

/// Bytes that one read asks for.
const READ_BYTES: usize = 64 * 1024;

/// A line with a record, or a part of one.
#[derive(Debug, PartialEq, Eq)]
pub enum Line<'a> {
    /// Its number and its text without its end.
    Text(u64, &'a str),
    /// Its number and how many of its bytes are UTF-8 before the first one that is not.
    NotUtf8(u64, usize),
}

/// Gives the lines of one file. Blank lines and lines whose first characters that are no blanks are
/// `//` are counted and passed over. Lines end with LF or CRLF.
pub struct LineReader {
    bytes: Bytes,
    name: String,
    limit: usize,
    /// The number of the last line.
    number: u64,
    /// Lines of the files before.
    before: u64,
    buffer: Vec<u8>,
    /// Bytes of the buffer that were given away.
    given: usize,
    /// Bytes of the buffer that hold something.
    filled: usize,
    ended: bool,
    /// Whether a byte order mark may come next.
    first: bool,
}

impl LineReader {
    /// Reads `source`, whose first line has the number `before + 1`. A line has at most `limit`
    /// bytes. The first file of an input may begin with a byte order mark.
    ///
    /// # Errors
    /// The store's.
    pub async fn open(source: &Source, before: u64, limit: usize) -> Result<Self> {
        Ok(Self {
            bytes: source.open().await?,
            name: source.name().to_owned(),
            limit,
            number: before,
            before,
            buffer: Vec::new(),
            given: 0,
            filled: 0,
            ended: false,
            first: before == 0,
        })
    }

    /// Lines of this file and of the files before, so far.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// The next line with a record; `None` after the last one.
    ///
    /// # Errors
    /// [`Error::LineTooLong`], the store's, [`Error::InvalidArgument`] for damaged compression.
    pub async fn next(&mut self) -> Result<Option<Line<'_>>> {
        let (start, end) = loop {
            let Some((start, end)) = self.range().await? else {
                return Ok(None);
            };
            let line = &self.buffer[start..end];
            let blank = line.iter().position(|byte| !byte.is_ascii_whitespace());
            if blank.is_some_and(|at| !line[at..].starts_with(b"//")) {
                break (start, end);
            }
        };
        Ok(Some(match std::str::from_utf8(&self.buffer[start..end]) {
            Ok(text) => Line::Text(self.number, text),
            Err(error) => Line::NotUtf8(self.number, error.valid_up_to()),
        }))
    }

    /// Where in the buffer the next line stands.
    async fn range(&mut self) -> Result<Option<(usize, usize)>> {
        let mut searched = 0;
        loop {
            let held = &self.buffer[self.given..self.filled];
            let found = memchr(b'\n', &held[searched..]).map(|at| searched + at);
            let (content, taken) = match found {
                Some(at) => (at, at + 1),
                None if self.ended && held.is_empty() => return Ok(None),
                None if self.ended => (held.len(), held.len()),
                None => {
                    searched = held.len();
                    if searched >= self.most() {
                        return Err(self.too_long());
                    }
                    self.fill().await?;
                    continue;
                }
            };
            let mut start = self.given;
            let mut end = start + content;
            self.given += taken;
            self.number += 1;
            if self.first {
                self.first = false;
                if self.buffer[start..end].starts_with(b"\xEF\xBB\xBF") {
                    start += 3;
                }
            }
            if found.is_some() && self.buffer[start..end].ends_with(b"\r") {
                end -= 1;
            }
            if end - start > self.limit {
                self.number -= 1;
                return Err(self.too_long());
            }
            return Ok(Some((start, end)));
        }
    }

    /// Bytes of the longest line with a byte order mark and its end.
    fn most(&self) -> usize {
        self.limit.saturating_add(5)
    }

    fn too_long(&self) -> Error {
        let line = self.number + 1;
        Error::LineTooLong {
            place: format!("line {} of {:?}", line - self.before, self.name),
            line,
            limit: self.limit as u64,
        }
    }

    /// Reads more behind what is held. The buffer ends soon after the longest line.
    async fn fill(&mut self) -> Result<()> {
        if self.given > 0 {
            self.buffer.copy_within(self.given..self.filled, 0);
            self.filled -= self.given;
            self.given = 0;
        }
        if self.filled == self.buffer.len() {
            let most = self.most().max(READ_BYTES);
            let size = (self.buffer.len() * 2).clamp(READ_BYTES, most);
            self.buffer.resize(size.max(self.filled + 1), 0);
        }
        let read = self.bytes.read(&mut self.buffer[self.filled..]).await;
        let read = read.map_err(|error| Source::failed(&self.name, error))?;
        self.filled += read;
        self.ended = read == 0;
        Ok(())
    }
}
