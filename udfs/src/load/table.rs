//! Rows of a table or a query as rows of a type: columns by name, values without loss.

use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, AsArray, BooleanArray, FixedSizeListArray, ListArray, RecordBatch,
    UInt64Array, new_null_array,
};
use arrow::buffer::{NullBuffer, OffsetBuffer};
use arrow::compute::kernels::cmp::not_distinct;
use arrow::compute::{cast, filter};
use arrow::datatypes::{DataType, SchemaRef, TimeUnit};
use datafusion::execution::SendableRecordBatchStream;
use futures::TryStreamExt;
use stratagraph::graph::input::{Findings, Rules, Sink, TypedBatch, input_schema};
use stratagraph::graph::schema::{GraphSchema, GraphType};
use stratagraph::graph::value::{Scalar, ValueType};
use stratagraph::graph::violation::Violation;
use stratagraph::{Error, Result, limits};
use stratagraph_providers::from_datafusion;

use super::rows::{Collector, Loaded};
use crate::engine::Run;

const VERB: &str = "graph_load_table";

fn invalid(reason: String) -> Error {
    Error::InvalidArgument {
        function: VERB.to_owned(),
        argument: "source".to_owned(),
        reason,
    }
}

/// Where a column of a type comes from.
struct Column {
    name: String,
    /// Its place in the source; `None` is NULL.
    at: Option<usize>,
    wanted: Wanted,
}

enum Wanted {
    /// The text of an id.
    Id,
    Value(ValueType),
}

/// The columns of [`input_schema`] after the record number, by the columns of a source.
///
/// # Errors
/// `InvalidArgument` for a column that the type does not have, one that it needs and the source
/// lacks, and one whose values do not convert without loss.
fn plan(of: &GraphType, source: &SchemaRef, fill: bool) -> Result<Vec<Column>> {
    let mut used = Vec::new();
    let mut find = |names: &[&str]| -> Result<Option<usize>> {
        let fields = source.fields().iter().enumerate();
        let found: Vec<usize> = fields
            .filter(|(_, f)| names.contains(&f.name().as_str()))
            .map(|(at, _)| at)
            .collect();
        if found.len() > 1 {
            return Err(invalid(format!(
                "several columns are {}",
                names.join(" or ")
            )));
        }
        used.extend(found.iter().copied());
        Ok(found.first().copied())
    };
    let mut columns = vec![Column {
        name: "id".to_owned(),
        at: find(&["id"])?,
        wanted: Wanted::Id,
    }];
    if of.is_edge() {
        for names in [["from", "src"], ["to", "dst"]] {
            let Some(at) = find(&names)? else {
                let [name, _] = names;
                return Err(invalid(format!(
                    "edges of {} need a column {name:?}",
                    of.name
                )));
            };
            columns.push(Column {
                name: names[0].to_owned(),
                at: Some(at),
                wanted: Wanted::Id,
            });
        }
    }
    for property in &of.properties {
        let at = find(&[property.name.as_str()])?;
        let filled = fill && property.embed.is_some();
        if at.is_none() && !property.nullable && !filled {
            let (name, value_type) = (&property.name, &property.value_type);
            return Err(invalid(format!(
                "{} needs a column {name:?} of type {value_type}",
                of.name
            )));
        }
        columns.push(Column {
            name: property.name.clone(),
            at,
            wanted: Wanted::Value(property.value_type.clone()),
        });
    }
    check(of, source, &used, &columns)?;
    Ok(columns)
}

/// Refuses columns that nothing takes, and those of a type that does not fit.
fn check(of: &GraphType, source: &SchemaRef, used: &[usize], columns: &[Column]) -> Result<()> {
    for (at, field) in source.fields().iter().enumerate() {
        if !used.contains(&at) {
            let names: Vec<&str> = columns.iter().map(|c| c.name.as_str()).collect();
            return Err(invalid(format!(
                "{} has no property {:?}; its columns are {}",
                of.name,
                field.name(),
                names.join(", ")
            )));
        }
    }
    for column in columns {
        let field = column.at.map(|at| source.field(at));
        if let Some(field) = field.filter(|f| !column.takes(f.data_type())) {
            return Err(invalid(format!(
                "column {:?} is {}, which is not always {}; cast it in the query",
                field.name(),
                field.data_type(),
                column.expected()
            )));
        }
    }
    Ok(())
}

impl Column {
    fn expected(&self) -> String {
        match &self.wanted {
            Wanted::Id => "the text of an id".to_owned(),
            Wanted::Value(value_type) => value_type.to_string(),
        }
    }

    /// Whether values of a type can be values of the column; each one is checked later.
    fn takes(&self, from: &DataType) -> bool {
        match from {
            DataType::Null => return true,
            DataType::Dictionary(_, values) => return self.takes(values),
            _ => {}
        }
        match &self.wanted {
            Wanted::Id => from.is_string() || from.is_integer(),
            Wanted::Value(ValueType::Scalar(scalar)) => takes(*scalar, from),
            Wanted::Value(ValueType::Enum(_)) => from.is_string(),
            Wanted::Value(ValueType::List(scalar)) => {
                item(from).is_some_and(|item| takes(*scalar, item))
            }
            Wanted::Value(ValueType::Vector(_)) => item(from).is_some_and(DataType::is_numeric),
            Wanted::Value(ValueType::Blob) => false,
        }
    }
}

fn item(from: &DataType) -> Option<&DataType> {
    match from {
        DataType::List(f) | DataType::LargeList(f) | DataType::FixedSizeList(f, _) => {
            Some(f.data_type())
        }
        _ => None,
    }
}

fn takes(scalar: Scalar, from: &DataType) -> bool {
    match scalar {
        Scalar::String => from.is_string(),
        Scalar::Bool => *from == DataType::Boolean,
        Scalar::I32 | Scalar::I64 | Scalar::U32 | Scalar::U64 => from.is_integer(),
        Scalar::F32 | Scalar::F64 => from.is_numeric(),
        Scalar::Date => matches!(from, DataType::Date32 | DataType::Date64),
        Scalar::DateTime => matches!(from, DataType::Timestamp(_, _)),
    }
}

/// Converts values, and says which of them it cannot.
fn convert(array: &ArrayRef, to: &DataType) -> Result<(ArrayRef, Vec<usize>)> {
    let mut from = Arc::clone(array);
    if let DataType::Dictionary(_, values) = from.data_type() {
        from = cast(&from, &values.as_ref().clone())?;
    }
    // A time without a zone is one of UTC.
    if let (DataType::Timestamp(unit, None), DataType::Timestamp(TimeUnit::Microsecond, zone)) =
        (from.data_type(), to)
    {
        let zoned = DataType::Timestamp(*unit, zone.clone());
        from = cast(&from, &zoned)?;
    }
    let cast_to = cast(&from, to)?;
    let exact = match (from.data_type(), to) {
        // Decimal text is rounded once to a float, as that of JSON is.
        (t, DataType::Float32 | DataType::Float64) if !t.is_integer() => None,
        // An integer has one text.
        (t, DataType::Utf8) if t.is_integer() || t.is_string() => None,
        (t, to) if t == to => None,
        _ => Some(not_distinct(&cast(&cast_to, from.data_type())?, &from)?),
    };
    if exact.is_none() && cast_to.null_count() == from.logical_null_count() {
        return Ok((cast_to, Vec::new()));
    }
    let wrong = |row: &usize| {
        let row = *row;
        let lost = cast_to.is_null(row) && from.is_valid(row);
        lost || exact.as_ref().is_some_and(|same| !same.value(row))
    };
    let wrong = (0..from.len()).filter(wrong).collect();
    Ok((cast_to, wrong))
}

/// The values of a list type, where each list begins, and the type of the values.
fn lists(array: &ArrayRef) -> Result<(ArrayRef, Vec<usize>)> {
    let to = |f: &arrow::datatypes::FieldRef| DataType::LargeList(Arc::clone(f));
    let large = match array.data_type() {
        DataType::List(f) | DataType::LargeList(f) | DataType::FixedSizeList(f, _) => {
            cast(array, &to(f))?
        }
        other => return Err(invalid(format!("a column of type {other} holds no lists"))),
    };
    let large = large.as_list::<i64>();
    let offsets = large.offsets().iter();
    let offsets = offsets.map(|at| usize::try_from(*at).unwrap_or(0));
    Ok((Arc::clone(large.values()), offsets.collect()))
}

/// Converts a column of lists: its values, where each list begins, and the rows that do not convert.
fn convert_lists(
    array: &ArrayRef,
    to: &DataType,
    width: Option<usize>,
) -> Result<(ArrayRef, Vec<usize>, Vec<usize>)> {
    let (values, offsets) = lists(array)?;
    let (converted, wrong) = convert(&values, to)?;
    let row_of = |at: &usize| {
        offsets
            .partition_point(|start| start <= at)
            .saturating_sub(1)
    };
    let null = |at: &usize| converted.is_null(*at);
    let mut rows: Vec<usize> = wrong.iter().map(row_of).collect();
    let (first, last) = (offsets.first().copied(), offsets.last().copied());
    let inside = first.unwrap_or(0)..last.unwrap_or(0);
    rows.extend(inside.filter(null).map(|at| row_of(&at)));
    if let Some(width) = width {
        let lengths = offsets.windows(2).map(|pair| pair[1] - pair[0]);
        rows.extend(
            lengths
                .enumerate()
                .filter(|(_, n)| *n != width)
                .map(|(row, _)| row),
        );
    }
    rows.retain(|row| *row < array.len() && array.is_valid(*row));
    rows.sort_unstable();
    rows.dedup();
    Ok((converted, offsets, rows))
}

impl Column {
    /// The column of some rows, and the rows whose value it cannot hold. Only a column without any
    /// is complete.
    fn convert(&self, source: &RecordBatch) -> Result<(ArrayRef, Vec<usize>)> {
        let to = match &self.wanted {
            Wanted::Id => DataType::Utf8,
            Wanted::Value(value_type) => value_type.arrow(),
        };
        let rows = source.num_rows();
        let array = self.at.map(|at| source.column(at));
        let array = array.filter(|array| *array.data_type() != DataType::Null);
        let Some(array) = array else {
            return Ok((new_null_array(&to, rows), Vec::new()));
        };
        match &to {
            DataType::List(field) => {
                let (values, offsets, wrong) = convert_lists(array, field.data_type(), None)?;
                if !wrong.is_empty() {
                    return Ok((new_null_array(&to, rows), wrong));
                }
                let offsets = offsets
                    .iter()
                    .map(|at| i32::try_from(*at).unwrap_or(i32::MAX));
                let offsets = OffsetBuffer::new(offsets.collect());
                let nulls = array.logical_nulls();
                let list = ListArray::try_new(Arc::clone(field), offsets, values, nulls)?;
                Ok((Arc::new(list), wrong))
            }
            DataType::FixedSizeList(field, size) => {
                let width = usize::try_from(*size).unwrap_or(0);
                let item = field.data_type();
                let (values, offsets, wrong) = convert_lists(array, item, Some(width))?;
                if !wrong.is_empty() {
                    return Ok((new_null_array(&to, rows), wrong));
                }
                let vectors = vectors(array, &values, &offsets, (field, *size))?;
                Ok((vectors, wrong))
            }
            to => convert(array, to),
        }
    }
}

/// Lists of one length as vectors; a NULL has no values in a list and zeros in a vector.
fn vectors(
    array: &ArrayRef,
    values: &ArrayRef,
    offsets: &[usize],
    (field, size): (&arrow::datatypes::FieldRef, i32),
) -> Result<ArrayRef> {
    use arrow::datatypes::Float32Type;
    let width = usize::try_from(size).unwrap_or(0);
    let parts = values.as_primitive::<Float32Type>().values();
    let mut all: Vec<f32> = Vec::with_capacity(array.len() * width);
    for row in 0..array.len() {
        match array.is_valid(row) {
            true => all.extend_from_slice(&parts[offsets[row]..offsets[row + 1]]),
            false => all.extend(std::iter::repeat_n(0.0, width)),
        }
    }
    let nulls: Option<NullBuffer> = array.logical_nulls();
    let values = Arc::new(arrow::array::Float32Array::from(all));
    let list = FixedSizeListArray::try_new(Arc::clone(field), size, values, nulls)?;
    Ok(Arc::new(list))
}

/// Reads rows of one type. A record's number is the number of its row, from 1.
pub(crate) async fn read_rows(
    run: &Run,
    schema: &Arc<GraphSchema>,
    of: &GraphType,
    mut source: SendableRecordBatchStream,
    fill: bool,
) -> Result<Loaded> {
    let columns = SourceColumns::new(of, &source.schema(), fill)?;
    let rules = Rules::new(schema, fill)?;
    let env = run.host.env(run.catalog().env());
    let mut collector = Collector::new(&run.host, &env, schema);
    let mut findings = Findings::new(limits::VIOLATIONS);
    let (mut read, mut good) = (0u64, 0u64);
    while let Some(batch) = source.try_next().await.map_err(from_datafusion)? {
        let row_bytes = batch.get_array_memory_size() / batch.num_rows().max(1);
        for batch in crate::refresh::scan::pieces(&batch, run.host.batch_rows(row_bytes)) {
            let first = read + 1;
            read += batch.num_rows() as u64;
            let rows = columns.rows(of, &batch, first, &mut findings)?;
            let rows = rules.apply(of, &rows, &mut findings)?;
            good += rows.num_rows() as u64;
            let (type_id, batch) = (of.id, rows);
            if batch.num_rows() > 0 {
                collector.push(TypedBatch { type_id, batch }).await?;
            }
        }
    }
    let counts = if of.is_edge() { (0, good) } else { (good, 0) };
    super::loaded_rows(collector, of.id, counts, findings)
}

/// Where the columns of a type come from in the batches of a source.
pub(crate) struct SourceColumns(Vec<Column>);

impl SourceColumns {
    /// The columns of a type, by name; with `fill` vectors that are made from their text may lack.
    ///
    /// # Errors
    /// `InvalidArgument` for columns that do not fit.
    pub(crate) fn new(of: &GraphType, source: &SchemaRef, fill: bool) -> Result<Self> {
        plan(of, source, fill).map(Self)
    }

    /// The rows of a batch that convert, in the columns of [`input_schema`] with record numbers from
    /// `first` on; the others are found.
    pub(crate) fn rows(
        &self,
        of: &GraphType,
        source: &RecordBatch,
        first: u64,
        findings: &mut Findings,
    ) -> Result<RecordBatch> {
        typed(of, &self.0, source, first, findings)
    }
}

/// The rows that convert; the others are found.
fn typed(
    of: &GraphType,
    columns: &[Column],
    source: &RecordBatch,
    first: u64,
    findings: &mut Findings,
) -> Result<RecordBatch> {
    let mut good = vec![true; source.num_rows()];
    let mut arrays = Vec::with_capacity(columns.len() + 1);
    let records = UInt64Array::from_iter_values((0..source.num_rows() as u64).map(|n| first + n));
    let mut whole = true;
    for column in columns {
        let (array, wrong) = column.convert(source)?;
        let end = matches!(column.wanted, Wanted::Id) && column.name != "id";
        let missing = (0..array.len()).filter(|row| end && array.is_null(*row));
        let missing: Vec<usize> = missing.collect();
        for (row, rule) in wrong
            .iter()
            .map(|row| (*row, "type"))
            .chain(missing.iter().map(|row| (*row, "required")))
        {
            let record = records.value(row);
            findings.add(record, || Violation {
                record,
                type_name: of.name.clone(),
                id: String::new(),
                rule,
                message: match rule {
                    "required" => format!("column {} is NULL; an edge has both ends", column.name),
                    _ => format!(
                        "the value of column {} is no {} without loss",
                        column.name,
                        column.expected()
                    ),
                },
            });
            good[row] = false;
            whole = false;
        }
        arrays.push(array);
    }
    if whole {
        arrays.insert(0, Arc::new(records));
        return Ok(RecordBatch::try_new(
            input_schema(of),
            own_buffers(arrays)?,
        )?);
    }
    let good = BooleanArray::from(good);
    let kept = source.columns().iter().map(|c| filter(c, &good));
    let kept = kept.collect::<std::result::Result<Vec<_>, _>>()?;
    let kept = RecordBatch::try_new(source.schema(), kept)?;
    let mut arrays = vec![filter(&records, &good)?];
    for column in columns {
        arrays.push(column.convert(&kept)?.0);
    }
    Ok(RecordBatch::try_new(
        input_schema(of),
        own_buffers(arrays)?,
    )?)
}

/// The same values in buffers of their own: spooled memory is counted by buffer, and a piece of a
/// batch shares those of the others.
fn own_buffers(arrays: Vec<ArrayRef>) -> Result<Vec<ArrayRef>> {
    let own = arrays.into_iter().map(|array| {
        let all = BooleanArray::from(vec![true; array.len()]);
        match array.data_type() {
            DataType::Null => Ok(array),
            _ => Ok(arrow::compute::concat(&[&filter(&array, &all)?])?),
        }
    });
    own.collect()
}
