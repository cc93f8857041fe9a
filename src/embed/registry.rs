//! Models by name: those that a host offers, and those that this process has opened.

use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

use lru::LruCache;

use super::Embedder;
use super::open::{Opened, open_local};
use super::policy::ModelPolicy;
use super::spec::{ModelSpec, is_model_name, parse_spec};
use crate::env::Env;
use crate::{Error, Result, limits};

/// Whether a server may be taken for what it was when it was last asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Handshake {
    /// It is asked who it is. For verbs, which hold the answer against what a table records.
    Fresh,
    /// A server that this process has asked before is not asked again. For the text of a query, whose
    /// answer says who gave it.
    Known,
}

/// The models that a host registered, and the newest that were opened. Clones share one registry.
///
/// A name is looked up before a spec is parsed, and is not subject to the policy: the host vouches
/// for it. Names hold no `:` and so never hide a spec.
#[derive(Debug, Clone)]
pub struct ModelRegistry {
    models: Arc<RwLock<BTreeMap<String, Arc<dyn Embedder>>>>,
    opened: Arc<Mutex<LruCache<String, Opened>>>,
    /// Held while a model of files is read: who comes second finds it open.
    opening: Arc<Mutex<()>>,
}

impl Default for ModelRegistry {
    fn default() -> Self {
        let capacity = NonZeroUsize::new(limits::OPEN_MODELS).unwrap_or(NonZeroUsize::MIN);
        Self {
            models: Arc::default(),
            opened: Arc::new(Mutex::new(LruCache::new(capacity))),
            opening: Arc::default(),
        }
    }
}

impl ModelRegistry {
    /// Offers `model` as `name`: parts of `A-Z a-z 0-9 _ . -` joined by `/`, 128 bytes together.
    ///
    /// A name that is taken is [`Error::AlreadyExists`]: tables remember their model by this name.
    pub fn register(&self, name: &str, model: Arc<dyn Embedder>) -> Result<()> {
        if !is_model_name(name) {
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
    /// A model of local files is opened again when one of them is no longer the file that was read,
    /// on a thread that may block.
    ///
    /// The policy is asked before the spec is parsed, so a refused text cannot probe anything.
    pub async fn resolve(
        &self,
        text: &str,
        policy: &ModelPolicy,
        env: &Env,
        handshake: Handshake,
    ) -> Result<Arc<dyn Embedder>> {
        let spec = match self.find(text, policy)? {
            Found::Model(model) => return Ok(model),
            Found::Spec(spec) => spec,
        };
        let known = self.known(&spec);
        match (&spec, known) {
            (ModelSpec::OpenAi { .. } | ModelSpec::Tei { .. }, known) => {
                let known = known.map(|opened| opened.model);
                match (known, handshake) {
                    (Some(known), Handshake::Known) => Ok(known),
                    (known, _) => self.ask(&spec, known, env).await,
                }
            }
            (_, Some(opened)) => Ok(opened.model),
            (_, None) => {
                let (registry, policy) = (self.clone(), policy.clone());
                let open = move || registry.open(&spec, &policy);
                let opened = tokio::task::spawn_blocking(open).await;
                let opened = opened.map_err(|e| Error::TaskFailed {
                    operation: "opening a model",
                    source: Box::new(e),
                })??;
                opened.ok_or_else(|| Error::ModelFailed {
                    model: text.to_owned(),
                    reason: "it computes in no process of ours".to_owned(),
                })
            }
        }
    }

    /// As [`resolve`](Self::resolve) on the calling thread; `None` for a model behind a server that
    /// this process has not asked yet.
    pub fn resolve_now(
        &self,
        text: &str,
        policy: &ModelPolicy,
    ) -> Result<Option<Arc<dyn Embedder>>> {
        let spec = match self.find(text, policy)? {
            Found::Model(model) => return Ok(Some(model)),
            Found::Spec(spec) => spec,
        };
        match self.known(&spec) {
            Some(opened) => Ok(Some(opened.model)),
            None => self.open(&spec, policy),
        }
    }

    fn find(&self, text: &str, policy: &ModelPolicy) -> Result<Found> {
        let text = text.trim();
        let registered = {
            let models = self.models.read().unwrap_or_else(PoisonError::into_inner);
            models.get(text).map(Arc::clone)
        };
        match registered {
            Some(model) => Ok(Found::Model(model)),
            None => {
                policy.check(text)?;
                parse_spec(text).map(Found::Spec)
            }
        }
    }

    /// The model as it was opened, if its files are what they were.
    fn known(&self, spec: &ModelSpec) -> Option<Opened> {
        let opened = self.lock().get(&spec.to_string()).cloned();
        opened.filter(Opened::is_current)
    }

    fn open(&self, spec: &ModelSpec, policy: &ModelPolicy) -> Result<Option<Arc<dyn Embedder>>> {
        let _one = self.opening.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(opened) = self.known(spec) {
            return Ok(Some(opened.model));
        }
        let Some(opened) = open_local(spec, policy)? else {
            return Ok(None);
        };
        // Its parts would be of two generations.
        if !opened.is_current() {
            return Err(Error::ModelInvalid {
                model: spec.to_string(),
                file: String::new(),
                reason: "its files changed while they were read; try again".to_owned(),
            });
        }
        let model = Arc::clone(&opened.model);
        self.lock().put(spec.to_string(), opened);
        Ok(Some(model))
    }

    #[cfg(feature = "http")]
    async fn ask(
        &self,
        spec: &ModelSpec,
        known: Option<Arc<dyn Embedder>>,
        env: &Env,
    ) -> Result<Arc<dyn Embedder>> {
        let model: Arc<dyn Embedder> = Arc::new(super::remote::open(spec, env).await?);
        // The one that is known has answers of its own cached.
        if let Some(known) = known.filter(|known| known.definition() == model.definition()) {
            return Ok(known);
        }
        let opened = Opened {
            model: Arc::clone(&model),
            files: None,
        };
        self.lock().put(spec.to_string(), opened);
        Ok(model)
    }

    #[cfg(not(feature = "http"))]
    async fn ask(
        &self,
        spec: &ModelSpec,
        _known: Option<Arc<dyn Embedder>>,
        _env: &Env,
    ) -> Result<Arc<dyn Embedder>> {
        Err(super::open::left_out(&spec.to_string(), "http"))
    }

    fn lock(&self) -> MutexGuard<'_, LruCache<String, Opened>> {
        self.opened.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

enum Found {
    Model(Arc<dyn Embedder>),
    Spec(ModelSpec),
}
