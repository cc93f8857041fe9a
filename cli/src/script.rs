//! Cuts a script into pieces that hold whole statements.

use datafusion::common::config::Dialect;
use datafusion::sql::sqlparser::dialect::dialect_from_str;
use datafusion::sql::sqlparser::tokenizer::{Token, Tokenizer};

/// Gathers lines until they end a statement.
#[derive(Debug, Default)]
pub(crate) struct Script {
    piece: String,
}

impl Script {
    /// Adds a line and returns the piece that it completes. Cut where a line ends in `;` outside
    /// quotes and comments, which the parser's own tokenizer decides, so that texts of other
    /// languages inside a string may hold `;` and `--`.
    pub(crate) fn push(&mut self, line: &str, dialect: Dialect) -> Option<String> {
        if self.is_blank() && line.starts_with("#!") {
            return None;
        }
        self.piece.push_str(line);
        self.piece.push('\n');
        if line.trim_end().ends_with(';') && ends_statement(&self.piece, dialect) {
            return self.finish();
        }
        None
    }

    /// Whether a statement has not begun.
    pub(crate) fn is_blank(&self) -> bool {
        self.piece.trim().is_empty()
    }

    /// What is left behind the last `;`.
    pub(crate) fn finish(&mut self) -> Option<String> {
        let piece = std::mem::take(&mut self.piece);
        (!piece.trim().is_empty()).then_some(piece)
    }
}

fn ends_statement(sql: &str, dialect: Dialect) -> bool {
    let Some(dialect) = dialect_from_str(dialect) else {
        // The parser names the dialects there are.
        return true;
    };
    let Ok(tokens) = Tokenizer::new(dialect.as_ref(), sql).tokenize() else {
        return false;
    };
    let mut significant = tokens
        .iter()
        .rev()
        .filter(|token| !matches!(token, Token::Whitespace(_)));
    significant.next() == Some(&Token::SemiColon)
}
