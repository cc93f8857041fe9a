//! From text to terms.

use std::borrow::Cow;
use std::fmt;

use tantivy::tokenizer::{
    AsciiFoldingFilter, Language, LowerCaser, RemoveLongFilter, SimpleTokenizer, Stemmer,
    StopWordFilter, TextAnalyzer, TokenStream,
};
use unicode_normalization::{UnicodeNormalization, is_nfc};

use crate::{Error, Result};

/// Words of this many UTF-8 bytes or more are no terms.
const LONG_WORD: usize = 40;

const LANGUAGES: [(&str, Language); 18] = [
    ("arabic", Language::Arabic),
    ("danish", Language::Danish),
    ("dutch", Language::Dutch),
    ("english", Language::English),
    ("finnish", Language::Finnish),
    ("french", Language::French),
    ("german", Language::German),
    ("greek", Language::Greek),
    ("hungarian", Language::Hungarian),
    ("italian", Language::Italian),
    ("norwegian", Language::Norwegian),
    ("portuguese", Language::Portuguese),
    ("romanian", Language::Romanian),
    ("russian", Language::Russian),
    ("spanish", Language::Spanish),
    ("swedish", Language::Swedish),
    ("tamil", Language::Tamil),
    ("turkish", Language::Turkish),
];
const SIMPLE: &str = "simple";

/// A term and its place among the words of its text. Words that are no terms count as places, so the
/// terms of "point of sale" are two apart.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TermAt {
    /// The term.
    pub term: String,
    /// Number of words before it.
    pub position: u32,
}

/// Makes terms of text: canonical composition (NFC), words of Unicode letters and digits without those
/// of 40 bytes or more, lower case; then stop words go and the rest is stemmed in an analyser of a
/// language; last, Latin letters lose their accents.
///
/// Stop words go before stemming because the lists hold whole words.
#[derive(Clone)]
pub struct Analyser {
    name: &'static str,
    analyser: TextAnalyzer,
}

impl Default for Analyser {
    /// `english`.
    fn default() -> Self {
        Self::of("english", Some(Language::English))
    }
}

impl fmt::Debug for Analyser {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Analyser").field(&self.name).finish()
    }
}

impl PartialEq for Analyser {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

impl Eq for Analyser {}

impl Analyser {
    /// The analyser of a name: a language in English and lower case, or `simple`, which neither stems
    /// nor has stop words.
    ///
    /// # Errors
    /// `InvalidArgument` with the names that exist.
    pub fn parse(name: &str) -> Result<Self> {
        if name == SIMPLE {
            return Ok(Self::of(SIMPLE, None));
        }
        let known = LANGUAGES.iter().find(|(language, _)| *language == name);
        let Some((name, language)) = known else {
            let names: Vec<&str> = Self::names().collect();
            return Err(Error::InvalidArgument {
                function: "text index".to_owned(),
                argument: "analyzer".to_owned(),
                reason: format!("{name:?} is not one of {}", names.join(", ")),
            });
        };
        Ok(Self::of(name, Some(*language)))
    }

    /// All names.
    pub fn names() -> impl Iterator<Item = &'static str> {
        let languages = LANGUAGES.iter().map(|(name, _)| *name);
        languages.chain([SIMPLE])
    }

    fn of(name: &'static str, language: Option<Language>) -> Self {
        let mut builder = TextAnalyzer::builder(SimpleTokenizer::default())
            .filter_dynamic(RemoveLongFilter::limit(LONG_WORD))
            .filter_dynamic(LowerCaser);
        if let Some(stop_words) = language.and_then(StopWordFilter::new) {
            builder = builder.filter_dynamic(stop_words);
        }
        if let Some(language) = language {
            builder = builder.filter_dynamic(Stemmer::new(language));
        }
        let analyser = builder.filter_dynamic(AsciiFoldingFilter).build();
        Self { name, analyser }
    }

    /// The stable name.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// The terms of a text, in the order of its words.
    pub fn terms(&self, text: &str) -> Vec<TermAt> {
        let text = compose(text);
        let mut analyser = self.analyser.clone();
        let mut stream = analyser.token_stream(&text);
        let mut terms = Vec::new();
        while stream.advance() {
            let token = stream.token();
            terms.push(TermAt {
                term: token.text.clone(),
                // More than 2^32 words do not fit into a string that Arrow holds.
                position: token.position as u32,
            });
        }
        terms
    }

    /// What tantivy runs on text that is [composed](compose).
    pub(super) fn tantivy(&self) -> TextAnalyzer {
        self.analyser.clone()
    }
}

/// The canonical composition of a text: a word breaks at a combining mark, so an accent must be part of
/// its letter.
pub(super) fn compose(text: &str) -> Cow<'_, str> {
    if text.is_ascii() || is_nfc(text) {
        Cow::Borrowed(text)
    } else {
        Cow::Owned(text.nfc().collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn terms(analyser: &str, text: &str) -> Vec<String> {
        let terms = Analyser::parse(analyser).unwrap().terms(text);
        terms.into_iter().map(|t| t.term).collect()
    }

    #[test]
    fn english_is_the_default() {
        assert_eq!(Analyser::default(), Analyser::parse("english").unwrap());
        let text = "The Introduction to the RUNNING of Cafés";
        assert_eq!(terms("english", text), ["introduct", "run", "cafe"]);
        assert_eq!(
            terms("simple", "The Cafés, running"),
            ["the", "cafes", "running"]
        );
    }

    #[test]
    fn words_that_are_no_terms_keep_their_places() {
        let terms = Analyser::default().terms("the point of sale");
        let places: Vec<u32> = terms.iter().map(|t| t.position).collect();
        assert_eq!(places, [1, 3]);
    }

    #[test]
    fn every_name_parses_and_others_are_told_what_exists() {
        for name in Analyser::names() {
            let analyser = Analyser::parse(name).unwrap();
            assert_eq!(analyser.name(), name);
            analyser.terms("Größe, été; İstanbul 東京 👍 e\u{301} ελληνικά русский");
        }
        for name in ["", "English", "klingon", "standard"] {
            let error = Analyser::parse(name).unwrap_err().to_string();
            assert!(
                error.contains("english") && error.contains("simple"),
                "{error}"
            );
        }
    }

    #[test]
    fn languages_have_their_stop_words_and_stems() {
        assert_eq!(terms("german", "Die Häuser und das Haus"), ["haus", "haus"]);
        assert_eq!(
            terms("french", "les chevaux des plaines"),
            ["cheval", "plain"]
        );
    }

    #[test]
    fn unicode_and_long_words() {
        assert_eq!(terms("simple", "e\u{301}te\u{301} été"), ["ete", "ete"]);
        assert_eq!(terms("simple", "straße 東京 👍"), ["strasse", "東京"]);
        let (short, long) = ("a".repeat(39), "a".repeat(40));
        assert_eq!(terms("simple", &format!("{long} {short} {long}")), [short]);
        assert!(terms("english", " \t.,; the of ").is_empty());
    }
}
