//! Power cuts on local files: unsynced contents and names are lost at every disk operation.

use std::sync::Arc;

use stratagraph::catalog::Catalog;
use stratagraph::env::Env;
use stratagraph::publish::Deletes;
use stratagraph::sim::{PowerCut, SimDisk};
use stratagraph::store::{Blocking, LocalStore, Store};

use super::crash::block_on;
use crate::support::audit::Told;
use crate::support::embedding::{Source, compact, content, expected, generate, refresh};

fn open(disk: &SimDisk, seed: u64) -> Arc<Catalog> {
    let local = LocalStore::on(Arc::new(disk.clone()), "/data/sg", Blocking::Inline).unwrap();
    let store = Store::on_files(local, "file:///data/sg");
    Catalog::new(Arc::new(store), Env::fixed(seed))
}

/// Generates, refreshes, compacts until the power goes; what was acknowledged.
async fn work(disk: &SimDisk, source: &Source) -> (Told, Option<u64>) {
    let (catalog, mut told, mut acked) = (open(disk, 1), Told::default(), None);
    let (txn, outcome) = generate(&catalog, source).await;
    told.tell(txn, &outcome);
    acked = outcome.ok().map(|p| p.version).or(acked);
    source.set("a", "changed");
    let (txn, outcome) = refresh(&catalog, source, Deletes::Tombstone).await;
    told.tell(txn, &outcome);
    acked = outcome
        .ok()
        .and_then(|r| r.published)
        .map(|p| p.version)
        .or(acked);
    let (txn, outcome) = compact(&catalog, None).await;
    told.tell(txn, &outcome);
    acked = outcome.ok().map(|p| p.version).or(acked);
    (told, acked)
}

fn source() -> Source {
    Source::new(&[("a", "one"), ("b", "two")])
}

#[test]
fn nothing_acknowledged_is_lost_to_a_power_cut() {
    let whole = SimDisk::new();
    block_on(work(&whole, &source()));
    let ops = whole.ops();
    let mut runs = 0;
    for at in 0..=ops {
        for cut in [
            PowerCut::Keep,
            PowerCut::Drop,
            PowerCut::Zero,
            PowerCut::Empty,
            PowerCut::DropNames,
            PowerCut::Seeded(at),
        ] {
            let (disk, source) = (SimDisk::new(), source());
            disk.cut_at(at);
            let (told, acked) = block_on(work(&disk, &source));
            let what = format!("power cut at disk operation {at}, {cut:?}");
            let survived = disk.power_cut(cut);
            block_on(async {
                let catalog = open(&survived, 2);
                let head = catalog
                    .look()
                    .await
                    .unwrap_or_else(|e| panic!("{what}: {e}"));
                for txn in &told.acked {
                    let status = catalog.commit_status(txn, None).await.unwrap();
                    assert_eq!(
                        status.as_str(),
                        "committed",
                        "{what}: {txn} at {}",
                        head.version
                    );
                }
                if let Some(version) = acked {
                    let rows = content(&catalog, Some(version)).await;
                    rows.unwrap_or_else(|e| panic!("{what}: version {version}: {e}"));
                }
                // The next process goes on.
                if acked.is_some() {
                    refresh(&catalog, &source, Deletes::Tombstone)
                        .await
                        .1
                        .unwrap_or_else(|e| panic!("{what}: {e}"));
                    assert_eq!(
                        content(&catalog, None).await.unwrap(),
                        expected(&source.rows()),
                        "{what}"
                    );
                }
            });
            runs += 1;
        }
    }
    println!("{ops} disk operations, {runs} power cuts");
}
