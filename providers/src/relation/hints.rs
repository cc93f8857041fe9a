//! `t WITH (version = 3)`, and the refusal of what DataFusion would silently ignore.

use std::sync::Arc;

use arrow::datatypes::{DataType, TimeUnit};
use datafusion::common::{DFSchema, ScalarValue, TableReference};
use datafusion::datasource::{TableProvider, provider_as_source, source_as_provider};
use datafusion::error::Result;
use datafusion::logical_expr::planner::{
    PlannedRelation, RelationPlannerContext, RelationPlanning,
};
use datafusion::logical_expr::{Expr as DfExpr, LogicalPlan, LogicalPlanBuilder};
use datafusion::sql::sqlparser::ast::{BinaryOperator, Expr, TableFactor, TableVersion, Value};
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
    as_of: Option<TableVersion>,
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
    let (as_of, other) = match version.take() {
        Some(other @ (TableVersion::Function(_) | TableVersion::Changes { .. })) => {
            (None, Some(other.to_string()))
        }
        as_of => (as_of, None),
    };
    let refused = [
        other,
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
        as_of,
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
    let hint = match stripped.as_of {
        None => hint_of(table, &name, &stripped.hints)?,
        Some(as_of) if stripped.hints.is_empty() && !table.is_explicit() => {
            as_of_hint(table, &name, as_of, context)?
        }
        Some(_) => {
            return Err(bad_argument(
                &name,
                "AS OF",
                "is given beside another version",
            ));
        }
    };
    let planned = versioned(table, &scan.table_name, &name, hint)?;
    Ok(RelationPlanning::Planned(Box::new(PlannedRelation::new(
        planned, alias,
    ))))
}

/// What the hints of a table say.
fn hint_of(table: &VersionedTableProvider, name: &str, hints: &[Expr]) -> Result<Hint> {
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
    found.ok_or_else(|| bad_argument(name, "WITH", "has no hint"))
}

/// What `VERSION AS OF` and `TIMESTAMP AS OF` say, in the dialects that have them.
fn as_of_hint(
    table: &VersionedTableProvider,
    name: &str,
    as_of: TableVersion,
    context: &mut dyn RelationPlannerContext,
) -> Result<Hint> {
    let of_graph = table.planned().graph.is_some();
    match as_of {
        TableVersion::VersionAsOf(Expr::Value(value)) => match &value.value {
            Value::Number(text, _) => {
                let number = text.to_string().parse().ok();
                let number = number.map(Hint::Number);
                number.ok_or_else(|| bad_argument(name, "VERSION AS OF", "expected a number"))
            }
            _ => Err(bad_argument(name, "VERSION AS OF", "expected a number")),
        },
        TableVersion::TimestampAsOf(time) | TableVersion::ForSystemTimeAsOf(time) if of_graph => {
            let wrong = || bad_argument(name, "TIMESTAMP AS OF", "expected the text of a time");
            let time = match context.sql_to_expr(time, &DFSchema::empty())? {
                DfExpr::Literal(value, _) => value,
                DfExpr::Cast(cast) => match *cast.expr {
                    DfExpr::Literal(value, _) => value,
                    _ => return Err(wrong()),
                },
                _ => return Err(wrong()),
            };
            let micros = DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into()));
            match time.cast_to(&micros) {
                Ok(ScalarValue::TimestampMicrosecond(Some(time), _)) => Ok(Hint::Time(time)),
                _ => Err(wrong()),
            }
        }
        other => {
            let feature = format!("{other} on {name} (a version is written WITH (version = n))");
            Err(to_datafusion(Error::NotYetSupported { feature }))
        }
    }
}

fn versioned(
    table: &VersionedTableProvider,
    reference: &TableReference,
    name: &str,
    value: Hint,
) -> Result<LogicalPlan> {
    let of_graph = table.planned().graph.is_some();
    let text = value.to_string();
    let past = match (of_graph, value) {
        (false, Hint::Number(version)) => table.with_version(version),
        (false, Hint::Text(_) | Hint::Time(_)) => {
            return Err(bad_argument(name, "version", "expected a version number"));
        }
        (true, Hint::Number(version)) => table.with_snapshot(At::Catalog(version)),
        (true, Hint::Text(commit)) => table.with_snapshot(At::Commit(commit)),
        (true, Hint::Time(time)) => table.with_snapshot(At::Time(time)),
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
    /// Microseconds since 1970-01-01 UTC.
    Time(i64),
}

impl std::fmt::Display for Hint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Number(number) => write!(f, "{number}"),
            Self::Text(text) => write!(f, "{text:?}"),
            Self::Time(time) => write!(f, "at {time}"),
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
