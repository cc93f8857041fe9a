//! What a graph can do after each kind of change: loads, mutations, queries, DML-free reads, branches.

use stratagraph::graph::violation::Violation;
use stratagraph_udfs::{ApplySchema, GraphMerge, GraphMutate, SchemaStepRow};

use crate::graph_mutate::support::*;
use crate::world::World;

async fn apply(world: &World, text: &str) -> Vec<String> {
    let steps = world
        .sg
        .graph_apply_schema(&ApplySchema::new("g", text))
        .await;
    let steps = steps.unwrap_or_else(|error| panic!("{text}\n{error}"));
    assert_whole(&world.sg).await;
    kinds(steps)
}

fn kinds(steps: Vec<SchemaStepRow>) -> Vec<String> {
    steps.into_iter().map(|step| step.kind).collect()
}

/// The violations of a schema that stored rows break; nothing is changed.
async fn broken(world: &World, text: &str) -> Vec<(String, String, &'static str)> {
    let before = version(&world.sg).await;
    let error = world
        .sg
        .graph_apply_schema(&ApplySchema::new("g", text))
        .await
        .unwrap_err();
    assert_eq!(version(&world.sg).await, before);
    let row = |v: Violation| (v.type_name, v.id, v.rule);
    violations(error).into_iter().map(row).collect()
}

fn changed(part: &str, by: &str) -> String {
    assert!(SCHEMA.contains(part), "{part}");
    SCHEMA.replacen(part, by, 1)
}

#[tokio::test]
async fn new_properties_are_null_in_old_rows_and_there_in_new_ones() {
    let world = people().await;
    let more = changed(
        "status:",
        "nick: String? @unique tags: [String]? v: Vector(2)? status:",
    );
    assert_eq!(
        apply(&world, &more).await,
        [
            "add_property",
            "add_property",
            "add_property",
            "add_constraint"
        ]
    );
    let record = person("dan", "\"nick\": \"d\", \"tags\": [\"x\"], \"v\": [1, 0]");
    load(&world.sg, &record, Append).await.unwrap();
    done(
        &world.sg,
        call("update Person set { nick: \"a\" } where name = \"ann\""),
    )
    .await;
    let rows = world
        .sql("SELECT name, age, nick, tags, v FROM sg.g.\"Person\" ORDER BY id")
        .await;
    let rows: Vec<String> = rows.into_iter().map(|row| row.join(" ")).collect();
    assert_eq!(
        rows,
        [
            "ann 30 a NULL NULL",
            "bo 40 NULL NULL NULL",
            "cy NULL NULL NULL NULL",
            "dan NULL d [x] [1.0, 0.0]"
        ]
    );
    // Filters and aggregates over a column that old files do not have.
    for (sql, expected) in [
        (
            "SELECT count(*) FROM sg.g.\"Person\" WHERE nick IS NULL",
            "2",
        ),
        ("SELECT count(nick) FROM sg.g.\"Person\"", "2"),
        (
            "SELECT max(nick) FROM sg.g.\"Person\" WHERE nick > 'a'",
            "d",
        ),
        (
            "SELECT min(age) FROM sg.g.\"Person\" WHERE nick IS NULL",
            "40",
        ),
    ] {
        assert_eq!(world.sql(sql).await.concat(), [expected], "{sql}");
    }
    let twice = breaks(
        &world.sg,
        call("insert Person { name: \"eve\", nick: \"d\" }"),
    )
    .await;
    assert_eq!(twice, [("Person".into(), "eve".into(), "unique")]);
    let found = "SELECT name FROM vector_search('g.Person', 'v', [1.0, 0.0], 3)";
    assert_eq!(world.sql(found).await.concat(), ["dan"]);
    let reach = "SELECT id, distance FROM graph_reach('g', 'Knows', 'ann', 1, 2) ORDER BY id";
    assert_eq!(world.sql(reach).await.len(), 2);
}

#[tokio::test]
async fn constraints_are_proved_by_stored_rows() {
    let world = people().await;
    for (part, by, expected) in [
        (
            "age: I32? @range(0..150)",
            "age: I32 @range(0..150)",
            vec![("Person", "cy", "required")],
        ),
        (
            "@range(0..150)",
            "@range(0..35)",
            vec![("Person", "bo", "range")],
        ),
        (
            "name: String @key",
            "name: String @key @check(\"^[a-b]\")",
            vec![("Person", "cy", "check")],
        ),
        (
            "floor: I64?",
            "floor: I64? @check(title, \"x\")",
            vec![("Place", "h", "check")],
        ),
        (
            "@card(0..2)",
            "@card(2..2)",
            vec![
                ("Lives", "ann", "cardinality"),
                ("Lives", "bo", "cardinality"),
            ],
        ),
        (
            "note: String?",
            "note: String? @unique(dst)",
            vec![("Lives", "l2", "unique")],
        ),
    ] {
        let found = broken(&world, &changed(part, by)).await;
        let expected: Vec<_> = expected
            .into_iter()
            .map(|(a, b, c)| (a.to_owned(), b.to_owned(), c))
            .collect();
        assert_eq!(found, expected, "{by}");
    }
    // What holds is accepted, and holds from then on.
    let strict = changed(
        "age: I32? @range(0..150)",
        "age: I32? @range(30..40) @unique",
    )
    .replace("since: I32?", "since: I32? @unique(src, dst)")
    .replace("@card(0..2)", "@card(1..1)");
    apply(&world, &strict).await;
    let age = breaks(&world.sg, call("insert Person { name: \"eve\", age: 41 }")).await;
    assert_eq!(age, [("Person".into(), "eve".into(), "range")]);
    let again = breaks(&world.sg, call("insert Person { name: \"eve\", age: 30 }")).await;
    assert_eq!(again, [("Person".into(), "eve".into(), "unique")]);
    let both = breaks(
        &world.sg,
        call("insert Knows { from: \"ann\", to: \"bo\" }"),
    )
    .await;
    assert_eq!(both.len(), 1);
    let two = breaks(&world.sg, call("insert Lives { from: \"ann\", to: \"h\" }")).await;
    assert!(two.iter().any(|v| v.2 == "cardinality"), "{two:?}");
    // And no more, once it is gone.
    apply(&world, SCHEMA).await;
    done(
        &world.sg,
        call("insert Person { name: \"eve\", age: 30 } insert Knows { from: \"ann\", to: \"bo\" }"),
    )
    .await;
}

#[tokio::test]
async fn a_required_property_becomes_optional_and_back() {
    let world = world(SCHEMA).await;
    load(
        &world.sg,
        &lines(&[place("h", "Home", 1), place("w", "Work", 2)]),
        Append,
    )
    .await
    .unwrap();
    assert_eq!(
        apply(&world, &changed("title: String", "title: String?")).await,
        ["drop_constraint"]
    );
    done(&world.sg, call("insert Place { floor: 3 }")).await;
    assert_eq!(broken(&world, SCHEMA).await.len(), 1);
    done(
        &world.sg,
        call("update Place set { title: \"Shop\" } where title is null"),
    )
    .await;
    assert_eq!(apply(&world, SCHEMA).await, ["add_constraint"]);
    let titles = world
        .sql("SELECT title FROM sg.g.\"Place\" ORDER BY 1")
        .await;
    assert_eq!(titles.concat(), ["Home", "Shop", "Work"]);
    let without = call("insert Place { floor: 4 }");
    assert_eq!(fails(&world.sg, without).await, "QueryInvalid");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_renamed_type_is_the_same_rows_now_and_then() {
    let world = people().await;
    let before = snapshot(&world.sg).await.commit_id().to_owned();
    let renamed = SCHEMA
        .replace("node Person {", "node Human @rename_from(\"Person\") {")
        .replace("Person", "Human")
        .replace("rename_from(\"Human\")", "rename_from(\"Person\")")
        .replace("age: I32?", "years: I32? @rename_from(\"age\")")
        + "node Person { name: String @key }";
    assert_eq!(
        apply(&world, &renamed).await,
        ["rename_type", "rename_property", "add_type"]
    );
    let names = async |of: &str| {
        let rows = world.sql(&format!("SELECT * FROM {of} ORDER BY id")).await;
        rows.into_iter()
            .map(|row| row[1..3].join(" "))
            .collect::<Vec<_>>()
    };
    assert_eq!(
        names("sg.g.\"Human\"").await,
        ["ann 30", "bo 40", "cy NULL"]
    );
    // The new type of the old name has none of its rows.
    assert!(names("sg.g.\"Person\"").await.is_empty());
    done(&world.sg, call("insert Human { name: \"dan\", years: 5 } insert Person { name: \"x\" } insert Knows { from: \"dan\", to: \"ann\" }")).await;
    // The past is read under the new name, in the columns that it had.
    let past = format!("sg.g.\"Human\" WITH (snapshot = '{before}')");
    assert_eq!(names(&past).await, ["ann 30", "bo 40", "cy NULL"]);
    let sql = format!("SELECT count(years) FROM {past}");
    assert_eq!(world.sql(&sql).await.concat(), ["2"]);
    let sql = format!("SELECT * FROM sg.g.\"Person\" WITH (snapshot = '{before}')");
    let error = world.ctx.sql(&sql).await;
    let failed = match error {
        Ok(frame) => frame.collect().await.unwrap_err(),
        Err(error) => error,
    };
    assert_eq!(
        stratagraph_udfs::find_error(&failed).unwrap().code(),
        "SchemaChanged"
    );
    // A query of the past is one of its own schema.
    let query = |of: &str| {
        format!(
            "SELECT * FROM graph_query('g', 'query q() {{ match {{ $p: {of} }} return {{ $p.name }} order {{ $p.name }} }}', snapshot => '{before}')"
        )
    };
    assert_eq!(
        world.sql(&query("Person")).await.concat(),
        ["ann", "bo", "cy"]
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn dropped_data_stays_in_the_history_and_comes_back_empty() {
    let world = people().await;
    let before = snapshot(&world.sg).await.commit_id().to_owned();
    let without = changed("    age: I32? @range(0..150)\n", "");
    assert_eq!(
        apply(&world, &without).await,
        ["drop_property", "drop_constraint"]
    );
    done(&world.sg, call("insert Person { name: \"dan\" }")).await;
    assert_eq!(
        apply(&world, SCHEMA).await,
        ["add_property", "add_constraint"]
    );
    let ages = "SELECT count(*), count(age) FROM sg.g.\"Person\"";
    assert_eq!(world.sql(ages).await.concat(), ["4", "0"]);
    let past =
        format!("SELECT count(*), count(age) FROM sg.g.\"Person\" WITH (snapshot = '{before}')");
    assert_eq!(world.sql(&past).await.concat(), ["3", "2"]);
    done(
        &world.sg,
        call("update Person set { age: 7 } where name = \"ann\""),
    )
    .await;
    let one = "SELECT name, age FROM sg.g.\"Person\" WHERE age IS NOT NULL";
    assert_eq!(world.sql(one).await.concat(), ["ann", "7"]);
    // An edge type and its nodes go together.
    let bare = "node Person { name: String @key }";
    apply(&world, bare).await;
    let tables = "SELECT table_name FROM information_schema.tables WHERE table_schema = 'g'";
    assert_eq!(world.sql(tables).await.concat(), ["Person"]);
    apply(&world, SCHEMA).await;
    assert_eq!(
        world
            .sql("SELECT count(*) FROM sg.g.\"Knows\"")
            .await
            .concat(),
        ["0"]
    );
}

#[tokio::test]
async fn a_hard_drop_takes_files_and_history() {
    let world = people().await;
    let before = snapshot(&world.sg).await.commit_id().to_owned();
    let hard = ApplySchema {
        allow_data_loss: true,
        ..ApplySchema::new("g", changed("    age: I32? @range(0..150)\n", ""))
    };
    let steps = world.sg.graph_apply_schema(&hard).await.unwrap();
    assert_eq!(steps[0].code.as_deref(), Some("OG-DS-104"));
    assert_whole(&world.sg).await;
    assert_eq!(rows(&world, "Person").await.len(), 3);
    let kept = world.sql("SELECT kind FROM commits('g')").await;
    assert_eq!(kept.concat()[0], "schema");
    let past = world
        .sg
        .graph_changes(
            "g",
            None,
            &stratagraph_udfs::GraphState::Commit(before),
            &stratagraph_udfs::GraphState::Catalog(99),
        )
        .await;
    assert_eq!(past.unwrap_err().code(), "NotFound");
    world.sg.collect_garbage(false).await.unwrap();
    assert_whole(&world.sg).await;
    done(&world.sg, call("insert Person { name: \"dan\" }")).await;
}

#[tokio::test]
async fn branches_change_their_schemas_alone_and_meet_again() {
    let world = people().await;
    world
        .sg
        .graph_branch_create("g", "b", Default::default())
        .await
        .unwrap();
    let more = changed("note: String?", "note: String? stars: I32?");
    let on_b = ApplySchema {
        branch: Some("b".to_owned()),
        ..ApplySchema::new("g", more.as_str())
    };
    world.sg.graph_apply_schema(&on_b).await.unwrap();
    let write = |branch: &str, body: &str| GraphMutate {
        branch: Some(branch.to_owned()),
        ..call(body)
    };
    world
        .sg
        .graph_mutate(write(
            "b",
            "update Lives set { stars: 5 } where from = \"ann\"",
        ))
        .await
        .unwrap();
    world
        .sg
        .graph_mutate(write(
            "main",
            "update Lives set { note: \"n\" } where from = \"bo\"",
        ))
        .await
        .unwrap();
    let merge = GraphMerge {
        graph: "g".into(),
        source: "b".into(),
        into: "main".into(),
        delete_source: false,
    };
    let error = world.sg.graph_branch_merge(&merge).await.unwrap_err();
    assert_eq!(error.code(), "SchemaDiverged");
    apply(&world, &more).await;
    let merged = world.sg.graph_branch_merge(&merge).await.unwrap();
    assert_eq!(merged.outcome, "merged");
    assert_whole(&world.sg).await;
    let rows = world
        .sql("SELECT src, note, stars FROM sg.g.\"Lives\" ORDER BY src")
        .await;
    assert_eq!(rows, [["ann", "NULL", "5"], ["bo", "n", "NULL"]]);
}

/// Statements that were planned before a change run on what they can be mapped to, or say so.
#[tokio::test]
async fn statements_that_were_planned_before_are_mapped_or_refused() {
    let world = people().await;
    let plan = async |sql: &str| world.ctx.sql(sql).await.unwrap();
    let sql = "SELECT name, age FROM sg.g.\"Person\"";
    let (before, again) = (plan(sql).await, plan(sql).await);
    apply(&world, &changed("code:", "more: String?  code:")).await;
    assert_eq!(
        crate::world::table(&before.collect().await.unwrap()).len(),
        3
    );
    apply(&world, &changed("    age: I32? @range(0..150)\n", "")).await;
    let error = again.collect().await.unwrap_err();
    assert_eq!(
        stratagraph_udfs::find_error(&error).unwrap().code(),
        "SchemaChanged"
    );
}
