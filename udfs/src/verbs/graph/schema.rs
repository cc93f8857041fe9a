//! `graph_schema`: types, properties and constraints of a graph.

use std::sync::Arc;

use stratagraph::Result;
use stratagraph::graph::schema::{Bound, GraphSchema, GraphType, Index, Member, Property};
use stratagraph_providers::{ArgSpec, ArgType, FunctionSpec, TableFunction, split_branch};

use crate::engine::{Engine, Run};
use crate::function::{ReportFunction, answer};
use crate::report::GraphSchemaRow;

/// The schema of `graph` or `graph@branch` in the statement's snapshot: for each type its id, then
/// the ends of an edge, then its properties.
pub(crate) async fn graph_schema(run: &Run, graph: &str) -> Result<Vec<GraphSchemaRow>> {
    let (name, branch) = split_branch(graph)?;
    let state = run.graph(&name, &branch, None).await?;
    let types = state.schema.types.iter();
    Ok(types.flat_map(|of| rows(&state.schema, of)).collect())
}

fn rows(schema: &GraphSchema, of: &GraphType) -> Vec<GraphSchemaRow> {
    let row = |property: &str, data_type: String, nullable: bool, constraint: Vec<String>| {
        GraphSchemaRow {
            r#type: of.name.clone(),
            kind: if of.is_edge() { "edge" } else { "node" }.to_owned(),
            property: property.to_owned(),
            data_type,
            nullable,
            constraint: (!constraint.is_empty()).then(|| constraint.join("; ")),
        }
    };
    let text = || "String".to_owned();
    let name_of = |id: u64| of.property_by_id(id).map_or("", |p| p.name.as_str());
    let key: Vec<&str> = of.key.iter().map(|id| name_of(*id)).collect();
    let id = match key.is_empty() {
        true => "generated".to_owned(),
        false => format!("key({})", key.join(", ")),
    };
    let mut out = vec![row("id", text(), false, vec![id])];
    if let Some(ends) = &of.edge {
        let refers = |id: u64| schema.by_id(id).map_or("", |t| t.name.as_str());
        let mut src = vec![format!("references {}", refers(ends.from))];
        if ends.min > 0 || ends.max.is_some() {
            let max = ends.max.map(|max| max.to_string()).unwrap_or_default();
            src.push(format!("card({}..{max})", ends.min));
        }
        src.extend(shared(of, Member::Src));
        let mut dst = vec![format!("references {}", refers(ends.to))];
        dst.extend(shared(of, Member::Dst));
        out.push(row("src", text(), false, src));
        out.push(row("dst", text(), false, dst));
    }
    for property in &of.properties {
        let constraint = constraints(of, property);
        let data_type = property.value_type.to_string();
        out.push(row(
            &property.name,
            data_type,
            property.nullable,
            constraint,
        ));
    }
    out
}

fn constraints(of: &GraphType, property: &Property) -> Vec<String> {
    let mut out = Vec::new();
    if of.key.contains(&property.id) {
        out.push("key".to_owned());
    }
    out.extend(shared(of, Member::Property(property.id)));
    for range in of.ranges.iter().filter(|r| r.property == property.id) {
        let bound = |bound: &Option<Bound>| match bound {
            Some(Bound::Int(text) | Bound::Float(text)) => text.clone(),
            None => String::new(),
        };
        out.push(format!(
            "range({}..{})",
            bound(&range.min),
            bound(&range.max)
        ));
    }
    for check in of.checks.iter().filter(|c| c.property == property.id) {
        out.push(format!("check({:?})", check.pattern));
    }
    if let Some(embed) = &property.embed {
        let source = of
            .property_by_id(embed.source)
            .map_or("", |p| p.name.as_str());
        let model = embed.model.as_ref().map(|m| format!(", model={m:?}"));
        out.push(format!("embed({source:?}{})", model.unwrap_or_default()));
    }
    out
}

/// Unique tuples and indexes that a member is part of.
fn shared(of: &GraphType, member: Member) -> Vec<String> {
    let name = |member: &Member| match member {
        Member::Src => "src".to_owned(),
        Member::Dst => "dst".to_owned(),
        Member::Property(id) => of
            .property_by_id(*id)
            .map_or(String::new(), |p| p.name.clone()),
    };
    let call = |what: &str, members: &[Member], more: Vec<String>| {
        let all = members.iter().map(name).chain(more);
        format!("{what}({})", all.collect::<Vec<_>>().join(", "))
    };
    let options = |index: &Index| {
        let options = index.options.iter();
        options
            .map(|(key, value)| format!("{key}={value:?}"))
            .collect()
    };
    let unique = of.unique.iter().filter(|members| members.contains(&member));
    let unique = unique.map(|members| call("unique", members, Vec::new()));
    let indexes = of.indexes.iter().filter(|i| i.members.contains(&member));
    unique
        .chain(indexes.map(|i| call("index", &i.members, options(i))))
        .collect()
}

/// The SQL function.
pub(crate) fn function(engine: &Arc<Engine>) -> Arc<dyn TableFunction> {
    let args = vec![ArgSpec::required("graph", ArgType::Name)];
    let spec = FunctionSpec::read("graph_schema", args);
    ReportFunction::of::<GraphSchemaRow>(engine, spec, |call| {
        Box::pin(async move { answer(&graph_schema(&call.run, call.args.text("graph")?).await?) })
    })
}
