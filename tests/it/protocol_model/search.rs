//! Breadth-first search and random walks over any [`Model`].

use std::fmt::{self, Debug};
use std::hash::{BuildHasherDefault, Hash, Hasher};

/// A transition system with an invariant.
pub(super) trait Model {
    /// One global state; equal values are one state.
    type State: Copy + Eq + Hash;
    /// What can go wrong.
    type Fault: Copy + Eq + Debug;

    /// The only state without a predecessor.
    fn initial(&mut self) -> Self::State;

    /// Appends every state that one atomic step leads to; a step that is itself wrong is the error.
    fn successors(
        &mut self,
        state: &Self::State,
        out: &mut Vec<Self::State>,
    ) -> Result<(), Self::Fault>;

    /// The invariant.
    fn check(&self, state: &Self::State) -> Result<(), Self::Fault>;

    /// One line of a trace.
    fn show(&self, state: &Self::State) -> String;
}

/// A broken invariant and a shortest way to it.
pub(super) struct Violation<F> {
    pub(super) fault: F,
    pub(super) trace: Vec<String>,
}

impl<F> Violation<F> {
    /// Steps from the initial state to the last state of the trace.
    pub(super) fn steps(&self) -> usize {
        self.trace.len() - 1
    }
}

impl<F: Debug> fmt::Display for Violation<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{:?} after {} steps", self.fault, self.steps())?;
        self.trace
            .iter()
            .try_for_each(|line| writeln!(f, "  {line}"))
    }
}

/// What a search saw.
pub(super) struct Explored<F> {
    pub(super) states: usize,
    pub(super) transitions: u64,
    /// No state was left unexpanded.
    pub(super) complete: bool,
    pub(super) violation: Option<Violation<F>>,
}

/// Visits states in order of their distance until there are none, an invariant breaks, or more than
/// `cap` states are known.
pub(super) fn explore<M: Model>(model: &mut M, cap: usize) -> Explored<M::Fault> {
    let mut seen = Seen::new(model.initial());
    let (mut at, mut transitions, mut fault) = (0, 0, None);
    let mut out = Vec::new();
    while at < seen.states.len() && seen.states.len() <= cap && fault.is_none() {
        let state = seen.states[at];
        out.clear();
        let stepped = model.successors(&state, &mut out);
        for next in &out {
            transitions += 1;
            if !seen.insert(next, at) {
                continue;
            }
            if let Err(broken) = model.check(next) {
                fault = Some((broken, seen.states.len() - 1));
                break;
            }
        }
        if let (Err(broken), None) = (stepped, fault) {
            fault = Some((broken, at));
        }
        at += 1;
    }
    Explored {
        states: seen.states.len(),
        transitions,
        complete: at == seen.states.len() && fault.is_none(),
        violation: fault.map(|(fault, last)| Violation {
            fault,
            trace: seen.trace(model, last),
        }),
    }
}

/// What the walks saw.
pub(super) struct Walked<F> {
    pub(super) steps: usize,
    pub(super) longest: usize,
    pub(super) violation: Option<Violation<F>>,
}

/// Walks at random from the initial state to the end, again and again, for about `budget` steps:
/// depth where a capped search has breadth. The same seed takes the same walks.
pub(super) fn walk<M: Model>(model: &mut M, seed: u64, budget: usize) -> Walked<M::Fault> {
    let initial = model.initial();
    let mut random = Random(seed);
    let (mut steps, mut longest) = (0, 0);
    let (mut path, mut out) = (Vec::new(), Vec::new());
    while steps < budget {
        path.clear();
        path.push(initial);
        let fault = loop {
            let state = path[path.len() - 1];
            out.clear();
            if let Err(fault) = model.successors(&state, &mut out) {
                break Some(fault);
            }
            // A lost answer can be repeated for ever.
            if out.is_empty() || path.len() > 400 {
                break None;
            }
            let next = out[random.below(out.len())];
            path.push(next);
            if let Err(fault) = model.check(&next) {
                break Some(fault);
            }
        };
        steps += path.len() - 1;
        longest = longest.max(path.len() - 1);
        if let Some(fault) = fault {
            let trace = path.iter().map(|state| model.show(state)).collect();
            let violation = Some(Violation { fault, trace });
            return Walked {
                steps,
                longest,
                violation,
            };
        }
    }
    Walked {
        steps,
        longest,
        violation: None,
    }
}

/// Xorshift.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from((self.0 >> 32) % bound as u64).unwrap_or(0)
    }
}

/// The known states in the order they were found (which is also the queue), each with the place of
/// its predecessor, and an open-addressed index over them.
struct Seen<S> {
    states: Vec<S>,
    parents: Vec<u32>,
    /// `place + 1` in the low half, the low half of the hash in the high half; zero is free. The
    /// hash's top bits choose the bucket.
    index: Vec<u64>,
    shift: u32,
}

impl<S: Copy + Eq + Hash> Seen<S> {
    fn new(initial: S) -> Self {
        let mut seen = Self {
            states: Vec::new(),
            parents: Vec::new(),
            index: vec![0; 1 << 10],
            shift: 64 - 10,
        };
        seen.insert(&initial, 0);
        seen
    }

    /// Adds a state found from `parent`; false if it is known already.
    #[inline]
    fn insert(&mut self, state: &S, parent: usize) -> bool {
        let hash = hash(state);
        let tag = hash << 32;
        let mut bucket = (hash >> self.shift) as usize;
        loop {
            let entry = self.index[bucket];
            if entry == 0 {
                break;
            }
            if (entry ^ tag) >> 32 == 0 && self.states[(entry as u32 - 1) as usize] == *state {
                return false;
            }
            bucket = (bucket + 1) & (self.index.len() - 1);
        }
        self.states.push(*state);
        self.parents.push(parent as u32);
        self.index[bucket] = tag | self.states.len() as u64;
        if self.states.len() * 2 > self.index.len() {
            self.grow();
        }
        true
    }

    fn grow(&mut self) {
        let size = self.index.len() * 4;
        self.shift -= 2;
        self.index.clear();
        self.index.resize(size, 0);
        for (place, state) in self.states.iter().enumerate() {
            let hash = hash(state);
            let mut bucket = (hash >> self.shift) as usize;
            while self.index[bucket] != 0 {
                bucket = (bucket + 1) & (size - 1);
            }
            self.index[bucket] = hash << 32 | (place as u64 + 1);
        }
    }

    fn trace<M: Model<State = S>>(&self, model: &M, last: usize) -> Vec<String> {
        let mut at = last;
        let mut places = vec![at];
        while at != 0 {
            at = self.parents[at] as usize;
            places.push(at);
        }
        let lines = places.iter().rev();
        lines.map(|&at| model.show(&self.states[at])).collect()
    }
}

/// A map for small keys that come from the model itself.
pub(super) type FastMap<K, V> = std::collections::HashMap<K, V, BuildHasherDefault<FastHasher>>;

#[inline]
fn hash<T: Hash>(value: &T) -> u64 {
    let mut hasher = FastHasher::default();
    value.hash(&mut hasher);
    hasher.finish()
}

/// Rotate, xor and multiply for each word, as the hasher of rustc does; the end mixes high and low
/// halves, which are both used.
#[derive(Default)]
pub(super) struct FastHasher(u64);

impl FastHasher {
    #[inline]
    fn add(&mut self, word: u64) {
        self.0 = (self.0.rotate_left(5) ^ word).wrapping_mul(0x517c_c1b7_2722_0a95);
    }
}

impl Hasher for FastHasher {
    #[inline]
    fn finish(&self) -> u64 {
        let wide = u128::from(self.0 ^ 0x9e37_79b9_7f4a_7c15) * 0xd6e8_feb8_6659_fd93;
        (wide >> 64) as u64 ^ wide as u64
    }

    #[inline]
    fn write(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            self.add(u64::from_le_bytes(word));
        }
    }

    #[inline]
    fn write_u8(&mut self, value: u8) {
        self.add(value.into());
    }

    #[inline]
    fn write_u16(&mut self, value: u16) {
        self.add(value.into());
    }

    #[inline]
    fn write_u32(&mut self, value: u32) {
        self.add(value.into());
    }

    #[inline]
    fn write_u64(&mut self, value: u64) {
        self.add(value);
    }

    #[inline]
    fn write_usize(&mut self, value: usize) {
        self.add(value as u64);
    }

    #[inline]
    fn write_isize(&mut self, value: isize) {
        self.add(value as u64);
    }
}
