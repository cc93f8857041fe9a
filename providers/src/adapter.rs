//! Columns by identity: a fragment that was written under an older schema is read by property id,
//! never by name, so a renamed column is found, a new one is NULL, and a dropped one cannot come back
//! under its old name.

use std::collections::HashMap;
use std::sync::Arc;

use arrow::datatypes::{Field, Schema, SchemaRef};
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::error::Result;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_expr_adapter::{
    DefaultPhysicalExprAdapterFactory, PhysicalExprAdapter, PhysicalExprAdapterFactory,
};
use parquet::arrow::PARQUET_FIELD_ID_META_KEY;

use crate::error::to_datafusion;

/// Adapts expressions on the planned schema to the file of a fragment.
#[derive(Debug, Clone)]
pub struct FieldIdAdapterFactory {
    /// Planned name by property id.
    names: Arc<HashMap<u64, String>>,
}

impl FieldIdAdapterFactory {
    /// A factory for planned columns `(property id, planned name)`.
    pub fn new(columns: impl IntoIterator<Item = (u64, String)>) -> Self {
        Self {
            names: Arc::new(columns.into_iter().collect()),
        }
    }

    /// The file's schema with planned names; a field that the plan does not know gets a name that no
    /// expression uses. Where types agree the planned field stands in, so that no cast is inserted.
    fn rename(&self, logical: &Schema, physical: &Schema) -> SchemaRef {
        let fields = physical.fields().iter().map(|field| {
            let planned = field_id(field).and_then(|id| self.names.get(&id));
            let Some(name) = planned else {
                return Arc::new(
                    field
                        .as_ref()
                        .clone()
                        .with_name(format!("\0{}", field.name())),
                );
            };
            match logical.field_with_name(name) {
                Ok(logical) if logical.data_type() == field.data_type() => {
                    Arc::new(logical.clone())
                }
                _ => Arc::new(field.as_ref().clone().with_name(name.clone())),
            }
        });
        Arc::new(Schema::new(fields.collect::<Vec<_>>()))
    }
}

/// The property id that the writer left on a field.
fn field_id(field: &Field) -> Option<u64> {
    field
        .metadata()
        .get(PARQUET_FIELD_ID_META_KEY)?
        .parse()
        .ok()
}

impl PhysicalExprAdapterFactory for FieldIdAdapterFactory {
    fn create(
        &self,
        logical_file_schema: SchemaRef,
        physical_file_schema: SchemaRef,
    ) -> Result<Arc<dyn PhysicalExprAdapter>> {
        // Without ids every column would look new, that is NULL.
        let fields = physical_file_schema.fields();
        if !fields.iter().any(|field| field_id(field).is_some()) {
            let found = "none";
            let error = stratagraph::Error::corrupt("fragment", "schema", "field ids", found);
            return Err(to_datafusion(error));
        }
        let renamed = self.rename(&logical_file_schema, &physical_file_schema);
        let by_name = DefaultPhysicalExprAdapterFactory.create(logical_file_schema, renamed)?;
        Ok(Arc::new(FieldIdAdapter {
            by_name,
            physical: physical_file_schema,
        }))
    }
}

#[derive(Debug)]
struct FieldIdAdapter {
    by_name: Arc<dyn PhysicalExprAdapter>,
    physical: SchemaRef,
}

impl PhysicalExprAdapter for FieldIdAdapter {
    fn rewrite(&self, expr: Arc<dyn PhysicalExpr>) -> Result<Arc<dyn PhysicalExpr>> {
        // Positions are the file's already; statistics and bloom filters are looked up by the name
        // that the file uses.
        self.by_name
            .rewrite(expr)?
            .transform_down(|node| {
                let Some(column) = node.downcast_ref::<Column>() else {
                    return Ok(Transformed::no(node));
                };
                match self.physical.fields().get(column.index()) {
                    Some(field) if field.name() != column.name() => {
                        let named = Column::new(field.name(), column.index());
                        Ok(Transformed::yes(Arc::new(named) as _))
                    }
                    _ => Ok(Transformed::no(node)),
                }
            })
            .data()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow::datatypes::DataType;
    use datafusion::physical_expr::expressions::Literal;

    fn with_id(name: &str, data_type: DataType, id: u64) -> Field {
        let metadata = [(PARQUET_FIELD_ID_META_KEY.to_owned(), id.to_string())];
        Field::new(name, data_type, true).with_metadata(metadata.into())
    }

    #[test]
    fn columns_follow_their_id() {
        let logical = Arc::new(Schema::new(vec![
            Field::new("new_name", DataType::Int32, true),
            Field::new("a", DataType::Int64, true),
            Field::new("added", DataType::Utf8, true),
        ]));
        // `old_name` became `new_name`; a column that is gone was called `a`.
        let physical = Arc::new(Schema::new(vec![
            with_id("a", DataType::Utf8, 9),
            with_id("old_name", DataType::Int32, 1),
            with_id("b", DataType::Int32, 2),
        ]));
        let names = [(1, "new_name"), (2, "a"), (3, "added")];
        let factory = FieldIdAdapterFactory::new(names.map(|(id, n)| (id, n.to_owned())));
        let adapter = factory.create(logical, physical).unwrap();
        let column = |name: &str, i| adapter.rewrite(Arc::new(Column::new(name, i))).unwrap();
        let renamed = column("new_name", 0);
        assert_eq!(
            renamed.downcast_ref::<Column>(),
            Some(&Column::new("old_name", 1))
        );
        assert!(
            column("a", 1).to_string().starts_with("CAST(b@2"),
            "{}",
            column("a", 1)
        );
        assert!(column("added", 2).downcast_ref::<Literal>().is_some());
    }
}
