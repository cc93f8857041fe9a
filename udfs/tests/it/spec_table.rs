//! `docs/refresh.md` names the tests that prove each of its rows: they exist, and no row is without.

use std::path::Path;

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/..");
const TABLE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/refresh.md");

/// What is wrong with a name of a test, if anything.
fn problem(token: &str) -> Option<String> {
    let (file, wanted) = match (token.split_once("::"), token.split_once('#')) {
        (Some((file, name)), _) if file.ends_with(".rs") => (file, Some(format!("fn {name}("))),
        (_, Some((file, text))) if file.ends_with(".slt") => (file, Some(format!("# {text}\n"))),
        _ if token.ends_with(".slt") => (token, None),
        _ => return Some(format!("{token}: neither a test function nor a suite")),
    };
    match std::fs::read_to_string(Path::new(ROOT).join(file)) {
        Err(error) => Some(format!("{token}: {error}")),
        Ok(text) => {
            let missing = wanted.filter(|wanted| !text.contains(wanted.as_str()));
            missing.map(|wanted| format!("{token}: the file has no {wanted:?}"))
        }
    }
}

#[test]
fn every_test_that_the_table_names_exists() {
    let (mut found, mut problems) = (0, Vec::new());
    for line in std::fs::read_to_string(TABLE).unwrap().lines() {
        let Some(row) = line.strip_prefix('|').filter(|row| !row.starts_with("---")) else {
            continue;
        };
        let cells: Vec<&str> = row.trim_end_matches('|').split('|').collect();
        let [what, tests] = cells[..] else {
            problems.push(format!("not two cells: {line}"));
            continue;
        };
        if tests.trim() == "proven by" {
            continue;
        }
        let tokens: Vec<&str> = tests.split('`').skip(1).step_by(2).collect();
        if tokens.is_empty() || tests.contains("none yet") {
            problems.push(format!("no test proves: {}", what.trim()));
        }
        found += tokens.len();
        problems.extend(tokens.into_iter().filter_map(problem));
    }
    assert!(problems.is_empty(), "{}", problems.join("\n"));
    assert!(found >= 40, "{found} tests");
}
