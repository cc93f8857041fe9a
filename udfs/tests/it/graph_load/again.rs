//! Loads after loads: after one that was refused, of rows that are there already, and of what another graph
//! holds.

use std::sync::Arc;

use object_store::memory::InMemory;
use stratagraph_udfs::{GraphLoad, GraphMutate};

use super::support::*;
use crate::world::World;

#[tokio::test]
async fn a_load_that_is_refused_leaves_the_way_free() {
    let base = lines(&[
        person("a", ""),
        person("b", ""),
        place("h", "Home", 1),
        place("i", "Inn", 1),
        place("j", "Jail", 1),
        edge("Knows", "k0", "a", "b"),
        edge("Lives", "l0", "a", "h"),
    ]);
    for mode in [Append, Merge, Overwrite] {
        let world = world(SCHEMA).await;
        load(&world.sg, &base, Append).await.unwrap();
        let orphan = lines(&[person("c", ""), edge("Knows", "k1", "c", "nobody")]);
        let crowd = lines(&[
            edge("Lives", "l1", "b", "h"),
            edge("Lives", "l2", "b", "i"),
            edge("Lives", "l3", "b", "j"),
        ]);
        for (text, rule) in [(&orphan, "reference"), (&crowd, "cardinality")] {
            let version = snapshot(&world.sg).await.manifest.version;
            let found = refused(&world.sg, text, mode).await;
            assert!(found.iter().any(|f| f.3 == rule), "{mode:?}: {found:?}");
            let now = snapshot(&world.sg).await;
            assert_eq!(now.manifest.version, version, "{mode:?}");
            assert_eq!(rows(&world, "Person").await.len(), 2, "{mode:?}");
            // The same without what was wrong, at once.
            let fine = match mode {
                Overwrite => edge("Lives", "l1", "b", "h"),
                Append => edge("Knows", &format!("fine-{rule}"), "b", "a"),
                Merge => edge("Knows", "k0", "b", "a"),
            };
            load(&world.sg, &fine, mode).await.unwrap();
            assert_eq!(snapshot(&world.sg).await.manifest.version, version + 1);
        }
        assert_whole(&world.sg).await;
    }
}

#[tokio::test]
async fn an_edge_counts_once_for_its_source() {
    let world = world(SCHEMA).await;
    let places = ["h", "i", "j"].map(|id| place(id, id, 1));
    let base = lines(&[
        person("a", "\"email\": \"a@x\""),
        person("b", ""),
        places.join("\n"),
        edge("Lives", "l1", "a", "h"),
        edge("Lives", "l2", "a", "i"),
    ]);
    load(&world.sg, &base, Append).await.unwrap();
    // At most two: the same two again, one of them elsewhere, one of them thrice in the input.
    let again = [
        edge("Lives", "l1", "a", "h"),
        edge("Lives", "l2", "a", "j"),
        edge("Lives", "l2", "a", "h"),
        edge("Lives", "l2", "a", "i"),
    ];
    load(&world.sg, &lines(&again), Merge).await.unwrap();
    // Also its keys and its unique values are its own.
    load(
        &world.sg,
        &person("a", "\"email\": \"a@x\", \"age\": 3"),
        Merge,
    )
    .await
    .unwrap();
    load(&world.sg, &lines(&again[..2]), Merge).await.unwrap();
    let third = lines(&[again[0].clone(), edge("Lives", "l3", "a", "i")]);
    let found = refused(&world.sg, &third, Merge).await;
    assert_eq!((found.len(), found[0].3), (1, "cardinality"), "{found:?}");
    // It moves away, and counts there.
    load(&world.sg, &edge("Lives", "l2", "b", "j"), Merge)
        .await
        .unwrap();
    load(&world.sg, &edge("Lives", "l3", "a", "i"), Merge)
        .await
        .unwrap();
    assert_whole(&world.sg).await;
}

#[tokio::test]
async fn days_and_moments_are_unique_by_value() {
    let schema = "node Event { name: String @key  day: Date? @unique  at: DateTime? @unique }";
    let world = world(schema).await;
    let event = |name: &str, rest: &str| {
        format!("{{\"type\":\"Event\",\"data\":{{\"name\":\"{name}\"{rest}}}}}")
    };
    let base = lines(&[
        event(
            "a",
            ",\"day\":\"2024-02-29\",\"at\":\"2024-02-29T12:00:00Z\"",
        ),
        event("b", ""),
        event("c", ""),
    ]);
    load(&world.sg, &base, Append).await.unwrap();
    for rest in [
        ",\"day\":\"2024-02-29\"",
        // The same moment, in another zone.
        ",\"at\":\"2024-02-29T13:00:00+01:00\"",
    ] {
        for mode in [Append, Merge] {
            let found = refused(&world.sg, &event("x", rest), mode).await;
            assert_eq!((found.len(), found[0].3), (1, "unique"), "{rest}");
        }
    }
    let mutate = |body: &str| GraphMutate::new("g", format!("query m() {{ {body} }}"));
    let taken = mutate("insert Event { name: \"x\", day: date(\"2024-02-29\") }");
    assert_eq!(
        world.sg.graph_mutate(taken).await.unwrap_err().code(),
        "RecordsInvalid"
    );
    let free = mutate("insert Event { name: \"x\", day: date(\"2024-03-01\") }");
    assert_eq!(world.sg.graph_mutate(free).await.unwrap().affected_nodes, 1);
    load(
        &world.sg,
        &event(
            "y",
            ",\"day\":\"2024-03-02\",\"at\":\"2024-02-29T12:00:01Z\"",
        ),
        Append,
    )
    .await
    .unwrap();
}

const ALL_KINDS: &str = r#"
node Thing {
    key: U64 @key
    small: I32?
    ratio: F32?
    day: Date?
    at: DateTime?
    tags: [String]?
    on: Bool?
    v: Vector(2)?
    mood: enum(happy, sad)?
}
node Pair { a: String  b: I32  @key(a, b) }
node Loose { text: String? }
edge Near: Thing -> Thing { weight: F64? }
edge Has: Loose -> Pair
"#;

/// What one graph holds, loaded into another one from its tables: an export is a query.
#[tokio::test]
async fn a_graph_is_copied_by_its_tables() {
    let store = Arc::new(InMemory::new());
    let world = world_over(Arc::clone(&store), 1, ALL_KINDS).await;
    let text = r#"
{"type":"Thing","data":{"key":18446744073709551615,"small":-3,"ratio":0.1,"day":"2024-02-29","at":"2024-01-02T03:04:05.000006Z","tags":["a","b,c","\"d\""],"on":true,"v":[0.25,-1.5],"mood":"sad"}}
{"type":"Thing","data":{"key":0,"tags":[]}}
{"type":"Pair","data":{"a":"x,1","b":2}}
{"type":"Pair","data":{"a":"x","b":12}}
{"type":"Loose","data":{"id":"given id/with \"quotes\"","text":""}}
{"type":"Loose","data":{}}
{"edge":"Near","from":"18446744073709551615","to":"0","data":{"weight":0.1}}
{"edge":"Near","from":"18446744073709551615","to":"0","data":{"id":"n2"}}
{"edge":"Has","from":"given id/with \"quotes\"","to":"[\"x\",\"12\"]"}
"#;
    load(&world.sg, text, Append).await.unwrap();
    world
        .sg
        .graph_branch_create("g", "b", stratagraph_udfs::BranchFrom::Main)
        .await
        .unwrap();
    let only = r#"{"type":"Thing","data":{"key":7}}"#;
    let on_b = GraphLoad {
        branch: "b".to_owned(),
        ..GraphLoad::of_text("g", only, Append)
    };
    world.sg.graph_load(on_b).await.unwrap();
    for (copy, source) in [("main_copy", "g"), ("b_copy", "g@b")] {
        world.sg.graph_create(copy, ALL_KINDS).await.unwrap();
        for of in ["Thing", "Pair", "Loose", "Near", "Has"] {
            let sql = format!(
                "SELECT * FROM graph_load_table('{copy}', '{of}', (SELECT * FROM sg.\"{source}\".\"{of}\"), 'append')"
            );
            world.row(&sql).await;
            for (left, right) in [(copy, source), (source, copy)] {
                let differ = format!(
                    "SELECT * FROM sg.\"{left}\".\"{of}\" EXCEPT SELECT * FROM sg.\"{right}\".\"{of}\""
                );
                assert!(world.sql(&differ).await.is_empty(), "{of} of {left}");
            }
            let count = |graph: &str| format!("SELECT count(*) FROM sg.\"{graph}\".\"{of}\"");
            let found = world.sql(&count(copy)).await;
            assert_eq!(found, world.sql(&count(source)).await);
            assert_ne!(found, [["0"]], "{of}");
        }
    }
    assert_eq!(
        world.sql("SELECT count(*) FROM sg.b_copy.\"Thing\"").await,
        [["3"]]
    );
    // A process that is new reads the same.
    let fresh = World::over(store, 2).await;
    let all = "SELECT * FROM sg.b_copy.\"Thing\" ORDER BY id";
    assert_eq!(fresh.sql(all).await, world.sql(all).await);
}
