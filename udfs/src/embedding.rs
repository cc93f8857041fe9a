//! Calls of models from the runtime's threads.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use arrow::array::StringArray;
use datafusion::common::runtime::SpawnedTask;
use stratagraph::embed::{Embedded, Embedder, Role, embed_checked, embed_checked_until, redact};
use stratagraph::{Error, Result};

const OPERATION: &str = "embedding";

/// Embeds texts: a slot a row, as [`embed_checked`]. A NULL is a row without text.
///
/// A local model computes on a thread of its own, so that the runtime stays free. Whoever drops the
/// future stops it between batches.
pub(crate) async fn embed(
    model: Arc<dyn Embedder>,
    role: Role,
    texts: StringArray,
) -> Result<Embedded> {
    if model.sync().is_none() {
        let texts: Vec<Option<&str>> = texts.iter().collect();
        return embed_checked(model.as_ref(), role, &texts).await;
    }
    let stop = StopOnDrop::default();
    let stopped = Arc::clone(&stop.0);
    let work = move || compute(model.as_ref(), role, &texts, &stopped);
    let answer = SpawnedTask::spawn_blocking(work).join().await;
    answer.map_err(|e| Error::TaskFailed {
        operation: OPERATION,
        source: Box::new(e),
    })?
}

/// Tells the thread that nobody waits any more: a blocking task cannot be aborted.
#[derive(Default)]
struct StopOnDrop(Arc<AtomicBool>);

impl Drop for StopOnDrop {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

fn compute(
    model: &dyn Embedder,
    role: Role,
    texts: &StringArray,
    stopped: &AtomicBool,
) -> Result<Embedded> {
    let texts: Vec<Option<&str>> = texts.iter().collect();
    let stopped = || stopped.load(Ordering::Relaxed);
    embed_checked_until(model, role, &texts, &stopped).unwrap_or_else(|| {
        Err(Error::ModelFailed {
            model: redact(model.spec()),
            reason: "its synchronous path went away".to_owned(),
        })
    })
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;
    use std::sync::mpsc::{Receiver, Sender, channel};
    use std::sync::{Mutex, PoisonError};
    use std::time::Duration;

    use arrow::array::Array;
    use async_trait::async_trait;
    use stratagraph::embed::{BatchLimits, HashEmbedder, ModelDefinition, SyncEmbedder};

    use super::*;

    const LONG: Duration = Duration::from_secs(60);

    /// Computes a text at a time, each when it is told to.
    #[derive(Debug)]
    struct Gate {
        inner: HashEmbedder,
        calls: AtomicUsize,
        released: Mutex<Receiver<()>>,
    }

    fn gate() -> (Arc<Gate>, Sender<()>) {
        let (release, released) = channel();
        let gate = Gate {
            inner: HashEmbedder::new(8).unwrap(),
            calls: AtomicUsize::new(0),
            released: Mutex::new(released),
        };
        (Arc::new(gate), release)
    }

    #[async_trait]
    impl Embedder for Gate {
        fn spec(&self) -> &str {
            "gate"
        }

        fn dimensions(&self) -> usize {
            8
        }

        fn definition(&self) -> &ModelDefinition {
            self.inner.definition()
        }

        fn limits(&self) -> BatchLimits {
            BatchLimits {
                rows: 1,
                bytes: 1 << 20,
            }
        }

        fn sync(&self) -> Option<&dyn SyncEmbedder> {
            Some(self)
        }

        async fn embed(&self, role: Role, texts: &[Option<&str>]) -> Result<Embedded> {
            self.embed_now(role, texts)
        }
    }

    impl SyncEmbedder for Gate {
        fn embed_now(&self, role: Role, texts: &[Option<&str>]) -> Result<Embedded> {
            self.calls.fetch_add(1, Ordering::SeqCst);
            let released = self.released.lock().unwrap_or_else(PoisonError::into_inner);
            released.recv_timeout(LONG).unwrap();
            self.inner.embed_now(role, texts)
        }
    }

    async fn until(what: impl Fn() -> bool) {
        let wait = async {
            while !what() {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        tokio::time::timeout(LONG, wait).await.unwrap();
    }

    #[tokio::test]
    async fn a_local_model_leaves_the_runtime_free() {
        let (model, release) = gate();
        let texts = StringArray::from(vec![Some("one"), None, Some("two")]);
        let work = embed(Arc::clone(&model) as _, Role::Query, texts);
        // This runtime has one thread, which the waiting model must not hold.
        let free = async {
            for done in 0..3 {
                until(|| model.calls.load(Ordering::SeqCst) > done).await;
                release.send(()).unwrap();
            }
        };
        let (answer, ()) = tokio::join!(work, free);
        let answer = answer.unwrap();
        let texts = [Some("one"), None, Some("two")];
        let expected = embed_checked(&model.inner, Role::Query, &texts).await;
        assert_eq!(answer, expected.unwrap());
        assert!(answer.vectors.is_null(1));
    }

    #[tokio::test]
    async fn whoever_goes_away_stops_it_between_batches() {
        let (model, release) = gate();
        let texts = StringArray::from(vec!["one", "two", "three"]);
        let work = tokio::spawn(embed(Arc::clone(&model) as _, Role::Query, texts));
        until(|| model.calls.load(Ordering::SeqCst) == 1).await;
        work.abort();
        assert!(work.await.unwrap_err().is_cancelled());
        for _ in 0..3 {
            release.send(()).unwrap();
        }
        until(|| Arc::strong_count(&model) == 1).await;
        assert_eq!(model.calls.load(Ordering::SeqCst), 1);
    }
}
