//! Branches of a graph: what they share, what they keep apart, and what expiry and collections leave.

mod merge;
pub(super) mod model;
pub(super) mod orders;
mod sweep;
mod table;
mod three_way;

use std::collections::BTreeMap;
use std::sync::Arc;

use object_store::ObjectStore;
use object_store::memory::InMemory;
use stratagraph::catalog::branch::branches;
use stratagraph::catalog::graph::At;
use stratagraph::catalog::{Catalog, Expire, Swept};

use stratagraph::publish::branch::create_branch;
use stratagraph::publish::graph::write_graph;
use stratagraph::store::layout;
use stratagraph::{Error, Protection, Result};

use crate::support::audit::{Told, audit, no_orphans, process};
use crate::support::graphs::{
    Change, Content, branch_name, change, content, create, delete, fork, fork_of, name, prepare,
    read, state,
};

fn memory() -> Arc<dyn ObjectStore> {
    Arc::new(InMemory::new())
}

pub(super) fn expire_request(branch: &str, before: u64) -> Expire {
    Expire {
        name: name("g"),
        dataset: None,
        branch: branch_name(branch),
        branch_id: None,
        before,
        include_base: true,
        expired: Vec::new(),
    }
}

async fn expire(catalog: &Arc<Catalog>, branch: &str, before: u64) -> Result<(Vec<u64>, Swept)> {
    catalog.expire(expire_request(branch, before)).await
}

pub(super) fn two_people() -> Change {
    Change::default()
        .person("ada", 36)
        .person("bob", 40)
        .knows("k1", "ada", "bob", 1)
}

/// A process on a graph whose main branch has three versions.
pub(super) async fn world(base: &Arc<dyn ObjectStore>) -> Arc<Catalog> {
    let catalog = process(Arc::clone(base), 1);
    create(&catalog).await.unwrap();
    change(&catalog, "main", &two_people()).await.unwrap();
    let more = Change::default().person("cy", 7).without("bob");
    change(&catalog, "main", &more).await.unwrap();
    catalog
}

async fn content_at(catalog: &Arc<Catalog>, branch: &str, at: At) -> Content {
    let state = state(catalog, branch, &at).await.unwrap();
    content(catalog, &state).await.unwrap()
}

#[tokio::test]
async fn a_branch_is_one_object_and_shares_the_rest() {
    let base = memory();
    let catalog = world(&base).await;
    let listed = async || catalog.store().list(layout::DATA).await.unwrap().len();
    let before = listed().await;
    let made = fork(&catalog, "review/2026", "main").await.unwrap();
    assert_eq!(listed().await, before + 1);
    assert_eq!((made.branch.as_str(), made.version), ("review/2026", 3));
    let (main, branch) = (
        state(&catalog, "main", &At::Head).await.unwrap(),
        state(&catalog, "review/2026", &At::Head).await.unwrap(),
    );
    assert_eq!(branch.manifest.tables, main.manifest.tables);
    assert_eq!(branch.manifest.parents, [main.commit_id()]);
    assert_eq!(branch.commit_id(), made.commit_id);
    assert_eq!(
        content(&catalog, &branch).await.unwrap(),
        content(&catalog, &main).await.unwrap()
    );
    let head = catalog.look().await.unwrap();
    let listed = branches(catalog.store(), &head, &name("g")).await.unwrap();
    let shown: Vec<(&str, Option<&str>)> = listed
        .iter()
        .map(|b| (b.name.as_str(), b.parent.as_ref().map(|p| p.as_str())))
        .collect();
    assert_eq!(shown, [("main", None), ("review/2026", Some("main"))]);
    assert_eq!(listed[1].commit_id, made.commit_id);
    assert!(listed[1].created_at > listed[0].created_at);
}

#[tokio::test]
async fn branches_do_not_see_each_other() {
    let base = memory();
    let catalog = world(&base).await;
    fork(&catalog, "b", "main").await.unwrap();
    let on_b = Change::default()
        .without("ada")
        .person("dee", 1)
        .knows("k2", "cy", "dee", 2);
    let on_main = Change::default()
        .person("ada", 37)
        .knows("k3", "ada", "cy", 3);
    let before = read(&catalog, "main").await.unwrap();
    change(&catalog, "b", &on_b).await.unwrap();
    assert_eq!(read(&catalog, "main").await.unwrap(), before);
    change(&catalog, "main", &on_main).await.unwrap();
    assert_eq!(read(&catalog, "main").await.unwrap(), on_main.on(&before));
    assert_eq!(read(&catalog, "b").await.unwrap(), on_b.on(&before));
    fork(&catalog, "b/c", "b").await.unwrap();
    assert_eq!(read(&catalog, "b/c").await.unwrap(), on_b.on(&before));
    audit(base, &Told::default()).await.unwrap();
}

#[tokio::test]
async fn a_branch_of_an_older_commit_keeps_it_alive() {
    let base = memory();
    let catalog = world(&base).await;
    let old = state(&catalog, "main", &At::Head).await.unwrap();
    let was = content(&catalog, &old).await.unwrap();
    let old = old.commit_id().to_owned();
    for age in 0..5 {
        let more = Change::default().person("ada", age).person("cy", age);
        change(&catalog, "main", &more).await.unwrap();
    }
    let request = fork_of("old", "main", At::Commit(old));
    let stage = catalog.begin().await.unwrap();
    create_branch(&catalog, stage, request).await.unwrap();
    let (expired, _) = expire(&catalog, "main", u64::MAX).await.unwrap();
    // The state that `old` was made from stays in the history of the main branch.
    assert_eq!(expired, [0, 1, 3, 4, 5, 6]);
    no_orphans(Arc::clone(&base), 8).await.unwrap();
    let fresh = process(Arc::clone(&base), 9);
    assert_eq!(read(&fresh, "old").await.unwrap(), was);
    assert_eq!(
        content_at(&fresh, "main", At::Commit(old_of(&fresh).await)).await,
        was
    );
    audit(Arc::clone(&base), &Told::default()).await.unwrap();
    delete(&fresh, "old").await.unwrap();
    assert_eq!(expire(&fresh, "main", u64::MAX).await.unwrap().0, [2]);
    no_orphans(Arc::clone(&base), 10).await.unwrap();
    audit(base, &Told::default()).await.unwrap();
}

/// Commit id of the state that `old` was made from.
async fn old_of(catalog: &Arc<Catalog>) -> String {
    let old = state(catalog, "old", &At::Head).await.unwrap();
    old.manifest.parents[0].clone()
}

#[tokio::test]
async fn what_is_not_there_is_named() {
    let catalog = world(&memory()).await;
    fork(&catalog, "b", "main").await.unwrap();
    let code = async |branch: &str, from: &str, at: At| {
        let stage = catalog.begin().await.unwrap();
        let made = create_branch(&catalog, stage, fork_of(branch, from, at)).await;
        made.unwrap_err().code()
    };
    assert_eq!(code("b", "main", At::Head).await, "AlreadyExists");
    assert_eq!(code("main", "b", At::Head).await, "AlreadyExists");
    assert_eq!(code("c", "x", At::Head).await, "NotFound");
    assert_eq!(code("c", "main", At::Commit("x".into())).await, "NotFound");
    assert_eq!(code("c", "b", At::Catalog(1)).await, "VersionUnavailable");
    assert_eq!(delete(&catalog, "x").await.unwrap_err().code(), "NotFound");
    // Also for a state that went away between the look and the commit.
    let stale = process(Arc::clone(catalog.store().inner()), 2);
    let old = state(&stale, "main", &At::Catalog(2)).await.unwrap();
    expire(&catalog, "main", u64::MAX).await.unwrap();
    let at = At::Commit(old.commit_id().to_owned());
    assert_eq!(code("c", "main", at).await, "NotFound");
}

#[tokio::test]
async fn protected_branches_stay() {
    let catalog = world(&memory()).await;
    fork(&catalog, "b", "main").await.unwrap();
    fork(&catalog, "b/1", "b").await.unwrap();
    fork(&catalog, "b/2", "b").await.unwrap();
    let protection = async |branch: &str| match delete(&catalog, branch).await {
        Err(Error::BranchProtected { protection, .. }) => protection,
        other => panic!("{other:?}"),
    };
    assert_eq!(protection("main").await, Protection::Main);
    let children = Protection::Descendants(vec!["b/1".into(), "b/2".into()]);
    assert_eq!(protection("b").await, children);
    delete(&catalog, "b/1").await.unwrap();
    delete(&catalog, "b/2").await.unwrap();
    delete(&catalog, "b").await.unwrap();
    assert!(state(&catalog, "b", &At::Head).await.is_err());
}

#[tokio::test]
async fn a_branch_made_again_is_another_branch() {
    let base = memory();
    let catalog = world(&base).await;
    fork(&catalog, "b", "main").await.unwrap();
    let old = state(&catalog, "b", &At::Head).await.unwrap();
    let mut stage = catalog.begin().await.unwrap();
    let write = prepare(&catalog, &mut stage, &old, &two_people())
        .await
        .unwrap();
    delete(&catalog, "b").await.unwrap();
    fork(&catalog, "b", "main").await.unwrap();
    let new = state(&catalog, "b", &At::Head).await.unwrap();
    assert_ne!(new.manifest.branch, old.manifest.branch);
    // A write that was prepared on the first one does not reach the second one.
    let lost = write_graph(&catalog, stage, write).await.unwrap_err();
    assert_eq!(lost.code(), "ReadSetChanged");
    assert_eq!(
        read(&catalog, "b").await.unwrap(),
        read(&catalog, "main").await.unwrap()
    );
    no_orphans(Arc::clone(&base), 3).await.unwrap();
    audit(base, &Told::default()).await.unwrap();
}

#[tokio::test]
async fn a_write_on_a_deleted_branch_is_lost() {
    let base = memory();
    let catalog = world(&base).await;
    fork(&catalog, "b", "main").await.unwrap();
    // The writer has seen the head before the deletion; its first attempt builds on that one.
    let writer = process(Arc::clone(&base), 2);
    let mut stage = writer.begin().await.unwrap();
    let seen = state(&writer, "b", &At::Head).await.unwrap();
    let write = prepare(&writer, &mut stage, &seen, &two_people())
        .await
        .unwrap();
    delete(&catalog, "b").await.unwrap();
    let lost = write_graph(&writer, stage, write).await.unwrap_err();
    assert_eq!(lost.code(), "ReadSetChanged");
    assert_eq!(read(&catalog, "b").await.unwrap_err().code(), "NotFound");
    no_orphans(Arc::clone(&base), 9).await.unwrap();
    audit(base, &Told::default()).await.unwrap();
}

#[tokio::test]
async fn writers_of_two_branches_all_commit() {
    let base = memory();
    let catalog = world(&base).await;
    fork(&catalog, "b", "main").await.unwrap();
    let mut expected: BTreeMap<&str, Content> = BTreeMap::new();
    for branch in ["main", "b"] {
        expected.insert(branch, read(&catalog, branch).await.unwrap());
    }
    for round in 0..6 {
        // Both are prepared on one head; the second finds the counters of both types moved.
        let mut prepared = Vec::new();
        for branch in ["main", "b"] {
            let (a, b) = (format!("{branch}{round}"), format!("x{round}"));
            let change = Change::default()
                .person(&a, round)
                .person(&b, round)
                .knows(&format!("{a}-new"), &a, &b, round)
                .knows(&format!("{a}-old"), &a, "cy", round)
                .person("cy", round);
            let mut stage = catalog.begin().await.unwrap();
            let seen = state(&catalog, branch, &At::Head).await.unwrap();
            let write = prepare(&catalog, &mut stage, &seen, &change).await.unwrap();
            prepared.push((branch, change, stage, write));
        }
        for (branch, change, stage, write) in prepared {
            write_graph(&catalog, stage, write).await.unwrap();
            let next = change.on(&expected[branch]);
            expected.insert(branch, next);
        }
        for (branch, expected) in &expected {
            assert_eq!(read(&catalog, branch).await.unwrap(), *expected);
        }
    }
    let rids = state(&catalog, "b", &At::Head)
        .await
        .unwrap()
        .dataset
        .next_rids;
    assert_eq!(rids, BTreeMap::from([(1, 3 + 24), (2, 1 + 24)]));
    for branch in ["main", "b"] {
        let state = state(&catalog, branch, &At::Head).await.unwrap();
        let checks = stratagraph::table::verify::verify(
            catalog.store(),
            catalog.env(),
            &state.manifest,
            &state.manifest_ref,
        )
        .await;
        for check in checks {
            assert_eq!(check.found, check.expected, "{check:?}");
        }
    }
}
