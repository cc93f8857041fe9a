//! What write hooks get: the rows that a statement means, under the statement's one pin.

use std::sync::{Arc, Mutex};

use arrow::array::{RecordBatch, UInt64Array};
use arrow::datatypes::{DataType, Field, Schema};
use async_trait::async_trait;
use datafusion::catalog::Session;
use datafusion::datasource::memory::MemorySourceConfig;
use datafusion::error::Result;
use datafusion::logical_expr::LogicalPlan;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::prelude::SessionConfig;
use stratagraph::ident::Name;
use stratagraph_providers::{StatementPin, TableWrite, VersionedTableProvider, WriteHooks};

use super::world::{Change, World, one, query, rows};

/// What a hook was asked: the kind, how many rows are meant, the catalog version of its pin.
#[derive(Debug, Default)]
struct Asked(Mutex<Vec<(String, Option<usize>, u64)>>);

#[async_trait]
impl WriteHooks for Asked {
    async fn plan_write(
        &self,
        state: &dyn Session,
        table: &VersionedTableProvider,
        write: TableWrite,
        rows: Option<Arc<LogicalPlan>>,
        pin: Option<Arc<StatementPin>>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let kind = format!("{write:?}");
        let kind = kind.split([' ', '{']).next().unwrap_or_default().to_owned();
        let found = match &rows {
            Some(plan) => {
                let plan = state.create_physical_plan(plan).await?;
                let found = datafusion::physical_plan::collect(plan, state.task_ctx()).await?;
                Some(found.iter().map(RecordBatch::num_rows).sum())
            }
            None => None,
        };
        let head = pin
            .unwrap()
            .snapshot(table.metadata(), Default::default())
            .await;
        self.0
            .lock()
            .unwrap()
            .push((kind, found, head.unwrap().version));
        let schema = Schema::new(vec![Field::new("count", DataType::UInt64, false)]);
        let schema = Arc::new(schema);
        let count = Arc::new(UInt64Array::from(vec![found.unwrap_or(0) as u64]));
        let batch = RecordBatch::try_new(Arc::clone(&schema), vec![count])?;
        let plan = MemorySourceConfig::try_new_exec(&[vec![batch]], schema, None)?;
        Ok(plan)
    }
}

#[tokio::test]
async fn hooks_see_the_rows_that_a_statement_means() {
    let world = World::new();
    world.publish("t", Change::add(rows(0..10, 1))).await;
    let ctx = world.session(SessionConfig::new()).await;
    let planned = world
        .metadata
        .table(&Name::parse("t").unwrap())
        .await
        .unwrap();
    let asked = Arc::new(Asked::default());
    let table = VersionedTableProvider::current(Arc::clone(&world.metadata), planned.unwrap());
    let table = table.with_hooks(Arc::clone(&asked) as Arc<dyn WriteHooks>);
    ctx.register_table("w", Arc::new(table)).unwrap();
    let cases = [
        ("delete from w", "Delete", Some(10)),
        ("delete from w where _row_id < 'k000003'", "Delete", Some(3)),
        (
            "delete from w where _row_id in (select _row_id from w where _row_id >= 'k000008')",
            "Delete",
            Some(2),
        ),
        ("delete from w where false", "Delete", Some(0)),
        (
            "delete from w where not exists (select 1 from sg.embeddings.t b where b._row_id = w._row_id)",
            "Delete",
            Some(0),
        ),
        (
            "update w set n = 1 where _row_id in (select _row_id from sg.embeddings.t limit 4)",
            "Update",
            Some(4),
        ),
    ];
    let other = world.other();
    for (i, (sql, kind, expected)) in cases.into_iter().enumerate() {
        assert_eq!(
            one(&ctx, sql).await,
            expected.unwrap_or(0).to_string(),
            "{sql}"
        );
        let seen = asked.0.lock().unwrap().pop().unwrap();
        assert_eq!(seen, (kind.to_owned(), expected, 1 + i as u64), "{sql}");
        other.publish("other", Change::add(rows(i..i + 1, 1))).await;
    }
    // EXPLAIN asks too, so a hook must only plan.
    query(&ctx, "explain delete from w").await.unwrap();
    assert_eq!(asked.0.lock().unwrap().len(), 1);
    query(&ctx, "insert into w select * from sg.embeddings.t")
        .await
        .unwrap();
    let seen = asked.0.lock().unwrap().pop().unwrap();
    assert_eq!((seen.0.as_str(), seen.2), ("Insert", 7));
}
