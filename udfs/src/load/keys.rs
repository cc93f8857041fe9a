//! Ids of a type's rows: repeated ones, those that exist already, and the row ids of all.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, BooleanArray, RecordBatch, StringArray, UInt64Array};
use arrow::compute::{concat_batches, filter, filter_record_batch};
use futures::{StreamExt, TryStreamExt, stream};
use roaring::RoaringBitmap;
use stratagraph::Result;
use stratagraph::graph::schema::GraphType;
use stratagraph::graph::violation::Violation;
use stratagraph::table::read::TableReader;

use super::LoadMode;
use super::few;
use super::found::{Found, numbers, shown};
use super::plans::{Plan, SPOOLS};
use super::rows::{TypeRows, keyed_schema, rows_schema};
use crate::host::Host;
use crate::spool::{SegmentWriter, Spool, Spooler};

/// Ids that are looked up at once.
const GROUP_ROWS: usize = 65_536;
/// Bytes of the rows that wait for it, where memory has no end.
const GROUP_BYTES: usize = 32 * 1024 * 1024;
/// Share of a bounded pool that they take.
const GROUP_SHARE: usize = 32;

/// Rows of one type with their row ids, each id once, in the order of the ids.
#[derive(Debug)]
pub(crate) struct Keyed {
    pub(crate) rows: Spool,
    /// Stored rows that they replace, by entry number.
    pub(crate) replaced: BTreeMap<u64, RoaringBitmap>,
    /// Number of rows whose id exists already.
    pub(crate) known: u64,
    /// Row ids that were taken from the counter.
    pub(crate) new_rids: u64,
}

/// What the rows of one type meet.
pub(crate) struct Keys<'a> {
    pub(crate) host: &'a Host,
    pub(crate) of: &'a GraphType,
    pub(crate) mode: LoadMode,
    /// The stored rows; `None` if no id of the load can be there.
    pub(crate) stored: Option<TableReader>,
    /// The next row id.
    pub(crate) counter: u64,
}

impl Keys<'_> {
    /// Goes through the rows in the order of their ids.
    pub(crate) async fn run(&self, input: &TypeRows, found: &mut Found) -> Result<Keyed> {
        let mut rows = if !input.given {
            input.rows.read()
        } else if let Some(rows) = few::few(&input.rows).await? {
            stream::iter([few::sorted(&rows, &[1, 0])]).boxed()
        } else {
            let plan = Plan::new(self.host).with_rows("loaded", &input.rows)?;
            let sql = "SELECT * FROM loaded ORDER BY k, r";
            plan.stream(sql, rows_schema(self.of)).await?
        };
        let schema = keyed_schema(self.of);
        let spooler = Spooler::new(self.host, Arc::clone(&schema), "rows with ids", SPOOLS);
        let mut walk = Walk {
            keys: self,
            segment: spooler.segment(),
            first: None,
            replaced: BTreeMap::new(),
            known: 0,
            new_rids: 0,
        };
        let bytes = match self.host.memory_limit() {
            Some(limit) => (limit / GROUP_SHARE).min(GROUP_BYTES),
            None => GROUP_BYTES,
        };
        let mut group: Vec<RecordBatch> = Vec::new();
        let (mut waiting, mut held) = (0, 0);
        while let Some(batch) = rows.try_next().await? {
            if !input.given {
                walk.take(&batch, None, found).await?;
                continue;
            }
            waiting += batch.num_rows();
            held += batch.get_array_memory_size();
            group.push(batch);
            let full = waiting > GROUP_ROWS || held > bytes || self.stored.is_none();
            if full && waiting > 1 {
                // The last row waits for its successor, which may have the same id.
                let all = concat_batches(&rows_schema(self.of), &std::mem::take(&mut group))?;
                let last = all.num_rows() - 1;
                let next = all.column(1).as_string::<i32>().value(last);
                walk.take(&all.slice(0, last), Some(next), found).await?;
                let rest = concat_batches(&rows_schema(self.of), &[all.slice(last, 1)])?;
                (waiting, held) = (1, rest.get_array_memory_size());
                group.push(rest);
            }
        }
        if waiting > 0 {
            let all = concat_batches(&rows_schema(self.of), &group)?;
            walk.take(&all, None, found).await?;
        }
        Ok(Keyed {
            rows: Spool::new(schema, vec![walk.segment.finish()?]),
            replaced: walk.replaced,
            known: walk.known,
            new_rids: walk.new_rids,
        })
    }
}

impl Keys<'_> {
    /// Row id, entry and position of the stored row of each id.
    async fn stored(&self, rows: &RecordBatch) -> Result<Vec<(Option<u64>, u64, u32)>> {
        let mut out = vec![(None, 0, 0); rows.num_rows()];
        if let Some(reader) = &self.stored {
            let ids = rows.column(1).as_string::<i32>();
            let ids: Vec<&str> = ids.iter().flatten().collect();
            for hit in reader.lookup(&ids).await? {
                out[hit.key] = (hit.rid, hit.entry, hit.position);
            }
        }
        Ok(out)
    }

    fn refuse_known(
        &self,
        rows: &RecordBatch,
        stored: &[(Option<u64>, u64, u32)],
        found: &mut Found,
    ) -> Result<()> {
        if self.mode != LoadMode::Append {
            return Ok(());
        }
        let known = stored.iter().map(|(rid, _, _)| rid.is_some());
        let known = BooleanArray::from(known.collect::<Vec<bool>>());
        if known.true_count() == 0 {
            return Ok(());
        }
        let ids = filter(rows.column(1), &known)?;
        let ids: &StringArray = ids.as_string();
        let records = filter_record_batch(rows, &known)?;
        for (id, record) in ids.iter().flatten().zip(numbers(&records, 0)?) {
            found.add_conflict(*record, &self.of.name, id);
        }
        Ok(())
    }
}

struct Walk<'a> {
    keys: &'a Keys<'a>,
    segment: SegmentWriter,
    /// The id of the last row, and the first record that has it.
    first: Option<(String, u64)>,
    replaced: BTreeMap<u64, RoaringBitmap>,
    known: u64,
    new_rids: u64,
}

impl Walk<'_> {
    /// Takes rows in the order of their ids; `next` is the id after them.
    async fn take(
        &mut self,
        rows: &RecordBatch,
        next: Option<&str>,
        found: &mut Found,
    ) -> Result<()> {
        let kept = self.one_of_each(rows, next, found)?;
        let rows = match kept.true_count() == rows.num_rows() {
            true => rows.clone(),
            false => filter_record_batch(rows, &kept)?,
        };
        let stored = self.keys.stored(&rows).await?;
        self.keys.refuse_known(&rows, &stored, found)?;
        let mut rids = Vec::with_capacity(rows.num_rows());
        for (rid, _, _) in &stored {
            rids.push(rid.unwrap_or(self.keys.counter + self.new_rids));
            self.new_rids += u64::from(rid.is_none());
        }
        for (_, entry, position) in stored.iter().filter(|(rid, _, _)| rid.is_some()) {
            self.known += 1;
            self.replaced.entry(*entry).or_default().insert(*position);
        }
        let mut columns = rows.columns().to_vec();
        columns.push(Arc::new(UInt64Array::from(rids)) as ArrayRef);
        let schema = keyed_schema(self.keys.of);
        self.segment.push(RecordBatch::try_new(schema, columns)?)
    }

    /// Which row of those with one id counts.
    fn one_of_each(
        &mut self,
        rows: &RecordBatch,
        next: Option<&str>,
        found: &mut Found,
    ) -> Result<BooleanArray> {
        let (ids, records) = (rows.column(1).as_string::<i32>(), numbers(rows, 0)?);
        let mut kept = Vec::with_capacity(ids.len());
        // Where the rows of the current id begin; before this batch without a place.
        let mut start = None;
        for row in 0..ids.len() {
            let (id, record) = (ids.value(row), records[row]);
            let repeats = match row {
                0 => self.first.as_ref().is_some_and(|(first, _)| first == id),
                _ => ids.value(row - 1) == id,
            };
            if !repeats {
                start = Some(row);
            }
            if self.keys.mode == LoadMode::Merge {
                let after = match row + 1 < ids.len() {
                    true => Some(ids.value(row + 1)),
                    false => next,
                };
                kept.push(after != Some(id));
                continue;
            }
            kept.push(!repeats);
            if repeats {
                let before = self.first.as_ref().map_or(0, |(_, record)| *record);
                let first = start.map_or(before, |start| records[start]);
                found.add(self.repeated(record, id, first));
            }
        }
        if let Some(start) = start {
            self.first = Some((ids.value(start).to_owned(), records[start]));
        }
        Ok(BooleanArray::from(kept))
    }

    fn repeated(&self, record: u64, id: &str, first: u64) -> Violation {
        Violation {
            record,
            type_name: self.keys.of.name.clone(),
            id: shown(id),
            rule: "key",
            message: format!(
                "record {first} has the same id; leave one of them out, or use mode 'merge'"
            ),
        }
    }
}
