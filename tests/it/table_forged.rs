//! Forged objects: bytes that no writer made, behind references that fit them.

use std::sync::Arc;

use futures::TryStreamExt;
use object_store::ObjectStoreExt;
use roaring::RoaringBitmap;
use stratagraph::limits;
use stratagraph::store::{BlockSums, FileSums, Stager, Store};
use stratagraph::table::bitmap::DeadRows;
use stratagraph::table::manifest::{Entry, Layout};
use stratagraph::table::read::{ReadOptions, TableReader};

use crate::support::tables::{Row, TableBuilder, block_on};

/// An entry whose fragment has other bytes, with checksums that fit them: what a forger would write.
async fn forged(builder: &TableBuilder, entry: &Entry, bytes: Vec<u8>) -> (Arc<Store>, Entry) {
    let (store, mut entry) = (Arc::new(Store::memory()), entry.clone());
    let fragment = entry.fragment.as_mut().unwrap();
    let (key, footer) = (fragment.file.object.key.clone(), fragment.file.footer);
    let mut sums = FileSums::default();
    sums.update(&bytes);
    let mut stage = Stager::new(builder.stage.txn().clone());
    fragment.file = sums.finish(key.clone(), footer, &mut stage).unwrap();
    store.put_object(&key, bytes.into()).await.unwrap();
    stage.flush(&store).await.unwrap();
    (store, entry)
}

/// Forged files are typed errors or some rows: never a panic, never a hang.
#[test]
fn forged_fragments_do_not_panic() {
    block_on(async {
        for layout in [Layout::Embedding, Layout::Edge] {
            let mut builder = TableBuilder::new(layout);
            let rows: Vec<Row> = (0..9)
                .map(|i| Row::new(&format!("key-{i:05}"), i))
                .collect();
            builder.add(0, true, &rows).await;
            let table = builder.finish().await;
            let entry = builder.reader(&table).entries().await.unwrap()[0].clone();
            let object = &entry.fragment.as_ref().unwrap().file.object;
            let bytes = builder
                .store
                .get_uncached("fragment", object)
                .await
                .unwrap();
            for at in 0..bytes.len() {
                let mut bad = bytes.to_vec();
                bad[at] ^= 1 << (at * 5 % 8);
                let (store, entry) = forged(&builder, &entry, bad).await;
                let reader = TableReader::new(store, &builder.env, Arc::clone(&table));
                let read = async {
                    let rows = reader
                        .fragment_stream(&entry, &ReadOptions::default())
                        .await?;
                    rows.try_collect::<Vec<_>>().await?;
                    reader
                        .lookup_entries(std::slice::from_ref(&entry), &["key-00003"])
                        .await
                };
                if let Err(error) = read.await {
                    assert!(
                        ["Corrupt", "Parquet", "Arrow"].contains(&error.code()),
                        "{error}"
                    );
                }
            }
        }
    });
}

#[test]
fn files_of_another_schema_are_refused() {
    block_on(async {
        let mut edges = TableBuilder::new(Layout::Edge);
        edges.add(0, true, &[Row::new("a", 1)]).await;
        let table = edges.finish().await;
        let edge = edges.reader(&table).entries().await.unwrap()[0].clone();
        let object = edge.fragment.as_ref().unwrap().file.object.clone();
        let bytes = edges.store.get_uncached("fragment", &object).await.unwrap();
        let mut nodes = TableBuilder::new(Layout::Node);
        nodes.add(0, true, &[Row::new("a", 1)]).await;
        let table = nodes.finish().await;
        let node = nodes.reader(&table).entries().await.unwrap()[0].clone();
        let cases: [Vec<u8>; 3] = [bytes.to_vec(), b"PAR1".to_vec(), vec![0; 100]];
        for bytes in cases {
            let (store, entry) = forged(&nodes, &node, bytes).await;
            let reader = TableReader::new(store, &nodes.env, Arc::clone(&table));
            let error = reader
                .fragment_stream(&entry, &ReadOptions::default())
                .await
                .err()
                .unwrap();
            assert!(["Corrupt", "Parquet"].contains(&error.code()), "{error}");
            let error = reader.lookup_entries(&[entry], &["a"]).await.unwrap_err();
            assert!(["Corrupt", "Parquet"].contains(&error.code()), "{error}");
        }
    });
}

#[test]
fn bitmaps_of_any_bytes_are_refused_or_bounded() {
    use base64::{Engine, engine::general_purpose::STANDARD};
    block_on(async {
        let store = Store::memory();
        let good = DeadRows::from_bitmap(&RoaringBitmap::from_iter([1, 70_000])).unwrap();
        assert_eq!(good.load(&store, 70_001).await.unwrap().len(), 2);
        assert_eq!(
            good.load(&store, 70_000).await.unwrap_err().code(),
            "Corrupt"
        );
        let huge = [0x3A, 0x30, 0, 0, 0xFF, 0xFF, 0xFF, 0xFF];
        let bytes = STANDARD.decode(good.inline.as_ref().unwrap()).unwrap();
        let mut cases: Vec<Vec<u8>> = vec![huge.to_vec(), vec![], vec![0; 9]];
        cases.extend((0..bytes.len()).map(|at| bytes[..at].to_vec()));
        cases.push([bytes.as_slice(), &[0]].concat());
        for case in cases {
            let dead = DeadRows {
                rows: 2,
                inline: Some(STANDARD.encode(case)),
                chunks: Vec::new(),
            };
            assert_eq!(
                dead.load(&store, 100_000).await.unwrap_err().code(),
                "Corrupt"
            );
        }
        for at in 0..bytes.len() * 8 {
            let mut bad = bytes.clone();
            bad[at / 8] ^= 1 << (at % 8);
            let dead = DeadRows {
                rows: 2,
                inline: Some(STANDARD.encode(bad)),
                chunks: Vec::new(),
            };
            if let Ok(bitmap) = dead.load(&store, 100_000).await {
                assert!(bitmap.len() == 2 && bitmap.max().unwrap() < 100_000);
            }
        }
    });
}

#[test]
fn checksums_of_another_length_are_refused() {
    block_on(async {
        let mut builder = TableBuilder::new(Layout::Node);
        builder.add(0, true, &[Row::new("a", 1)]).await;
        let table = builder.finish().await;
        let entry = builder.reader(&table).entries().await.unwrap()[0].clone();
        for length in [0, 3, 5, 8] {
            let mut entry = entry.clone();
            let sums = builder.stage.add("crc", vec![0; length]).unwrap();
            builder.stage.flush(&builder.store).await.unwrap();
            entry.fragment.as_mut().unwrap().file.blocks = BlockSums::Object(sums);
            let store = Arc::new(Store::memory());
            for (key, _) in builder.store.list("").await.unwrap() {
                let bytes = builder
                    .store
                    .inner()
                    .get(&builder.store.path(&key))
                    .await
                    .unwrap();
                store
                    .put_object(&key, bytes.bytes().await.unwrap())
                    .await
                    .unwrap();
            }
            let reader = TableReader::new(store, &builder.env, Arc::clone(&table));
            let error = reader
                .fragment_stream(&entry, &ReadOptions::default())
                .await
                .err()
                .unwrap();
            assert_eq!(error.code(), "Corrupt", "{length}");
        }
    });
}

/// Row counts around the bounds of pages and row groups.
#[test]
fn bounds_of_pages_and_row_groups_hold() {
    block_on(async {
        for rows in [limits::PAGE_ROWS, limits::ROW_GROUP_ROWS] {
            for rows in [rows - 1, rows, rows + 1] {
                let mut builder = TableBuilder::new(Layout::Node);
                let all: Vec<Row> = (0..rows as u64)
                    .map(|i| Row::new(&format!("k{i:06}"), i))
                    .collect();
                let entry = builder.add(0, true, &all).await;
                builder.kill(entry, &[0, rows as u32 - 1].into());
                let table = builder.finish().await;
                let reader = builder.reader(&table);
                let ends = [
                    all[0].key.as_str(),
                    all[1].key.as_str(),
                    all[rows - 1].key.as_str(),
                ];
                let found = reader.lookup(&ends).await.unwrap();
                assert_eq!(found.iter().map(|f| f.position).collect::<Vec<_>>(), [1]);
                let options = ReadOptions::columns(&[]).with_positions();
                let batches: Vec<_> = reader
                    .scan(&options)
                    .await
                    .unwrap()
                    .try_collect()
                    .await
                    .unwrap();
                let seen: usize = batches.iter().map(|b| b.num_rows()).sum();
                assert_eq!(seen, rows - 2);
            }
        }
    });
}

#[test]
fn entries_out_of_number_are_refused() {
    block_on(async {
        let mut builder = TableBuilder::new(Layout::Node);
        builder.add(0, true, &[Row::new("a", 1)]).await;
        builder.add(1, true, &[Row::new("b", 2)]).await;
        let table = builder.finish().await;
        let good = builder.reader(&table).entries().await.unwrap();
        for (key, id, next) in [("x", 0, 2), ("", 5, 2), ("", 0, 2)] {
            let mut table = table.as_ref().clone();
            table.next_entry = next;
            let entry = Entry {
                id,
                stamp: 9,
                ..good[1].clone()
            };
            let key = if key.is_empty() {
                Entry::key(9, id)
            } else {
                key.to_owned()
            };
            let changes = [(key, Some(entry))].into();
            table.entries = table
                .entries
                .apply(&builder.store, &mut builder.stage, changes)
                .await
                .unwrap();
            let error = builder
                .reader(&Arc::new(table))
                .entries()
                .await
                .unwrap_err();
            assert_eq!(error.code(), "Corrupt");
        }
    });
}
