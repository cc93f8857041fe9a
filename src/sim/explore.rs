//! Runs a small world of actors under many orders of their store calls.
//!
//! A world must be repeatable: no clocks, random numbers, threads or blocking pools of its own, because
//! a run is named by its choices alone.

use std::any::Any;
use std::fmt;
use std::ops::Range;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use futures::future::{BoxFuture, ready};
use tokio::task::JoinHandle;

use super::choose::{Enumerated, Prioritised};
use super::sched::{Scheduler, Step};

/// Milliseconds that an actor may be away (a timer, another thread) before it counts as hung.
const PATIENCE_MS: u32 = 2_000;

/// What one run consists of.
pub struct World {
    actors: Vec<BoxFuture<'static, ()>>,
    check: BoxFuture<'static, Result<(), String>>,
}

impl fmt::Debug for World {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "World({} actors)", self.actors.len())
    }
}

impl Default for World {
    fn default() -> Self {
        Self {
            actors: Vec::new(),
            check: ready(Ok(())).boxed(),
        }
    }
}

impl World {
    /// A world without actors.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds an actor. A panic of it is a violation.
    pub fn actor(mut self, actor: impl Future<Output = ()> + Send + 'static) -> Self {
        self.actors.push(actor.boxed());
        self
    }

    /// What must hold once every actor has finished: an error or a panic is a violation.
    pub fn check(
        mut self,
        check: impl Future<Output = Result<(), String>> + Send + 'static,
    ) -> Self {
        self.check = check.boxed();
        self
    }
}

/// What was explored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Explored {
    /// Runs made.
    pub runs: u64,
    /// Whether these were all.
    pub complete: bool,
    /// Most choices of a run.
    pub depth: usize,
}

/// A run that broke something, with what repeats it.
#[derive(Clone, PartialEq, Eq)]
pub struct Violation {
    /// Seed of the run.
    pub seed: u64,
    /// The choices, for [`Explorer::replay`].
    pub choices: Vec<usize>,
    /// The calls in the order they were granted.
    pub trace: Vec<Step>,
    /// What broke.
    pub message: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            seed,
            choices,
            message,
            ..
        } = self;
        write!(f, "{message}\nseed {seed}, choices {choices:?}, calls:")?;
        for step in &self.trace {
            write!(f, "\n  {step}")?;
        }
        Ok(())
    }
}

/// As text, because `unwrap` prints this and a trace is read line by line.
impl fmt::Debug for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl std::error::Error for Violation {}

type Shared = Arc<dyn Fn(&Step) -> bool + Send + Sync>;

/// Explores orders of store calls.
#[derive(Clone)]
pub struct Explorer {
    runs_max: u64,
    steps_max: usize,
    hung_ok: bool,
    reduced: bool,
    shared: Shared,
}

impl fmt::Debug for Explorer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Explorer({} runs)", self.runs_max)
    }
}

impl Default for Explorer {
    fn default() -> Self {
        Self {
            runs_max: 1_000_000,
            steps_max: 10_000,
            hung_ok: false,
            reduced: false,
            shared: Arc::new(|_| true),
        }
    }
}

impl Explorer {
    /// An explorer of at most a million runs of at most 10,000 calls each.
    pub fn new() -> Self {
        Self::default()
    }

    /// Makes at most `runs` runs of an enumeration.
    pub fn runs_max(mut self, runs: u64) -> Self {
        self.runs_max = runs;
        self
    }

    /// Calls a run with more calls a violation.
    pub fn steps_max(mut self, steps: usize) -> Self {
        self.steps_max = steps;
        self
    }

    /// Lets actors hang (calls that never answer): the check then runs without them.
    pub fn hung_ok(mut self) -> Self {
        self.hung_ok = true;
        self
    }

    /// Explores orders that differ only in neighbouring calls that commute once. Right if actors
    /// meet in the store alone and no call is delayed.
    pub fn reduced(mut self) -> Self {
        self.reduced = true;
        self
    }

    /// Orders only the calls for which `shared` holds; others are granted as soon as they are made.
    /// Right if no two actors touch the same key outside of `shared`.
    pub fn branch_on(mut self, shared: impl Fn(&Step) -> bool + Send + Sync + 'static) -> Self {
        self.shared = Arc::new(shared);
        self
    }

    /// Every order, depth first.
    pub fn all(&self, build: impl AsyncFn(Scheduler) -> World) -> Result<Explored, Violation> {
        let mut explored = Explored {
            runs: 0,
            complete: false,
            depth: 0,
        };
        let mut chooser = Enumerated::new(self.reduced);
        while explored.runs < self.runs_max {
            self.run(0, &build, &mut |options| chooser.choose(options))?;
            explored.runs += 1;
            explored.depth = explored.depth.max(chooser.depth());
            if !chooser.advance() {
                explored.complete = true;
                break;
            }
        }
        Ok(explored)
    }

    /// One run a seed: actors have random priorities, and the running one is put last at up to
    /// `preemptions` random places among its first `steps` choices.
    pub fn pct(
        &self,
        seeds: Range<u64>,
        preemptions: usize,
        steps: u64,
        build: impl AsyncFn(Scheduler) -> World,
    ) -> Result<Explored, Violation> {
        let mut explored = Explored {
            runs: 0,
            complete: true,
            depth: 0,
        };
        for seed in seeds {
            let mut chooser = Prioritised::new(seed, preemptions, steps);
            let run = self.run(seed, &build, &mut |options| Ok(chooser.choose(options)))?;
            explored.runs += 1;
            explored.depth = explored.depth.max(run.choices.len());
        }
        Ok(explored)
    }

    /// One run with the given choices (the first option where they end); its calls.
    pub fn replay(
        &self,
        seed: u64,
        choices: &[usize],
        build: impl AsyncFn(Scheduler) -> World,
    ) -> Result<Vec<Step>, Violation> {
        let mut given = choices.iter().copied();
        let run = self.run(seed, &build, &mut |_| Ok(given.next().unwrap_or(0)))?;
        Ok(run.trace)
    }

    fn run(
        &self,
        seed: u64,
        build: &impl AsyncFn(Scheduler) -> World,
        choose: &mut dyn FnMut(&[Step]) -> Result<usize, String>,
    ) -> Result<Violation, Violation> {
        let sched = Scheduler::new(seed);
        let mut run = Violation {
            seed,
            choices: Vec::new(),
            trace: Vec::new(),
            message: String::new(),
        };
        let outcome = match sched.runtime() {
            Err(e) => Err(format!("no runtime: {e}")),
            Ok(runtime) => runtime.block_on(async {
                let world = build(sched.clone()).await;
                let actors = world.actors.into_iter().map(tokio::spawn).collect();
                self.drive(&sched, actors, choose, &mut run.choices).await?;
                sched.open();
                caught(AssertUnwindSafe(world.check).catch_unwind().await)?
            }),
        };
        run.trace = sched.trace();
        match outcome {
            Ok(()) => Ok(run),
            Err(message) => Err(Violation { message, ..run }),
        }
    }

    async fn drive(
        &self,
        sched: &Scheduler,
        mut actors: Vec<JoinHandle<()>>,
        choose: &mut dyn FnMut(&[Step]) -> Result<usize, String>,
        choices: &mut Vec<usize>,
    ) -> Result<(), String> {
        sched.close();
        let mut patience = PATIENCE_MS;
        for _ in 0..self.steps_max {
            let waiting = loop {
                sched.idle().await;
                reap(&mut actors).await?;
                let waiting = sched.waiting();
                if !waiting.is_empty() {
                    break waiting;
                }
                if actors.is_empty() || self.hung_ok {
                    return Ok(());
                }
                patience = (patience.checked_sub(1))
                    .ok_or_else(|| format!("{} actors hang", actors.len()))?;
                std::thread::sleep(Duration::from_millis(1));
            };
            let free = waiting.iter().position(|step| !(self.shared)(step));
            let index = match free {
                Some(index) => index,
                None => {
                    let choice = choose(&waiting)?;
                    choices.push(choice);
                    choice
                }
            };
            if index >= waiting.len() {
                return Err(format!("there is no option {index} of {}", waiting.len()));
            }
            sched.grant(index);
        }
        Err(format!("more than {} calls", self.steps_max))
    }
}

/// Takes the finished actors out; the panic of one is an error.
async fn reap(actors: &mut Vec<JoinHandle<()>>) -> Result<(), String> {
    let mut index = 0;
    while index < actors.len() {
        if actors.get(index).is_some_and(JoinHandle::is_finished) {
            let ended = actors.remove(index).await;
            caught(ended.map_err(|e| match e.try_into_panic() {
                Ok(panic) => panic,
                Err(e) => Box::new(e.to_string()),
            }))?;
        } else {
            index += 1;
        }
    }
    Ok(())
}

fn caught<T>(result: Result<T, Box<dyn Any + Send>>) -> Result<T, String> {
    result.map_err(|panic| {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
        text.unwrap_or("a panic without a message").to_owned()
    })
}
