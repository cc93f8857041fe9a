//! The key of a server: read from the environment, sent, and kept out of every text.

use reqwest::header::HeaderValue;

use crate::embed::spec::invalid;
use crate::{Result, limits};

/// What stands in a text in the place of the key.
const HIDDEN: &str = "***";

/// The key, or none. Its `Debug` does not show it.
pub(super) struct Key(Option<String>);

impl std::fmt::Debug for Key {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(if self.0.is_some() { HIDDEN } else { "none" })
    }
}

impl Key {
    /// The value of the environment variable `variable`, without white space around it.
    ///
    /// A variable that is missing, empty or not fit for a header is `InvalidArgument` with its name.
    pub(super) fn read(variable: Option<&str>) -> Result<Self> {
        let Some(variable) = variable else {
            return Ok(Self(None));
        };
        // The error of a value that is not UTF-8 would repeat it.
        let value = std::env::var(variable).unwrap_or_default();
        let value = value.trim();
        if value.is_empty() {
            return Err(invalid(format!(
                "the environment variable {variable} that key_env names is not set in this process; set it to the server's key"
            )));
        }
        if !value.bytes().all(|b| b.is_ascii_graphic()) {
            return Err(invalid(format!(
                "the environment variable {variable} that key_env names holds no key: printable ASCII without spaces is expected"
            )));
        }
        Ok(Self(Some(value.to_owned())))
    }

    /// The `Authorization` header, marked so that no library shows it.
    pub(super) fn header(&self) -> Option<HeaderValue> {
        let key = self.0.as_ref()?;
        let mut header = HeaderValue::from_str(&format!("Bearer {key}")).ok()?;
        header.set_sensitive(true);
        Some(header)
    }

    /// Whether `text` holds the key.
    pub(super) fn is_in(&self, text: &str) -> bool {
        self.0.as_deref().is_some_and(|key| text.contains(key))
    }

    /// A text without the key and on one line. `cut` says that the text ends too early, perhaps within
    /// the key.
    pub(super) fn hide(&self, text: &str, cut: bool) -> String {
        let mut text = text.to_owned();
        for key in self.spellings() {
            if cut {
                let part = (1..key.len()).rev().find(|n| text.ends_with(&key[..*n]));
                text.truncate(text.len() - part.unwrap_or(0));
            }
            text = text.replace(&key, HIDDEN);
        }
        let blank = |c: char| if c.is_control() { ' ' } else { c };
        text.trim().chars().map(blank).collect()
    }

    /// What may be shown of a server's own words: at most [`limits::REMOTE_ERROR_BYTES`] of what
    /// [`hide`](Self::hide) leaves.
    pub(super) fn excerpt(&self, text: &str, cut: bool) -> String {
        let mut text = self.hide(text, cut);
        if text.len() > limits::REMOTE_ERROR_BYTES {
            let mut ends = (0..=limits::REMOTE_ERROR_BYTES).rev();
            let end = ends.find(|end| text.is_char_boundary(*end));
            text.truncate(end.unwrap_or(0));
            text.push('…');
        }
        text
    }

    /// The key, and the key as JSON writes it where that differs.
    fn spellings(&self) -> Vec<String> {
        let Some(key) = self.0.clone() else {
            return Vec::new();
        };
        let quoted = key.replace('\\', "\\\\").replace('"', "\\\"");
        let slashed = quoted.replace('/', "\\/");
        let mut out = vec![slashed, quoted, key];
        out.dedup();
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(text: &str) -> Key {
        Key(Some(text.to_owned()))
    }

    #[test]
    fn no_spelling_of_the_key_passes() {
        let key = key("c4n/ry\"1");
        for echoed in ["c4n/ry\"1", "c4n/ry\\\"1", "c4n\\/ry\\\"1"] {
            let shown = key.excerpt(&format!("bad key {echoed}, {echoed}\n!"), false);
            assert_eq!(shown, "bad key ***, *** !");
            assert_eq!(key.hide(echoed, false), "***");
        }
        assert!(key.is_in("x c4n/ry\"1 x") && !key.is_in("c4n"));
        assert_eq!(format!("{key:?} {:?}", Key(None)), "*** none");
        let header = key.header().unwrap();
        assert!(header.is_sensitive());
        assert_eq!(format!("{header:?}"), "Sensitive");
    }

    #[test]
    fn a_cut_never_leaves_a_part_of_the_key() {
        let long = "k".repeat(8) + "ey";
        assert_eq!(key(&long).excerpt("the key kkkkkkkk", true), "the key");
        assert_eq!(
            key(&long).excerpt("the key kkkkkkkk", false),
            "the key kkkkkkkk"
        );
        // The key itself lies across the edge of what is shown.
        let text = "x".repeat(limits::REMOTE_ERROR_BYTES - 4) + &long;
        let shown = key(&long).excerpt(&text, false);
        assert!(shown.ends_with("x***"), "{shown}");
    }

    #[test]
    fn texts_are_cut_between_characters() {
        let none = Key(None);
        let most = limits::REMOTE_ERROR_BYTES;
        assert_eq!(none.excerpt(&"x".repeat(most), false).len(), most);
        let shown = none.excerpt(&("x".to_owned() + &"é".repeat(most)), false);
        assert_eq!(shown.len(), most - 1 + "…".len());
    }

    #[test]
    fn a_variable_is_named_and_its_value_is_not() {
        assert!(Key::read(None).unwrap().header().is_none());
        let error = Key::read(Some("STRATAGRAPH_NO_SUCH_KEY")).unwrap_err();
        assert_eq!(error.code(), "InvalidArgument");
        assert!(error.to_string().contains("STRATAGRAPH_NO_SUCH_KEY"));
    }
}
