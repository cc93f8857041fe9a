//! What a verb found out and staged, before it is known which parent it will extend.

use std::collections::BTreeMap;

use async_trait::async_trait;

use crate::Result;
use crate::catalog::resolve::TableSnapshot;
use crate::digest::Digest;
use crate::store::Stager;
use crate::table::ledger::LedgerChange;
use crate::table::manifest::{Fragment, SourceFold};

/// A staged delta of an embedding table.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct StagedDelta {
    /// New rows in key order, or none.
    pub fragment: Option<Fragment>,
    /// Keys whose live row in the base goes: changed and deleted ones, sorted, each once.
    pub superseded: Vec<String>,
    /// All keys that the delta adds, changes, deletes or records as rejects, sorted, each once.
    pub touched: Vec<String>,
    /// Changes of the reject ledger, sorted by key.
    pub ledger: Vec<LedgerChange>,
    /// Fold of the source that the delta leads to.
    pub fold: Option<SourceFold>,
    /// Digest of the source's files, if it has any.
    pub source_files: Option<Digest>,
    /// Result counts for the manifest.
    pub counts: BTreeMap<String, i64>,
}

/// Makes deltas: reads the source, compares it with a base version, runs the model on what changed
/// and stages the fragment.
#[async_trait]
pub trait DeltaSource: Send + 'static {
    /// The delta from `base` to the source as it is now; `None` if there is none.
    ///
    /// Called again when another commit touched the same keys: vectors that an earlier call made
    /// are reused for equal (key, content hash), never inferred again.
    async fn delta(
        &mut self,
        base: &TableSnapshot,
        stage: &mut Stager,
    ) -> Result<Option<StagedDelta>>;
}
