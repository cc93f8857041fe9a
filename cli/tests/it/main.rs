//! The program from outside: its flags, its output and its exit status.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod identity;

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Output, Stdio};

use tempfile::TempDir;

/// A verb that writes, so that it makes the store.
const WRITE: &str = "CREATE TABLE docs AS SELECT 'a' AS id, 'some text' AS body;
    SELECT * FROM generate_embeddings('docs', 'hash:16', 'body', 'id')";

/// A program that works in `directory` and finds no settings of whoever runs the test.
fn program(directory: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_stratagraph"));
    command
        .current_dir(directory)
        .env("HOME", directory)
        .env_remove("STRATAGRAPH_STORE")
        .stdin(Stdio::null());
    command
}

fn run(directory: &Path, arguments: &[&str]) -> Output {
    program(directory).args(arguments).output().unwrap()
}

fn pipe(directory: &Path, arguments: &[&str], input: &str) -> Output {
    let mut child = program(directory)
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(input.as_bytes()).unwrap();
    drop(stdin);
    child.wait_with_output().unwrap()
}

fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

#[track_caller]
fn assert_prints(output: &Output, expected: &str) {
    assert_eq!(stdout(output), expected, "stderr: {}", stderr(output));
    assert_eq!(output.status.code(), Some(0));
}

#[track_caller]
fn assert_fails_with(output: &Output, words: &str) {
    assert_eq!(output.status.code(), Some(1), "stdout: {}", stdout(output));
    assert!(stderr(output).contains(words), "{}", stderr(output));
}

#[test]
fn version_names_datafusion() {
    let directory = TempDir::new().unwrap();
    let version = stdout(&run(directory.path(), &["--version"]));
    assert!(version.starts_with("stratagraph 0."), "{version}");
    assert!(version.contains("(DataFusion 55."), "{version}");
}

#[test]
fn banner_and_row_counts_are_printed_unless_quiet() {
    let directory = TempDir::new().unwrap();
    let loud = stdout(&run(directory.path(), &["-c", "SELECT 1 AS one"]));
    assert!(loud.starts_with("Stratagraph 0."), "{loud}");
    assert!(loud.contains("1 row(s) fetched"), "{loud}");
    let quiet = run(directory.path(), &["-q", "-c", "SELECT 1 AS one"]);
    assert_prints(&quiet, "+-----+\n| one |\n+-----+\n| 1   |\n+-----+\n");
}

#[test]
fn formats() {
    let directory = TempDir::new().unwrap();
    let sql = "SELECT 1 AS a, 'x' AS b";
    for (format, expected) in [
        ("csv", "a,b\n1,x\n"),
        ("tsv", "a\tb\n1\tx\n"),
        ("json", "[{\"a\":1,\"b\":\"x\"}]\n"),
        ("nd-json", "{\"a\":1,\"b\":\"x\"}\n"),
        (
            "table",
            "+---+---+\n| a | b |\n+---+---+\n| 1 | x |\n+---+---+\n",
        ),
    ] {
        let output = run(directory.path(), &["-q", "--format", format, "-c", sql]);
        assert_prints(&output, expected);
    }
}

/// datafusion-cli left out all batches after the fortieth row.
#[test]
fn formats_for_programs_have_all_rows() {
    let directory = tempfile::tempdir().unwrap();
    for format in ["csv", "tsv", "json", "nd-json"] {
        let sql = "SELECT * FROM generate_series(101, 300)";
        let arguments = ["-q", "--format", format, "-b", "10", "-c", sql];
        let output = run(directory.path(), &arguments);
        for row in 101..=300 {
            assert!(
                stdout(&output).contains(&row.to_string()),
                "{row} in {format}"
            );
        }
    }
}

/// DataFusion lost rows of joins whose tables have columns of one name.
#[test]
fn joins_of_tables_with_equal_names_have_all_rows() {
    let directory = tempfile::tempdir().unwrap();
    let edge = |of: &str, id: &str, from: &str, to: &str| {
        format!(
            "{{\"edge\":\"{of}\",\"from\":\"{from}\",\"to\":\"{to}\",\"data\":{{\"id\":\"{id}\"}}}}\n"
        )
    };
    let node =
        |of: &str, name: &str| format!("{{\"type\":\"{of}\",\"data\":{{\"name\":\"{name}\"}}}}\n");
    let (mut first, mut second) = (String::new(), String::new());
    for name in ["a0", "a1", "a2"] {
        first += &node("A", name);
        first += &node("B", &name.replace('a', "b"));
    }
    for (id, from, to) in [("k2", "a0", "a2"), ("k3", "a1", "a1"), ("k4", "a2", "a1")] {
        first += &edge("K", id, from, to);
    }
    for (id, from, to) in [("k5", "a0", "a0"), ("k6", "a1", "a2"), ("k8", "a2", "a0")] {
        first += &edge("K", id, from, to);
    }
    for (id, from, to) in [("k0", "a1", "a0"), ("k1", "a2", "a2")] {
        second += &edge("K", id, from, to);
    }
    second += &edge("L", "l2", "a0", "b1");
    std::fs::write(directory.path().join("1.jsonl"), first).unwrap();
    std::fs::write(directory.path().join("2.jsonl"), second).unwrap();
    let joined = "SELECT DISTINCT v1.id FROM sg.g.\"A\" v0, sg.g.\"A\" v1, sg.g.\"A\" v2, sg.g.\"B\" v3, \
        (SELECT DISTINCT src, dst FROM sg.g.\"K\") h0, (SELECT src, dst FROM sg.g.\"K\") b1, \
        (SELECT DISTINCT src, dst FROM sg.g.\"L\") h2 WHERE h0.src = v1.id AND h0.dst = v0.id \
        AND b1.src = v1.id AND b1.dst = v2.id AND h2.src = v2.id AND h2.dst = v3.id ORDER BY 1";
    let sql = format!(
        "SET datafusion.execution.target_partitions = 7; \
         SELECT graph FROM graph_create('g', 'node A {{ name: String @key }} node B {{ name: String @key }} \
         edge K: A -> A edge L: A -> B'); \
         SELECT nodes_loaded FROM graph_load('g', '1.jsonl', 'overwrite'); \
         SELECT nodes_loaded FROM graph_load('g', '2.jsonl', 'append'); {joined};"
    );
    let output = run(directory.path(), &["-q", "--format", "csv", "-c", &sql]);
    assert!(stdout(&output).ends_with("a0\na1\na2\n"), "{output:?}");
}

#[test]
fn commands_share_a_session_and_stop_at_the_first_failure() {
    let directory = TempDir::new().unwrap();
    let csv = ["-q", "--format", "csv", "-c"];
    let shared = [
        "CREATE TABLE t AS SELECT 1 AS a; INSERT INTO t VALUES (2)",
        "-c",
        "SELECT sum(a) AS s FROM t",
    ];
    let output = run(directory.path(), &[&csv[..], &shared[..]].concat());
    assert_prints(&output, "count\n1\ns\n3\n");

    let failing = [
        "SELECT 1 AS a",
        "-c",
        "SELECT * FROM nowhere",
        "-c",
        "SELECT 2",
    ];
    let output = run(directory.path(), &[&csv[..], &failing[..]].concat());
    assert_fails_with(&output, "nowhere");
    assert_eq!(stdout(&output), "a\n1\n");

    let output = run(directory.path(), &["-c", "SELEC 1"]);
    assert_fails_with(&output, "SELEC");
    let output = run(
        directory.path(),
        &["-q", "-c", "SELECT 1 / (a - a) FROM (VALUES (1)) v(a)"],
    );
    assert_fails_with(&output, "Divide by zero");
}

#[test]
fn wrong_flags_are_refused() {
    let directory = TempDir::new().unwrap();
    for arguments in [
        &["-f", "missing.sql"][..],
        &["-p", "missing"],
        &["-m", "lots"],
        &["-m", "99999999999t"],
        &["-b", "0"],
        &["-c", " "],
        &["--store", ""],
        &["--format", "xml"],
        &["--maxrows", "few"],
    ] {
        let output = run(directory.path(), arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
    }
}

#[test]
fn files_hold_statements_over_many_lines() {
    let directory = TempDir::new().unwrap();
    let script = "#!/usr/bin/env stratagraph\n\
        -- a comment; with a semicolon;\n\
        SELECT 1 AS a, -- another;\n\
        \x20      'x;\n\
        -- kept;\n\
        it''s' AS b;\n\
        /* a block;\n\
        comment; */\n\
        SELECT $$one; 'two\n\
        three;$$ AS c; SELECT 2 AS d;\n\
        SELECT 3 AS e\n";
    std::fs::write(directory.path().join("script.sql"), script).unwrap();
    let output = run(
        directory.path(),
        &["-q", "--format", "nd-json", "-f", "script.sql"],
    );
    let expected = "{\"a\":1,\"b\":\"x;\\n-- kept;\\nit's\"}\n\
        {\"c\":\"one; 'two\\nthree;\"}\n{\"d\":2}\n{\"e\":3}\n";
    assert_prints(&output, expected);
}

#[test]
fn a_file_stops_at_the_first_failure() {
    let directory = TempDir::new().unwrap();
    let script = "SELECT 1 AS a;\nSELECT * FROM nowhere;\nSELECT 2 AS b;\n";
    std::fs::write(directory.path().join("script.sql"), script).unwrap();
    std::fs::write(directory.path().join("next.sql"), "SELECT 3 AS c;").unwrap();
    let output = run(
        directory.path(),
        &[
            "-q",
            "--format",
            "csv",
            "-f",
            "script.sql",
            "next.sql",
            "-c",
            "SELECT 4",
        ],
    );
    assert_fails_with(&output, "nowhere");
    assert_eq!(stdout(&output), "a\n1\n");

    let arguments = ["-q", "--format", "csv", "-f", "/dev/stdin"];
    let output = pipe(directory.path(), &arguments, script);
    assert_fails_with(&output, "nowhere");
    assert_eq!(stdout(&output), "a\n1\n");
}

#[test]
fn a_pipe_goes_on_after_a_failure_and_remembers_it() {
    let directory = TempDir::new().unwrap();
    let script = "SELECT 1 AS a;\nSELECT * FROM nowhere;\n\\pset format json\n\\nonsense\n\
        SELECT 2\n  AS b;\n\\q\nSELECT 3 AS c;\n";
    let output = pipe(directory.path(), &["-q", "--format", "csv"], script);
    assert_fails_with(&output, "nowhere");
    assert!(
        stderr(&output).contains("\\nonsense"),
        "{}",
        stderr(&output)
    );
    assert_eq!(
        stdout(&output),
        "a\n1\nOutput format is Json.\n[{\"b\":2}]\n"
    );

    let output = pipe(
        directory.path(),
        &["-q", "--format", "csv"],
        "SELECT 1 AS a",
    );
    assert_prints(&output, "a\n1\n");
}

#[test]
fn startup_files_run_before_what_is_piped_in() {
    let directory = TempDir::new().unwrap();
    let table = "CREATE TABLE t AS SELECT 7 AS a;";
    std::fs::write(directory.path().join(".datafusionrc"), table).unwrap();
    std::fs::write(
        directory.path().join("other"),
        "CREATE TABLE t AS SELECT 8 AS a;",
    )
    .unwrap();
    let sql = "SELECT a FROM t;";
    let output = pipe(directory.path(), &["-q", "--format", "csv"], sql);
    assert_prints(&output, "a\n7\n");
    let output = pipe(
        directory.path(),
        &["-q", "--format", "csv", "-r", "other"],
        sql,
    );
    assert_prints(&output, "a\n8\n");
}

#[test]
fn session_flags_reach_the_session() {
    let directory = TempDir::new().unwrap();
    let show = "SHOW datafusion.execution.batch_size";
    let output = run(
        directory.path(),
        &["-q", "--format", "csv", "-b", "17", "-c", show],
    );
    assert_prints(&output, "name,value\ndatafusion.execution.batch_size,17\n");

    let rows = "SELECT * FROM (VALUES (1), (2), (3)) v(a)";
    let output = stdout(&run(directory.path(), &["--maxrows", "1", "-c", rows]));
    assert!(output.contains("First 1 displayed"), "{output}");

    let sort = "SELECT value FROM generate_series(1, 100000) ORDER BY value % 7";
    for pool in ["greedy", "fair"] {
        let flags = ["-m", "10k", "--mem-pool-type", pool, "-d", "1m", "-c", sort];
        assert_fails_with(&run(directory.path(), &flags), "Resources exhausted");
    }

    for function in ["metadata_cache", "statistics_cache", "list_files_cache"] {
        let sql = format!("SELECT count(*) AS n FROM {function}()");
        let output = run(directory.path(), &["-q", "--format", "csv", "-c", &sql]);
        assert_prints(&output, "n\n0\n");
    }
}

#[test]
fn files_are_tables_outside_the_plugin() {
    let directory = TempDir::new().unwrap();
    std::fs::create_dir(directory.path().join("data")).unwrap();
    std::fs::write(directory.path().join("data/t.csv"), "a,b\n1,2\n").unwrap();
    std::fs::write(directory.path().join("q.sql"), "SELECT * FROM 't.csv';").unwrap();
    let arguments = ["-q", "--format", "csv", "-p", "data", "-f", "q.sql"];
    assert_prints(&run(directory.path(), &arguments), "a,b\n1,2\n");

    let sql = "SELECT * FROM sg.embeddings.\"t.csv\"";
    let output = run(directory.path(), &["-p", "data", "-c", sql]);
    assert_eq!(output.status.code(), Some(1), "{}", stdout(&output));
}

#[test]
fn failures_carry_their_code() {
    let directory = TempDir::new().unwrap();
    let sql = "SELECT * FROM refresh_embeddings('nope')";
    assert_fails_with(&run(directory.path(), &["-c", sql]), "[NotFound]");
    let output = pipe(directory.path(), &[], &format!("{sql};\n"));
    assert_fails_with(&output, "[NotFound]");
    assert!(
        !directory.path().join("stratagraph-data").exists(),
        "a failed read made the store"
    );
}

#[test]
fn the_store_is_where_it_was_asked_for() {
    let directory = TempDir::new().unwrap();
    let at = |name: &str| directory.path().join(name);
    assert!(run(directory.path(), &["-c", WRITE]).status.success());
    assert!(at("stratagraph-data").is_dir());

    let mut command = program(directory.path());
    command
        .env("STRATAGRAPH_STORE", "from-env")
        .args(["-c", WRITE]);
    assert!(command.output().unwrap().status.success());
    assert!(at("from-env").is_dir());

    let mut command = program(directory.path());
    command.env("STRATAGRAPH_STORE", "unused");
    command.args(["--store", "from-flag", "-c", WRITE]);
    assert!(command.output().unwrap().status.success());
    assert!(at("from-flag").is_dir() && !at("unused").exists());

    std::fs::create_dir(at("data")).unwrap();
    let relative = run(
        directory.path(),
        &["-p", "data", "--store", "named", "-c", WRITE],
    );
    assert!(relative.status.success());
    assert!(at("named").is_dir() && !at("data/named").exists());
    assert!(
        run(directory.path(), &["-p", "data", "-c", WRITE])
            .status
            .success()
    );
    assert!(at("data/stratagraph-data").is_dir());
}

#[cfg(unix)]
#[test]
fn ctrl_c_ends_a_statement() {
    let directory = TempDir::new().unwrap();
    let endless = "SELECT sum(value % 7) FROM generate_series(1, 1000000000000)";
    let mut child = program(directory.path())
        .args(["-q", "--format", "csv", "-c", "SELECT 1", "-c", endless])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // Its first result shows that the program listens.
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    while lines.next().unwrap().unwrap() != "1" {}
    let pid = child.id().to_string();
    assert!(
        Command::new("kill")
            .args(["-INT", &pid])
            .status()
            .unwrap()
            .success()
    );
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130));
    assert!(stderr(&output).contains("interrupted"));
}
