//! Plans over spooled rows and stored ones, on the host's memory and disk.

use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use arrow::record_batch::RecordBatch;
use datafusion::datasource::TableProvider;
use datafusion::prelude::SessionContext;
use futures::TryStreamExt;
use futures::stream::BoxStream;
use stratagraph::Result;
use stratagraph_providers::from_datafusion;

use crate::host::{Host, Joins};
use crate::refresh::diff::{is_exhausted, stream};
use crate::spool::{SegmentWriter, Spool, Spooler};

/// Memory that a hash join takes for a row of ids.
const JOIN_ROW_BYTES: u64 = 224;

/// Tables of a plan, and what is known of them.
pub(crate) struct Plan<'a> {
    host: &'a Host,
    tables: Vec<(String, Arc<dyn TableProvider>)>,
    row_bytes: usize,
    /// Rows that a hash join would hold.
    held: u64,
}

impl<'a> Plan<'a> {
    pub(crate) fn new(host: &'a Host) -> Self {
        Self {
            host,
            tables: Vec::new(),
            row_bytes: 64,
            held: 0,
        }
    }

    /// Adds a table.
    pub(crate) fn with(mut self, name: impl Into<String>, table: Arc<dyn TableProvider>) -> Self {
        self.tables.push((name.into(), table));
        self
    }

    /// Adds rows of a load.
    pub(crate) fn with_rows(mut self, name: impl Into<String>, rows: &Spool) -> Result<Self> {
        self.row_bytes = self.row_bytes.max(rows.row_bytes());
        Ok(self.with(name, rows.table()?))
    }

    /// Says how many rows a hash join would hold.
    pub(crate) fn holding(mut self, rows: u64) -> Self {
        self.held += rows;
        self
    }

    fn context(&self, joins: Joins) -> Result<SessionContext> {
        let context = self.host.private(joins, self.row_bytes);
        for (name, table) in &self.tables {
            let added = context.register_table(name.as_str(), Arc::clone(table));
            added.map_err(from_datafusion)?;
        }
        Ok(context)
    }

    /// A hash join holds one side in memory; it may fill half of what the pool has.
    fn joins(&self) -> Joins {
        match self.host.memory_limit() {
            Some(limit) if self.held.saturating_mul(JOIN_ROW_BYTES) > limit as u64 / 2 => {
                Joins::SortMerge
            }
            _ => Joins::Hash,
        }
    }

    /// Gives the batches of a query to `take`. Where a hash join has no memory it begins anew with
    /// joins that spill.
    pub(crate) async fn fold<T: Send>(
        &self,
        sql: &str,
        start: impl Fn() -> T + Send + Sync,
        take: impl Fn(&mut T, RecordBatch) -> Result<()> + Send + Sync,
    ) -> Result<T> {
        let joins = self.joins();
        match self.fold_by(joins, sql, start(), &take).await {
            Err(error) if joins == Joins::Hash && is_exhausted(&error) => {
                tracing::debug!(%error, "a join is sorted instead of hashed");
                self.fold_by(Joins::SortMerge, sql, start(), &take).await
            }
            other => other,
        }
    }

    async fn fold_by<T: Send>(
        &self,
        joins: Joins,
        sql: &str,
        mut state: T,
        take: &(impl Fn(&mut T, RecordBatch) -> Result<()> + Sync),
    ) -> Result<T> {
        let mut rows = stream(&self.context(joins)?, sql).await?;
        while let Some(batch) = rows.try_next().await.map_err(from_datafusion)? {
            take(&mut state, batch)?;
        }
        Ok(state)
    }

    /// The rows of a query in a spool: what a plan holds is given back before they are used.
    pub(crate) async fn spool(&self, sql: &str, spooler: &Arc<Spooler>) -> Result<Spool> {
        let push = |segment: &mut SegmentWriter, batch: RecordBatch| {
            let schema = Arc::clone(spooler.schema());
            segment.push(RecordBatch::try_new(schema, batch.columns().to_vec())?)
        };
        let segment = self.fold(sql, || spooler.segment(), push).await?;
        Ok(Spool::new(
            Arc::clone(spooler.schema()),
            vec![segment.finish()?],
        ))
    }

    /// The rows of a query of `schema`, streamed where memory has no end.
    pub(crate) async fn stream(
        &self,
        sql: &str,
        schema: SchemaRef,
    ) -> Result<BoxStream<'static, Result<RecordBatch>>> {
        use futures::StreamExt;
        if self.host.memory_limit().is_none() {
            let rows = stream(&self.context(Joins::Hash)?, sql).await?;
            return Ok(rows.map_err(from_datafusion).boxed());
        }
        let spooler = Spooler::new(self.host, schema, "sorted rows", SPOOLS);
        Ok(self.spool(sql, &spooler).await?.read())
    }
}

/// Spools of a load that may hold rows in memory at a time, about.
pub(crate) const SPOOLS: usize = 8;
