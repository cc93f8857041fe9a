//! What a refresh compares: one digest per row of the columns that its text comes from.

use arrow::array::{ArrayRef, FixedSizeBinaryArray};

use super::cells::{Cells, common_rows};
use crate::Result;
use crate::digest::Running;

/// Bytes of a content hash.
pub const CONTENT_HASH_BYTES: i32 = 32;

const DOMAIN: &[u8] = b"stratagraph.content_hash.v1";

/// SHA-256 per row over the domain `stratagraph.content_hash.v1` and then, for each column in order,
/// one tag byte (`s` string, `b` binary, `n` NULL), the length as u64 little-endian, and the bytes.
///
/// NULL has the length 0 and no bytes, so it differs from "". The layout of an array does not count:
/// a dictionary, a view or a large array of equal values has equal hashes. Columns are strings or
/// binary of one length; others come from [`super::render`].
pub fn content_hash(columns: &[ArrayRef]) -> Result<FixedSizeBinaryArray> {
    let rows = common_rows("content_hash", columns)?;
    let columns = columns
        .iter()
        .map(|column| {
            let cells = Cells::new("content_hash", column)?;
            Ok((if cells.is_text() { b's' } else { b'b' }, cells))
        })
        .collect::<Result<Vec<(u8, Cells)>>>()?;
    let mut seed = Running::default();
    seed.update(DOMAIN);
    let mut out = Vec::with_capacity(rows * 32);
    for row in 0..rows {
        let mut hash = seed.clone();
        for (tag, cells) in &columns {
            match cells.bytes(row) {
                Some(bytes) => {
                    hash.update(&frame(*tag, bytes.len()));
                    hash.update(bytes);
                }
                None => hash.update(&frame(b'n', 0)),
            }
        }
        out.extend_from_slice(hash.finish().as_bytes());
    }
    let array = FixedSizeBinaryArray::try_new(CONTENT_HASH_BYTES, out.into(), None)?;
    Ok(array)
}

fn frame(tag: u8, length: usize) -> [u8; 9] {
    let mut frame = [tag; 9];
    frame[1..].copy_from_slice(&(length as u64).to_le_bytes());
    frame
}
