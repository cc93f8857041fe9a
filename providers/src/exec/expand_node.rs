//! The logical node of a traversal.

use std::cmp::Ordering;
use std::collections::HashSet;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use arrow::datatypes::{DataType, Field};
use datafusion::common::{DFSchema, DFSchemaRef, plan_err};
use datafusion::error::Result;
use datafusion::logical_expr::{Expr, ExprSchemable, LogicalPlan, UserDefinedLogicalNodeCore};
use stratagraph::graph::query::Direction;
use stratagraph::graph::topology::{EdgeTable, ReachOptions, TraversalMode};

use crate::error::ResultExt;

/// An edge table of a version under the name that plans show. Equal if the edges are the same.
#[derive(Clone)]
pub struct EdgeHandle {
    name: Arc<str>,
    edges: Arc<EdgeTable>,
}

impl EdgeHandle {
    /// Shows `edges` as `name`.
    pub fn new(name: &str, edges: Arc<EdgeTable>) -> Self {
        Self {
            name: name.into(),
            edges,
        }
    }

    /// The name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The table.
    pub fn edges(&self) -> &Arc<EdgeTable> {
        &self.edges
    }
}

impl fmt::Debug for EdgeHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "EdgeHandle({})", self.name)
    }
}

impl PartialEq for EdgeHandle {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for EdgeHandle {}

impl PartialOrd for EdgeHandle {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for EdgeHandle {
    fn cmp(&self, other: &Self) -> Ordering {
        let by_name = self.name.cmp(&other.name);
        by_name.then_with(|| self.edges.identity().cmp(other.edges.identity()))
    }
}

impl Hash for EdgeHandle {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.name.hash(state);
        self.edges.identity().hash(state);
    }
}

/// What an expansion asks for and how its columns are called.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ExpandSpec {
    /// Which way edges are followed from the source column.
    pub direction: Direction,
    /// Least distance, from 1.
    pub min: u32,
    /// Greatest distance.
    pub max: u32,
    /// Name of the column of destination row ids, UInt64 and never NULL. Names must be unique in the
    /// whole plan: filters are matched by the bare name.
    pub dst: String,
    /// Name of the column of distances, UInt32 and never NULL, if they are wanted.
    pub hops: Option<String>,
    /// How neighbours are looked up.
    pub mode: TraversalMode,
}

impl ExpandSpec {
    /// A single hop into the column `dst`.
    pub fn hop(direction: Direction, dst: &str) -> Self {
        Self::bounded(direction, 1, 1, dst)
    }

    /// All nodes at a distance from `min` to `max`, into the column `dst`.
    pub fn bounded(direction: Direction, min: u32, max: u32, dst: &str) -> Self {
        Self {
            direction,
            min,
            max,
            dst: dst.to_owned(),
            hops: None,
            mode: TraversalMode::Auto,
        }
    }

    /// With distances in the column `name`.
    pub fn with_hops(mut self, name: &str) -> Self {
        self.hops = Some(name.to_owned());
        self
    }

    /// With neighbours looked up as `mode` says.
    pub fn with_mode(mut self, mode: TraversalMode) -> Self {
        self.mode = mode;
        self
    }

    /// The options of the engine for batches of `batch_rows`.
    pub(super) fn options(&self, batch_rows: usize) -> ReachOptions {
        ReachOptions {
            hops: self.hops.is_some(),
            mode: self.mode,
            batch_rows,
            ..ReachOptions::new(self.direction, self.min, self.max)
        }
    }

    /// The fields that it adds.
    pub(super) fn fields(&self) -> Vec<Arc<Field>> {
        let dst = Field::new(&self.dst, DataType::UInt64, false);
        let hops = self.hops.iter();
        let hops = hops.map(|name| Field::new(name, DataType::UInt32, false));
        std::iter::once(dst).chain(hops).map(Arc::new).collect()
    }

    /// As EXPLAIN shows it.
    pub(super) fn show(&self, edge: &EdgeHandle, src: &dyn fmt::Display) -> String {
        let direction = match self.direction {
            Direction::Out => "out",
            Direction::In => "in",
            Direction::Both => "both",
        };
        let (name, min, max, mode) = (edge.name(), self.min, self.max, self.mode);
        let columns: Vec<&str> = std::iter::once(&self.dst)
            .chain(&self.hops)
            .map(String::as_str)
            .collect();
        let columns = columns.join(", ");
        format!(
            "edge={name}, src={src}, direction={direction}, hops={{{min},{max}}}, path={mode}, \
             output=[{columns}]"
        )
    }
}

/// For each input row, all nodes that its source reaches: the input's columns, then the destination's
/// row id and, if wanted, its distance. A NULL source reaches nothing. Each pair of row and destination
/// comes once, in input order, destinations ascending.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ExpandNode {
    input: LogicalPlan,
    src: Expr,
    /// Where it must end, if that is known.
    target: Option<Expr>,
    edge: EdgeHandle,
    spec: ExpandSpec,
    schema: DFSchemaRef,
}

impl ExpandNode {
    /// Expands `src`, a column of `input` of type UInt64 that holds row ids.
    ///
    /// # Errors
    /// `Plan` for a source of another type or a name that the input has; as [`ReachOptions::check`] for
    /// bounds and direction.
    pub fn try_new(
        input: LogicalPlan,
        src: Expr,
        edge: EdgeHandle,
        spec: ExpandSpec,
    ) -> Result<Self> {
        spec.options(1).check(edge.edges()).df()?;
        check_column(&input, &src, "source")?;
        let columns = input.schema().iter();
        let columns = columns.map(|(qualifier, field)| (qualifier.cloned(), Arc::clone(field)));
        let added = spec.fields().into_iter().map(|field| (None, field));
        let fields = columns.chain(added).collect();
        let metadata = input.schema().metadata().clone();
        let schema = Arc::new(DFSchema::new_with_metadata(fields, metadata)?);
        Ok(Self {
            input,
            src,
            target: None,
            edge,
            spec,
            schema,
        })
    }

    /// Only rows that reach the node in `target`, a column of the input as the source is one. It is
    /// searched from both ends.
    ///
    /// # Errors
    /// `Plan` for a target of another type.
    pub fn with_target(self, target: Expr) -> Result<Self> {
        check_column(&self.input, &target, "target")?;
        Ok(Self {
            target: Some(target),
            ..self
        })
    }

    /// The target column.
    pub fn target(&self) -> Option<&Expr> {
        self.target.as_ref()
    }

    /// The input.
    pub fn input(&self) -> &LogicalPlan {
        &self.input
    }

    /// The source column.
    pub fn src(&self) -> &Expr {
        &self.src
    }

    /// The edge table.
    pub fn edge(&self) -> &EdgeHandle {
        &self.edge
    }

    /// What it asks for.
    pub fn spec(&self) -> &ExpandSpec {
        &self.spec
    }
}

fn check_column(input: &LogicalPlan, of: &Expr, what: &str) -> Result<()> {
    let found = of.get_type(input.schema())?;
    if found != DataType::UInt64 {
        return plan_err!("the {what} {of} of a traversal has type {found}, expected UInt64");
    }
    match of {
        Expr::Column(_) => Ok(()),
        _ => plan_err!("the {what} {of} of a traversal is not a column"),
    }
}

impl PartialOrd for ExpandNode {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        let key = |n: &Self| {
            let spec = &n.spec;
            let columns = (spec.dst.clone(), spec.hops.clone());
            let direction = spec.direction as u8;
            (
                n.edge.clone(),
                direction,
                spec.min,
                spec.max,
                columns,
                spec.mode,
            )
        };
        let order = key(self).cmp(&key(other));
        if order != Ordering::Equal {
            return Some(order);
        }
        let ends = |n: &Self| (n.src.clone(), n.target.clone());
        match ends(self).partial_cmp(&ends(other)) {
            Some(Ordering::Equal) => self.input.partial_cmp(&other.input),
            order => order,
        }
    }
}

impl UserDefinedLogicalNodeCore for ExpandNode {
    fn name(&self) -> &str {
        "Expand"
    }

    fn inputs(&self) -> Vec<&LogicalPlan> {
        vec![&self.input]
    }

    fn schema(&self) -> &DFSchemaRef {
        &self.schema
    }

    fn expressions(&self) -> Vec<Expr> {
        std::iter::once(&self.src)
            .chain(&self.target)
            .cloned()
            .collect()
    }

    fn prevent_predicate_push_down_columns(&self) -> HashSet<String> {
        std::iter::once(&self.spec.dst)
            .chain(&self.spec.hops)
            .cloned()
            .collect()
    }

    fn fmt_for_explain(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Expand: {}", self.spec.show(&self.edge, &self.src))?;
        match &self.target {
            Some(target) => write!(f, ", target={target}"),
            None => Ok(()),
        }
    }

    fn with_exprs_and_inputs(
        &self,
        mut exprs: Vec<Expr>,
        mut inputs: Vec<LogicalPlan>,
    ) -> Result<Self> {
        let target = self.target.as_ref().and_then(|_| exprs.pop());
        match (exprs.pop(), inputs.pop()) {
            (Some(src), Some(input)) if exprs.is_empty() && inputs.is_empty() => {
                let node = Self::try_new(input, src, self.edge.clone(), self.spec.clone())?;
                match target {
                    Some(target) => node.with_target(target),
                    None => Ok(node),
                }
            }
            _ => plan_err!("a traversal has one input and one source"),
        }
    }

    fn necessary_children_exprs(&self, output_columns: &[usize]) -> Option<Vec<Vec<usize>>> {
        let schema = self.input.schema();
        let mut used: Vec<usize> = output_columns
            .iter()
            .copied()
            .filter(|column| *column < schema.fields().len())
            .collect();
        for end in std::iter::once(&self.src).chain(&self.target) {
            let Expr::Column(end) = end else {
                return None;
            };
            used.push(schema.maybe_index_of_column(end)?);
        }
        used.sort_unstable();
        used.dedup();
        Some(vec![used])
    }

    fn supports_limit_pushdown(&self) -> bool {
        false
    }
}
