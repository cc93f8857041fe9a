//! One store call at a time: every call of every actor waits until it is granted.

use std::fmt;
use std::future::poll_fn;
use std::sync::{Arc, Mutex};
use std::task::{Poll, Waker};

use futures::FutureExt;
use futures::future::{BoxFuture, ready};
use object_store::ObjectStore;
use tokio::sync::oneshot;

use super::call::Op;
use super::fault::{FaultBase, FaultStore, Gate};
use super::lock;

/// A call that an actor wants to make, or made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Step {
    /// The actor.
    pub actor: usize,
    /// The call.
    pub op: Op,
    /// Its key, or the prefix of a list.
    pub key: String,
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {} {}", self.actor, self.op, self.key)
    }
}

#[derive(Debug)]
struct Waiter {
    number: u64,
    step: Step,
    grant: oneshot::Sender<()>,
}

#[derive(Debug, Default)]
struct State {
    closed: bool,
    arrivals: u64,
    waiting: Vec<Waiter>,
    trace: Vec<Step>,
}

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    idle: Idle,
}

/// Hands out stores whose calls wait for a grant. Clones are the same scheduler.
///
/// Until the actors run, and after they have finished, calls pass freely: worlds are set up and checked
/// that way.
#[derive(Debug, Clone, Default)]
pub struct Scheduler {
    shared: Arc<Shared>,
    seed: u64,
}

impl Scheduler {
    pub(super) fn new(seed: u64) -> Self {
        Self {
            seed,
            ..Self::default()
        }
    }

    /// Seed of this run, for fault plans and data; 0 in an enumeration.
    pub fn seed(&self) -> u64 {
        self.seed
    }

    /// A handle of `actor` on `base`.
    pub fn store_on(&self, actor: usize, base: &Arc<FaultBase>) -> FaultStore {
        FaultStore::on(base).with_gate(Arc::new(ActorGate {
            shared: Arc::clone(&self.shared),
            actor,
        }))
    }

    /// A handle of `actor` on a store.
    pub fn store(&self, actor: usize, store: Arc<dyn ObjectStore>) -> FaultStore {
        self.store_on(actor, &FaultBase::new(store))
    }

    /// The granted calls so far.
    pub fn trace(&self) -> Vec<Step> {
        lock(&self.shared.state).trace.clone()
    }

    /// The calls that wait, by actor and then by arrival. Calls whose future was dropped are gone.
    pub(super) fn waiting(&self) -> Vec<Step> {
        let mut state = lock(&self.shared.state);
        state.waiting.retain(|w| !w.grant.is_closed());
        state.waiting.sort_by_key(|w| (w.step.actor, w.number));
        state.waiting.iter().map(|w| w.step.clone()).collect()
    }

    /// Grants the waiting call at `index` of [`waiting`](Self::waiting).
    pub(super) fn grant(&self, index: usize) {
        let mut state = lock(&self.shared.state);
        if index < state.waiting.len() {
            let waiter = state.waiting.remove(index);
            state.trace.push(waiter.step);
            // A receiver that is gone by now needs no grant.
            let _ = waiter.grant.send(());
        }
    }

    pub(super) fn close(&self) {
        lock(&self.shared.state).closed = true;
    }

    /// Lets all calls pass, those that wait too.
    pub(super) fn open(&self) {
        let mut state = lock(&self.shared.state);
        state.closed = false;
        state.waiting.clear();
    }

    /// The runtime to run actors on: it tells when none of its tasks can go on.
    pub(super) fn runtime(&self) -> std::io::Result<tokio::runtime::Runtime> {
        let shared = Arc::clone(&self.shared);
        tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .on_thread_park(move || shared.idle.fire())
            .build()
    }

    /// Waits until no task of [`runtime`](Self::runtime) can go on: each has finished or waits.
    pub(super) async fn idle(&self) {
        self.shared.idle.wait().await;
    }
}

#[derive(Debug)]
struct ActorGate {
    shared: Arc<Shared>,
    actor: usize,
}

impl Gate for ActorGate {
    fn pass(&self, op: Op, key: &str) -> BoxFuture<'static, ()> {
        let mut state = lock(&self.shared.state);
        if !state.closed {
            return ready(()).boxed();
        }
        let (grant, granted) = oneshot::channel();
        let number = state.arrivals;
        state.arrivals += 1;
        state.waiting.push(Waiter {
            number,
            step: Step {
                actor: self.actor,
                op,
                key: key.to_owned(),
            },
            grant,
        });
        // A dropped sender means that the gate was opened.
        granted.map(drop).boxed()
    }
}

/// Wakes the driver, which is the runtime's main future, when the thread is about to sleep.
#[derive(Debug, Default)]
struct Idle(Mutex<(Option<Waker>, bool)>);

impl Idle {
    fn fire(&self) {
        let mut state = lock(&self.0);
        if let Some(waker) = state.0.take() {
            state.1 = true;
            drop(state);
            waker.wake();
        }
    }

    async fn wait(&self) {
        poll_fn(|cx| {
            let mut state = lock(&self.0);
            if std::mem::take(&mut state.1) {
                return Poll::Ready(());
            }
            state.0 = Some(cx.waker().clone());
            Poll::Pending
        })
        .await;
    }
}
