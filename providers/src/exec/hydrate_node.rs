//! The logical node that gives few rows the columns of their nodes.

use std::cmp::Ordering;
use std::collections::HashSet;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use arrow::datatypes::{DataType, Field};
use datafusion::common::{DFSchema, DFSchemaRef, plan_err};
use datafusion::error::Result;
use datafusion::logical_expr::{Expr, LogicalPlan, UserDefinedLogicalNodeCore};

use super::node_table::NodeTable;

/// Where the nodes are and how columns are called.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct HydrateSpec {
    /// The table.
    pub table: NodeTable,
    /// The column of the rows that holds the row id of a node.
    pub rid: String,
    /// The same of the scan.
    pub scanned: String,
    /// Property ids of the other columns of the scan, by name.
    pub columns: Vec<(String, u64)>,
}

impl HydrateSpec {
    /// As EXPLAIN shows it, with these columns.
    pub(super) fn show(&self, columns: &[&str]) -> String {
        let (table, rid) = (self.table.name(), &self.rid);
        format!("nodes={table}, rid={rid}, output=[{}]", columns.join(", "))
    }
}

/// Rows, and for each the columns of its node; a row whose node is not there is left out. The second
/// input is a scan of the nodes, each once, which is read only where there are many rows: few nodes are
/// looked up.
#[derive(Debug, Clone)]
pub struct HydrateNode {
    rows: LogicalPlan,
    scan: LogicalPlan,
    spec: HydrateSpec,
    schema: DFSchemaRef,
}

impl HydrateNode {
    /// Hydrates `rows`.
    ///
    /// # Errors
    /// `Plan` for inputs without the row ids that the spec names, or for columns of the scan that it does
    /// not.
    pub fn try_new(rows: LogicalPlan, scan: LogicalPlan, spec: HydrateSpec) -> Result<Self> {
        for (input, rid) in [(&rows, &spec.rid), (&scan, &spec.scanned)] {
            let found = input.schema().field_with_unqualified_name(rid)?;
            if found.data_type() != &DataType::UInt64 {
                return plan_err!("{rid} is not a column of row ids");
            }
        }
        let below = rows.schema().iter();
        let mut fields: Vec<_> = below
            .map(|(qualifier, field)| (qualifier.cloned(), Arc::clone(field)))
            .collect();
        for field in scanned(scan.schema(), &spec.scanned) {
            if !spec.columns.iter().any(|(name, _)| name == field.name()) {
                return plan_err!("{} is not a column of a node", field.name());
            }
            fields.push((None, Arc::clone(field)));
        }
        let schema = DFSchema::new_with_metadata(fields, rows.schema().metadata().clone())?;
        Ok(Self {
            rows,
            scan,
            spec,
            schema: Arc::new(schema),
        })
    }

    /// What it asks for.
    pub fn spec(&self) -> &HydrateSpec {
        &self.spec
    }

    fn columns(&self) -> Vec<&str> {
        let fields = scanned(self.scan.schema(), &self.spec.scanned);
        fields.map(|field| field.name().as_str()).collect()
    }
}

/// The columns of a scan without the row id.
fn scanned<'a>(schema: &'a DFSchema, rid: &'a str) -> impl Iterator<Item = &'a Arc<Field>> {
    schema.fields().iter().filter(move |f| f.name() != rid)
}

impl PartialEq for HydrateNode {
    fn eq(&self, other: &Self) -> bool {
        (&self.spec, &self.rows, &self.scan) == (&other.spec, &other.rows, &other.scan)
    }
}

impl Eq for HydrateNode {}

impl Hash for HydrateNode {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (&self.spec, &self.rows, &self.scan).hash(state);
    }
}

impl PartialOrd for HydrateNode {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        let key = |n: &Self| (n.spec.rid.clone(), n.spec.columns.clone());
        match key(self).cmp(&key(other)) {
            Ordering::Equal => self.rows.partial_cmp(&other.rows),
            order => Some(order),
        }
    }
}

impl UserDefinedLogicalNodeCore for HydrateNode {
    fn name(&self) -> &str {
        "Hydrate"
    }

    fn inputs(&self) -> Vec<&LogicalPlan> {
        vec![&self.rows, &self.scan]
    }

    fn schema(&self) -> &DFSchemaRef {
        &self.schema
    }

    fn expressions(&self) -> Vec<Expr> {
        Vec::new()
    }

    /// The columns of the nodes; both inputs together would be filtered by them.
    fn prevent_predicate_push_down_columns(&self) -> HashSet<String> {
        let all = self.schema.fields().iter();
        all.map(|field| field.name().clone()).collect()
    }

    fn fmt_for_explain(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Hydrate: {}", self.spec.show(&self.columns()))
    }

    fn with_exprs_and_inputs(
        &self,
        exprs: Vec<Expr>,
        mut inputs: Vec<LogicalPlan>,
    ) -> Result<Self> {
        match (inputs.pop(), inputs.pop()) {
            (Some(scan), Some(rows)) if exprs.is_empty() && inputs.is_empty() => {
                Self::try_new(rows, scan, self.spec.clone())
            }
            _ => plan_err!("hydration has two inputs and no expression"),
        }
    }

    fn necessary_children_exprs(&self, output_columns: &[usize]) -> Option<Vec<Vec<usize>>> {
        let (rows, scan) = (self.rows.schema(), self.scan.schema());
        let below = rows.fields().len();
        let rid = rows.index_of_column_by_name(None, &self.spec.rid)?;
        let scanned = scan.index_of_column_by_name(None, &self.spec.scanned)?;
        let wanted = output_columns.iter().copied();
        let mut left: Vec<usize> = wanted.clone().filter(|at| *at < below).collect();
        // Output columns pass over the row id of the scan.
        let place = |at: usize| if at < scanned { at } else { at + 1 };
        let right = wanted.filter(|at| *at >= below);
        let mut right: Vec<usize> = right.map(|at| place(at - below)).collect();
        left.push(rid);
        right.push(scanned);
        for columns in [&mut left, &mut right] {
            columns.sort_unstable();
            columns.dedup();
        }
        Some(vec![left, right])
    }

    fn supports_limit_pushdown(&self) -> bool {
        false
    }
}
