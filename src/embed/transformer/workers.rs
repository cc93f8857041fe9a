//! One inference thread per worker.
//!
//! The matrix products of a model would otherwise spread over the process-wide pool of threads, which
//! costs more than it gives for inputs as short as ours; callers run several batches at a time
//! instead.

use std::sync::{Mutex, PoisonError};

use rayon::{ThreadPool, ThreadPoolBuilder};

/// Pools of one thread each; as many as there were calls at a time.
#[derive(Debug, Default)]
pub(super) struct Workers(Mutex<Vec<ThreadPool>>);

impl Workers {
    /// Runs `work` on a worker. Without a thread to be had it runs where it is called.
    pub(super) fn run<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        let idle = self.lock().pop();
        let fresh = || {
            let builder = ThreadPoolBuilder::new().num_threads(1);
            builder
                .thread_name(|_| "stratagraph-model".to_owned())
                .build()
                .ok()
        };
        match idle.or_else(fresh) {
            None => work(),
            Some(pool) => {
                let answer = pool.install(work);
                self.lock().push(pool);
                answer
            }
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<ThreadPool>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
