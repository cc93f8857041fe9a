//! Merges, case by case.

use std::sync::Arc;

use stratagraph::Error;
use stratagraph::catalog::Catalog;
use stratagraph::catalog::graph::At;
use stratagraph::graph::conflict::ConflictKind;
use stratagraph::publish::merge::MergeKind;

use super::{expire, memory, two_people, world};
use crate::support::audit::{Told, audit, no_orphans, process};
use crate::support::graphs::{Change, change, create, delete, fork, merge, merge_of, read, state};

async fn kind(catalog: &Arc<Catalog>, source: &str, into: &str) -> MergeKind {
    merge(catalog, merge_of(source, into)).await.unwrap().kind
}

/// (type, id, kind) of the conflicts, which a dry run lists too.
async fn conflicts(
    catalog: &Arc<Catalog>,
    source: &str,
    into: &str,
) -> Vec<(String, String, ConflictKind)> {
    let mut request = merge_of(source, into);
    let before = read(catalog, into).await.unwrap();
    let (list, count) = match merge(catalog, request.clone()).await {
        Err(Error::MergeConflicts {
            conflicts, total, ..
        }) => (conflicts, total),
        other => panic!("{other:?}"),
    };
    assert_eq!(read(catalog, into).await.unwrap(), before);
    request.dry_run = true;
    let dry = merge(catalog, request).await.unwrap();
    assert_eq!((dry.total, &dry.conflicts), (count, &list));
    assert_eq!(list.0.len() as u64, count);
    let list = list.0.into_iter();
    list.map(|c| (c.type_name, c.id, c.kind)).collect()
}

async fn verified(catalog: &Arc<Catalog>, branch: &str) {
    let state = state(catalog, branch, &At::Head).await.unwrap();
    let (store, env) = (catalog.store(), catalog.env());
    let manifest = &state.manifest;
    for check in stratagraph::table::verify::verify(store, env, manifest, &state.manifest_ref).await
    {
        assert_eq!(check.found, check.expected, "{check:?}");
    }
}

#[tokio::test]
async fn a_target_that_did_not_move_takes_the_tables() {
    let base = memory();
    let catalog = world(&base).await;
    fork(&catalog, "b", "main").await.unwrap();
    change(&catalog, "b", &two_people()).await.unwrap();
    let outcome = merge(&catalog, merge_of("b", "main")).await.unwrap();
    assert_eq!(outcome.kind, MergeKind::FastForward);
    let (main, b) = (
        state(&catalog, "main", &At::Head).await.unwrap(),
        state(&catalog, "b", &At::Head).await.unwrap(),
    );
    assert_eq!(main.manifest.tables, b.manifest.tables);
    assert_eq!(main.manifest.parents[1], b.commit_id());
    assert_eq!(
        kind(&catalog, "b", "main").await,
        MergeKind::AlreadyUpToDate
    );
    // The other way round there is nothing to take, but a commit to follow.
    assert_eq!(kind(&catalog, "main", "b").await, MergeKind::FastForward);
    assert_eq!(
        kind(&catalog, "main", "b").await,
        MergeKind::AlreadyUpToDate
    );
    audit(base, &Told::default()).await.unwrap();
}

#[tokio::test]
async fn equal_inserts_are_one_row_and_edges_of_both_sides_find_it() {
    let base = memory();
    let catalog = world(&base).await;
    fork(&catalog, "b", "main").await.unwrap();
    let on_main = Change::default()
        .person("new", 1)
        .person("m", 2)
        .knows("km", "m", "new", 1);
    let on_b = Change::default()
        .person("x", 0)
        .person("new", 1)
        .knows("kb", "x", "new", 1)
        .knows("kc", "new", "cy", 1)
        .knows("kd", "x", "cy", 1);
    change(&catalog, "main", &on_main).await.unwrap();
    change(&catalog, "b", &on_b).await.unwrap();
    let expected = on_b.on(&read(&catalog, "main").await.unwrap());
    assert_eq!(kind(&catalog, "b", "main").await, MergeKind::Merged);
    assert_eq!(read(&catalog, "main").await.unwrap(), expected);
    verified(&catalog, "main").await;
    // Later changes of the source still find their rows.
    let later = Change::default()
        .person("new", 9)
        .knows("ke", "new", "new", 2);
    change(&catalog, "b", &later).await.unwrap();
    assert_eq!(kind(&catalog, "b", "main").await, MergeKind::Merged);
    assert_eq!(read(&catalog, "main").await.unwrap(), later.on(&expected));
    verified(&catalog, "main").await;
    no_orphans(Arc::clone(&base), 5).await.unwrap();
    audit(base, &Told::default()).await.unwrap();
}

#[tokio::test]
async fn delete_and_insert_again_against_an_edge() {
    for (again, edge) in [("b", "main"), ("main", "b")] {
        for age in [7, 8] {
            let base = memory();
            let catalog = world(&base).await;
            fork(&catalog, "b", "main").await.unwrap();
            let knows = Change::default().knows("k", "ada", "cy", 1);
            change(&catalog, edge, &knows).await.unwrap();
            let gone = Change::default().without("cy");
            change(&catalog, again, &gone).await.unwrap();
            let back = Change::default().person("cy", age);
            change(&catalog, again, &back).await.unwrap();
            assert_eq!(kind(&catalog, "b", "main").await, MergeKind::Merged);
            let merged = read(&catalog, "main").await.unwrap();
            assert_eq!(merged.people["cy"].0, Some(age));
            assert!(merged.knows.contains_key("k"));
            verified(&catalog, "main").await;
        }
    }
}

#[tokio::test]
async fn every_kind_of_conflict_is_named() {
    use ConflictKind::{
        CardinalityViolation, DeleteVsUpdate, DivergentInsert, DivergentUpdate, OrphanEdge,
        UniqueViolation,
    };
    let catalog = world(&memory()).await;
    let people = ["p", "q", "r", "s", "t"];
    let start = people
        .iter()
        .fold(Change::default(), |change, name| change.person(name, 0))
        .knows("k0", "s", "p", 0);
    change(&catalog, "main", &start).await.unwrap();
    fork(&catalog, "b", "main").await.unwrap();
    let on_main = Change::default()
        .person("p", 1)
        .without("q")
        .person("new", 1)
        .email("mail-1", "a@b")
        .knows("k1", "s", "p", 1)
        .knows("k2", "s", "t", 1)
        .knows("k5", "p", "r", 1);
    let on_b = Change::default()
        .person("p", 2)
        .person("q", 2)
        .person("new", 2)
        .without("r")
        .email("mail-2", "a@b")
        .knows("k3", "s", "p", 1)
        .knows("k4", "s", "t", 1);
    change(&catalog, "main", &on_main).await.unwrap();
    change(&catalog, "b", &on_b).await.unwrap();
    let expected = [
        ("Person", "new", DivergentInsert),
        ("Person", "p", DivergentUpdate),
        ("Person", "q", DeleteVsUpdate),
        ("Person", "mail-2", UniqueViolation),
        ("Knows", "k5", OrphanEdge),
        ("Knows", "s", CardinalityViolation),
    ];
    let expected = expected.map(|(of, id, kind)| (of.to_owned(), id.to_owned(), kind));
    assert_eq!(conflicts(&catalog, "b", "main").await, expected);
}

#[tokio::test]
async fn what_a_merge_deleted_stays_deleted() {
    let base = memory();
    let catalog = world(&base).await;
    change(&catalog, "main", &two_people()).await.unwrap();
    for sibling in ["a", "b"] {
        fork(&catalog, sibling, "main").await.unwrap();
    }
    change(&catalog, "a", &Change::default().unknown("k1"))
        .await
        .unwrap();
    change(&catalog, "b", &Change::default().person("x", 1))
        .await
        .unwrap();
    assert_eq!(kind(&catalog, "a", "main").await, MergeKind::FastForward);
    assert_eq!(kind(&catalog, "b", "main").await, MergeKind::Merged);
    assert!(
        !read(&catalog, "main")
            .await
            .unwrap()
            .knows
            .contains_key("k1")
    );
}

#[tokio::test]
async fn a_deleted_branch_is_still_a_base() {
    let base = memory();
    let catalog = process(Arc::clone(&base), 1);
    create(&catalog).await.unwrap();
    for branch in ["x", "c"] {
        fork(&catalog, branch, "main").await.unwrap();
    }
    change(&catalog, "main", &Change::default().person("m", 0))
        .await
        .unwrap();
    change(&catalog, "c", &Change::default().person("c", 0))
        .await
        .unwrap();
    change(&catalog, "x", &two_people()).await.unwrap();
    assert_eq!(kind(&catalog, "x", "main").await, MergeKind::Merged);
    let mut last = merge_of("x", "c");
    last.delete_source = true;
    assert_eq!(merge(&catalog, last).await.unwrap().kind, MergeKind::Merged);
    change(&catalog, "c", &Change::default().without("bob"))
        .await
        .unwrap();
    expire(&catalog, "main", u64::MAX).await.unwrap();
    expire(&catalog, "c", u64::MAX).await.unwrap();
    no_orphans(Arc::clone(&base), 7).await.unwrap();
    // Both descend from the state of `x` that they took, so the deletion is a change of `c`.
    let catalog = process(Arc::clone(&base), 8);
    assert_eq!(kind(&catalog, "c", "main").await, MergeKind::Merged);
    let names: Vec<String> = read(&catalog, "main")
        .await
        .unwrap()
        .people
        .into_keys()
        .collect();
    assert_eq!(names, ["ada", "c", "m"]);
    delete(&catalog, "c").await.unwrap();
    no_orphans(Arc::clone(&base), 9).await.unwrap();
    audit(base, &Told::default()).await.unwrap();
}

#[tokio::test]
async fn a_merge_can_end_its_source() {
    let base = memory();
    let catalog = world(&base).await;
    fork(&catalog, "b", "main").await.unwrap();
    fork(&catalog, "b/child", "b").await.unwrap();
    let mut request = merge_of("b", "main");
    request.delete_source = true;
    let refused = merge(&catalog, request.clone()).await.unwrap_err();
    assert_eq!(refused.code(), "BranchProtected");
    delete(&catalog, "b/child").await.unwrap();
    change(&catalog, "b", &two_people()).await.unwrap();
    let expected = read(&catalog, "b").await.unwrap();
    merge(&catalog, request).await.unwrap();
    assert_eq!(read(&catalog, "b").await.unwrap_err().code(), "NotFound");
    assert_eq!(read(&catalog, "main").await.unwrap(), expected);
    fork(&catalog, "c", "main").await.unwrap();
    let mut nothing = merge_of("c", "main");
    nothing.delete_source = true;
    // A merge of nothing ends its source too; `c` has the commit that made it.
    merge(&catalog, nothing).await.unwrap();
    assert_eq!(read(&catalog, "c").await.unwrap_err().code(), "NotFound");
    let code = |request| async { merge(&catalog, request).await.unwrap_err().code() };
    assert_eq!(code(merge_of("main", "main")).await, "InvalidArgument");
    assert_eq!(code(merge_of("c", "main")).await, "NotFound");
    no_orphans(Arc::clone(&base), 3).await.unwrap();
    audit(base, &Told::default()).await.unwrap();
}
