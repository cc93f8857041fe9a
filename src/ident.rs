//! Validated names and opaque identifiers. A name never becomes part of a path: objects live under ids.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::{Error, Result, limits};

fn refuse(what: &'static str, name: &str, rule: &'static str) -> Error {
    let shown = name.chars().take(160).collect();
    Error::InvalidIdentifier {
        what,
        name: shown,
        rule,
    }
}

fn plain(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.' | b'-')
}

macro_rules! text_newtype {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
        #[serde(try_from = "String", into = "String")]
        pub struct $name(String);

        impl $name {
            /// The text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl TryFrom<String> for $name {
            type Error = Error;
            fn try_from(text: String) -> Result<Self> {
                Self::parse(&text)
            }
        }

        impl From<$name> for String {
            fn from(name: $name) -> String {
                name.0
            }
        }
    };
}

text_newtype! {
    /// The name of a dataset (an embedding table or a graph), a type or a pin:
    /// `[A-Za-z0-9_.-]`, 1-128 bytes, not `.`, `..` or a reserved schema.
    Name
}

text_newtype! {
    /// The name of a branch: names joined by `/`, 128 bytes together.
    BranchName
}

text_newtype! {
    /// A transaction: the catalog version at which it began, 20 digits, `-`, and a unique part of
    /// `[0-9A-Za-z]`. Staged objects live under it, so garbage collection reads `begin` off a key.
    TxnId
}

const NAME_RULE: &str = "use 1-128 bytes of A-Z a-z 0-9 _ . -";

impl Name {
    /// Checks and keeps a name.
    pub fn parse(text: &str) -> Result<Self> {
        if text.is_empty() || text.len() > limits::NAME_BYTES || !text.bytes().all(plain) {
            return Err(refuse("name", text, NAME_RULE));
        }
        if matches!(text, "." | "..") {
            return Err(refuse("name", text, "'.' and '..' are not names"));
        }
        if text.eq_ignore_ascii_case("embeddings")
            || text.eq_ignore_ascii_case("information_schema")
        {
            return Err(refuse(
                "name",
                text,
                "'embeddings' and 'information_schema' are reserved",
            ));
        }
        Ok(Self(text.to_owned()))
    }

    /// This name with `suffix` behind it; the name is cut where both are too long.
    ///
    /// # Errors
    /// `InvalidIdentifier` for a suffix that no name can end in.
    pub fn with_suffix(&self, suffix: &str) -> Result<Self> {
        // Names are ASCII, so any byte is a place to cut.
        let room = limits::NAME_BYTES.saturating_sub(suffix.len());
        let stem = self.as_str().get(..room.min(self.as_str().len()));
        Self::parse(&format!("{}{suffix}", stem.unwrap_or_default()))
    }

    /// A name made from arbitrary text: every other character becomes `-`, cut to 128 bytes.
    pub fn from_text(text: &str) -> Result<Self> {
        let mapped: String = text
            .chars()
            .map(|c| {
                if c.is_ascii() && plain(c as u8) {
                    c
                } else {
                    '-'
                }
            })
            .take(limits::NAME_BYTES)
            .collect();
        Self::parse(&mapped)
    }
}

impl BranchName {
    /// The branch that every dataset has.
    pub fn main() -> Self {
        Self("main".to_owned())
    }

    /// Checks and keeps a branch name.
    pub fn parse(text: &str) -> Result<Self> {
        let part = |p: &str| !p.is_empty() && p != "." && p != ".." && p.bytes().all(plain);
        if text.is_empty() || text.len() > limits::NAME_BYTES || !text.split('/').all(part) {
            return Err(refuse(
                "branch",
                text,
                "use parts of A-Z a-z 0-9 _ . - joined by '/'",
            ));
        }
        Ok(Self(text.to_owned()))
    }
}

impl TxnId {
    /// Joins the catalog version and a unique part.
    pub fn new(begin: u64, unique: &str) -> Result<Self> {
        Self::parse(&format!("{begin:020}-{unique}"))
    }

    /// Checks and keeps a transaction id.
    pub fn parse(text: &str) -> Result<Self> {
        const RULE: &str = "a transaction id is 20 digits, '-' and 1-64 letters or digits";
        let (begin, unique) = text
            .split_once('-')
            .ok_or_else(|| refuse("transaction", text, RULE))?;
        let digits = begin.len() == 20 && begin.bytes().all(|b| b.is_ascii_digit());
        let unique_ok =
            (1..=64).contains(&unique.len()) && unique.bytes().all(|b| b.is_ascii_alphanumeric());
        if !digits || !unique_ok || begin.parse::<u64>().is_err() {
            return Err(refuse("transaction", text, RULE));
        }
        Ok(Self(text.to_owned()))
    }

    /// The catalog version at which the transaction began.
    pub fn begin(&self) -> u64 {
        self.0
            .get(..20)
            .and_then(|digits| digits.parse().ok())
            .unwrap_or(0)
    }
}

/// A table name with an optional version, as in `docs@3`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct VersionedName {
    /// The table.
    pub name: Name,
    /// The version after `@`.
    pub version: Option<u64>,
}

impl VersionedName {
    /// Splits at the last `@`.
    pub fn parse(text: &str) -> Result<Self> {
        match text.rsplit_once('@') {
            None => Ok(Self {
                name: Name::parse(text)?,
                version: None,
            }),
            Some((name, version)) => {
                let digits = version.bytes().all(|b| b.is_ascii_digit());
                let version =
                    version.parse().ok().filter(|_| digits).ok_or_else(|| {
                        refuse("version", text, "after '@' stands a version number")
                    })?;
                Ok(Self {
                    name: Name::parse(name)?,
                    version: Some(version),
                })
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn suffixes_stay_whole() {
        let long = Name::parse(&"x".repeat(128)).unwrap();
        let short = Name::parse("docs").unwrap();
        assert_eq!(short.with_suffix("__r1").unwrap().as_str(), "docs__r1");
        let cut = long.with_suffix("__r12").unwrap();
        assert!(cut.as_str().len() == 128 && cut.as_str().ends_with("x__r12"));
        assert!(short.with_suffix(&"y".repeat(129)).is_err());
    }

    #[test]
    fn names_are_checked_at_their_limits() {
        for good in ["a", "docs__embedding__m.v-1", &"x".repeat(128)] {
            assert_eq!(Name::parse(good).unwrap().as_str(), good);
        }
        for bad in [
            "",
            ".",
            "..",
            "a/b",
            "a b",
            "a@1",
            "é",
            "a\0",
            "%2e",
            &"x".repeat(129),
            "Embeddings",
        ] {
            assert_eq!(
                Name::parse(bad).unwrap_err().code(),
                "InvalidIdentifier",
                "{bad:?}"
            );
        }
        assert_eq!(
            Name::from_text("hash:384 é").unwrap().as_str(),
            "hash-384--"
        );
        assert!(BranchName::parse("a/b").is_ok() && BranchName::parse("a//b").is_err());
        assert!(BranchName::parse("../a").is_err());
    }

    #[test]
    fn transactions_carry_their_begin() {
        assert_eq!(TxnId::new(7, "01ABC").unwrap().begin(), 7);
        for bad in [
            "7-a",
            "00000000000000000007-",
            "00000000000000000007-a/b",
            "99999999999999999999-a",
        ] {
            assert!(TxnId::parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn versions_follow_the_last_at() {
        assert_eq!(VersionedName::parse("d@3").unwrap().version, Some(3));
        for bad in [
            "d@",
            "d@x",
            "d@-1",
            "d@+1",
            "@3",
            "d@99999999999999999999999",
        ] {
            assert!(VersionedName::parse(bad).is_err(), "{bad}");
        }
    }
}
