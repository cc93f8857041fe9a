//! `graph_create`: a new graph without rows.

use std::sync::Arc;

use datafusion::datasource::listing::ListingTableUrl;
use object_store::ObjectStoreExt;
use stratagraph::graph::schema::GraphSchema;
use stratagraph::ident::{BranchName, Name};
use stratagraph::publish::graph::create_graph;
use stratagraph::{Error, Result, limits};
use stratagraph_providers::{ArgSpec, ArgType, FunctionSpec, TableFunction, from_datafusion};
use tracing::Instrument;

use crate::authorize::GraphAction;
use crate::engine::{Engine, Run};
use crate::function::{ReportFunction, answer};
use crate::host::Host;
use crate::report::GraphCreateReport;
use crate::verbs::finished;

const VERB: &str = "graph_create";

/// Runs the verb. `schema` is `.pg` text, or a path or URL that ends in `.pg`.
pub(crate) async fn graph_create(
    run: &Run,
    name: &Name,
    schema: &str,
) -> Result<GraphCreateReport> {
    let span = tracing::info_span!("graph_create", graph = %name);
    let work = async {
        run.host.check_writes(VERB)?;
        let (requester, main) = (run.requester(), BranchName::main());
        run.authorize(&requester, GraphAction::SchemaApply, name, &main)?;
        let mut schema = compile(&run.host, VERB, schema).await?;
        name_models(&mut schema, &run.host.settings().default_model);
        let schema = Arc::new(schema);
        let stage = run.begin().await?;
        let (catalog, schema_of) = (run.catalog(), Arc::clone(&schema));
        let commit = create_graph(catalog, stage, name.clone(), schema_of, requester).await?;
        run.learn_graph(name).await;
        Ok(finished(GraphCreateReport {
            graph: name.to_string(),
            node_types: schema.nodes().count() as u64,
            edge_types: schema.edges().count() as u64,
            commit_id: commit.commit_id,
        }))
    };
    work.instrument(span).await
}

/// The schema of a text, or of the file of a path.
pub(super) async fn compile(host: &Host, verb: &str, schema: &str) -> Result<GraphSchema> {
    let text = match is_path(schema) {
        true => read_text(host, verb, schema.trim()).await?,
        false => schema.to_owned(),
    };
    let schema = GraphSchema::compile(&text)?;
    match schema.unsupported() {
        Some(error) => Err(error),
        None => Ok(schema),
    }
}

/// Names the model of every property that has none: the session's default may be another one when texts are
/// searched for, and two models have no distances from each other.
fn name_models(schema: &mut GraphSchema, default: &str) {
    let properties = schema.types.iter_mut().flat_map(|of| &mut of.properties);
    for embed in properties.filter_map(|property| property.embed.as_mut()) {
        embed.model.get_or_insert_with(|| default.to_owned());
    }
}

/// A schema is longer than one line, or has a brace.
fn is_path(schema: &str) -> bool {
    let text = schema.trim();
    text.ends_with(".pg") && !text.contains(['{', '\n'])
}

/// The text of a small file, through the session's object stores.
async fn read_text(host: &Host, verb: &str, path: &str) -> Result<String> {
    let invalid = |reason: String| Error::InvalidArgument {
        function: verb.to_owned(),
        argument: "schema".to_owned(),
        reason,
    };
    let url = ListingTableUrl::parse(path).map_err(from_datafusion)?;
    let store = host.runtime().object_store(&url).map_err(from_datafusion)?;
    let failed = |error: object_store::Error| match error {
        object_store::Error::NotFound { .. } => Error::NotFound {
            what: "file",
            name: path.to_owned(),
        },
        other => Error::storage("get", path, other),
    };
    let found = store.get(url.prefix()).await.map_err(failed)?;
    let limit = limits::LANGUAGE_BYTES as u64;
    if found.meta.size > limit {
        return Err(Error::ResourceLimitExceeded {
            what: "bytes of a schema",
            value: found.meta.size,
            limit,
        });
    }
    let bytes = found.bytes().await.map_err(failed)?;
    String::from_utf8(bytes.to_vec()).map_err(|_| invalid(format!("{path:?} is not UTF-8")))
}

/// The SQL function.
pub(crate) fn function(engine: &Arc<Engine>) -> Arc<dyn TableFunction> {
    let args = vec![
        ArgSpec::required("graph", ArgType::Name),
        ArgSpec::required("schema", ArgType::Text),
    ];
    let spec = FunctionSpec::verb(VERB, args);
    ReportFunction::of::<GraphCreateReport>(engine, spec, |call| {
        Box::pin(async move {
            let (name, schema) = (call.name("graph")?, call.args.text("schema")?);
            answer(&[graph_create(&call.run, &name, schema).await?])
        })
    })
}
