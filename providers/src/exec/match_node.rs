//! The logical node of a pattern of which not all variables are wanted.

use std::cmp::Ordering;
use std::collections::HashSet;
use std::fmt::Write;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use arrow::datatypes::{DataType, Field};
use datafusion::common::{DFSchema, DFSchemaRef, plan_err};
use datafusion::error::Result;
use datafusion::logical_expr::{Expr, LogicalPlan, UserDefinedLogicalNodeCore};
use stratagraph::env::Budget;
use stratagraph::graph::query::Direction;
use stratagraph::graph::topology::{MatchHop, MatchPattern, TraversalMode};

use super::expand_node::EdgeHandle;
use super::node_table::NodeTable;
use crate::error::ResultExt;

/// A hop of a pattern.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct MatchEdge {
    /// Place of the variable on its left.
    pub left: usize,
    /// Place of the variable on its right.
    pub right: usize,
    /// Its edges.
    pub edge: EdgeHandle,
    /// Which way they are followed from the left.
    pub direction: Direction,
    /// Whether a pair of nodes counts once.
    pub distinct: bool,
}

/// What is asked of a pattern and how its columns are called.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct MatchSpec {
    /// Names of the variables, for EXPLAIN.
    pub variables: Vec<String>,
    /// Hops, which join all variables.
    pub hops: Vec<MatchEdge>,
    /// Variables that are one node, found by its id.
    pub keys: Vec<(usize, NodeTable, String)>,
    /// How the neighbours of few nodes are looked up.
    pub mode: TraversalMode,
    /// Variables whose row ids are columns, UInt64 and never NULL, under these names. Names must be
    /// unique in the whole plan.
    pub kept: Vec<(usize, String)>,
    /// Name of the column of the number of assignments, Int64, if they are counted.
    pub count: Option<String>,
    /// How many rows with the greatest numbers are wanted, and all that have as many as the last of
    /// them; where one variable alone is kept and nothing else is left.
    pub top: Option<usize>,
}

impl MatchSpec {
    /// The pattern of the engine; its memory comes from `budget`.
    pub(super) fn pattern(&self, budget: Option<&Arc<dyn Budget>>) -> MatchPattern {
        let hops = self.hops.iter().map(|hop| MatchHop {
            left: hop.left,
            right: hop.right,
            edges: match budget {
                Some(budget) => hop.edge.edges().with_budget(Arc::clone(budget)),
                None => hop.edge.edges().as_ref().clone(),
            },
            direction: hop.direction,
            distinct: hop.distinct,
        });
        MatchPattern {
            variables: self.variables.len(),
            hops: hops.collect(),
            kept: self.kept.iter().map(|(var, _)| *var).collect(),
            counted: self.count.is_some(),
            mode: self.mode,
        }
    }

    /// Whether each row comes once.
    pub fn is_unique(&self) -> bool {
        let mut core = self.pattern(None).core();
        let mut kept: Vec<usize> = self.kept.iter().map(|(var, _)| *var).collect();
        core.sort_unstable();
        kept.sort_unstable();
        core == kept && kept.len() == 1
    }

    /// Its columns.
    pub(super) fn fields(&self) -> Vec<Arc<Field>> {
        let kept = self.kept.iter();
        let kept = kept.map(|(_, name)| Field::new(name, DataType::UInt64, false));
        let count = self.count.iter();
        let count = count.map(|name| Field::new(name, DataType::Int64, false));
        kept.chain(count).map(Arc::new).collect()
    }

    /// As EXPLAIN shows it.
    pub(super) fn show(&self) -> String {
        let name = |var: usize| self.variables.get(var).map_or("_", String::as_str);
        let hops = self.hops.iter().map(|hop| {
            let (left, right) = match hop.direction {
                Direction::Out => ("-", "->"),
                Direction::In => ("<-", "-"),
                Direction::Both => ("-", "-"),
            };
            let each = if hop.distinct { "" } else { " (each)" };
            let (a, b) = (name(hop.left), name(hop.right));
            format!("${a} {left}{}{right} ${b}{each}", hop.edge.name())
        });
        let kept = self.kept.iter().map(|(var, _)| format!("${}", name(*var)));
        let mut shown = format!(
            "{}; kept=[{}]",
            hops.collect::<Vec<_>>().join(", "),
            kept.collect::<Vec<_>>().join(", ")
        );
        let counted = if self.count.is_some() {
            "paths"
        } else {
            "existence"
        };
        // A String takes all that is written to it.
        let _ = write!(shown, ", of={counted}");
        for (var, _, id) in &self.keys {
            let _ = write!(shown, ", ${}={id:?}", name(*var));
        }
        if let Some(top) = self.top {
            let _ = write!(shown, ", top={top}");
        }
        shown
    }
}

/// The kept variables of a pattern, and how many assignments there are of each row. Each input holds
/// the row ids that a variable may have, in its only column; a variable without an input may be all.
#[derive(Debug, Clone)]
pub struct MatchNode {
    inputs: Vec<LogicalPlan>,
    /// The variable of each input.
    of: Vec<usize>,
    spec: MatchSpec,
    schema: DFSchemaRef,
}

impl MatchNode {
    /// Matches a pattern.
    ///
    /// # Errors
    /// `Plan` for inputs that are not one column of row ids; as [`MatchPattern::check`].
    pub fn try_new(inputs: Vec<(usize, LogicalPlan)>, spec: MatchSpec) -> Result<Self> {
        spec.pattern(None).check().df()?;
        for (_, input) in &inputs {
            let fields = input.schema().fields();
            let found = fields.first().map(|f| f.data_type());
            if fields.len() != 1 || found != Some(&DataType::UInt64) {
                return plan_err!("the nodes of a pattern are one column of row ids");
            }
        }
        let fields = spec.fields().into_iter().map(|field| (None, field));
        let schema = DFSchema::new_with_metadata(fields.collect(), Default::default())?;
        let (of, inputs) = inputs.into_iter().unzip();
        Ok(Self {
            inputs,
            of,
            spec,
            schema: Arc::new(schema),
        })
    }

    /// The variable of each input.
    pub fn of(&self) -> &[usize] {
        &self.of
    }

    /// What it asks for.
    pub fn spec(&self) -> &MatchSpec {
        &self.spec
    }
}

impl PartialEq for MatchNode {
    fn eq(&self, other: &Self) -> bool {
        (&self.spec, &self.of, &self.inputs) == (&other.spec, &other.of, &other.inputs)
    }
}

impl Eq for MatchNode {}

impl Hash for MatchNode {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.spec.hash(state);
        self.of.hash(state);
        self.inputs.hash(state);
    }
}

impl PartialOrd for MatchNode {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        let key = |n: &Self| (n.spec.show(), n.spec.kept.clone(), n.of.clone());
        match key(self).cmp(&key(other)) {
            Ordering::Equal => self.inputs.partial_cmp(&other.inputs),
            order => Some(order),
        }
    }
}

impl UserDefinedLogicalNodeCore for MatchNode {
    fn name(&self) -> &str {
        "Match"
    }

    fn inputs(&self) -> Vec<&LogicalPlan> {
        self.inputs.iter().collect()
    }

    fn schema(&self) -> &DFSchemaRef {
        &self.schema
    }

    fn expressions(&self) -> Vec<Expr> {
        Vec::new()
    }

    fn prevent_predicate_push_down_columns(&self) -> HashSet<String> {
        self.schema
            .fields()
            .iter()
            .map(|f| f.name().clone())
            .collect()
    }

    fn fmt_for_explain(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Match: {}", self.spec.show())
    }

    fn with_exprs_and_inputs(&self, exprs: Vec<Expr>, inputs: Vec<LogicalPlan>) -> Result<Self> {
        if !exprs.is_empty() || inputs.len() != self.of.len() {
            return plan_err!("a pattern has {} inputs and no expression", self.of.len());
        }
        let inputs = self.of.iter().copied().zip(inputs).collect();
        Self::try_new(inputs, self.spec.clone())
    }

    fn necessary_children_exprs(&self, _output_columns: &[usize]) -> Option<Vec<Vec<usize>>> {
        Some(vec![vec![0]; self.inputs.len()])
    }

    fn supports_limit_pushdown(&self) -> bool {
        false
    }
}
