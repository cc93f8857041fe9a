//! Branches whose schemas change: alone, against writes, and before merges.

use std::collections::BTreeSet;
use std::sync::Arc;

use futures::FutureExt;
use futures::future::BoxFuture;
use object_store::ObjectStore;
use object_store::memory::InMemory;
use stratagraph::catalog::Catalog;
use stratagraph::catalog::graph::{At, GraphSnapshot};
use stratagraph::graph::evolve::{Circumstances, Evolution};
use stratagraph::graph::schema::GraphSchema;
use stratagraph::publish::Requester;
use stratagraph::publish::evolve::{SchemaChange, change_schema};
use stratagraph::publish::graph::{GraphCommit, write_graph};
use stratagraph::publish::merge::MergeKind;
use stratagraph::table::read::TableReader;
use stratagraph::{Error, Result};

use crate::graph::branches::orders::explore;
use crate::graph::branches::{two_people, world};
use crate::support::audit::{Told, audit, no_orphans, process};
use crate::support::graphs::{
    Change, PERSON, SCHEMA, change, content, create, fork, merge, merge_of, prepare, read, state,
};

fn memory() -> Arc<dyn ObjectStore> {
    Arc::new(InMemory::new())
}

/// The schema with one more node type, and an edge type to it.
fn with_place() -> String {
    format!("{SCHEMA} node Place {{ code: String @key }} edge Lives: Person -> Place")
}

fn without_age() -> String {
    SCHEMA.replace("age: I64?", "")
}

async fn changing(
    catalog: &Arc<Catalog>,
    branch: &str,
    text: &str,
    hard: bool,
) -> Result<SchemaChange> {
    let base = state(catalog, branch, &At::Head).await?;
    let circumstances = Circumstances {
        populated: BTreeSet::from([1, 2]),
        hard,
        ..Circumstances::default()
    };
    let wanted = GraphSchema::compile(text)?;
    let evolution = Evolution::plan(&base.schema, wanted, &circumstances)?;
    Ok(SchemaChange {
        base,
        schema: Arc::new(evolution.schema),
        hard,
        requester: Requester::default(),
    })
}

async fn apply(
    catalog: &Arc<Catalog>,
    branch: &str,
    text: &str,
    hard: bool,
) -> Result<GraphCommit> {
    let stage = catalog.begin().await?;
    let change = changing(catalog, branch, text, hard).await?;
    change_schema(catalog, catalog.env(), stage, change).await
}

async fn head(catalog: &Arc<Catalog>, branch: &str) -> GraphSnapshot {
    state(catalog, branch, &At::Head).await.unwrap()
}

async fn columns(catalog: &Arc<Catalog>, state: &GraphSnapshot) -> Vec<String> {
    let table = state.table(catalog.store(), PERSON).await.unwrap().table;
    let columns = table.current_schema().unwrap().columns.iter();
    columns.map(|c| c.name.clone()).skip(2).collect()
}

#[tokio::test]
async fn each_state_has_its_own_schema() {
    let base = memory();
    let catalog = world(&base).await;
    let old = head(&catalog, "main").await;
    let was = content(&catalog, &old).await.unwrap();
    apply(&catalog, "main", &without_age(), false)
        .await
        .unwrap();
    let new = head(&catalog, "main").await;
    assert_eq!(new.manifest.version, old.manifest.version + 1);
    assert_eq!(columns(&catalog, &new).await, ["name", "email"]);
    let at = At::Commit(old.commit_id().to_owned());
    let past = state(&catalog, "main", &at).await.unwrap();
    assert_eq!(columns(&catalog, &past).await, ["name", "age", "email"]);
    assert_eq!(content(&catalog, &past).await.unwrap(), was);
    // Files stay where they are, under the version of the schema that they were written under.
    let table = new.table(catalog.store(), PERSON).await.unwrap().table;
    let before = old.table(catalog.store(), PERSON).await.unwrap().table;
    assert_eq!(table.entries, before.entries);
    // A property of the same name is another one.
    apply(&catalog, "main", SCHEMA, false).await.unwrap();
    let back = head(&catalog, "main").await;
    let now = content(&catalog, &back).await;
    // Its column comes back empty: content() reads name, age, email.
    let ages = now.unwrap().people.into_values().map(|(age, _)| age);
    assert!(ages.into_iter().all(|age| age.is_none()));
    no_orphans(Arc::clone(&base), 8).await.unwrap();
    audit(base, &Told::default()).await.unwrap();
}

#[tokio::test]
async fn a_hard_drop_leaves_neither_files_nor_history() {
    let base = memory();
    let catalog = world(&base).await;
    fork(&catalog, "b", "main").await.unwrap();
    change(&catalog, "main", &Change::default().person("zoe", 1))
        .await
        .unwrap();
    let forked = head(&catalog, "b").await;
    let of_b = read(&catalog, "b").await.unwrap();
    apply(&catalog, "main", &without_age(), true).await.unwrap();
    let new = head(&catalog, "main").await;
    let table = new.table(catalog.store(), PERSON).await.unwrap().table;
    let reader = TableReader::new(
        Arc::clone(catalog.store()),
        catalog.env(),
        Arc::clone(&table),
    );
    let newest = table.current_schema().unwrap().id;
    let entries = reader.entries().await.unwrap();
    let schemas: Vec<u64> = entries
        .iter()
        .filter_map(|e| Some(e.fragment.as_ref()?.schema))
        .collect();
    assert_eq!(schemas, [newest]);
    assert_eq!(table.live_rows, 3);
    // What `b` was made from stays, as everything of `b` does.
    let history = new
        .current
        .history
        .walk(catalog.store(), &mut |_| {})
        .await
        .unwrap();
    let kept: Vec<u64> = history.iter().map(|entry| entry.version).collect();
    assert_eq!(kept, [forked.manifest.version - 1]);
    no_orphans(Arc::clone(&base), 8).await.unwrap();
    let fresh = process(Arc::clone(&base), 9);
    assert_eq!(read(&fresh, "b").await.unwrap(), of_b);
    assert_eq!(
        columns(&fresh, &head(&fresh, "main").await).await,
        ["name", "email"]
    );
    audit(base, &Told::default()).await.unwrap();
}

#[tokio::test]
async fn a_write_of_the_old_schema_is_lost() {
    let catalog = world(&memory()).await;
    let mut stage = catalog.begin().await.unwrap();
    let seen = head(&catalog, "main").await;
    let write = prepare(&catalog, &mut stage, &seen, &two_people())
        .await
        .unwrap();
    apply(&catalog, "main", &with_place(), false).await.unwrap();
    let before = read(&catalog, "main").await.unwrap();
    let lost = write_graph(&catalog, stage, write).await.unwrap_err();
    assert_eq!(lost.code(), "ReadSetChanged");
    assert_eq!(read(&catalog, "main").await.unwrap(), before);
    // And the other way round.
    let stage = catalog.begin().await.unwrap();
    let late = changing(&catalog, "main", SCHEMA, false).await.unwrap();
    change(&catalog, "main", &Change::default().person("eve", 5))
        .await
        .unwrap();
    let lost = change_schema(&catalog, catalog.env(), stage, late)
        .await
        .unwrap_err();
    assert_eq!(lost.code(), "ReadSetChanged");
    assert!(head(&catalog, "main").await.schema.node("Place").is_some());
}

#[tokio::test]
async fn other_branches_keep_their_schema() {
    let catalog = world(&memory()).await;
    fork(&catalog, "b", "main").await.unwrap();
    apply(&catalog, "b", &with_place(), false).await.unwrap();
    assert!(head(&catalog, "main").await.schema.node("Place").is_none());
    change(&catalog, "main", &Change::default().person("eve", 5))
        .await
        .unwrap();
    change(&catalog, "b", &Change::default().person("gil", 5))
        .await
        .unwrap();
    // Both have rows of their own by now, under different schemas.
    let code = async |from: &str, into: &str| {
        merge(&catalog, merge_of(from, into))
            .await
            .unwrap_err()
            .code()
    };
    assert_eq!(code("b", "main").await, "SchemaDiverged");
    assert_eq!(code("main", "b").await, "SchemaDiverged");
    // Once both have the same, they can be merged, each with what it has.
    apply(&catalog, "main", &with_place(), false).await.unwrap();
    let merged = merge(&catalog, merge_of("b", "main")).await.unwrap();
    assert_eq!(merged.kind, MergeKind::Merged);
    let people = read(&catalog, "main").await.unwrap().people;
    assert!(people.contains_key("eve") && people.contains_key("gil"));
    assert!(head(&catalog, "main").await.schema.node("Place").is_some());
}

#[tokio::test]
async fn what_only_the_source_changed_is_taken_as_it_is() {
    let base = memory();
    let catalog = world(&base).await;
    fork(&catalog, "b", "main").await.unwrap();
    change(&catalog, "b", &Change::default().person("gil", 5))
        .await
        .unwrap();
    apply(&catalog, "b", &without_age(), false).await.unwrap();
    apply(&catalog, "b", &with_place(), false).await.unwrap();
    let merged = merge(&catalog, merge_of("b", "main")).await.unwrap();
    assert_eq!(merged.kind, MergeKind::FastForward);
    let (main, b) = (head(&catalog, "main").await, head(&catalog, "b").await);
    assert_eq!(main.schema, b.schema);
    assert_eq!(
        content(&catalog, &main).await.unwrap(),
        content(&catalog, &b).await.unwrap()
    );
    no_orphans(Arc::clone(&base), 8).await.unwrap();
    audit(base, &Told::default()).await.unwrap();
}

#[tokio::test]
async fn rows_of_the_base_are_compared_under_the_new_schema() {
    let catalog = world(&memory()).await;
    let renamed = SCHEMA.replace("weight: I64?", "heft: I64? @rename_from(\"weight\")");
    let more = renamed.replace("heft:", "note: String? heft:");
    // The base has Knows without `note`; both sides add it, drop it, and have moved rows since.
    change(&catalog, "main", &two_people()).await.unwrap();
    fork(&catalog, "b", "main").await.unwrap();
    for branch in ["main", "b"] {
        apply(&catalog, branch, &more, false).await.unwrap();
        apply(&catalog, branch, &renamed, false).await.unwrap();
    }
    let left = Change::default()
        .knows("k7", "ada", "bob", 7)
        .person("ada", 1);
    let right = Change::default()
        .knows("k8", "bob", "ada", 8)
        .person("bob", 2);
    change(&catalog, "main", &left).await.unwrap();
    change(&catalog, "b", &right).await.unwrap();
    let expected = right.on(&read(&catalog, "main").await.unwrap());
    let merged = merge(&catalog, merge_of("b", "main")).await.unwrap();
    assert_eq!(merged.kind, MergeKind::Merged);
    assert_eq!(read(&catalog, "main").await.unwrap(), expected);
}

#[tokio::test]
async fn a_schema_of_a_graph_that_is_gone_is_lost() {
    let base = memory();
    let catalog = process(base, 1);
    create(&catalog).await.unwrap();
    fork(&catalog, "b", "main").await.unwrap();
    let stage = catalog.begin().await.unwrap();
    let late = changing(&catalog, "b", &with_place(), false).await.unwrap();
    crate::support::graphs::delete(&catalog, "b").await.unwrap();
    let lost = change_schema(&catalog, catalog.env(), stage, late).await;
    assert!(matches!(lost, Err(Error::ReadSetChanged { .. })));
}

fn add_place(catalog: &Arc<Catalog>) -> BoxFuture<'_, Result<()>> {
    async move { apply(catalog, "b", &with_place(), false).await.map(drop) }.boxed()
}

fn write_eve(catalog: &Arc<Catalog>) -> BoxFuture<'_, Result<()>> {
    async move {
        let mut stage = catalog.begin().await?;
        let seen = state(catalog, "b", &At::Head).await?;
        let eve = Change::default().person("eve", 5);
        let write = prepare(catalog, &mut stage, &seen, &eve).await?;
        write_graph(catalog, stage, write).await.map(drop)
    }
    .boxed()
}

#[test]
fn a_schema_and_a_write_are_never_half_of_each() {
    explore([add_place, write_eve], |outcomes, heads| {
        let there = heads["b"].people.contains_key("eve");
        match outcomes {
            [None, None] => there,
            [Some("ReadSetChanged"), None] => there,
            [None, Some("ReadSetChanged")] => !there,
            _ => false,
        }
    });
}
