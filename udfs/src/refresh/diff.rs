//! What changed: a spooled source against the live rows and the rejects of a version, as a plan.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::array::{
    AsArray, BooleanArray, FixedSizeBinaryBuilder, RecordBatch, StringArray, StringBuilder,
};
use arrow::datatypes::{DataType, Field, Int8Type, Int64Type, Schema, SchemaRef};
use datafusion::datasource::TableProvider;
use datafusion::error::DataFusionError;
use datafusion::logical_expr::ScalarUDF;
use datafusion::prelude::SessionContext;
use futures::stream::BoxStream;
use futures::{StreamExt, TryStreamExt};
use stratagraph::embed::CONTENT_HASH_BYTES;
use stratagraph::table::ledger::Ledger;
use stratagraph::{Error, KeyScan, Result};
use stratagraph_providers::from_datafusion;

use super::included::Included;
use super::scan::{HASH, KEY, MARK, source_schema};
use crate::host::{Host, Joins};
use crate::scalar::ContentHash;
use crate::spool::{Segment, Spool, Spooler};

/// Keys that a `NonUniqueKey` shows.
const SHOWN_KEYS: usize = 10;
/// Memory that a hash join takes for a (key, hash) row with a key of usual length.
const JOIN_ROW_BYTES: u64 = 224;

/// A row without a live row in the base.
pub(crate) const ADDED: i8 = 0;
/// A row whose live row has another content.
pub(crate) const CHANGED: i8 = 1;
/// A reject that has another content now: it has no live row either.
pub(crate) const READMITTED: i8 = 2;
/// A row whose content is that of its live row, and whose included columns are not.
pub(crate) const CARRIED: i8 = 3;
/// A live row whose key left the source.
pub(crate) const DELETED: i8 = 4;
/// A reject whose key left the source.
pub(crate) const FORGOTTEN: i8 = 5;
/// A row as it was.
const UNCHANGED: i8 = 6;
/// A reject as it was.
const REJECTED: i8 = 7;

/// Column of the class.
pub(crate) const CLASS: &str = "c";

/// Columns of a difference: those of the source, and last the class.
pub(crate) fn difference_schema(included: &Included) -> SchemaRef {
    let source = source_schema(included);
    let fields = source.fields().iter();
    let mut fields: Vec<Field> = fields
        .map(|f| f.as_ref().clone().with_nullable(true))
        .collect();
    fields.push(Field::new(CLASS, DataType::Int8, true));
    Arc::new(Schema::new(fields))
}

/// How many rows are in which class.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Classes {
    pub(crate) added: u64,
    pub(crate) changed: u64,
    /// Those of the changed ones that keep their vector.
    pub(crate) carried: u64,
    pub(crate) deleted: u64,
    pub(crate) forgotten: u64,
    /// Source rows as they were, rejects included.
    pub(crate) unchanged: u64,
    /// Unchanged rejects; known only to [`Diff::count`].
    pub(crate) rejected: u64,
}

impl Classes {
    fn add(&mut self, class: i8, rows: u64) {
        match class {
            ADDED | READMITTED => self.added += rows,
            CHANGED => self.changed += rows,
            CARRIED => {
                self.changed += rows;
                self.carried += rows;
            }
            DELETED => self.deleted += rows,
            FORGOTTEN => self.forgotten += rows,
            UNCHANGED => self.unchanged += rows,
            REJECTED => {
                self.unchanged += rows;
                self.rejected += rows;
            }
            _ => {}
        }
    }
}

/// The two sides of a difference.
pub(crate) struct Diff<'a> {
    pub(crate) host: &'a Host,
    /// The table, for messages.
    pub(crate) table: &'a str,
    /// The source's rows.
    pub(crate) source: &'a Spool,
    /// Whether its keys are known to be unique.
    pub(crate) source_unique: bool,
    /// The base's live rows.
    pub(crate) base: Arc<dyn TableProvider>,
    /// Number of them.
    pub(crate) base_rows: u64,
    /// The base's rejects.
    pub(crate) ledger: &'a Ledger,
    /// Whether the base's keys are known to be unique.
    pub(crate) base_unique: bool,
    /// Columns that ride along.
    pub(crate) included: &'a Included,
}

const SOURCE_KEYS: &str = "SELECT k, count(*) AS n FROM source GROUP BY k HAVING count(*) > 1";
const BASE_KEYS: &str = "SELECT arrow_cast(_row_id, 'Utf8') AS k, count(*) AS n FROM base \
     GROUP BY arrow_cast(_row_id, 'Utf8') HAVING count(*) > 1";

/// Every source row and every known row once; classes as the constants above. The known side stands
/// left, where a hash join builds.
fn classified(included: &Included) -> String {
    let (mut columns, mut base) = (String::new(), String::new());
    let (mut ledger, mut carried) = (String::new(), String::new());
    if !included.is_empty() {
        columns = format!(", s.{MARK} AS {MARK}");
        columns.extend((0..included.len()).map(|i| format!(", s.i{i} AS i{i}")));
        base = format!(", {} AS {MARK}", included.marks_sql());
        ledger = format!(", arrow_cast(NULL, 'FixedSizeBinary({CONTENT_HASH_BYTES})') AS {MARK}");
        carried = format!("WHEN NOT b.r AND s.{MARK} IS DISTINCT FROM b.{MARK} THEN {CARRIED}");
    }
    format!(
        "SELECT coalesce(s.k, b.k) AS k, s.h AS h, s.t AS t{columns}, arrow_cast(CASE \
         WHEN b.k IS NULL THEN {ADDED} \
         WHEN s.k IS NULL THEN CASE WHEN b.r THEN {FORGOTTEN} ELSE {DELETED} END \
         WHEN s.h IS DISTINCT FROM b.h THEN CASE WHEN b.r THEN {READMITTED} ELSE {CHANGED} END \
         {carried} \
         ELSE CASE WHEN b.r THEN {REJECTED} ELSE {UNCHANGED} END END, 'Int8') AS c \
         FROM (SELECT arrow_cast(_row_id, 'Utf8') AS k, _content_hash AS h, false AS r{base} FROM base \
               UNION ALL SELECT k, h, r{ledger} FROM ledger) b \
         FULL JOIN source s ON b.k = s.k"
    )
}

impl Diff<'_> {
    /// Refuses keys that are not unique in the source, then in the base.
    pub(crate) async fn check_keys(&self) -> Result<()> {
        let context = self.context(Joins::Hash)?;
        if !self.source_unique {
            refuse_repeats(&context, SOURCE_KEYS, self.table, KeyScan::Source).await?;
        }
        if !self.base_unique {
            refuse_repeats(&context, BASE_KEYS, self.table, KeyScan::Parent).await?;
        }
        Ok(())
    }

    /// Counts the classes.
    pub(crate) async fn count(&self) -> Result<Classes> {
        let rows = classified(self.included);
        let sql = format!("SELECT c, count(*) AS n FROM ({rows}) d GROUP BY c");
        let mut classes = Classes::default();
        for batch in self.run(&sql).await? {
            let rows = batch.column(1).as_primitive::<Int64Type>().values();
            let class = batch.column(0).as_primitive::<Int8Type>().values();
            for (class, rows) in class.iter().zip(rows) {
                classes.add(*class, u64::try_from(*rows).unwrap_or(0));
            }
        }
        Ok(classes)
    }

    /// The rows that are not as they were, in key order, spooled; and how many of which class.
    pub(crate) async fn changes(&self) -> Result<(Spool, Classes)> {
        let rows = classified(self.included);
        let sql = format!("SELECT * FROM ({rows}) d WHERE c < {UNCHANGED} ORDER BY k");
        match self.spool(&sql, self.joins()).await {
            // The estimate of the build side was too low.
            Err(error) if self.joins() == Joins::Hash && is_exhausted(&error) => {
                tracing::debug!(%error, "the difference is sorted instead of hashed");
                self.spool(&sql, Joins::SortMerge).await
            }
            other => other,
        }
    }

    async fn spool(&self, sql: &str, joins: Joins) -> Result<(Spool, Classes)> {
        let schema = difference_schema(self.included);
        let last = schema.fields().len() - 1;
        let context = self.context(joins)?;
        let mut rows = stream(&context, sql).await?;
        let spooler = Spooler::new(self.host, Arc::clone(&schema), "changed rows", 1);
        let (mut segment, mut classes) = (spooler.segment(), Classes::default());
        while let Some(batch) = rows.try_next().await.map_err(from_datafusion)? {
            for class in batch.column(last).as_primitive::<Int8Type>().values() {
                classes.add(*class, 1);
            }
            let columns = batch.columns().to_vec();
            segment.push(RecordBatch::try_new(Arc::clone(&schema), columns)?)?;
        }
        let segments: Vec<Segment> = vec![segment.finish()?];
        classes.unchanged = self.source.rows() - classes.added - classes.changed;
        Ok((Spool::new(schema, segments), classes))
    }

    async fn run(&self, sql: &str) -> Result<Vec<RecordBatch>> {
        match self.collect(sql, self.joins()).await {
            Err(error) if self.joins() == Joins::Hash && is_exhausted(&error) => {
                self.collect(sql, Joins::SortMerge).await
            }
            other => other,
        }
    }

    async fn collect(&self, sql: &str, joins: Joins) -> Result<Vec<RecordBatch>> {
        let rows = stream(&self.context(joins)?, sql).await?;
        rows.try_collect().await.map_err(from_datafusion)
    }

    /// A hash join holds the known side in memory; it may fill half of what the pool has.
    fn joins(&self) -> Joins {
        let Some(limit) = self.host.memory_limit() else {
            return Joins::Hash;
        };
        let known = self.base_rows + self.ledger.len() as u64;
        if known.saturating_mul(JOIN_ROW_BYTES) <= limit as u64 / 2 {
            Joins::Hash
        } else {
            Joins::SortMerge
        }
    }

    fn context(&self, joins: Joins) -> Result<SessionContext> {
        let context = self.host.private(joins, self.source.row_bytes());
        context.register_udf(ScalarUDF::from(ContentHash::new()));
        let register = |name: &str, table: Arc<dyn TableProvider>| {
            context.register_table(name, table).map(drop)
        };
        register("source", self.source.table()?)
            .and_then(|()| register("base", Arc::clone(&self.base)))
            .map_err(from_datafusion)?;
        let ledger = context.register_batch("ledger", known_rejects(self.ledger)?);
        ledger.map_err(from_datafusion)?;
        Ok(context)
    }
}

/// Refuses the keys that `sql` finds, with their counts.
///
/// # Errors
/// `NonUniqueKey` with the first keys, and the number of all.
pub(crate) async fn refuse_repeats(
    context: &SessionContext,
    sql: &str,
    table: &str,
    scan: KeyScan,
) -> Result<()> {
    let (mut total, mut first) = (0u64, BTreeMap::<String, u64>::new());
    let mut rows = stream(context, sql).await?;
    while let Some(batch) = rows.try_next().await.map_err(from_datafusion)? {
        total += batch.num_rows() as u64;
        let counts = batch.column(1).as_primitive::<Int64Type>().values();
        for (key, count) in batch.column(0).as_string::<i32>().iter().zip(counts) {
            let key = key.unwrap_or_default();
            let full = first.len() == SHOWN_KEYS;
            if full
                && first
                    .last_key_value()
                    .is_some_and(|(last, _)| key > last.as_str())
            {
                continue;
            }
            first.insert(key.to_owned(), u64::try_from(*count).unwrap_or(0));
            if full {
                first.pop_last();
            }
        }
    }
    if total == 0 {
        return Ok(());
    }
    Err(Error::NonUniqueKey {
        table: table.to_owned(),
        scan,
        keys: first.into_iter().collect(),
        total,
    })
}

pub(crate) async fn stream(
    context: &SessionContext,
    sql: &str,
) -> Result<datafusion::execution::SendableRecordBatchStream> {
    let run = async { context.sql(sql).await?.execute_stream().await };
    run.await.map_err(from_datafusion)
}

pub(crate) fn is_exhausted(error: &Error) -> bool {
    let Error::Source { source } = error else {
        return false;
    };
    let error = source.downcast_ref::<DataFusionError>();
    error.is_some_and(|e| matches!(e.find_root(), DataFusionError::ResourcesExhausted(_)))
}

/// The ledger as rows; it is in memory already.
fn known_rejects(ledger: &Ledger) -> Result<RecordBatch> {
    let mut keys = StringBuilder::new();
    let mut hashes = FixedSizeBinaryBuilder::with_capacity(ledger.len(), CONTENT_HASH_BYTES);
    for (key, reject) in ledger.iter() {
        keys.append_value(key);
        hashes.append_value(reject.hash)?;
    }
    let keys: StringArray = keys.finish();
    let rejected = BooleanArray::from(vec![true; ledger.len()]);
    let hash = DataType::FixedSizeBinary(CONTENT_HASH_BYTES);
    let schema = Schema::new(vec![
        Field::new(KEY, DataType::Utf8, false),
        Field::new(HASH, hash, false),
        Field::new("r", DataType::Boolean, false),
    ]);
    let columns = vec![
        Arc::new(keys) as _,
        Arc::new(hashes.finish()) as _,
        Arc::new(rejected) as _,
    ];
    Ok(RecordBatch::try_new(Arc::new(schema), columns)?)
}

/// The rows of a spooled source by key and content hash: how a first version is written.
///
/// Where memory is bounded the sort ends first: what it holds would be missing for what comes next.
pub(crate) async fn sorted(
    host: &Host,
    source: &Spool,
    included: &Included,
) -> Result<BoxStream<'static, Result<RecordBatch>>> {
    let context = host.private(Joins::Hash, source.row_bytes());
    let table = context.register_table("source", source.table()?);
    table.map_err(from_datafusion)?;
    let mark = match included.is_empty() {
        true => String::new(),
        false => format!(", {MARK}"),
    };
    let sql = format!("SELECT * FROM source ORDER BY {KEY}, {HASH}{mark}");
    let mut rows = stream(&context, &sql).await?;
    if host.memory_limit().is_none() {
        return Ok(rows.map_err(from_datafusion).boxed());
    }
    let schema = source_schema(included);
    let mut segment = Spooler::new(host, Arc::clone(&schema), "sorted rows", 1).segment();
    while let Some(batch) = rows.try_next().await.map_err(from_datafusion)? {
        segment.push(batch)?;
    }
    drop(rows);
    Ok(Spool::new(schema, vec![segment.finish()?]).read())
}
