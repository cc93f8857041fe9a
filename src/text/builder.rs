//! Building the index of one text column of one fragment.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use tantivy::directory::{Directory, RamDirectory};
use tantivy::index::{Index, IndexSettings};
use tantivy::indexer::{AddOperation, SegmentWriter};
use tantivy::schema::Field;
use tantivy::store::Compressor;
use tantivy::tokenizer::{BoxTokenStream, TextAnalyzer, Token, TokenStream, Tokenizer};
use tantivy::{TantivyDocument, TantivyError};

use super::analyser::{Analyser, compose};
use super::container::{self, FILES, Header, SECTIONS};
use super::directory::{FIELD, file, schema, segment_id};
use crate::{Error, Result};

/// The first size of the table of terms follows from this many bytes; it grows as it must.
const TERM_TABLE: usize = 1 << 20;
/// What errors call an index that is no object yet.
pub(super) const UNBUILT: &str = "in memory";

/// Builds a segment from the texts of a fragment in the order of its rows.
///
/// The caller drives it row by row and may stop, report or give way between two rows.
pub struct SegmentBuilder {
    analyser: Analyser,
    writer: SegmentWriter,
    files: RamDirectory,
    field: Field,
    memory: usize,
    /// Counts the tokens of the text that is being added.
    counter: Arc<AtomicU32>,
    counts: Vec<u8>,
    rows: u32,
    documents: u32,
    tokens: u64,
}

impl fmt::Debug for SegmentBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SegmentBuilder")
            .field("analyser", &self.analyser)
            .field("rows", &self.rows)
            .field("tokens", &self.tokens)
            .finish_non_exhaustive()
    }
}

impl SegmentBuilder {
    /// A builder that holds up to `memory` bytes, of which the tables of an empty index take about 1 MiB.
    /// [`finish`](Self::finish) takes twice the bytes of the object on top.
    ///
    /// # Errors
    /// `Source` when tantivy fails.
    pub fn new(analyser: &Analyser, memory: usize) -> Result<Self> {
        let (schema, field) = schema();
        let files = RamDirectory::create();
        let counter = Arc::new(AtomicU32::new(0));
        // Nothing is stored, and no thread is started to compress it.
        let settings = IndexSettings {
            docstore_compression: Compressor::None,
            docstore_compress_dedicated_thread: false,
            ..IndexSettings::default()
        };
        let index = Index::builder().schema(schema).settings(settings);
        let index = index.open_or_create(files.clone()).map_err(building)?;
        let tokenizer = Counting {
            inner: analyser.tantivy(),
            count: Arc::clone(&counter),
        };
        index
            .tokenizers()
            .register(FIELD, TextAnalyzer::from(tokenizer));
        let segment = index.segment(index.new_segment_meta(segment_id(UNBUILT)?, 0));
        let writer = SegmentWriter::for_segment(TERM_TABLE, segment).map_err(building)?;
        Ok(Self {
            analyser: analyser.clone(),
            writer,
            files,
            field,
            memory,
            counter,
            counts: Vec::new(),
            rows: 0,
            documents: 0,
            tokens: 0,
        })
    }

    /// Adds the text of the next row; NULL is a document without terms.
    ///
    /// # Errors
    /// `ResourceLimitExceeded` when more than the builder's memory is needed, and from 2^31 rows.
    pub fn add(&mut self, text: Option<&str>) -> Result<()> {
        let mut document = TantivyDocument::default();
        if let Some(text) = text {
            document.add_text(self.field, compose(text));
        }
        self.counter.store(0, Ordering::Relaxed);
        let opstamp = u64::from(self.rows);
        let operation = AddOperation { opstamp, document };
        self.writer.add_document(operation).map_err(building)?;
        let count = self.counter.load(Ordering::Relaxed);
        self.counts.extend_from_slice(&count.to_le_bytes());
        self.tokens += u64::from(count);
        self.documents += u32::from(count > 0);
        self.rows += 1;
        limit(
            "rows of a text segment",
            self.rows as usize,
            i32::MAX as usize,
        )?;
        limit("memory of a text index build", self.memory(), self.memory)
    }

    /// Bytes that the builder holds.
    pub fn memory(&self) -> usize {
        self.writer.mem_usage() + self.counts.capacity()
    }

    /// Rows added.
    pub fn rows(&self) -> u32 {
        self.rows
    }

    /// The object of a segment that belongs to the fragment of a digest. Equal texts make equal bytes.
    ///
    /// # Errors
    /// `Source` when tantivy fails.
    pub fn finish(self, fragment: [u8; 32]) -> Result<Vec<u8>> {
        self.writer.finalize().map_err(building)?;
        let mut files = Vec::with_capacity(FILES);
        for extension in &SECTIONS[..FILES] {
            let file = self.files.open_read(&file(extension)).map_err(building)?;
            files.push(file.read_bytes().map_err(building)?);
        }
        let sections = std::array::from_fn(|i| match files.get(i) {
            Some(file) => file.as_slice(),
            None => self.counts.as_slice(),
        });
        let header = Header {
            rows: self.rows,
            documents: self.documents,
            tokens: self.tokens,
            fragment,
            analyser: self.analyser.name().to_owned(),
        };
        Ok(container::encode(&header, &sections))
    }
}

fn building(error: impl Into<TantivyError>) -> Error {
    Error::Source {
        source: Box::new(error.into()),
    }
}

fn limit(what: &'static str, value: usize, limit: usize) -> Result<()> {
    if value <= limit {
        return Ok(());
    }
    Err(Error::ResourceLimitExceeded {
        what,
        value: value as u64,
        limit: limit as u64,
    })
}

/// Counts the tokens that go into the index: scores need exact lengths, tantivy keeps rounded ones.
#[derive(Clone)]
struct Counting {
    inner: TextAnalyzer,
    count: Arc<AtomicU32>,
}

struct CountingStream<'a> {
    inner: BoxTokenStream<'a>,
    count: &'a AtomicU32,
}

impl Tokenizer for Counting {
    type TokenStream<'a> = CountingStream<'a>;

    fn token_stream<'a>(&'a mut self, text: &'a str) -> CountingStream<'a> {
        CountingStream {
            inner: self.inner.token_stream(text),
            count: &self.count,
        }
    }
}

impl TokenStream for CountingStream<'_> {
    fn advance(&mut self) -> bool {
        let more = self.inner.advance();
        self.count.fetch_add(u32::from(more), Ordering::Relaxed);
        more
    }

    fn token(&self) -> &Token {
        self.inner.token()
    }

    fn token_mut(&mut self) -> &mut Token {
        self.inner.token_mut()
    }
}
