//! A store whose calls are counted, written down, and fail as planned.
//!
//! A [`FaultStore`] is one process's handle; several on one [`FaultBase`] are several processes on one
//! store. Puts of lost or slow calls belong to the network, so they land whatever became of the
//! process that sent them.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use futures::future::BoxFuture;
use object_store::path::Path;
use object_store::{
    Error, ObjectStore, ObjectStoreExt, PutMode, PutOptions, PutPayload, PutResult, Result,
};

use super::call::{self, Call, Op};
pub use super::network::FaultBase;
use super::network::Late;
use super::{Rng, lock};

const STORE: &str = "FaultStore";

/// What happens to one call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// An error; nothing was done.
    FailBefore,
    /// It is done, but the answer is an error.
    EffectThenFail,
    /// The process ends before the call: this one and every later call of this handle fails.
    StopBefore,
    /// It is done, then the process ends.
    EffectThenStop,
    /// A create answers `AlreadyExists` although nothing is there; anything else fails before.
    Conflict409,
    /// A put or delete answers an error now and is done after so many further calls of any handle on
    /// the same base; anything else fails before.
    Delayed(u64),
    /// A put or delete is done and answered, and done once more after so many further calls; anything
    /// else is done once.
    Duplicated(u64),
    /// A read delivers half of its bytes, then an error; a list half of its entries, then an error;
    /// anything else fails before.
    ShortRead,
    /// A read delivers half of its bytes and ends as if that were all; a list half of its entries;
    /// anything else fails before.
    Truncated,
    /// Never answers; nothing was done.
    Hang,
    /// It is done, but never answers.
    EffectThenHang,
}

/// The error of an injected fault.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("injected {fault:?} at call {number} ({op} {key})")]
pub struct Injected {
    /// Number of the call.
    pub number: u64,
    /// The call.
    pub op: Op,
    /// Its key.
    pub key: String,
    /// The fault.
    pub fault: Fault,
}

/// Decides when a call may go on; the scheduler is one.
pub trait Gate: Send + Sync + std::fmt::Debug {
    /// Waits until the call may be made.
    fn pass(&self, op: Op, key: &str) -> BoxFuture<'static, ()>;
}

#[derive(Debug, Default)]
struct Plan {
    at: BTreeMap<u64, Fault>,
    random: Option<(u64, f64, Vec<Fault>)>,
}

impl Plan {
    fn fault_of(&self, number: u64) -> Option<Fault> {
        if let Some(fault) = self.at.get(&number) {
            return Some(*fault);
        }
        let (seed, p, faults) = self.random.as_ref()?;
        // A function of seed and number alone, so that a plan for one call moves no other fault.
        let mut rng = Rng::new(seed.wrapping_add(number.wrapping_mul(0xD134_2543_DE82_EF95)));
        let index = rng.chance(*p).then(|| rng.below(faults.len() as u64))?;
        faults.get(usize::try_from(index).ok()?).copied()
    }
}

#[derive(Debug, Default)]
struct State {
    calls: Vec<Call>,
    next: u64,
    plan: Plan,
    stopped: bool,
}

/// One process's handle on a [`FaultBase`]. Clones are the same handle.
#[derive(Debug, Clone)]
pub struct FaultStore {
    pub(super) base: Arc<FaultBase>,
    gate: Option<Arc<dyn Gate>>,
    state: Arc<Mutex<State>>,
}

impl FaultStore {
    /// The only handle on `store`.
    pub fn new(store: Arc<dyn ObjectStore>) -> Self {
        Self::on(&FaultBase::new(store))
    }

    /// One more handle on `base`.
    pub fn on(base: &Arc<FaultBase>) -> Self {
        Self {
            base: Arc::clone(base),
            gate: None,
            state: Arc::default(),
        }
    }

    /// The same handle, every call of which waits at `gate` first.
    pub fn with_gate(mut self, gate: Arc<dyn Gate>) -> Self {
        self.gate = Some(gate);
        self
    }

    /// The handle as what the engine takes.
    pub fn store(&self) -> Arc<dyn ObjectStore> {
        Arc::new(self.clone())
    }

    /// What this handle shares with others.
    pub fn base(&self) -> &Arc<FaultBase> {
        &self.base
    }

    /// Plans `fault` for call number `number`.
    pub fn plan(&self, number: u64, fault: Fault) {
        lock(&self.state).plan.at.insert(number, fault);
    }

    /// Lets each call that has no plan meet one of `faults` with probability `p`.
    pub fn plan_random(&self, seed: u64, p: f64, faults: &[Fault]) {
        lock(&self.state).plan.random = Some((seed, p, faults.to_vec()));
    }

    /// The calls so far.
    pub fn trace(&self) -> Vec<Call> {
        lock(&self.state).calls.clone()
    }

    /// The calls so far by kind: see [`call::canonical`].
    pub fn canonical_trace(&self) -> String {
        call::canonical(&lock(&self.state).calls)
    }

    /// Number of calls so far.
    pub fn calls(&self) -> u64 {
        lock(&self.state).next
    }

    /// Forgets calls, plans and the stop: a new process on the same base.
    pub fn reset(&self) {
        *lock(&self.state) = State::default();
    }

    /// Whether the process ended, by plan or by [`stop`](Self::stop).
    pub fn stopped(&self) -> bool {
        lock(&self.state).stopped
    }

    /// Ends the process: every later call fails.
    pub fn stop(&self) {
        lock(&self.state).stopped = true;
    }

    /// Counts a call that cannot land later, once the gate lets it pass, and applies what faults come
    /// before its effect.
    pub(super) async fn begin(&self, op: Op, key: &str, bytes: u64) -> Result<Started> {
        self.start(op, key, bytes, None).await
    }

    async fn start(&self, op: Op, key: &str, bytes: u64, late: Option<Late>) -> Result<Started> {
        if let Some(gate) = &self.gate {
            gate.pass(op, key).await;
        }
        let call = {
            let mut state = lock(&self.state);
            let number = state.next;
            let fault = if state.stopped {
                Some(Fault::StopBefore)
            } else {
                state.plan.fault_of(number)
            };
            let call = Call {
                number,
                op,
                key: key.to_owned(),
                bytes,
                fault,
            };
            if !state.stopped {
                state.next += 1;
                state.calls.push(call.clone());
            }
            state.stopped |= fault == Some(Fault::StopBefore);
            call
        };
        let started = Started {
            store: self.clone(),
            call,
        };
        match started.call.fault {
            Some(Fault::StopBefore) => return Err(started.error()),
            Some(Fault::Hang) => std::future::pending().await,
            _ => self.base.tick().await,
        }
        started.before_effect(late)?;
        Ok(started)
    }

    pub(super) async fn put(
        &self,
        key: &Path,
        data: PutPayload,
        opts: PutOptions,
    ) -> Result<PutResult> {
        let op = match opts.mode {
            PutMode::Create => Op::PutCreate,
            PutMode::Overwrite => Op::PutOverwrite,
            PutMode::Update(_) => Op::PutUpdate,
        };
        let bytes = data.content_length() as u64;
        let late = Late::Put(key.clone(), data.clone(), opts.mode.clone());
        let started = self.start(op, key.as_ref(), bytes, Some(late)).await?;
        let answer = self.base.store.put_opts(key, data, opts).await;
        started.finish(answer).await
    }

    pub(super) async fn delete_one(&self, key: Path) -> Result<Path> {
        let late = Late::Delete(key.clone());
        let started = (self.start(Op::Delete, key.as_ref(), 0, Some(late))).await?;
        let deleted = self.base.store.delete(&key).await;
        started.finish(deleted).await.map(|()| key)
    }
}

/// A call that was counted and whose fault, if any, is still to come.
#[derive(Debug)]
pub(super) struct Started {
    store: FaultStore,
    call: Call,
}

impl Started {
    pub(super) fn error(&self) -> Error {
        let Call {
            number, op, fault, ..
        } = self.call;
        Error::Generic {
            store: STORE,
            source: Box::new(Injected {
                number,
                op,
                key: self.call.key.clone(),
                fault: fault.unwrap_or(Fault::FailBefore),
            }),
        }
    }

    pub(super) fn fault(&self) -> Option<Fault> {
        self.call.fault
    }

    /// Notes how many bytes a read is answered with.
    pub(super) fn note_bytes(&self, bytes: u64) {
        let mut state = lock(&self.store.state);
        let number = self.call.number;
        // From the end: the call is among the newest.
        if let Some(call) = state.calls.iter_mut().rfind(|c| c.number == number) {
            call.bytes = bytes;
        }
    }

    /// Applies the faults that answer before the effect, and sends what lands later.
    fn before_effect(&self, late: Option<Late>) -> Result<()> {
        match (self.call.fault, late) {
            (Some(Fault::Delayed(calls)), Some(late)) => {
                self.store.base.send_late(calls, late);
                Err(self.error())
            }
            (Some(Fault::Duplicated(calls)), Some(late)) => {
                self.store.base.send_late(calls, late);
                Ok(())
            }
            (Some(Fault::Conflict409), _) if self.call.op == Op::PutCreate => {
                Err(Error::AlreadyExists {
                    path: self.call.key.clone(),
                    source: Box::new(self.error()),
                })
            }
            (Some(Fault::FailBefore | Fault::Conflict409 | Fault::Delayed(_)), _) => {
                Err(self.error())
            }
            (Some(Fault::ShortRead | Fault::Truncated), _) if self.call.op.is_write() => {
                Err(self.error())
            }
            _ => Ok(()),
        }
    }

    /// Applies the faults that come after the effect.
    pub(super) async fn finish<T>(&self, answer: Result<T>) -> Result<T> {
        match self.call.fault {
            Some(Fault::EffectThenFail) => Err(self.error()),
            Some(Fault::EffectThenStop) => {
                self.store.stop();
                Err(self.error())
            }
            Some(Fault::EffectThenHang) => std::future::pending().await,
            _ => answer,
        }
    }
}
