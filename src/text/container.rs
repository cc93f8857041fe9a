//! The bytes of a text segment.
//!
//! All numbers are little-endian.
//!
//! | bytes | what |
//! |---|---|
//! | 8 | magic `SGTEXT\r\n` |
//! | 4 | format, u32 |
//! | 4 | length of the header, u32 |
//! | 4 | CRC32C of the bytes before and of the header |
//! | header | rows u32, documents with terms u32, tokens u64, digest of the fragment 32 bytes, length u32 and bytes of the analyser's name, number of sections u32, then of each section: length u32 and bytes of its name, offset u64 in the object, length u64, CRC32C u32 |
//! | sections | one after the other, to the end of the object |
//!
//! The sections are the files of one tantivy segment by their extensions and `tokens`, the number of
//! tokens of every document as u32.

use std::ops::Range;

use super::ARTIFACT;
use crate::{Error, Result};

const MAGIC: [u8; 8] = *b"SGTEXT\r\n";
const FORMAT: u32 = 1;
const PREFIX: usize = 20;
/// No header of this format is longer.
const MAX_HEADER: usize = 4096;
/// Every object has these sections in this order.
pub(super) const SECTIONS: [&str; 7] =
    ["term", "idx", "pos", "fieldnorm", "fast", "store", "tokens"];
/// The sections that are tantivy's files; the last one is ours.
pub(super) const FILES: usize = SECTIONS.len() - 1;

/// What a segment says of itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Header {
    pub(super) rows: u32,
    /// Documents with at least one term.
    pub(super) documents: u32,
    pub(super) tokens: u64,
    pub(super) fragment: [u8; 32],
    pub(super) analyser: String,
}

/// An object of these sections, in the order of [`SECTIONS`].
pub(super) fn encode(header: &Header, sections: &[&[u8]; SECTIONS.len()]) -> Vec<u8> {
    let names: usize = SECTIONS.iter().map(|name| name.len() + 24).sum();
    let header_len = 4 + 4 + 8 + 32 + 4 + header.analyser.len() + 4 + names;
    let body: usize = sections.iter().map(|section| section.len()).sum();
    let mut out = Vec::with_capacity(PREFIX + header_len + body);
    out.extend_from_slice(&MAGIC);
    put_u32(&mut out, FORMAT);
    put_u32(&mut out, header_len as u32);
    put_u32(&mut out, 0);
    put_u32(&mut out, header.rows);
    put_u32(&mut out, header.documents);
    put_u64(&mut out, header.tokens);
    out.extend_from_slice(&header.fragment);
    put_name(&mut out, &header.analyser);
    put_u32(&mut out, SECTIONS.len() as u32);
    let mut offset = PREFIX + header_len;
    for (name, section) in SECTIONS.iter().zip(sections) {
        put_name(&mut out, name);
        put_u64(&mut out, offset as u64);
        put_u64(&mut out, section.len() as u64);
        put_u32(&mut out, crc32c::crc32c(section));
        offset += section.len();
    }
    let crc = header_crc(&out[..PREFIX - 4], &out[PREFIX..]);
    out[PREFIX - 4..PREFIX].copy_from_slice(&crc.to_le_bytes());
    for section in sections {
        out.extend_from_slice(section);
    }
    out
}

fn header_crc(prefix: &[u8], header: &[u8]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(prefix), header)
}

fn put_u32(out: &mut Vec<u8>, value: u32) {
    out.extend_from_slice(&value.to_le_bytes());
}

fn put_u64(out: &mut Vec<u8>, value: u64) {
    out.extend_from_slice(&value.to_le_bytes());
}

fn put_name(out: &mut Vec<u8>, name: &str) {
    put_u32(out, name.len() as u32);
    out.extend_from_slice(name.as_bytes());
}

/// Where each of [`SECTIONS`] lies.
pub(super) type Ranges = [Range<usize>; SECTIONS.len()];

/// Reads the header and checks every byte of the object against its checksums.
///
/// # Errors
/// `Corrupt`, or `IncompatibleFormat` for one that a newer build wrote.
pub(super) fn decode(bytes: &[u8], key: &str) -> Result<(Header, Ranges)> {
    let mut prefix = Cursor { bytes, at: 0, key };
    if prefix.take(MAGIC.len())? != MAGIC {
        return Err(Error::corrupt(
            ARTIFACT,
            key,
            "a text segment",
            "other bytes",
        ));
    }
    let format = prefix.u32()?;
    let header_len = prefix.u32()? as usize;
    let crc = prefix.u32()?;
    if header_len > MAX_HEADER {
        return Err(Error::corrupt(ARTIFACT, key, "a short header", header_len));
    }
    let bytes_of_header = prefix.take(header_len)?;
    let found = header_crc(&bytes[..PREFIX - 4], bytes_of_header);
    if found != crc {
        return Err(mismatch(key, "header", crc, found));
    }
    if format != FORMAT {
        return Err(Error::IncompatibleFormat {
            path: key.to_owned(),
            found: u64::from(format),
            supported: u64::from(FORMAT),
        });
    }
    let mut cursor = Cursor {
        bytes: bytes_of_header,
        at: 0,
        key,
    };
    let header = cursor.header()?;
    let ranges = cursor.sections(bytes, PREFIX + header_len)?;
    Ok((header, ranges))
}

fn mismatch(key: &str, what: &str, expected: u32, found: u32) -> Error {
    let expected = format!("CRC32C {expected:08x} of {what}");
    Error::corrupt(ARTIFACT, key, expected, format!("{found:08x}"))
}

struct Cursor<'a> {
    bytes: &'a [u8],
    at: usize,
    key: &'a str,
}

impl<'a> Cursor<'a> {
    fn take(&mut self, len: usize) -> Result<&'a [u8]> {
        let end = self.at.checked_add(len);
        let taken = end.and_then(|end| self.bytes.get(self.at..end));
        let taken = taken.ok_or_else(|| {
            let expected = format!("{len} bytes at {}", self.at);
            Error::corrupt(ARTIFACT, self.key, expected, self.bytes.len())
        })?;
        self.at += len;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N]> {
        let mut array = [0; N];
        array.copy_from_slice(self.take(N)?);
        Ok(array)
    }

    fn u32(&mut self) -> Result<u32> {
        Ok(u32::from_le_bytes(self.array()?))
    }

    fn u64(&mut self) -> Result<u64> {
        Ok(u64::from_le_bytes(self.array()?))
    }

    fn name(&mut self) -> Result<&'a str> {
        let len = self.u32()? as usize;
        let name = std::str::from_utf8(self.take(len)?);
        name.map_err(|e| Error::corrupt(ARTIFACT, self.key, "a name in UTF-8", e))
    }

    fn header(&mut self) -> Result<Header> {
        Ok(Header {
            rows: self.u32()?,
            documents: self.u32()?,
            tokens: self.u64()?,
            fragment: self.array()?,
            analyser: self.name()?.to_owned(),
        })
    }

    /// The table of sections, to the end of the header; the sections fill the object from `start` on.
    fn sections(&mut self, object: &[u8], start: usize) -> Result<Ranges> {
        let count = self.u32()?;
        if count as usize != SECTIONS.len() {
            return Err(Error::corrupt(ARTIFACT, self.key, SECTIONS.len(), count));
        }
        let mut ranges: Ranges = std::array::from_fn(|_| 0..0);
        let mut next = start;
        for (range, expected) in ranges.iter_mut().zip(SECTIONS) {
            let name = self.name()?;
            let (offset, len, crc) = (self.u64()?, self.u64()?, self.u32()?);
            let end = usize::try_from(len)
                .ok()
                .and_then(|len| next.checked_add(len));
            let section = end.and_then(|end| object.get(next..end));
            let Some(section) = section.filter(|_| name == expected && offset == next as u64)
            else {
                let expected = format!("section {expected:?} at {next}");
                let found = format!("{name:?} at {offset}, {len} bytes");
                return Err(Error::corrupt(ARTIFACT, self.key, expected, found));
            };
            let found = crc32c::crc32c(section);
            if found != crc {
                return Err(mismatch(self.key, name, crc, found));
            }
            *range = next..next + section.len();
            next = range.end;
        }
        if self.at != self.bytes.len() || next != object.len() {
            let found = format!("{} of {} bytes used", next, object.len());
            return Err(Error::corrupt(ARTIFACT, self.key, "nothing more", found));
        }
        Ok(ranges)
    }
}
