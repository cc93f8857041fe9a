//! Sections of an object and their table.

use bytes::Bytes;

use super::header::{HEADER, Header};
use super::{Checked, Damage, ensure};

/// To which sections are aligned.
const ALIGNMENT: usize = 64;
/// Bytes of an entry of the table: offset, length, CRC32C, zero.
const ENTRY: usize = 24;
/// Sections at most: two of the lowest layer of a graph, three of each of the 15 above it.
const MAX_SECTIONS: usize = 47;

/// Collects sections.
#[derive(Default)]
pub(super) struct Writer {
    sections: Vec<Vec<u8>>,
}

impl Writer {
    pub(super) fn words(&mut self, words: &[u32]) {
        self.sections
            .push(words.iter().flat_map(|word| word.to_le_bytes()).collect());
    }

    pub(super) fn floats(&mut self, floats: &[f32]) {
        self.sections.push(
            floats
                .iter()
                .flat_map(|float| float.to_le_bytes())
                .collect(),
        );
    }

    pub(super) fn bytes(&mut self, bytes: &[u8]) {
        self.sections.push(bytes.to_vec());
    }

    /// The object.
    pub(super) fn finish(self, header: &Header) -> Vec<u8> {
        let mut table = Vec::new();
        let mut end = body(self.sections.len());
        for section in &self.sections {
            table.extend_from_slice(&(end as u64).to_le_bytes());
            table.extend_from_slice(&(section.len() as u64).to_le_bytes());
            table.extend_from_slice(&crc32c::crc32c(section).to_le_bytes());
            table.extend_from_slice(&[0; 4]);
            end = (end + section.len()).next_multiple_of(ALIGNMENT);
        }
        let mut out = Vec::with_capacity(end);
        out.extend(header.encode(self.sections.len() as u32, end as u64));
        out.extend(table);
        let check = crc32c::crc32c(&out);
        out.extend_from_slice(&check.to_le_bytes());
        for section in self.sections {
            out.resize(out.len().next_multiple_of(ALIGNMENT), 0);
            out.extend(section);
        }
        out.resize(end, 0);
        out
    }
}

/// Where the first of `count` sections begins.
fn body(count: usize) -> usize {
    (HEADER + count * ENTRY + size_of::<u32>()).next_multiple_of(ALIGNMENT)
}

/// Gives the sections of an object in their order.
pub(super) struct Reader {
    sections: std::vec::IntoIter<Bytes>,
}

impl Reader {
    /// Checks header, table and sections.
    pub(super) fn open(bytes: Bytes) -> Checked<(Header, Self)> {
        let whole = "a whole header";
        let first = bytes.first_chunk::<HEADER>();
        let first = first.ok_or_else(|| Damage(whole, format!("{} bytes", bytes.len())))?;
        let (header, count, length) = Header::decode(first)?;
        let count = count as usize;
        ensure(count <= MAX_SECTIONS, "at most 47 sections", count)?;
        ensure(
            length == bytes.len() as u64,
            "as many bytes as it says",
            bytes.len(),
        )?;
        let start = body(count);
        ensure(start <= bytes.len(), whole, bytes.len())?;
        let end = HEADER + count * ENTRY;
        let check = word(&bytes[end..]);
        ensure(
            check == crc32c::crc32c(&bytes[..end]),
            "the CRC32C of its header",
            check,
        )?;
        zeros(&bytes[end + size_of::<u32>()..start])?;
        let mut sections = Vec::with_capacity(count);
        let mut next = start;
        for entry in bytes[HEADER..end].chunks_exact(ENTRY) {
            let (offset, length, check) = (long(entry), long(&entry[8..]), word(&entry[16..]));
            ensure(
                offset == next as u64,
                "sections one after the other",
                offset,
            )?;
            let rest = (bytes.len() - next) as u64;
            ensure(length <= rest, "sections within the object", length)?;
            let end = next + length as usize;
            let section = bytes.slice(next..end);
            let found = crc32c::crc32c(&section);
            ensure(found == check, "the CRC32C of a section", found)?;
            next = end.next_multiple_of(ALIGNMENT);
            ensure(next <= bytes.len(), "whole sections", bytes.len())?;
            zeros(&bytes[end..next])?;
            sections.push(section);
        }
        ensure(
            next == bytes.len(),
            "nothing after its sections",
            bytes.len(),
        )?;
        let sections = sections.into_iter();
        Ok((header, Self { sections }))
    }

    pub(super) fn bytes(&mut self) -> Checked<Bytes> {
        let next = self.sections.next();
        next.ok_or_else(|| Damage("another section", "none".to_owned()))
    }

    pub(super) fn words(&mut self) -> Checked<Vec<u32>> {
        self.decode(u32::from_le_bytes)
    }

    pub(super) fn floats(&mut self) -> Checked<Vec<f32>> {
        self.decode(f32::from_le_bytes)
    }

    fn decode<T>(&mut self, number: impl Fn([u8; 4]) -> T) -> Checked<Vec<T>> {
        let section = self.bytes()?;
        let (words, rest) = section.as_chunks::<4>();
        ensure(rest.is_empty(), "whole numbers of 4 bytes", section.len())?;
        Ok(words.iter().map(|word| number(*word)).collect())
    }

    /// Fails if a section is left.
    pub(super) fn end(mut self) -> Checked<()> {
        ensure(
            self.sections.next().is_none(),
            "no more sections",
            "another",
        )
    }
}

fn word(bytes: &[u8]) -> u32 {
    bytes
        .first_chunk()
        .map_or(0, |word| u32::from_le_bytes(*word))
}

fn long(bytes: &[u8]) -> u64 {
    bytes
        .first_chunk()
        .map_or(0, |word| u64::from_le_bytes(*word))
}

fn zeros(bytes: &[u8]) -> Checked<()> {
    ensure(
        bytes.iter().all(|byte| *byte == 0),
        "zeros between sections",
        "another byte",
    )
}
