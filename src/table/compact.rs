//! Merges fragments into one. Live rows stay as they are, byte for byte; dead rows and row-id shifts
//! go; the version number and the identity's content of a table do not change by it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use futures::TryStreamExt;

use super::ledger::Ledger;
use super::manifest::{DeltaObject, Entry, Fragment, Replaced};
use super::read::{ReadOptions, TableReader};
use super::writer::FragmentWriter;
use crate::env::Env;
use crate::store::Stager;
use crate::{Error, Result};

/// What a compaction staged. It says nothing about the parent that it will extend.
#[derive(Debug, Clone, PartialEq)]
pub struct Compaction {
    /// The merged fragment; `None` if no live row was left.
    pub fragment: Option<Fragment>,
    /// The ledger as one delta, if all entries were merged and it is not empty.
    pub rejects: Option<DeltaObject>,
    /// Whether all entries of the version were merged: then its mask is gone too.
    pub full: bool,
    /// Entries that were merged.
    pub merged: Vec<Entry>,
}

/// Merges the fragments of `entries` of the version that `reader` reads.
///
/// A compaction of some entries leaves their mask and ledger deltas where they are: the masks still
/// hide keys in older fragments, and the ledger is a fold in entry order. Needs memory for one window
/// a fragment and one row group.
///
/// # Errors
/// As [`TableReader::scan`] and [`FragmentWriter::finish`]; nothing is left staged then.
pub async fn compact(
    reader: &TableReader,
    env: &Env,
    entries: &[Entry],
    stage: &mut Stager,
) -> Result<Compaction> {
    let (table, store) = (reader.table(), reader.store());
    let path = format!("type {}", table.type_id);
    let schema = table
        .current_schema()
        .ok_or_else(|| Error::corrupt("table manifest", &path, "a schema", "none"))?;
    let merged: BTreeSet<u64> = entries.iter().map(|e| e.id).collect();
    let all = reader.entries().await?;
    let full = all.iter().all(|e| merged.contains(&e.id));
    let key = stage.reserve("parquet")?;
    let mut writer = FragmentWriter::new(Arc::clone(store), env, table.layout, schema, key)?;
    let mut rows = reader
        .scan_entries(entries, &ReadOptions::default())
        .await?;
    let live = live_rows(entries);
    while let Some(batch) = rows.try_next().await? {
        writer.write(&batch).await?;
        env.progress.report("compact", writer.rows(), live);
    }
    let fragment = writer.finish(stage).await?;
    let rejects = match full {
        true => Ledger::load(store, &env.budget, &all).await?.write(stage)?,
        false => None,
    };
    Ok(Compaction {
        fragment,
        rejects,
        full,
        merged: entries.to_vec(),
    })
}

fn live_rows(entries: &[Entry]) -> u64 {
    let fragments = entries.iter().filter_map(|e| e.fragment.as_ref());
    fragments.map(|f| f.rows.saturating_sub(f.dead.rows)).sum()
}

impl Compaction {
    /// Changes of the table's entries, and the record of them for rebases. The new entry gets the
    /// number `next_entry` and, as its stamp, the version that was read. An entry of a partial
    /// compaction that carries a mask or ledger delta stays without its fragment.
    pub fn changes(
        &self,
        next_entry: u64,
        read_version: u64,
    ) -> (BTreeMap<String, Option<Entry>>, Replaced) {
        let mut changes = BTreeMap::new();
        for entry in &self.merged {
            let keep = !self.full && (entry.mask.is_some() || entry.rejects.is_some());
            let rest = keep.then(|| Entry {
                fragment: None,
                ..entry.clone()
            });
            changes.insert(Entry::key(entry.stamp, entry.id), rest);
        }
        let mut replaced = Replaced {
            old: self.merged.iter().map(|e| e.id).collect(),
            new: Vec::new(),
            read_version,
        };
        if self.fragment.is_some() || self.rejects.is_some() {
            let entry = Entry {
                stamp: read_version,
                id: next_entry,
                fragment: self.fragment.clone(),
                mask: None,
                rejects: self.rejects.clone(),
            };
            changes.insert(Entry::key(entry.stamp, entry.id), Some(entry));
            replaced.new.push(next_entry);
        }
        (changes, replaced)
    }
}
