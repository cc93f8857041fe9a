//! Simulated trouble, for tests: stores whose calls fail, stop, come late or come twice ([`fault`]),
//! a scheduler that decides which of several processes makes its next store call ([`sched`],
//! [`explore`]), and a disk whose power can be cut ([`power`]).
//!
//! Everything here is repeatable: the same plan, seed and choices give the same calls.

pub mod call;
mod choose;
pub mod explore;
pub mod fault;
mod intercept;
mod network;
pub mod power;
pub mod sched;

use std::sync::{Mutex, MutexGuard, PoisonError};

pub use call::{Call, Op};
pub use explore::{Explored, Explorer, Violation, World};
pub use fault::{Fault, FaultBase, FaultStore};
pub use power::{PowerCut, SimDisk};
pub use sched::Scheduler;

fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A repeatable stream of numbers (SplitMix64).
#[derive(Debug, Clone)]
pub struct Rng(u64);

impl Rng {
    /// The stream of `seed`.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next number.
    pub fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// A number below `end`; 0 when `end` is 0.
    pub fn below(&mut self, end: u64) -> u64 {
        self.next_u64() % end.max(1)
    }

    /// True with probability `p`.
    pub fn chance(&mut self, p: f64) -> bool {
        // 53 bits are what a double holds exactly.
        ((self.next_u64() >> 11) as f64) < p * (1u64 << 53) as f64
    }
}
