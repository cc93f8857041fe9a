//! The documents that name tests name tests that exist, and no row of theirs is without: `docs/refresh.md`,
//! which says what proves each of its rows, and `docs/parity.md`, which says what asks here what OmniGraph's
//! tests ask.

use std::collections::BTreeMap;
use std::path::Path;

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/..");

/// What a document calls a file or a directory.
type Short = BTreeMap<String, String>;

fn document(name: &str) -> String {
    std::fs::read_to_string(Path::new(ROOT).join("docs").join(name)).unwrap()
}

/// The cells of the rows of all tables, without the lines under their heads.
fn rows(text: &str) -> Vec<(&str, Vec<&str>)> {
    let lines = text.lines().filter_map(|line| {
        let row = line
            .strip_prefix('|')
            .filter(|row| !row.starts_with("---"))?;
        Some((
            line,
            row.trim_end_matches('|')
                .split('|')
                .map(str::trim)
                .collect(),
        ))
    });
    lines.collect()
}

/// The texts in backticks.
fn tokens(cell: &str) -> Vec<&str> {
    cell.split('`').skip(1).step_by(2).collect()
}

/// The file that a name without its test means: `X` itself, `X/module`, or a path.
fn file(name: &str, short: &Short) -> String {
    let (first, rest) = name.split_once('/').map_or((name, ""), |(a, b)| (a, b));
    match (short.get(first), rest) {
        (None, _) => name.to_owned(),
        (Some(path), "") => path.clone(),
        (Some(path), rest) => format!("{path}/{rest}"),
    }
}

/// What is wrong with a name of a test, if anything.
fn problem(token: &str, short: &Short) -> Option<String> {
    let (name, wanted) = match (token.split_once("::"), token.split_once('#')) {
        (Some((file, name)), _) => (file, Some(format!("fn {name}("))),
        (_, Some((file, text))) if file.ends_with(".slt") => (file, Some(format!("# {text}\n"))),
        _ => (token, None),
    };
    let mut path = file(name, short);
    if wanted.is_some() && !path.ends_with(".slt") && !path.ends_with(".rs") {
        path.push_str(".rs");
    }
    let path = Path::new(ROOT).join(path);
    if wanted.is_none() {
        let exists = path.is_dir() || path.is_file();
        return (!exists).then(|| format!("{token}: neither a test nor a suite"));
    }
    match std::fs::read_to_string(path) {
        Err(error) => Some(format!("{token}: {error}")),
        Ok(text) => {
            let missing = wanted.filter(|wanted| !text.contains(wanted.as_str()));
            missing.map(|wanted| format!("{token}: the file has no {wanted:?}"))
        }
    }
}

#[test]
fn every_test_that_the_table_names_exists() {
    let text = document("refresh.md");
    let (mut found, mut problems) = (0, Vec::new());
    for (line, cells) in rows(&text) {
        let [what, tests] = cells[..] else {
            problems.push(format!("not two cells: {line}"));
            continue;
        };
        if tests == "proven by" {
            continue;
        }
        let tokens = tokens(tests);
        if tokens.is_empty() || tests.contains("none yet") {
            problems.push(format!("no test proves: {what}"));
        }
        found += tokens.len();
        for token in tokens {
            if !(token.contains(".rs::") || token.contains(".slt")) {
                problems.push(format!("{token}: neither a test function nor a suite"));
            }
            problems.extend(problem(token, &Short::new()));
        }
    }
    assert!(problems.is_empty(), "{}", problems.join("\n"));
    assert!(found >= 40, "{found} tests");
}

/// Words that begin a cell which says why there is no test.
const WHY: [&str; 2] = ["none: ", "the opposite: "];

#[test]
fn every_test_that_parity_names_exists() {
    let text = document("parity.md");
    let (mut short, mut found, mut problems) = (Short::new(), 0, Vec::new());
    for (line, cells) in rows(&text) {
        let ([what, ours] | [_, what, ours]) = cells[..] else {
            problems.push(format!("not two or three cells: {line}"));
            continue;
        };
        if ours == "ours" || ours == "means" {
            continue;
        }
        let tokens = tokens(ours);
        if let ([name], [path]) = (&self::tokens(what)[..], &tokens[..])
            && name.len() == 1
            && !path.contains("::")
        {
            short.insert((*name).to_owned(), (*path).to_owned());
            problems.extend(problem(name, &short).map(|_| format!("{path} is not there")));
            continue;
        }
        if tokens.is_empty() && !WHY.iter().any(|why| ours.starts_with(why)) {
            problems.push(format!("neither a test nor a reason: {what}"));
        }
        for token in tokens {
            // Names of tests, of suites and of what the table abbreviates; other code is prose.
            let first = token.split(['/', ':']).next().unwrap_or_default();
            let is_test =
                token.contains("::") || token.contains(".slt") || short.contains_key(first);
            if is_test {
                found += 1;
                problems.extend(problem(token, &short));
            } else if !WHY.iter().any(|why| ours.starts_with(why)) {
                problems.push(format!("{token}: names no test, in the row of {what}"));
            }
        }
    }
    assert!(problems.is_empty(), "{}", problems.join("\n"));
    assert!(short.len() > 10 && found > 300, "{found} tests");
}
