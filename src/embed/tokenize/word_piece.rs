//! BERT's tokenizer: words, cut into the longest pieces of a vocabulary.

use std::collections::HashMap;

use super::classes::is_punctuation;
use super::normal::{Marks, Rules};
use super::trie::Trie;

/// What a tokenizer is made of.
pub(super) struct Parts<'a> {
    pub(super) rules: Rules,
    pub(super) vocabulary: HashMap<&'a str, u32>,
    /// What a piece that does not begin a word begins with.
    pub(super) prefix: &'a str,
    /// The token of words that have no pieces.
    pub(super) unknown: &'a str,
    /// Characters of a word above which it is unknown.
    pub(super) longest_word: usize,
    /// Tokens that are found in texts before anything else is done, with their ids.
    pub(super) added: Vec<(&'a str, u32)>,
    /// The tokens before and after a text.
    pub(super) frame: Option<(u32, u32)>,
}

/// The tokenizer of one vocabulary.
#[derive(Debug)]
pub(super) struct WordPiece {
    rules: Rules,
    ascii: [Ascii; 128],
    /// Pieces at the beginning of a word.
    beginnings: Trie,
    /// Pieces behind another one, without their prefix.
    continuations: Trie,
    added: Trie,
    /// The bytes with which added tokens begin.
    added_starts: [bool; 256],
    unknown: Option<u32>,
    longest_word: usize,
    #[cfg_attr(
        not(feature = "candle"),
        allow(dead_code, reason = "only transformers frame their texts")
    )]
    frame: Option<(u32, u32)>,
    size: usize,
}

/// What becomes of an ASCII character.
#[derive(Debug, Clone, Copy)]
enum Ascii {
    Dropped,
    Space,
    Punctuation(char),
    Letter(char),
}

impl Ascii {
    fn of(byte: u8, rules: Rules) -> Self {
        let c = char::from(byte);
        let white = matches!(c, '\t' | '\n' | '\r' | ' ');
        if rules.clean && c.is_ascii_control() && !white {
            Self::Dropped
        } else if c.is_whitespace() {
            Self::Space
        } else if c.is_ascii_punctuation() {
            Self::Punctuation(c)
        } else if rules.lowercase {
            Self::Letter(c.to_ascii_lowercase())
        } else {
            Self::Letter(c)
        }
    }
}

impl WordPiece {
    /// Ids are below [`super::trie::NO_ID`]. Without the unknown token in the vocabulary such words have no token.
    pub(super) fn new(parts: Parts<'_>) -> Self {
        let Parts {
            rules, vocabulary, ..
        } = parts;
        let entries = || vocabulary.iter().map(|(piece, id)| (*piece, *id));
        let added = Trie::new(parts.added.iter().copied());
        let all_ids = vocabulary
            .values()
            .chain(parts.added.iter().map(|(_, id)| id));
        Self {
            rules,
            ascii: std::array::from_fn(|byte| Ascii::of(byte as u8, rules)),
            beginnings: Trie::new(entries()),
            continuations: Trie::new(
                entries().filter_map(|(piece, id)| Some((piece.strip_prefix(parts.prefix)?, id))),
            ),
            added_starts: std::array::from_fn(|byte| added.begins_with(byte as u8)),
            added,
            unknown: vocabulary.get(parts.unknown).copied(),
            longest_word: parts.longest_word,
            frame: parts.frame,
            size: all_ids.max().map_or(0, |id| *id as usize + 1),
        }
    }

    #[cfg_attr(
        not(feature = "candle"),
        allow(dead_code, reason = "only transformers frame their texts")
    )]
    pub(super) fn frame(&self) -> Option<(u32, u32)> {
        self.frame
    }

    pub(super) fn unknown(&self) -> Option<u32> {
        self.unknown
    }

    pub(super) fn size(&self) -> usize {
        self.size
    }

    /// As [`super::Tokenizer::encode`].
    pub(super) fn encode(&self, text: &str, limit: usize, ids: &mut Vec<u32>) -> bool {
        let mut words = Words {
            pieces: self,
            word: String::with_capacity(64),
            characters: 0,
            end: ids.len().saturating_add(limit),
            ids,
            more: false,
        };
        let mut marks = Marks::default();
        let bytes = text.as_bytes();
        let mut at = 0;
        while let Some(byte) = bytes.get(at).copied() {
            if words.more {
                return true;
            }
            if self.added_starts[usize::from(byte)]
                && let Some((length, id)) = self.added.longest(&bytes[at..])
            {
                marks.flush(self.rules, &mut |c| words.push(c));
                words.end_word();
                words.token(id);
                at += length;
            } else if byte.is_ascii() {
                marks.flush(self.rules, &mut |c| words.push(c));
                words.push_ascii(self.ascii[usize::from(byte)]);
                at += 1;
            } else {
                let c = text[at..].chars().next().unwrap_or_default();
                marks.push(c, self.rules, &mut |c| words.push(c));
                at += c.len_utf8();
            }
        }
        marks.flush(self.rules, &mut |c| words.push(c));
        words.end_word();
        words.more
    }

    /// Appends the pieces of `word`; `false` when it has none, with any ids appended.
    fn cut(&self, word: &[u8], ids: &mut Vec<u32>) -> bool {
        let mut at = 0;
        while at < word.len() {
            let pieces = if at == 0 {
                &self.beginnings
            } else {
                &self.continuations
            };
            let Some((length, id)) = pieces.longest(&word[at..]) else {
                return false;
            };
            ids.push(id);
            at += length;
        }
        true
    }
}

/// The word that is being read, and the tokens so far.
struct Words<'a> {
    pieces: &'a WordPiece,
    /// Its first characters, as many as a word may have.
    word: String,
    characters: usize,
    /// The length of `ids` at which the text is cut.
    end: usize,
    ids: &'a mut Vec<u32>,
    /// Whether there was a token after that.
    more: bool,
}

impl Words<'_> {
    fn push_ascii(&mut self, ascii: Ascii) {
        match ascii {
            Ascii::Dropped => {}
            Ascii::Space => self.end_word(),
            Ascii::Punctuation(c) => self.alone(c),
            Ascii::Letter(c) => self.letter(c),
        }
    }

    fn push(&mut self, c: char) {
        if c.is_whitespace() {
            self.end_word();
        } else if c.is_ascii_punctuation() || is_punctuation(c) {
            self.alone(c);
        } else {
            self.letter(c);
        }
    }

    fn alone(&mut self, c: char) {
        self.end_word();
        self.letter(c);
        self.end_word();
    }

    fn letter(&mut self, c: char) {
        if self.characters < self.pieces.longest_word {
            self.word.push(c);
        }
        self.characters += 1;
    }

    fn end_word(&mut self) {
        if self.characters == 0 {
            return;
        }
        let start = self.ids.len();
        let short = self.characters <= self.pieces.longest_word;
        if !(short && self.pieces.cut(self.word.as_bytes(), self.ids)) {
            self.ids.truncate(start);
            self.ids.extend(self.pieces.unknown);
        }
        self.word.clear();
        self.characters = 0;
        self.stop_at_end();
    }

    fn token(&mut self, id: u32) {
        self.ids.push(id);
        self.stop_at_end();
    }

    fn stop_at_end(&mut self) {
        if self.ids.len() > self.end {
            self.ids.truncate(self.end);
            self.more = true;
        }
    }
}
