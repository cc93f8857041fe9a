//! Columns by id: fragments of older schemas, and plans made before a schema changed.

use arrow::datatypes::{DataType, Field};
use datafusion::prelude::SessionConfig;
use stratagraph::table::manifest::{Column, SchemaVersion};
use stratagraph::table::schema::{embedding_schema, type_text};

use super::world::{Change, World, code, one, query, rows, schema};

fn renamed() -> SchemaVersion {
    // `city` takes the name `n`, `n` is called `number`, and `added` is new.
    let mut schema = schema();
    schema.id = 1;
    let at = schema.columns.len() - 2;
    schema.columns[at].name = "number".to_owned();
    schema.columns[at + 1].name = "n".to_owned();
    schema.columns.push(Column {
        id: 40,
        name: "added".to_owned(),
        data_type: type_text(&DataType::Int64).unwrap(),
        nullable: true,
    });
    schema
}

#[tokio::test]
async fn fragments_of_older_schemas_are_read_by_id() {
    let world = World::new();
    world.publish("t", Change::add(rows(0..200, 1))).await;
    let ctx = world.session(SessionConfig::new()).await;
    let sums = "select sum(n), min(city), max(city), count(n) from sg.embeddings.t";
    let before = one(&ctx, sums).await;
    let planned = ctx.sql(sums).await.unwrap();
    world
        .other()
        .publish(
            "t",
            Change {
                schema: Some(renamed()),
                ..Change::default()
            },
        )
        .await;
    // Planned before the rename: the ids are still there.
    let found = super::world::lines(&planned.collect().await.unwrap());
    assert_eq!(found.join(";"), before);
    let after = "select sum(number), min(n), max(n), count(number) from sg.embeddings.t";
    for pushdown in [false, true] {
        let set = format!("set datafusion.execution.parquet.pushdown_filters = {pushdown}");
        query(&ctx, &set).await.unwrap();
        assert_eq!(one(&ctx, after).await, before);
        let nulls =
            "select count(*) from sg.embeddings.t where added is null and n = 'c1' and number < 50";
        let then = "select count(*) from sg.embeddings.\"t@0\" where city = 'c1' and n < 50";
        assert_eq!(one(&ctx, nulls).await, one(&ctx, then).await);
        assert_eq!(
            one(&ctx, "select count(*) from sg.embeddings.t where added = 1").await,
            "0"
        );
    }
}

#[tokio::test]
async fn a_schema_that_lost_a_column_is_another_schema() {
    let world = World::new();
    world.publish("t", Change::add(rows(0..20, 1))).await;
    let ctx = world.session(SessionConfig::new()).await;
    let planned = ctx.sql("select sum(n) from sg.embeddings.t").await.unwrap();
    let mut narrow = embedding_schema(2, &[Field::new("n", DataType::Int64, true)]).unwrap();
    narrow.id = 1;
    world
        .other()
        .publish(
            "t",
            Change {
                schema: Some(narrow),
                ..Change::default()
            },
        )
        .await;
    let error = planned.collect().await.unwrap_err();
    let found = stratagraph_providers::find_error(&error).unwrap();
    assert_eq!(found.code(), "SchemaChanged");
    assert!(found.is_retryable());
    // Planned again it works, and the column is gone.
    assert_eq!(
        code(&ctx, "select sum(n) from sg.embeddings.t").await,
        "no error, 1 rows"
    );
    assert!(
        code(&ctx, "select city from sg.embeddings.t")
            .await
            .starts_with("foreign")
    );
}
