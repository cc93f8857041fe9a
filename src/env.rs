//! What the engine needs from its host: time, unique ids, memory, CPU and progress. Nothing else in
//! the engine reads a clock or a random source, so a run with fixed ones is repeatable.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use async_trait::async_trait;

use crate::Result;

/// Wall-clock time and sleeping.
#[async_trait]
pub trait Clock: Send + Sync + std::fmt::Debug {
    /// Microseconds since 1970-01-01 UTC.
    fn now_micros(&self) -> i64;
    /// Waits; simulated clocks return at once.
    async fn sleep(&self, duration: Duration);
}

/// Unique ids.
pub trait Ids: Send + Sync + std::fmt::Debug {
    /// 1-64 ASCII letters or digits, never the same twice in any process.
    fn unique(&self) -> String;
    /// A number for jitter; quality does not matter.
    fn jitter(&self) -> u64;
}

/// Memory that grows with data is asked for here first.
pub trait Budget: Send + Sync + std::fmt::Debug {
    /// Takes `bytes`, or fails typed when they are not to be had.
    fn grow(&self, bytes: usize) -> Result<()>;
    /// Gives `bytes` back.
    fn shrink(&self, bytes: usize);
}

/// Reports of long work.
pub trait Progress: Send + Sync + std::fmt::Debug {
    /// `done` of `total` units (0 = unknown) of `phase`.
    fn report(&self, phase: &str, done: u64, total: u64);
}

/// Everything the engine takes from its host.
#[derive(Debug, Clone)]
pub struct Env {
    /// Time.
    pub clock: Arc<dyn Clock>,
    /// Ids.
    pub ids: Arc<dyn Ids>,
    /// Memory.
    pub budget: Arc<dyn Budget>,
    /// Progress.
    pub progress: Arc<dyn Progress>,
}

impl Env {
    /// The real clock and ULIDs, unlimited memory, silent progress.
    pub fn system() -> Self {
        Self {
            clock: Arc::new(SystemClock),
            ids: Arc::new(UlidIds::default()),
            budget: Arc::new(Unlimited),
            progress: Arc::new(Silent),
        }
    }

    /// A repeatable environment: a clock that steps one second a reading, counted ids of `seed`.
    pub fn fixed(seed: u64) -> Self {
        Self {
            clock: Arc::new(StepClock::default()),
            ids: Arc::new(CountedIds {
                seed,
                next: AtomicU64::new(0),
            }),
            budget: Arc::new(Unlimited),
            progress: Arc::new(Silent),
        }
    }
}

#[derive(Debug)]
struct SystemClock;

#[async_trait]
impl Clock for SystemClock {
    fn now_micros(&self) -> i64 {
        chrono::Utc::now().timestamp_micros()
    }
    async fn sleep(&self, duration: Duration) {
        tokio::time::sleep(duration).await;
    }
}

#[derive(Debug, Default)]
struct StepClock(AtomicU64);

#[async_trait]
impl Clock for StepClock {
    fn now_micros(&self) -> i64 {
        const START: i64 = 1_767_225_600_000_000;
        START + self.0.fetch_add(1, Ordering::Relaxed) as i64 * 1_000_000
    }
    async fn sleep(&self, _duration: Duration) {
        tokio::task::yield_now().await;
    }
}

#[derive(Debug, Default)]
struct UlidIds(AtomicU64);

impl Ids for UlidIds {
    #[expect(clippy::disallowed_methods, reason = "the one place that makes ids")]
    fn unique(&self) -> String {
        ulid::Ulid::new().to_string()
    }
    fn jitter(&self) -> u64 {
        let mixed = self.0.fetch_add(0x9E37_79B9_7F4A_7C15, Ordering::Relaxed);
        mixed ^ chrono::Utc::now().timestamp_subsec_nanos() as u64
    }
}

#[derive(Debug)]
struct CountedIds {
    seed: u64,
    next: AtomicU64,
}

impl Ids for CountedIds {
    fn unique(&self) -> String {
        format!(
            "S{:04}N{:06}",
            self.seed,
            self.next.fetch_add(1, Ordering::Relaxed)
        )
    }
    fn jitter(&self) -> u64 {
        0
    }
}

#[derive(Debug)]
struct Unlimited;

impl Budget for Unlimited {
    fn grow(&self, _bytes: usize) -> Result<()> {
        Ok(())
    }
    fn shrink(&self, _bytes: usize) {}
}

#[derive(Debug)]
struct Silent;

impl Progress for Silent {
    fn report(&self, _phase: &str, _done: u64, _total: u64) {}
}
