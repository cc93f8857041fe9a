//! When a search asks whether it is still wanted.

use crate::{Error, Result};

/// Steps between two questions.
const STEPS: u32 = 1024;

/// Counts steps of a few microseconds at most.
pub(super) struct Pace<'a> {
    cancel: &'a dyn Fn() -> bool,
    steps: u32,
}

impl<'a> Pace<'a> {
    pub(super) fn new(cancel: &'a dyn Fn() -> bool) -> Self {
        Self { cancel, steps: 0 }
    }

    /// One step.
    #[inline]
    pub(super) fn step(&mut self) -> Result<()> {
        self.steps += 1;
        if self.steps < STEPS {
            return Ok(());
        }
        self.ask()
    }

    /// Asks now.
    pub(super) fn ask(&mut self) -> Result<()> {
        self.steps = 0;
        if (self.cancel)() {
            return Err(Error::Cancelled {
                operation: "text search",
            });
        }
        Ok(())
    }
}
