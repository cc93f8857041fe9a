//! Models for tests: one that counts, one that fails on purpose, and a server that does both.

pub mod log;
#[cfg(feature = "http")]
pub mod server;
pub mod tiny_bert;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;

use super::{
    BatchLimits, Embedded, EmbeddedBuilder, Embedder, ModelDefinition, RejectReason, Role,
    SyncEmbedder,
};
use crate::{Error, Result};

/// A model that passes every call on and remembers it.
#[derive(Debug)]
pub struct CountingEmbedder {
    name: String,
    inner: Arc<dyn Embedder>,
    limits: BatchLimits,
    calls: AtomicUsize,
    texts: Mutex<Vec<Option<String>>>,
}

impl CountingEmbedder {
    /// Counts the calls of `inner`, under the spec `name` and with the definition of `inner`.
    pub fn new(name: &str, inner: Arc<dyn Embedder>) -> Self {
        Self {
            name: name.to_owned(),
            limits: inner.limits(),
            inner,
            calls: AtomicUsize::new(0),
            texts: Mutex::new(Vec::new()),
        }
    }

    /// The same with other batch limits.
    pub fn with_limits(mut self, limits: BatchLimits) -> Self {
        self.limits = limits;
        self
    }

    /// Calls since the last [`reset`](Self::reset).
    pub fn calls(&self) -> usize {
        self.calls.load(Ordering::SeqCst)
    }

    /// Texts given to the model since the last reset.
    pub fn rows(&self) -> usize {
        self.lock().len()
    }

    /// Those texts, in the order of arrival.
    pub fn texts(&self) -> Vec<Option<String>> {
        self.lock().clone()
    }

    /// Forgets everything counted.
    pub fn reset(&self) {
        self.calls.store(0, Ordering::SeqCst);
        self.lock().clear();
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Option<String>>> {
        self.texts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn record(&self, texts: &[Option<&str>]) {
        self.calls.fetch_add(1, Ordering::SeqCst);
        self.lock()
            .extend(texts.iter().map(|text| text.map(str::to_owned)));
    }
}

#[async_trait]
impl Embedder for CountingEmbedder {
    fn spec(&self) -> &str {
        &self.name
    }

    fn dimensions(&self) -> usize {
        self.inner.dimensions()
    }

    fn definition(&self) -> &ModelDefinition {
        self.inner.definition()
    }

    fn limits(&self) -> BatchLimits {
        self.limits
    }

    fn sync(&self) -> Option<&dyn SyncEmbedder> {
        self.inner.sync().map(|_| self as &dyn SyncEmbedder)
    }

    async fn embed(&self, role: Role, texts: &[Option<&str>]) -> Result<Embedded> {
        self.record(texts);
        self.inner.embed(role, texts).await
    }
}

impl SyncEmbedder for CountingEmbedder {
    fn embed_now(&self, role: Role, texts: &[Option<&str>]) -> Result<Embedded> {
        match self.inner.sync() {
            Some(inner) => {
                self.record(texts);
                inner.embed_now(role, texts)
            }
            None => Err(Error::ModelFailed {
                model: self.name.clone(),
                reason: "it has no synchronous path".to_owned(),
            }),
        }
    }
}

/// What a [`FaultyEmbedder`] does wrong.
#[derive(Debug, Clone)]
pub enum Fault {
    /// Every call after the first `calls` fails as a whole.
    FailAfter {
        /// Calls that succeed.
        calls: usize,
    },
    /// Texts that contain `needle` are refused.
    Reject {
        /// What marks them.
        needle: String,
        /// Why.
        reason: RejectReason,
    },
    /// The last vector is left out.
    MissingVector,
    /// Vectors have one component more.
    WrongWidth,
    /// The first vector holds this number in its first component.
    Component(f32),
    /// The first vector is zero.
    ZeroVector,
    /// The first refusal is not reported, its slot stays null; without one, a refusal is made up.
    WrongErrors,
}

/// A model that behaves as `inner` but for one [`Fault`], which can be changed at any time. It has no
/// synchronous path.
#[derive(Debug)]
pub struct FaultyEmbedder {
    name: String,
    inner: Arc<dyn Embedder>,
    calls: AtomicUsize,
    fault: Mutex<Option<Fault>>,
}

impl FaultyEmbedder {
    /// A model that is well as long as no fault is set.
    pub fn new(name: &str, inner: Arc<dyn Embedder>) -> Self {
        Self {
            name: name.to_owned(),
            inner,
            calls: AtomicUsize::new(0),
            fault: Mutex::new(None),
        }
    }

    /// Sets or heals the fault, and counts calls from zero again.
    pub fn set(&self, fault: Option<Fault>) {
        self.calls.store(0, Ordering::SeqCst);
        *self.fault.lock().unwrap_or_else(PoisonError::into_inner) = fault;
    }

    fn spoil(&self, good: Embedded, fault: &Fault, texts: &[Option<&str>]) -> Result<Embedded> {
        let width = self.dimensions();
        let (mut rows, mut errors) = (Vec::new(), good.errors);
        for chunk in super::embedded::components(&good.vectors)?.chunks_exact(width) {
            rows.push(chunk.to_vec());
        }
        let mut out_width = width;
        match fault {
            Fault::FailAfter { .. } => {}
            Fault::Reject { needle, reason } => {
                let hit = |row: &usize| texts[*row].is_some_and(|t| t.contains(needle.as_str()));
                errors.retain(|(row, _)| !hit(row));
                errors.extend((0..texts.len()).filter(hit).map(|row| (row, *reason)));
                errors.sort_unstable();
            }
            Fault::MissingVector => drop(rows.pop()),
            Fault::WrongWidth => {
                out_width += 1;
                rows.iter_mut().for_each(|row| row.push(1.0));
            }
            Fault::Component(x) => {
                if let Some(first) = rows.first_mut().and_then(|row| row.first_mut()) {
                    *first = *x;
                }
            }
            Fault::ZeroVector => {
                if let Some(row) = rows.first_mut() {
                    row.fill(0.0);
                }
            }
            Fault::WrongErrors => {}
        }
        let mut out = EmbeddedBuilder::new(&self.name, out_width, rows.len())?;
        for (row, vector) in rows.iter().enumerate() {
            match errors.iter().find(|(refused, _)| *refused == row) {
                Some((_, reason)) => out.reject(*reason),
                None => out.push(vector)?,
            }
        }
        let mut out = out.finish()?;
        if matches!(fault, Fault::WrongErrors) {
            if out.errors.is_empty() {
                out.errors.push((0, RejectReason::Rejected));
            } else {
                out.errors.remove(0);
            }
        }
        Ok(out)
    }
}

#[async_trait]
impl Embedder for FaultyEmbedder {
    fn spec(&self) -> &str {
        &self.name
    }

    fn dimensions(&self) -> usize {
        self.inner.dimensions()
    }

    fn definition(&self) -> &ModelDefinition {
        self.inner.definition()
    }

    fn limits(&self) -> BatchLimits {
        self.inner.limits()
    }

    async fn embed(&self, role: Role, texts: &[Option<&str>]) -> Result<Embedded> {
        let earlier = self.calls.fetch_add(1, Ordering::SeqCst);
        let fault = {
            let guard = self.fault.lock().unwrap_or_else(PoisonError::into_inner);
            guard.clone()
        };
        match fault {
            Some(Fault::FailAfter { calls }) if earlier >= calls => Err(Error::ModelFailed {
                model: self.name.clone(),
                reason: "told to fail".to_owned(),
            }),
            Some(fault) => self.spoil(self.inner.embed(role, texts).await?, &fault, texts),
            None => self.inner.embed(role, texts).await,
        }
    }
}
