//! What write hooks get: the rows that a statement means, under the statement's one pin, and only when
//! the statement is executed.

use std::sync::{Arc, Mutex};

use arrow::array::{Array, AsArray, Int32Array, RecordBatch, StringArray};
use arrow::datatypes::Int32Type;
use async_trait::async_trait;
use datafusion::execution::SendableRecordBatchStream;
use datafusion::prelude::{SessionConfig, SessionContext};
use futures::TryStreamExt;
use stratagraph::ident::Name;
use stratagraph_providers::{
    MERGE_ACTION, MergeAction, PlannedWrite, RunContext, TableWrite, VersionedTableProvider,
    WriteHooks, find_error,
};

use super::world::{Change, World, one, query, rows};

/// What a hook was given: the write, the rows, the catalog version of its pin.
#[derive(Debug, Default)]
struct Asked(Mutex<Vec<(TableWrite, Vec<RecordBatch>, u64)>>);

#[async_trait]
impl WriteHooks for Asked {
    async fn write(
        self: Arc<Self>,
        table: VersionedTableProvider,
        planned: PlannedWrite,
        rows: SendableRecordBatchStream,
        context: RunContext,
    ) -> stratagraph::Result<u64> {
        let rows: Vec<RecordBatch> = rows.try_collect().await.unwrap();
        let metadata = table.metadata();
        let head = context.pin.snapshot(metadata, Default::default()).await?;
        let count = rows.iter().map(RecordBatch::num_rows).sum::<usize>() as u64;
        let asked = (planned.write, rows, head.version);
        self.0.lock().unwrap().push(asked);
        Ok(count)
    }
}

async fn world() -> (World, SessionContext, Arc<Asked>) {
    let world = World::new();
    world.publish("t", Change::add(rows(0..10, 1))).await;
    let ctx = world.session(SessionConfig::new()).await;
    let planned = world.metadata.table(&Name::parse("t").unwrap()).await;
    let asked = Arc::new(Asked::default());
    let metadata = Arc::clone(&world.metadata);
    let table = VersionedTableProvider::current(metadata, planned.unwrap().unwrap());
    let table = table.with_hooks(Arc::clone(&asked) as Arc<dyn WriteHooks>);
    ctx.register_table("w", Arc::new(table)).unwrap();
    // What embedding tables call `_row_id` is `id` in the tables that DML is for.
    ctx.sql("create view v as select _row_id as id, n from sg.embeddings.t")
        .await
        .unwrap()
        .collect()
        .await
        .unwrap();
    (world, ctx, asked)
}

#[tokio::test]
async fn hooks_get_the_rows_that_a_condition_means() {
    let (world, ctx, asked) = world().await;
    let cases = [
        ("", 10),
        ("where _row_id < 'k000003'", 3),
        (
            "where _row_id in (select _row_id from w where _row_id >= 'k000008')",
            2,
        ),
        ("where false", 0),
        ("where null", 0),
        (
            "where not exists (select 1 from sg.embeddings.t b where b._row_id = w._row_id)",
            0,
        ),
        (
            "where _row_id in (select _row_id from sg.embeddings.t limit 4)",
            4,
        ),
        // Two rows have no number.
        (
            "where n = (select max(b.n) from sg.embeddings.t b where b._row_id = w._row_id)",
            8,
        ),
    ];
    let other = world.other();
    for (i, (condition, expected)) in cases.into_iter().enumerate() {
        let assigned = vec!["n".to_owned()];
        let statements = [
            ("delete from w", TableWrite::Delete),
            ("update w set n = 1", TableWrite::Update { assigned }),
        ];
        for (statement, kind) in statements {
            let sql = format!("{statement} {condition}");
            // EXPLAIN plans and does nothing.
            query(&ctx, &format!("explain {sql}")).await.unwrap();
            assert_eq!(one(&ctx, &sql).await, expected.to_string(), "{sql}");
            let (write, rows, version) = asked.0.lock().unwrap().pop().unwrap();
            assert_eq!(write, kind, "{sql}");
            let whole = rows.iter().map(RecordBatch::num_rows).sum::<usize>();
            assert_eq!((whole, version), (expected, 1 + i as u64), "{sql}");
            assert!(asked.0.lock().unwrap().is_empty(), "{sql}");
        }
        other.publish("other", Change::add(rows(i..i + 1, 1))).await;
    }
    for (sql, statement) in [
        ("insert into w select * from sg.embeddings.t", "INSERT INTO"),
        ("insert overwrite w select * from w", "INSERT OVERWRITE"),
        ("replace into w select * from w", "REPLACE INTO"),
        ("truncate table w", "DELETE"),
    ] {
        query(&ctx, sql).await.unwrap();
        let (write, rows, version) = asked.0.lock().unwrap().pop().unwrap();
        let whole = rows.iter().map(RecordBatch::num_rows).sum::<usize>();
        assert_eq!((write.statement(), whole, version), (statement, 10, 9));
    }
}

/// A merge says of each row which clause takes it: the first that holds.
#[tokio::test]
async fn the_first_clause_of_a_merge_takes_a_row() {
    let (_world, ctx, asked) = world().await;
    let table = Arc::new(people());
    ctx.register_table("s", table).unwrap();
    let sql = "merge into w using s on w._row_id = s.k \
        when matched and s.v > 6 then update set n = s.v \
        when matched then update set n = 0 \
        when not matched and s.v is not null then insert (_row_id, n) values (s.k, s.v) \
        when not matched by source and w._row_id > 'k000008' then update set n = 9";
    query(&ctx, &format!("explain {sql}")).await.unwrap();
    assert!(asked.0.lock().unwrap().is_empty());
    query(&ctx, sql).await.unwrap();
    let (write, rows, _) = asked.0.lock().unwrap().pop().unwrap();
    let assigned = || vec!["n".to_owned()];
    let update = || MergeAction::Update {
        assigned: assigned(),
    };
    let actions = vec![update(), update(), MergeAction::Insert, update()];
    assert_eq!(write, TableWrite::Merge { actions });
    let mut found = Vec::new();
    for batch in &rows {
        let column = |name: &str| batch.column_by_name(name).unwrap();
        let action = column(MERGE_ACTION).as_primitive::<Int32Type>();
        let ids = column("_row_id").as_string_view();
        let numbers = arrow::compute::cast(column("n"), &arrow::datatypes::DataType::Int32);
        let numbers = numbers.unwrap();
        let numbers = numbers.as_primitive::<Int32Type>();
        for row in 0..batch.num_rows() {
            let n = numbers.is_valid(row).then(|| numbers.value(row));
            found.push((action.value(row), ids.value(row).to_owned(), n));
        }
    }
    found.sort();
    let row = |action, id: &str, n| (action, id.to_owned(), Some(n));
    assert_eq!(
        found,
        [
            row(0, "k000002", 7),
            row(1, "k000001", 0),
            row(1, "k000003", 0),
            row(2, "new", 5),
            row(3, "k000009", 9),
        ]
    );
}

/// Keys and values that meet the table, do not, and are unknown.
fn people() -> datafusion::datasource::MemTable {
    let keys = StringArray::from(vec!["k000001", "k000002", "k000003", "new", "none"]);
    let values = Int32Array::from(vec![Some(6), Some(7), None, Some(5), None]);
    let columns: [(&str, Arc<dyn Array>); 2] = [("k", Arc::new(keys)), ("v", Arc::new(values))];
    let batch = RecordBatch::try_from_iter(columns).unwrap();
    datafusion::datasource::MemTable::try_new(batch.schema(), vec![vec![batch]]).unwrap()
}

/// What no plan of rows says is refused when it is planned, and so is DML that no rule has compiled.
#[tokio::test]
async fn what_cannot_be_said_is_refused() {
    let (_world, ctx, asked) = world().await;
    let code = |sql: &'static str| {
        let ctx = ctx.clone();
        async move {
            let error = match ctx.sql(sql).await {
                Ok(frame) => frame.collect().await.unwrap_err(),
                Err(error) => error,
            };
            find_error(&error).map_or_else(|| error.to_string(), |e| e.code().to_owned())
        }
    };
    for (sql, expected) in [
        ("delete from w limit 1", "NotYetSupported"),
        ("update w a WITH (version = 0) set n = 1", "ReadOnlyTable"),
        (
            "merge into w using v on exists (select 1 from v u where u.id = w._row_id and u.n = v.n) \
             when matched then update set n = 1",
            "NotYetSupported",
        ),
    ] {
        assert_eq!(code(sql).await, expected, "{sql}");
    }
    let bare = SessionContext::new();
    let table = ctx.table_provider("w").await.unwrap();
    bare.register_table("w", table).unwrap();
    for sql in [
        "delete from w",
        "delete from w where false",
        "update w set n = 1",
        "insert into w select * from w",
        "merge into w using (select 1 as k) s on w.n = s.k when matched then delete",
    ] {
        let error = bare.sql(sql).await.unwrap().collect().await.unwrap_err();
        let found = find_error(&error).map(stratagraph::Error::code);
        assert_eq!(found, Some("ReadOnlyTable"), "{sql}");
    }
    assert!(asked.0.lock().unwrap().is_empty());
}
