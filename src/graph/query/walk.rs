//! Walks over a checked query.

use super::{Block, Expr, Query, Rank, Search, SearchMode};

impl Query {
    /// All expressions that are not within another one.
    pub fn exprs(&self) -> Vec<&Expr> {
        let mut all = Vec::new();
        self.pattern.exprs(&mut all);
        all.extend(self.outputs.iter().map(|output| &output.expr));
        all.extend(self.order.iter().map(|key| &key.expr));
        all
    }
}

impl Block {
    fn exprs<'q>(&'q self, all: &mut Vec<&'q Expr>) {
        all.extend(&self.filters);
        for block in self.optionals.iter().chain(&self.negations) {
            block.exprs(all);
        }
    }
}

impl Expr {
    /// Calls `see` with this expression and all within it, outermost first. The field of a search is
    /// no expression; its query is.
    pub fn visit<'e>(&'e self, see: &mut impl FnMut(&'e Self)) {
        see(self);
        match self {
            Self::Compare(_, a, b)
            | Self::HasItem(a, b)
            | Self::HasText(a, b)
            | Self::StartsWith(a, b) => {
                a.visit(see);
                b.visit(see);
            }
            Self::And(all) | Self::Or(all) => all.iter().for_each(|part| part.visit(see)),
            Self::Not(inner) | Self::IsNull(inner) => inner.visit(see),
            Self::Aggregate { argument, .. } => {
                if let Some(argument) = argument {
                    argument.visit(see);
                }
            }
            Self::Search(search) => {
                search.query.visit(see);
                if let Some(edits) = &search.max_edits {
                    edits.visit(see);
                }
            }
            Self::Rank(rank) => rank.visit(see),
            Self::Literal(_)
            | Self::Param(_)
            | Self::Now
            | Self::Id(_)
            | Self::Property(..)
            | Self::End(..)
            | Self::Output(_) => {}
        }
    }
}

impl Search {
    /// The name of the function.
    pub fn name(&self) -> &'static str {
        match self.mode {
            SearchMode::Any => "search",
            SearchMode::MatchText => "match_text",
            SearchMode::Fuzzy => "fuzzy",
        }
    }
}

impl Rank {
    /// The name of the function.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Nearest { .. } => "nearest",
            Self::Bm25 { .. } => "bm25",
            Self::Hops { .. } => "hops",
            Self::Rrf { .. } => "rrf",
        }
    }

    fn visit<'e>(&'e self, see: &mut impl FnMut(&'e Expr)) {
        match self {
            Self::Nearest { query, .. } | Self::Bm25 { query, .. } => query.visit(see),
            Self::Hops { .. } => {}
            Self::Rrf { arms, k } => {
                arms.iter().for_each(|arm| arm.visit(see));
                if let Some(k) = k {
                    k.visit(see);
                }
            }
        }
    }
}
