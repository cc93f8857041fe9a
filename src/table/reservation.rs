//! Memory that is taken from the host's budget and given back on drop.

use std::sync::Arc;

use crate::Result;
use crate::env::Budget;

/// Bytes held of a [`Budget`].
#[derive(Debug)]
pub struct Reservation {
    budget: Arc<dyn Budget>,
    bytes: usize,
}

impl Reservation {
    /// Holds nothing yet.
    pub fn new(budget: &Arc<dyn Budget>) -> Self {
        Self {
            budget: Arc::clone(budget),
            bytes: 0,
        }
    }

    /// Bytes held.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Holds exactly `bytes`.
    ///
    /// # Errors
    /// The budget's own, when it does not have what is missing; what was held stays held.
    pub fn resize(&mut self, bytes: usize) -> Result<()> {
        if bytes > self.bytes {
            self.budget.grow(bytes - self.bytes)?;
        } else {
            self.budget.shrink(self.bytes - bytes);
        }
        self.bytes = bytes;
        Ok(())
    }

    /// Holds `bytes` more.
    pub fn grow(&mut self, bytes: usize) -> Result<()> {
        self.resize(self.bytes.saturating_add(bytes))
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.budget.shrink(self.bytes);
    }
}
