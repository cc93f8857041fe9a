//! Pins of statements that run in this process.
//!
//! A statement looks, registers, and then compares with the announced sweep; a sweep announces
//! itself and then reads the pins. Whichever comes second sees the other.

use std::collections::BTreeMap;
use std::ops::Deref;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::log::{Catalog, Head};
use crate::Result;

#[derive(Debug, Default)]
struct State {
    /// Newest catalog version whose sweep has begun.
    announced: u64,
    pinned: BTreeMap<u64, (usize, Arc<Head>)>,
}

/// The pins of one catalog in this process.
#[derive(Debug, Default)]
pub(super) struct LivePins(Mutex<State>);

impl LivePins {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn register(&self, head: &Arc<Head>) {
        let mut state = self.lock();
        state
            .pinned
            .entry(head.version)
            .or_insert_with(|| (0, Arc::clone(head)))
            .0 += 1;
    }

    fn release(&self, version: u64) {
        let mut state = self.lock();
        if let Some((count, _)) = state.pinned.get_mut(&version) {
            *count -= 1;
            if *count == 0 {
                state.pinned.remove(&version);
            }
        }
    }

    fn announced(&self) -> u64 {
        self.lock().announced
    }

    /// Announces the sweep of `version`, then gives the heads that statements read.
    pub(super) fn announce(&self, version: u64) -> Vec<Arc<Head>> {
        let mut state = self.lock();
        state.announced = state.announced.max(version);
        state
            .pinned
            .values()
            .map(|(_, head)| Arc::clone(head))
            .collect()
    }
}

/// A head whose objects no sweep of this process deletes while this value lives.
#[derive(Debug)]
pub struct SnapshotPin {
    catalog: Arc<Catalog>,
    head: Arc<Head>,
}

impl SnapshotPin {
    /// The pinned head.
    pub fn head(&self) -> &Arc<Head> {
        &self.head
    }

    /// The catalog it pins.
    pub fn catalog(&self) -> &Arc<Catalog> {
        &self.catalog
    }
}

impl Deref for SnapshotPin {
    type Target = Head;
    fn deref(&self) -> &Head {
        &self.head
    }
}

impl Drop for SnapshotPin {
    fn drop(&mut self) {
        self.catalog.live.release(self.head.version);
    }
}

impl Catalog {
    /// Looks at the head and pins it.
    pub async fn pin(self: &Arc<Self>) -> Result<SnapshotPin> {
        loop {
            let head = self.look().await?;
            if let Some(pin) = self.try_pin(head) {
                return Ok(pin);
            }
        }
    }

    /// Pins a head that is known already; `None` if a newer sweep may have deleted its objects.
    pub fn try_pin(self: &Arc<Self>, head: Arc<Head>) -> Option<SnapshotPin> {
        self.live.register(&head);
        let pin = SnapshotPin {
            catalog: Arc::clone(self),
            head,
        };
        (self.live.announced() <= pin.version).then_some(pin)
    }
}
