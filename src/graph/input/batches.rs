//! Records as batches of their types.

use std::collections::BTreeSet;
use std::sync::Arc;

use arrow::array::{ArrayRef, UInt64Array};
use arrow::datatypes::SchemaRef;
use arrow::record_batch::RecordBatch;

use super::columns::{Column, TextColumn};
use super::layout::input_schema;
use super::record::{Envelope, Fault, Names, Reader};
use super::rules::Rules;
use super::scan::{Kind, Syntax, Tape};
use super::split::{Piece, Splitter};
use super::{Findings, Grammar, InputOptions, OnError, Places};
use crate::graph::schema::{GraphSchema, GraphType};
use crate::graph::violation::Violation;
use crate::{Error, Result, limits};

/// Rows of one type with the columns of [`input_schema`].
#[derive(Debug, Clone)]
pub struct TypedBatch {
    /// Type id.
    pub type_id: u64,
    /// The rows, in the order of the input.
    pub batch: RecordBatch,
}

/// What was read besides the rows.
#[derive(Debug)]
pub struct Summary {
    /// Records, good and bad.
    pub records: u64,
    /// Nodes that broke no rule of their own.
    pub nodes: u64,
    /// Edges that broke no rule of their own.
    pub edges: u64,
    /// Ids of the types that records named, good and bad.
    pub types: BTreeSet<u64>,
    /// What is wrong.
    pub findings: Findings,
    /// Where records stand.
    pub places: Places,
}

/// Lines in, batches and violations out. The rows that it holds are bounded as long as
/// [`take_full`](Self::take_full) is called after each line.
#[derive(Debug)]
pub struct Input {
    schema: Arc<GraphSchema>,
    options: InputOptions,
    names: Names,
    rules: Rules,
    types: Vec<Option<TypeRows>>,
    /// Bytes of the rows of all types.
    bytes: usize,
    full: Vec<TypedBatch>,
    tape: Tape,
    values: Vec<Option<usize>>,
    faults: Vec<Fault>,
    splitter: Splitter,
    summary: Summary,
}

#[derive(Debug)]
struct TypeRows {
    schema: SchemaRef,
    records: Vec<u64>,
    ids: TextColumn,
    ends: Option<[TextColumn; 2]>,
    columns: Vec<Column>,
    row_bytes: usize,
    bytes: usize,
}

impl TypeRows {
    fn new(graph_type: &GraphType) -> Self {
        let properties = &graph_type.properties;
        let row_bytes = properties.iter().map(|p| Column::row_bytes(&p.value_type));
        Self {
            schema: input_schema(graph_type),
            records: Vec::new(),
            ids: TextColumn::new(),
            ends: graph_type
                .is_edge()
                .then(|| [TextColumn::new(), TextColumn::new()]),
            columns: properties
                .iter()
                .map(|p| Column::new(&p.value_type))
                .collect(),
            row_bytes: row_bytes.sum::<usize>() + 32,
            bytes: 0,
        }
    }

    fn finish(self) -> Result<RecordBatch> {
        let mut arrays: Vec<ArrayRef> = Vec::with_capacity(self.columns.len() + 4);
        arrays.push(Arc::new(UInt64Array::from(self.records)));
        arrays.push(self.ids.finish()?);
        for ends in self.ends.into_iter().flatten() {
            arrays.push(ends.finish()?);
        }
        for column in self.columns {
            arrays.push(column.finish()?);
        }
        Ok(RecordBatch::try_new(self.schema, arrays)?)
    }
}

impl Input {
    /// Reads records of `schema`.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for options that exclude each other; what [`Rules::new`] says.
    pub fn new(schema: Arc<GraphSchema>, options: InputOptions) -> Result<Self> {
        options.check()?;
        let rules = Rules::new(&schema, options.fill_embeddings)?;
        Ok(Self {
            names: Names::new(&schema),
            rules,
            types: schema.types.iter().map(|_| None).collect(),
            bytes: 0,
            full: Vec::new(),
            tape: Tape::default(),
            values: Vec::new(),
            faults: Vec::new(),
            splitter: Splitter::new(options.line_bytes),
            summary: Summary {
                records: 0,
                nodes: 0,
                edges: 0,
                types: BTreeSet::new(),
                findings: Findings::new(options.violations),
                places: Places::new(options.grammar),
            },
            schema,
            options,
        })
    }

    /// Says that the lines that follow are those of `name`, after `lines` lines of files before it.
    /// A record does not go on over the end of a file.
    ///
    /// # Errors
    /// As [`push_line`](Self::push_line).
    pub fn begin_source(&mut self, name: &str, lines: u64) -> Result<()> {
        self.end_source();
        let records = match self.options.grammar {
            Grammar::Strict => lines,
            Grammar::Compatible => self.summary.records,
        };
        self.summary.places.begin(name, lines, records);
        Ok(())
    }

    fn end_source(&mut self) {
        if let Some((line, message)) = self.splitter.end() {
            self.refused(line, &message);
        }
    }

    /// Reads line number `number`, counted over all files, without its end.
    ///
    /// # Errors
    /// [`Error::LineTooLong`] for a record over several lines that is longer than a line may be.
    /// What is wrong with a record is no error here: it is found in the end.
    pub fn push_line(&mut self, number: u64, text: &str) -> Result<()> {
        if self.options.grammar == Grammar::Strict {
            return self.record(number, number, text);
        }
        let mut splitter = std::mem::take(&mut self.splitter);
        let pushed = splitter.push(number, text, |piece| match piece {
            Piece::Record { line, text } => {
                let record = self.summary.records + 1;
                self.record(record, line, text)
            }
            Piece::Bad { line, message } => {
                self.refused(line, &message);
                Ok(())
            }
        });
        self.splitter = splitter;
        pushed.map_err(|error| self.placed(error))
    }

    fn placed(&self, error: Error) -> Error {
        match error {
            Error::LineTooLong { line, limit, .. } => Error::LineTooLong {
                place: self.summary.places.line(line),
                line,
                limit,
            },
            other => other,
        }
    }

    /// Counts a line that is not UTF-8, cut where the reader says so.
    pub fn push_invalid_utf8(&mut self, number: u64, valid: usize) {
        let message = format!(
            "byte {} of the line is not UTF-8; encode the file as UTF-8",
            valid + 1
        );
        if self.options.grammar == Grammar::Strict {
            self.summary.records += 1;
            self.violation(number, Fault::new("syntax", message));
        } else {
            self.splitter.give_up();
            self.refused(number, &message);
        }
    }

    /// A piece of the compatible grammar that is no record.
    fn refused(&mut self, line: u64, message: &str) {
        self.summary.records += 1;
        let place = self.summary.places.line(line);
        let fault = Fault::new("syntax", format!("{place}: {message}"));
        self.violation(self.summary.records, fault);
    }

    fn violation(&mut self, record: u64, fault: Fault) {
        self.summary.findings.add(record, || Violation {
            record,
            type_name: fault.type_name,
            id: fault.id,
            rule: fault.rule,
            message: fault.message,
        });
    }

    fn record(&mut self, record: u64, line: u64, text: &str) -> Result<()> {
        self.summary.records += 1;
        let mut faults = std::mem::take(&mut self.faults);
        faults.clear();
        let row = self.parse(record, text, &mut faults);
        let compatible = self.options.grammar == Grammar::Compatible;
        for mut fault in faults.drain(..) {
            if compatible {
                let place = self.summary.places.line(line);
                fault.message = format!("{place}: {}", fault.message);
            }
            self.violation(record, fault);
        }
        self.faults = faults;
        match row {
            Some(at) => self.bound(at),
            None => Ok(()),
        }
    }

    /// Appends the record's row and gives its type's place, or gives what is wrong with it.
    fn parse(&mut self, record: u64, text: &str, faults: &mut Vec<Fault>) -> Option<usize> {
        let unique = self.options.grammar == Grammar::Strict;
        if let Err(syntax) = self.tape.scan(text, unique) {
            faults.push(Fault::new("syntax", placed(text, &syntax)));
            return None;
        }
        let reader = Reader {
            schema: &self.schema,
            names: &self.names,
            tape: &self.tape,
            text,
            grammar: self.options.grammar,
            null_on_error: self.options.on_error == OnError::Null,
        };
        let envelope = match reader.envelope() {
            Ok(envelope) => envelope,
            Err(fault) => {
                faults.push(fault);
                return None;
            }
        };
        let graph_type = &self.schema.types[envelope.at];
        self.summary.types.insert(graph_type.id);
        let rows = self.types[envelope.at].get_or_insert_with(|| TypeRows::new(graph_type));
        if !rows.push(&reader, graph_type, &envelope, &mut self.values, faults) {
            return None;
        }
        rows.records.push(record);
        let bytes = rows.row_bytes + text.len();
        rows.bytes += bytes;
        self.bytes += bytes;
        Some(envelope.at)
    }

    /// Finishes the batch of the type at `at` when it is full, and the largest when all are.
    fn bound(&mut self, at: usize) -> Result<()> {
        let full = self.types[at].as_ref().is_some_and(|rows| {
            rows.records.len() >= limits::INPUT_ROWS || rows.bytes >= limits::INPUT_BATCH_BYTES
        });
        if full {
            self.flush(at)?;
        }
        if self.bytes >= limits::INPUT_BYTES {
            let size = |at: &usize| self.types[*at].as_ref().map_or(0, |rows| rows.bytes);
            if let Some(largest) = (0..self.types.len()).max_by_key(size) {
                self.flush(largest)?;
            }
        }
        Ok(())
    }

    fn flush(&mut self, at: usize) -> Result<()> {
        let Some(rows) = self.types[at].take() else {
            return Ok(());
        };
        self.bytes = self.bytes.saturating_sub(rows.bytes);
        let graph_type = &self.schema.types[at];
        let batch = rows.finish()?;
        let findings = &mut self.summary.findings;
        let batch = self.rules.apply(graph_type, &batch, findings)?;
        let count = batch.num_rows() as u64;
        match graph_type.is_edge() {
            true => self.summary.edges += count,
            false => self.summary.nodes += count,
        }
        if count > 0 {
            let type_id = graph_type.id;
            self.full.push(TypedBatch { type_id, batch });
        }
        Ok(())
    }

    /// Batches that are full.
    pub fn take_full(&mut self) -> Vec<TypedBatch> {
        std::mem::take(&mut self.full)
    }

    /// The last batches, in the order of the types, and what was read in all.
    ///
    /// # Errors
    /// An Arrow kernel's.
    pub fn finish(mut self) -> Result<(Vec<TypedBatch>, Summary)> {
        self.end_source();
        for at in 0..self.types.len() {
            self.flush(at)?;
        }
        Ok((self.full, self.summary))
    }
}

impl TypeRows {
    /// Appends all of the record but its number, or nothing and what is wrong with it.
    fn push(
        &mut self,
        reader: &Reader<'_>,
        graph_type: &GraphType,
        envelope: &Envelope<'_>,
        values: &mut Vec<Option<usize>>,
        faults: &mut Vec<Fault>,
    ) -> bool {
        let id = reader.members(envelope, values, faults);
        let given = reader.given_id(id);
        for (at, column) in self.columns.iter_mut().enumerate() {
            let token = values[at].map(|value| reader.tape.token(value));
            let Some(token) = token.filter(|token| token.kind != Kind::Null) else {
                column.push_null();
                continue;
            };
            let Err(expected) = column.push(reader.text, &token, reader.grammar) else {
                continue;
            };
            let property = &graph_type.properties[at];
            if reader.null_on_error && property.nullable {
                column.push_null();
                continue;
            }
            let message = reader.mismatch(&property.name, &property.value_type, &token, &expected);
            faults.push(Fault::new("type", message));
        }
        let given = match given {
            Ok(given) if faults.is_empty() => given,
            given => {
                faults.extend(given.err().map(|message| Fault::new("type", message)));
                let probable = reader.probable_id(graph_type, values, id);
                for fault in faults {
                    fault.type_name.clone_from(&graph_type.name);
                    fault.id.clone_from(&probable);
                }
                let rows = self.records.len();
                self.columns
                    .iter_mut()
                    .for_each(|column| column.truncate(rows));
                return false;
            }
        };
        self.ids.push(given.as_deref());
        if let (Some([src, dst]), Some([from, to])) = (&mut self.ends, &envelope.ends) {
            src.push(Some(from));
            dst.push(Some(to));
        }
        true
    }
}

/// The message of a syntax error with its place in the record.
fn placed(text: &str, syntax: &Syntax) -> String {
    let before = text.get(..syntax.at).unwrap_or(text);
    let start = before.rfind('\n').map_or(0, |at| at + 1);
    let lines = before.matches('\n').count();
    let column = before[start..].chars().count() + 1;
    match lines {
        0 => format!("column {column}: {}", syntax.message),
        _ => format!(
            "line {} of the record, column {column}: {}",
            lines + 1,
            syntax.message
        ),
    }
}
