//! From columns to text and content hash.

use std::sync::Arc;

use arrow::array::*;
use arrow::compute::cast;
use arrow::datatypes::*;
use proptest::prelude::*;
use stratagraph::digest::Digest;
use stratagraph::embed::{assemble, content_hash, render};

fn utf8(values: &[Option<&str>]) -> ArrayRef {
    Arc::new(StringArray::from(values.to_vec()))
}

fn dictionary() -> DataType {
    DataType::Dictionary(Box::new(DataType::Int32), Box::new(DataType::Utf8))
}

/// The content hash as its definition says, row by row.
fn plain(cells: &[(u8, Option<&[u8]>)]) -> Digest {
    let mut preimage = b"stratagraph.content_hash.v1".to_vec();
    for (tag, bytes) in cells {
        let bytes = bytes.map_or((b'n', &[][..]), |bytes| (*tag, bytes));
        preimage.push(bytes.0);
        preimage.extend((bytes.1.len() as u64).to_le_bytes());
        preimage.extend(bytes.1);
    }
    Digest::of(&preimage)
}

fn hex(columns: &[ArrayRef], row: usize) -> String {
    let hashes = content_hash(columns).unwrap();
    let bytes: [u8; 32] = hashes.value(row).try_into().unwrap();
    Digest::from_bytes(bytes).to_string()
}

#[test]
fn content_hashes_are_golden() {
    // Computed with Python's hashlib.
    let a = utf8(&[Some("a"), None, Some("")]);
    let b: ArrayRef = Arc::new(BinaryArray::from(vec![
        Some(&b"\xff\0"[..]),
        None,
        Some(b""),
    ]));
    let columns = [a, b];
    assert_eq!(
        hex(&columns, 0),
        "be795d0ebd3ef47be2ee8cabaaeeb84e485d67edd34058833d1603b87a29fca7"
    );
    assert_eq!(
        hex(&columns, 1),
        "26d1170facb87d830713fd822a0966fa998ca9bfba02d25565e0946be545488a"
    );
    assert_eq!(
        hex(&columns, 2),
        "16faea4b16e308946d6b9084a9d348ebc45e87f1fc5cb158539759357f9c6be0"
    );
    assert_eq!(
        content_hash(&columns).unwrap().data_type(),
        &DataType::FixedSizeBinary(32)
    );
}

#[test]
fn null_order_framing_and_kind_count() {
    let one = |value: Option<&str>| utf8(&[value]);
    let binary: ArrayRef = Arc::new(BinaryArray::from(vec![&b"a"[..]]));
    let mut all = vec![
        hex(&[one(None)], 0),
        hex(&[one(Some(""))], 0),
        hex(&[one(Some("a"))], 0),
        hex(&[binary], 0),
        hex(&[one(Some("ab")), one(Some("c"))], 0),
        hex(&[one(Some("a")), one(Some("bc"))], 0),
        hex(&[one(Some("bc")), one(Some("a"))], 0),
        hex(&[one(Some("abc")), one(Some(""))], 0),
        hex(&[one(Some("abc")), one(None)], 0),
        hex(&[one(None), one(Some("abc"))], 0),
        hex(&[one(Some("abc"))], 0),
    ];
    let count = all.len();
    all.sort();
    all.dedup();
    assert_eq!(all.len(), count);
}

#[test]
fn columns_are_checked() {
    let short = utf8(&[Some("a")]);
    let long = utf8(&[Some("a"), None]);
    let numbers: ArrayRef = Arc::new(Int32Array::from(vec![1, 2]));
    let binary: ArrayRef = Arc::new(BinaryArray::from(vec![&b"a"[..]]));
    for columns in [vec![], vec![short, long], vec![numbers]] {
        assert_eq!(
            content_hash(&columns).unwrap_err().code(),
            "InvalidArgument"
        );
        assert_eq!(assemble(&columns).unwrap_err().code(), "InvalidArgument");
    }
    assert_eq!(assemble(&[binary]).unwrap_err().code(), "InvalidArgument");
    assert_eq!(content_hash(&[utf8(&[])]).unwrap().len(), 0);
}

#[test]
fn text_joins_parts_with_one_space_and_skips_nulls() {
    let title = utf8(&[
        Some("a"),
        None,
        Some("a"),
        None,
        Some(""),
        Some(""),
        Some("a"),
        Some(" "),
    ]);
    let body = utf8(&[
        Some("b"),
        Some("b"),
        None,
        None,
        None,
        Some(""),
        Some(""),
        None,
    ]);
    let joined = assemble(&[title.clone(), body.clone()]).unwrap();
    let expected = [
        Some("a b"),
        Some("b"),
        Some("a"),
        None,
        None,
        None,
        Some("a "),
        Some(" "),
    ];
    assert_eq!(joined, StringArray::from(expected.to_vec()));
    let other = assemble(&[body, title]).unwrap();
    assert_eq!(other.value(0), "b a");
}

#[test]
fn other_types_have_one_fixed_text() {
    use DataType::{Date32, Decimal128, Timestamp};
    let seconds: ArrayRef = Arc::new(Int64Array::from(vec![Some(1_714_979_289), None]));
    let stamp = |zone: Option<&str>| {
        let kind = Timestamp(TimeUnit::Second, zone.map(Arc::from));
        cast(&seconds, &kind).unwrap()
    };
    let float = |x: f64| Arc::new(Float64Array::from(vec![Some(x), None])) as ArrayRef;
    let number = |kind: &DataType| {
        let seven: ArrayRef = Arc::new(Int32Array::from(vec![Some(7), None]));
        cast(&seven, kind).unwrap()
    };
    let truth: ArrayRef = Arc::new(BooleanArray::from(vec![Some(true), None]));
    let list = ListArray::from_iter_primitive::<Int32Type, _, _>([Some(vec![Some(1), None]), None]);
    for (column, text) in [
        (number(&DataType::Int8), "7"),
        (number(&DataType::UInt64), "7"),
        (number(&Decimal128(9, 2)), "7.00"),
        (number(&Date32), "1970-01-08"),
        (number(&DataType::Float32), "7.0"),
        (float(0.1), "0.1"),
        (float(-0.0), "-0.0"),
        (float(1e300), "1e300"),
        (float(f64::NAN), "NaN"),
        (truth, "true"),
        (stamp(None), "2024-05-06T07:08:09"),
        (stamp(Some("UTC")), "2024-05-06T07:08:09Z"),
        (stamp(Some("+00:00")), "2024-05-06T07:08:09Z"),
        (stamp(Some("+02:00")), "2024-05-06T07:08:09Z"),
        (stamp(Some("Europe/Paris")), "2024-05-06T07:08:09Z"),
        (Arc::new(list), "[1, ]"),
    ] {
        let rendered = render(&column).unwrap();
        let expected = utf8(&[Some(text), None]);
        assert_eq!(&rendered, &expected, "{:?}", column.data_type());
    }
}

#[test]
fn strings_and_binary_are_rendered_as_they_are() {
    let text = utf8(&[Some("a"), None]);
    let bytes: ArrayRef = Arc::new(BinaryArray::from(vec![Some(&b"\xff"[..]), None]));
    for column in [&text, &bytes] {
        assert_eq!(&render(column).unwrap(), column);
    }
    assert_eq!(
        render(&cast(&text, &dictionary()).unwrap()).unwrap().len(),
        2
    );
    let numbers: ArrayRef = Arc::new(Int32Array::from(vec![Some(7), Some(7), None]));
    let packed = DataType::Dictionary(Box::new(DataType::Int8), Box::new(DataType::Int32));
    let packed = cast(&numbers, &packed).unwrap();
    let expected = utf8(&[Some("7"), Some("7"), None]);
    assert_eq!(&render(&packed).unwrap(), &expected);
    let nothing: ArrayRef = Arc::new(NullArray::new(2));
    assert_eq!(&render(&nothing).unwrap(), &utf8(&[None, None]));
}

#[test]
fn what_has_no_text_is_refused() {
    let seconds: ArrayRef = Arc::new(Int64Array::from(vec![i64::MAX]));
    let beyond = cast(&seconds, &DataType::Timestamp(TimeUnit::Second, None)).unwrap();
    assert!(render(&beyond).is_err());
    let fields = Fields::from(vec![Field::new("x", DataType::Int32, true)]);
    let number: ArrayRef = Arc::new(Int32Array::from(vec![1]));
    let structs: ArrayRef = Arc::new(StructArray::new(fields, vec![number], None));
    assert_eq!(render(&structs).unwrap_err().code(), "InvalidArgument");
}

fn column() -> impl Strategy<Value = Vec<Option<String>>> {
    prop::collection::vec(prop::option::of("\\PC{0,6}"), 12)
}

proptest! {
    #[test]
    fn layout_does_not_count(a in column(), b in column(), start in 0usize..6) {
        let (a, b): (ArrayRef, ArrayRef) =
            (Arc::new(StringArray::from(a)), Arc::new(StringArray::from(b)));
        let (a, b) = (a.slice(start, 6), b.slice(start, 6));
        let hashes = content_hash(&[a.clone(), b.clone()]).unwrap();
        let texts = assemble(&[a.clone(), b.clone()]).unwrap();
        let (sa, sb) = (a.as_string::<i32>(), b.as_string::<i32>());
        for row in 0..6 {
            let cell = |s: &StringArray| s.is_valid(row).then(|| s.value(row).to_owned());
            let (x, y) = (cell(sa), cell(sb));
            let expected = plain(&[
                (b's', x.as_deref().map(str::as_bytes)),
                (b's', y.as_deref().map(str::as_bytes)),
            ]);
            prop_assert_eq!(hashes.value(row), expected.as_bytes());
            let parts: Vec<String> = [x, y].into_iter().flatten().collect();
            let text = parts.iter().any(|p| !p.is_empty()).then(|| parts.join(" "));
            prop_assert_eq!(texts.is_valid(row).then(|| texts.value(row)), text.as_deref());
        }
        for kind in [DataType::LargeUtf8, DataType::Utf8View, dictionary()] {
            let columns = [cast(&a, &kind).unwrap(), cast(&b, &kind).unwrap()];
            prop_assert_eq!(&content_hash(&columns).unwrap(), &hashes);
            prop_assert_eq!(&assemble(&columns).unwrap(), &texts);
        }
        let as_binary = content_hash(&[cast(&a, &DataType::Binary).unwrap()]).unwrap();
        for kind in [DataType::LargeBinary, DataType::BinaryView] {
            let columns = [cast(&a, &kind).unwrap()];
            prop_assert_eq!(&content_hash(&columns).unwrap(), &as_binary);
        }
    }
}
