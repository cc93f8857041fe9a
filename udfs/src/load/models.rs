//! The models of a load, and what they have answered.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, PoisonError};

use datafusion::execution::memory_pool::MemoryReservation;
use stratagraph::embed::{Embedder, Handshake, RejectReason};
use stratagraph::graph::schema::{GraphSchema, GraphType, Property};
use stratagraph::graph::value::ValueType;
use stratagraph::{Error, Result};

use super::rows::Loaded;
use crate::engine::Run;
use crate::host::Host;

/// Bytes of texts and vectors that a load remembers, so that another try computes nothing again.
const REMEMBERED_BYTES: usize = 64 * 1024 * 1024;
/// Share of a bounded pool that they take: the load itself needs the rest.
const REMEMBERED_SHARE: usize = 32;

/// A vector, or why there is none.
pub(crate) type Answer = std::result::Result<Arc<[f32]>, RejectReason>;

/// The models of a load.
pub(crate) struct Models {
    /// By property id.
    models: BTreeMap<u64, Arc<dyn Embedder>>,
    known: Mutex<Known>,
}

struct Known {
    answers: HashMap<(u64, String), Answer>,
    /// Bytes that they may take.
    room: usize,
    memory: MemoryReservation,
}

impl Models {
    /// None: vectors are loaded as they are.
    pub(crate) fn none(host: &Host) -> Self {
        Self {
            models: BTreeMap::new(),
            known: Mutex::new(Known {
                answers: HashMap::new(),
                room: match host.memory_limit() {
                    Some(limit) => (limit / REMEMBERED_SHARE).min(REMEMBERED_BYTES),
                    None => REMEMBERED_BYTES,
                },
                memory: host.memory("embedded texts"),
            }),
        }
    }

    /// Opens the models of the types that the load brings.
    ///
    /// # Errors
    /// Those of the models; `InvalidArgument` for one whose width is not that of its property.
    pub(crate) async fn open(run: &Run, schema: &GraphSchema, loaded: &Loaded) -> Result<Self> {
        let mut models = Self::none(&run.host);
        let types = schema.types.iter();
        for of in types.filter(|of| loaded.types.contains_key(&of.id)) {
            for property in &of.properties {
                let (Some(embed), ValueType::Vector(width)) =
                    (&property.embed, &property.value_type)
                else {
                    continue;
                };
                let default = run.host.settings().default_model;
                let text = embed.model.as_ref().unwrap_or(&default);
                let (_, model) = run.engine.model(text, Handshake::Known).await?;
                if model.dimensions() != *width as usize {
                    return Err(Error::InvalidArgument {
                        function: "graph_load".to_owned(),
                        argument: "embed".to_owned(),
                        reason: format!(
                            "{}.{} is a vector of {width} and model {text:?} makes vectors of {}; \
                             name a model of this width in @embed",
                            of.name,
                            property.name,
                            model.dimensions()
                        ),
                    });
                }
                models.models.insert(property.id, model);
            }
        }
        Ok(models)
    }

    /// The properties of a type that are filled.
    pub(crate) fn of<'a>(&'a self, of: &'a GraphType) -> Vec<Filled<'a>> {
        let places = of.properties.iter().enumerate();
        let filled = places.filter_map(|(at, property)| {
            let model = self.models.get(&property.id)?;
            let source = property.embed.as_ref()?.source;
            let source = of.properties.iter().position(|p| p.id == source)?;
            Some(Filled {
                property,
                at,
                source,
                model,
            })
        });
        filled.collect()
    }

    /// The answer for a text that was embedded before.
    pub(crate) fn known(&self, property: u64, text: &str) -> Option<Answer> {
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.answers.get(&(property, text.to_owned())).cloned()
    }

    /// Remembers an answer while there is room.
    pub(crate) fn remember(&self, property: u64, text: &str, answer: &Answer) {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let vector = answer.as_ref().map_or(0, |v| v.len() * size_of::<f32>());
        let bytes = text.len() + vector + 96;
        let room = known.memory.size() + bytes <= known.room;
        if room && known.memory.try_grow(bytes).is_ok() {
            let key = (property, text.to_owned());
            known.answers.insert(key, answer.clone());
        }
    }
}

/// A property that is filled.
pub(crate) struct Filled<'a> {
    pub(crate) property: &'a Property,
    /// Its place and that of its text among the properties.
    pub(crate) at: usize,
    pub(crate) source: usize,
    pub(crate) model: &'a Arc<dyn Embedder>,
}

impl Filled<'_> {
    pub(crate) fn width(&self) -> usize {
        self.model.dimensions()
    }
}
