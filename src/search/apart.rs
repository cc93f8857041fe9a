//! Long work of the processor, apart from the threads that futures run on.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::{Error, Result};

/// Stops the work of a thread when the future that waits for it is dropped.
struct Stop(Arc<AtomicBool>);

impl Drop for Stop {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Does `work` on a thread for such work. What it is given says `true` once the future was dropped.
///
/// # Errors
/// Those of the work; `TaskFailed` if it panics.
pub(super) async fn apart<T: Send + 'static>(
    operation: &'static str,
    work: impl FnOnce(&dyn Fn() -> bool) -> Result<T> + Send + 'static,
) -> Result<T> {
    let stop = Arc::new(AtomicBool::new(false));
    let _guard = Stop(Arc::clone(&stop));
    let done = tokio::task::spawn_blocking(move || work(&|| stop.load(Ordering::Relaxed)));
    done.await.map_err(|e| Error::TaskFailed {
        operation,
        source: Box::new(e),
    })?
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::time::Duration;

    use super::*;

    #[tokio::test]
    async fn work_ends_with_the_future_that_waits_for_it() {
        assert_eq!(apart("test", |_| Ok(7)).await.unwrap(), 7);
        let panicked = apart("test", |_| -> Result<()> { panic!("as a test") }).await;
        assert_eq!(panicked.unwrap_err().code(), "TaskFailed");
        let (started, begun) = mpsc::channel();
        let (stopped, ended) = mpsc::channel();
        let work = tokio::spawn(apart("test", move |cancelled: &dyn Fn() -> bool| {
            started.send(()).unwrap();
            while !cancelled() {
                std::thread::yield_now();
            }
            stopped.send(()).unwrap();
            Ok(())
        }));
        tokio::task::spawn_blocking(move || begun.recv())
            .await
            .unwrap()
            .unwrap();
        work.abort();
        let wait = move || ended.recv_timeout(Duration::from_secs(30));
        tokio::task::spawn_blocking(wait).await.unwrap().unwrap();
    }
}
