//! `SET stratagraph.*`: what a session may say. No secret is ever a setting.

use std::any::Any;
use std::time::Duration;

use datafusion::common::config::{ConfigEntry, ConfigExtension, ConfigOptions, ExtensionOptions};
use datafusion::error::Result;
use stratagraph::embed::{default_model, parse_spec};
use stratagraph::graph::topology::TraversalMode;
use stratagraph::limits;

use crate::error::{bad_argument, to_datafusion};

/// How a plain `ORDER BY distance LIMIT k` is answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum AnnMode {
    /// By every row.
    #[default]
    Exact,
    /// By an index where one covers the column.
    Auto,
}

/// The settings of a session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// Whether verbs and DML may write.
    pub allow_writes: bool,
    /// How old a catalog snapshot may be before a statement looks at the store again.
    pub max_staleness: Duration,
    /// How distance ordering is answered.
    pub ann: AnnMode,
    /// The model of calls that name none.
    pub default_model: String,
    /// How traversals look up neighbours. The answers are the same.
    pub traversal: TraversalMode,
    /// Bytes of one line of a graph load.
    pub line_bytes: usize,
    /// Whether DML on graphs makes the vectors with `@embed` that rows lack from their text.
    pub fill_vectors: bool,
    /// Who makes the commits of DML, as their history says.
    pub actor: Option<String>,
    /// Whether scans report statistics. Off makes a scan count and compare rows itself.
    pub statistics: bool,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            allow_writes: true,
            max_staleness: Duration::ZERO,
            ann: AnnMode::Exact,
            default_model: default_model().to_owned(),
            traversal: TraversalMode::Auto,
            line_bytes: limits::LINE_BYTES,
            fill_vectors: false,
            actor: None,
            statistics: true,
        }
    }
}

impl Settings {
    /// The settings of a session; the defaults where `install` did not run.
    pub fn of(options: &ConfigOptions) -> Self {
        options
            .extensions
            .get::<Self>()
            .cloned()
            .unwrap_or_default()
    }
}

impl ConfigExtension for Settings {
    const PREFIX: &'static str = "stratagraph";
}

fn flag(key: &str, value: &str) -> Result<bool> {
    match value.trim().to_ascii_lowercase().as_str() {
        "true" | "on" | "1" => Ok(true),
        "false" | "off" | "0" => Ok(false),
        _ => Err(bad_argument("SET", key, "expected true or false")),
    }
}

/// Seconds, or a number with `ms`, `s` or `m`.
fn span(key: &str, value: &str) -> Result<Duration> {
    const LIMIT: u64 = 86_400_000;
    let text = value.trim().to_ascii_lowercase();
    let (digits, unit) = if let Some(digits) = text.strip_suffix("ms") {
        (digits, 1)
    } else if let Some(digits) = text.strip_suffix('s') {
        (digits, 1_000)
    } else if let Some(digits) = text.strip_suffix('m') {
        (digits, 60_000)
    } else {
        (text.as_str(), 1_000)
    };
    let plain = digits.trim();
    let millis = Some(plain)
        .filter(|p| p.bytes().all(|b| b.is_ascii_digit()))
        .and_then(|p| p.parse::<u64>().ok())
        .and_then(|n| n.checked_mul(unit))
        .filter(|n| *n <= LIMIT);
    millis.map(Duration::from_millis).ok_or_else(|| {
        bad_argument(
            "SET",
            key,
            "expected seconds, or a number with ms, s or m, up to a day",
        )
    })
}

impl ExtensionOptions for Settings {
    fn as_any(&self) -> &dyn Any {
        self
    }

    fn as_any_mut(&mut self) -> &mut dyn Any {
        self
    }

    fn cloned(&self) -> Box<dyn ExtensionOptions> {
        Box::new(self.clone())
    }

    fn set(&mut self, key: &str, value: &str) -> Result<()> {
        // FFI hosts pass the key with its prefix.
        let short = key.strip_prefix("stratagraph.").unwrap_or(key);
        let name = format!("stratagraph.{short}");
        match short {
            "allow_writes" => self.allow_writes = flag(&name, value)?,
            "statistics" => self.statistics = flag(&name, value)?,
            "default_model" => {
                // A spec with a secret does not parse, so none can be shown again.
                self.default_model = parse_spec(value).map_err(to_datafusion)?.to_string();
            }
            "max_staleness" => self.max_staleness = span(&name, value)?,
            "line_bytes" => {
                let most = limits::LINE_BYTES_MOST;
                let bytes = value.trim().parse().ok();
                let bytes = bytes.filter(|bytes| (1..=most).contains(bytes));
                let expected = format!("expected a number of bytes from 1 to {most}");
                self.line_bytes = bytes.ok_or_else(|| bad_argument("SET", &name, expected))?;
            }
            "traversal" => {
                let modes = [
                    TraversalMode::Auto,
                    TraversalMode::Index,
                    TraversalMode::Adjacency,
                ];
                let text = value.trim().to_ascii_lowercase();
                let mode = modes.into_iter().find(|mode| mode.to_string() == text);
                let expected = "expected auto, index or adjacency";
                self.traversal = mode.ok_or_else(|| bad_argument("SET", &name, expected))?;
            }
            "embed" => {
                self.fill_vectors = match value.trim().to_ascii_lowercase().as_str() {
                    "none" => false,
                    "fill" => true,
                    _ => return Err(bad_argument("SET", &name, "expected none or fill")),
                }
            }
            "actor" => {
                let most = limits::ACTOR_BYTES;
                let expected = format!("expected up to {most} bytes");
                if value.len() > most {
                    return Err(bad_argument("SET", &name, expected));
                }
                self.actor = (!value.is_empty()).then(|| value.to_owned());
            }
            "ann" => {
                self.ann = match value.trim().to_ascii_lowercase().as_str() {
                    "exact" => AnnMode::Exact,
                    "auto" => AnnMode::Auto,
                    _ => return Err(bad_argument("SET", &name, "expected exact or auto")),
                }
            }
            _ => {
                return Err(bad_argument(
                    "SET",
                    &name,
                    "no such setting; see docs/sql.md",
                ));
            }
        }
        Ok(())
    }

    fn entries(&self) -> Vec<ConfigEntry> {
        // `SHOW` compares whole keys, so they carry the prefix, which the derive macro leaves out.
        let entry = |key: &str, value: String, description: &'static str| ConfigEntry {
            key: format!("stratagraph.{key}"),
            value: Some(value),
            description,
        };
        let ann = match self.ann {
            AnnMode::Exact => "exact",
            AnnMode::Auto => "auto",
        };
        let millis = self.max_staleness.as_millis();
        let staleness = if millis.is_multiple_of(1_000) {
            format!("{}", millis / 1_000)
        } else {
            format!("{millis}ms")
        };
        vec![
            entry(
                "allow_writes",
                self.allow_writes.to_string(),
                "Whether verbs and DML may write",
            ),
            entry(
                "max_staleness",
                staleness,
                "Seconds that a catalog snapshot may be old before a statement looks again",
            ),
            entry(
                "ann",
                ann.to_owned(),
                "exact: distance ordering reads every row; auto: indexes may answer it",
            ),
            entry(
                "default_model",
                self.default_model.clone(),
                "The embedding model of calls that name none",
            ),
            entry(
                "line_bytes",
                self.line_bytes.to_string(),
                "Bytes that one line of a graph load may have",
            ),
            entry(
                "traversal",
                self.traversal.to_string(),
                "auto: neighbours are looked up the cheaper way; index, adjacency: always this way",
            ),
            entry(
                "embed",
                if self.fill_vectors { "fill" } else { "none" }.to_owned(),
                "fill: DML on graphs makes the vectors that rows lack from their text",
            ),
            entry(
                "actor",
                self.actor.clone().unwrap_or_default(),
                "Who makes the commits of DML on graphs, as their history says",
            ),
            entry(
                "statistics",
                self.statistics.to_string(),
                "Whether scans report row counts and bounds to the optimizer",
            ),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::find_error;

    #[test]
    fn values_are_checked() {
        let mut settings = Settings::default();
        settings.set("max_staleness", "250ms").unwrap();
        assert_eq!(settings.max_staleness, Duration::from_millis(250));
        settings.set("stratagraph.allow_writes", "OFF").unwrap();
        assert!(!settings.allow_writes);
        settings.set("ann", "auto").unwrap();
        settings.set("default_model", " HASH:0016 ").unwrap();
        assert_eq!(settings.default_model, "hash:16");
        for (key, value) in [
            ("max_staleness", "-1"),
            ("max_staleness", "99999999999999999999"),
            ("max_staleness", ""),
            ("allow_writes", "maybe"),
            ("ann", "fast"),
            ("default_model", "openai:m@https://user:s3cr3t@h/v1"),
            ("default_model", "hash:x"),
            ("traversal", "fast"),
            ("embed", "all"),
            ("line_bytes", "0"),
            ("line_bytes", "1073741825"),
            ("nothing", "1"),
        ] {
            let error = settings.set(key, value).unwrap_err();
            assert_eq!(
                find_error(&error).map(stratagraph::Error::code),
                Some("InvalidArgument"),
                "{key}={value}"
            );
            assert!(!error.to_string().contains("s3cr3t"));
        }
        assert_eq!(settings.ann, AnnMode::Auto);
    }
}
