//! The command line: datafusion-cli's flags, and `--store`.

use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use clap::Parser;
use datafusion::DATAFUSION_VERSION;
use datafusion_cli::object_storage::instrumented::InstrumentedObjectStoreMode;
use datafusion_cli::object_storage::is_stdin_location;
use datafusion_cli::pool_type::PoolType;
use datafusion_cli::print_format::PrintFormat;
use datafusion_cli::print_options::MaxRows;

/// The version of the program, with that of the DataFusion inside.
pub(crate) static VERSION: LazyLock<String> = LazyLock::new(|| {
    let own = env!("CARGO_PKG_VERSION");
    format!("{own} (DataFusion {DATAFUSION_VERSION})")
});

const DEFAULT_STORE: &str = "stratagraph-data";

/// SQL over versioned embedding tables and property graphs.
#[derive(Debug, Parser)]
#[command(name = "stratagraph", version = VERSION.as_str())]
pub(crate) struct Args {
    /// Directory or URL (file, memory, s3, gs, az) of the store, made on first write
    /// [default: ./stratagraph-data]
    #[arg(long, value_name = "URL", env = "STRATAGRAPH_STORE", value_parser = parse_non_empty)]
    pub store: Option<String>,

    /// Directory to work in
    #[arg(short = 'p', long, value_name = "DIR", value_parser = parse_directory)]
    pub data_path: Option<PathBuf>,

    /// Rows in a batch [default: DataFusion's]
    #[arg(short = 'b', long, value_name = "ROWS", value_parser = parse_positive)]
    pub batch_size: Option<usize>,

    /// Run these statements, then exit; the first that fails ends the run
    #[arg(short = 'c', long, value_name = "SQL", num_args = 0.., value_parser = parse_non_empty)]
    pub command: Vec<String>,

    /// Run the statements of these files, then exit; the first that fails ends the run
    #[arg(short = 'f', long, value_name = "FILE", num_args = 0.., value_parser = parse_file)]
    pub file: Vec<PathBuf>,

    /// Run these files when the prompt starts [default: ~/.datafusionrc]
    #[arg(
        short = 'r',
        long,
        value_name = "FILE",
        num_args = 0..,
        value_parser = parse_file,
        conflicts_with = "file"
    )]
    pub rc: Option<Vec<PathBuf>>,

    /// Format of results
    #[arg(long, value_enum, default_value_t = PrintFormat::Automatic)]
    pub format: PrintFormat,

    /// Print results only
    #[arg(short = 'q', long)]
    pub quiet: bool,

    /// Rows that the table format shows: a number, or inf
    #[arg(long, value_name = "ROWS", default_value = "40")]
    pub maxrows: MaxRows,

    /// Highlight SQL at the prompt
    #[arg(long)]
    pub color: bool,

    /// Limit of the memory pool, such as 512m or 10g [default: none]
    #[arg(short = 'm', long, value_name = "SIZE", value_parser = parse_size)]
    pub memory_limit: Option<usize>,

    /// How the memory pool shares its limit: greedy or fair
    #[arg(long, value_name = "TYPE", default_value_t = PoolType::Greedy)]
    pub mem_pool_type: PoolType,

    /// Consumers named by an error of the memory pool; 0 turns their tracking off
    #[arg(long, value_name = "COUNT", default_value_t = 3)]
    pub top_memory_consumers: usize,

    /// Limit of spilled bytes on disk, such as 10g [default: DataFusion's]
    #[arg(short = 'd', long, value_name = "SIZE", value_parser = parse_size)]
    pub disk_limit: Option<usize>,

    /// What to print of calls to object stores: disabled, summary or trace
    #[arg(long, value_name = "MODE", default_value_t = InstrumentedObjectStoreMode::Disabled)]
    pub object_store_profiling: InstrumentedObjectStoreMode,
}

impl Args {
    /// Whether statements come from standard input, at a prompt or through a pipe.
    pub(crate) fn is_repl(&self) -> bool {
        self.command.is_empty() && self.file.is_empty()
    }

    /// Whether standard input holds statements, so that no table can read it.
    pub(crate) fn reads_sql_from_stdin(&self) -> bool {
        self.is_repl() || self.file.iter().any(|file| is_stdin(file))
    }

    /// Makes every path of the command line absolute, then enters the data directory. A store that
    /// is named is found from where the program was started, the default one in the data directory.
    pub(crate) fn enter_data_path(&mut self) -> std::io::Result<()> {
        if let Some(store) = self.store.as_mut().filter(|store| !is_url(store)) {
            *store = std::path::absolute(&store)?.to_string_lossy().into_owned();
        }
        for file in self.file.iter_mut().chain(self.rc.iter_mut().flatten()) {
            *file = std::path::absolute(&file)?;
        }
        if let Some(directory) = &self.data_path {
            std::env::set_current_dir(directory)?;
        }
        if self.store.is_none() {
            let store = std::path::absolute(DEFAULT_STORE)?;
            self.store = Some(store.to_string_lossy().into_owned());
        }
        Ok(())
    }
}

/// Whether `path` is another name of standard input.
pub(crate) fn is_stdin(path: &Path) -> bool {
    path.to_str().is_some_and(is_stdin_location)
}

fn is_url(store: &str) -> bool {
    store.contains("://")
}

fn parse_non_empty(text: &str) -> Result<String, String> {
    if text.trim().is_empty() {
        return Err("it is empty".to_owned());
    }
    Ok(text.to_owned())
}

fn parse_positive(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(number) if number > 0 => Ok(number),
        _ => Err("it is not a number above 0".to_owned()),
    }
}

fn parse_file(text: &str) -> Result<PathBuf, String> {
    let path = PathBuf::from(text);
    if path.is_file() || is_stdin(&path) {
        return Ok(path);
    }
    Err("no such file".to_owned())
}

fn parse_directory(text: &str) -> Result<PathBuf, String> {
    let path = PathBuf::from(text);
    if path.is_dir() {
        return Ok(path);
    }
    Err("no such directory".to_owned())
}

/// Bytes of a number with an optional unit `b`, `k`, `m`, `g` or `t`, the last four in powers of 1024
/// and with an optional `b` behind them.
fn parse_size(text: &str) -> Result<usize, String> {
    let text = text.trim().to_ascii_lowercase();
    let digits = text.len() - text.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    let (number, unit) = text.split_at(digits);
    let shift = match unit {
        "" | "b" => 0,
        "k" | "kb" => 10,
        "m" | "mb" => 20,
        "g" | "gb" => 30,
        "t" | "tb" => 40,
        _ => return Err("it is not a size such as 512m or 10g".to_owned()),
    };
    let number: usize = number
        .parse()
        .map_err(|_| "it is not a size such as 512m or 10g".to_owned())?;
    number
        .checked_mul(1 << shift)
        .ok_or_else(|| "it is too large".to_owned())
}
