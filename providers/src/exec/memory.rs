//! The engine's memory out of the pool of a task.

use std::sync::Arc;

use datafusion::execution::memory_pool::{MemoryConsumer, MemoryPool, MemoryReservation};
use stratagraph::Result;
use stratagraph::env::Budget;

use crate::error::from_datafusion;

/// The engine's budget over a reservation in a memory pool.
#[derive(Debug)]
pub struct PoolBudget(MemoryReservation);

impl PoolBudget {
    /// A consumer of its own in a pool.
    pub fn of(pool: &Arc<dyn MemoryPool>, consumer: &str) -> Arc<dyn Budget> {
        let consumer = MemoryConsumer::new(format!("stratagraph {consumer}"));
        Arc::new(Self(consumer.register(pool)))
    }
}

impl Budget for PoolBudget {
    fn grow(&self, bytes: usize) -> Result<()> {
        self.0.try_grow(bytes).map_err(from_datafusion)
    }

    fn shrink(&self, bytes: usize) {
        self.0.shrink(bytes);
    }
}
