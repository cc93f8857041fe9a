//! `import_embeddings`: vectors that someone else made, as a versioned table.

use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, AsArray, FixedSizeListArray, Float32Array, RecordBatch, StringArray,
    new_null_array,
};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Float32Type};
use datafusion::common::Column;
use datafusion::execution::SendableRecordBatchStream;
use datafusion::prelude::{DataFrame, Expr};
use futures::TryStreamExt;
use stratagraph::ident::Name;
use stratagraph::publish::{Made, NewTable, Requester, StagedDelta, create};
use stratagraph::store::Stager;
use stratagraph::table::manifest::{Fragment, Layout, SchemaVersion};
use stratagraph::table::schema::{arrow_schema, embedding_schema};
use stratagraph::table::writer::FragmentWriter;
use stratagraph::{Error, KeyScan, Result};
use stratagraph_providers::{ArgSpec, ArgType, FunctionSpec, TableFunction, from_datafusion};
use tracing::Instrument;

use super::finished;
use super::generate::check_free;
use crate::engine::{Engine, Run};
use crate::function::{ReportFunction, answer};
use crate::host::Joins;
use crate::refresh::diff::refuse_repeats;
use crate::report::GenerateReport;
use crate::source::{self, Source};

const VERB: &str = "import_embeddings";
const REPEATS: &str = "SELECT arrow_cast(k, 'Utf8') AS k, count(*) AS n FROM vectors \
     GROUP BY arrow_cast(k, 'Utf8') HAVING count(*) > 1";
const SORTED: &str = "SELECT arrow_cast(k, 'Utf8') AS k, v FROM vectors ORDER BY 1";
/// What a table remembers as the model of vectors that came without one.
const NO_MODEL: &str = "external";

/// Vectors to import.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImportEmbeddings {
    /// Name of the table.
    pub name: String,
    /// A table of the session.
    pub source: String,
    /// Its column of keys.
    pub row_id: String,
    /// Its column of vectors: lists of numbers, all of one length.
    pub vector: String,
    /// What made them, to be remembered.
    pub model: Option<String>,
}

fn invalid(argument: &str, reason: impl Into<String>) -> Error {
    Error::InvalidArgument {
        function: VERB.to_owned(),
        argument: argument.to_owned(),
        reason: reason.into(),
    }
}

/// Runs the verb. The table can be searched, compacted and compared, and never refreshed: nothing
/// says what its vectors were made of.
pub(crate) async fn import_embeddings(
    run: &Run,
    import: ImportEmbeddings,
) -> Result<GenerateReport> {
    let span = tracing::info_span!("import_embeddings", source = %import.source);
    let work = async {
        run.host.check_writes(VERB)?;
        let name = Name::parse(&import.name)?;
        let source = Source::find(&run.host, &import.source).await?;
        check_columns(&source, &import)?;
        check_free(run, &name).await?;
        let width = width(run, &source, &import).await?;
        let model = import.model.clone().unwrap_or_else(|| NO_MODEL.to_owned());
        let schema = embedding_schema(width, &[])?;
        let mut stage = run.begin().await?;
        let rows = sorted(run, &source, &import, width).await?;
        let target = Target {
            schema: &schema,
            source_id: source::shown(&source.name),
            model: &model,
        };
        let fragment = target.write(run, rows, &mut stage).await?;
        let delta = StagedDelta {
            fragment,
            ..StagedDelta::default()
        };
        let new = NewTable {
            name: name.clone(),
            made: Made::Imported,
            schema: schema.clone(),
            requester: Requester::default(),
        };
        let published = create(run.catalog(), stage, new, delta).await?;
        run.learn(&name).await;
        Ok(finished(GenerateReport {
            table: name.to_string(),
            version: published.version,
            rows: published.live_rows,
            dropped_rows: 0,
            dimensions: width as u64,
            model,
            definition_hash: String::new(),
            identity: published.identity.to_string(),
        }))
    };
    work.instrument(span).await
}

fn check_columns(source: &Source, import: &ImportEmbeddings) -> Result<()> {
    let find = |argument, name: &str| {
        let known = source.columns();
        let missing = format!("the source has no column {name:?}; it has {known}");
        source.field(name).ok_or_else(|| invalid(argument, missing))
    };
    let key = find("row_id", &import.row_id)?.data_type();
    if !crate::refresh::scan::can_be_key(key) {
        let reason = format!("a column of type {key} cannot be a key");
        return Err(invalid("row_id", reason));
    }
    let vector = find("vector", &import.vector)?.data_type();
    match vector {
        DataType::List(item) | DataType::LargeList(item) | DataType::FixedSizeList(item, _)
            if item.data_type().is_numeric() =>
        {
            Ok(())
        }
        other => Err(invalid(
            "vector",
            format!("a column of type {other} holds no vectors"),
        )),
    }
}

/// The source's keys as `k` and vectors as `v`.
async fn rows(run: &Run, source: &Source, import: &ImportEmbeddings) -> Result<DataFrame> {
    let frame = source.table(&run.host.context()).await?;
    let column = |name: &str| Expr::Column(Column::from_name(name));
    let columns = vec![
        column(&import.row_id).alias("k"),
        column(&import.vector).alias("v"),
    ];
    frame.select(columns).map_err(from_datafusion)
}

/// Counts NULLs before anything is staged, and finds the one length that all vectors have.
async fn width(run: &Run, source: &Source, import: &ImportEmbeddings) -> Result<usize> {
    let rows = rows(run, source, import).await?.execute_stream().await;
    let mut rows = rows.map_err(from_datafusion)?;
    let (mut null_keys, mut null_vectors, mut width) = (0u64, 0u64, None::<usize>);
    while let Some(batch) = rows.try_next().await.map_err(from_datafusion)? {
        null_keys += batch.column(0).null_count() as u64;
        null_vectors += batch.column(1).null_count() as u64;
        for length in lengths(batch.column(1))? {
            match width {
                None => width = Some(length),
                Some(width) if width == length => {}
                Some(width) => {
                    let reason = format!("vectors of {width} and of {length} components");
                    return Err(invalid("vector", reason));
                }
            }
        }
    }
    if null_keys > 0 {
        return Err(Error::InvalidKey {
            column: import.row_id.clone(),
            null_count: null_keys,
        });
    }
    if null_vectors > 0 {
        return Err(invalid(
            "vector",
            format!("{null_vectors} rows have no vector"),
        ));
    }
    width.ok_or_else(|| {
        invalid(
            "source",
            "it has no row; the width of its vectors is not known",
        )
    })
}

/// Lengths of the vectors of a batch that are not NULL.
fn lengths(vectors: &ArrayRef) -> Result<Vec<usize>> {
    let valid = (0..vectors.len()).filter(|row| vectors.is_valid(*row));
    Ok(match vectors.data_type() {
        DataType::FixedSizeList(_, width) => {
            let width = usize::try_from(*width).unwrap_or(0);
            valid.map(|_| width).collect()
        }
        DataType::List(_) => {
            let lists = vectors.as_list::<i32>();
            valid.map(|row| lists.value(row).len()).collect()
        }
        DataType::LargeList(_) => {
            let lists = vectors.as_list::<i64>();
            valid.map(|row| lists.value(row).len()).collect()
        }
        other => return Err(invalid("vector", format!("a column of type {other}"))),
    })
}

/// Keys as text and vectors of `width`, by key; sorted on the session's memory and disk.
///
/// # Errors
/// `NonUniqueKey` with exact counts.
async fn sorted(
    run: &Run,
    source: &Source,
    import: &ImportEmbeddings,
    width: usize,
) -> Result<SendableRecordBatchStream> {
    let frame = rows(run, source, import).await?;
    let context = run
        .host
        .private(Joins::SortMerge, width * size_of::<f32>() + 64);
    let work = async {
        context
            .register_table("vectors", frame.into_view())
            .map_err(from_datafusion)?;
        refuse_repeats(&context, REPEATS, &import.name, KeyScan::Source).await?;
        let rows = async { context.sql(SORTED).await?.execute_stream().await };
        rows.await.map_err(from_datafusion)
    };
    work.await
}

/// Where the rows go.
struct Target<'a> {
    schema: &'a SchemaVersion,
    source_id: String,
    model: &'a str,
}

impl Target<'_> {
    async fn write(
        &self,
        run: &Run,
        mut rows: SendableRecordBatchStream,
        stage: &mut Stager,
    ) -> Result<Option<Fragment>> {
        let (store, env) = (run.catalog().store(), run.host.env(run.catalog().env()));
        let key = stage.reserve("parquet")?;
        let mut writer =
            FragmentWriter::new(Arc::clone(store), &env, Layout::Embedding, self.schema, key)?;
        let mut last: Option<String> = None;
        while let Some(batch) = rows.try_next().await.map_err(from_datafusion)? {
            if let Err(error) = self.take(&batch, &mut writer, &mut last).await {
                writer.abort().await;
                return Err(error);
            }
            env.progress.report("import", writer.rows(), 0);
        }
        writer.finish(stage).await
    }

    async fn take(
        &self,
        batch: &RecordBatch,
        writer: &mut FragmentWriter,
        last: &mut Option<String>,
    ) -> Result<()> {
        let keys = batch.column(0).as_string::<i32>();
        for row in 0..keys.len() {
            if last.as_deref() == Some(keys.value(row)) {
                return Err(invalid(
                    "source",
                    "it changed while it was read; run the verb again",
                ));
            }
            *last = Some(keys.value(row).to_owned());
        }
        writer.write(&self.rows(keys, batch.column(1))?).await
    }

    /// Rows of the table. The vectors must be finite numbers that are not all zero.
    fn rows(&self, keys: &StringArray, vectors: &ArrayRef) -> Result<RecordBatch> {
        let schema = arrow_schema(self.schema)?;
        let vectors = cast(vectors, schema.field(3).data_type())
            .map_err(|e| invalid("vector", e.to_string()))?;
        let lists: &FixedSizeListArray = vectors.as_fixed_size_list();
        for row in 0..lists.len() {
            let vector = lists.value(row);
            let vector: &Float32Array = vector.as_primitive::<Float32Type>();
            let finite = vector.null_count() == 0 && vector.values().iter().all(|x| x.is_finite());
            if !finite || vector.values().iter().all(|x| *x == 0.0) {
                let key = keys.value(row);
                let reason =
                    format!("the vector of {key:?} is zero or has a part that is no number");
                return Err(invalid("vector", reason));
            }
        }
        let constant = |text: &str| -> ArrayRef {
            Arc::new(StringArray::from_iter_values(std::iter::repeat_n(
                text,
                keys.len(),
            )))
        };
        let hashes = new_null_array(schema.field(4).data_type(), keys.len());
        let columns: Vec<ArrayRef> = vec![
            Arc::new(keys.clone()),
            constant(&self.source_id),
            constant(self.model),
            vectors,
            hashes,
        ];
        Ok(RecordBatch::try_new(schema, columns)?)
    }
}

/// The SQL function.
pub(crate) fn function(engine: &Arc<Engine>) -> Arc<dyn TableFunction> {
    let args = vec![
        ArgSpec::required("name", ArgType::Name),
        ArgSpec::required("source", ArgType::Name),
        ArgSpec::required("row_id", ArgType::Name),
        ArgSpec::required("vector", ArgType::Name),
        ArgSpec::optional("model", ArgType::Text),
    ];
    ReportFunction::of::<GenerateReport>(engine, FunctionSpec::verb(VERB, args), |call| {
        Box::pin(async move {
            let text = |name| call.args.text(name).map(str::to_owned);
            let import = ImportEmbeddings {
                name: text("name")?,
                source: text("source")?,
                row_id: text("row_id")?,
                vector: text("vector")?,
                model: call.args.opt_text("model").map(str::to_owned),
            };
            answer(&[import_embeddings(&call.run, import).await?])
        })
    })
}
