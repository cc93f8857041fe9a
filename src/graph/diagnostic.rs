//! What is wrong with a text in one of the languages, where, and what to do about it.

use std::fmt;
use std::ops::Range;

/// One finding in a schema or a query.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Diagnostic {
    /// Stable code: `S...` for schemas, `Q...` for the syntax of queries, `T...` for their types.
    pub code: &'static str,
    /// What is wrong.
    pub message: String,
    /// Bytes of the text that it is about.
    pub span: Range<usize>,
    /// Line of its first byte, from 1.
    pub line: usize,
    /// Column of its first byte in characters, from 1.
    pub column: usize,
    /// One change that helps.
    pub fix: String,
}

impl Diagnostic {
    /// A finding about `span` of `text`.
    pub fn new(
        text: &str,
        span: Range<usize>,
        code: &'static str,
        message: impl Into<String>,
        fix: impl Into<String>,
    ) -> Self {
        let before = text.get(..span.start).unwrap_or(text);
        let line_start = before.rfind('\n').map_or(0, |at| at + 1);
        Self {
            code,
            message: message.into(),
            line: before.matches('\n').count() + 1,
            column: before[line_start..].chars().count() + 1,
            span,
            fix: fix.into(),
        }
    }
}

impl fmt::Display for Diagnostic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            code,
            message,
            line,
            column,
            fix,
            ..
        } = self;
        write!(f, "{code} at {line}:{column}: {message}; {fix}")
    }
}

/// Findings in the order of their places; `Display` gives one a line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Diagnostics(pub Vec<Diagnostic>);

impl fmt::Display for Diagnostics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, diagnostic) in self.0.iter().enumerate() {
            if at > 0 {
                f.write_str("\n")?;
            }
            write!(f, "{diagnostic}")?;
        }
        Ok(())
    }
}
