//! What one side of a merge changed since the base: rows of one type, by id.
//!
//! Fragments never change and sides share those of the base, so only rows are read that one of the two
//! states has and the other has not in the same place. Rows that only moved cancel out while both are read
//! in their common order, so that they take no memory.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::iter::Peekable;
use std::vec;

use arrow::array::{Array, ArrayRef, AsArray, RecordBatch};
use arrow::datatypes::{UInt32Type, UInt64Type};
use arrow::row::{RowConverter, SortField};
use futures::TryStreamExt;
use roaring::RoaringBitmap;

use crate::digest::Digest;
use crate::graph::schema::{GraphType, Member};
use crate::publish::moves::{all, with_live};
use crate::table::BatchStream;
use crate::table::manifest::{Entry, Fragment};
use crate::table::read::{ReadOptions, TableReader};
use crate::table::reservation::Reservation;
use crate::table::schema::id;
use crate::{Error, Result};

/// A row of one state.
#[derive(Debug, Clone)]
pub(in crate::publish) struct Row {
    /// Digest of everything but row ids.
    pub content: Digest,
    pub rid: u64,
    /// Row ids of the ends of an edge.
    pub ends: Option<[u64; 2]>,
    /// The source of an edge, where its type bounds their number.
    pub src: Option<String>,
    /// Where it lies.
    pub entry: u64,
    pub position: u32,
    /// Digests of its unique tuples; `None` for one with a NULL.
    pub tuples: Vec<Option<Digest>>,
}

/// A row before and after the changes of a side.
#[derive(Debug, Default)]
pub(in crate::publish) struct Change {
    pub was: Option<Row>,
    pub is: Option<Row>,
}

impl Change {
    /// Notes the row before.
    pub(in crate::publish) fn set_was(&mut self, row: Row) {
        self.was = Some(row);
    }

    /// Notes the row after.
    pub(in crate::publish) fn set_is(&mut self, row: Row) {
        self.is = Some(row);
    }
}

/// Changed rows by id.
#[derive(Debug)]
pub(in crate::publish) struct Changes {
    pub rows: BTreeMap<String, Change>,
    memory: Reservation,
}

impl Changes {
    /// No change yet; memory comes from the budget of `reader`.
    pub(in crate::publish) fn of(reader: &TableReader) -> Self {
        Self {
            rows: BTreeMap::new(),
            memory: Reservation::new(reader.budget()),
        }
    }

    /// Notes the rows of a batch.
    pub(in crate::publish) fn take(
        &mut self,
        encoder: &Encoder,
        batch: &RecordBatch,
        put: fn(&mut Change, Row),
    ) -> Result<()> {
        let mut rows = encoder.rows(batch)?.into_iter();
        rows.try_for_each(|row| self.put(Some(row), put))
    }

    fn put(&mut self, row: Option<(String, Row)>, put: fn(&mut Change, Row)) -> Result<()> {
        if let Some((key, row)) = row {
            let own = key.len() + row.src.as_ref().map_or(0, String::len);
            let tuples = row.tuples.len() * size_of::<Option<Digest>>();
            self.memory.grow(own + size_of::<Row>() + tuples + 64)?;
            put(self.rows.entry(key).or_default(), row);
        }
        Ok(())
    }
}

/// What `side` changed since `base`. Holds about 200 bytes a changed row.
pub(super) async fn diff(
    of: &GraphType,
    base: &TableReader,
    side: &TableReader,
) -> Result<Changes> {
    let changes = diff_within(of, base, side, u64::MAX).await?;
    Ok(changes.unwrap_or_else(|| Changes::of(side)))
}

/// The same; `None` if more than `most` rows lie in other places than before.
pub(in crate::publish) async fn diff_within(
    of: &GraphType,
    base: &TableReader,
    side: &TableReader,
    most: u64,
) -> Result<Option<Changes>> {
    let mut changes = Changes::of(side);
    if base.table().entries == side.table().entries {
        return Ok(Some(changes));
    }
    let (before, after) = (only_in(base, side).await?, only_in(side, base).await?);
    let fragments = before
        .iter()
        .chain(&after)
        .filter_map(|e| e.fragment.as_ref());
    let rows: u64 = fragments.map(|f| f.rows - f.dead.rows).sum();
    if rows > most {
        return Ok(None);
    }
    let mut was = Cursor::new(of, base, &before).await?;
    let mut is = Cursor::new(of, side, &after).await?;
    loop {
        let (of_base, of_side) = (was.peek().await?, is.peek().await?);
        let order = match (of_base, of_side) {
            (None, None) => break,
            (Some(_), None) => Ordering::Less,
            (None, Some(_)) => Ordering::Greater,
            (Some(a), Some(b)) => place(a).cmp(&place(b)),
        };
        // A row that only moved is in the same place of both orders, and held no longer than that.
        let moved = order == Ordering::Equal
            && of_base.map(|(_, row)| (row.content, row.rid))
                == of_side.map(|(_, row)| (row.content, row.rid));
        let of_base = was.next_if(order.is_le());
        let of_side = is.next_if(order.is_ge());
        if !moved {
            changes.put(of_base, Change::set_was)?;
            changes.put(of_side, Change::set_is)?;
        }
    }
    changes
        .rows
        .retain(|_, change| match (&change.was, &change.is) {
            (Some(was), Some(is)) => was.content != is.content || was.rid != is.rid,
            _ => true,
        });
    Ok(Some(changes))
}

/// Where a row stands in the order of its table.
fn place((key, row): &(String, Row)) -> ([u64; 2], &str) {
    (row.ends.unwrap_or_default(), key)
}

/// Rows of some entries in the order of their table.
struct Cursor {
    encoder: Encoder,
    batches: BatchStream,
    rows: Peekable<vec::IntoIter<(String, Row)>>,
}

impl Cursor {
    async fn new(of: &GraphType, reader: &TableReader, entries: &[Entry]) -> Result<Self> {
        let options = ReadOptions::default().with_positions();
        Ok(Self {
            encoder: Encoder::new(of, reader, &options)?,
            batches: reader.scan_entries(entries, &options).await?,
            rows: Vec::new().into_iter().peekable(),
        })
    }

    async fn peek(&mut self) -> Result<Option<&(String, Row)>> {
        while self.rows.peek().is_none() {
            let Some(batch) = self.batches.try_next().await? else {
                return Ok(None);
            };
            self.rows = self.encoder.rows(&batch)?.into_iter().peekable();
        }
        Ok(self.rows.peek())
    }

    fn next_if(&mut self, wanted: bool) -> Option<(String, Row)> {
        match wanted {
            true => self.rows.next(),
            false => None,
        }
    }
}

/// Entries of `of` with only those rows live that `other` has not in the same file.
pub(in crate::publish) async fn only_in(
    of: &TableReader,
    other: &TableReader,
) -> Result<Vec<Entry>> {
    let (mine, others) = (of.entries().await?, other.entries().await?);
    let mut files: BTreeMap<&str, Vec<&Entry>> = BTreeMap::new();
    for entry in others.iter() {
        if let Some(fragment) = &entry.fragment {
            let key = fragment.file.object.key.as_str();
            files.entry(key).or_default().push(entry);
        }
    }
    let mut only = Vec::new();
    for entry in mine.iter() {
        let Some(fragment) = &entry.fragment else {
            continue;
        };
        let same = files.get(fragment.file.object.key.as_str());
        let same = same.map(Vec::as_slice).unwrap_or_default();
        if same.iter().any(|e| e.fragment.as_ref() == Some(fragment)) {
            continue;
        }
        let mut rows = live(of, entry, fragment).await?;
        for entry in same {
            if let Some(fragment) = &entry.fragment {
                rows -= live(other, entry, fragment).await?;
            }
        }
        if !rows.is_empty() {
            only.push(with_live(entry, &rows)?);
        }
    }
    Ok(only)
}

async fn live(reader: &TableReader, entry: &Entry, fragment: &Fragment) -> Result<RoaringBitmap> {
    Ok(all(fragment) - reader.dead_rows(entry).await?)
}

/// Notes the live rows of an entry.
pub(in crate::publish) async fn read(
    of: &GraphType,
    reader: &TableReader,
    entry: &Entry,
    changes: &mut Changes,
    put: fn(&mut Change, Row),
) -> Result<()> {
    let options = ReadOptions::default().with_positions();
    let encoder = Encoder::new(of, reader, &options)?;
    let mut rows = reader.fragment_stream(entry, &options).await?;
    while let Some(batch) = rows.try_next().await? {
        changes.take(&encoder, &batch, put)?;
    }
    Ok(())
}

/// Columns that are compared as one value.
pub(in crate::publish) struct Compared {
    columns: Vec<usize>,
    converter: Option<RowConverter>,
}

impl Compared {
    pub(in crate::publish) fn new(
        columns: Vec<usize>,
        types: &arrow::datatypes::Schema,
    ) -> Result<Self> {
        let fields = columns.iter();
        let fields = fields.map(|c| SortField::new(types.field(*c).data_type().clone()));
        let fields: Vec<SortField> = fields.collect();
        let converter = match fields.is_empty() {
            true => None,
            false => Some(RowConverter::new(fields)?),
        };
        Ok(Self { columns, converter })
    }

    /// A digest a row: equal for equal values, floats by their bits.
    pub(in crate::publish) fn digests(&self, batch: &RecordBatch) -> Result<Vec<Digest>> {
        let Some(converter) = &self.converter else {
            return Ok(vec![Digest::of(&[]); batch.num_rows()]);
        };
        let columns: Vec<ArrayRef> = self.arrays(batch).cloned().collect();
        let rows = converter.convert_columns(&columns)?;
        Ok(rows.iter().map(|row| Digest::of(row.as_ref())).collect())
    }

    fn arrays<'a>(&'a self, batch: &'a RecordBatch) -> impl Iterator<Item = &'a ArrayRef> {
        self.columns.iter().map(|column| batch.column(*column))
    }
}

/// Makes rows of batches.
pub(in crate::publish) struct Encoder {
    ids: Vec<u64>,
    content: Compared,
    tuples: Vec<Compared>,
    with_src: bool,
}

impl Encoder {
    /// Of batches that a read with `options` gives, positions included.
    pub(in crate::publish) fn new(
        of: &GraphType,
        reader: &TableReader,
        options: &ReadOptions,
    ) -> Result<Self> {
        let types = reader.schema(options)?;
        let ids: Vec<u64> = reader.columns(None)?.iter().map(|c| c.id).collect();
        let internal = [id::RID, id::ID, id::SRC_RID, id::DST_RID];
        let places = ids.iter().enumerate();
        let content = places.filter(|(_, id)| !internal.contains(id));
        let content = content.map(|(place, _)| place).collect();
        let place = |member: &Member| {
            let wanted = match member {
                Member::Src => id::SRC,
                Member::Dst => id::DST,
                Member::Property(id) => *id,
            };
            ids.iter().position(|id| *id == wanted)
        };
        let tuple = |members: &Vec<Member>| {
            let columns = members.iter().filter_map(place).collect();
            Compared::new(columns, &types)
        };
        Ok(Self {
            content: Compared::new(content, &types)?,
            tuples: of.unique.iter().map(tuple).collect::<Result<_>>()?,
            with_src: of
                .edge
                .as_ref()
                .is_some_and(|e| e.min > 0 || e.max.is_some()),
            ids,
        })
    }

    fn column<'a>(&self, batch: &'a RecordBatch, id: u64) -> Option<&'a ArrayRef> {
        let place = self.ids.iter().position(|i| *i == id)?;
        batch.columns().get(place)
    }

    fn rows(&self, batch: &RecordBatch) -> Result<Vec<(String, Row)>> {
        let wrong = || Error::corrupt("batch", "columns", "those of a graph's table", "others");
        let numbers = |id| self.column(batch, id)?.as_primitive_opt::<UInt64Type>();
        let texts = |id| self.column(batch, id)?.as_string_opt::<i32>();
        let (rids, keys) = (numbers(id::RID).ok_or_else(wrong)?, texts(id::ID));
        let keys = keys.ok_or_else(wrong)?;
        let ends = numbers(id::SRC_RID).zip(numbers(id::DST_RID));
        let sources = texts(id::SRC).filter(|_| self.with_src);
        let (entries, positions) = match batch.columns() {
            [.., entries, positions] => (
                entries.as_primitive_opt::<UInt64Type>().ok_or_else(wrong)?,
                positions
                    .as_primitive_opt::<UInt32Type>()
                    .ok_or_else(wrong)?,
            ),
            _ => return Err(wrong()),
        };
        let content = self.content.digests(batch)?;
        let tuples = self.tuples.iter().map(|t| t.digests(batch));
        let tuples: Vec<Vec<Digest>> = tuples.collect::<Result<_>>()?;
        let tuples_of = |row: usize| {
            let all = self.tuples.iter().zip(&tuples);
            all.map(|(tuple, digests)| {
                let given = tuple.arrays(batch).all(|array| array.is_valid(row));
                given.then(|| digests[row])
            })
            .collect()
        };
        let row = |(row, content)| {
            let of = Row {
                content,
                rid: rids.value(row),
                ends: ends.map(|(src, dst)| [src.value(row), dst.value(row)]),
                src: sources.map(|sources| sources.value(row).to_owned()),
                entry: entries.value(row),
                position: positions.value(row),
                tuples: tuples_of(row),
            };
            (keys.value(row).to_owned(), of)
        };
        Ok(content.into_iter().enumerate().map(row).collect())
    }
}
