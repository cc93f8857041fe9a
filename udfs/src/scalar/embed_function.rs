//! What the forms of `embed` and `embed_checked` have in common: arguments, types, the model.

use std::hash::{Hash, Hasher};
use std::sync::Arc;

use arrow::datatypes::{DataType, Field, FieldRef, Fields};
use datafusion::common::ScalarValue;
use datafusion::logical_expr::{ColumnarValue, Expr, ReturnFieldArgs};
use stratagraph::embed::{Embedder, Handshake, Role, redact, vector_type};
use stratagraph::{Error, Result};
use stratagraph_providers::wait;

use crate::engine::Engine;

/// The key under which a planned call holds the hash of its model's definition.
const PLANNED: &str = "stratagraph.definition_hash";

/// What a call gives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Shape {
    /// `embed`: a vector. A text that the model refuses fails the statement.
    Vector,
    /// `embed_checked`: a struct of a vector and the reason why there is none.
    Checked,
}

/// One of the two functions, on one installation and with one session's default model.
#[derive(Clone)]
pub(super) struct Function {
    pub(super) engine: Arc<Engine>,
    pub(super) shape: Shape,
    pub(super) default_model: String,
}

impl std::fmt::Debug for Function {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}({:?})", self.name(), self.default_model)
    }
}

/// Two installations have different models under one name, so their functions differ.
impl PartialEq for Function {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.engine, &other.engine)
            && self.shape == other.shape
            && self.default_model == other.default_model
    }
}

impl Eq for Function {}

impl Hash for Function {
    fn hash<H: Hasher>(&self, state: &mut H) {
        Arc::as_ptr(&self.engine).hash(state);
        self.shape.hash(state);
        self.default_model.hash(state);
    }
}

/// The constant arguments of a call.
#[derive(Debug)]
pub(super) struct Call {
    pub(super) model: String,
    pub(super) role: Role,
}

impl Function {
    pub(super) fn name(&self) -> &'static str {
        match self.shape {
            Shape::Vector => "embed",
            Shape::Checked => "embed_checked",
        }
    }

    pub(super) fn invalid(&self, argument: &str, reason: impl Into<String>) -> Error {
        Error::InvalidArgument {
            function: self.name().to_owned(),
            argument: argument.to_owned(),
            reason: reason.into(),
        }
    }

    /// Reads the arguments behind the text, of which the literal ones are given.
    pub(super) fn call(&self, arguments: &[Option<&ScalarValue>]) -> Result<Call> {
        let (most, usage) = match self.shape {
            Shape::Vector => (3, "expected text, [model], [role]"),
            Shape::Checked => (2, "expected text, [model]"),
        };
        if arguments.is_empty() || arguments.len() > most {
            return Err(self.invalid("list", usage));
        }
        let literal = |at: usize, name: &str, reason: &str| match arguments.get(at) {
            None => Ok(None),
            Some(value) => value
                .and_then(text_of)
                .ok_or_else(|| self.invalid(name, reason)),
        };
        let model = literal(
            1,
            "model",
            "expected a string literal, since the model says how wide the vectors are; without one \
             it is stratagraph.default_model",
        )?;
        let roles = "expected the literal 'document' or 'query'";
        let role = match literal(2, "role", roles)? {
            None | Some("document") => Role::Document,
            Some("query") => Role::Query,
            Some(_) => return Err(self.invalid("role", roles)),
        };
        let model = model.unwrap_or(&self.default_model).to_owned();
        Ok(Call { model, role })
    }

    /// The type of a call, whose text must be text. A server that this process has not asked yet is
    /// asked who it is.
    pub(super) fn field(&self, args: &ReturnFieldArgs<'_>) -> Result<FieldRef> {
        let call = self.call(args.scalar_arguments)?;
        if let Some(text) = args.arg_fields.first()
            && !is_text(text.data_type())
        {
            let reason = format!("expected text, found {}; cast it", text.data_type());
            return Err(self.invalid("text", reason));
        }
        let model = match self.known(&call)? {
            Some(model) => model,
            None => {
                let asked = self.engine.model(&call.model, Handshake::Known);
                wait(&call.model, "Stratagraph::open_model()", asked)??.1
            }
        };
        // A simplified call may be NULL where this one cannot be, and must have the same type.
        let data_type = self.data_type(model.as_ref())?;
        let field = Field::new(self.name(), data_type, true);
        // A plan keeps it to its end, so that no statement mixes two models of one name and width.
        let planned = (PLANNED.to_owned(), model.definition().hash().to_string());
        Ok(Arc::new(field.with_metadata([planned].into())))
    }

    pub(super) fn data_type(&self, model: &dyn Embedder) -> Result<DataType> {
        let vector = vector_type(model.dimensions())?;
        Ok(match self.shape {
            Shape::Vector => vector,
            Shape::Checked => DataType::Struct(checked_fields(vector)),
        })
    }

    /// The model, without a wait; `None` for a server that this process has not asked yet.
    pub(super) fn known(&self, call: &Call) -> Result<Option<Arc<dyn Embedder>>> {
        let Engine { models, policy, .. } = self.engine.as_ref();
        models.resolve_now(&call.model, policy)
    }

    /// Refuses another model, or one of another width, than the one that the statement was planned
    /// with.
    pub(super) fn check_planned(&self, model: &dyn Embedder, planned: &Field) -> Result<()> {
        let changed = |detail: String| {
            Err(Error::SchemaChanged {
                table: redact(model.spec()),
                detail,
            })
        };
        let found = self.data_type(model)?;
        if found != *planned.data_type() {
            return changed(format!("it gives {found}, not {}", planned.data_type()));
        }
        let found = model.definition().hash().to_string();
        match planned.metadata().get(PLANNED) {
            Some(planned) if *planned != found => changed(format!(
                "its definition is {found}, not {planned}; another model is behind the name"
            )),
            _ => Ok(()),
        }
    }

    /// The refusal to compute with a model that a statement would have to wait for.
    pub(super) fn cannot_wait(&self) -> Error {
        cannot_wait(self.name())
    }
}

/// The refusal to compute on a server where DataFusion cannot wait, for a function of this name.
pub(super) fn cannot_wait(name: &str) -> Error {
    Error::InvalidArgument {
        function: name.to_owned(),
        argument: "model".to_owned(),
        reason: format!(
            "the model computes on a server, and only a SELECT list or WHERE can wait for it; \
             compute the vectors in a CTE and use them here: WITH v AS (SELECT *, {name}(...) AS \
             vector FROM ...) SELECT ... FROM v"
        ),
    }
}

/// The fields of what `embed_checked` gives.
pub(super) fn checked_fields(vector: DataType) -> Fields {
    Fields::from(vec![
        Field::new("value", vector, true),
        Field::new("error", DataType::Utf8, true),
    ])
}

/// The literal ones of logical arguments.
pub(super) fn literals(args: &[Expr]) -> Vec<Option<&ScalarValue>> {
    args.iter().map(Expr::as_literal).collect()
}

/// The constant ones of evaluated arguments.
pub(super) fn constants(args: &[ColumnarValue]) -> Vec<Option<&ScalarValue>> {
    let mut constants = Vec::with_capacity(args.len());
    for arg in args {
        constants.push(match arg {
            ColumnarValue::Scalar(value) => Some(value),
            ColumnarValue::Array(_) => None,
        });
    }
    constants
}

/// The text of a literal: `Some(None)` for NULL, `None` for anything that is no text.
fn text_of(value: &ScalarValue) -> Option<Option<&str>> {
    match value {
        ScalarValue::Null => Some(None),
        value => value.try_as_str(),
    }
}

/// Text of any layout; an untyped placeholder or NULL has no type yet.
fn is_text(data_type: &DataType) -> bool {
    match data_type {
        DataType::Dictionary(_, values) => is_text(values),
        DataType::Null | DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => true,
        _ => false,
    }
}
