//! The bytes of fragments, and what writers refuse.

use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, AsArray, LargeStringArray, ListArray, RecordBatch, StringArray,
    StringViewArray, UInt64Array,
};
use arrow::datatypes::{DataType, Field, Int32Type, Schema};
use futures::TryStreamExt;
use object_store::ObjectStoreExt;
use object_store::memory::InMemory;
use proptest::prelude::*;
use stratagraph::store::{BlockSums, Store};
use stratagraph::table::manifest::Layout;
use stratagraph::table::read::ReadOptions;
use stratagraph::table::schema::{embedding_schema, id};
use stratagraph::table::writer::FragmentWriter;
use stratagraph::{Error, limits};

use crate::support::tables::{Row, TableBuilder, batch, block_on, schema, sort};

fn rows(layout: Layout, n: u64) -> Vec<Row> {
    let mut rows: Vec<Row> = (0..n)
        .map(|i| Row::new(&format!("key-{i:05}"), i))
        .collect();
    sort(layout, &mut rows);
    rows
}

/// Format 1 never changes: another digest here is another format.
#[test]
fn fragments_have_the_bytes_of_format_1() {
    let golden = [
        (
            Layout::Embedding,
            "c5df359539039712297003c7f6eb218601402ff658dc8d37273b1f1c2c9bae88",
        ),
        (
            Layout::Node,
            "b0f2850e583b1bd5af6ccbc9af360f4f66a07f469313b8b5eba980edd00b6ef9",
        ),
        (
            Layout::Edge,
            "33f7a1ad78d52673863afb37225db3f014a63f77accd7415bbb407f6b46d925f",
        ),
    ];
    block_on(async {
        for (layout, digest) in golden {
            let mut builder = TableBuilder::new(layout);
            let fragment = builder.fragment(true, &rows(layout, 50), 50).await.unwrap();
            assert_eq!(
                fragment.file.object.sha256.to_string(),
                digest,
                "{layout:?}"
            );
        }
    });
}

#[test]
fn bytes_do_not_depend_on_batches() {
    block_on(async {
        for layout in [Layout::Embedding, Layout::Node, Layout::Edge] {
            let rows = rows(layout, 5_000);
            let mut digests = Vec::new();
            for split in [1, 7, 2_047, 2_048, 2_049, 5_000] {
                let mut builder = TableBuilder::new(layout);
                let fragment = builder.fragment(true, &rows, split).await.unwrap();
                digests.push(fragment.file.object.sha256);
            }
            assert!(
                digests.windows(2).all(|d| d[0] == d[1]),
                "{layout:?} {digests:?}"
            );
        }
    });
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 16, failure_persistence: None, ..ProptestConfig::default() })]

    /// Long values end chunks early: also these ends follow from the rows alone.
    #[test]
    fn bytes_do_not_depend_on_batches_of_long_values(
        lengths in prop::collection::vec(0usize..4_000_000, 1..12),
        splits in (1usize..5, 5usize..12),
    ) {
        block_on(async {
            let mut rows: Vec<Row> = rows(Layout::Node, lengths.len() as u64);
            for (row, length) in rows.iter_mut().zip(&lengths) {
                row.text = Some("x".repeat(*length));
            }
            let mut digests = Vec::new();
            for split in [splits.0, splits.1] {
                let mut builder = TableBuilder::new(Layout::Node);
                let fragment = builder.fragment(true, &rows, split).await.unwrap();
                digests.push(fragment.file.object.sha256);
            }
            assert_eq!(digests[0], digests[1]);
        });
    }
}

/// An object of more than 8 MiB goes up in parts; its many checksums become an object.
#[test]
fn large_fragments_go_up_in_parts_and_read_back() {
    block_on(async {
        let mut builder = TableBuilder::new(Layout::Embedding);
        let dim = 1_024;
        let schema = embedding_schema(dim, &[]).unwrap();
        let key = builder.stage.reserve("parquet").unwrap();
        let store = Arc::clone(&builder.store);
        let mut writer = FragmentWriter::new(
            Arc::clone(&store),
            &builder.env,
            Layout::Embedding,
            &schema,
            key,
        )
        .unwrap();
        let batch_of = |start: usize| {
            let rows: Vec<Row> = (start..start + 500)
                .map(|i| Row::new(&format!("k{i:06}"), i as u64))
                .collect();
            let narrow = batch(
                &crate::support::tables::schema(Layout::Embedding, true),
                &rows,
            );
            let values: Vec<f32> = (0..500 * dim).map(|i| (start + i) as f32).collect();
            let item = Arc::new(Field::new("item", DataType::Float32, false));
            let values = Arc::new(arrow::array::Float32Array::from(values));
            let vectors = arrow::array::FixedSizeListArray::new(item, dim as i32, values, None);
            let mut columns = narrow.columns()[..5].to_vec();
            columns[3] = Arc::new(vectors);
            RecordBatch::try_new(Arc::clone(writer.schema()), columns).unwrap()
        };
        let batches: Vec<RecordBatch> = (0..10).map(|i| batch_of(i * 500)).collect();
        for batch in &batches {
            writer.write(batch).await.unwrap();
        }
        let fragment = writer.finish(&mut builder.stage).await.unwrap().unwrap();
        assert!(fragment.file.object.size > 20_000_000);
        assert!(matches!(fragment.file.blocks, BlockSums::Object(_)));
        builder.stage.flush(&store).await.unwrap();
        let bytes = store
            .get_uncached("fragment", &fragment.file.object)
            .await
            .unwrap();
        assert_eq!(bytes.len() as u64, fragment.file.object.size);

        let mut table = builder.finish().await.as_ref().clone();
        table.schemas = vec![schema];
        let entry = stratagraph::table::manifest::Entry {
            stamp: 0,
            id: 0,
            fragment: Some(fragment),
            mask: None,
            rejects: None,
        };
        let reader = builder.reader(&Arc::new(table));
        let options = ReadOptions {
            batch_rows: 700,
            ..ReadOptions::columns(&[id::VECTOR])
        };
        let read = reader.fragment_stream(&entry, &options).await.unwrap();
        let read: Vec<RecordBatch> = read.try_collect().await.unwrap();
        let read = arrow::compute::concat_batches(&read[0].schema(), &read).unwrap();
        let written: Vec<&dyn Array> = batches.iter().map(|b| b.column(3).as_ref()).collect();
        let written = arrow::compute::concat(&written).unwrap();
        assert!(read.column(0).to_data() == written.to_data());
    });
}

#[test]
fn other_forms_of_values_are_stored_in_one_form() {
    block_on(async {
        let mut builder = TableBuilder::new(Layout::Node);
        let schema = schema(Layout::Node, false);
        let plain = batch(&schema, &rows(Layout::Node, 3));
        let forms: [ArrayRef; 3] = [
            Arc::new(
                plain
                    .column(1)
                    .as_string::<i32>()
                    .iter()
                    .collect::<StringViewArray>(),
            ),
            Arc::new(
                plain
                    .column(1)
                    .as_string::<i32>()
                    .iter()
                    .collect::<LargeStringArray>(),
            ),
            arrow::compute::cast(
                plain.column(1),
                &DataType::Dictionary(Box::new(DataType::Int32), Box::new(DataType::Utf8)),
            )
            .unwrap(),
        ];
        assert!(forms[2].as_dictionary_opt::<Int32Type>().is_some());
        let expected = builder
            .fragment(false, &rows(Layout::Node, 3), 3)
            .await
            .unwrap();
        for form in forms {
            let fields = vec![
                Field::new("_rid", DataType::UInt64, true),
                Field::new("id", form.data_type().clone(), true),
                Field::new("text", DataType::Utf8, true),
            ];
            let columns = vec![
                Arc::clone(plain.column(0)),
                form,
                Arc::clone(plain.column(2)),
            ];
            let given = RecordBatch::try_new(Arc::new(Schema::new(fields)), columns).unwrap();
            let key = builder.stage.reserve("parquet").unwrap();
            let store = Arc::clone(&builder.store);
            let mut writer =
                FragmentWriter::new(store, &builder.env, Layout::Node, &schema, key).unwrap();
            writer.write(&given).await.unwrap();
            let fragment = writer.finish(&mut builder.stage).await.unwrap().unwrap();
            assert_eq!(fragment.file.object.sha256, expected.file.object.sha256);
        }
    });
}

async fn refused(layout: Layout, given: &[RecordBatch]) -> Error {
    let mut builder = TableBuilder::new(layout);
    let key = builder.stage.reserve("parquet").unwrap();
    let store = Arc::clone(&builder.store);
    let schema = schema(layout, true);
    let mut writer =
        FragmentWriter::new(Arc::clone(&store), &builder.env, layout, &schema, key).unwrap();
    let mut error = None;
    for batch in given {
        if let Err(e) = writer.write(batch).await {
            error = Some(e);
            break;
        }
    }
    writer.abort().await;
    assert!(store.list("").await.unwrap().is_empty(), "nothing is left");
    error.expect("an error")
}

#[test]
fn rows_that_do_not_fit_are_refused() {
    block_on(async {
        for layout in [Layout::Embedding, Layout::Node, Layout::Edge] {
            let wide = schema(layout, true);
            let mut rows = rows(layout, 4);
            let good = batch(&wide, &rows);
            let earlier = batch(&wide, &rows[..1]);
            rows.swap(1, 2);
            let shuffled = batch(&wide, &rows);
            let mut cases = vec![
                vec![shuffled],
                vec![good.clone(), earlier],
                vec![batch(&schema(layout, false), &rows)],
                vec![good.project(&[1, 0]).unwrap()],
            ];
            let mut columns = good.columns().to_vec();
            let numbers: ArrayRef = Arc::new(UInt64Array::from(vec![1; 4]));
            let last = columns.len() - 1;
            columns[last] = Arc::clone(&numbers);
            let mut fields: Vec<_> = good
                .schema()
                .fields()
                .iter()
                .map(|f| f.as_ref().clone())
                .collect();
            fields[last] = Field::new("number", DataType::UInt64, true);
            cases.push(vec![
                RecordBatch::try_new(Arc::new(Schema::new(fields)), columns).unwrap(),
            ]);
            for case in cases {
                let error = refused(layout, &case).await;
                assert_eq!(error.code(), "InvalidArgument", "{layout:?} {error}");
            }
        }
        // A NULL key.
        let good = batch(&schema(Layout::Node, true), &rows(Layout::Node, 2));
        let mut columns = good.columns().to_vec();
        columns[1] = Arc::new(StringArray::from(vec![Some("a"), None]));
        let fields = good
            .schema()
            .fields()
            .iter()
            .map(|f| f.as_ref().clone().with_nullable(true))
            .collect::<Vec<_>>();
        let nulls = RecordBatch::try_new(Arc::new(Schema::new(fields)), columns).unwrap();
        assert_eq!(
            refused(Layout::Node, &[nulls]).await.code(),
            "InvalidArgument"
        );
    });
}

#[test]
fn equal_keys_are_for_embedding_tables_only() {
    block_on(async {
        let twice = [Row::new("a", 5), Row::new("a", 5)];
        let fragment = TableBuilder::new(Layout::Embedding)
            .fragment(true, &twice, 1)
            .await;
        assert_eq!(fragment.unwrap().rows, 2);
        for layout in [Layout::Node, Layout::Edge] {
            let error = refused(layout, &[batch(&schema(layout, true), &twice)]).await;
            assert_eq!(error.code(), "InvalidArgument");
        }
    });
}

#[test]
fn keys_are_limited() {
    block_on(async {
        for (length, fits) in [(limits::KEY_BYTES, true), (limits::KEY_BYTES + 1, false)] {
            let row = Row::new(&"k".repeat(length), 1);
            let given = batch(&schema(Layout::Node, true), std::slice::from_ref(&row));
            if fits {
                let fragment = TableBuilder::new(Layout::Node)
                    .fragment(true, &[row], 1)
                    .await;
                assert_eq!(fragment.unwrap().keys.max.len(), 64);
            } else {
                let error = refused(Layout::Node, &[given]).await;
                assert_eq!(error.code(), "ResourceLimitExceeded");
            }
        }
    });
}

#[test]
fn no_rows_are_no_object() {
    block_on(async {
        let mut builder = TableBuilder::new(Layout::Embedding);
        assert!(builder.fragment(true, &[], 1).await.is_none());
        assert!(builder.store.list("").await.unwrap().is_empty());
    });
}

/// Dropping a writer in the middle of a multipart upload leaves no object.
#[test]
fn a_dropped_writer_leaves_no_object() {
    block_on(async {
        let inner = Arc::new(InMemory::new());
        let store = Arc::new(Store::new(
            inner.clone(),
            Default::default(),
            "memory:///",
            true,
        ));
        let mut builder = TableBuilder::on(store, Layout::Node);
        let wide = schema(Layout::Node, true);
        let key = builder.stage.reserve("parquet").unwrap();
        let store = Arc::clone(&builder.store);
        let mut writer =
            FragmentWriter::new(store, &builder.env, Layout::Node, &wide, key.clone()).unwrap();
        let text = |i: u64| -> String {
            let bytes = (0..20_000u64).map(|j| {
                let mixed = (i * 20_000 + j).wrapping_mul(0x9E37_79B9_7F4A_7C15);
                char::from(32 + (mixed >> 57) as u8 % 90)
            });
            bytes.collect()
        };
        for i in 0..80 {
            let mut part: Vec<Row> = (0..100)
                .map(|j| Row::new(&format!("k{:05}", i * 100 + j), j))
                .collect();
            part.iter_mut()
                .for_each(|r| r.text = Some(text(i * 1_000 + r.rid)));
            writer.write(&batch(&wide, &part)).await.unwrap();
        }
        drop(writer);
        tokio::task::yield_now().await;
        assert!(inner.head(&builder.store.path(&key)).await.is_err());
    });
}

/// Lists of fixed size inside a list batch of another offset are cut by value, not by layout.
#[test]
fn lists_are_written_by_value() {
    block_on(async {
        use stratagraph::table::manifest::{Column, SchemaVersion};
        use stratagraph::table::schema::graph_schema;
        let property = Column {
            id: 16,
            name: "tags".to_owned(),
            data_type: "list<utf8?>".to_owned(),
            nullable: true,
        };
        let schema: SchemaVersion = graph_schema(Layout::Node, 0, &[property]).unwrap();
        let values: Vec<Option<Vec<Option<String>>>> = (0..3_000)
            .map(|i| match i % 4 {
                0 => None,
                1 => Some(vec![]),
                2 => Some(vec![None, Some(format!("t{i}"))]),
                _ => Some(vec![Some("x".repeat(i % 50))]),
            })
            .collect();
        let mut list = arrow::array::ListBuilder::new(arrow::array::StringBuilder::new());
        for value in &values {
            match value {
                None => list.append_null(),
                Some(items) => list.append_value(items.iter().map(|i| i.as_deref())),
            }
        }
        let list: ListArray = list.finish();
        let fields = Schema::new(vec![
            Field::new("_rid", DataType::UInt64, false),
            Field::new("id", DataType::Utf8, false),
            Field::new("tags", list.data_type().clone(), true),
        ]);
        let ids: StringArray = (0..3_000).map(|i| Some(format!("k{i:05}"))).collect();
        let rids = UInt64Array::from_iter_values(0..3_000);
        let all = RecordBatch::try_new(
            Arc::new(fields),
            vec![Arc::new(rids), Arc::new(ids), Arc::new(list)],
        )
        .unwrap();
        let mut digests = Vec::new();
        for split in [3_000, 1_000, 17] {
            let mut builder = TableBuilder::new(Layout::Node);
            let key = builder.stage.reserve("parquet").unwrap();
            let store = Arc::clone(&builder.store);
            let mut writer =
                FragmentWriter::new(store, &builder.env, Layout::Node, &schema, key).unwrap();
            for start in (0..3_000).step_by(split) {
                writer
                    .write(&all.slice(start, split.min(3_000 - start)))
                    .await
                    .unwrap();
            }
            let fragment = writer.finish(&mut builder.stage).await.unwrap().unwrap();
            digests.push(fragment.file.object.sha256);
        }
        assert!(digests.windows(2).all(|d| d[0] == d[1]));
    });
}
