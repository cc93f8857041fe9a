//! Models for tests: one that waits to be let on.

use std::sync::Arc;

use async_trait::async_trait;
use stratagraph::Result;
use stratagraph::embed::{BatchLimits, Embedded, Embedder, ModelDefinition, Role};
use tokio::sync::Semaphore;

/// Waits in each call until it is released.
#[derive(Debug)]
pub struct GateEmbedder {
    inner: Arc<dyn Embedder>,
    entered: Semaphore,
    released: Semaphore,
}

impl GateEmbedder {
    pub fn new(inner: Arc<dyn Embedder>) -> Arc<Self> {
        Arc::new(Self {
            inner,
            entered: Semaphore::new(0),
            released: Semaphore::new(0),
        })
    }

    /// Waits until a call has come in.
    pub async fn entered(&self) {
        self.entered.acquire().await.unwrap().forget();
    }

    /// Lets calls on.
    pub fn release(&self, calls: usize) {
        self.released.add_permits(calls);
    }
}

#[async_trait]
impl Embedder for GateEmbedder {
    fn spec(&self) -> &str {
        self.inner.spec()
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
        self.entered.add_permits(1);
        self.released.acquire().await.unwrap().forget();
        self.inner.embed(role, texts).await
    }
}
