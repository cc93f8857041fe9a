//! A query reads only the types and columns that it names.

use std::collections::BTreeSet;
use std::sync::Arc;

use object_store::memory::InMemory;
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt};

use super::reads::{PEOPLE, SCHEMA, ask};
use crate::graph_load::support::{Overwrite, load, snapshot, world_over};
use crate::world::World;

/// A world whose tables of `types` have lost their files.
async fn without(types: &[&str]) -> World {
    let base = Arc::new(InMemory::new());
    {
        let world = world_over(Arc::clone(&base), 1, SCHEMA).await;
        load(&world.sg, PEOPLE, Overwrite).await.unwrap();
        let state = snapshot(&world.sg).await;
        let store = world.sg.catalog().store();
        let mut gone = BTreeSet::new();
        for of in state
            .schema
            .types
            .iter()
            .filter(|t| types.contains(&t.name.as_str()))
        {
            let table = state.table(store, of.id).await.unwrap().table;
            for (_, entry) in table.entries.entries(store).await.unwrap() {
                gone.extend(entry.fragment.map(|f| f.file.object.key));
            }
        }
        assert_eq!(gone.len(), types.len());
        for key in gone {
            let path: Path = store.path(&key);
            base.delete(&path).await.unwrap();
        }
    }
    // Another process, whose cache holds nothing.
    let store: Arc<dyn ObjectStore> = base.clone();
    drop(store);
    World::over(base, 2).await
}

#[tokio::test]
async fn other_types_are_not_read() {
    let world = without(&["Company", "WorksAt"]).await;
    let friends = "match { $p: Person { name: \"Alice\" }  $p knows $f } return { $f.name }";
    assert_eq!(ask(&world, friends).await, ["Bob", "Charlie"]);
    let alone = "match { $p: Person  not { $p knows $_ } } return { $p.name }";
    assert_eq!(ask(&world, alone).await, ["Charlie", "Diana"]);
    let sql = "SELECT * FROM graph_query('g', 'query q() { match { $p: Person  not { $p worksAt $_ } } return { $p.name } }')";
    assert_eq!(world.code(sql).await, "Storage");
}

#[tokio::test]
async fn ends_that_nothing_reads_are_not_read() {
    // References hold, so that a company whose columns nobody asks for need not be looked at.
    let world = without(&["Company"]).await;
    let count = "match { $p: Person  $p worksAt $c } return { $p.name, count($c) as n }";
    assert_eq!(ask(&world, count).await, ["Alice|1", "Bob|1"]);
    let idle = "match { $p: Person  not { $p worksAt $_ } } return { $p.name }";
    assert_eq!(ask(&world, idle).await, ["Charlie", "Diana"]);
}

#[tokio::test]
async fn other_columns_are_not_read() {
    let world = without(&[]).await;
    let plan = world
        .sql("EXPLAIN SELECT * FROM graph_query('g', 'query q() { match { $p: Person  $p.age > 1  $p knows $f  not { $f worksAt $c } } return { $p.name } }')")
        .await;
    let text: Vec<String> = plan.into_iter().flatten().collect();
    let scans: Vec<String> = text
        .iter()
        .flat_map(|cell| cell.lines())
        .filter_map(|line| {
            Some(
                line.split("projection=[")
                    .nth(1)?
                    .split(']')
                    .next()?
                    .to_owned(),
            )
        })
        .collect();
    assert!(!scans.is_empty(), "{text:?}");
    for scan in &scans {
        for other in [
            "score", "ratio", "born", "nickName", "tags", "since", "role",
        ] {
            assert!(!scan.contains(other), "{scan}");
        }
    }
    assert!(text.iter().any(|cell| cell.contains("Expand")), "{text:?}");
}
