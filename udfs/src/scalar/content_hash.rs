//! `content_hash(col, ...)`: what a refresh compares.

use arrow::array::{Array, ArrayRef};
use arrow::datatypes::{DataType, Field, FieldRef};
use datafusion::common::ScalarValue;
use datafusion::error::Result;
use datafusion::logical_expr::{
    ColumnarValue, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDFImpl, Signature, Volatility,
};
use std::sync::Arc;
use stratagraph::embed::{self, CONTENT_HASH_BYTES};
use stratagraph_providers::ResultExt;

/// SHA-256 over the columns of a row, each with its kind and length; 32 bytes.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(crate) struct ContentHash {
    signature: Signature,
}

impl ContentHash {
    pub(crate) fn new() -> Self {
        Self {
            signature: Signature::variadic_any(Volatility::Immutable),
        }
    }
}

impl ScalarUDFImpl for ContentHash {
    fn name(&self) -> &str {
        "content_hash"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _arg_types: &[DataType]) -> Result<DataType> {
        Ok(DataType::FixedSizeBinary(CONTENT_HASH_BYTES))
    }

    /// NULL columns have a hash too.
    fn return_field_from_args(&self, args: ReturnFieldArgs) -> Result<FieldRef> {
        let types: Vec<DataType> = args
            .arg_fields
            .iter()
            .map(|f| f.data_type().clone())
            .collect();
        Ok(Arc::new(Field::new(
            self.name(),
            self.return_type(&types)?,
            false,
        )))
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let constant = args
            .args
            .iter()
            .all(|a| matches!(a, ColumnarValue::Scalar(_)));
        let rows = if constant { 1 } else { args.number_rows };
        let columns = args
            .args
            .into_iter()
            .map(|column| embed::render(&column.into_array(rows)?).df())
            .collect::<Result<Vec<ArrayRef>>>()?;
        let hashes = embed::content_hash(&columns).df()?;
        if constant && hashes.len() == 1 {
            return Ok(ColumnarValue::Scalar(ScalarValue::try_from_array(
                &hashes, 0,
            )?));
        }
        Ok(ColumnarValue::Array(Arc::new(hashes)))
    }
}
