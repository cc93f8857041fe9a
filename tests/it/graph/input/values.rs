//! Values of every type.

use arrow::array::{Array, AsArray};
use arrow::datatypes::{
    Date32Type, Float32Type, Float64Type, Int32Type, Int64Type, TimestampMicrosecondType,
    UInt32Type, UInt64Type,
};
use stratagraph::graph::input::Input;
use stratagraph::graph::value::ValueType;

use super::support::*;

fn person(member: &str) -> String {
    format!("{{\"type\":\"Person\",\"data\":{{\"name\":\"ann\",{member}}}}}")
}

#[test]
fn values_are_exact() {
    let text = [
        r#""b":true,"i32":-2147483648,"i64":-9007199254740993,"u32":4294967295,"u64":18446744073709551615"#,
        r#""b":false,"i32":2147483647,"i64":9007199254740993,"u32":0,"u64":-0"#,
        r#""b":null,"i32":null"#,
    ]
    .map(person)
    .join("\n");
    let loaded = load(&text, strict()).clean();
    let column = |name| loaded.column(PERSON, name);
    let bools: Vec<_> = column("b").as_boolean().iter().collect();
    assert_eq!(bools, [Some(true), Some(false), None]);
    let i32s: Vec<_> = column("i32").as_primitive::<Int32Type>().iter().collect();
    assert_eq!(i32s, [Some(i32::MIN), Some(i32::MAX), None]);
    let i64s: Vec<_> = column("i64").as_primitive::<Int64Type>().iter().collect();
    assert_eq!(
        i64s,
        [
            Some(-9_007_199_254_740_993),
            Some(9_007_199_254_740_993),
            None
        ]
    );
    let u32s: Vec<_> = column("u32").as_primitive::<UInt32Type>().iter().collect();
    assert_eq!(u32s, [Some(u32::MAX), Some(0), None]);
    let u64s: Vec<_> = column("u64").as_primitive::<UInt64Type>().iter().collect();
    assert_eq!(u64s, [Some(u64::MAX), Some(0), None]);
}

#[test]
fn floats_are_the_nearest_ones() {
    let text = [
        r#""f32":0.1,"f64":0.1"#,
        r#""f32":3.4028235e38,"f64":1.7976931348623157e308"#,
        r#""f32":7,"f64":-0.0"#,
        // Rounded to 64 bits first, this would end on the other side of the middle.
        r#""f32":1.00000017881393432617187499,"f64":9007199254740993"#,
    ]
    .map(person)
    .join("\n");
    let loaded = load(&text, strict()).clean();
    let f32s = loaded.column(PERSON, "f32");
    let f32s = f32s.as_primitive::<Float32Type>().values().to_vec();
    assert_eq!(f32s, [0.1, f32::MAX, 7.0, 1.000_000_1]);
    let f64s = loaded.column(PERSON, "f64");
    let f64s = f64s.as_primitive::<Float64Type>().values().to_vec();
    assert_eq!(f64s, [0.1, f64::MAX, 0.0, 9_007_199_254_740_992.0]);
}

#[test]
fn days_and_moments() {
    let text = [
        r#""day":"1970-01-01","at":"1970-01-01T00:00:00Z""#,
        r#""day":"0000-01-01","at":"1969-12-31T23:59:59.999999Z""#,
        r#""day":"2024-02-29","at":"2024-05-01T12:00:00.123456+02:00""#,
        r#""day":"9999-12-31","at":"2024-05-01T10:00:00.5000000000Z""#,
    ]
    .map(person)
    .join("\n");
    let loaded = load(&text, strict()).clean();
    let days = loaded.column(PERSON, "day");
    let days = days.as_primitive::<Date32Type>().values().to_vec();
    assert_eq!(days, [0, -719_528, 19_782, 2_932_896]);
    let moments = loaded.column(PERSON, "at");
    let moments = moments.as_primitive::<TimestampMicrosecondType>().values();
    assert_eq!(
        moments.to_vec(),
        [0, -1, 1_714_557_600_123_456, 1_714_557_600_500_000]
    );
    let numbers = person(r#""day":-1,"at":1500"#);
    let loaded = load(&numbers, compatible()).clean();
    let day = loaded.column(PERSON, "day");
    assert_eq!(day.as_primitive::<Date32Type>().value(0), -1);
    let at = loaded.column(PERSON, "at");
    let at = at.as_primitive::<TimestampMicrosecondType>().value(0);
    assert_eq!(at, 1_500_000);
}

#[test]
fn lists_and_vectors() {
    let text = [
        r#""tags":["a","b\n"],"nums":[1,-2],"v":[1,2.5,-3e0]"#,
        r#""tags":[],"nums":null"#,
        r#""tags":[ "c" ],"nums":[ 9223372036854775807 ],"v":[ 0 , 0,0 ]"#,
    ]
    .map(person)
    .join("\n");
    let loaded = load(&text, strict()).clean();
    let tags = loaded.column(PERSON, "tags");
    let tags = tags.as_list::<i32>();
    assert_eq!(tags.value_offsets(), [0, 2, 2, 3]);
    assert_eq!(tags.values().as_string::<i32>().value(1), "b\n");
    assert!(tags.is_valid(1));
    let nums = loaded.column(PERSON, "nums");
    assert!(nums.is_null(1));
    let numbers = nums.as_list::<i32>().values();
    let numbers = numbers.as_primitive::<Int64Type>().values().to_vec();
    assert_eq!(numbers, [1, -2, i64::MAX]);
    let vectors = loaded.column(PERSON, "v");
    assert!(vectors.is_null(1));
    let vector = vectors.as_fixed_size_list().value(0);
    let vector = vector.as_primitive::<Float32Type>().values().to_vec();
    assert_eq!(vector, [1.0, 2.5, -3.0]);
}

/// A member and words of the message.
const WRONG: &[(&str, &str)] = &[
    (
        r#""b":1"#,
        "property b: found the number 1, expected true or false (the type is Bool)",
    ),
    (
        r#""i32":2147483648"#,
        "an integer from -2147483648 to 2147483647",
    ),
    (r#""i32":-2147483649"#, "found the number -2147483649"),
    (r#""i32":1.0"#, "without a fraction or exponent"),
    (r#""i64":1e3"#, "without a fraction or exponent"),
    (r#""i64":9223372036854775808"#, "to 9223372036854775807"),
    (r#""u32":-1"#, "from 0 to 4294967295"),
    (
        r#""u64":18446744073709551616"#,
        "from 0 to 18446744073709551615",
    ),
    (r#""u64":"7""#, "found the string \"7\""),
    (r#""f32":3.5e38"#, "a number that a 32-bit float can hold"),
    (r#""f64":1e309"#, "a number that a 64-bit float can hold"),
    (r#""f64":{}"#, "found an object"),
    (r#""day":"2023-02-29""#, "a day such as"),
    (r#""day":"2024-2-29""#, "a day such as"),
    (r#""day":"2024-02-29Z""#, "a day such as"),
    (r#""day":5"#, "found the number 5"),
    (r#""at":"2024-05-01T12:00:00""#, "RFC 3339 with its offset"),
    (
        r#""at":"2024-05-01T12:00:00.1234567Z""#,
        "at most six digits",
    ),
    (
        r#""at":"2024-05-01T12:00:00.1234560001Z""#,
        "at most six digits",
    ),
    (r#""at":"2016-12-31T23:59:60Z""#, "leap second"),
    (r#""at":5"#, "found the number 5"),
    (
        r#""color":1"#,
        "found the number 1, expected a string (the type is enum(blue, red))",
    ),
    (
        r#""tags":["a",null]"#,
        "expected a string as item 2 of the array, not null",
    ),
    (r#""tags":"a""#, "expected an array (the type is [String])"),
    (
        r#""nums":[1,2.5]"#,
        "as item 2 of the array, not the number 2.5",
    ),
    (
        r#""v":[1,2]"#,
        "found an array, expected an array of 3 numbers, not 2",
    ),
    (r#""v":[1,2,3,4]"#, "expected an array of 3 numbers, not 4"),
    (r#""v":[1,2,"3"]"#, "as item 3 of the array"),
    (r#""v":[1,2,1e39]"#, "a 32-bit float can hold as item 3"),
    (
        r#""v":"x""#,
        "expected an array of 3 numbers (the type is Vector(3))",
    ),
];

#[test]
fn wrong_values_say_what_was_found_and_what_is_expected() {
    for &(member, words) in WRONG {
        let text = person(member);
        refuse(&strict(), &[(&text, "type", words)]);
        let loaded = load(&text, strict());
        assert_eq!(loaded.violations[0].type_name, "Person");
        assert_eq!(loaded.violations[0].id, "ann");
    }
}

#[test]
fn every_wrong_value_of_a_record_is_named_and_leaves_nothing_behind() {
    let good = person(r#""tags":["x"],"i64":5,"v":[1,2,3]"#);
    let bad = person(r#""tags":["y",1],"i64":"a","v":[9,9,9],"zz":1"#);
    let loaded = load(&format!("{good}\n{bad}\n{good}"), strict());
    assert_eq!(
        loaded.report(),
        "2 type type Person has no property \"zz\"\n\
         2 type property i64: found the string \"a\", expected an integer from -9223372036854775808 to 9223372036854775807, without a fraction or exponent (the type is I64)\n\
         2 type property tags: found an array, expected a string as item 2 of the array, not the number 1 (the type is [String])"
    );
    let tags = loaded.column(PERSON, "tags");
    let tags = tags.as_list::<i32>().values();
    assert_eq!(tags.len(), 2);
    assert_eq!(loaded.rows(PERSON).num_rows(), 2);
    let vectors = loaded.column(PERSON, "v");
    assert_eq!(vectors.as_fixed_size_list().values().len(), 6);
}

#[test]
fn blobs_are_not_read() {
    let mut schema = schema();
    schema.types[3].properties[0].value_type = ValueType::Blob;
    let error = Input::new(schema.into(), strict()).unwrap_err();
    assert_eq!(error.code(), "NotYetSupported");
}

#[test]
fn batches_are_bounded() {
    let long = "x".repeat(100_000);
    let text: Vec<String> = (0..100)
        .map(|_| format!(r#"{{"type":"Note","data":{{"text":"{long}"}}}}"#))
        .collect();
    let loaded = load(&text.join("\n"), strict()).clean();
    assert!(loaded.batches.len() >= 2);
    for batch in &loaded.batches {
        assert!(batch.batch.get_array_memory_size() < 5 * 1024 * 1024);
    }
    let rows = r#"{"type":"Note"}"#.to_owned() + "\n";
    let loaded = load(&rows.repeat(8_193), strict()).clean();
    let sizes: Vec<usize> = loaded.batches.iter().map(|b| b.batch.num_rows()).collect();
    assert_eq!(sizes, [8_192, 1]);
}

#[test]
fn many_types_together_are_bounded() {
    let types = (1..=64).map(|id| {
        let text = property(
            id + 100,
            "t",
            scalar(stratagraph::graph::value::Scalar::String),
            true,
        );
        graph_type(id, &format!("T{id}"), vec![text], vec![])
    });
    let long = "x".repeat(1_000_000);
    let mut input = Input::new(schema_of(types.collect()).into(), strict()).unwrap();
    let (mut pushed, mut taken) = (0, 0);
    for number in 1..=192u64 {
        let line = format!(
            r#"{{"type":"T{}","data":{{"t":"{long}"}}}}"#,
            number % 64 + 1
        );
        input.push_line(number, &line).unwrap();
        pushed += line.len();
        for batch in input.take_full() {
            taken += batch.batch.get_array_memory_size();
        }
        assert!(pushed.saturating_sub(taken) < 40 * 1024 * 1024);
    }
    assert!(taken > 0);
}
