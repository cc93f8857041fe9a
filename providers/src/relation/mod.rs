//! What SQL can say about a table beyond its name: calls with named arguments, versions and hints.
//!
//! Only factors with arguments, hints or a version are looked at; bare names go the usual way, so
//! common table expressions keep shadowing tables.

mod call;
mod hints;

use std::sync::Arc;

use datafusion::error::Result;
use datafusion::logical_expr::planner::{
    PlannedRelation, RelationPlanner, RelationPlannerContext, RelationPlanning,
};
use datafusion::sql::sqlparser::ast::{FunctionArg, ObjectName, TableAlias, TableFactor};
use stratagraph::digest::Hasher;

use crate::error::bad_argument;
use crate::function::{FunctionRegistry, TableFunction};
use crate::metadata::Metadata;

/// Plans calls of the registered functions and versions of our tables.
#[derive(Debug)]
pub struct StratagraphRelations {
    functions: Arc<FunctionRegistry>,
    metadata: Arc<Metadata>,
}

impl StratagraphRelations {
    /// A planner for `SessionContext::register_relation_planner`.
    pub fn new(functions: Arc<FunctionRegistry>, metadata: Arc<Metadata>) -> Self {
        Self {
            functions,
            metadata,
        }
    }

    /// The function that an unqualified name means.
    fn function(&self, name: &ObjectName) -> Option<&Arc<dyn TableFunction>> {
        match name.0.as_slice() {
            [only] => self.functions.get(&only.as_ident()?.value),
            _ => None,
        }
    }

    fn call(
        &self,
        function: &Arc<dyn TableFunction>,
        args: Vec<FunctionArg>,
        alias: Option<TableAlias>,
        context: &mut dyn RelationPlannerContext,
    ) -> Result<RelationPlanning> {
        let call = call::CallPlanner {
            function,
            metadata: &self.metadata,
            context,
        };
        let plan = call.plan(args)?;
        Ok(RelationPlanning::Planned(Box::new(PlannedRelation::new(
            plan, alias,
        ))))
    }
}

impl RelationPlanner for StratagraphRelations {
    fn plan_relation(
        &self,
        relation: TableFactor,
        context: &mut dyn RelationPlannerContext,
    ) -> Result<RelationPlanning> {
        match relation {
            TableFactor::Table {
                name,
                alias,
                args: Some(args),
                with_hints,
                version,
                with_ordinality,
                ..
            } if self.function(&name).is_some() => {
                let odd = args.settings.is_some() || with_ordinality || version.is_some();
                if odd || !with_hints.is_empty() {
                    return Err(clause_on_call(&name));
                }
                match self.function(&name).cloned() {
                    Some(function) => self.call(&function, args.args, alias, context),
                    None => Err(clause_on_call(&name)),
                }
            }
            TableFactor::Function {
                name,
                args,
                with_ordinality,
                alias,
                ..
            } if self.function(&name).is_some() => match self.function(&name).cloned() {
                Some(function) if !with_ordinality => self.call(&function, args, alias, context),
                _ => Err(clause_on_call(&name)),
            },
            other if hints::has_hints(&other) => hints::plan(other, context),
            other => Ok(RelationPlanning::Original(Box::new(other))),
        }
    }
}

fn clause_on_call(name: &ObjectName) -> datafusion::error::DataFusionError {
    let reason = "a call takes no WITH, SETTINGS, ORDINALITY or AS OF; use its arguments";
    bad_argument(&name.to_string(), "$", reason)
}

/// The name of a scan that must not be taken for another one: DataFusion 55.2 compares scans by name
/// and not by source, and merges those that look equal. Stable, so that EXPLAIN is.
pub(crate) fn scan_name(name: &str, parts: &[String]) -> String {
    let mut hasher = Hasher::new("stratagraph.plan.scan.v1");
    hasher.part(name.as_bytes());
    for part in parts {
        hasher.part(part.as_bytes());
    }
    let digest = hasher.finish().to_string();
    format!("{name}#{}", &digest[..8])
}
