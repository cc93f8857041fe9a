//! `stratagraph`: datafusion-cli with the plugin installed on its session.

mod args;
mod catalogs;
mod guarded;
mod log;
mod program;
mod progress;
mod script;
mod session;

use std::process::ExitCode;

use clap::Parser;
use datafusion::error::Result;
use mimalloc::MiMalloc;
use tokio::sync::oneshot;

use crate::args::Args;
use crate::program::Program;

#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

/// What shells report of a program that Ctrl-C ended.
const INTERRUPTED: u8 = 130;

fn main() -> ExitCode {
    let mut args = Args::parse();
    log::start();
    let runtime = match args.enter_data_path().and_then(|()| start_runtime()) {
        Ok(runtime) => runtime,
        Err(error) => {
            eprintln!("Error: {error}");
            return ExitCode::FAILURE;
        }
    };
    let code = runtime.block_on(run(args)).unwrap_or_else(|error| {
        eprintln!("Error: {}", program::message(&error));
        ExitCode::FAILURE
    });
    // Work on blocking threads cannot be stopped and must not hold up the exit.
    runtime.shutdown_background();
    code
}

fn start_runtime() -> std::io::Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
}

async fn run(args: Args) -> Result<ExitCode> {
    let mut program = Program::start(&args).await?;
    if args.is_repl() && program::has_prompt() {
        program.run_prompt(args.rc).await?;
        return Ok(ExitCode::SUCCESS);
    }
    let interrupt = watch_interrupt();
    tokio::select! {
        result = program.run_batch(args) => result,
        Ok(()) = interrupt => {
            program.clear_progress();
            eprintln!("Error: interrupted");
            Ok(ExitCode::from(INTERRUPTED))
        }
    }
}

/// Tells of the first Ctrl-C, so that what runs is dropped in order. The second ends the program at
/// once, for work that does not give way.
fn watch_interrupt() -> oneshot::Receiver<()> {
    let (sender, receiver) = oneshot::channel();
    tokio::spawn(async move {
        if tokio::signal::ctrl_c().await.is_err() {
            return;
        }
        // Nobody listens when the program is about to end.
        let _ = sender.send(());
        if tokio::signal::ctrl_c().await.is_ok() {
            std::process::exit(i32::from(INTERRUPTED));
        }
    });
    receiver
}
