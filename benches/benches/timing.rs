//! Interleaved measurements of alternatives.

use std::time::{Duration, Instant};

use datafusion::prelude::SessionContext;

/// Least time of each alternative over interleaved rounds: noise only ever adds.
pub async fn least(rounds: usize, alternatives: &mut [Box<dyn AsyncRun + '_>]) -> Vec<Duration> {
    let mut least = vec![Duration::MAX; alternatives.len()];
    for _ in 0..rounds {
        for (i, alternative) in alternatives.iter_mut().enumerate() {
            #[expect(clippy::disallowed_methods, reason = "a benchmark measures time")]
            let start = Instant::now();
            alternative.run().await;
            least[i] = least[i].min(start.elapsed());
        }
    }
    least
}

/// The time and the answer of something that runs once.
pub async fn once<T>(work: impl Future<Output = T>) -> (Duration, T) {
    #[expect(clippy::disallowed_methods, reason = "a benchmark measures time")]
    let start = Instant::now();
    let answer = work.await;
    (start.elapsed(), answer)
}

/// Something to measure.
#[async_trait::async_trait]
pub trait AsyncRun {
    async fn run(&mut self);
}

/// A statement, run to its end.
pub struct Sql<'a>(pub &'a SessionContext, pub String);

#[async_trait::async_trait]
impl AsyncRun for Sql<'_> {
    async fn run(&mut self) {
        self.0.sql(&self.1).await.unwrap().collect().await.unwrap();
    }
}

/// `a / b`.
pub fn ratio(a: Duration, b: Duration) -> f64 {
    a.as_secs_f64() / b.as_secs_f64()
}
