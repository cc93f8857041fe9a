//! The source of an embedding table: any table of the host's session, under its full name.

use std::sync::Arc;

use arrow::datatypes::{DataType, Field, SchemaRef};
use datafusion::common::TableReference;
use datafusion::datasource::TableProvider;
use datafusion::datasource::listing::ListingTable;
use datafusion::prelude::{DataFrame, SessionContext};
use futures::TryStreamExt;
use object_store::ObjectMeta;
use stratagraph::digest::{Digest, Hasher};
use stratagraph::publish::definition::{Definition, SourceColumn, SourceRef};
use stratagraph::table::schema::type_text;
use stratagraph::{Error, Result};
use stratagraph_providers::from_datafusion;

use crate::engine::Run;
use crate::host::Host;

/// How long ago a file must have been written for its time to tell it from any later state: clocks
/// of file systems tick, and object stores count seconds.
const SETTLED_MICROS: i64 = 2_000_000;

/// A table of the session, found.
#[derive(Debug, Clone)]
pub(crate) struct Source {
    /// Catalog, schema, table.
    pub(crate) name: [String; 3],
    schema: SchemaRef,
}

/// How a name is shown: the parts that DataFusion gives every session are left out, whatever this
/// session's defaults are, so that the text depends on the name alone.
pub(crate) fn shown(name: &[String; 3]) -> String {
    match name {
        [catalog, schema, table] if catalog == "datafusion" && schema == "public" => table.clone(),
        name => name.join("."),
    }
}

impl Source {
    /// Finds the table that a verb names: parts joined by `.`, each as it is or in double quotes.
    ///
    /// Where that is no table, names with dots or slashes in them are tried.
    pub(crate) async fn find(host: &Host, text: &str) -> Result<Self> {
        for name in candidates(host, text) {
            if let Some(table) = lookup(host, &name).await? {
                let schema = table.schema();
                return Ok(Self { name, schema });
            }
        }
        Err(Error::NotFound {
            what: "source table",
            name: text.to_owned(),
        })
    }

    /// Finds the recorded source of `table` and compares the columns that the table uses.
    ///
    /// # Errors
    /// `SourceNotFound` if the session has no such table, `SourceMismatch` if it is another one.
    pub(crate) async fn recorded(host: &Host, table: &str, recorded: &SourceRef) -> Result<Self> {
        let Some(found) = lookup(host, &recorded.name).await? else {
            return Err(Error::SourceNotFound {
                table: table.to_owned(),
                source_name: recorded.name.join("."),
            });
        };
        let source = Self {
            name: recorded.name.clone(),
            schema: found.schema(),
        };
        let mismatch = |detail: String| Error::SourceMismatch {
            table: table.to_owned(),
            source_name: recorded.name.join("."),
            detail,
        };
        for column in &recorded.columns {
            let Some(field) = source.field(&column.name) else {
                return Err(mismatch(format!("it has no column {:?}", column.name)));
            };
            let is = column_type(field.data_type());
            if is != column.data_type {
                let (name, was) = (&column.name, &column.data_type);
                return Err(mismatch(format!("column {name:?} was {was}, is {is}")));
            }
        }
        Ok(source)
    }

    /// Digest of the files that the source reads: names, sizes, times and e_tags. `None` for a table
    /// that does not list files, and for files so young that a later write may show the same time.
    pub(crate) async fn files(&self, run: &Run) -> Result<Option<Digest>> {
        // Listings that the session remembers are dropped here.
        let state = run.host.context().state();
        let Some(table) = lookup(&run.host, &self.name).await? else {
            return Ok(None);
        };
        let Some(listing) = table.downcast_ref::<ListingTable>() else {
            return Ok(None);
        };
        let mut files: Vec<ObjectMeta> = Vec::new();
        for url in listing.table_paths() {
            let list = async {
                let store = state.runtime_env().object_store(url)?;
                let extension = &listing.options().file_extension;
                let files = url
                    .list_all_files(&state, store.as_ref(), extension)
                    .await?;
                files.try_collect::<Vec<_>>().await
            };
            files.extend(list.await.map_err(from_datafusion)?);
        }
        files.sort_by(|a, b| a.location.cmp(&b.location));
        let settled = run.catalog().env().clock.now_micros() - SETTLED_MICROS;
        let mut hasher = Hasher::new("stratagraph.source.files.v1");
        for file in &files {
            let time = file.last_modified.timestamp_micros();
            if time > settled {
                return Ok(None);
            }
            hasher.part(file.location.as_ref().as_bytes());
            hasher
                .part(&file.size.to_le_bytes())
                .part(&time.to_le_bytes());
            hasher.part(file.e_tag.as_deref().unwrap_or_default().as_bytes());
        }
        Ok(Some(hasher.finish()))
    }

    /// The column with exactly this name.
    pub(crate) fn field(&self, name: &str) -> Option<&Field> {
        self.schema.field_with_name(name).ok()
    }

    /// Names of all columns, for messages.
    pub(crate) fn columns(&self) -> String {
        let names = self.schema.fields().iter().map(|f| f.name().as_str());
        names.collect::<Vec<_>>().join(", ")
    }

    /// What a definition records of this source.
    pub(crate) fn reference(&self, columns: &[&str]) -> SourceRef {
        let mut recorded: Vec<SourceColumn> = Vec::with_capacity(columns.len());
        for name in columns {
            let known = recorded.iter().any(|c| c.name == *name);
            if let Some(field) = self.field(name)
                && !known
            {
                recorded.push(SourceColumn {
                    name: (*name).to_owned(),
                    data_type: column_type(field.data_type()),
                });
            }
        }
        SourceRef {
            name: self.name.clone(),
            columns: recorded,
        }
    }

    /// The whole table.
    pub(crate) async fn table(&self, context: &SessionContext) -> Result<DataFrame> {
        let [catalog, schema, table] = &self.name;
        let reference = TableReference::full(catalog.as_str(), schema.as_str(), table.as_str());
        context.table(reference).await.map_err(from_datafusion)
    }

    /// The key, the text columns and the included columns of `definition`, in this order.
    pub(crate) async fn rows(
        &self,
        context: &SessionContext,
        definition: &Definition,
    ) -> Result<DataFrame> {
        let frame = self.table(context).await?;
        let names = std::iter::once(&definition.key_column)
            .chain(&definition.columns)
            .chain(&definition.include);
        // A text column may be the key too, or stand twice: a plan needs names that differ.
        let columns = names.enumerate().map(|(i, name)| {
            let column = datafusion::common::Column::from_name(name.as_str());
            datafusion::prelude::Expr::Column(column).alias(format!("c{i}"))
        });
        frame.select(columns).map_err(from_datafusion)
    }
}

/// Full names that a text may mean, the likeliest first. An identifier comes without its quotes, so
/// a dot may be part of the last name.
fn candidates(host: &Host, text: &str) -> Vec<[String; 3]> {
    let catalog = &host.state().config_options().catalog;
    let mut references = vec![TableReference::parse_str_normalized(text, true)];
    references.push(TableReference::bare(text.to_owned()));
    if let Some((schema, table)) = text.split_once('.') {
        references.push(TableReference::partial(schema, table));
        if let Some((middle, table)) = table.split_once('.') {
            references.push(TableReference::full(schema, middle, table));
        }
    }
    let full = |reference: TableReference| {
        let full = reference.resolve(&catalog.default_catalog, &catalog.default_schema);
        [full.catalog, full.schema, full.table].map(|part| part.to_string())
    };
    references.into_iter().map(full).collect()
}

async fn lookup(host: &Host, name: &[String; 3]) -> Result<Option<Arc<dyn TableProvider>>> {
    let [catalog, schema, table] = name;
    let catalog = host.state().catalog_list().catalog(catalog);
    let Some(schema) = catalog.and_then(|c| c.schema(schema)) else {
        return Ok(None);
    };
    schema.table(table).await.map_err(from_datafusion)
}

/// A column's type as a definition spells it: forms that the same file may be read in (views, large
/// offsets, dictionaries) are one type. What has no stored form is spelled as Arrow does.
fn column_type(data_type: &DataType) -> String {
    type_text(data_type).unwrap_or_else(|_| data_type.to_string())
}
