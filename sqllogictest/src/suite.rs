//! Finds suites and runs them.

use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use libtest_mimic::Failed;
use sqllogictest::{
    Injected, MakeConnection, Record, Runner, default_validator, parse_file,
    strict_column_validator, update_record_with_output,
};
use tempfile::TempDir;

use crate::codes::Codes;
use crate::config::Config;
use crate::connection::{Connection, Place, SERVER};
use crate::render::Letter;

/// Every `*.slt` below `directory`, in order of name.
///
/// # Errors
/// A directory that cannot be read.
pub fn find(directory: &Path) -> std::io::Result<Vec<PathBuf>> {
    let mut suites = Vec::new();
    let mut directories = vec![directory.to_owned()];
    while let Some(directory) = directories.pop() {
        for entry in std::fs::read_dir(directory)? {
            let path = entry?.path();
            if path.is_dir() {
                directories.push(path);
            } else if path.extension().is_some_and(|extension| extension == "slt") {
                suites.push(path);
            }
        }
    }
    suites.sort();
    Ok(suites)
}

/// Whether the suite with this text needs a server.
pub fn names_server(text: &str) -> bool {
    text.contains(SERVER)
}

/// Runs the suite at `path` in a new directory, or writes its expected results anew. `server` is the
/// address of a server that is this run's own.
///
/// # Errors
/// The first record that did not do what it should.
pub fn run(
    path: &Path,
    config: &Config,
    codes: Arc<Codes>,
    server: Option<String>,
    update: bool,
) -> Result<(), Failed> {
    let directory = TempDir::new()?;
    let place = Place::new(directory.path(), server);
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()?;
    let records = parse_file::<Letter>(path)?;
    refuse_swallowed(&records)?;
    runtime.block_on(async {
        let mut runner =
            Runner::new(|| Connection::open(config.session(), place.clone(), Arc::clone(&codes)));
        runner.with_column_validator(strict_column_validator);
        runner.with_normalizer(normalize);
        runner.add_label(config.name);
        let result = if update {
            rewrite(path, records, &mut runner, &place).await
        } else {
            check(records, &mut runner, &place).await
        };
        runner.shutdown_async().await;
        result
    })
}

/// The output of a command ends with two empty lines: with one, the rest of the suite is taken for
/// it, and would be lost when results are written anew.
fn refuse_swallowed(records: &[Record<Letter>]) -> Result<(), Failed> {
    for record in records {
        if let Record::System {
            loc,
            stdout: Some(stdout),
            ..
        } = record
            && stdout.contains("\n\n")
        {
            return Err(format!("two empty lines must follow the output of {loc}").into());
        }
    }
    Ok(())
}

/// Blanks at the end of a line do not count.
#[expect(clippy::ptr_arg, reason = "the runner's type")]
fn normalize(text: &String) -> String {
    text.trim_end().to_owned()
}

async fn check<M: MakeConnection<Conn = Connection>>(
    records: Vec<Record<Letter>>,
    runner: &mut Runner<Connection, M>,
    place: &Place,
) -> Result<(), Failed> {
    for record in records {
        if matches!(record, Record::Halt { .. }) {
            break;
        }
        runner.run_async(fill(record, place)).await?;
    }
    Ok(())
}

/// As [`Runner::update_test_file`], with the name of the directory left in the text. Included files
/// run and stay as they are.
async fn rewrite<M: MakeConnection<Conn = Connection>>(
    path: &Path,
    records: Vec<Record<Letter>>,
    runner: &mut Runner<Connection, M>,
    place: &Place,
) -> Result<(), Failed> {
    let mut text = String::new();
    let mut included = 0;
    let mut is_halted = false;
    for record in records {
        match record {
            Record::Injected(Injected::BeginInclude(_)) => included += 1,
            Record::Injected(Injected::EndInclude(_)) => included -= 1,
            record => {
                is_halted |= matches!(record, Record::Halt { .. });
                let updated = if is_halted {
                    None
                } else {
                    let output = runner.apply_record(fill(record.clone(), place)).await;
                    update_record_with_output(
                        &record,
                        &output,
                        " ",
                        default_validator,
                        normalize,
                        strict_column_validator,
                    )
                };
                if included == 0 {
                    writeln!(text, "{}", updated.unwrap_or(record))?;
                }
            }
        }
    }
    text.truncate(text.trim_end().len());
    text.push('\n');
    std::fs::write(path, text)?;
    Ok(())
}

/// Puts the directory and the server in. The runner's own variable of this name is another directory, and works
/// only while its substitution is on, which `$` in texts of other languages forbids.
fn fill(mut record: Record<Letter>, place: &Place) -> Record<Letter> {
    let text = match &mut record {
        Record::Statement { sql, .. } | Record::Query { sql, .. } | Record::Let { sql, .. } => sql,
        Record::System { command, .. } => command,
        _ => return record,
    };
    *text = place.fill(text);
    record
}
