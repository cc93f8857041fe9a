//! What DML keeps to: the rules of the graph, one commit a statement, no effect before execution.

use stratagraph_udfs::{GraphAction, Options, find_error, install};

use super::support::*;

const PERSON: &str = "sg.g.\"Person\"";

#[tokio::test]
async fn the_rules_of_a_mutation_hold() {
    let world = people().await;
    for (sql, code) in [
        (
            "INSERT INTO {P} (name, age) VALUES ('dee', 151)",
            "RecordsInvalid",
        ),
        ("INSERT INTO {P} (age) VALUES (1)", "RecordsInvalid"),
        (
            "INSERT INTO {P} (id, name) VALUES ('x', 'y')",
            "RecordsInvalid",
        ),
        (
            "INSERT INTO {P} (name, email) VALUES ('dee', 'ann@x')",
            "RecordsInvalid",
        ),
        (
            "INSERT INTO {P} (name) VALUES ('dee'), ('dee')",
            "RecordsInvalid",
        ),
        ("INSERT INTO {P} (name) VALUES ('ann')", "KeyConflict"),
        ("UPDATE {P} SET age = 151", "RecordsInvalid"),
        ("UPDATE {P} SET email = 'same@x'", "RecordsInvalid"),
        (
            "UPDATE {P} SET name = 'x' WHERE name = 'ann'",
            "InvalidArgument",
        ),
        (
            "UPDATE {P} SET id = 'x' WHERE name = 'ann'",
            "InvalidArgument",
        ),
        (
            "UPDATE {K} SET dst = 'nobody' WHERE id = 'k1'",
            "RecordsInvalid",
        ),
        (
            "UPDATE {K} SET dst = NULL WHERE id = 'k1'",
            "RecordsInvalid",
        ),
        (
            "INSERT INTO {K} (src, dst) VALUES ('ann', 'nobody')",
            "RecordsInvalid",
        ),
        ("INSERT INTO {K} (src) VALUES ('ann')", "RecordsInvalid"),
        // A third home of ann's.
        (
            "INSERT INTO {L} (src, dst) SELECT 'ann', id FROM sg.g.\"Place\" UNION ALL \
             SELECT 'ann', id FROM sg.g.\"Place\"",
            "RecordsInvalid",
        ),
        // Edges would lose their nodes.
        (
            "INSERT OVERWRITE {P} (name) VALUES ('ann')",
            "RecordsInvalid",
        ),
        ("DELETE FROM {P} LIMIT 1", "NotYetSupported"),
        ("DELETE FROM {P} WHERE age > 1 LIMIT 1", "NotYetSupported"),
    ] {
        let sql = sql
            .replace("{P}", PERSON)
            .replace("{K}", "sg.g.\"Knows\"")
            .replace("{L}", "sg.g.\"Lives\"");
        assert_eq!(fails(&world, &sql).await, code, "{sql}");
    }
    // Values that free each other are exchanged in one statement.
    done(
        &world,
        &format!("UPDATE {PERSON} SET email = 'bo@x' WHERE name = 'bo'"),
    )
    .await;
    let exchange = format!(
        "UPDATE {PERSON} SET email = CASE name WHEN 'ann' THEN 'bo@x' ELSE 'ann@x' END \
         WHERE name IN ('ann', 'bo')"
    );
    assert_eq!(done(&world, &exchange).await, 2);
}

#[tokio::test]
async fn ids_are_made_where_the_type_makes_them() {
    let world = people().await;
    let sql = "INSERT INTO sg.g.\"Place\" (title) VALUES ('Park'), ('Shop')";
    assert_eq!(done(&world, sql).await, 2);
    let sql = "INSERT INTO sg.g.\"Place\" (floor, id, title) VALUES (3, 'own', 'Tower')";
    assert_eq!(done(&world, sql).await, 1);
    let sql = "INSERT INTO sg.g.\"Knows\" (dst, src) SELECT 'bo', name FROM sg.g.\"Person\"";
    assert_eq!(done(&world, sql).await, 3);
    let found = world
        .row("SELECT count(DISTINCT id) || '' FROM sg.g.\"Knows\"")
        .await;
    assert_eq!(found, ["6"]);
    let ids = world
        .row("SELECT count(*) || ' ' || min(length(id)) FROM sg.g.\"Place\" WHERE id NOT IN ('h', 'own')")
        .await;
    assert_eq!(ids, ["2 26"]);
    let overwrite = "INSERT OVERWRITE sg.g.\"Knows\" (id, src, dst, since) \
        SELECT id, dst, src, 1 FROM sg.g.\"Knows\" WHERE id = 'k1'";
    assert_eq!(done(&world, overwrite).await, 1);
    assert_eq!(rows(&world, "Knows").await, ["k1 bo ann 1"]);
    assert_eq!(done(&world, "TRUNCATE TABLE sg.g.\"Knows\"").await, 1);
    assert!(rows(&world, "Knows").await.is_empty());
}

/// The commit of a statement counts as a mutation does: nodes and edges that were written or deleted.
#[tokio::test]
async fn commits_say_what_a_statement_did() {
    let world = people().await;
    world.sql("SET stratagraph.actor = 'agent-7'").await;
    for (sql, rows, nodes, edges) in [
        (format!("DELETE FROM {PERSON} WHERE name = 'ann'"), 1, 1, 3),
        (
            format!("REPLACE INTO {PERSON} (name) VALUES ('bo'), ('dee')"),
            2,
            2,
            0,
        ),
        (format!("UPDATE {PERSON} SET age = 1"), 3, 3, 0),
        (
            "INSERT OVERWRITE sg.g.\"Knows\" (src, dst) VALUES ('cy', 'dee')".to_owned(),
            1,
            0,
            2,
        ),
    ] {
        assert_eq!(done(&world, &sql).await, rows, "{sql}");
        let state = snapshot(&world.sg).await;
        let counts = &state.current.counts;
        assert_eq!(
            (counts["affected_nodes"], counts["affected_edges"]),
            (nodes, edges),
            "{sql}"
        );
        assert_eq!(
            state.current.commit.actor.as_deref(),
            Some("agent-7"),
            "{sql}"
        );
        let kind = "SELECT kind FROM commits('g') ORDER BY version DESC LIMIT 1";
        assert_eq!(world.row(kind).await, ["mutate"]);
    }
    // What changes nothing makes no commit.
    let before = version(&world.sg).await;
    for sql in [
        format!("DELETE FROM {PERSON} WHERE false"),
        format!("UPDATE {PERSON} SET age = 2 WHERE age > 99"),
        format!("INSERT INTO {PERSON} SELECT * FROM {PERSON} WHERE false"),
        "INSERT OVERWRITE sg.g.\"Place\" SELECT * FROM sg.g.\"Place\" WHERE false".to_owned(),
    ] {
        let code = match sql.starts_with("INSERT OVERWRITE") {
            // Places have edges.
            true => fails(&world, &sql).await,
            false => {
                assert_eq!(done(&world, &sql).await, 0, "{sql}");
                "none"
            }
        };
        assert_eq!(code == "none", !sql.starts_with("INSERT OVERWRITE"));
        assert_eq!(version(&world.sg).await, before, "{sql}");
    }
}

#[tokio::test]
async fn nothing_happens_before_execution() {
    let world = people().await;
    let before = version(&world.sg).await;
    for sql in [
        format!("INSERT INTO {PERSON} (name) VALUES ('dee')"),
        format!("UPDATE {PERSON} SET age = 1"),
        format!("DELETE FROM {PERSON}"),
        format!(
            "MERGE INTO {PERSON} p USING (VALUES ('ann')) s(k) ON p.name = s.k WHEN MATCHED THEN DELETE"
        ),
    ] {
        for explain in ["EXPLAIN", "EXPLAIN VERBOSE", "EXPLAIN FORMAT TREE"] {
            let plan = world
                .sql(&format!("{explain} {sql}"))
                .await
                .concat()
                .join("\n");
            assert!(plan.contains("WriteExec"), "{plan}");
        }
        let frame = world.ctx.sql(&sql).await.unwrap();
        frame.create_physical_plan().await.unwrap();
        world.sql("SET stratagraph.allow_writes = false").await;
        assert_eq!(fails(&world, &sql).await, "WritesNotAllowed");
        world.sql("SET stratagraph.allow_writes = true").await;
    }
    assert_eq!(version(&world.sg).await, before);
    let sql = format!("EXPLAIN ANALYZE UPDATE {PERSON} SET age = 1");
    let plan = world.sql(&sql).await.concat().join("\n");
    assert!(plan.contains("affected_rows=3"), "{plan}");
    assert_eq!(version(&world.sg).await, before + 1);
}

#[tokio::test]
async fn statements_are_prepared_with_parameters() {
    let world = people().await;
    for sql in [
        "PREPARE ins AS INSERT INTO sg.g.\"Person\" (name, age) VALUES ($1, $2)",
        "PREPARE upd (INT, VARCHAR) AS UPDATE sg.g.\"Person\" SET age = $1 WHERE name = $2",
        "PREPARE del (INT) AS DELETE FROM sg.g.\"Person\" WHERE age IN (SELECT $1)",
    ] {
        world.sql(sql).await;
    }
    for (sql, count) in [
        ("EXECUTE ins ('dee', 5)", 1),
        ("EXECUTE ins ('eve', 6)", 1),
        ("EXECUTE upd (7, 'dee')", 1),
        ("EXECUTE upd (8, 'nobody')", 0),
        ("EXECUTE del (7)", 1),
        ("EXECUTE del (7)", 0),
    ] {
        assert_eq!(done(&world, sql).await, count, "{sql}");
    }
    let left = world
        .sql("SELECT name, age FROM sg.g.\"Person\" WHERE name > 'd'")
        .await;
    assert_eq!(left, [["eve", "6"]]);
    // A frame that is collected twice does its work twice.
    let frame = world
        .ctx
        .sql("UPDATE sg.g.\"Person\" SET age = age + 1 WHERE name = 'eve'")
        .await
        .unwrap();
    frame.clone().collect().await.unwrap();
    frame.collect().await.unwrap();
    assert_eq!(
        world
            .row("SELECT age FROM sg.g.\"Person\" WHERE name = 'eve'")
            .await,
        ["8"]
    );
}

const DOCS: &str = r#"
node Doc {
    name: String @key
    text: String?
    v: Vector(16)? @embed("text", model="counting")
}
"#;

#[tokio::test]
async fn vectors_are_made_where_the_session_says_so() {
    let world = world(DOCS).await;
    let with = "SELECT name FROM sg.g.\"Doc\" WHERE v IS NOT NULL ORDER BY name";
    done(
        &world,
        "INSERT INTO sg.g.\"Doc\" (name, text) VALUES ('a', 'one')",
    )
    .await;
    assert!(world.sql(with).await.is_empty());
    world.sql("SET stratagraph.embed = 'fill'").await;
    done(
        &world,
        "INSERT INTO sg.g.\"Doc\" (name, text) VALUES ('b', 'two')",
    )
    .await;
    assert_eq!(world.sql(with).await.concat(), ["b"]);
    assert_eq!(world.model.rows(), 1);
    // Another text has another vector, also where the old one is named.
    let of = |name: &str| format!("SELECT v FROM sg.g.\"Doc\" WHERE name = '{name}'");
    let before = world.row(&of("b")).await;
    done(
        &world,
        "UPDATE sg.g.\"Doc\" SET text = 'three' WHERE name = 'b'",
    )
    .await;
    assert_ne!(world.row(&of("b")).await, before);
    assert_eq!(world.model.rows(), 2);
    let after = world.row(&of("b")).await;
    done(
        &world,
        "UPDATE sg.g.\"Doc\" SET text = 'four', v = v WHERE name = 'b'",
    )
    .await;
    assert_ne!(world.row(&of("b")).await, after);
}

#[tokio::test]
async fn a_branch_is_changed_alone() {
    let world = people().await;
    let branch = "sg.\"g@b\".\"Person\"";
    assert_eq!(
        world
            .row(&format!("DELETE FROM {branch} WHERE name <> 'ann'"))
            .await,
        ["2"]
    );
    assert_eq!(
        world.sql(&format!("SELECT name FROM {branch}")).await,
        [["ann"]]
    );
    assert_eq!(
        world.sql(&format!("SELECT name FROM {PERSON}")).await.len(),
        3
    );
    // From one branch to another, in one snapshot of both.
    let back = format!("INSERT INTO {branch} SELECT * FROM {PERSON} WHERE name = 'bo'");
    assert_eq!(world.row(&back).await, ["1"]);
    // The past does not change.
    let commit = snapshot(&world.sg).await.commit_id().to_owned();
    let past = format!("UPDATE {PERSON} x WITH (snapshot = '{commit}') SET age = 1");
    assert_eq!(fails(&world, &past).await, "ReadOnlyTable");
}

#[tokio::test]
async fn the_host_is_asked_before_anything_changes() {
    let ctx = datafusion::prelude::SessionContext::new();
    let options = Options::new("memory:///authorize").authorize(|access| {
        let guest = access.actor == Some("guest");
        match (guest, access.action, access.branch) {
            (true, GraphAction::Change | GraphAction::BranchMerge, "main") => {
                Err("main is for reviewers".to_owned())
            }
            (true, GraphAction::SchemaApply | GraphAction::BranchDelete, _) => {
                Err("ask an owner".to_owned())
            }
            _ => Ok(()),
        }
    });
    let sg = install(&ctx, options).await.unwrap();
    sg.graph_create("g", SCHEMA).await.unwrap();
    load(&sg, &person("ann", "\"age\": 1"), Append)
        .await
        .unwrap();
    let run = async |sql: &str| match ctx.sql(sql).await {
        Ok(frame) => frame.collect().await.map(drop),
        Err(error) => Err(error),
    };
    run("SET stratagraph.actor = 'guest'").await.unwrap();
    let before = version(&sg).await;
    let record = person("bo", "").replace('\'', "''");
    let path = std::env::temp_dir().join(format!("authorize-{}.jsonl", std::process::id()));
    std::fs::write(&path, &record).unwrap();
    let load_sql = format!(
        "SELECT * FROM graph_load('g', '{}', 'merge')",
        path.display()
    );
    for sql in [
        "INSERT INTO sg.g.\"Person\" (name) VALUES ('bo')",
        "DELETE FROM sg.g.\"Person\"",
        "SELECT * FROM graph_mutate('g', 'query m() { insert Person { name: \"bo\" } }')",
        "SELECT * FROM graph_load_table('g', 'Person', (SELECT 'bo' AS name), 'merge')",
        load_sql.as_str(),
        "SELECT * FROM graph_create('h', 'node N { name: String @key }')",
        "SELECT * FROM graph_drop('g')",
        "SELECT * FROM graph_apply_schema('g', 'node N { name: String @key }')",
    ] {
        let error = run(sql).await.unwrap_err();
        let found = find_error(&error).map(stratagraph::Error::code);
        assert_eq!(found, Some("Denied"), "{sql}: {error}");
    }
    assert_eq!(version(&sg).await, before);
    // A guest works on branches.
    run("SELECT * FROM graph_branch_create('g', 'draft')")
        .await
        .unwrap();
    run("INSERT INTO sg.\"g@draft\".\"Person\" (name) VALUES ('bo')")
        .await
        .unwrap();
    for sql in [
        "SELECT * FROM graph_branch_merge('g', 'draft', 'main')",
        "SELECT * FROM graph_branch_delete('g', 'draft')",
    ] {
        let error = run(sql).await.unwrap_err();
        let found = find_error(&error).map(stratagraph::Error::code);
        assert_eq!(found, Some("Denied"), "{sql}");
    }
    assert_eq!(version(&sg).await, before);
    // A call that names its actor is judged by it.
    run("SELECT * FROM graph_mutate('g', 'query m() { insert Person { name: \"bo\" } }', actor => 'owner')")
        .await
        .unwrap();
    run("SET stratagraph.actor = ''").await.unwrap();
    run("SELECT * FROM graph_branch_merge('g', 'draft', 'main')")
        .await
        .unwrap();
    std::fs::remove_file(path).unwrap();
}
