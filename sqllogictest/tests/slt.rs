//! Runs every suite under every config, and then compares the error codes that they provoked with
//! `docs/errors.md`. Arguments are those of `cargo test`. `UPDATE=1` writes expected results anew, as
//! the first config has them, or the one that the filter names.

use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

use libtest_mimic::{Arguments, Conclusion, Failed, Trial};
use stratagraph::embed::testing::server::FaultServer;
use stratagraph_sqllogictest::codes::Codes;
use stratagraph_sqllogictest::config::{CONFIGS, Config, configs_of};
use stratagraph_sqllogictest::suite;

/// Suites that run at a time; a suite has two threads itself.
const THREADS: usize = 2;

fn main() -> ExitCode {
    let mut arguments = Arguments::from_args();
    arguments.test_threads.get_or_insert(THREADS);
    let update = std::env::var_os("UPDATE").is_some_and(|value| value == "1");
    let codes = Arc::new(Codes::default());
    let filter = arguments.filter.as_deref().unwrap_or_default();
    let trials = match trials(&codes, update, filter) {
        Ok(trials) => trials,
        Err(problem) => {
            eprintln!("{problem}");
            return ExitCode::FAILURE;
        }
    };
    let conclusion = libtest_mimic::run(&arguments, trials);
    if conclusion.has_failed() || update || !is_whole(&arguments, &conclusion) {
        return conclusion.exit_code();
    }
    libtest_mimic::run(&arguments, vec![codes_trial(codes)]).exit_code()
}

/// Whether every suite ran, without which nothing can be said of codes that were not seen.
fn is_whole(arguments: &Arguments, conclusion: &Conclusion) -> bool {
    !arguments.list && conclusion.num_filtered_out == 0 && conclusion.num_ignored == 0
}

/// The config that expected results are written under.
fn writer(configs: &[&'static Config], filter: &str) -> &'static Config {
    let named = configs.iter().find(|config| filter.contains(config.name));
    named.or(configs.first()).copied().unwrap_or(&CONFIGS[0])
}

fn trials(codes: &Arc<Codes>, update: bool, filter: &str) -> Result<Vec<Trial>, String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("suites");
    let suites = suite::find(&root).map_err(|error| format!("{}: {error}", root.display()))?;
    let mut trials = Vec::new();
    for path in suites {
        let name = path
            .strip_prefix(&root)
            .unwrap_or(&path)
            .display()
            .to_string();
        let text = std::fs::read_to_string(&path).map_err(|error| format!("{name}: {error}"))?;
        let mut configs = configs_of(&text).map_err(|problem| format!("{name}: {problem}"))?;
        if update {
            configs = vec![writer(&configs, filter)];
        }
        let with_server = suite::names_server(&text);
        for config in configs {
            trials.push(trial(&name, &path, config, codes, with_server, update));
        }
    }
    if trials.is_empty() {
        return Err(format!("no suite below {}", root.display()));
    }
    Ok(trials)
}

fn trial(
    name: &str,
    path: &Path,
    config: &'static Config,
    codes: &Arc<Codes>,
    with_server: bool,
    update: bool,
) -> Trial {
    let codes = Arc::clone(codes);
    let path = path.to_owned();
    Trial::test(format!("{name} [{}]", config.name), move || {
        let server = with_server.then(start).transpose()?;
        let address = server.as_ref().map(FaultServer::url);
        suite::run(&path, config, codes, address, update)
    })
}

/// A server of vectors on this machine, which lives on a thread of its own.
fn start() -> std::io::Result<FaultServer> {
    let runtime = tokio::runtime::Builder::new_current_thread().build()?;
    Ok(runtime.block_on(FaultServer::start()))
}

fn codes_trial(codes: Arc<Codes>) -> Trial {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/errors.md");
    let is_absent = !path.exists();
    let trial = Trial::test("codes", move || {
        let document = std::fs::read_to_string(&path)?;
        codes.compare(&document).map_err(Failed::from)
    });
    trial.with_ignored_flag(is_absent)
}
