//! The rows whose texts match.

use std::sync::Arc;

use roaring::RoaringBitmap;

use super::apart::apart;
use super::fragment::Rows;
use super::rows::{Allowed, LiveRows, positions_order_keys};
use super::take::RowAt;
use super::{Found, TableSearch};
use crate::Result;
use crate::text::{self, Analyser, Part, TextQuery, TextSegment};

/// A column of texts.
#[derive(Debug, Clone)]
pub struct TextColumn {
    /// Property id.
    pub column: u64,
    /// What terms a text has.
    pub analyser: Analyser,
}

impl TableSearch {
    /// The `k` rows whose texts match best, best first, equal scores by key. Scores count the live rows
    /// of the version alone, whether they may answer or not.
    ///
    /// # Errors
    /// `Corrupt` or `Parquet` for a fragment that is not what its entry says, those of the budget, and
    /// `ResourceLimitExceeded` for a fuzzy term with too many neighbours. An index that cannot be used is
    /// left aside.
    pub async fn matching(
        &self,
        column: &TextColumn,
        query: &TextQuery,
        k: usize,
        allowed: &Allowed,
    ) -> Result<Vec<Found>> {
        // Edges stand in another order than their keys, so that equal scores could be cut wrongly.
        let ordered = positions_order_keys(self.reader.table().layout);
        let most = Some(k).filter(|_| ordered);
        let found = self.scored(column, query, most, allowed).await?;
        self.merged(found, k, |a, b| b.total_cmp(&a)).await
    }

    /// All rows whose texts match, or the best `most` of each fragment, in no order. Errors as
    /// [`TableSearch::matching`].
    pub async fn scored(
        &self,
        column: &TextColumn,
        query: &TextQuery,
        most: Option<usize>,
        allowed: &Allowed,
    ) -> Result<Vec<Found>> {
        let entries = self.reader.entries().await?;
        let mut parts: Vec<(u64, Arc<TextSegment>, LiveRows)> = Vec::new();
        for entry in entries.iter().filter(|e| e.fragment.is_some()) {
            let rows = LiveRows::of(&self.reader, entry, &self.replaced, allowed).await?;
            if rows.live.is_empty() {
                continue;
            }
            if let Some(part) = Rows::open(&self.reader, entry).await? {
                parts.push((entry.id, part.postings(column).await?, rows));
            }
        }
        let query = query.clone();
        apart("text search", move |cancelled| {
            let views = parts.iter().map(|(_, segment, rows)| Part {
                segment,
                live: &rows.live,
                allowed: rows.answer.as_ref(),
            });
            let views: Vec<Part<'_>> = views.collect();
            let hits = text::search(&views, &query, most, cancelled)?.into_iter();
            let found = hits.filter_map(|hit| {
                let (entry, _, _) = parts.get(hit.part)?;
                Some(Found {
                    row: RowAt {
                        entry: *entry,
                        position: hit.position,
                    },
                    value: hit.score,
                })
            });
            Ok(found.collect())
        })
        .await
    }

    /// Live rows of an entry; for tests and reports.
    pub async fn live_rows(&self, entry: &crate::table::manifest::Entry) -> Result<RoaringBitmap> {
        let rows = LiveRows::of(&self.reader, entry, &self.replaced, &Allowed::All).await?;
        Ok(rows.live)
    }
}
