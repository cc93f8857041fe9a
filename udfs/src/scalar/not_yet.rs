//! Scalar functions of the documentation that are not built yet: they plan, and fail typed.

use arrow::datatypes::DataType;
use datafusion::error::Result;
use datafusion::logical_expr::{
    ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};
use stratagraph::Error;
use stratagraph_providers::to_datafusion;

const NAMES: [&str; 1] = ["blob_read"];

pub(super) fn all() -> impl Iterator<Item = ScalarUDF> {
    let scalar = |name| {
        // Volatile: it must not be evaluated while a statement is planned.
        let signature = Signature::variadic_any(Volatility::Volatile);
        ScalarUDF::new_from_impl(NotYet { name, signature })
    };
    NAMES.into_iter().map(scalar)
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct NotYet {
    name: &'static str,
    signature: Signature,
}

impl ScalarUDFImpl for NotYet {
    fn name(&self) -> &str {
        self.name
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _arg_types: &[DataType]) -> Result<DataType> {
        Ok(DataType::Null)
    }

    fn invoke_with_args(&self, _args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        Err(to_datafusion(Error::NotYetSupported {
            feature: format!("{}()", self.name),
        }))
    }
}
