//! The logical node of a ranking.

use std::cmp::Ordering;
use std::collections::HashSet;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use arrow::datatypes::{DataType, Field};
use async_trait::async_trait;
use datafusion::common::{DFSchema, DFSchemaRef, plan_err};
use datafusion::error::Result;
use datafusion::logical_expr::{Expr, ExprSchemable, LogicalPlan, UserDefinedLogicalNodeCore};
use stratagraph::search::{TableSearch, TextColumn, VectorColumn};
use stratagraph::text::TextQuery;

/// Makes the vector of a text, when a plan runs.
#[async_trait]
pub trait QueryEmbedder: fmt::Debug + Send + Sync {
    /// The vector of `text` for the property `property` of the type `type_id`, with the model that the
    /// property was declared with.
    async fn embed(&self, type_id: u64, property: u64, text: &str)
    -> stratagraph::Result<Vec<f32>>;
}

/// What rows are compared with.
#[derive(Debug, Clone)]
pub enum Near {
    /// This vector.
    Vector(Vec<f32>),
    /// The vector of a text.
    Text {
        /// The text.
        text: String,
        /// Type of the property.
        type_id: u64,
        /// Who makes its vector.
        embedder: Arc<dyn QueryEmbedder>,
    },
}

/// A measure of the rows of one table.
#[derive(Debug, Clone)]
pub enum Measure {
    /// Distance of a vector; a row without one has none.
    Distance {
        /// The column.
        column: VectorColumn,
        /// What to.
        near: Near,
        /// Whether indexes are left aside.
        exact: bool,
    },
    /// BM25 score of a text; a row that does not match has none.
    Score {
        /// The column.
        column: TextColumn,
        /// The query.
        query: TextQuery,
    },
}

/// A measure over the rows of a table, and the column of row ids that it is of.
#[derive(Debug, Clone)]
pub struct Leg {
    /// The table.
    pub table: TableSearch,
    /// Place of the column of row ids among the expressions of the node.
    pub rid: usize,
    /// The measure.
    pub measure: Measure,
}

/// What a fusion ranks by.
#[derive(Debug, Clone)]
pub enum Arm {
    /// A measure of rows of a table.
    Leg(Leg),
    /// A number that the rows have already, at this place among the expressions of the node; the smaller
    /// one is the better.
    Column(usize),
}

/// What a ranking adds to a row.
#[derive(Debug, Clone)]
pub enum Ranking {
    /// The measure of a leg.
    Single(Leg),
    /// The reciprocal rank fusion of some ranks, for the entities of the first column of row ids.
    Fused {
        /// The ranks.
        arms: Vec<Arm>,
        /// The constant k.
        constant: f32,
    },
}

/// A ranking and how its column is called.
#[derive(Clone)]
pub struct RankSpec {
    /// What it adds.
    pub ranking: Arc<Ranking>,
    /// Name of the added column, Float32: NULL where a row has no measure. Unique in the whole plan.
    pub output: String,
    /// Whether rows without a measure go.
    pub only_ranked: bool,
    /// Keeps the rows of so many entities, the best ones, and those of others that are as good.
    pub top: Option<usize>,
    /// As EXPLAIN shows it. Two rankings that show alike are alike.
    pub shown: String,
}

impl fmt::Debug for RankSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.show())
    }
}

impl RankSpec {
    pub(super) fn show(&self) -> String {
        let top = self.top.map(|top| format!(", top={top}"));
        let only = if self.only_ranked {
            ", only ranked"
        } else {
            ""
        };
        let (shown, output) = (&self.shown, &self.output);
        format!(
            "{shown}{}{only}, output=[{output}]",
            top.unwrap_or_default()
        )
    }

    /// Whether the rows must be known before the first measure is: the best of them are asked for.
    pub(super) fn needs_rows(&self) -> bool {
        !matches!(
            self.ranking.as_ref(),
            Ranking::Single(Leg {
                measure: Measure::Score { .. },
                ..
            })
        )
    }

    pub(super) fn field(&self) -> Arc<Field> {
        Arc::new(Field::new(&self.output, DataType::Float32, true))
    }
}

/// Input rows with a measure of an entity in them: the input's columns, then the measure.
#[derive(Debug, Clone)]
pub struct RankNode {
    input: LogicalPlan,
    rids: Vec<Expr>,
    spec: RankSpec,
    schema: DFSchemaRef,
}

impl RankNode {
    /// Ranks the entities whose row ids stand in `rids`, columns of `input` of type UInt64; distances of
    /// traversals among them are of type UInt32.
    ///
    /// # Errors
    /// `Plan` for anything else than such a column, or a name that the input has.
    pub fn try_new(input: LogicalPlan, rids: Vec<Expr>, spec: RankSpec) -> Result<Self> {
        for rid in &rids {
            let found = rid.get_type(input.schema())?;
            let fits = matches!(found, DataType::UInt64 | DataType::UInt32);
            if !fits || !matches!(rid, Expr::Column(_)) {
                return plan_err!("a ranking is of a column of row ids, not of {rid} ({found})");
            }
        }
        let columns = input.schema().iter();
        let columns = columns.map(|(qualifier, field)| (qualifier.cloned(), Arc::clone(field)));
        let fields = columns.chain([(None, spec.field())]).collect();
        let metadata = input.schema().metadata().clone();
        let schema = Arc::new(DFSchema::new_with_metadata(fields, metadata)?);
        Ok(Self {
            input,
            rids,
            spec,
            schema,
        })
    }

    /// The input.
    pub fn input(&self) -> &LogicalPlan {
        &self.input
    }

    /// The columns of row ids.
    pub fn rids(&self) -> &[Expr] {
        &self.rids
    }

    /// What is ranked.
    pub fn spec(&self) -> &RankSpec {
        &self.spec
    }

    fn key(&self) -> (String, &[Expr], &LogicalPlan) {
        (self.spec.show(), &self.rids, &self.input)
    }
}

impl PartialEq for RankNode {
    fn eq(&self, other: &Self) -> bool {
        self.key() == other.key()
    }
}

impl Eq for RankNode {}

impl Hash for RankNode {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.key().hash(state);
    }
}

impl PartialOrd for RankNode {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        self.key().partial_cmp(&other.key())
    }
}

impl UserDefinedLogicalNodeCore for RankNode {
    fn name(&self) -> &str {
        "Rank"
    }

    fn inputs(&self) -> Vec<&LogicalPlan> {
        vec![&self.input]
    }

    fn schema(&self) -> &DFSchemaRef {
        &self.schema
    }

    fn expressions(&self) -> Vec<Expr> {
        self.rids.clone()
    }

    /// A condition makes other rows the best ones, so where they are chosen none goes below.
    fn prevent_predicate_push_down_columns(&self) -> HashSet<String> {
        let all = self.schema.fields().iter().map(|f| f.name().clone());
        match self.spec.needs_rows() {
            true => all.collect(),
            false => [self.spec.output.clone()].into(),
        }
    }

    fn fmt_for_explain(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Rank: {}", self.spec.show())
    }

    fn with_exprs_and_inputs(
        &self,
        exprs: Vec<Expr>,
        mut inputs: Vec<LogicalPlan>,
    ) -> Result<Self> {
        match (inputs.pop(), exprs.len() == self.rids.len()) {
            (Some(input), true) if inputs.is_empty() => {
                Self::try_new(input, exprs, self.spec.clone())
            }
            _ => plan_err!("a ranking has one input"),
        }
    }

    fn necessary_children_exprs(&self, output_columns: &[usize]) -> Option<Vec<Vec<usize>>> {
        let schema = self.input.schema();
        let mut used: Vec<usize> = output_columns
            .iter()
            .copied()
            .filter(|column| *column < schema.fields().len())
            .collect();
        for rid in &self.rids {
            let Expr::Column(column) = rid else {
                return None;
            };
            used.push(schema.maybe_index_of_column(column)?);
        }
        used.sort_unstable();
        used.dedup();
        Some(vec![used])
    }

    fn supports_limit_pushdown(&self) -> bool {
        false
    }
}
