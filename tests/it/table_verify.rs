//! Verification and reading of damaged, exchanged and forged objects.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;

use futures::TryStreamExt;
use object_store::memory::InMemory;
use object_store::{ObjectStore, ObjectStoreExt};
use roaring::RoaringBitmap;
use stratagraph::Result;
use stratagraph::catalog::history::History;
use stratagraph::catalog::manifest::{BranchManifest, type_key};
use stratagraph::catalog::slot::{CommitKind, CommitRecord, FORMAT};
use stratagraph::digest::Digest;
use stratagraph::ident::TxnId;
use stratagraph::publish::definition::{Definition, ModelRef, SourceRef};
use stratagraph::store::{ObjRef, PageTree, Stager, Store, layout};
use stratagraph::table::bitmap::DeadRows;
use stratagraph::table::identity;
use stratagraph::table::ledger::{LedgerChange, Reject};
use stratagraph::table::manifest::{
    Entry, Layout, SourceFold, TableDelta, TableManifest, TableRoot,
};
use stratagraph::table::mask::mask_digest;
use stratagraph::table::read::{ReadOptions, TableReader};
use stratagraph::table::verify::{Check, Verdict, verify};

use crate::support::tables::{NODE_TYPE, Row, TableBuilder, block_on, rows_of};

/// A version on a store, and what it holds.
struct Version {
    base: Arc<InMemory>,
    builder: TableBuilder,
    table: TableManifest,
    manifest: BranchManifest,
    object: ObjRef,
}

fn fresh(base: &Arc<InMemory>) -> Arc<Store> {
    let inner = Arc::clone(base) as Arc<dyn ObjectStore>;
    Arc::new(Store::new(inner, Default::default(), "memory:///", true))
}

fn branch_manifest(tables: PageTree<TableRoot>) -> BranchManifest {
    let txn = TxnId::new(0, "V").unwrap();
    let commit = CommitRecord {
        txn,
        id: "c".to_owned(),
        dataset: "d".to_owned(),
        dataset_name: "d".to_owned(),
        branch: "main".to_owned(),
        kind: CommitKind::Refresh,
        actor: None,
        time: 0,
        request_id: None,
    };
    BranchManifest {
        format: FORMAT,
        dataset: "d".to_owned(),
        branch: "b".to_owned(),
        version: 1,
        parent_version: Some(0),
        commit,
        counts: BTreeMap::new(),
        parents: Vec::new(),
        catalog_version: 1,
        identity: None,
        descriptor: None,
        definition: None,
        tables,
        delta: Vec::new(),
        history: History::default(),
        objects: String::new(),
        imports: false,
        ancestry: BTreeMap::new(),
    }
}

impl Version {
    /// An embedding table with every kind of object: fragments, mask and ledger deltas, a bitmap
    /// object, pages, a table object and a definition.
    async fn embedding() -> Self {
        let base = Arc::new(InMemory::new());
        let mut builder = TableBuilder::on(fresh(&base), Layout::Embedding);
        let rows = |from: u64| -> Vec<Row> {
            (from..from + 12)
                .map(|i| Row::new(&format!("key-{i:03}"), i))
                .collect()
        };
        builder.add(0, true, &rows(0)).await;
        let second = builder.add(1, false, &rows(8)).await;
        let superseded: BTreeMap<String, u64> =
            ["key-001", "key-008", "key-009", "key-010", "key-011"]
                .map(|k| (k.to_owned(), 0))
                .into();
        builder.mask(second, &superseded);
        builder.settle_masks(&superseded);
        builder.move_out(0);
        let reject = Some(Reject {
            hash: [7; 32],
            reason: "empty".to_owned(),
        });
        builder.ledger(
            second,
            &[LedgerChange {
                key: "key-100".to_owned(),
                reject,
            }],
        );
        // Entries without content, so that the entries stand in pages.
        for stamp in 2..18 {
            builder.add(stamp, true, &[]).await;
        }
        let mut table = builder.finish().await.as_ref().clone();
        table.rejects = 1;
        table.fold = Some(SourceFold {
            sum: Digest::of(b"fold"),
            rows: 20,
            unique: true,
        });
        Self::commit(base, builder, table).await
    }

    async fn commit(base: Arc<InMemory>, mut builder: TableBuilder, table: TableManifest) -> Self {
        let root = TableRoot::Object(builder.stage.add_json(&table).unwrap());
        let definition = Definition::new(
            SourceRef {
                name: ["a", "b", "c"].map(String::from),
                columns: Vec::new(),
            },
            vec!["text".to_owned()],
            "key".to_owned(),
            ModelRef {
                spec: "hash:3".to_owned(),
                definition: "{}".to_owned(),
            },
            3,
        );
        let mut manifest = branch_manifest(PageTree::leaf(type_key(table.type_id), root));
        let entries = builder
            .reader(&Arc::new(table.clone()))
            .entries()
            .await
            .unwrap();
        let parent = Digest::of(b"parent");
        let descriptor = format!("{{\"{}\":\"{parent}\"}}", identity::PARENT);
        let added = [1];
        let mine = entries.iter().filter(|e| added.contains(&e.id));
        let fragments = identity::fragment_digests(mine);
        let mask = mask_digest(entries.iter());
        let bytes = descriptor.as_bytes();
        manifest.identity = Some(identity::chain(
            &parent,
            &definition.hash(),
            bytes,
            &fragments,
            mask.as_ref(),
        ));
        manifest.descriptor = Some(descriptor);
        manifest.definition = Some(
            builder
                .stage
                .add("json", definition.encode().unwrap())
                .unwrap(),
        );
        manifest.delta = vec![TableDelta {
            type_id: table.type_id,
            added: added.to_vec(),
            ..TableDelta::default()
        }];
        let object = builder.stage.add_json(&manifest).unwrap();
        builder.stage.flush(&builder.store).await.unwrap();
        Self {
            base,
            builder,
            table,
            manifest,
            object,
        }
    }

    async fn verify(&self) -> Vec<Check> {
        verify(
            &fresh(&self.base),
            &self.builder.env,
            &self.manifest,
            &self.object,
        )
        .await
    }

    async fn read(&self) -> Result<Vec<Row>> {
        let table = Arc::new(self.table.clone());
        let reader = TableReader::new(fresh(&self.base), &self.builder.env, table);
        let options = ReadOptions::default();
        let batches: Vec<_> = reader.scan(&options).await?.try_collect().await?;
        Ok(batches
            .iter()
            .flat_map(|b| rows_of(self.table.layout, b))
            .collect())
    }

    fn expected(&self) -> Vec<Row> {
        self.builder.live().into_iter().map(|p| p.row).collect()
    }

    /// The key of the file that holds an object, its bytes, and which of them are those of the object.
    async fn file(&self, object: &ObjRef) -> (String, Vec<u8>, Range<usize>) {
        let (key, at) = layout::split_part(&object.key);
        let got = self.base.get(&self.builder.store.path(key)).await.unwrap();
        let bytes = got.bytes().await.unwrap().to_vec();
        let from = at.unwrap_or_default() as usize;
        (key.to_owned(), bytes, from..from + object.size as usize)
    }

    async fn put(&self, key: &str, bytes: Vec<u8>) {
        self.builder
            .store
            .put_object(key, bytes.into())
            .await
            .unwrap();
    }

    /// All objects of the version.
    async fn objects(&self) -> Vec<ObjRef> {
        let mut objects = self
            .manifest
            .reach(&self.builder.store, &self.object)
            .await
            .unwrap();
        objects.sort();
        objects.dedup();
        objects
    }
}

fn wrong(checks: &[Check]) -> Vec<&Check> {
    assert_eq!(
        checks.last().unwrap().kind,
        "identity",
        "the last row is the identity"
    );
    checks
        .iter()
        .filter(|c| c.verdict != Verdict::Match)
        .collect()
}

fn named<'a>(checks: &'a [Check], key: &str) -> Vec<&'a Check> {
    wrong(checks)
        .into_iter()
        .filter(|c| c.artifact == key)
        .collect()
}

#[test]
fn a_whole_version_matches() {
    block_on(async {
        let version = Version::embedding().await;
        let checks = version.verify().await;
        assert_eq!(wrong(&checks), Vec::<&Check>::new());
        let checked: BTreeSet<&str> = checks.iter().map(|c| c.artifact.as_str()).collect();
        for object in version.objects().await {
            assert!(
                checked.contains(object.key.as_str()),
                "{} was checked",
                object.key
            );
        }
        assert_eq!(version.read().await.unwrap(), version.expected());
    });
}

/// I13: one changed bit anywhere is named by verify, and never read as another row.
#[test]
fn every_flipped_bit_is_found() {
    block_on(async {
        let version = Version::embedding().await;
        let expected = version.expected();
        for object in version.objects().await {
            let (file, good, range) = version.file(&object).await;
            for at in range {
                let mut bad = good.clone();
                bad[at] ^= 1 << (at % 8);
                version.put(&file, bad).await;
                match version.read().await {
                    Ok(rows) => assert_eq!(rows, expected, "{} at {at}", object.key),
                    Err(error) => assert_eq!(error.code(), "Corrupt", "{} at {at}", object.key),
                }
                if at % 41 == 0 {
                    let checks = version.verify().await;
                    assert!(
                        !named(&checks, &object.key).is_empty(),
                        "{} at {at}",
                        object.key
                    );
                }
            }
            version.put(&file, good).await;
        }
        assert_eq!(wrong(&version.verify().await), Vec::<&Check>::new());
    });
}

#[test]
fn short_missing_and_exchanged_objects_are_found() {
    block_on(async {
        let version = Version::embedding().await;
        let expected = version.expected();
        let objects = version.objects().await;
        for (n, object) in objects.iter().enumerate() {
            let (file, good, range) = version.file(object).await;
            for length in range.clone().step_by(range.len().div_ceil(12)) {
                version.put(&file, good[..length].to_vec()).await;
                let checks = version.verify().await;
                assert!(
                    !named(&checks, &object.key).is_empty(),
                    "{} to {length}",
                    object.key
                );
                if let Ok(rows) = version.read().await {
                    assert_eq!(rows, expected);
                }
            }
            version
                .base
                .delete(&version.builder.store.path(&file))
                .await
                .unwrap();
            let checks = version.verify().await;
            let named = named(&checks, &object.key);
            assert!(
                named.iter().any(|c| c.verdict == Verdict::Missing),
                "{}: {named:?}",
                object.key
            );
            if let Ok(rows) = version.read().await {
                assert_eq!(rows, expected);
            }
            version.put(&file, good.clone()).await;
            let other = &objects[(n + 1) % objects.len()];
            let (_, bytes, of) = version.file(other).await;
            let exchanged = [&good[..range.start], &bytes[of]].concat();
            version.put(&file, exchanged).await;
            let checks = version.verify().await;
            assert!(
                !self::named(&checks, &object.key).is_empty(),
                "{} as {}",
                object.key,
                other.key
            );
            version.put(&file, good).await;
        }
    });
}

/// Kinds of checks that fail when a manifest says something else than what its objects hold.
async fn lie(change: impl FnOnce(&mut TableManifest, &mut Vec<Entry>)) -> BTreeSet<&'static str> {
    let version = Version::embedding().await;
    let Version {
        base,
        mut builder,
        mut table,
        ..
    } = version;
    let mut entries = builder
        .reader(&Arc::new(table.clone()))
        .entries()
        .await
        .unwrap()
        .to_vec();
    change(&mut table, &mut entries);
    let changes = entries
        .into_iter()
        .map(|e| (Entry::key(e.stamp, e.id), Some(e)))
        .collect();
    table.entries = table
        .entries
        .apply(&builder.store, &mut builder.stage, changes)
        .await
        .unwrap();
    builder.stage.flush(&builder.store).await.unwrap();
    let checks = Version::commit(base, builder, table).await.verify().await;
    wrong(&checks).iter().map(|c| c.kind).collect()
}

#[test]
fn manifests_that_lie_are_found() {
    block_on(async {
        let bitmap = |positions: &[u32]| {
            DeadRows::from_bitmap(&RoaringBitmap::from_iter(positions)).unwrap()
        };
        assert_eq!(lie(|t, _| t.live_rows += 1).await, ["live_rows"].into());
        assert_eq!(lie(|t, _| t.fragments = 9).await, ["fragments"].into());
        assert_eq!(lie(|t, _| t.rejects = 0).await, ["rejected_rows"].into());
        assert_eq!(
            lie(|t, _| t.mask_digest = None).await,
            ["mask_digest"].into()
        );
        let found = lie(|_, e| e[1].fragment.as_mut().unwrap().dead = bitmap(&[3])).await;
        assert_eq!(found, ["dead_rows", "live_rows", "masked_rows"].into());
        let found =
            lie(|_, e| e[0].fragment.as_mut().unwrap().dead = bitmap(&[1, 2, 9, 10, 11])).await;
        assert_eq!(found, ["dead_rows", "unique_keys"].into());
        let found =
            lie(|_, e| e[0].fragment.as_mut().unwrap().keys.max = "key-002".to_owned()).await;
        assert!(found.contains("rows"), "{found:?}");
        let found = lie(|_, e| e[1].fragment.as_mut().unwrap().rows = 11).await;
        assert!(found.contains("rows"), "{found:?}");
        let found = lie(|_, e| e[1].mask.as_mut().unwrap().entries = 4).await;
        assert!(found.contains("dead_rows"), "{found:?}");
        let found = lie(|_, e| e[1].fragment.as_mut().unwrap().schema = 1).await;
        assert!(found.contains("rows"), "{found:?}");
        let found = lie(|_, e| e[1].fragment.as_mut().unwrap().file.footer = 0).await;
        assert_eq!(found, BTreeSet::new(), "the footer length is only a hint");
    });
}

#[test]
fn graphs_are_verified() {
    block_on(async {
        let base = Arc::new(InMemory::new());
        let mut nodes = TableBuilder::on(fresh(&base), Layout::Node);
        let people: Vec<Row> = (0..20).map(|i| Row::new(&format!("n{i:02}"), i)).collect();
        nodes.add(0, true, &people).await;
        nodes
            .add(1, true, &[Row::new("src", 3), Row::new("dst", 4)])
            .await;
        nodes.kill(0, &[3, 4].into());
        let node_table = nodes.finish().await;
        for (src_rid, second, expected) in [
            (3, "e2", vec![]),
            (9, "e2", vec!["src_ids"]),
            (3, "e1", vec!["unique_keys"]),
        ] {
            let mut edges = TableBuilder::on(fresh(&base), Layout::Edge);
            let edge = |key: &str, rid: u64, dst_rid: u64| Row {
                rid,
                src_rid,
                dst_rid,
                ..Row::new(key, rid)
            };
            edges.add(0, true, &[edge("e1", 0, 4)]).await;
            edges.add(1, true, &[edge(second, 1, 4)]).await;
            let edge_table = edges.finish().await;
            let tables = [&node_table, &edge_table].map(|t| {
                (
                    type_key(t.type_id),
                    Some(TableRoot::Inline(Box::new(t.as_ref().clone()))),
                )
            });
            let mut stage = Stager::new(TxnId::new(0, "G").unwrap());
            let store = fresh(&base);
            let tables = PageTree::default()
                .apply(&store, &mut stage, tables.into())
                .await
                .unwrap();
            let manifest = branch_manifest(tables);
            let object = stage.add_json(&manifest).unwrap();
            stage.flush(&store).await.unwrap();
            let checks = verify(&store, &nodes.env, &manifest, &object).await;
            let kinds: Vec<&str> = wrong(&checks).iter().map(|c| c.kind).collect();
            assert_eq!(kinds, expected, "{checks:#?}");
            assert_eq!(checks.last().unwrap().found, "none");
        }
        assert_eq!(node_table.type_id, NODE_TYPE);
    });
}
