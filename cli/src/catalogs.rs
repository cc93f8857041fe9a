//! The catalogs of the session: names of files and URLs work as tables, except in the plugin's own
//! catalog.

use std::sync::Arc;

use datafusion::catalog::{CatalogProvider, CatalogProviderList};
use stratagraph_udfs::CATALOG;

/// Two views of one list. The dynamic view takes an unknown table name for the path of a file and
/// swallows the first error of a lookup; a missing or damaged versioned table must stay one.
#[derive(Debug)]
pub(crate) struct Catalogs {
    pub plain: Arc<dyn CatalogProviderList>,
    pub dynamic: Arc<dyn CatalogProviderList>,
}

impl CatalogProviderList for Catalogs {
    fn register_catalog(
        &self,
        name: String,
        catalog: Arc<dyn CatalogProvider>,
    ) -> Option<Arc<dyn CatalogProvider>> {
        self.plain.register_catalog(name, catalog)
    }

    fn catalog_names(&self) -> Vec<String> {
        self.plain.catalog_names()
    }

    fn catalog(&self, name: &str) -> Option<Arc<dyn CatalogProvider>> {
        match name {
            CATALOG => self.plain.catalog(name),
            _ => self.dynamic.catalog(name),
        }
    }
}
