//! Deletion masks and the rejects ledger.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use roaring::RoaringBitmap;
use stratagraph::ident::TxnId;
use stratagraph::limits;
use stratagraph::store::Stager;
use stratagraph::table::ledger::{Ledger, LedgerChange, REASON_BYTES, Reject, write_ledger};
use stratagraph::table::manifest::{Entry, Layout};
use stratagraph::table::mask::{LogicalMask, live_ranges, mask_digest, selection, write_mask};

use crate::support::tables::{Row, TableBuilder, block_on};

fn quick(cases: u32) -> ProptestConfig {
    ProptestConfig {
        cases,
        failure_persistence: None,
        ..ProptestConfig::default()
    }
}

proptest! {
    #![proptest_config(quick(256))]

    #[test]
    fn selections_are_what_is_not_dead(
        dead in prop::collection::btree_set(0u32..300, 0..200),
        rows in 0u32..320,
        window in (0u32..320, 0u32..320),
    ) {
        let bitmap = RoaringBitmap::from_iter(&dead);
        let live: Vec<u32> = (0..rows).filter(|p| !dead.contains(p)).collect();
        match selection(&bitmap, rows) {
            None => assert_eq!(live.len(), rows as usize),
            Some(selection) => {
                let mut position = 0;
                let mut selected = Vec::new();
                for part in selection.iter() {
                    if !part.skip {
                        selected.extend(position..position + part.row_count as u32);
                    }
                    position += part.row_count as u32;
                }
                assert_eq!(position, rows, "a selection covers all rows");
                assert_eq!(selected, live);
            }
        }
        let (from, to) = (window.0.min(window.1), window.0.max(window.1));
        let ranges: Vec<_> = live_ranges(&bitmap, from..to).collect();
        assert!(ranges.windows(2).all(|r| r[0].end < r[1].start) && ranges.iter().all(|r| !r.is_empty()));
        let inside: Vec<u32> = ranges.into_iter().flatten().collect();
        assert_eq!(inside, (from..to).filter(|p| !dead.contains(p)).collect::<Vec<_>>());
    }

    #[test]
    fn masks_and_ledgers_fold_their_deltas(
        masks in prop::collection::vec(prop::collection::btree_map("[a-d]{0,2}", 0u64..6, 0..12), 0..5),
        changes in prop::collection::vec(
            prop::collection::btree_map("[a-d]{0,2}", prop::option::of((any::<u8>(), "[x-z]{0,3}")), 0..12), 0..5),
    ) {
        block_on(async {
            let mut builder = TableBuilder::new(Layout::Embedding);
            let (mut horizons, mut rejects) = (BTreeMap::new(), BTreeMap::new());
            let rows: Vec<Row> = ["", "a", "ab", "b", "cd", "d"].iter().map(|k| Row::new(k, 3)).collect();
            for stamp in 0..5 {
                let entry = builder.add(stamp, true, &rows).await;
                if let Some(mask) = masks.get(stamp as usize) {
                    builder.mask(entry, mask);
                    for (key, horizon) in mask {
                        let held = horizons.entry(key.clone()).or_insert(*horizon);
                        *held = (*held).max(*horizon);
                    }
                }
                if let Some(changes) = changes.get(stamp as usize) {
                    let changes: Vec<LedgerChange> = changes.iter().map(|(key, reject)| LedgerChange {
                        key: key.clone(),
                        reject: reject.as_ref().map(|(h, r)| Reject { hash: [*h; 32], reason: r.clone() }),
                    }).collect();
                    builder.ledger(entry, &changes);
                    for change in changes {
                        match change.reject {
                            Some(reject) => rejects.insert(change.key, reject),
                            None => rejects.remove(&change.key),
                        };
                    }
                }
            }
            builder.settle_masks(&horizons);
            let table = builder.finish().await;
            let reader = builder.reader(&table);
            let entries = reader.entries().await.unwrap();
            let budget = &builder.env.budget;
            let mask = LogicalMask::load(&builder.store, budget, &entries).await.unwrap();
            let found: BTreeMap<String, u64> = mask.iter().map(|(k, h)| (k.to_owned(), h)).collect();
            assert_eq!(found, horizons);
            for stamp in 0..7 {
                for key in ["", "a", "ab", "zz"] {
                    assert_eq!(mask.hides(key, stamp), horizons.get(key).is_some_and(|h| *h >= stamp));
                }
            }
            // The bitmap of a fragment follows from the mask by lookup.
            for entry in entries.iter() {
                let keys: Vec<&str> = mask.dead_keys(entry.stamp).collect();
                let derived = reader.positions_of(entry, &keys).await.unwrap();
                assert_eq!(derived, reader.dead_rows(entry).await.unwrap());
            }
            let ledger = Ledger::load(&builder.store, budget, &entries).await.unwrap();
            let found: BTreeMap<String, Reject> =
                ledger.iter().map(|(k, r)| (k.to_owned(), r.clone())).collect();
            assert_eq!(found, rejects);
        });
    }
}

fn stage() -> Stager {
    Stager::new(TxnId::new(0, "M").unwrap())
}

#[test]
fn deltas_are_deterministic_and_checked() {
    let keys: Vec<String> = (0..20_000).map(|i| format!("k{i:06}")).collect();
    let write = |keys: &[String]| write_mask(&mut stage(), keys.iter().map(|k| (k.as_str(), 7)));
    let first = write(&keys).unwrap().unwrap();
    assert_eq!(first, write(&keys).unwrap().unwrap());
    assert_eq!(first.entries, 20_000);
    assert!(write(&[]).unwrap().is_none());
    for wrong in [["b", "a"], ["a", "a"]] {
        let wrong = wrong.map(String::from);
        assert_eq!(write(&wrong).unwrap_err().code(), "Corrupt");
    }
    let long = ["k".repeat(limits::KEY_BYTES + 1)];
    assert_eq!(write(&long).unwrap_err().code(), "ResourceLimitExceeded");
    let late = write_mask(&mut stage(), [("a", u64::MAX)]);
    assert_eq!(late.unwrap_err().code(), "ResourceLimitExceeded");
}

/// Format 1 never changes: another digest here is another format.
#[test]
fn deltas_have_the_bytes_of_format_1() {
    let mask = write_mask(&mut stage(), [("a", 1), ("b", 0), ("é", 7)])
        .unwrap()
        .unwrap();
    assert_eq!(
        mask.object.sha256.to_string(),
        "e3041c23e78844cac4a7972cd3c02c6fb056243c525722940665441c9a5d7779"
    );
    let reject = Reject {
        hash: [9; 32],
        reason: "empty".to_owned(),
    };
    let changes = [("a", Some(reject)), ("b", None)].map(|(key, reject)| LedgerChange {
        key: key.to_owned(),
        reject,
    });
    let ledger = write_ledger(&mut stage(), &changes).unwrap().unwrap();
    assert_eq!(
        ledger.object.sha256.to_string(),
        "39a562960f7d0a5f6250e0add095aa594b20bd2df65055517624ec1f34cf900b"
    );
}

#[test]
fn the_mask_digest_follows_entry_order() {
    let mut stage = stage();
    let deltas: Vec<_> = ["a", "b"]
        .iter()
        .map(|k| write_mask(&mut stage, [(*k, 1)]).unwrap())
        .collect();
    let entry = |id: u64, mask| Entry {
        stamp: id,
        id,
        fragment: None,
        mask,
        rejects: None,
    };
    let (a, b) = (entry(0, deltas[0].clone()), entry(1, deltas[1].clone()));
    let digests: BTreeSet<_> = [vec![&a, &b], vec![&b, &a], vec![&a], vec![]]
        .into_iter()
        .map(mask_digest)
        .collect();
    assert_eq!(digests.len(), 4);
}

#[test]
fn reasons_are_cut_at_characters() {
    block_on(async {
        let mut builder = TableBuilder::new(Layout::Embedding);
        let entry = builder.add(0, true, &[Row::new("a", 1)]).await;
        let reason = "x".repeat(REASON_BYTES - 1) + "éé";
        let reject = Some(Reject {
            hash: [1; 32],
            reason,
        });
        builder.ledger(
            entry,
            &[LedgerChange {
                key: "b".to_owned(),
                reject,
            }],
        );
        let table = builder.finish().await;
        let entries = builder.reader(&table).entries().await.unwrap();
        let ledger = Ledger::load(&builder.store, &builder.env.budget, &entries)
            .await
            .unwrap();
        assert_eq!(ledger.get("b").unwrap().reason.len(), REASON_BYTES - 1);
        let whole = ledger.write(&mut builder.stage).unwrap().unwrap();
        assert_eq!(whole.entries, 1);
        let none = write_ledger(&mut builder.stage, &[]).unwrap();
        assert!(none.is_none());
    });
}
