//! Writers and readers over a store that fails, and under budgets.

use std::sync::{Arc, Mutex};

use futures::TryStreamExt;
use object_store::memory::InMemory;
use stratagraph::env::Budget;
use stratagraph::sim::{Fault, FaultStore, Op, Rng};
use stratagraph::store::Store;
use stratagraph::table::compact::compact;
use stratagraph::table::ledger::Ledger;
use stratagraph::table::manifest::Layout;
use stratagraph::table::mask::LogicalMask;
use stratagraph::table::read::{ReadOptions, TableReader};
use stratagraph::table::writer::FragmentWriter;
use stratagraph::{Error, Result};

use crate::support::tables::{Row, TableBuilder, batch, block_on, rows_of, schema};

/// Text that compression does not shorten much.
fn noise(seed: u64, length: u64) -> String {
    let mut rng = Rng::new(seed + 1);
    (0..length)
        .map(|_| char::from(b' ' + rng.below(90) as u8))
        .collect()
}

fn large_rows(rows: u64, length: u64) -> Vec<Row> {
    let row = |i: u64| Row {
        text: Some(noise(i, length)),
        ..Row::new(&format!("k{i:06}"), i)
    };
    (0..rows).map(row).collect()
}

fn on(faults: &FaultStore) -> Arc<Store> {
    Arc::new(Store::new(
        faults.store(),
        Default::default(),
        "memory:///",
        true,
    ))
}

async fn upload(faults: &FaultStore, rows: &[Row]) -> Result<()> {
    let mut builder = TableBuilder::on(on(faults), Layout::Node);
    let wide = schema(Layout::Node, true);
    let key = builder.stage.reserve("parquet")?;
    let store = Arc::clone(&builder.store);
    let mut writer = FragmentWriter::new(store, &builder.env, Layout::Node, &wide, key)?;
    for part in rows.chunks(512) {
        writer.write(&batch(&wide, part)).await?;
    }
    writer.finish(&mut builder.stage).await.map(drop)
}

/// A failed part fails the write; what was sent is aborted and no object is visible.
#[test]
fn failed_uploads_leave_no_object() {
    block_on(async {
        let rows = large_rows(4_000, 9_000);
        let honest = FaultStore::new(Arc::new(InMemory::new()));
        upload(&honest, &rows).await.unwrap();
        let calls: Vec<Op> = honest.trace().iter().map(|c| c.op).collect();
        assert_eq!(calls.first(), Some(&Op::UploadBegin));
        assert_eq!(calls.last(), Some(&Op::UploadComplete));
        assert!(
            calls.iter().filter(|op| **op == Op::UploadPart).count() > 2,
            "{calls:?}"
        );
        for number in 0..calls.len() as u64 {
            let base = Arc::new(InMemory::new());
            let faults = FaultStore::new(base.clone());
            faults.plan(number, Fault::FailBefore);
            let error = upload(&faults, &rows).await.unwrap_err();
            assert_eq!(error.code(), "Storage", "{number}");
            let after: Vec<Op> = faults.trace().iter().map(|c| c.op).collect();
            let aborted = after.contains(&Op::UploadAbort);
            assert!(aborted || number == 0, "{number}: {after:?}");
            let base = Store::new(base, Default::default(), "memory:///", true);
            assert!(base.list("").await.unwrap().is_empty(), "{number}");
        }
    });
}

/// Reads of a fragment that is not read whole: every call fails, is cut short or is truncated in turn.
#[test]
fn failed_and_short_reads_are_errors() {
    block_on(async {
        let base = Arc::new(InMemory::new());
        let store = Arc::new(Store::new(
            base.clone(),
            Default::default(),
            "memory:///",
            true,
        ));
        let mut builder = TableBuilder::on(store, Layout::Node);
        builder.add(0, true, &large_rows(5_000, 500)).await;
        let table = builder.finish().await;
        let read = async |faults: &FaultStore| -> Result<(Vec<Row>, usize)> {
            let reader = TableReader::new(on(faults), &builder.env, Arc::clone(&table));
            let found = reader.lookup(&["k000007", "k004000", "x"]).await?.len();
            let rows = reader.scan(&ReadOptions::default()).await?;
            let batches: Vec<_> = rows.try_collect().await?;
            Ok((
                batches
                    .iter()
                    .flat_map(|b| rows_of(Layout::Node, b))
                    .collect(),
                found,
            ))
        };
        let honest = FaultStore::new(base.clone());
        let expected = read(&honest).await.unwrap();
        assert_eq!((expected.0.len(), expected.1), (5_000, 2));
        let calls = honest.calls();
        assert!((3..12).contains(&calls), "{calls}");
        for number in 0..calls {
            for fault in [Fault::FailBefore, Fault::ShortRead, Fault::Truncated] {
                let faults = FaultStore::new(base.clone());
                faults.plan(number, fault);
                let error = read(&faults).await.unwrap_err();
                assert!(
                    ["Storage", "Corrupt"].contains(&error.code()),
                    "{fault:?} {error}"
                );
            }
        }
    });
}

/// A budget of a number of bytes; remembers the most that was taken.
#[derive(Debug, Default)]
struct Counting {
    limit: usize,
    state: Mutex<(usize, usize)>,
}

impl Counting {
    fn of(limit: usize) -> (Arc<Self>, Arc<dyn Budget>) {
        let budget = Arc::new(Self {
            limit,
            ..Self::default()
        });
        (Arc::clone(&budget), budget)
    }

    fn held_and_most(&self) -> (usize, usize) {
        *self.state.lock().unwrap()
    }
}

impl Budget for Counting {
    fn grow(&self, bytes: usize) -> Result<()> {
        let mut state = self.state.lock().unwrap();
        if state.0 + bytes > self.limit {
            let (value, limit) = ((state.0 + bytes) as u64, self.limit as u64);
            return Err(Error::ResourceLimitExceeded {
                what: "test memory",
                value,
                limit,
            });
        }
        state.0 += bytes;
        state.1 = state.1.max(state.0);
        Ok(())
    }
    fn shrink(&self, bytes: usize) {
        let mut state = self.state.lock().unwrap();
        state.0 = state.0.checked_sub(bytes).expect("gives back what it took");
    }
}

/// Everything that grows with data asks first and gives back, also when it is refused.
#[test]
fn memory_is_taken_from_the_budget_and_given_back() {
    block_on(async {
        let mut builder = TableBuilder::new(Layout::Embedding);
        let rows: Vec<Row> = (0..9_000)
            .map(|i| Row::new(&format!("k{i:06}"), i))
            .collect();
        let first = builder.add(0, true, &rows).await;
        builder.add(1, true, &rows[..100]).await;
        let dead = rows.iter().take(100).map(|r| (r.key.clone(), 0)).collect();
        builder.mask(first, &dead);
        builder.settle_masks(&dead);
        let table = builder.finish().await;
        let mut refused = 0;
        for limit in [10_000, 100_000, 300_000, 1_000_000, usize::MAX / 2] {
            let (counted, budget) = Counting::of(limit);
            builder.env.budget = budget;
            let reader = builder.reader(&table);
            let entries = reader.entries().await.unwrap();
            let scanned = async {
                let rows = reader.scan(&ReadOptions::default()).await?;
                rows.try_collect::<Vec<_>>().await
            };
            let outcomes = [
                scanned.await.err(),
                reader.lookup(&["k000500"]).await.err(),
                LogicalMask::load(&builder.store, &builder.env.budget, &entries)
                    .await
                    .err(),
                Ledger::load(&builder.store, &builder.env.budget, &entries)
                    .await
                    .err(),
                compact(&reader, &builder.env, &entries, &mut builder.stage)
                    .await
                    .err(),
            ];
            for error in outcomes.iter().flatten() {
                assert_eq!(error.code(), "ResourceLimitExceeded", "{error}");
                refused += 1;
            }
            let (held, most) = counted.held_and_most();
            assert_eq!(held, 0, "limit {limit}");
            assert!(most <= limit);
            if limit > 1_000_000 {
                assert!(outcomes.iter().all(Option::is_none) && most > 100_000);
            }
        }
        assert!(refused > 3, "{refused}");
    });
}
