//! `staleness`: whether a table is still what its inputs say. No model runs.

use std::sync::Arc;

use stratagraph::catalog::manifest::BranchManifest;
use stratagraph::catalog::resolve::{self, TableSnapshot};
use stratagraph::catalog::slot::DatasetEntry;
use stratagraph::embed::Handshake;
use stratagraph::ident::Name;
use stratagraph::publish::Deletes;
use stratagraph::publish::definition::{Anchor, Definition, NeighborDefinition};
use stratagraph::table::manifest::Layout;
use stratagraph::{Error, Result};
use stratagraph_providers::{ArgSpec, ArgType, FunctionSpec, TableFunction};
use tracing::Instrument;

use crate::engine::{Engine, Run};
use crate::function::{ReportFunction, answer};
use crate::refresh::delta::RefreshSource;
use crate::refresh::included::Included;
use crate::report::StalenessRow;
use crate::source::{self, Source};

fn row(table: &Name, state: &str, reason: Option<&str>) -> StalenessRow {
    StalenessRow {
        table: table.to_string(),
        state: state.to_owned(),
        reason: reason.map(str::to_owned),
        source: None,
        recorded: None,
        current: None,
    }
}

/// The state of the current version.
pub(crate) async fn staleness(run: &Run, name: &Name) -> Result<StalenessRow> {
    let span = tracing::info_span!("staleness", table = %name);
    let work = async {
        let table = run.table(name, None).await?;
        if table.table.layout == Layout::Neighbors {
            return of_neighbors(run, &table).await;
        }
        match run.engine.definition(&table).await? {
            Some(definition) => of_source(run, &table, &definition).await,
            None => Ok(row(name, "undecidable", Some("unpinned"))),
        }
    };
    work.instrument(span).await
}

/// A table that was made from a source: the model first, then the files, then the rows.
async fn of_source(
    run: &Run,
    table: &TableSnapshot,
    definition: &Definition,
) -> Result<StalenessRow> {
    let name = &table.name;
    let model = run.engine.model_of(name, definition, Handshake::Fresh);
    let model = match model.await {
        Ok(model) => model,
        Err(Error::DefinitionDrift {
            recorded, current, ..
        }) => {
            return Ok(StalenessRow {
                source: Some(definition.model.spec.clone()),
                recorded: Some(recorded),
                current: Some(current),
                ..row(name, "stale", Some("definition_changed"))
            });
        }
        Err(other) => return Err(other),
    };
    let shown = Some(source::shown(&definition.source.name));
    let source = match Source::recorded(&run.host, name.as_str(), &definition.source).await {
        Ok(source) => source,
        Err(other) => return vanished(name, shown, other),
    };
    let fresh = |state: StalenessRow| StalenessRow {
        source: shown.clone(),
        ..state
    };
    let recorded = table.table.source_files;
    if recorded.is_some() && source.files(run).await? == recorded {
        let files = recorded.map(|files| files.to_string());
        return Ok(StalenessRow {
            recorded: files.clone(),
            current: files,
            ..fresh(row(name, "fresh", None))
        });
    }
    let missing = || Error::corrupt("table manifest", name.as_str(), "a schema", "none");
    let schema = table.table.current_schema().ok_or_else(missing)?;
    let included = Included::of_table(schema)?;
    let refresh = RefreshSource::new(run, definition.clone(), included, model, deletes(table));
    let (changed, current) = match refresh.differs(table).await {
        Ok(differs) => differs,
        Err(other) => return vanished(name, shown, other),
    };
    let state = match changed {
        true => row(name, "stale", Some("input_advanced")),
        false => row(name, "fresh", None),
    };
    Ok(StalenessRow {
        recorded: table.table.fold.map(|fold| fold.sum.to_string()),
        current: Some(current.sum.to_string()),
        ..fresh(state)
    })
}

/// Nothing is known of a table whose source is not there: another session may have it. A view is there
/// when what it reads is not.
fn vanished(name: &Name, source: Option<String>, error: Error) -> Result<StalenessRow> {
    match error {
        Error::SourceNotFound { .. } | Error::SourceMismatch { .. } | Error::NotFound { .. } => {
            Ok(StalenessRow {
                source,
                ..row(name, "undecidable", Some("input_vanished"))
            })
        }
        other => Err(other),
    }
}

/// The delete policy that made the rows: the refresh's own; a compacted or restored version that holds
/// more rows than its source had was made by one that retains.
fn deletes(table: &TableSnapshot) -> Deletes {
    let held = table.table.live_rows + table.table.rejects;
    if table.table.fold.is_some_and(|fold| held > fold.rows) {
        return Deletes::Retain;
    }
    let descriptor = table.manifest.descriptor.as_deref().unwrap_or("{}");
    let value: serde_json::Value = serde_json::from_str(descriptor).unwrap_or_default();
    match value.get("deletes").and_then(|deletes| deletes.as_str()) {
        Some("retain") => Deletes::Retain,
        _ => Deletes::Tombstone,
    }
}

/// A table that was made from a version of another one.
async fn of_neighbors(run: &Run, table: &TableSnapshot) -> Result<StalenessRow> {
    let Some(definition) = neighbor_definition(run, table).await? else {
        return Ok(row(&table.name, "undecidable", Some("unpinned")));
    };
    let Anchor {
        dataset,
        table: input,
        identity,
        ..
    } = definition.input;
    let about = |state| StalenessRow {
        source: Some(input.clone()),
        recorded: Some(identity.to_string()),
        ..state
    };
    let head = run.snapshot().await?;
    let store = run.catalog().store();
    let datasets = resolve::datasets(store, &head).await?;
    let found = datasets.into_iter().find(|(_, entry)| entry.id == dataset);
    let Some((_, entry)) = found else {
        return Ok(about(row(&table.name, "stale", Some("input_vanished"))));
    };
    let current = identity_of(run, &entry).await?;
    let state = if current == Some(identity) {
        row(&table.name, "fresh", None)
    } else {
        row(&table.name, "stale", Some("input_advanced"))
    };
    Ok(StalenessRow {
        current: current.map(|identity| identity.to_string()),
        ..about(state)
    })
}

async fn identity_of(
    run: &Run,
    entry: &DatasetEntry,
) -> Result<Option<stratagraph::digest::Digest>> {
    let Some(branch) = entry.main() else {
        return Ok(None);
    };
    let manifest = BranchManifest::load(run.catalog().store(), &branch.manifest).await?;
    Ok(manifest.identity)
}

/// What a neighbour graph was made from; `None` for any other table.
pub(crate) async fn neighbor_definition(
    run: &Run,
    table: &TableSnapshot,
) -> Result<Option<NeighborDefinition>> {
    match (&table.manifest.definition, table.table.layout) {
        (Some(object), Layout::Neighbors) => {
            let store = run.catalog().store();
            NeighborDefinition::load(store, object).await.map(Some)
        }
        _ => Ok(None),
    }
}

/// The SQL function.
pub(crate) fn function(engine: &Arc<Engine>) -> Arc<dyn TableFunction> {
    let args = vec![ArgSpec::required("table", ArgType::Name)];
    ReportFunction::of::<StalenessRow>(engine, FunctionSpec::read("staleness", args), |call| {
        Box::pin(async move { answer(&[staleness(&call.run, &call.name("table")?).await?]) })
    })
}
