//! Row ids of graphs: each once among live rows, and ends of edges that are the ids of their nodes.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::array::{AsArray, RecordBatch, StringArray};
use arrow::datatypes::UInt64Type;
use futures::TryStreamExt;
use roaring::RoaringTreemap;

use super::{Checks, Surveyed};
use crate::env::Env;
use crate::store::Store;
use crate::table::manifest::{Entry, Layout};
use crate::table::read::{ReadOptions, TableReader};
use crate::table::reservation::Reservation;
use crate::table::schema::id;
use crate::{Error, Result};

pub(super) async fn check_table(
    store: &Arc<Store>,
    env: &Env,
    checks: &mut Checks,
    surveyed: &Surveyed,
    all: &[Surveyed],
) {
    let open = |s: &Surveyed| TableReader::new(Arc::clone(store), env, Arc::clone(&s.table));
    let reader = open(surveyed);
    let found = repeated_rid(&reader, &surveyed.entries).await;
    let found = found.map(|rid| rid.map_or("unique".to_owned(), |rid| format!("{rid} repeats")));
    checks.push(&surveyed.key, "row_ids", "unique".to_owned(), found);
    let Some(ends) = surveyed
        .table
        .endpoints
        .filter(|_| surveyed.table.layout == Layout::Edge)
    else {
        return;
    };
    let nodes = |type_id| all.iter().find(|s: &&Surveyed| s.table.type_id == type_id);
    let sides = [
        ("src_ids", ends.src, [id::SRC, id::SRC_RID]),
        ("dst_ids", ends.dst, [id::DST, id::DST_RID]),
    ];
    for (kind, type_id, columns) in sides {
        let found = match nodes(type_id) {
            Some(nodes) => {
                let nodes = (open(nodes), nodes.entries.as_slice());
                wrong_ends(&reader, &surveyed.entries, columns, nodes).await
            }
            None => Err(Error::corrupt(
                "version manifest",
                &surveyed.key,
                format!("node type {type_id}"),
                "no such table",
            )),
        };
        checks.push(&surveyed.key, kind, "resolved".to_owned(), found);
    }
}

async fn repeated_rid(reader: &TableReader, entries: &[Entry]) -> Result<Option<u64>> {
    let mut memory = Reservation::new(reader.budget());
    let mut seen = RoaringTreemap::new();
    for entry in entries {
        let options = ReadOptions::columns(&[id::RID]);
        let mut rows = reader.fragment_stream(entry, &options).await?;
        while let Some(batch) = rows.try_next().await? {
            for rid in batch.column(0).as_primitive::<UInt64Type>().values() {
                if !seen.insert(*rid) {
                    return Ok(Some(*rid));
                }
            }
            memory.resize(seen.serialized_size())?;
        }
    }
    Ok(None)
}

/// `resolved`, or how many live edges hold another row id than their node has.
async fn wrong_ends(
    edges: &TableReader,
    entries: &[Entry],
    columns: [u64; 2],
    nodes: (TableReader, &[Entry]),
) -> Result<String> {
    let (mut wrong, mut first) = (0u64, None);
    for entry in entries {
        let options = ReadOptions::columns(&columns);
        let mut rows = edges.fragment_stream(entry, &options).await?;
        while let Some(batch) = rows.try_next().await? {
            let ids = ids_of(&nodes, &batch).await?;
            let keys = batch.column(0).as_string::<i32>();
            let rids = batch.column(1).as_primitive::<UInt64Type>();
            for (key, rid) in keys.iter().flatten().zip(rids.values()) {
                if ids.get(key) != Some(rid) {
                    wrong += 1;
                    first.get_or_insert_with(|| format!("{key:?} as {rid}"));
                }
            }
        }
    }
    Ok(match first {
        None => "resolved".to_owned(),
        Some(first) => format!("{wrong} not resolved, first {first}"),
    })
}

/// Row ids of the nodes that a batch of ends names.
async fn ids_of<'a>(
    (reader, entries): &(TableReader, &[Entry]),
    batch: &'a RecordBatch,
) -> Result<BTreeMap<&'a str, u64>> {
    let names: &StringArray = batch.column(0).as_string();
    let mut keys: Vec<&str> = names.iter().flatten().collect();
    keys.sort_unstable();
    keys.dedup();
    let found = reader.lookup_entries(entries, &keys).await?;
    Ok(found
        .into_iter()
        .filter_map(|f| Some((keys[f.key], f.rid?)))
        .collect())
}
