//! Dead positions of a fragment: Roaring bitmaps in their portable format.

use base64::{Engine, engine::general_purpose::STANDARD};
use roaring::RoaringBitmap;
use serde::{Deserialize, Serialize};

use crate::store::{ObjRef, Stager, Store};
use crate::{Error, Result, limits};

/// Dead positions of one fragment, as a manifest entry holds them.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DeadRows {
    /// Number of dead rows.
    pub rows: u64,
    /// The bitmap as base64, when it is small.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub inline: Option<String>,
    /// Objects of [`limits::BITMAP_OBJECT_ROWS`] positions each: (chunk number, object).
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub chunks: Vec<(u32, ObjRef)>,
}

fn encode(bitmap: &RoaringBitmap) -> Result<Vec<u8>> {
    let mut bytes = Vec::with_capacity(bitmap.serialized_size());
    bitmap
        .serialize_into(&mut bytes)
        .map_err(|e| Error::Source {
            source: Box::new(e),
        })?;
    Ok(bytes)
}

fn decode(bytes: &[u8], key: &str) -> Result<RoaringBitmap> {
    // The reader checks structure and never allocates beyond a small multiple of its input.
    let bitmap = RoaringBitmap::deserialize_from(bytes)
        .map_err(|e| Error::corrupt("deletion bitmap", key, "a Roaring bitmap", e))?;
    if bitmap.serialized_size() != bytes.len() {
        return Err(Error::corrupt(
            "deletion bitmap",
            key,
            "one Roaring bitmap",
            "trailing bytes",
        ));
    }
    Ok(bitmap)
}

impl DeadRows {
    /// Holds a bitmap inline; a manifest page moves the largest out when it gets too large.
    pub fn from_bitmap(bitmap: &RoaringBitmap) -> Result<Self> {
        if bitmap.is_empty() {
            return Ok(Self::default());
        }
        let mut optimised = bitmap.clone();
        optimised.optimize();
        let inline = Some(STANDARD.encode(encode(&optimised)?));
        Ok(Self {
            rows: bitmap.len(),
            inline,
            chunks: Vec::new(),
        })
    }

    /// Bytes of inline text.
    pub fn inline_bytes(&self) -> usize {
        self.inline.as_ref().map_or(0, String::len)
    }

    /// Moves an inline bitmap into objects; equal chunks of an older bitmap are not shared.
    pub fn move_out(&mut self, stage: &mut Stager) -> Result<()> {
        let Some(text) = self.inline.take() else {
            return Ok(());
        };
        let bytes = STANDARD
            .decode(&text)
            .map_err(|e| Error::corrupt("deletion bitmap", "inline", "base64", e))?;
        let bitmap = decode(&bytes, "inline")?;
        let mut chunks: Vec<(u32, RoaringBitmap)> = Vec::new();
        for position in &bitmap {
            let chunk = position / limits::BITMAP_OBJECT_ROWS;
            match chunks.last_mut() {
                Some((last, part)) if *last == chunk => _ = part.insert(position),
                _ => chunks.push((chunk, RoaringBitmap::from_iter([position]))),
            }
        }
        for (chunk, mut part) in chunks {
            part.optimize();
            self.chunks
                .push((chunk, stage.add("roaring", encode(&part)?)?));
        }
        Ok(())
    }

    /// Loads the bitmap; `fragment_rows` bounds every position.
    pub async fn load(&self, store: &Store, fragment_rows: u64) -> Result<RoaringBitmap> {
        let mut bitmap = RoaringBitmap::new();
        if let Some(text) = &self.inline {
            let bytes = STANDARD
                .decode(text)
                .map_err(|e| Error::corrupt("deletion bitmap", "inline", "base64", e))?;
            bitmap = decode(&bytes, "inline")?;
        }
        let loads = self
            .chunks
            .iter()
            .map(|(_, object)| store.get("deletion bitmap", object));
        let parts = futures::future::try_join_all(loads).await?;
        for ((_, object), bytes) in self.chunks.iter().zip(parts) {
            bitmap |= decode(&bytes, &object.key)?;
        }
        let in_range = bitmap
            .max()
            .is_none_or(|max| u64::from(max) < fragment_rows);
        if bitmap.len() != self.rows || !in_range {
            let expected = format!("{} dead of {fragment_rows} rows", self.rows);
            let found = format!("{} dead, last {:?}", bitmap.len(), bitmap.max());
            return Err(Error::corrupt(
                "deletion bitmap",
                "manifest entry",
                expected,
                found,
            ));
        }
        Ok(bitmap)
    }
}
