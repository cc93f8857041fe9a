//! Reads key columns and compares rows, order, ranges, dead positions and counts.

use std::collections::HashSet;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use arrow::array::{Array, AsArray};
use futures::TryStreamExt;
use roaring::RoaringBitmap;
use twox_hash::XxHash3_128;

use super::{Checks, Surveyed};
use crate::digest::Digest;
use crate::env::Env;
use crate::store::Store;
use crate::table::bitmap::DeadRows;
use crate::table::ledger::Ledger;
use crate::table::manifest::{Entry, Fragment, KeyRange, Layout};
use crate::table::mask::{LogicalMask, mask_digest};
use crate::table::order::{OrderCheck, SortKeys};
use crate::table::projection::Projection;
use crate::table::read::{ReadOptions, TableReader};
use crate::table::reservation::Reservation;
use crate::table::schema::{key_column, sort_columns};
use crate::table::stream::stream;
use crate::{Error, Result};

/// Keys whose hashes are held at once to find equal ones.
const KEYS_AT_ONCE: u64 = 4_000_000;
const BATCH_ROWS: usize = 8_192;

pub(super) async fn check_table(
    store: &Arc<Store>,
    env: &Env,
    checks: &mut Checks,
    surveyed: &Surveyed,
) {
    let reader = TableReader::new(Arc::clone(store), env, Arc::clone(&surveyed.table));
    let mask = match surveyed.table.layout {
        Layout::Embedding => Some(LogicalMask::load(store, &env.budget, &surveyed.entries).await),
        Layout::Node | Layout::Edge | Layout::Neighbors => None,
    };
    let table = &surveyed.table;
    // A source with equal keys gives a table with equal keys; its fold says so.
    let unique = match table.layout {
        Layout::Embedding => table.fold.is_some_and(|f| f.unique),
        Layout::Node | Layout::Edge => true,
        Layout::Neighbors => false,
    };
    let (mut live, mut keys) = (0, LiveKeys::new(&reader, unique));
    for entry in &surveyed.entries {
        if let Some(fragment) = &entry.fragment {
            check_rows(&reader, checks, entry, fragment, &mut keys).await;
            check_dead(&reader, checks, entry, fragment, mask.as_ref()).await;
            live += fragment.rows.saturating_sub(fragment.dead.rows);
        }
    }
    check_counts(store, env, checks, surveyed, live).await;
    if unique {
        let found = match keys.all_differ() {
            true => Ok(None),
            false => repeated_key(&reader, &surveyed.entries, live).await,
        };
        let found = found.map(|key| key.map_or("unique".to_owned(), |k| format!("{k:?} repeats")));
        checks.push(&surveyed.key, "unique_keys", "unique".to_owned(), found);
    }
}

/// Hashes of the live keys of a table, as long as they are few enough to be held.
struct LiveKeys {
    /// `None` once they were too many, or nobody asks.
    hashes: Option<Vec<u64>>,
    memory: Reservation,
}

impl LiveKeys {
    fn new(reader: &TableReader, wanted: bool) -> Self {
        Self {
            hashes: wanted.then(Vec::new),
            memory: Reservation::new(reader.budget()),
        }
    }

    /// Adds the rows of a fragment from position `first` on that are not dead.
    fn add(&mut self, keys: &SortKeys, first: u64, dead: &RoaringBitmap) {
        let Some(hashes) = &mut self.hashes else {
            return;
        };
        let all = hashes.len() + keys.len();
        let room = all as u64 <= KEYS_AT_ONCE;
        if !room || self.memory.resize(all * size_of::<u64>()).is_err() {
            return self.give_up();
        }
        for (row, position) in (0..keys.len()).zip(first..) {
            let dead = !dead.is_empty() && u32::try_from(position).is_ok_and(|p| dead.contains(p));
            if !dead {
                hashes.push(XxHash3_128::oneshot(keys.key(row).as_bytes()) as u64);
            }
        }
    }

    fn give_up(&mut self) {
        self.hashes = None;
    }

    /// Whether they are certainly different; `false` says nothing.
    fn all_differ(self) -> bool {
        let Some(mut hashes) = self.hashes else {
            return false;
        };
        hashes.sort_unstable();
        hashes.windows(2).all(|pair| pair[0] != pair[1])
    }
}

/// Rows, order and key range of a fragment, from its key columns.
async fn check_rows(
    reader: &TableReader,
    checks: &mut Checks,
    entry: &Entry,
    fragment: &Fragment,
    live: &mut LiveKeys,
) {
    let key = &fragment.file.object.key;
    let walked = walk(reader, entry, live).await;
    if walked.is_err() {
        live.give_up();
    }
    let (found, order) = match walked {
        Ok((rows, disorder, range)) => (Ok((rows, range)), Ok(disorder)),
        Err(error) => (Err(error), Ok(None)),
    };
    let text = |rows: u64, range: &KeyRange| {
        format!("{rows} rows, keys {:?} to {:?}", range.min, range.max)
    };
    let expected = text(fragment.rows, &fragment.keys);
    let readable = found.is_ok();
    let found = found.map(|(rows, range)| match range {
        Some(range) => text(rows, &range),
        None => "no rows".to_owned(),
    });
    checks.push(key, "rows", expected, found);
    if readable {
        let found = order.map(|d: Option<String>| d.map_or("sorted".to_owned(), |d| d));
        checks.push(key, "order", "sorted".to_owned(), found);
    }
}

async fn walk(
    reader: &TableReader,
    entry: &Entry,
    live: &mut LiveKeys,
) -> Result<(u64, Option<String>, Option<KeyRange>)> {
    let layout = reader.table().layout;
    let ids = sort_columns(layout);
    let (mut order, mut rows, mut disorder) = (OrderCheck::new(layout), 0, None);
    if let Some(open) = reader.open(entry).await? {
        let projection = Projection::new(&open, &reader.columns(Some(ids))?, false)?;
        let (all, none) = (open.positions(), Arc::default());
        let all = std::slice::from_ref(&all);
        let mut batches = stream(&open, projection, all, none, BATCH_ROWS, reader.budget())?;
        while let Some(batch) = batches.try_next().await? {
            let keys = SortKeys::of(layout, &batch, ids)?;
            let wrong = order.push(&keys);
            live.add(&keys, rows, &open.dead);
            disorder = disorder.or(wrong.map(|(row, key)| (rows + row as u64, key)));
            rows += keys.len() as u64;
        }
    }
    let disorder = disorder.map(|(row, key)| format!("row {row} with key {key:?} out of order"));
    Ok((rows, disorder, order.range()))
}

/// The bitmap of a fragment: where there is a logical mask, it must follow from it.
async fn check_dead(
    reader: &TableReader,
    checks: &mut Checks,
    entry: &Entry,
    fragment: &Fragment,
    mask: Option<&Result<LogicalMask>>,
) {
    let key = &fragment.file.object.key;
    let recorded = match reader.dead_rows(entry).await.and_then(|b| described(&b)) {
        Ok(recorded) => recorded,
        Err(error) => return checks.push(key, "dead_rows", "a bitmap".to_owned(), Err(error)),
    };
    let derived = match mask {
        None => Ok(recorded.clone()),
        Some(Err(_)) => Err(Error::corrupt(
            "mask",
            key,
            "a readable mask",
            "an unreadable delta",
        )),
        Some(Ok(mask)) => {
            let keys: Vec<&str> = mask.dead_keys(entry.stamp).collect();
            reader
                .positions_of(entry, &keys)
                .await
                .and_then(|b| described(&b))
        }
    };
    match derived {
        Ok(derived) => checks.push(key, "dead_rows", derived, Ok(recorded)),
        Err(error) => checks.push(key, "dead_rows", recorded, Err(error)),
    }
}

fn described(bitmap: &RoaringBitmap) -> Result<String> {
    let rows = DeadRows::from_bitmap(bitmap)?;
    let digest = Digest::of(rows.inline.unwrap_or_default().as_bytes());
    Ok(format!("{} dead rows ({digest})", rows.rows))
}

async fn check_counts(
    store: &Store,
    env: &Env,
    checks: &mut Checks,
    surveyed: &Surveyed,
    live: u64,
) {
    let (table, entries) = (&surveyed.table, &surveyed.entries);
    let fragments = || entries.iter().filter_map(|e| e.fragment.as_ref());
    let dead: u64 = fragments().map(|f| f.dead.rows).sum();
    let counted = [
        ("entries", table.entries.len(), entries.len() as u64),
        ("live_rows", table.live_rows, live),
        ("masked_rows", table.dead_rows, dead),
        ("fragments", table.fragments, fragments().count() as u64),
    ];
    for (kind, expected, found) in counted {
        checks.push(
            &surveyed.key,
            kind,
            expected.to_string(),
            Ok(found.to_string()),
        );
    }
    let hex = |digest: Option<Digest>| digest.map_or("none".to_owned(), |d| d.to_string());
    let found = hex(mask_digest(entries));
    checks.push(
        &surveyed.key,
        "mask_digest",
        hex(table.mask_digest),
        Ok(found),
    );
    let ledger = Ledger::load(store, &env.budget, entries).await;
    let found = ledger.map(|ledger| ledger.len().to_string());
    checks.push(
        &surveyed.key,
        "rejected_rows",
        table.rejects.to_string(),
        found,
    );
}

/// A key that two live rows have.
async fn repeated_key(
    reader: &TableReader,
    entries: &[Entry],
    live: u64,
) -> Result<Option<String>> {
    let layout = reader.table().layout;
    let options = ReadOptions::columns(&[key_column(layout)]);
    if layout != Layout::Edge {
        let mut last: Option<String> = None;
        let mut rows = reader.scan_entries(entries, &options).await?;
        while let Some(batch) = rows.try_next().await? {
            let keys = batch.column(0).as_string::<i32>();
            for row in 0..keys.len() {
                let before = if row == 0 {
                    last.as_deref()
                } else {
                    Some(keys.value(row - 1))
                };
                if before == Some(keys.value(row)) {
                    return Ok(Some(keys.value(row).to_owned()));
                }
            }
            last = keys
                .len()
                .checked_sub(1)
                .map(|row| keys.value(row).to_owned());
        }
        return Ok(None);
    }
    // Edges are not sorted by key: their hashes are compared, in as many passes as memory asks for.
    let passes = live.div_ceil(KEYS_AT_ONCE).max(1);
    for pass in 0..passes {
        if let Some(key) = repeated_hash(reader, entries, &options, (pass, passes)).await? {
            return Ok(Some(key));
        }
    }
    Ok(None)
}

async fn repeated_hash(
    reader: &TableReader,
    entries: &[Entry],
    options: &ReadOptions,
    (pass, passes): (u64, u64),
) -> Result<Option<String>> {
    let mut memory = Reservation::new(reader.budget());
    let mut seen: HashSet<u128> = HashSet::new();
    for entry in entries {
        let mut rows = reader.fragment_stream(entry, options).await?;
        while let Some(batch) = rows.try_next().await? {
            let mine = |key: &&str| half(0, key) % passes == pass;
            for key in batch
                .column(0)
                .as_string::<i32>()
                .iter()
                .flatten()
                .filter(mine)
            {
                let hash = (u128::from(half(0, key)) << 64) | u128::from(half(1, key));
                if !seen.insert(hash) {
                    return Ok(Some(key.to_owned()));
                }
            }
            memory.resize(seen.capacity() * size_of::<u128>())?;
        }
    }
    Ok(None)
}

fn half(half: u8, key: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    (half, key).hash(&mut hasher);
    hasher.finish()
}
