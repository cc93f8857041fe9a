//! One version of a table, resolved once: for producers whose result names what it was made from.

use std::sync::Arc;

use datafusion::datasource::TableProvider;
use stratagraph::catalog::resolve::TableSnapshot;
use stratagraph::ident::Name;
use stratagraph::publish::definition::Anchor;
use stratagraph::{Error, Result};
use stratagraph_providers::VersionedTableProvider;

use crate::engine::Run;
use crate::verbs::{Search, SearchHit, search_in};

/// A pinned version: its anchor, its rows and its searches come from one look at the catalog, and no
/// sweep of this process deletes its objects while this value lives.
#[derive(Clone)]
pub struct PinnedSource {
    run: Run,
    table: Arc<TableSnapshot>,
    anchor: Anchor,
}

impl std::fmt::Debug for PinnedSource {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "PinnedSource({}@{})",
            self.anchor.table, self.anchor.version
        )
    }
}

impl PinnedSource {
    /// The current version of a table in the run's snapshot.
    pub(crate) async fn of(run: &Run, name: &Name) -> Result<Self> {
        let table = run.table(name, None).await?;
        let identity = table.manifest.identity.ok_or_else(|| {
            let key = &table.manifest_ref.key;
            Error::corrupt("version manifest", key, "an identity", "none")
        })?;
        let anchor = Anchor {
            dataset: table.dataset.id.clone(),
            table: table.name.to_string(),
            version: table.version(),
            identity,
        };
        Ok(Self {
            run: run.clone(),
            table: Arc::new(table),
            anchor,
        })
    }

    /// What a result made from these rows names as its input. No catalog read.
    pub fn input_anchor(&self) -> &Anchor {
        &self.anchor
    }

    /// The rows, as a table of no catalog.
    pub fn pinned_provider(&self) -> Result<Arc<dyn TableProvider>> {
        Ok(self.provider()?)
    }

    pub(crate) fn provider(&self) -> Result<Arc<VersionedTableProvider>> {
        let metadata = Arc::clone(&self.run.engine.metadata);
        let pin = Some(Arc::clone(self.run.pin()));
        let table = Arc::clone(&self.table);
        VersionedTableProvider::of_snapshot(metadata, table, pin).map(Arc::new)
    }

    pub(crate) fn table(&self) -> &Arc<TableSnapshot> {
        &self.table
    }

    /// A search in exactly this version, whatever was published since.
    ///
    /// # Errors
    /// As [`crate::Stratagraph::search`]; `InvalidArgument` for a search of another version.
    pub async fn search(&self, search: Search) -> Result<Vec<SearchHit>> {
        if search
            .version
            .is_some_and(|version| version != self.anchor.version)
        {
            return Err(Error::InvalidArgument {
                function: "search".to_owned(),
                argument: "version".to_owned(),
                reason: format!("this source is pinned at {}", self.anchor.version),
            });
        }
        search_in(&self.run, &self.table, search).await
    }
}
