//! The inverted index of one text column of one fragment.

use std::collections::HashMap;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use bytes::Bytes;
use tantivy::TantivyError;
use tantivy::directory::OwnedBytes;
use tantivy::fieldnorm::FieldNormReader;
use tantivy::index::{Index, IndexMeta, InvertedIndexReader, SegmentReader};
use tantivy::schema::{Field, Schema};

use super::ARTIFACT;
use super::analyser::Analyser;
use super::builder::{SegmentBuilder, UNBUILT};
use super::container::{self, FILES, Header, SECTIONS};
use super::directory::{ObjectDirectory, file, schema, segment_id};
use super::guard::{self, unreadable};
use crate::{Error, Result};

/// What an object must be.
#[derive(Debug, Clone, Copy)]
pub struct Expected<'a> {
    /// Rows of the fragment.
    pub rows: u32,
    /// The analyser of the column.
    pub analyser: &'a Analyser,
    /// SHA-256 of the fragment.
    pub fragment: [u8; 32],
}

/// An index that is open: checked as a whole and read in place.
pub struct TextSegment {
    key: String,
    header: Header,
    bytes: usize,
    index: Arc<InvertedIndexReader>,
    fieldnorms: FieldNormReader,
    counts: OwnedBytes,
    field: Field,
}

impl fmt::Debug for TextSegment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TextSegment")
            .field("key", &self.key)
            .field("header", &self.header)
            .field("bytes", &self.bytes)
            .finish_non_exhaustive()
    }
}

impl TextSegment {
    /// Opens the object `key`. Its bytes are not copied if nothing else holds them.
    ///
    /// # Errors
    /// `Corrupt` when a byte is not what was written or the object belongs to another fragment, row
    /// count or analyser; `IncompatibleFormat` when a newer build wrote it.
    pub fn open(bytes: Bytes, key: &str, expected: Expected<'_>) -> Result<Self> {
        let (header, ranges) = container::decode(&bytes, key)?;
        belongs(&header, key, expected)?;
        let object = OwnedBytes::new(Vec::<u8>::from(bytes));
        let size = object.len();
        let mut sections = ranges.map(|range| object.slice(range));
        let counts = std::mem::replace(&mut sections[FILES], OwnedBytes::empty());
        check_counts(&counts, &header, key)?;
        guard::read(key, || {
            let unreadable = |error: TantivyError| unreadable(key, error);
            let (schema, field) = schema();
            let reader = open_reader(&sections, &schema, header.rows, key)?;
            let index = reader.inverted_index(field).map_err(unreadable)?;
            let norms = reader.fieldnorms_readers().get_field(field);
            let norms = norms.map_err(unreadable)?;
            let norms = norms.unwrap_or_else(|| FieldNormReader::constant(header.rows, 0));
            let found = (norms.num_docs(), index.total_num_tokens());
            if found != (header.rows, header.tokens) {
                let expected = format!("{} rows, {} tokens", header.rows, header.tokens);
                let found = format!("{} rows, {} tokens", found.0, found.1);
                return Err(Error::corrupt(ARTIFACT, key, expected, found));
            }
            Ok(Self {
                key: key.to_owned(),
                header,
                bytes: size,
                index,
                fieldnorms: norms,
                counts,
                field,
            })
        })
    }

    /// Indexes rows that have no object, to be searched beside those that have.
    ///
    /// # Errors
    /// `ResourceLimitExceeded` when more than `memory` bytes are needed.
    pub fn from_texts<'a>(
        texts: impl IntoIterator<Item = Option<&'a str>>,
        analyser: &Analyser,
        memory: usize,
    ) -> Result<Self> {
        let fragment = [0; 32];
        let mut builder = SegmentBuilder::new(analyser, memory)?;
        for text in texts {
            builder.add(text)?;
        }
        let rows = builder.rows();
        let expected = Expected {
            rows,
            analyser,
            fragment,
        };
        Self::open(builder.finish(fragment)?.into(), UNBUILT, expected)
    }

    /// Number of rows, and of documents.
    pub fn rows(&self) -> u32 {
        self.header.rows
    }

    /// Documents with at least one term.
    pub fn documents(&self) -> u32 {
        self.header.documents
    }

    /// Tokens of all documents.
    pub fn tokens(&self) -> u64 {
        self.header.tokens
    }

    /// Name of the analyser.
    pub fn analyser(&self) -> &str {
        &self.header.analyser
    }

    /// Bytes held.
    pub fn bytes(&self) -> usize {
        self.bytes + size_of::<Self>()
    }

    pub(super) fn key(&self) -> &str {
        &self.key
    }

    pub(super) fn index(&self) -> &InvertedIndexReader {
        &self.index
    }

    pub(super) fn fieldnorms(&self) -> &FieldNormReader {
        &self.fieldnorms
    }

    pub(super) fn field(&self) -> Field {
        self.field
    }

    /// Exact number of tokens of a document.
    pub(super) fn count(&self, position: u32) -> u32 {
        count(&self.counts, position)
    }
}

fn count(counts: &[u8], position: u32) -> u32 {
    let at = position as usize * size_of::<u32>();
    let bytes = counts.get(at..).and_then(|rest| rest.first_chunk());
    bytes.map_or(0, |bytes| u32::from_le_bytes(*bytes))
}

fn belongs(header: &Header, key: &str, expected: Expected<'_>) -> Result<()> {
    let Expected {
        rows,
        analyser,
        fragment,
    } = expected;
    if header.rows != rows {
        let expected = format!("{rows} rows");
        return Err(Error::corrupt(ARTIFACT, key, expected, header.rows));
    }
    if header.analyser != analyser.name() {
        let expected = format!("analyser {}", analyser.name());
        return Err(Error::corrupt(ARTIFACT, key, expected, &header.analyser));
    }
    if header.fragment != fragment {
        let expected = format!("fragment {}", hex::encode(fragment));
        let found = hex::encode(header.fragment);
        return Err(Error::corrupt(ARTIFACT, key, expected, found));
    }
    Ok(())
}

fn check_counts(counts: &[u8], header: &Header, key: &str) -> Result<()> {
    let rows = (0..header.rows).map(|row| count(counts, row));
    let whole = counts.len() as u64 == u64::from(header.rows) * size_of::<u32>() as u64;
    if whole {
        let (documents, tokens) = rows.fold((0, 0), |(documents, tokens), count| {
            (documents + u32::from(count > 0), tokens + u64::from(count))
        });
        if (documents, tokens) == (header.documents, header.tokens) {
            return Ok(());
        }
    }
    let expected = format!("counts of {} tokens in {} rows", header.tokens, header.rows);
    let found = format!("{} bytes that hold others", counts.len());
    Err(Error::corrupt(ARTIFACT, key, expected, found))
}

/// tantivy's reader over the files of an object.
fn open_reader(
    sections: &[OwnedBytes],
    schema: &Schema,
    rows: u32,
    key: &str,
) -> Result<SegmentReader> {
    let mut files = HashMap::new();
    for (extension, section) in SECTIONS.iter().zip(sections).take(FILES) {
        files.insert(file(extension), section.clone());
    }
    let meta = IndexMeta::with_schema(schema.clone());
    let meta = serde_json::to_vec(&meta).map_err(|e| unreadable(key, e))?;
    files.insert(PathBuf::from("meta.json"), OwnedBytes::new(meta));
    let index = Index::open(ObjectDirectory::new(files)).map_err(|e| unreadable(key, e))?;
    let segment = index.segment(index.new_segment_meta(segment_id(key)?, rows));
    SegmentReader::open(&segment).map_err(|e| unreadable(key, e))
}
