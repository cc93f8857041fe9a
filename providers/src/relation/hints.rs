//! `t WITH (version = 3)`, and the refusal of what DataFusion would silently ignore.

use std::sync::Arc;

use datafusion::common::TableReference;
use datafusion::datasource::{TableProvider, provider_as_source, source_as_provider};
use datafusion::error::Result;
use datafusion::logical_expr::planner::{
    PlannedRelation, RelationPlannerContext, RelationPlanning,
};
use datafusion::logical_expr::{LogicalPlan, LogicalPlanBuilder};
use datafusion::sql::sqlparser::ast::{BinaryOperator, Expr, TableFactor, Value};
use stratagraph::Error;
use stratagraph::catalog::graph::At;

use super::scan_name;
use crate::error::{bad_argument, to_datafusion};
use crate::versioned::VersionedTableProvider;

/// Whether a table factor says more than its name.
pub(super) fn has_hints(factor: &TableFactor) -> bool {
    match factor {
        TableFactor::Table {
            args: None,
            with_hints,
            version,
            with_ordinality,
            partitions,
            json_path,
            sample,
            index_hints,
            ..
        } => {
            let lists = !(with_hints.is_empty() && partitions.is_empty() && index_hints.is_empty());
            lists
                || version.is_some()
                || *with_ordinality
                || json_path.is_some()
                || sample.is_some()
        }
        _ => false,
    }
}

/// The factor without its hints, and the text of those that can only be refused.
struct Stripped {
    bare: TableFactor,
    hints: Vec<Expr>,
    refused: Option<String>,
}

fn strip(factor: TableFactor) -> Option<Stripped> {
    let mut bare = factor;
    let TableFactor::Table {
        alias,
        with_hints,
        version,
        with_ordinality,
        partitions,
        json_path,
        sample,
        index_hints,
        ..
    } = &mut bare
    else {
        return None;
    };
    *alias = None;
    let refused = [
        version.take().map(|v| v.to_string()),
        std::mem::take(with_ordinality).then(|| "WITH ORDINALITY".to_owned()),
        json_path.take().map(|path| path.to_string()),
        sample.take().map(|_| "TABLESAMPLE".to_owned()),
        (!std::mem::take(partitions).is_empty()).then(|| "PARTITION".to_owned()),
        (!std::mem::take(index_hints).is_empty()).then(|| "USE INDEX".to_owned()),
    ];
    let hints = std::mem::take(with_hints);
    Some(Stripped {
        bare,
        hints,
        refused: refused.into_iter().flatten().next(),
    })
}

/// Plans a table with hints. What a bare name means (a common table expression, a view, a table of
/// the host) is DataFusion's to say; only a scan of our own is changed.
pub(super) fn plan(
    factor: TableFactor,
    context: &mut dyn RelationPlannerContext,
) -> Result<RelationPlanning> {
    let alias = match &factor {
        TableFactor::Table { alias, .. } => alias.clone(),
        _ => None,
    };
    let original = || Ok(RelationPlanning::Original(Box::new(factor.clone())));
    let Some(stripped) = strip(factor.clone()) else {
        return original();
    };
    // A name that cannot be planned fails in the usual way.
    let Ok(LogicalPlan::TableScan(scan)) = context.plan(stripped.bare) else {
        return original();
    };
    let Ok(provider) = source_as_provider(&scan.source) else {
        return original();
    };
    let Some(table) = provider.downcast_ref::<VersionedTableProvider>() else {
        return original();
    };
    let name = scan.table_name.to_string();
    if let Some(text) = stripped.refused {
        let feature = format!("{text} on {name} (a version is written WITH (version = n))");
        return Err(to_datafusion(Error::NotYetSupported { feature }));
    }
    let planned = versioned(table, &scan.table_name, &name, &stripped.hints)?;
    Ok(RelationPlanning::Planned(Box::new(PlannedRelation::new(
        planned, alias,
    ))))
}

fn versioned(
    table: &VersionedTableProvider,
    reference: &TableReference,
    name: &str,
    hints: &[Expr],
) -> Result<LogicalPlan> {
    let of_graph = table.planned().graph.is_some();
    let known = if of_graph { "snapshot" } else { "version" };
    let mut found = None;
    for hint in hints {
        let (key, value) = parse(name, hint)?;
        if key != known {
            let reason = format!("is not a hint of this table; use {known}");
            return Err(bad_argument(name, &key, reason));
        }
        if found.replace(value).is_some() || table.is_explicit() {
            return Err(bad_argument(name, known, "is given twice"));
        }
    }
    let value = found.ok_or_else(|| bad_argument(name, "WITH", "has no hint"))?;
    let text = value.to_string();
    let past = match (of_graph, value) {
        (false, Hint::Number(version)) => table.with_version(version),
        (false, Hint::Text(_)) => {
            return Err(bad_argument(name, known, "expected a version number"));
        }
        (true, Hint::Number(version)) => table.with_snapshot(At::Catalog(version)),
        (true, Hint::Text(commit)) => table.with_snapshot(At::Commit(commit)),
    };
    let source: Arc<dyn TableProvider> = Arc::new(past);
    let scan = scan_name(reference.table(), &[name.to_owned(), text]);
    LogicalPlanBuilder::scan(TableReference::bare(scan), provider_as_source(source), None)?
        .alias(reference.clone())?
        .build()
}

/// The value of a hint.
enum Hint {
    Number(u64),
    Text(String),
}

impl std::fmt::Display for Hint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Number(number) => write!(f, "{number}"),
            Self::Text(text) => write!(f, "{text:?}"),
        }
    }
}

fn parse(name: &str, hint: &Expr) -> Result<(String, Hint)> {
    let odd = || bad_argument(name, &hint.to_string(), "a hint is written version = n");
    let Expr::BinaryOp {
        left,
        op: BinaryOperator::Eq,
        right,
    } = hint
    else {
        return Err(odd());
    };
    let Expr::Identifier(key) = left.as_ref() else {
        return Err(odd());
    };
    let key = key.value.to_ascii_lowercase();
    let expected = match key.as_str() {
        "snapshot" => "expected a commit id or a catalog version",
        "version" => "expected a version number",
        // What it is worth is not asked of a hint that nobody knows.
        _ => return Ok((key, Hint::Number(0))),
    };
    let wrong = || bad_argument(name, &key, expected);
    let Expr::Value(value) = right.as_ref() else {
        return Err(wrong());
    };
    let value = match &value.value {
        Value::Number(text, _) => Hint::Number(text.to_string().parse().map_err(|_| wrong())?),
        Value::SingleQuotedString(text) => Hint::Text(text.clone()),
        _ => return Err(wrong()),
    };
    Ok((key, value))
}
