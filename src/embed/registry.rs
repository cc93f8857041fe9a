//! Models that a host offers by name.

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError, RwLock};

use super::Embedder;
use super::model::{self, ModelPolicy};
use crate::{Error, Result, limits};

/// The models that a host registered. Clones share one registry.
///
/// A name is looked up before a spec is parsed, and is not subject to the policy: the host vouches
/// for it. Names hold no `:` and so never hide a spec.
#[derive(Debug, Clone, Default)]
pub struct ModelRegistry {
    models: Arc<RwLock<BTreeMap<String, Arc<dyn Embedder>>>>,
}

impl ModelRegistry {
    /// Offers `model` as `name`: parts of `A-Z a-z 0-9 _ . -` joined by `/`, 128 bytes together.
    ///
    /// A name that is taken is [`Error::AlreadyExists`]: tables remember their model by this name.
    pub fn register(&self, name: &str, model: Arc<dyn Embedder>) -> Result<()> {
        if !model::is_model_name(name) {
            return Err(Error::InvalidIdentifier {
                what: "model",
                name: name.chars().take(limits::NAME_BYTES / 4).collect(),
                rule: "use parts of A-Z a-z 0-9 _ . - joined by '/', 1-128 bytes",
            });
        }
        let mut models = self.models.write().unwrap_or_else(PoisonError::into_inner);
        if models.contains_key(name) {
            return Err(Error::AlreadyExists {
                what: "model",
                name: name.to_owned(),
            });
        }
        models.insert(name.to_owned(), model);
        Ok(())
    }

    /// The registered names, sorted, with their models.
    pub fn list(&self) -> Vec<(String, Arc<dyn Embedder>)> {
        let models = self.models.read().unwrap_or_else(PoisonError::into_inner);
        models
            .iter()
            .map(|(name, model)| (name.clone(), Arc::clone(model)))
            .collect()
    }

    /// The model that `text` names: a registered name, else a spec that `policy` allows.
    ///
    /// The policy is asked before the spec is parsed, so a refused text cannot probe anything.
    pub fn resolve(&self, text: &str, policy: &ModelPolicy) -> Result<Arc<dyn Embedder>> {
        let registered = {
            let models = self.models.read().unwrap_or_else(PoisonError::into_inner);
            models.get(text).map(Arc::clone)
        };
        match registered {
            Some(model) => Ok(model),
            None => {
                policy.check(text)?;
                model::resolve(&model::parse_spec(text)?, policy)
            }
        }
    }
}
