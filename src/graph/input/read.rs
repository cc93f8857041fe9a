//! Files in, batches out.

use std::sync::Arc;

use async_trait::async_trait;

use super::{Input, InputOptions, Line, LineReader, Source, Summary, TypedBatch};
use crate::Result;
use crate::graph::schema::GraphSchema;

/// Takes the batches of a load as they are full.
#[async_trait]
pub trait Sink: Send {
    /// Takes one batch.
    async fn push(&mut self, batch: TypedBatch) -> Result<()>;
}

#[async_trait]
impl Sink for Vec<TypedBatch> {
    async fn push(&mut self, batch: TypedBatch) -> Result<()> {
        Vec::push(self, batch);
        Ok(())
    }
}

/// Reads the files in the order of their names and gives their batches to `sink`. Lines are counted
/// on from file to file. What is wrong with records is in the summary.
///
/// # Errors
/// Those of [`Input`], [`LineReader`] and the sink; then nothing more is read.
pub async fn read(
    mut sources: Vec<Source>,
    schema: Arc<GraphSchema>,
    options: InputOptions,
    sink: &mut dyn Sink,
) -> Result<Summary> {
    sources.sort_by(|a, b| a.path.cmp(&b.path));
    let limit = options.line_bytes;
    let mut input = Input::new(schema, options)?;
    let mut lines = 0;
    for source in &sources {
        input.begin_source(source.name(), lines)?;
        let mut reader = LineReader::open(source, lines, limit).await?;
        while let Some(line) = reader.next().await? {
            match line {
                Line::Text(number, text) => input.push_line(number, text)?,
                Line::NotUtf8(number, valid) => input.push_invalid_utf8(number, valid),
            }
            for batch in input.take_full() {
                sink.push(batch).await?;
            }
        }
        lines = reader.number();
    }
    let (batches, summary) = input.finish()?;
    for batch in batches {
        sink.push(batch).await?;
    }
    Ok(summary)
}
