//! The mark of GC and expiry from history entries instead of every manifest.
//!
//! A history entry lists the objects that its commit wrote. A version references what its
//! predecessor references or what its own commit wrote, unless it imports. So the mark reads the
//! manifests of the first version of each contiguous retained run and of every version that imports,
//! and for the others only their entries.

use super::search::Model;

/// Versions of a run, the first included.
const VERSIONS: usize = 7;

/// A set of versions, or of objects: object i is the one that version i + 1 wrote.
type Set = u8;

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct State {
    count: usize,
    /// The objects that each version references: what its manifest says.
    manifests: [Set; VERSIONS],
    imports: Set,
    retained: Set,
}

impl State {
    fn push(&self, references: Set, imports: bool) -> State {
        let mut next = *self;
        let bit = 1 << self.count;
        next.manifests[self.count] = references | bit;
        next.retained |= bit;
        next.imports |= if imports { bit } else { 0 };
        next.count += 1;
        next
    }

    fn reachable(&self) -> Set {
        let all = members(self.retained);
        all.fold(0, |all, version| all | self.manifests[version])
    }
}

fn members(set: Set) -> impl Iterator<Item = usize> {
    (0..VERSIONS).filter(move |member| set >> member & 1 == 1)
}

/// What is done wrong.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Mutant {
    /// Versions that import are taken for ordinary ones.
    NoImports,
    /// No run's first version is read.
    NoRunStarts,
    /// Only the oldest run's first version is read.
    OldestRunOnly,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Fault {
    /// A referenced object is not marked.
    Unmarked,
    /// An object is marked that no retained version references.
    Overmarked,
}

/// Writes (of one object, with or without dropping an older one), restores, and expiries that drop
/// any old versions, in any order.
pub(super) struct Marks {
    pub(super) mutant: Option<Mutant>,
}

impl Marks {
    fn mark(&self, state: &State) -> Set {
        let starts = state.retained & !(state.retained << 1);
        let starts = match self.mutant {
            Some(Mutant::NoRunStarts) => 0,
            Some(Mutant::OldestRunOnly) => starts & starts.wrapping_neg(),
            _ => starts,
        };
        let imports = match self.mutant {
            Some(Mutant::NoImports) => 0,
            _ => state.imports,
        };
        let read = members(state.retained & (starts | imports));
        read.fold(state.retained, |all, version| {
            all | state.manifests[version]
        })
    }
}

impl Model for Marks {
    type State = State;
    type Fault = Fault;

    fn initial(&mut self) -> State {
        let empty = State {
            count: 0,
            manifests: [0; VERSIONS],
            imports: 0,
            retained: 0,
        };
        empty.push(0, false)
    }

    fn successors(&mut self, state: &State, out: &mut Vec<State>) -> Result<(), Fault> {
        let newest = state.count - 1;
        if state.count < VERSIONS {
            let references = state.manifests[newest];
            out.push(state.push(references, false));
            let dropped = members(references);
            out.extend(dropped.map(|object| state.push(references & !(1 << object), false)));
            let old = members(state.retained & !(1 << newest));
            out.extend(old.map(|version| state.push(state.manifests[version], true)));
        }
        // An expiry of several versions passes through these states.
        for version in members(state.retained & !(1 << newest)) {
            let mut next = *state;
            next.retained &= !(1 << version);
            out.push(next);
        }
        Ok(())
    }

    fn check(&self, state: &State) -> Result<(), Fault> {
        let (mark, reachable) = (self.mark(state), state.reachable());
        if reachable & !mark != 0 {
            return Err(Fault::Unmarked);
        }
        if mark != reachable {
            return Err(Fault::Overmarked);
        }
        Ok(())
    }

    fn show(&self, state: &State) -> String {
        format!("{state:?}")
    }
}
