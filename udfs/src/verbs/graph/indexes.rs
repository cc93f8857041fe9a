//! `graph_indexes`: which properties have an index, and how many rows it covers.

use std::collections::BTreeMap;
use std::sync::Arc;

use stratagraph::Result;
use stratagraph::graph::schema::{GraphType, Member};
use stratagraph::graph::value::{Scalar, ValueType};
use stratagraph::table::manifest::Entry;
use stratagraph::table::read::TableReader;
use stratagraph_providers::{ArgSpec, ArgType, FunctionSpec, TableFunction};

use super::query::graph_and_branch;
use crate::engine::{Engine, Run};
use crate::function::{ReportFunction, answer};
use crate::report::GraphIndexRow;

const FUNCTION: &str = "graph_indexes";

/// A row for each property that is declared `@index` or that some fragment has an index for.
///
/// Rows that an index does not cover are searched too, one by one: they are new since the last
/// `graph_optimize` or `build_index`.
pub(crate) async fn graph_indexes(
    run: &Run,
    graph: &str,
    branch: Option<&str>,
) -> Result<Vec<GraphIndexRow>> {
    let (name, branch) = graph_and_branch(FUNCTION, graph, branch)?;
    let state = run.graph(&name, &branch, None).await?;
    let (store, env) = (run.catalog().store(), run.host.env(run.catalog().env()));
    let mut rows = Vec::new();
    for of in &state.schema.types {
        let table = state.table(store, of.id).await?.table;
        let total = table.live_rows;
        let reader = TableReader::new(Arc::clone(store), &env, table);
        let entries = reader.entries().await?;
        rows.extend(indexed(of, &entries).into_iter().map(|(property, index)| {
            GraphIndexRow {
                r#type: of.name.clone(),
                // What is no property is the edges' source, which lists of edges are by.
                property: of
                    .property_by_id(property)
                    .map_or_else(|| "src".to_owned(), |p| p.name.clone()),
                kind: index.kind.to_owned(),
                covered_rows: index.covered.unwrap_or(total),
                total_rows: total,
            }
        }));
    }
    Ok(rows)
}

struct Indexed {
    kind: &'static str,
    /// Live rows of the fragments that have the index; `None` where every row is served alike.
    covered: Option<u64>,
}

/// Properties with an index, declared or built.
fn indexed(of: &GraphType, entries: &[Entry]) -> BTreeMap<u64, Indexed> {
    let mut all = BTreeMap::new();
    for member in of.indexes.iter().flat_map(|index| &index.members) {
        if let Member::Property(property) = member {
            let value_type = of.property_by_id(*property).map(|p| &p.value_type);
            let (kind, covered) = match value_type {
                Some(ValueType::Scalar(Scalar::String)) => ("text", Some(0)),
                // Few vectors are compared one by one, which no index would make faster.
                Some(ValueType::Vector(_)) => ("exact", None),
                // Pages of fragments have bounds of such values.
                _ => ("bounds", None),
            };
            all.insert(*property, Indexed { kind, covered });
        }
    }
    for fragment in entries.iter().filter_map(|entry| entry.fragment.as_ref()) {
        for segment in &fragment.segments {
            let known = all.entry(segment.column).or_insert(Indexed {
                kind: "",
                covered: None,
            });
            known.kind = segment.kind.as_str();
            let live = fragment.rows.saturating_sub(fragment.dead.rows);
            known.covered = Some(known.covered.unwrap_or(0) + live);
        }
    }
    all
}

/// The SQL function.
pub(crate) fn function(engine: &Arc<Engine>) -> Arc<dyn TableFunction> {
    let args = vec![
        ArgSpec::required("graph", ArgType::Name),
        ArgSpec::optional("branch", ArgType::Name),
    ];
    let spec = FunctionSpec::read(FUNCTION, args);
    ReportFunction::of::<GraphIndexRow>(engine, spec, |call| {
        Box::pin(async move {
            let (graph, branch) = (call.args.text("graph")?, call.args.opt_text("branch"));
            answer(&graph_indexes(&call.run, graph, branch).await?)
        })
    })
}
