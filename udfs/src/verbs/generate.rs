//! `generate_embeddings`: a new table from a source.

use std::sync::Arc;

use stratagraph::catalog::resolve;
use stratagraph::embed::{Embedder, Handshake};
use stratagraph::ident::Name;
use stratagraph::publish::definition::Definition;
use stratagraph::publish::{self, NewTable, Published, Requester, StagedDelta, create};
use stratagraph::store::Stager;
use stratagraph::table::schema::embedding_schema;
use stratagraph::{Error, Result};
use stratagraph_providers::{ArgSpec, ArgType, ArgValue, FunctionSpec, TableFunction};
use tracing::Instrument;

use super::finished;
use crate::engine::{Engine, Run, model_ref};
use crate::function::{ReportFunction, answer};
use crate::refresh::earlier::Earlier;
use crate::refresh::included::Included;
use crate::refresh::infer::{Pipeline, Reused};
use crate::refresh::scan::{Scanned, can_be_key, scan_with_files};
use crate::refresh::{diff, fold};
use crate::report::GenerateReport;
use crate::source::{self, Source};

const VERB: &str = "generate_embeddings";

/// What `generate_embeddings` makes a table of.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct GenerateEmbeddings {
    /// A table of the session: `docs`, `catalog.schema.docs`, `"Odd Name"`.
    pub source: String,
    /// A model spec or a registered name; the default model without one.
    pub model: Option<String>,
    /// Text columns, in the order in which their texts are joined.
    pub columns: Vec<String>,
    /// The column that tells rows apart.
    pub key_column: String,
    /// Name of the table; `{source}__embedding__{model}` without one.
    pub name: Option<String>,
    /// Width of the vectors; the model's own without one.
    pub dimensions: Option<u64>,
    /// Source columns to carry along.
    pub include: Vec<String>,
    /// Metric of searches; `cosine` without one.
    pub metric: Option<String>,
    /// Who asks.
    pub requester: Requester,
}

impl GenerateEmbeddings {
    /// The columns of a source, with the default model.
    pub fn new<C: Into<String>>(
        source: impl Into<String>,
        columns: impl IntoIterator<Item = C>,
        key_column: impl Into<String>,
    ) -> Self {
        Self {
            source: source.into(),
            columns: columns.into_iter().map(Into::into).collect(),
            key_column: key_column.into(),
            ..Self::default()
        }
    }

    /// The same with a model.
    pub fn model(self, model: impl Into<String>) -> Self {
        Self {
            model: Some(model.into()),
            ..self
        }
    }

    /// The same with source columns that ride along, outside the content hash.
    pub fn include<C: Into<String>>(self, columns: impl IntoIterator<Item = C>) -> Self {
        Self {
            include: columns.into_iter().map(Into::into).collect(),
            ..self
        }
    }

    /// The same under a name.
    pub fn name(self, name: impl Into<String>) -> Self {
        Self {
            name: Some(name.into()),
            ..self
        }
    }
}

fn invalid(argument: &str, reason: impl Into<String>) -> Error {
    Error::InvalidArgument {
        function: VERB.to_owned(),
        argument: argument.to_owned(),
        reason: reason.into(),
    }
}

/// Arguments that say something this build cannot do yet are refused, never ignored.
fn check_supported(request: &GenerateEmbeddings, model: &dyn Embedder) -> Result<()> {
    let not_yet = |what: &str| Error::NotYetSupported {
        feature: format!("{VERB}({what})"),
    };
    match request.metric.as_deref() {
        None | Some("cosine" | "l2" | "dot") => {}
        Some(_) => return Err(invalid("metric", "expected cosine, l2 or dot")),
    }
    let width = model.dimensions() as u64;
    match request.dimensions {
        None => Ok(()),
        Some(wanted) if wanted == width => Ok(()),
        Some(wanted) if (1..width).contains(&wanted) => {
            Err(not_yet("dimensions below the model's"))
        }
        Some(_) => Err(invalid(
            "dimensions",
            format!("expected 1 to {width}, the model's width"),
        )),
    }
}

/// What is known before the source is read.
struct Plan {
    name: Name,
    source: Source,
    definition: Definition,
    included: Included,
    model: Arc<dyn Embedder>,
}

async fn plan(run: &Run, request: &GenerateEmbeddings) -> Result<Plan> {
    let text = match &request.model {
        Some(model) => model.clone(),
        None => run.host.settings().default_model,
    };
    let (spec, model) = run.engine.model(&text, Handshake::Fresh).await?;
    check_supported(request, model.as_ref())?;
    let source = Source::find(&run.host, &request.source).await?;
    let name = match &request.name {
        Some(name) => Name::parse(name)?,
        None => Name::from_text(&format!("{}__embedding__{spec}", source.name[2]))?,
    };
    check_columns(request, &source)?;
    let used: Vec<&str> = std::iter::once(request.key_column.as_str())
        .chain(request.columns.iter().map(String::as_str))
        .chain(request.include.iter().map(String::as_str))
        .collect();
    let included = Included::of_source(request.include.iter().filter_map(|c| source.field(c)))?;
    let mut definition = Definition::new(
        source.reference(&used),
        request.columns.clone(),
        request.key_column.clone(),
        model_ref(&spec, model.as_ref()),
        model.dimensions() as u64,
    );
    definition.include = request.include.clone();
    if let Some(metric) = &request.metric {
        definition.metric = metric.clone();
    }
    // A column that cannot be carried costs no scan.
    embedding_schema(model.dimensions(), &included.fields)?;
    Ok(Plan {
        name,
        source,
        definition,
        included,
        model,
    })
}

fn check_columns(request: &GenerateEmbeddings, source: &Source) -> Result<()> {
    if request.columns.is_empty() {
        return Err(invalid("columns", "name at least one text column"));
    }
    let unknown = |argument, column: &str| {
        let known = source.columns();
        invalid(
            argument,
            format!("the source has no column {column:?}; it has {known}"),
        )
    };
    for column in &request.columns {
        source
            .field(column)
            .ok_or_else(|| unknown("columns", column))?;
    }
    for column in &request.include {
        source
            .field(column)
            .ok_or_else(|| unknown("include", column))?;
    }
    let key = &request.key_column;
    let field = source
        .field(key)
        .ok_or_else(|| unknown("key_column", key))?;
    if !can_be_key(field.data_type()) {
        let reason = format!(
            "column {key:?} has type {}; a key is text, a number, a date or a time",
            field.data_type()
        );
        return Err(invalid("key_column", reason));
    }
    Ok(())
}

/// Runs the verb.
pub(crate) async fn generate(run: &Run, request: GenerateEmbeddings) -> Result<GenerateReport> {
    let span = tracing::info_span!("generate_embeddings", source = %request.source);
    generate_in_span(run, request).instrument(span).await
}

async fn generate_in_span(run: &Run, request: GenerateEmbeddings) -> Result<GenerateReport> {
    run.host.check_writes(VERB)?;
    let plan = plan(run, &request).await?;
    make(run, plan, request.requester).await
}

/// Makes what a definition says, with this environment's model and the source as it is now, under a
/// new name.
pub(crate) async fn regenerate(
    run: &Run,
    name: Name,
    definition: &Definition,
) -> Result<GenerateReport> {
    let recorded = &definition.model.spec;
    let (spec, model) = run.engine.model(recorded, Handshake::Fresh).await?;
    let source = Source::recorded(&run.host, name.as_str(), &definition.source).await?;
    let columns = definition.include.iter();
    let included = Included::of_source(columns.filter_map(|c| source.field(c)))?;
    let definition = Definition {
        model: model_ref(&spec, model.as_ref()),
        dimensions: model.dimensions() as u64,
        ..definition.clone()
    };
    let plan = Plan {
        name,
        source,
        definition,
        included,
        model,
    };
    make(run, plan, Requester::default()).await
}

async fn make(run: &Run, plan: Plan, requester: Requester) -> Result<GenerateReport> {
    check_free(run, &plan.name).await?;
    let scanned = scan_with_files(run, &plan.source, &plan.definition, &plan.included).await?;
    let mut stage = run.begin().await?;
    let made = embed(run, &plan, &scanned, &mut stage).await?;
    let dropped = made.dropped;
    let new = NewTable {
        name: plan.name.clone(),
        made: publish::Made::Generated(plan.definition.clone()),
        schema: embedding_schema(plan.model.dimensions(), &plan.included.fields)?,
        requester,
    };
    let published = create(run.catalog(), stage, new, made.delta).await?;
    run.learn(&plan.name).await;
    Ok(finished(report(&plan, &published, dropped)))
}

fn report(plan: &Plan, published: &Published, dropped: u64) -> GenerateReport {
    GenerateReport {
        table: plan.name.to_string(),
        version: published.version,
        rows: published.live_rows,
        dropped_rows: dropped,
        dimensions: plan.definition.dimensions,
        model: plan.definition.model.spec.clone(),
        definition_hash: plan.definition.hash().to_string(),
        identity: published.identity.to_string(),
    }
}

/// A name that is taken costs no model call.
pub(crate) async fn check_free(run: &Run, name: &Name) -> Result<()> {
    let head = run.catalog().look().await?;
    match resolve::dataset(run.catalog().store(), &head, name).await? {
        None => Ok(()),
        Some(_) => Err(Error::AlreadyExists {
            what: "table",
            name: name.to_string(),
        }),
    }
}

struct Made {
    delta: StagedDelta,
    dropped: u64,
}

async fn embed(run: &Run, plan: &Plan, scanned: &Scanned, stage: &mut Stager) -> Result<Made> {
    let store = Arc::clone(run.catalog().store());
    let pipeline = Pipeline {
        host: run.host.clone(),
        env: run.host.env(run.catalog().env()),
        store: Arc::clone(&store),
        model: Arc::clone(&plan.model),
        schema: embedding_schema(plan.model.dimensions(), &plan.included.fields)?,
        included: plan.included.len(),
        source_id: source::shown(&plan.source.name),
        model_id: plan.definition.model.spec.clone(),
    };
    let rows = diff::sorted(&run.host, &scanned.rows, &plan.included).await?;
    let none = Earlier::new(&run.host, store);
    let nothing = Reused {
        earlier: none.reader().await?,
        carried: none.reader().await?,
    };
    let inferred = pipeline
        .run(rows, scanned.rows.rows(), nothing, stage)
        .await?;
    let dropped = inferred.refusals.len() as u64;
    let rows = inferred.fragment.as_ref().map_or(0, |f| f.rows);
    let int = |n: u64| i64::try_from(n).unwrap_or(i64::MAX);
    let counts = [("added", rows), ("dropped_rows", dropped)].map(|(k, n)| (k.to_owned(), int(n)));
    let delta = StagedDelta {
        ledger: inferred.rejects(),
        fold: Some(fold::without_passing(
            &scanned.folder,
            &inferred.refusals,
            inferred.unique,
        )),
        source_files: scanned.files.filter(|_| !inferred.has_passing()),
        fragment: inferred.fragment,
        counts: counts.into(),
        ..StagedDelta::default()
    };
    Ok(Made { delta, dropped })
}

/// The SQL function.
pub(crate) fn function(engine: &Arc<Engine>) -> Arc<dyn TableFunction> {
    let spec = FunctionSpec::verb(
        VERB,
        vec![
            ArgSpec::required("source", ArgType::Name),
            ArgSpec::optional("model", ArgType::Text),
            ArgSpec::required("columns", ArgType::Names),
            ArgSpec::required("key_column", ArgType::Name),
            ArgSpec::optional("name", ArgType::Name),
            ArgSpec::optional("dimensions", ArgType::Int),
            ArgSpec::optional("include", ArgType::Names),
            ArgSpec::or("metric", ArgType::Text, ArgValue::Text("cosine".to_owned())),
        ],
    );
    ReportFunction::of::<GenerateReport>(engine, spec, |call| {
        Box::pin(async move {
            let args = &call.args;
            let text = |name: &str| args.opt_text(name).map(str::to_owned);
            let request = GenerateEmbeddings {
                source: args.text("source")?.to_owned(),
                model: text("model"),
                columns: args.names("columns").to_vec(),
                key_column: args.text("key_column")?.to_owned(),
                name: text("name"),
                dimensions: args.opt_unsigned("dimensions")?,
                include: args.names("include").to_vec(),
                metric: text("metric"),
                requester: Requester::default(),
            };
            answer(&[generate(&call.run, request).await?])
        })
    })
}
