//! The table that a search names: an embedding table, or a node or edge type of a graph.

use std::sync::Arc;

use arrow::datatypes::{DataType, SchemaRef};
use stratagraph::ann::Metric;
use stratagraph::catalog::graph::GraphSnapshot;
use stratagraph::catalog::resolve::TableSnapshot;
use stratagraph::catalog::slot::DatasetKind;
use stratagraph::graph::schema::{GraphType, Property};
use stratagraph::ident::{BranchName, Name, VersionedName};
use stratagraph::publish::definition::Definition;
use stratagraph::search::{TableSearch, TextColumn, VectorColumn, index_option, superseded};
use stratagraph::table::manifest::Layout;
use stratagraph::table::read::TableReader;
use stratagraph::table::schema::id;
use stratagraph::text::Analyser;
use stratagraph::{Error, Result};
use stratagraph_providers::{Metadata, PlannedColumn, PlannedTable, split_branch};

use crate::engine::{Run, has_unique_keys};

/// What a name can mean.
enum Named {
    Embeddings(VersionedName),
    Type(Name, BranchName, String),
}

/// `t`, `t@3`, `g.Type`, `g@branch.Type`; `sg.` and `sg.embeddings.` before them mean nothing more. A
/// graph goes before an embedding table whose name has a dot.
fn named(metadata: &Metadata, text: &str) -> Result<Named> {
    let text = text.strip_prefix("sg.").unwrap_or(text);
    if let Some(table) = text.strip_prefix("embeddings.") {
        return VersionedName::parse(table).map(Named::Embeddings);
    }
    if let Some((graph, of)) = text.rsplit_once('.')
        && let Ok((name, branch)) = split_branch(graph)
        && metadata.datasets().get(name.as_str()) == Some(&DatasetKind::Graph)
    {
        return Ok(Named::Type(name, branch, of.to_owned()));
    }
    VersionedName::parse(text).map(Named::Embeddings)
}

fn no_type(graph: &Name, of: &str) -> Error {
    Error::NotFound {
        what: "type",
        name: format!("{graph}.{of}"),
    }
}

/// The columns of a table, as SQL sees them, while a statement is planned.
pub(crate) fn planned_schema(metadata: &Arc<Metadata>, text: &str) -> Result<SchemaRef> {
    match named(metadata, text)? {
        Named::Embeddings(table) => Ok(Arc::clone(&metadata.table_now(&table.name)?.schema)),
        Named::Type(name, branch, of) => {
            let state = metadata.graph_now(&name, &branch)?;
            let found = state.schema.types.iter().find(|t| t.name == of);
            let found = found.ok_or_else(|| no_type(&name, &of))?;
            Ok(PlannedTable::of_type(&state, found, false)?.schema)
        }
    }
}

/// What the table belongs to.
enum Of {
    Embeddings(Option<Box<Definition>>),
    Type(Box<GraphSnapshot>, u64),
}

/// A table in the snapshot of a statement, ready to be searched.
pub(crate) struct Target {
    pub(crate) run: Run,
    pub(crate) function: &'static str,
    pub(crate) snapshot: Arc<TableSnapshot>,
    pub(crate) branch: BranchName,
    /// Columns that SQL sees.
    pub(crate) columns: Vec<PlannedColumn>,
    pub(crate) schema: SchemaRef,
    of: Of,
}

impl Target {
    /// The table that a name means in the statement's snapshot.
    pub(crate) async fn find(
        run: &Run,
        function: &'static str,
        text: &str,
        version: Option<u64>,
    ) -> Result<Self> {
        let invalid = |reason: String| Error::InvalidArgument {
            function: function.to_owned(),
            argument: "version".to_owned(),
            reason,
        };
        match named(&run.engine.metadata, text)? {
            Named::Embeddings(table) => {
                let version = match (table.version, version) {
                    (Some(at), Some(given)) if at != given => {
                        return Err(invalid(format!("the table's name says version {at}")));
                    }
                    (at, given) => given.or(at),
                };
                let snapshot = Arc::new(run.table(&table.name, version).await?);
                Self::of_snapshot(run, function, snapshot).await
            }
            Named::Type(_, _, _) if version.is_some() => Err(invalid(
                "graphs have branches and commits, not versions".to_owned(),
            )),
            Named::Type(name, branch, of) => {
                let state = run.graph(&name, &branch, None).await?;
                let found = state.schema.types.iter().find(|t| t.name == of);
                let found = found.ok_or_else(|| no_type(&name, &of))?;
                let planned = PlannedTable::of_type(&state, found, false)?;
                let store = run.catalog().store();
                Ok(Self {
                    run: run.clone(),
                    function,
                    snapshot: Arc::new(state.table(store, found.id).await?),
                    branch,
                    columns: planned.columns,
                    schema: planned.schema,
                    of: Of::Type(Box::new(state.clone()), found.id),
                })
            }
        }
    }

    /// A version of an embedding table that is resolved already.
    pub(crate) async fn of_snapshot(
        run: &Run,
        function: &'static str,
        snapshot: Arc<TableSnapshot>,
    ) -> Result<Self> {
        let definition = run.engine.definition(&snapshot).await?;
        let planned = PlannedTable::of(&snapshot)?;
        Ok(Self {
            run: run.clone(),
            function,
            snapshot,
            branch: BranchName::main(),
            columns: planned.columns,
            schema: planned.schema,
            of: Of::Embeddings(definition.map(Box::new)),
        })
    }

    pub(crate) fn invalid(&self, argument: &str, reason: impl Into<String>) -> Error {
        Error::InvalidArgument {
            function: self.function.to_owned(),
            argument: argument.to_owned(),
            reason: reason.into(),
        }
    }

    /// The definition of an embedding table that was made of a source.
    pub(crate) fn definition(&self) -> Option<&Definition> {
        match &self.of {
            Of::Embeddings(definition) => definition.as_deref(),
            Of::Type(..) => None,
        }
    }

    /// The type of a graph's table.
    pub(crate) fn graph_type(&self) -> Option<&GraphType> {
        match &self.of {
            Of::Embeddings(_) => None,
            Of::Type(state, id) => state.schema.by_id(*id),
        }
    }

    /// The declared property of a column.
    pub(crate) fn property(&self, column: u64) -> Option<&Property> {
        self.graph_type()?.property_by_id(column)
    }

    /// A column by its name.
    pub(crate) fn column(&self, argument: &str, name: &str) -> Result<&PlannedColumn> {
        let found = self.columns.iter().find(|c| c.field.name() == name);
        found.ok_or_else(|| {
            let known: Vec<&str> = self
                .columns
                .iter()
                .map(|c| c.field.name().as_str())
                .collect();
            self.invalid(
                argument,
                format!(
                    "there is no column {name:?}; there are {}",
                    known.join(", ")
                ),
            )
        })
    }

    /// An option of `@index` on a property.
    pub(crate) fn declared(&self, column: u64, option: &str) -> Option<&str> {
        index_option(self.graph_type()?, column, option)
    }

    /// A column of vectors with the metric that it was declared with.
    pub(crate) fn vector_column(&self, argument: &str, name: &str) -> Result<VectorColumn> {
        let column = self.column(argument, name)?;
        let DataType::FixedSizeList(item, width) = column.field.data_type() else {
            return Err(self.invalid(argument, format!("{name:?} is not a column of vectors")));
        };
        if item.data_type() != &DataType::Float32 {
            return Err(self.invalid(argument, format!("{name:?} is not a column of vectors")));
        }
        let own = self.definition().map(|d| d.metric.as_str());
        let metric = self
            .declared(column.id, "metric")
            .or(own.filter(|_| column.id == id::VECTOR));
        let metric = metric.unwrap_or("cosine");
        Ok(VectorColumn {
            column: column.id,
            dimensions: usize::try_from(*width).unwrap_or(0),
            metric: Metric::parse(metric)
                .ok_or_else(|| self.invalid(argument, format!("unknown metric {metric:?}")))?,
        })
    }

    /// A column of texts with the analyser that it was declared with.
    pub(crate) fn text_column(&self, argument: &str, name: &str) -> Result<TextColumn> {
        let column = self.column(argument, name)?;
        if column.field.data_type() != &DataType::Utf8View {
            return Err(self.invalid(argument, format!("{name:?} is not a column of text")));
        }
        let declared = self.declared(column.id, "analyzer").map(Analyser::parse);
        Ok(TextColumn {
            column: column.id,
            analyser: declared.transpose()?.unwrap_or_default(),
        })
    }

    /// Learns what a commit of this process has made of the table.
    pub(crate) async fn learn(&self) {
        let name = &self.snapshot.name;
        match &self.of {
            Of::Embeddings(_) => self.run.learn(name).await,
            Of::Type(..) => self.run.learn_graph(name).await,
        }
    }

    /// A reader of the table that takes its memory from the session.
    pub(crate) fn reader(&self) -> TableReader {
        let catalog = self.run.catalog();
        let env = self.run.host.env(catalog.env());
        let table = Arc::clone(&self.snapshot.table);
        TableReader::new(Arc::clone(catalog.store()), &env, table)
    }

    /// The rows that can be found: of rows with one key the last one.
    pub(crate) async fn search(&self) -> Result<TableSearch> {
        let reader = self.reader();
        let search = TableSearch::new(reader.clone());
        if self.snapshot.table.layout != Layout::Embedding || has_unique_keys(&self.snapshot) {
            return Ok(search);
        }
        let store = self.run.catalog().store();
        let key = format!("superseded:{}", self.snapshot.manifest_ref.key);
        let find = async {
            let found = superseded(&reader).await?;
            let bytes = found.values().map(|b| b.serialized_size() + 64).sum();
            Ok((Arc::new(found), bytes))
        };
        let (replaced, _) = store.indexes().get_or_make(&key, find).await?;
        Ok(search.without(replaced))
    }
}
