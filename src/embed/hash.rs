//! The built-in lexical model `hash:<dimensions>`: needs no file and no network, reads any script,
//! and gives the same bits on every machine.
//!
//! Signed feature hashing (Weinberger et al., 2009, "Feature Hashing for Large Scale Multitask
//! Learning") of whole words and of character n-grams inside word marks (as the subwords of
//! Bojanowski et al., 2017, "Enriching Word Vectors with Subword Information"). It finds shared words,
//! stems and misspellings; it knows no synonyms.
//!
//! 1. A text is cut into runs of alphanumeric characters, lowercased. A run ends where a script that
//!    is written without spaces between words (Han, kana, Hangul) begins or ends.
//! 2. A run is one feature of weight 2. In a spaced script every 3 consecutive characters of
//!    `start run end` are one of weight 1; in an unspaced one every character (1) and every two
//!    consecutive characters (2).
//! 3. A text without alphanumeric characters (punctuation, emoji): every character that is not white
//!    space, and every two of them in a row, weight 1.
//! 4. A feature is the 64-bit FNV-1a hash of its kind and its code points, taken as 32-bit units,
//!    finished with the mixer of MurmurHash3. Its upper half selects the component by multiplication
//!    and shift, its lowest bit the sign.
//! 5. Weights are summed as integers. Should all sums cancel to zero, the mixed hash of the features'
//!    sequence sets one component.
//! 6. `component = f32(sum / sqrt(sum of squares))`: integers are exact and IEEE 754 rounds f64
//!    square root, division and the conversion to f32 one way only.

use async_trait::async_trait;
use serde_json::{Map, json};

use super::embedded::check_dimensions;
use super::{
    BatchLimits, Embedded, EmbeddedBuilder, Embedder, ModelDefinition, RejectReason, Role,
    SyncEmbedder,
};
use crate::{Result, limits};

/// The version of the algorithm. Raise it whenever any text may get another vector, also when a new
/// Rust release brings Unicode tables that fail this file's test of them.
pub const HASH_ALGORITHM: u32 = 1;

const RUN_WEIGHT: i64 = 2;
const GRAM_WEIGHT: i64 = 1;
const PAIR_WEIGHT: i64 = 2;

/// Components that one batch may fill: 16 MiB of Float32.
const BATCH_COMPONENTS: usize = 4 * 1024 * 1024;
const BATCH_ROWS: usize = 8_192;

/// The model `hash:<dimensions>`.
#[derive(Debug, Clone)]
pub struct HashEmbedder {
    spec: String,
    dimensions: usize,
    definition: ModelDefinition,
}

impl HashEmbedder {
    /// The model with `dimensions` components, 1 to [`limits::DIMENSIONS`].
    pub fn new(dimensions: usize) -> Result<Self> {
        check_dimensions(dimensions)?;
        let mut parameters = Map::new();
        parameters.insert("max_text_bytes".to_owned(), json!(limits::TEXT_BYTES));
        Ok(Self {
            spec: format!("hash:{dimensions}"),
            dimensions,
            definition: ModelDefinition::new("hash", HASH_ALGORITHM, dimensions, true, parameters)?,
        })
    }
}

#[async_trait]
impl Embedder for HashEmbedder {
    fn spec(&self) -> &str {
        &self.spec
    }

    fn dimensions(&self) -> usize {
        self.dimensions
    }

    fn definition(&self) -> &ModelDefinition {
        &self.definition
    }

    fn limits(&self) -> BatchLimits {
        BatchLimits {
            rows: (BATCH_COMPONENTS / self.dimensions).clamp(1, BATCH_ROWS),
            bytes: limits::TEXT_BYTES,
        }
    }

    fn sync(&self) -> Option<&dyn SyncEmbedder> {
        Some(self)
    }

    async fn embed(&self, role: Role, texts: &[Option<&str>]) -> Result<Embedded> {
        self.embed_now(role, texts)
    }
}

impl SyncEmbedder for HashEmbedder {
    /// Documents and queries are embedded alike.
    fn embed_now(&self, _role: Role, texts: &[Option<&str>]) -> Result<Embedded> {
        let mut out = EmbeddedBuilder::new(&self.spec, self.dimensions, texts.len())?;
        let mut sums = Sums::new(self.dimensions);
        let mut vector = vec![0.0; self.dimensions];
        for text in texts {
            match text.unwrap_or_default() {
                "" => out.reject(RejectReason::Empty),
                text if text.len() > limits::TEXT_BYTES => out.reject(RejectReason::TooLong),
                text => {
                    sums.clear();
                    count(text, &mut sums);
                    if sums.normalise(&mut vector) {
                        out.push(&vector)?;
                    } else {
                        out.reject(RejectReason::ZeroNorm);
                    }
                }
            }
        }
        out.finish()
    }
}

/// FNV-1a over 32-bit units, finished with MurmurHash3's 64-bit mixer.
#[derive(Clone, Copy)]
struct Fnv(u64);

impl Fnv {
    const fn new(kind: u32) -> Self {
        Self(0xCBF2_9CE4_8422_2325).with(kind)
    }

    const fn with(self, unit: u32) -> Self {
        Self((self.0 ^ unit as u64).wrapping_mul(0x0000_0100_0000_01B3))
    }

    fn mixed(self) -> u64 {
        let mut hash = self.0;
        hash = (hash ^ (hash >> 33)).wrapping_mul(0xFF51_AFD7_ED55_8CCD);
        hash = (hash ^ (hash >> 33)).wrapping_mul(0xC4CE_B9FE_1A85_EC53);
        hash ^ (hash >> 33)
    }
}

// The kinds keep features apart that are spelled alike: the word `a` and the character `a`.
const RUN: Fnv = Fnv::new(1);
const GRAM: Fnv = Fnv::new(2);
const SEQUENCE: Fnv = Fnv::new(3);

// Above the last code point, so that no character can look like the edge of a run.
const START: u32 = 0x11_0000;
const END: u32 = 0x11_0001;

/// The integer vector of one text.
///
/// A text of [`limits::TEXT_BYTES`] bytes adds less than 2^27 in all, so no sum and no sum of squares
/// comes near the end of an i64.
struct Sums {
    sums: Vec<i64>,
    /// Every feature so far, in order.
    sequence: Fnv,
    any: bool,
}

impl Sums {
    fn new(dimensions: usize) -> Self {
        Self {
            sums: vec![0; dimensions],
            sequence: SEQUENCE,
            any: false,
        }
    }

    fn clear(&mut self) {
        self.sums.fill(0);
        self.sequence = SEQUENCE;
        self.any = false;
    }

    fn add(&mut self, feature: Fnv, weight: i64) {
        let hash = feature.mixed();
        self.any = true;
        self.sequence = self.sequence.with((hash >> 32) as u32);
        self.add_hash(hash, weight);
    }

    fn add_hash(&mut self, hash: u64, weight: i64) {
        // At most 65,536 components: the product of two 32-bit numbers stays in 64 bits.
        let index = ((hash >> 32) * self.sums.len() as u64) >> 32;
        self.sums[index as usize] += if hash & 1 == 0 { weight } else { -weight };
    }

    /// Writes the unit vector; `false` when the text had no feature.
    fn normalise(&mut self, out: &mut [f32]) -> bool {
        if !self.any {
            return false;
        }
        if self.sums.iter().all(|sum| *sum == 0) {
            self.add_hash(self.sequence.mixed(), 1);
        }
        let squares: i64 = self.sums.iter().map(|sum| sum * sum).sum();
        let norm = (squares as f64).sqrt();
        for (component, sum) in out.iter_mut().zip(&self.sums) {
            *component = (*sum as f64 / norm) as f32;
        }
        true
    }
}

/// How a character takes part in runs.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Class {
    Spaced,
    Unspaced,
    Between,
}

fn class(c: char) -> Class {
    if c.is_ascii_alphanumeric() {
        Class::Spaced
    } else if c.is_ascii() || !c.is_alphanumeric() {
        Class::Between
    } else if is_unspaced(c) {
        Class::Unspaced
    } else {
        Class::Spaced
    }
}

/// Han (radicals, ideographs, compatibility forms, extensions), kana, bopomofo and Hangul. Thai, Lao,
/// Khmer and Burmese have no spaces either, but their words are spelled: n-grams of three serve them.
fn is_unspaced(c: char) -> bool {
    matches!(c,
        '\u{1100}'..='\u{11FF}' | '\u{2E80}'..='\u{2FDF}' | '\u{3005}'..='\u{3007}'
        | '\u{3021}'..='\u{31FF}' | '\u{3400}'..='\u{4DBF}' | '\u{4E00}'..='\u{9FFF}'
        | '\u{A960}'..='\u{A97F}' | '\u{AC00}'..='\u{D7FF}' | '\u{F900}'..='\u{FAFF}'
        | '\u{FF66}'..='\u{FFDC}' | '\u{1AFF0}'..='\u{1B16F}' | '\u{20000}'..='\u{3FFFF}')
}

/// Adds every feature of `text`, in one pass and without allocating.
fn count(text: &str, sums: &mut Sums) {
    let mut run = Run::new(Class::Between);
    for c in text.chars() {
        let class = class(c);
        if class != run.class {
            run.finish(sums);
            run = Run::new(class);
        }
        match class {
            Class::Between => {}
            _ if c.is_ascii() => run.push(c.to_ascii_lowercase(), sums),
            // One character may become two (U+0130), whatever their own class is.
            _ => c.to_lowercase().for_each(|c| run.push(c, sums)),
        }
    }
    run.finish(sums);
    if !sums.any {
        count_symbols(text, sums);
    }
}

/// A run that is being read: its hash so far and the two units before the next one.
struct Run {
    class: Class,
    hash: Fnv,
    before: [Option<u32>; 2],
}

impl Run {
    fn new(class: Class) -> Self {
        let before = match class {
            Class::Spaced => [None, Some(START)],
            Class::Unspaced | Class::Between => [None, None],
        };
        Self {
            class,
            hash: RUN,
            before,
        }
    }

    fn push(&mut self, c: char, sums: &mut Sums) {
        let unit = c as u32;
        self.hash = self.hash.with(unit);
        match self.class {
            Class::Spaced => self.gram(unit, sums),
            Class::Unspaced | Class::Between => {
                sums.add(GRAM.with(unit), GRAM_WEIGHT);
                if let Some(last) = self.before[1] {
                    sums.add(GRAM.with(last).with(unit), PAIR_WEIGHT);
                }
            }
        }
        self.before = [self.before[1], Some(unit)];
    }

    fn gram(&self, unit: u32, sums: &mut Sums) {
        if let [Some(first), Some(second)] = self.before {
            sums.add(GRAM.with(first).with(second).with(unit), GRAM_WEIGHT);
        }
    }

    fn finish(&self, sums: &mut Sums) {
        match self.class {
            Class::Between => return,
            Class::Spaced => self.gram(END, sums),
            Class::Unspaced => {}
        }
        sums.add(self.hash, RUN_WEIGHT);
    }
}

/// The features of a text that has no run.
fn count_symbols(text: &str, sums: &mut Sums) {
    let mut last = None;
    for c in text.chars() {
        if c.is_whitespace() {
            last = None;
            continue;
        }
        let unit = c as u32;
        sums.add(GRAM.with(unit), GRAM_WEIGHT);
        if let Some(last) = last {
            sums.add(GRAM.with(last).with(unit), GRAM_WEIGHT);
        }
        last = Some(unit);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::digest::{Digest, Hasher};

    /// The model reads three tables of the Rust release; another table may be another vector.
    #[test]
    fn unicode_tables_are_those_of_this_algorithm() {
        let mut hasher = Hasher::new("unicode");
        for c in (0..=0x10_FFFF).filter_map(char::from_u32) {
            let class = class(c) as u8;
            let space = u8::from(c.is_whitespace());
            let lower: String = c.to_lowercase().collect();
            if class != Class::Between as u8 || space == 1 {
                hasher.part(&[class, space]).part(lower.as_bytes());
                hasher.part(&(c as u32).to_le_bytes());
            }
        }
        let golden = "f71be2810b25f25493b4fcdd646b87351c0e0922e1688ddcf63c505357b3ae62";
        assert_eq!(Some(hasher.finish()), Digest::parse(golden));
    }

    #[test]
    fn sums_that_cancel_still_have_a_direction() {
        let mut sums = Sums::new(1);
        sums.add(GRAM.with(1), 1);
        let sign = sums.sums[0];
        let opposite = (2..).find(|unit| {
            let mut other = Sums::new(1);
            other.add(GRAM.with(*unit), 1);
            other.sums[0] == -sign
        });
        sums.add(GRAM.with(opposite.unwrap()), 1);
        assert_eq!(sums.sums, [0]);
        let mut out = [0.0];
        assert!(sums.normalise(&mut out));
        assert_eq!(out[0].abs(), 1.0);
        sums.clear();
        assert!(!sums.normalise(&mut out));
    }

    #[test]
    fn the_longest_text_stays_far_from_overflow() {
        // Two units of weight (a run, its only gram) and more for every two bytes.
        let text = "a ".repeat(limits::TEXT_BYTES / 2);
        let mut sums = Sums::new(1);
        count(&text, &mut sums);
        assert!(sums.sums[0].abs() < 1 << 27);
    }
}
