//! `recompute`: a table made again from its definition, under a new name and with a new identity.

use std::collections::VecDeque;
use std::sync::Arc;

use stratagraph::catalog::resolve::{self, TableSnapshot};
use stratagraph::catalog::slot::DatasetKind;
use stratagraph::ident::Name;
use stratagraph::publish::definition::{Definition, NeighborDefinition};
use stratagraph::{Error, NotRefreshableReason, Result};
use stratagraph_providers::{ArgSpec, ArgType, ArgValue, FunctionSpec, TableFunction};
use tracing::Instrument;

use super::generate::regenerate;
use super::neighbors::{NeighborGraph, neighbor_graph};
use super::staleness::neighbor_definition;
use crate::engine::{Engine, Run};
use crate::function::{ReportFunction, answer};
use crate::report::RecomputeRow;

const VERB: &str = "recompute";

/// What happens to the tables that were made from the one that is made again.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Cascade {
    /// They are listed.
    #[default]
    ReportOnly,
    /// They are made again too, from the new table.
    Downstream,
}

/// What a table is made again from.
enum Recipe {
    Source(Box<Definition>),
    Neighbors(NeighborDefinition),
}

/// A table that was made from another one.
struct Dependent {
    name: Name,
    dataset: String,
    definition: NeighborDefinition,
}

/// Runs the verb. The old table stays as it is.
pub(crate) async fn recompute(
    run: &Run,
    name: &Name,
    cascade: Cascade,
    new: Option<Name>,
) -> Result<Vec<RecomputeRow>> {
    let span = tracing::info_span!("recompute", table = %name);
    let work = async {
        run.host.check_writes(VERB)?;
        let run = &run.fresh().await?;
        let (dataset, recipe) = recipe(run, name).await?;
        let dependents = downstream(run, &dataset).await?;
        let new = match new {
            Some(new) => new,
            None => free_name(run, name).await?,
        };
        let made = make(run, recipe, None, new).await?;
        let mut rows = vec![done(name, &made)];
        // Tables that are made again, with the names of what they became.
        let mut replaced = vec![(dataset, made)];
        for dependent in dependents {
            if cascade == Cascade::ReportOnly {
                rows.push(RecomputeRow {
                    original: dependent.name.to_string(),
                    recomputed: None,
                    outcome: "stale".to_owned(),
                });
                continue;
            }
            let input = &dependent.definition.input.dataset;
            let input = replaced.iter().find(|(old, _)| old == input);
            let input = input.map(|(_, new)| new.clone());
            let new = free_name(run, &dependent.name).await?;
            let recipe = Recipe::Neighbors(dependent.definition);
            let made = make(run, recipe, input, new).await?;
            rows.push(done(&dependent.name, &made));
            replaced.push((dependent.dataset, made));
        }
        Ok(rows)
    };
    work.instrument(span).await
}

fn done(original: &Name, made: &Name) -> RecomputeRow {
    RecomputeRow {
        original: original.to_string(),
        recomputed: Some(made.to_string()),
        outcome: "recomputed".to_owned(),
    }
}

/// What the current version is made of; if its manifest is lost, what the catalog says of the table.
async fn recipe(run: &Run, name: &Name) -> Result<(String, Recipe)> {
    let head = run.snapshot().await?;
    let store = run.catalog().store();
    let entry = resolve::embedding_dataset(store, &head, name).await?;
    let none = || Error::NotRefreshable {
        table: name.to_string(),
        reason: NotRefreshableReason::MissingContentHash,
    };
    let lost = match run.table(name, None).await {
        Ok(table) => {
            if let Some(definition) = neighbor_definition(run, &table).await? {
                return Ok((entry.id, Recipe::Neighbors(definition)));
            }
            let definition = run.engine.definition(&table).await?.ok_or_else(none)?;
            return Ok((entry.id, Recipe::Source(Box::new(definition))));
        }
        Err(lost @ (Error::VersionUnavailable { .. } | Error::Corrupt { .. })) => lost,
        Err(other) => return Err(other),
    };
    let object = entry.definition.as_ref().ok_or_else(none)?;
    tracing::warn!(table = %name, %lost, "the table is made again from its recorded definition");
    let recipe = match Definition::load(store, object).await {
        Ok(definition) => Recipe::Source(Box::new(definition)),
        Err(_) => Recipe::Neighbors(NeighborDefinition::load(store, object).await?),
    };
    Ok((entry.id, recipe))
}

/// `{table}__r1`, `{table}__r2`, ...: the first name that is free.
async fn free_name(run: &Run, table: &Name) -> Result<Name> {
    let head = run.catalog().look().await?;
    for n in 1u64.. {
        let name = table.with_suffix(&format!("__r{n}"))?;
        if resolve::dataset(run.catalog().store(), &head, &name)
            .await?
            .is_none()
        {
            return Ok(name);
        }
    }
    Err(Error::AlreadyExists {
        what: "table",
        name: table.to_string(),
    })
}

async fn make(run: &Run, recipe: Recipe, input: Option<Name>, name: Name) -> Result<Name> {
    match recipe {
        Recipe::Source(definition) => {
            regenerate(run, name.clone(), &definition).await?;
        }
        Recipe::Neighbors(definition) => {
            let input = match input {
                Some(input) => input.to_string(),
                None => current_name(run, &definition).await?,
            };
            let least = definition
                .min_similarity
                .and_then(|least| least.parse().ok());
            let graph = NeighborGraph {
                table: input,
                k: definition.k,
                min_similarity: least,
                name: Some(name.to_string()),
            };
            neighbor_graph(run, graph).await?;
        }
    }
    Ok(name)
}

/// The name that an input has now.
async fn current_name(run: &Run, definition: &NeighborDefinition) -> Result<String> {
    let head = run.snapshot().await?;
    let datasets = resolve::datasets(run.catalog().store(), &head).await?;
    let input = &definition.input;
    let found = datasets
        .into_iter()
        .find(|(_, entry)| entry.id == input.dataset);
    found.map(|(name, _)| name).ok_or_else(|| Error::NotFound {
        what: "embedding table",
        name: input.table.clone(),
    })
}

/// Everything that was made from a dataset, inputs before what was made from them.
///
/// An anchor names a version that existed when the anchor was written, so there are no cycles; each
/// table is visited once all the same.
async fn downstream(run: &Run, dataset: &str) -> Result<Vec<Dependent>> {
    let mut all = dependents(run).await?;
    let mut found: Vec<Dependent> = Vec::new();
    let mut inputs = VecDeque::from([dataset.to_owned()]);
    while let Some(input) = inputs.pop_front() {
        let of_it = |d: &Dependent| d.definition.input.dataset == input;
        let (next, rest): (Vec<_>, Vec<_>) = all.into_iter().partition(of_it);
        all = rest;
        inputs.extend(next.iter().map(|d| d.dataset.clone()));
        found.extend(next);
    }
    Ok(found)
}

async fn dependents(run: &Run) -> Result<Vec<Dependent>> {
    let head = run.snapshot().await?;
    let store = run.catalog().store();
    let mut found = Vec::new();
    for (name, entry) in resolve::datasets(store, &head).await? {
        if entry.kind != DatasetKind::Embedding {
            continue;
        }
        let name = Name::parse(&name)?;
        let table: Result<TableSnapshot> = resolve::table(store, &head, &name, None).await;
        match table {
            Ok(table) => {
                // One that cannot be read does not stand in the way of the others.
                match neighbor_definition(run, &table).await {
                    Ok(Some(definition)) => found.push(Dependent {
                        name,
                        dataset: entry.id,
                        definition,
                    }),
                    Ok(None) => {}
                    Err(error) => tracing::warn!(table = %name, %error, "its input is not known"),
                }
            }
            Err(Error::VersionUnavailable { .. } | Error::Corrupt { .. }) => {}
            Err(other) => return Err(other),
        }
    }
    Ok(found)
}

/// The SQL function.
pub(crate) fn function(engine: &Arc<Engine>) -> Arc<dyn TableFunction> {
    let report_only = ArgValue::Text("report_only".to_owned());
    let args = vec![
        ArgSpec::required("table", ArgType::Name),
        ArgSpec::or("cascade", ArgType::Text, report_only),
        ArgSpec::optional("name", ArgType::Name),
    ];
    ReportFunction::of::<RecomputeRow>(engine, FunctionSpec::verb(VERB, args), |call| {
        Box::pin(async move {
            let cascade = match call.args.opt_text("cascade") {
                None | Some("report_only") => Cascade::ReportOnly,
                Some("downstream") => Cascade::Downstream,
                Some(_) => {
                    let reason = "expected report_only or downstream";
                    return Err(call.args.invalid("cascade", reason));
                }
            };
            let new = call.args.opt_text("name").map(Name::parse).transpose()?;
            answer(&recompute(&call.run, &call.name("table")?, cascade, new).await?)
        })
    })
}
