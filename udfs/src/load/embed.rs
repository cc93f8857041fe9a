//! Vectors of `@embed` properties: supplied ones stay, a row whose text is that of its stored row
//! keeps the stored one, the others are computed.

use std::collections::HashMap;
use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, AsArray, FixedSizeListArray, Float32Array, RecordBatch, StringArray,
};
use arrow::buffer::NullBuffer;
use arrow::compute::cast;
use arrow::datatypes::{DataType, Field, Float32Type, Schema, SchemaRef};
use futures::TryStreamExt;
use stratagraph::embed::{RejectReason, Role};
use stratagraph::graph::schema::{GraphType, Property};
use stratagraph::graph::violation::Violation;
use stratagraph::{Error, Result};

use super::attempt::{Attempt, TypeState};
use super::found::{Found, numbers, shown};
use super::models::{Answer, Filled};
use super::plans::{Plan, SPOOLS};
use super::rows::keyed_schema;
use crate::embedding;
use crate::refresh::scan::pieces;
use crate::spool::{Spool, Spooler};

/// Vector components that are computed at once.
const CHUNK_COMPONENTS: usize = 2 * 1024 * 1024;
/// Rows whose vectors are computed at once.
const CHUNK_ROWS: usize = 4_096;

impl Attempt<'_> {
    /// Fills the vectors of all types of the load.
    pub(crate) async fn embed(&mut self, found: &mut Found) -> Result<()> {
        let mut all = Vec::new();
        for state in self.states() {
            let filled = self.models.of(state.of);
            if let Some(rows) = state.loaded().filter(|_| !filled.is_empty()) {
                all.push((state.of.id, self.fill(state, rows, &filled, found).await?));
            }
        }
        for (type_id, rows) in all {
            self.replace_rows(type_id, rows);
        }
        Ok(())
    }

    async fn fill(
        &self,
        state: &TypeState<'_>,
        rows: &Spool,
        filled: &[Filled<'_>],
        found: &mut Found,
    ) -> Result<Spool> {
        let schema = keyed_schema(state.of);
        let known = state.keyed.as_ref().is_some_and(|keyed| keyed.known > 0);
        let beside = known.then(|| beside(&schema, filled));
        let mut batches = match &beside {
            None => rows.read(),
            Some(all) => self.with_stored(state, rows, filled, all).await?,
        };
        let mut segment =
            Spooler::new(self.host(), Arc::clone(&schema), "filled rows", SPOOLS).segment();
        let width = filled.iter().map(Filled::width).max().unwrap_or(1).max(1);
        let most = (CHUNK_COMPONENTS / width).clamp(1, CHUNK_ROWS);
        let mut done = 0;
        while let Some(batch) = batches.try_next().await? {
            for batch in pieces(&batch, most) {
                let own = schema.fields().len();
                let mut columns = batch.columns()[..own].to_vec();
                for (at, one) in filled.iter().enumerate() {
                    let stored = beside.as_ref().map(|_| {
                        let at = own + 2 * at;
                        (batch.column(at), batch.column(at + 1))
                    });
                    let vectors = self.vectors(state.of, one, &batch, stored, found).await?;
                    columns[property_place(one.at)] = vectors;
                }
                done += batch.num_rows() as u64;
                segment.push(RecordBatch::try_new(Arc::clone(&schema), columns)?)?;
                self.env.progress.report("embed", done, rows.rows());
            }
        }
        Ok(Spool::new(schema, vec![segment.finish()?]))
    }

    /// The rows with text and vector of their stored rows.
    async fn with_stored(
        &self,
        state: &TypeState<'_>,
        rows: &Spool,
        filled: &[Filled<'_>],
        schema: &SchemaRef,
    ) -> Result<futures::stream::BoxStream<'static, Result<RecordBatch>>> {
        let own = schema.fields().len() - 2 * filled.len();
        let fields = schema.fields().iter().take(own);
        let mut columns: Vec<String> = fields.map(|f| format!("l.{}", f.name())).collect();
        for one in filled {
            let quoted = |at: usize| {
                let name = &state.of.properties[at].name;
                format!("\"{}\"", name.replace('"', "\"\""))
            };
            columns.push(format!("arrow_cast(b.{}, 'Utf8')", quoted(one.source)));
            columns.push(format!("b.{}", quoted(one.at)));
        }
        let sql = format!(
            "SELECT {} FROM loaded l LEFT JOIN stored b ON l.k = b.id ORDER BY l.k",
            columns.join(", ")
        );
        let plan = Plan::new(self.host()).with_rows("loaded", rows)?;
        let plan = plan.holding(rows.rows() * (1 + rows.row_bytes() as u64 / 128));
        let plan = plan.with("stored", self.table(state.of).await?);
        plan.stream(&sql, Arc::clone(schema)).await
    }

    /// The vectors of a property: one for each row that has or gets one.
    async fn vectors(
        &self,
        of: &GraphType,
        one: &Filled<'_>,
        rows: &RecordBatch,
        stored: Option<(&ArrayRef, &ArrayRef)>,
        found: &mut Found,
    ) -> Result<ArrayRef> {
        let cells = Cells::new(one, rows, stored)?;
        let wanted = (0..rows.num_rows()).filter(|row| cells.known(*row).is_none());
        let wanted: Vec<&str> = wanted.filter_map(|row| cells.text(row)).collect();
        let answers = self.answers(one, wanted).await?;
        let mut column = VectorColumn::new(one.width(), rows.num_rows());
        for row in 0..rows.num_rows() {
            if let Some(vector) = cells.known(row) {
                column.push(vector.as_primitive::<Float32Type>().values());
                continue;
            }
            match cells.text(row).and_then(|text| answers.get(text)) {
                Some(Ok(vector)) => column.push(vector),
                none => {
                    column.push_null();
                    if !one.property.nullable {
                        let reason = match none {
                            Some(Err(reason)) => *reason,
                            _ => RejectReason::Empty,
                        };
                        found.add(refused(of, one, rows, row, reason)?);
                    }
                }
            }
        }
        column.finish(one.property)
    }

    /// The answer for each text; a text is given to the model once.
    async fn answers(
        &self,
        one: &Filled<'_>,
        mut wanted: Vec<&str>,
    ) -> Result<HashMap<String, Answer>> {
        wanted.sort_unstable();
        wanted.dedup();
        let mut answers = HashMap::with_capacity(wanted.len());
        wanted.retain(|text| match self.models.known(one.property.id, text) {
            Some(answer) => {
                answers.insert((*text).to_owned(), answer);
                false
            }
            None => true,
        });
        if wanted.is_empty() {
            return Ok(answers);
        }
        let texts = StringArray::from_iter_values(&wanted);
        let embedded = embedding::embed(Arc::clone(one.model), Role::Document, texts).await?;
        let reasons: HashMap<usize, RejectReason> = embedded.errors.iter().copied().collect();
        for (row, text) in wanted.into_iter().enumerate() {
            let answer = match reasons.get(&row) {
                Some(reason) => Err(*reason),
                None => {
                    let vector = embedded.vectors.value(row);
                    Ok(vector
                        .as_primitive::<Float32Type>()
                        .values()
                        .as_ref()
                        .into())
                }
            };
            self.models.remember(one.property.id, text, &answer);
            answers.insert(text.to_owned(), answer);
        }
        Ok(answers)
    }
}

/// What is known of the vectors of some rows before a model is asked.
struct Cells<'a> {
    given: &'a FixedSizeListArray,
    texts: &'a StringArray,
    /// Text and vector of the stored rows.
    stored: Option<(StringArray, &'a FixedSizeListArray)>,
}

impl<'a> Cells<'a> {
    fn new(
        one: &Filled<'_>,
        rows: &'a RecordBatch,
        stored: Option<(&ArrayRef, &'a ArrayRef)>,
    ) -> Result<Self> {
        let given = rows.column(property_place(one.at));
        let texts = rows.column(property_place(one.source));
        let stored = match stored {
            Some((text, vectors)) => {
                let text = cast(text, &DataType::Utf8)?;
                let text = text.as_string::<i32>().clone();
                Some((text, vectors.as_fixed_size_list()))
            }
            None => None,
        };
        Ok(Self {
            given: given.as_fixed_size_list(),
            texts: texts.as_string::<i32>(),
            stored,
        })
    }

    fn text(&self, row: usize) -> Option<&'a str> {
        self.texts.is_valid(row).then(|| self.texts.value(row))
    }

    /// The vector that was given, or that of a stored row with the same text.
    fn known(&self, row: usize) -> Option<ArrayRef> {
        if self.given.is_valid(row) {
            return Some(self.given.value(row));
        }
        let (texts, vectors) = self.stored.as_ref()?;
        let same = texts.is_valid(row) && self.text(row) == Some(texts.value(row));
        (same && vectors.is_valid(row)).then(|| vectors.value(row))
    }
}

/// A column of vectors of one width.
struct VectorColumn {
    width: usize,
    values: Vec<f32>,
    valid: Vec<bool>,
}

impl VectorColumn {
    fn new(width: usize, rows: usize) -> Self {
        Self {
            width,
            values: Vec::with_capacity(rows * width),
            valid: Vec::with_capacity(rows),
        }
    }

    fn push(&mut self, vector: &[f32]) {
        self.values.extend_from_slice(vector);
        self.valid.push(true);
    }

    fn push_null(&mut self) {
        self.values.extend(std::iter::repeat_n(0.0, self.width));
        self.valid.push(false);
    }

    fn finish(self, property: &Property) -> Result<ArrayRef> {
        let DataType::FixedSizeList(item, size) = property.value_type.arrow() else {
            let found = property.value_type.to_string();
            return Err(Error::corrupt(
                "graph schema",
                &property.name,
                "a vector",
                found,
            ));
        };
        let values = Arc::new(Float32Array::from(self.values));
        let nulls = NullBuffer::from(self.valid);
        let nulls = (nulls.null_count() > 0).then_some(nulls);
        let vectors = FixedSizeListArray::try_new(item, size, values, nulls)?;
        Ok(Arc::new(vectors))
    }
}

fn refused(
    of: &GraphType,
    one: &Filled<'_>,
    rows: &RecordBatch,
    row: usize,
    reason: RejectReason,
) -> Result<Violation> {
    Ok(Violation {
        record: numbers(rows, 0)?[row],
        type_name: of.name.clone(),
        id: shown(rows.column(1).as_string::<i32>().value(row)),
        rule: "embed",
        message: format!(
            "{} needs a vector and its text {} gets none ({}); give a text or a vector",
            one.property.name,
            of.properties[one.source].name,
            reason.as_str()
        ),
    })
}

/// Where a property stands among the columns of spooled rows of nodes; edges have no `@embed`.
fn property_place(at: usize) -> usize {
    2 + at
}

/// The columns of rows with those of their stored rows beside them.
fn beside(schema: &SchemaRef, filled: &[Filled<'_>]) -> SchemaRef {
    let mut fields: Vec<Field> = schema.fields().iter().map(|f| f.as_ref().clone()).collect();
    for (at, one) in filled.iter().enumerate() {
        fields.push(Field::new(format!("t{at}"), DataType::Utf8, true));
        let vector = one.property.value_type.arrow();
        fields.push(Field::new(format!("v{at}"), vector, true));
    }
    Arc::new(Schema::new(fields))
}
