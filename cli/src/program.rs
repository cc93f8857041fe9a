//! Runs statements from the command line, from files, from a pipe and at a prompt.

use std::fs::File;
use std::io::{BufRead, BufReader, IsTerminal, Read, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use datafusion::common::config::Dialect;
use datafusion::error::{DataFusionError, Result};
use datafusion_cli::command::{Command, OutputFormat};
use datafusion_cli::exec;
use datafusion_cli::object_storage::instrumented::InstrumentedObjectStoreRegistry;
use datafusion_cli::print_format::PrintFormat;
use datafusion_cli::print_options::{MaxRows, PrintOptions};
use tokio::sync::mpsc;

use crate::args::{self, Args};
use crate::guarded::Guarded;
use crate::progress::Bar;
use crate::script::Script;
use crate::session;

/// Lines of a pipe that may wait for the statement before them.
const LINES_AHEAD: usize = 64;

/// A session and how its results are printed.
pub(crate) struct Program {
    ctx: Guarded,
    print: PrintOptions,
    bar: Arc<Bar>,
}

/// Whether somebody types the statements.
pub(crate) fn has_prompt() -> bool {
    std::io::stdin().is_terminal()
}

/// datafusion-cli 55.2 leaves out what comes after `maxrows` rows in every format, without a word; the limit
/// is one of tables for people.
fn complete(print: &PrintOptions) -> PrintOptions {
    let maxrows = match print.format {
        PrintFormat::Table | PrintFormat::Automatic => print.maxrows,
        _ => MaxRows::Unlimited,
    };
    PrintOptions {
        maxrows,
        ..print.clone()
    }
}

/// What to print of a failure: DataFusion's words, with the code of a typed error in brackets.
pub(crate) fn message(error: &DataFusionError) -> String {
    let text = error.strip_backtrace();
    match stratagraph_udfs::find_error(error) {
        Some(typed) if !text.contains(&format!("[{}]", typed.code())) => format!("{typed}: {text}"),
        _ => text,
    }
}

impl Program {
    /// Opens the session and prints what runs, unless it should be quiet.
    pub(crate) async fn start(args: &Args) -> Result<Self> {
        let store = args.store.as_deref().unwrap_or_default();
        if !args.quiet {
            writeln!(std::io::stdout(), "Stratagraph {}", *args::VERSION)?;
        }
        let stores = Arc::new(
            InstrumentedObjectStoreRegistry::new().with_profile_mode(args.object_store_profiling),
        );
        let bar = Arc::new(Bar::new(args.quiet));
        let ctx = session::open(args, store, Arc::clone(&stores), Arc::clone(&bar) as _).await?;
        let print = PrintOptions {
            format: args.format,
            quiet: args.quiet,
            maxrows: args.maxrows,
            color: args.color,
            instrumented_registry: stores,
        };
        Ok(Self {
            ctx: Guarded(ctx),
            print,
            bar,
        })
    }

    /// Takes a bar that was left behind off the screen.
    pub(crate) fn clear_progress(&self) {
        self.bar.clear();
    }

    /// Runs the files and then the statements of the command line, up to the first that fails. With
    /// neither, runs what is piped in as a prompt would: a failure is printed, and remembered for the
    /// exit status.
    pub(crate) async fn run_batch(&mut self, args: Args) -> Result<ExitCode> {
        if args.is_repl() {
            return self.run_startup_and_pipe(args.rc).await;
        }
        for file in args.file {
            self.run_file(file).await?;
        }
        for command in args.command {
            self.execute(command).await?;
        }
        Ok(ExitCode::SUCCESS)
    }

    /// Runs the start-up files and then datafusion-cli's prompt.
    pub(crate) async fn run_prompt(&mut self, rc: Option<Vec<PathBuf>>) -> Result<()> {
        for file in startup_files(rc) {
            let lines = read_lines(open(&file)?);
            self.run_lines(lines).await?;
        }
        self.print = complete(&self.print);
        exec::exec_from_repl(&self.ctx, &mut self.print)
            .await
            .map_err(|error| DataFusionError::External(Box::new(error)))
    }

    async fn run_startup_and_pipe(&mut self, rc: Option<Vec<PathBuf>>) -> Result<ExitCode> {
        let mut code = ExitCode::SUCCESS;
        for file in startup_files(rc) {
            let lines = read_lines(open(&file)?);
            if !self.run_lines(lines).await? {
                code = ExitCode::FAILURE;
            }
        }
        if !self.run_lines(read_lines(std::io::stdin())).await? {
            code = ExitCode::FAILURE;
        }
        Ok(code)
    }

    async fn run_file(&mut self, file: PathBuf) -> Result<()> {
        let mut lines = if args::is_stdin(&file) {
            read_lines(std::io::stdin())
        } else {
            read_lines(open(&file)?)
        };
        let mut script = Script::default();
        while let Some(line) = lines.recv().await {
            if let Some(piece) = script.push(&line?, self.dialect()) {
                self.execute(piece).await?;
            }
        }
        match script.finish() {
            Some(piece) => self.execute(piece).await,
            None => Ok(()),
        }
    }

    /// Runs statements and prompt commands, prints failures and goes on. Returns whether all went
    /// well.
    async fn run_lines(&mut self, mut lines: Lines) -> Result<bool> {
        let mut script = Script::default();
        let mut went_well = true;
        while let Some(line) = lines.recv().await {
            let line = line?;
            let result = match line.strip_prefix('\\').filter(|_| script.is_blank()) {
                Some("q") => return Ok(went_well),
                Some(command) => self.execute_command(command).await,
                None => match script.push(&line, self.dialect()) {
                    Some(piece) => self.execute(piece).await,
                    None => continue,
                },
            };
            went_well &= print_failure(result);
        }
        if let Some(piece) = script.finish() {
            went_well &= print_failure(self.execute(piece).await);
        }
        Ok(went_well)
    }

    async fn execute(&self, sql: String) -> Result<()> {
        let print = complete(&self.print);
        let result = exec::exec_from_commands(&self.ctx, vec![sql], &print).await;
        self.bar.clear();
        result
    }

    async fn execute_command(&mut self, text: &str) -> Result<()> {
        let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
        let unknown = || {
            DataFusionError::Execution(format!(
                "'\\{text}' is not a command; \\? lists those that are"
            ))
        };
        match text.parse::<Command>() {
            Ok(Command::OutputFormat(Some(format))) => format
                .parse::<OutputFormat>()
                .map_err(|()| unknown())?
                .execute(&mut self.print),
            Ok(Command::OutputFormat(None)) => {
                let format = self.print.format;
                Ok(writeln!(std::io::stdout(), "Output format is {format:?}.")?)
            }
            Ok(command) => command.execute(&self.ctx, &mut self.print).await,
            Err(()) => Err(unknown()),
        }
    }

    fn dialect(&self) -> Dialect {
        let state = self.ctx.0.state_ref();
        let state = state.read();
        state.config_options().sql_parser.dialect
    }
}

fn print_failure(result: Result<()>) -> bool {
    match result {
        Ok(()) => true,
        Err(error) => {
            eprintln!("Error: {}", message(&error));
            false
        }
    }
}

fn startup_files(rc: Option<Vec<PathBuf>>) -> Vec<PathBuf> {
    rc.unwrap_or_else(|| {
        let file = std::env::home_dir().map(|home| home.join(".datafusionrc"));
        file.into_iter().filter(|file| file.exists()).collect()
    })
}

fn open(file: &PathBuf) -> Result<File> {
    File::open(file).map_err(|error| {
        DataFusionError::Execution(format!("cannot open {}: {error}", file.display()))
    })
}

type Lines = mpsc::Receiver<std::io::Result<String>>;

/// The lines of `source`, read on a thread of their own: a pipe that has nothing to say must not keep
/// Ctrl-C from being heard.
fn read_lines(source: impl Read + Send + 'static) -> Lines {
    let (sender, receiver) = mpsc::channel(LINES_AHEAD);
    tokio::task::spawn_blocking(move || {
        for line in BufReader::new(source).lines() {
            if sender.blocking_send(line).is_err() {
                return;
            }
        }
    });
    receiver
}
