//! The session settings that suites run under.

use datafusion::prelude::SessionConfig;

/// A suite whose first line starts so runs only under the configs named behind it.
const RESTRICTION: &str = "# configs:";

/// A named set of session settings.
#[derive(Debug, PartialEq, Eq)]
pub struct Config {
    /// Its name, which is also a label for `onlyif` and `skipif`.
    pub name: &'static str,
    partitions: usize,
    /// Filters evaluated inside the Parquet scan, and joins that sort and merge where the default
    /// hashes: plans whose defects the default settings hide.
    is_pushdown: bool,
}

/// All of them; the first is the one that expected results are written under.
pub const CONFIGS: [Config; 4] = [
    Config::new("default", 4, false),
    Config::new("pushdown-1", 1, true),
    Config::new("pushdown-2", 2, true),
    Config::new("pushdown-7", 7, true),
];

impl Config {
    const fn new(name: &'static str, partitions: usize, is_pushdown: bool) -> Self {
        Self {
            name,
            partitions,
            is_pushdown,
        }
    }

    /// The settings.
    pub fn session(&self) -> SessionConfig {
        let mut config = SessionConfig::new()
            .with_information_schema(true)
            .with_target_partitions(self.partitions);
        let options = config.options_mut();
        options.execution.parquet.pushdown_filters = self.is_pushdown;
        options.optimizer.prefer_hash_join = !self.is_pushdown;
        config
    }
}

/// The configs of the suite with this text.
///
/// # Errors
/// A restriction that names a config that there is not, or none.
pub fn configs_of(text: &str) -> Result<Vec<&'static Config>, String> {
    let Some(names) = text
        .lines()
        .next()
        .and_then(|line| line.strip_prefix(RESTRICTION))
    else {
        return Ok(CONFIGS.iter().collect());
    };
    let configs: Vec<_> = names
        .split_whitespace()
        .map(|name| {
            let known = CONFIGS.iter().find(|config| config.name == name);
            known.ok_or_else(|| format!("no config is named {name}"))
        })
        .collect::<Result<_, _>>()?;
    if configs.is_empty() {
        return Err(format!("no name follows {RESTRICTION:?}"));
    }
    Ok(configs)
}
