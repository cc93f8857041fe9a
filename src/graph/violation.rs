//! Records that break the schema of a graph.

use std::fmt;

/// One record that breaks one rule.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Violation {
    /// Number of the record: its line, from 1; 0 for a row that the load did not bring.
    pub record: u64,
    /// Its type, or empty.
    pub type_name: String,
    /// Its id, or empty where it has none.
    pub id: String,
    /// The rule: `syntax`, `type`, `required`, `enum`, `range`, `check`, `key`, `unique`,
    /// `reference`, `cardinality`.
    pub rule: &'static str,
    /// What is wrong and what would be right.
    pub message: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            record,
            type_name,
            id,
            rule,
            message,
        } = self;
        match record {
            0 => f.write_str("stored")?,
            record => write!(f, "record {record}")?,
        }
        if !type_name.is_empty() {
            write!(f, ", {type_name}")?;
        }
        if !id.is_empty() {
            write!(f, " {id:?}")?;
        }
        write!(f, ": {rule}: {message}")
    }
}

/// Violations in a fixed order; `Display` gives one a line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violations(pub Vec<Violation>);

impl fmt::Display for Violations {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, violation) in self.0.iter().enumerate() {
            if at > 0 {
                f.write_str("\n")?;
            }
            write!(f, "{violation}")?;
        }
        Ok(())
    }
}
