//! Ranged reads of data objects that check every block they return.
//!
//! A manifest entry carries the CRC32C of each 64 KiB block. A read is rounded out to whole blocks,
//! checked, and cut: altered, short and exchanged objects are typed errors, never wrong bytes.

use std::ops::Range;
use std::sync::Arc;

use base64::{Engine, engine::general_purpose::STANDARD};
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use tokio::sync::OnceCell;

use super::{ObjRef, Stager, Store};
use crate::digest::Running;
use crate::{Error, Result, limits};

/// Block checksums: little-endian u32s, inline as base64 or in an object of their own.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum BlockSums {
    /// At most [`limits::INLINE_BLOCKS`] blocks.
    Inline(String),
    /// More blocks.
    Object(ObjRef),
}

/// A data object with what a verifying reader needs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DataFile {
    /// The object.
    pub object: ObjRef,
    /// Bytes from the Parquet page index to the end of the file, footer included: what a reader fetches
    /// first; 0 if it is not Parquet.
    pub footer: u64,
    /// CRC32C of each block.
    pub blocks: BlockSums,
}

/// Digest and block checksums of bytes that arrive in pieces.
#[derive(Default, Clone)]
pub struct FileSums {
    running: Running,
    size: u64,
    sums: Vec<u32>,
    open: u32,
}

impl FileSums {
    /// Adds the next bytes.
    pub fn update(&mut self, mut bytes: &[u8]) {
        self.running.update(bytes);
        while !bytes.is_empty() {
            let room = (limits::BLOCK_BYTES - self.size % limits::BLOCK_BYTES) as usize;
            let (now, later) = bytes.split_at(room.min(bytes.len()));
            self.open = crc32c::crc32c_append(self.open, now);
            self.size += now.len() as u64;
            if self.size.is_multiple_of(limits::BLOCK_BYTES) {
                self.sums.push(std::mem::take(&mut self.open));
            }
            bytes = later;
        }
    }

    /// Bytes seen.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// The reference to the finished object at `key`; checksums of many blocks become an object.
    pub fn finish(mut self, key: String, footer: u64, stage: &mut Stager) -> Result<DataFile> {
        if !self.size.is_multiple_of(limits::BLOCK_BYTES) {
            self.sums.push(self.open);
        }
        let bytes: Vec<u8> = self.sums.iter().flat_map(|sum| sum.to_le_bytes()).collect();
        let blocks = if self.sums.len() <= limits::INLINE_BLOCKS {
            BlockSums::Inline(STANDARD.encode(bytes))
        } else {
            BlockSums::Object(stage.add("crc", bytes)?)
        };
        let object = ObjRef {
            key,
            size: self.size,
            sha256: self.running.finish(),
        };
        Ok(DataFile {
            object,
            footer,
            blocks,
        })
    }
}

impl DataFile {
    /// Objects that this file consists of.
    pub fn objects(&self) -> impl Iterator<Item = &ObjRef> {
        let sums = match &self.blocks {
            BlockSums::Inline(_) => None,
            BlockSums::Object(object) => Some(object),
        };
        std::iter::once(&self.object).chain(sums)
    }

    fn decode_sums(&self, bytes: &[u8]) -> Result<Arc<[u32]>> {
        let blocks = self.object.size.div_ceil(limits::BLOCK_BYTES);
        if bytes.len() as u64 != blocks * 4 {
            let found = format!("{} bytes", bytes.len());
            return Err(Error::corrupt(
                "block checksums",
                &self.object.key,
                format!("{blocks} checksums"),
                found,
            ));
        }
        let word = |c: &[u8]| c.try_into().map(u32::from_le_bytes).unwrap_or_default();
        Ok(bytes.chunks_exact(4).map(word).collect())
    }
}

/// A data object opened for verified reads. Small objects are read whole, once.
#[derive(Debug, Clone)]
pub struct VerifiedFile {
    store: Arc<Store>,
    file: Arc<DataFile>,
    sums: Arc<OnceCell<Arc<[u32]>>>,
}

impl VerifiedFile {
    /// Opens without any store call.
    pub fn new(store: Arc<Store>, file: Arc<DataFile>) -> Self {
        Self {
            store,
            file,
            sums: Arc::default(),
        }
    }

    /// The entry behind it.
    pub fn file(&self) -> &Arc<DataFile> {
        &self.file
    }

    /// The store it reads.
    pub fn store(&self) -> &Arc<Store> {
        &self.store
    }

    async fn sums(&self) -> Result<Arc<[u32]>> {
        let load = || async {
            match &self.file.blocks {
                BlockSums::Inline(text) => {
                    let bytes = STANDARD.decode(text).map_err(|e| {
                        Error::corrupt("block checksums", &self.file.object.key, "base64", e)
                    })?;
                    self.file.decode_sums(&bytes)
                }
                BlockSums::Object(object) => self
                    .file
                    .decode_sums(&self.store.get("block checksums", object).await?),
            }
        };
        self.sums.get_or_try_init(load).await.cloned()
    }

    /// Whether reads fetch the whole object.
    pub fn is_small(&self) -> bool {
        self.file.object.size < limits::WHOLE_READ_BYTES
    }

    /// Bytes of `range`, checked.
    pub async fn read(&self, range: Range<u64>) -> Result<Bytes> {
        let mut parts = self.read_many(vec![range]).await?;
        Ok(parts.pop().unwrap_or_default())
    }

    /// Many ranges in one step; neighbours less than a block apart share a request.
    pub async fn read_many(&self, ranges: Vec<Range<u64>>) -> Result<Vec<Bytes>> {
        let object = &self.file.object;
        let outside = |r: &&Range<u64>| r.start > r.end || r.end > object.size;
        if let Some(range) = ranges.iter().find(outside) {
            let found = format!("a read of bytes {}..{}", range.start, range.end);
            let expected = format!("{} bytes", object.size);
            return Err(Error::corrupt("fragment", &object.key, expected, found));
        }
        if self.is_small() && ranges.iter().any(|r| !r.is_empty()) {
            let whole = self.whole().await?;
            let cut = |r: &Range<u64>| whole.slice(r.start as usize..r.end as usize);
            return Ok(ranges.iter().map(cut).collect());
        }
        let spans = block_spans(&ranges, object.size);
        if spans.is_empty() {
            return Ok(vec![Bytes::new(); ranges.len()]);
        }
        let (parts, sums) =
            futures::try_join!(self.store.get_ranges(&object.key, &spans), self.sums())?;
        for (span, bytes) in spans.iter().zip(&parts) {
            self.check(bytes, span.clone(), &sums)?;
        }
        let cut = |range: &Range<u64>| {
            if range.is_empty() {
                return Bytes::new();
            }
            let i = spans.partition_point(|span| span.end < range.end);
            let (start, bytes) = (spans[i].start, &parts[i]);
            bytes.slice((range.start - start) as usize..(range.end - start) as usize)
        };
        Ok(ranges.iter().map(cut).collect())
    }

    async fn whole(&self) -> Result<Bytes> {
        let object = &self.file.object;
        if let Some(bytes) = self.store.cache().bytes(&object.key)
            && bytes.len() as u64 == object.size
        {
            return Ok(bytes);
        }
        let whole = 0..object.size;
        let ranges = std::slice::from_ref(&whole);
        let (parts, sums) =
            futures::try_join!(self.store.get_ranges(&object.key, ranges), self.sums())?;
        let bytes = parts.into_iter().next().unwrap_or_default();
        self.check(&bytes, whole.clone(), &sums)?;
        self.store.cache().put_bytes(&object.key, bytes.clone());
        Ok(bytes)
    }

    fn check(&self, bytes: &[u8], range: Range<u64>, sums: &[u32]) -> Result<()> {
        let key = &self.file.object.key;
        if bytes.len() as u64 != range.end - range.start {
            let expected = format!("{} bytes", range.end - range.start);
            return Err(Error::corrupt(
                "fragment",
                key,
                expected,
                format!("{} bytes", bytes.len()),
            ));
        }
        let first = (range.start / limits::BLOCK_BYTES) as usize;
        for (i, block) in bytes.chunks(limits::BLOCK_BYTES as usize).enumerate() {
            let (expected, found) = (sums.get(first + i).copied(), crc32c::crc32c(block));
            if expected != Some(found) {
                let expected = format!(
                    "CRC32C {:08x} in block {}",
                    expected.unwrap_or(0),
                    first + i
                );
                return Err(Error::corrupt(
                    "fragment",
                    key,
                    expected,
                    format!("{found:08x}"),
                ));
            }
        }
        Ok(())
    }
}

/// The whole blocks that cover `ranges`, ascending, with gaps of more than a block between them.
fn block_spans(ranges: &[Range<u64>], size: u64) -> Vec<Range<u64>> {
    let mut sorted: Vec<&Range<u64>> = ranges.iter().filter(|r| !r.is_empty()).collect();
    sorted.sort_by_key(|r| r.start);
    let mut spans: Vec<Range<u64>> = Vec::with_capacity(sorted.len());
    for range in sorted {
        let start = range.start / limits::BLOCK_BYTES * limits::BLOCK_BYTES;
        let end = range
            .end
            .div_ceil(limits::BLOCK_BYTES)
            .saturating_mul(limits::BLOCK_BYTES)
            .min(size);
        match spans.last_mut() {
            Some(span) if start <= span.end.saturating_add(limits::BLOCK_BYTES) => {
                span.end = span.end.max(end);
            }
            _ => spans.push(start..end),
        }
    }
    spans
}
