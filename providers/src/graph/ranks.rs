//! Searches and ranks of a query as columns of its rows.
//!
//! A condition on a text becomes a column of scores, which is null where the text does not match. A rank
//! in `order` or `return` becomes a column of distances or scores once all conditions of the pattern hold,
//! so that only rows of the answer are ranked.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::sync::Arc;

use datafusion::common::plan_err;
use datafusion::error::Result;
use datafusion::logical_expr::{Expr as Df, Extension, LogicalPlan};
use stratagraph::graph::query::{Expr, Query, Rank, Search, SearchMode, Var};
use stratagraph::graph::value::Value;
use stratagraph::search::{TextColumn, VectorColumn};
use stratagraph::text::{Mode, TextQuery};

use super::lower::Lowering;
use super::row::{Columns as _, Field, Row};
use crate::error::ResultExt;
use crate::exec::{Arm, Leg, Measure, Near, RankNode, RankSpec, Ranking};

/// Edits of `fuzzy` where the query names none.
const EDITS: i128 = 2;
/// The constant of `rrf` where the query names none.
const CONSTANT: i128 = 60;

/// Calls `see` with each search and each rank within an expression.
pub(super) fn searches<'e>(expr: &'e Expr, see: &mut impl FnMut(&'e Expr)) {
    expr.visit(&mut |inner| {
        if matches!(inner, Expr::Search(_) | Expr::Rank(_)) {
            see(inner);
        }
    });
}

/// The traversals whose distances the ranks of a query fuse: from and to.
pub(super) fn distances(query: &Query) -> BTreeSet<(Var, Var)> {
    let outputs = query.outputs.iter().map(|output| &output.expr);
    let keys = query.order.iter().map(|key| &key.expr);
    let mut found = BTreeSet::new();
    for expr in outputs.chain(keys) {
        searches(expr, &mut |inner| {
            if let Expr::Rank(rank) = inner
                && let Rank::Rrf { arms, .. } = rank.as_ref()
            {
                found.extend(arms.iter().filter_map(|arm| match arm {
                    Rank::Hops { from, to } => Some((*from, *to)),
                    _ => None,
                }));
            }
        });
    }
    found
}

/// The variables that a search or a rank is about.
pub(super) fn ranked(expr: &Expr) -> Vec<Var> {
    match expr {
        Expr::Search(search) => vec![search.field.0],
        Expr::Rank(rank) => of_rank(rank),
        _ => Vec::new(),
    }
}

fn of_rank(rank: &Rank) -> Vec<Var> {
    match rank {
        Rank::Nearest { field, .. } | Rank::Bm25 { field, .. } => vec![field.0],
        Rank::Hops { to, .. } => vec![*to],
        Rank::Rrf { arms, .. } => arms.iter().flat_map(of_rank).collect(),
    }
}

/// Which rows of a ranking are wanted.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Wanted {
    /// Whether rows without a rank go.
    pub(super) only_ranked: bool,
    /// Entities that are wanted, the best ones; all of them without.
    pub(super) top: Option<usize>,
}

impl Lowering<'_> {
    /// A row with a column for each search within some expressions.
    pub(super) fn with_searches(&self, mut row: Row, exprs: &[&Expr]) -> Result<Row> {
        let mut found = Vec::new();
        for expr in exprs {
            searches(expr, &mut |search| found.push(search));
        }
        for search in found {
            if let (Expr::Search(of), false) = (search, row.has_score(search)) {
                let leg = self.search(of)?;
                let shown = self.show(search);
                let ranking = Ranking::Single(leg);
                row = self.ranked_by(row, search, ranking, shown, Wanted::default())?;
            }
        }
        Ok(row)
    }

    /// A row with the column of a rank.
    pub(super) fn with_rank(&self, row: Row, expr: &Expr, wanted: Wanted) -> Result<Row> {
        let Expr::Rank(rank) = expr else {
            return Ok(row);
        };
        if row.has_score(expr) {
            return Ok(row);
        }
        let ranking = match rank.as_ref() {
            Rank::Rrf { arms, k } => {
                let number = k.as_ref().map(|k| self.scalars.value(k));
                let constant = match number {
                    None => CONSTANT,
                    Some(Some(Value::Int(number))) if *number > 0 => *number,
                    _ => return plan_err!("the constant of rrf is an integer from 1, not null"),
                };
                return self.fused(row, expr, arms, constant as f32, wanted);
            }
            single => Ranking::Single(self.leg(single, 0)?),
        };
        let shown = self.show(expr);
        self.ranked_by(row, expr, ranking, shown, wanted)
    }

    /// A row with the column of a fusion.
    fn fused(
        &self,
        row: Row,
        expr: &Expr,
        arms: &[Rank],
        constant: f32,
        wanted: Wanted,
    ) -> Result<Row> {
        // The entities of the first rank are ranked: their row ids come first.
        let mut columns: Vec<Df> = Vec::new();
        let mut place = |column: Df| match columns.iter().position(|known| *known == column) {
            Some(at) => at,
            None => {
                columns.push(column);
                columns.len() - 1
            }
        };
        let Some(first) = arms.first().and_then(|arm| of_rank(arm).first().copied()) else {
            return plan_err!("rrf fuses two ranks or more");
        };
        place(row.expr(first, Field::Rid)?);
        let mut fused = Vec::with_capacity(arms.len());
        for arm in arms {
            fused.push(match arm {
                Rank::Hops { .. } => {
                    let hops = Expr::Rank(Box::new(arm.clone()));
                    Arm::Column(place(row.result(&hops)?))
                }
                Rank::Nearest { field, .. } | Rank::Bm25 { field, .. } => {
                    let rid = place(row.expr(field.0, Field::Rid)?);
                    Arm::Leg(self.leg(arm, rid)?)
                }
                Rank::Rrf { .. } => return plan_err!("rrf fuses no other rrf"),
            });
        }
        let ranking = Ranking::Fused {
            arms: fused,
            constant,
        };
        let shown = self.show(expr);
        self.node(row, expr, (columns, ranking, shown), wanted)
    }

    fn ranked_by(
        &self,
        row: Row,
        expr: &Expr,
        ranking: Ranking,
        shown: String,
        wanted: Wanted,
    ) -> Result<Row> {
        let rids = ranked(expr)
            .into_iter()
            .map(|var| row.expr(var, Field::Rid));
        let rids = rids.collect::<Result<Vec<_>>>()?;
        self.node(row, expr, (rids, ranking, shown), wanted)
    }

    fn node(
        &self,
        mut row: Row,
        expr: &Expr,
        (columns, ranking, shown): (Vec<Df>, Ranking, String),
        wanted: Wanted,
    ) -> Result<Row> {
        let name = shown.split('(').next().unwrap_or("rank");
        let output = self.names.unique(&format!("{name}#"));
        let spec = RankSpec {
            ranking: Arc::new(ranking),
            output: output.clone(),
            only_ranked: wanted.only_ranked,
            top: wanted.top,
            shown,
        };
        let node = RankNode::try_new(row.plan, columns, spec)?;
        row.plan = LogicalPlan::Extension(Extension {
            node: Arc::new(node),
        });
        row.scores.push((expr.clone(), output));
        Ok(row)
    }

    fn search(&self, search: &Search) -> Result<Leg> {
        let mode = match search.mode {
            // As the peer's language has it: any of the words.
            SearchMode::Any | SearchMode::MatchText => Mode::Bm25,
            SearchMode::Fuzzy => {
                let edits = match &search.max_edits {
                    None => Some(EDITS),
                    Some(edits) => match self.scalars.value(edits) {
                        Some(Value::Int(edits)) => Some(*edits),
                        _ => None,
                    },
                };
                match edits
                    .and_then(|edits| u8::try_from(edits).ok())
                    .filter(|edits| *edits <= 2)
                {
                    Some(max_edits) => Mode::Fuzzy { max_edits },
                    None => return plan_err!("the edit distance of fuzzy is 0, 1 or 2"),
                }
            }
        };
        self.text_leg(search.field, &search.query, mode, 0)
    }

    fn leg(&self, rank: &Rank, rid: usize) -> Result<Leg> {
        match rank {
            Rank::Bm25 { field, query } => self.text_leg(*field, query, Mode::Bm25, rid),
            Rank::Nearest { field, query } => self.vector_leg(*field, query, rid),
            Rank::Hops { .. } | Rank::Rrf { .. } => plan_err!("{} has no table", rank.name()),
        }
    }

    fn text_leg(&self, field: (Var, u64), query: &Expr, mode: Mode, rid: usize) -> Result<Leg> {
        let (var, property) = field;
        let Some(of) = self.type_of(var) else {
            return plan_err!("variable {var} has no type");
        };
        let column = TextColumn::of_property(of, property).df()?;
        let text = match self.scalars.value(query) {
            Some(Value::String(text)) => text.as_str(),
            Some(Value::Null) => "",
            _ => return plan_err!("what is searched for is a text"),
        };
        let query = TextQuery::new(&column.analyser, text, mode).df()?;
        Ok(Leg {
            table: self.sources.search(of.id).df()?,
            rid,
            measure: Measure::Score { column, query },
        })
    }

    fn vector_leg(&self, field: (Var, u64), query: &Expr, rid: usize) -> Result<Leg> {
        let (var, property) = field;
        let Some(of) = self.type_of(var) else {
            return plan_err!("variable {var} has no type");
        };
        let column = VectorColumn::of_property(of, property).df()?;
        let near = match self.scalars.value(query) {
            Some(Value::String(text)) => Near::Text {
                text: text.clone(),
                type_id: of.id,
                embedder: Arc::clone(self.embedder),
            },
            Some(Value::List(items)) => {
                let numbers = items.iter().map(|item| match item {
                    Value::Int(number) => Some(*number as f32),
                    Value::Float(number) => Some(*number as f32),
                    _ => None,
                });
                match numbers.collect::<Option<Vec<f32>>>() {
                    Some(vector) => Near::Vector(vector),
                    None => return plan_err!("a vector is made of numbers"),
                }
            }
            _ => return plan_err!("what is near is a vector or a text, not null"),
        };
        let exact = self.exact;
        let measure = Measure::Distance {
            column,
            near,
            exact,
        };
        Ok(Leg {
            table: self.sources.search(of.id).df()?,
            rid,
            measure,
        })
    }

    /// A search or a rank as a plan shows it.
    fn show(&self, expr: &Expr) -> String {
        let field =
            |(var, property): &(Var, u64)| self.wanted_name(*var, Field::Property(*property));
        let value = |query: &Expr| match self.scalars.value(query) {
            Some(Value::String(text)) => format!("{text:?}"),
            Some(Value::List(items)) => format!("[{} numbers]", items.len()),
            other => format!("{other:?}"),
        };
        let mut shown = String::new();
        match expr {
            Expr::Search(search) => {
                let (name, of) = (search.name(), field(&search.field));
                let _ = write!(shown, "{name}({of}, {})", value(&search.query));
            }
            Expr::Rank(rank) => {
                let name = rank.name();
                match rank.as_ref() {
                    Rank::Nearest { field: of, query } | Rank::Bm25 { field: of, query } => {
                        let _ = write!(shown, "{name}({}, {})", field(of), value(query));
                    }
                    Rank::Hops { from, to } => {
                        let ends = [from, to].map(|var| self.wanted_name(*var, Field::Id));
                        let _ = write!(shown, "{name}({})", ends.join(", "));
                    }
                    Rank::Rrf { arms, .. } => {
                        let arms = arms.iter();
                        let arms = arms.map(|arm| self.show(&Expr::Rank(Box::new(arm.clone()))));
                        let _ = write!(shown, "{name}({})", arms.collect::<Vec<_>>().join(", "));
                    }
                }
            }
            _ => {}
        }
        shown
    }
}
