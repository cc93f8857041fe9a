//! Between the rows of a call and a model: each distinct text goes to the model once.

use std::collections::HashMap;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, StringArray, StructArray, new_null_array};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Float32Type};
use datafusion::logical_expr::ColumnarValue;
use stratagraph::embed::{Embedded, EmbeddedBuilder, Embedder, RejectReason, redact};
use stratagraph::{Error, Result};
use stratagraph_providers::from_datafusion;

use super::embed_function::{Function, Shape, checked_fields};

/// The texts of a call.
pub(super) struct Rows {
    /// Each text once, in the order of the first row that has it.
    pub(super) distinct: StringArray,
    /// The text of each row; `None` where it is NULL.
    slots: Vec<Option<usize>>,
}

impl Rows {
    /// The rows of the first of some evaluated arguments.
    pub(super) fn of_argument(args: &[ColumnarValue], number_rows: usize) -> Result<Self> {
        let texts = match args.first() {
            Some(text) => text.to_array(number_rows).map_err(from_datafusion)?,
            None => new_null_array(&DataType::Utf8, number_rows),
        };
        let texts = cast(&texts, &DataType::Utf8)?;
        let texts = texts.as_string::<i32>();
        let mut known: HashMap<&str, usize> = HashMap::new();
        let mut distinct = Vec::new();
        let slot = |text: Option<_>| {
            let text = text?;
            Some(*known.entry(text).or_insert_with(|| {
                distinct.push(text);
                distinct.len() - 1
            }))
        };
        let slots = texts.iter().map(slot).collect();
        Ok(Self {
            distinct: StringArray::from_iter_values(distinct),
            slots,
        })
    }

    /// What a call gives, from the answer for the distinct texts. A NULL text has a NULL vector and
    /// no error.
    pub(super) fn answer(
        &self,
        function: &Function,
        model: &dyn Embedder,
        answer: &Embedded,
    ) -> Result<ArrayRef> {
        if answer.vectors.len() != self.distinct.len() {
            return Err(Error::ModelFailed {
                model: redact(model.spec()),
                reason: "its answer has another number of rows".to_owned(),
            });
        }
        let refused: HashMap<usize, RejectReason> = answer.errors.iter().copied().collect();
        if function.shape == Shape::Vector
            && let Some((slot, reason)) = answer.errors.first()
        {
            return Err(refusal(
                function,
                model,
                self.distinct.value(*slot),
                *reason,
            ));
        }
        let vectors = self.vectors(model, answer)?;
        if function.shape == Shape::Vector {
            return Ok(vectors);
        }
        let reason = |slot: &Option<usize>| {
            let reason = slot.and_then(|slot| refused.get(&slot));
            reason.map(|reason| reason.as_str())
        };
        let errors = StringArray::from_iter(self.slots.iter().map(reason));
        let fields = checked_fields(vectors.data_type().clone());
        let columns = vec![vectors, Arc::new(errors) as ArrayRef];
        Ok(Arc::new(StructArray::try_new(fields, columns, None)?))
    }

    /// The vector of each row; NULL for a text that is NULL or refused.
    fn vectors(&self, model: &dyn Embedder, answer: &Embedded) -> Result<ArrayRef> {
        // Every text has one row then, in order.
        if self.slots.len() == self.distinct.len() {
            return Ok(Arc::new(answer.vectors.clone()));
        }
        let rows = self.slots.len();
        let mut out = EmbeddedBuilder::new(model.spec(), model.dimensions(), rows)?;
        for slot in &self.slots {
            match slot.filter(|slot| answer.vectors.is_valid(*slot)) {
                Some(slot) => {
                    let vector = answer.vectors.value(slot);
                    out.push(vector.as_primitive::<Float32Type>().values())?;
                }
                None => out.reject(RejectReason::Empty),
            }
        }
        Ok(Arc::new(out.finish()?.vectors))
    }
}

fn refusal(function: &Function, model: &dyn Embedder, text: &str, reason: RejectReason) -> Error {
    /// Characters of a text that a message shows.
    const SHOWN: usize = 40;
    let mut shown: String = text.chars().take(SHOWN).collect();
    if shown.len() < text.len() {
        shown.push_str("...");
    }
    function.invalid(
        "text",
        format!(
            "model {:?} refuses {shown:?}: {reason}; use embed_checked, which gives NULL and the \
             reason, or leave the row out",
            redact(model.spec())
        ),
    )
}
