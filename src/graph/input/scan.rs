//! JSON text of one record as a short list of tokens.
//!
//! Numbers stay text, so that nothing is rounded before its type is known, and members keep their
//! places, so that `data` may stand before `type`. Only the record and its `data` keep their
//! members: an array or a deeper object is checked and then one token, which bounds the memory.

use std::borrow::Cow;

use crate::limits;

/// Objects whose members are kept: the record and its `data`.
const KEPT_DEPTH: usize = 2;

/// What a token is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Object,
    Array,
    String,
    Number,
    Bool(bool),
    Null,
}

/// A piece of the text; a string's bytes are those between its quotes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Token {
    pub kind: Kind,
    /// Whether a string has escapes.
    escaped: bool,
    start: u32,
    end: u32,
    /// The token after this one and all that it holds.
    next: u32,
}

/// Text that is not JSON, or not what a record may be.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Syntax {
    /// Byte of the text.
    pub at: usize,
    /// What was found and what is expected.
    pub message: String,
}

type Scanned<T> = Result<T, Syntax>;

impl Token {
    /// The text as it is written, for numbers.
    pub fn raw<'a>(&self, text: &'a str) -> &'a str {
        text.get(self.start as usize..self.end as usize)
            .unwrap_or_default()
    }

    /// The text of a string without its escapes.
    pub fn text<'a>(&self, text: &'a str) -> Cow<'a, str> {
        let raw = self.raw(text);
        if !self.escaped {
            return Cow::Borrowed(raw);
        }
        // The scan has unescaped it once, so this cannot fail.
        Cow::Owned(unescape(raw).unwrap_or_default())
    }

    /// What a message calls it.
    pub fn describe(&self, text: &str) -> String {
        match self.kind {
            Kind::Object => "an object".to_owned(),
            Kind::Array => "an array".to_owned(),
            Kind::String => format!("the string {:?}", super::shown(&self.text(text))),
            Kind::Number => format!("the number {}", super::shown(self.raw(text))),
            Kind::Bool(value) => value.to_string(),
            Kind::Null => "null".to_owned(),
        }
    }
}

fn unescape(raw: &str) -> serde_json::Result<String> {
    serde_json::from_str(&format!("\"{raw}\""))
}

/// Tokens of one text; the buffer is used again for the next.
#[derive(Debug, Default)]
pub(super) struct Tape {
    tokens: Vec<Token>,
}

impl Tape {
    /// Reads `text`, which is one value with blanks around it. `unique` refuses duplicate members.
    pub fn scan(&mut self, text: &str, unique: bool) -> Scanned<Token> {
        self.tokens.clear();
        let mut scanner = Scanner {
            text,
            bytes: text.as_bytes(),
            at: 0,
            unique,
            tokens: &mut self.tokens,
        };
        scanner.blanks();
        scanner.value(0, true)?;
        scanner.blanks();
        if scanner.at < text.len() {
            let found = scanner.found();
            return scanner.fail(format!(
                "{found} follows the record; a line holds one object"
            ));
        }
        Ok(self.tokens[0])
    }

    /// Members of an object whose members were kept: the key and the value.
    pub fn members(&self, object: usize) -> Members<'_> {
        let end = self.tokens.get(object).map_or(0, |token| token.next);
        Members {
            tape: self,
            at: object + 1,
            end: end as usize,
        }
    }

    /// A token by its place.
    pub fn token(&self, at: usize) -> Token {
        self.tokens[at]
    }
}

/// Keys with the places of their values.
pub(super) struct Members<'a> {
    tape: &'a Tape,
    at: usize,
    end: usize,
}

impl Iterator for Members<'_> {
    type Item = (Token, usize);

    fn next(&mut self) -> Option<Self::Item> {
        if self.at + 1 >= self.end {
            return None;
        }
        let (key, value) = (self.tape.tokens[self.at], self.at + 1);
        self.at = self.tape.tokens[value].next as usize;
        Some((key, value))
    }
}

/// Calls `each` with every item of an array of `text` that was scanned before.
pub(super) fn items<E>(
    text: &str,
    array: &Token,
    mut each: impl FnMut(&Token) -> Result<(), E>,
) -> Result<(), E> {
    let mut tokens = Vec::with_capacity(1);
    let mut scanner = Scanner {
        text,
        bytes: text.as_bytes(),
        at: array.start as usize + 1,
        unique: false,
        tokens: &mut tokens,
    };
    loop {
        scanner.blanks();
        if scanner.peek() == Some(b']') || scanner.value(KEPT_DEPTH, false).is_err() {
            return Ok(());
        }
        for token in scanner.tokens.drain(..) {
            each(&token)?;
        }
        scanner.blanks();
        if scanner.peek() != Some(b',') {
            return Ok(());
        }
        scanner.at += 1;
    }
}

struct Scanner<'a> {
    text: &'a str,
    bytes: &'a [u8],
    at: usize,
    unique: bool,
    tokens: &'a mut Vec<Token>,
}

impl Scanner<'_> {
    fn peek(&self) -> Option<u8> {
        self.bytes.get(self.at).copied()
    }

    fn blanks(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\t' | b'\n' | b'\r')) {
            self.at += 1;
        }
    }

    fn fail<T>(&self, message: String) -> Scanned<T> {
        Err(Syntax {
            at: self.at,
            message,
        })
    }

    /// The character here, for messages.
    fn found(&self) -> String {
        let rest = self
            .text
            .get(self.at..)
            .and_then(|rest| rest.chars().next());
        rest.map_or_else(|| "the end".to_owned(), |found| format!("{found:?}"))
    }

    fn expected<T>(&self, expected: &str) -> Scanned<T> {
        self.fail(format!("found {}, expected {expected}", self.found()))
    }

    fn push(&mut self, kind: Kind, start: usize, end: usize, escaped: bool) {
        let next = self.tokens.len() as u32 + 1;
        self.tokens.push(Token {
            kind,
            escaped,
            start: start as u32,
            end: end as u32,
            next,
        });
    }

    /// One value within `depth` objects and arrays. `keep` says that only objects are around it.
    fn value(&mut self, depth: usize, keep: bool) -> Scanned<()> {
        match self.peek() {
            Some(b'"') => self.string(),
            Some(b'{') => self.nested(depth, keep, Kind::Object),
            Some(b'[') => self.nested(depth, false, Kind::Array),
            Some(b'-' | b'0'..=b'9') => self.number(),
            Some(b't') => self.word("true", Kind::Bool(true)),
            Some(b'f') => self.word("false", Kind::Bool(false)),
            Some(b'n') => self.word("null", Kind::Null),
            _ => self.expected("a JSON value"),
        }
    }

    fn word(&mut self, word: &str, kind: Kind) -> Scanned<()> {
        let end = self.at + word.len();
        if self.bytes.get(self.at..end) != Some(word.as_bytes()) {
            return self.fail(format!("expected a JSON value such as {word}"));
        }
        self.push(kind, self.at, end, false);
        self.at = end;
        Ok(())
    }

    fn digits(&mut self) -> Scanned<()> {
        let from = self.at;
        while matches!(self.peek(), Some(b'0'..=b'9')) {
            self.at += 1;
        }
        if from == self.at {
            return self.expected("a digit");
        }
        Ok(())
    }

    fn number(&mut self) -> Scanned<()> {
        let start = self.at;
        if self.peek() == Some(b'-') {
            self.at += 1;
        }
        if self.peek() == Some(b'0') {
            self.at += 1;
            if matches!(self.peek(), Some(b'0'..=b'9')) {
                return self.fail("a number does not begin with 0 and another digit".to_owned());
            }
        } else {
            self.digits()?;
        }
        if self.peek() == Some(b'.') {
            self.at += 1;
            self.digits()?;
        }
        if matches!(self.peek(), Some(b'e' | b'E')) {
            self.at += 1;
            if matches!(self.peek(), Some(b'+' | b'-')) {
                self.at += 1;
            }
            self.digits()?;
        }
        self.push(Kind::Number, start, self.at, false);
        Ok(())
    }

    fn string(&mut self) -> Scanned<()> {
        let start = self.at + 1;
        let mut escaped = false;
        self.at = start;
        loop {
            match self.peek() {
                Some(b'"') => break,
                Some(b'\\') => {
                    escaped = true;
                    // The escaped byte cannot end the string; what it means is checked below.
                    self.at = (self.at + 2).min(self.bytes.len());
                }
                Some(0..0x20) => {
                    return self.fail(
                        "a control character stands in a string; escape it, as in \\n".to_owned(),
                    );
                }
                Some(_) => self.at += 1,
                None => {
                    return self.fail("a string is not closed; expected '\"'".to_owned());
                }
            }
        }
        if escaped && unescape(&self.text[start..self.at]).is_err() {
            self.at = start;
            return self.fail("a string has an escape that JSON does not know".to_owned());
        }
        self.push(Kind::String, start, self.at, escaped);
        self.at += 1;
        Ok(())
    }

    fn nested(&mut self, depth: usize, keep: bool, kind: Kind) -> Scanned<()> {
        if depth >= limits::RECORD_DEPTH {
            return self.fail(format!(
                "objects and arrays are more than {} deep",
                limits::RECORD_DEPTH
            ));
        }
        let (start, place) = (self.at, self.tokens.len());
        self.push(kind, start, start, false);
        self.at += 1;
        let end = if kind == Kind::Object {
            self.object(depth + 1, keep, place)?;
            b'}'
        } else {
            self.array(depth + 1, place)?;
            b']'
        };
        if self.peek() != Some(end) {
            return self.expected(if end == b'}' {
                "',' or '}'"
            } else {
                "',' or ']'"
            });
        }
        self.at += 1;
        if !(keep && depth < KEPT_DEPTH) {
            self.tokens.truncate(place + 1);
        }
        let next = self.tokens.len() as u32;
        let token = &mut self.tokens[place];
        token.end = self.at as u32;
        token.next = next;
        Ok(())
    }

    fn array(&mut self, depth: usize, place: usize) -> Scanned<()> {
        self.blanks();
        if self.peek() == Some(b']') {
            return Ok(());
        }
        loop {
            self.blanks();
            self.value(depth, false)?;
            self.tokens.truncate(place + 1);
            self.blanks();
            if self.peek() != Some(b',') {
                return Ok(());
            }
            self.at += 1;
        }
    }

    fn object(&mut self, depth: usize, keep: bool, place: usize) -> Scanned<()> {
        let mut members = 0;
        self.blanks();
        if self.peek() == Some(b'}') {
            return Ok(());
        }
        loop {
            self.blanks();
            if self.peek() != Some(b'"') {
                return self.expected("the name of a member in quotes");
            }
            members += 1;
            if members > limits::RECORD_MEMBERS {
                return self.fail(format!(
                    "an object has more than {} members",
                    limits::RECORD_MEMBERS
                ));
            }
            self.string()?;
            self.blanks();
            if self.peek() != Some(b':') {
                return self.expected("':'");
            }
            self.at += 1;
            self.blanks();
            self.value(depth, keep)?;
            self.blanks();
            if self.peek() != Some(b',') {
                break;
            }
            self.at += 1;
        }
        if self.unique {
            return self.distinct(place, members);
        }
        Ok(())
    }

    /// Refuses an object that names a member twice.
    fn distinct(&self, place: usize, members: usize) -> Scanned<()> {
        let mut names: Vec<Token> = Vec::new();
        let mut at = place + 1;
        // Few members are the rule, and comparing them needs no other memory.
        let few = members <= 16;
        while at + 1 < self.tokens.len() {
            let key = self.tokens[at];
            if few {
                let mut earlier = place + 1;
                while earlier < at {
                    self.differ(&self.tokens[earlier], &key)?;
                    earlier = self.tokens[earlier + 1].next as usize;
                }
            } else {
                names.push(key);
            }
            at = self.tokens[at + 1].next as usize;
        }
        names.sort_by_cached_key(|name| name.text(self.text));
        for pair in names.windows(2) {
            self.differ(&pair[0], &pair[1])?;
        }
        Ok(())
    }

    fn differ(&self, a: &Token, b: &Token) -> Scanned<()> {
        let same = if a.escaped || b.escaped {
            a.text(self.text) == b.text(self.text)
        } else {
            a.raw(self.text) == b.raw(self.text)
        };
        if !same {
            return Ok(());
        }
        Err(Syntax {
            at: a.start.max(b.start) as usize,
            message: format!(
                "duplicate member {:?}; name every member once",
                super::shown(&b.text(self.text))
            ),
        })
    }
}
