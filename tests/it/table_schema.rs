//! Types, schemas, key ranges, folds and identities.

use std::sync::Arc;

use arrow::datatypes::{DataType, Field, TimeUnit};
use proptest::prelude::*;
use stratagraph::digest::Digest;
use stratagraph::limits;
use stratagraph::table::fold::SourceFolder;
use stratagraph::table::identity;
use stratagraph::table::manifest::{Column, KeyRange, Layout};
use stratagraph::table::schema::{
    arrow_schema, embedding_schema, graph_schema, id, parse_type, stored_type, type_text,
};

fn item(data_type: DataType, nullable: bool) -> Arc<Field> {
    Arc::new(Field::new("item", data_type, nullable))
}

#[test]
fn types_have_one_text() {
    let us = |tz: Option<&str>| DataType::Timestamp(TimeUnit::Microsecond, tz.map(Arc::from));
    let cases = [
        ("bool", DataType::Boolean),
        ("int8", DataType::Int8),
        ("int64", DataType::Int64),
        ("uint8", DataType::UInt8),
        ("uint64", DataType::UInt64),
        ("float32", DataType::Float32),
        ("float64", DataType::Float64),
        ("utf8", DataType::Utf8),
        ("binary", DataType::Binary),
        ("date32", DataType::Date32),
        ("timestamp(us)", us(None)),
        ("timestamp(us,UTC)", us(Some("UTC"))),
        ("timestamp(us,+02:00)", us(Some("+02:00"))),
        (
            "timestamp(ns)",
            DataType::Timestamp(TimeUnit::Nanosecond, None),
        ),
        ("decimal128(10,2)", DataType::Decimal128(10, 2)),
        ("list<utf8?>", DataType::List(item(DataType::Utf8, true))),
        ("list<utf8>", DataType::List(item(DataType::Utf8, false))),
        (
            "fixed_size_list<float32,384>",
            DataType::FixedSizeList(item(DataType::Float32, false), 384),
        ),
        ("fixed_size_binary<32>", DataType::FixedSizeBinary(32)),
    ];
    for (text, data_type) in cases {
        assert_eq!(parse_type(text).as_ref(), Some(&data_type), "{text}");
        assert_eq!(type_text(&data_type).unwrap(), text);
    }
}

#[test]
fn other_texts_are_no_types() {
    let deep = format!("{}utf8{}", "list<".repeat(9), ">".repeat(9));
    let cases = [
        "",
        "Utf8",
        "int128",
        "list<>",
        "list<utf8",
        "list<utf8??>",
        "fixed_size_list<float32,0>",
        "fixed_size_list<float32,-1>",
        "fixed_size_list<float32,65537>",
        "fixed_size_list<float32,+3>",
        "fixed_size_list<float32,03>",
        "fixed_size_list<fixed_size_list<float32,300>,300>",
        "fixed_size_binary<0>",
        "fixed_size_binary<2000000>",
        "decimal128(39,2)",
        "decimal128(10,-2)",
        "decimal128(10,11)",
        "timestamp(s)",
        "timestamp(us,)",
        "timestamp(us,a b)",
        " utf8",
        "utf8?",
        deep.as_str(),
    ];
    for text in cases {
        assert_eq!(parse_type(text), None, "{text:?}");
    }
}

#[test]
fn forms_are_normalised_and_unknown_types_refused() {
    let cases = [
        (DataType::Utf8View, DataType::Utf8),
        (DataType::LargeUtf8, DataType::Utf8),
        (DataType::BinaryView, DataType::Binary),
        (DataType::Decimal64(9, 1), DataType::Decimal128(9, 1)),
        (
            DataType::LargeList(Arc::new(Field::new("element", DataType::Utf8View, true))),
            DataType::List(item(DataType::Utf8, true)),
        ),
    ];
    for (given, stored) in cases {
        assert_eq!(stored_type(&given).unwrap(), stored);
    }
    for unknown in [
        DataType::Null,
        DataType::Float16,
        DataType::Time32(TimeUnit::Second),
    ] {
        assert_eq!(type_text(&unknown).unwrap_err().code(), "NotYetSupported");
    }
    let wide = DataType::FixedSizeList(item(DataType::Float32, false), 65_537);
    assert_eq!(type_text(&wide).unwrap_err().code(), "NotYetSupported");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn parsing_any_text_ends(text in "[a-z0-9_<>(),?+-]{0,40}") {
        if let Some(data_type) = parse_type(&text) {
            assert_eq!(type_text(&data_type).unwrap(), text);
        }
    }

    /// A bound that was cut still covers every key of the fragment.
    #[test]
    fn key_ranges_cover_their_keys(
        mut keys in prop::collection::vec("[ab]{0,2}p{58,66}[é日ab]{0,4}", 1..8),
        other in "[ab]{0,2}p{58,66}[é日ab]{0,4}",
    ) {
        keys.sort();
        let range = KeyRange::new(&keys[0], &keys[keys.len() - 1]);
        for key in &keys {
            assert!(range.may_contain(key), "{key:?} in {range:?}");
        }
        let inside = keys[0] <= other && other <= keys[keys.len() - 1];
        assert!(range.may_contain(&other) || !inside);
    }

    #[test]
    fn folds_are_sums(rows in prop::collection::vec(("[a-c]{0,3}", any::<u8>()), 0..40), cut in 0usize..40) {
        let add = |rows: &[(String, u8)]| {
            let mut fold = SourceFolder::default();
            rows.iter().for_each(|(key, hash)| fold.add(key, &[*hash; 32]));
            fold
        };
        let (left, right) = rows.split_at(cut.min(rows.len()));
        let mut apart = add(right);
        apart.merge(&add(left));
        let mut reversed = rows.clone();
        reversed.reverse();
        assert_eq!(add(&rows).finish(true), apart.finish(true));
        assert_eq!(add(&rows).finish(true), add(&reversed).finish(true));
        let mut whole = add(&rows);
        left.iter().for_each(|(key, hash)| whole.remove(key, &[*hash; 32]));
        assert_eq!(whole.finish(true), add(right).finish(true));
        if !rows.is_empty() {
            assert_ne!(add(&rows).finish(true).sum, add(&rows[1..]).finish(true).sum);
        }
    }
}

#[test]
fn schemas_start_with_their_system_columns() {
    let text = Field::new("title", DataType::Utf8View, true);
    let schema = embedding_schema(384, &[text]).unwrap();
    let names: Vec<&str> = schema.columns.iter().map(|c| c.name.as_str()).collect();
    assert_eq!(
        names,
        [
            "_row_id",
            "_source_id",
            "_model_id",
            "vector",
            "_content_hash",
            "title"
        ]
    );
    assert_eq!(schema.columns[5].id, id::FIRST_USER);
    let arrow = arrow_schema(&schema).unwrap();
    assert_eq!(arrow.field(5).metadata()["PARQUET:field_id"], "16");
    assert_eq!(arrow.field(3).metadata().len(), 1);
    let edge = graph_schema(Layout::Edge, 3, &[]).unwrap();
    let names: Vec<&str> = edge.columns.iter().map(|c| c.name.as_str()).collect();
    assert_eq!(names, ["_rid", "id", "src", "dst", "_src_rid", "_dst_rid"]);
}

#[test]
fn schemas_are_limited() {
    for (dimensions, code) in [
        (0, "InvalidArgument"),
        (limits::DIMENSIONS + 1, "ResourceLimitExceeded"),
    ] {
        assert_eq!(embedding_schema(dimensions, &[]).unwrap_err().code(), code);
    }
    assert!(embedding_schema(1, &[]).is_ok() && embedding_schema(limits::DIMENSIONS, &[]).is_ok());
    let fields = |n: usize| -> Vec<Field> {
        (0..n)
            .map(|i| Field::new(format!("c{i}"), DataType::Int8, true))
            .collect()
    };
    assert!(embedding_schema(2, &fields(limits::COLUMNS - 5)).is_ok());
    let error = embedding_schema(2, &fields(limits::COLUMNS - 4)).unwrap_err();
    assert_eq!(error.code(), "ResourceLimitExceeded");
    let twice = [
        Field::new("a", DataType::Int8, true),
        Field::new("a", DataType::Int8, true),
    ];
    assert_eq!(
        embedding_schema(2, &twice).unwrap_err().code(),
        "InvalidArgument"
    );
    let taken = [Field::new("_row_id", DataType::Utf8, true)];
    assert_eq!(
        embedding_schema(2, &taken).unwrap_err().code(),
        "InvalidArgument"
    );
    for property_id in [0, 15, 1 << 31] {
        let property = Column {
            id: property_id,
            name: "p".to_owned(),
            data_type: "utf8".to_owned(),
            nullable: true,
        };
        let error = graph_schema(Layout::Node, 0, &[property]).unwrap_err();
        assert_eq!(error.code(), "InvalidArgument");
    }
}

#[test]
fn identities_are_separated() {
    let digest = |text: &str| Digest::of(text.as_bytes());
    let (a, b, c) = (digest("a"), digest("b"), digest("c"));
    assert_eq!(identity::base(&[a]), a);
    let bases = [
        identity::base(&[]),
        identity::base(&[a, b]),
        identity::base(&[b, a]),
    ];
    let chains = [
        identity::chain(&a, &b, b"{}", &[c], Some(&a)),
        identity::chain(&b, &a, b"{}", &[c], Some(&a)),
        identity::chain(&a, &b, b"{}", &[c, c], Some(&a)),
        identity::chain(&a, &b, b"{}", &[], Some(&a)),
        identity::chain(&a, &b, b"{ }", &[c], Some(&a)),
        identity::chain(&a, &b, b"{}", &[c], Some(&b)),
        identity::chain(&a, &b, b"{}", &[c], None),
    ];
    let all: std::collections::BTreeSet<Digest> = bases.into_iter().chain(chains).collect();
    assert_eq!(all.len(), 10);
}
