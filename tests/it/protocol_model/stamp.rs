//! Compaction beside refreshes: with which version is a compacted fragment stamped?
//!
//! The logical mask says for each key a horizon: it hides the key in every fragment that is stamped
//! at or below it. Version N masks what it changes with the horizon N - 1 and stamps its own rows N.
//! A compaction reads some fragments at version r, and commits on a later head, where refreshes (the
//! winners) have masked and added rows in between. Stamped r, its rows are hidden by exactly those
//! masks that are newer than what it read; a mask that hides no row any more is dropped with it.

use super::search::Model;

/// Versions of a run, the first included.
const VERSIONS: usize = 6;
const KEYS: usize = 2;

/// For each key the version that wrote the row; zero is no row.
type Rows = [u8; KEYS];

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
struct Fragment {
    stamp: u8,
    rows: Rows,
}

/// What a refresh found for a key.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, PartialOrd, Ord)]
enum Found {
    Same,
    Changed,
    Deleted,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, PartialOrd, Ord)]
enum Refresher {
    Idle {
        left: u8,
    },
    Prepared {
        left: u8,
        at: u8,
        found: [Found; KEYS],
    },
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, PartialOrd, Ord)]
enum Compactor {
    Idle {
        left: u8,
    },
    /// Bit i of `inputs` is the fragment of version i + 1.
    Prepared {
        left: u8,
        at: u8,
        inputs: u8,
        rows: Rows,
    },
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct State {
    version: u8,
    /// By the version that added it; without rows it is not there.
    fragments: [Fragment; VERSIONS],
    mask: [u8; KEYS],
    /// The reference: what a plain map holds after the same refreshes.
    truth: Rows,
    refreshers: [Refresher; 2],
    compactors: [Compactor; 2],
}

impl State {
    fn live(&self, fragment: Fragment, key: usize) -> bool {
        fragment.rows[key] != 0 && fragment.stamp > self.mask[key]
    }

    fn present(&self) -> u8 {
        let fragments = self.fragments.iter().enumerate();
        let present = fragments.filter(|(_, fragment)| fragment.rows != [0; KEYS]);
        present.fold(0, |all, (place, _)| all | 1 << place)
    }

    fn refresh(&mut self, masked_from: Option<u8>, found: [Found; KEYS]) {
        let horizon = masked_from.unwrap_or(self.version);
        self.version += 1;
        let mut rows = [0; KEYS];
        for key in 0..KEYS {
            match found[key] {
                Found::Same => continue,
                Found::Changed => rows[key] = self.version,
                Found::Deleted => {}
            }
            self.mask[key] = self.mask[key].max(horizon);
            self.truth[key] = rows[key];
        }
        self.add(self.version, rows);
    }

    fn add(&mut self, stamp: u8, rows: Rows) {
        if rows != [0; KEYS] {
            self.fragments[usize::from(self.version) - 1] = Fragment { stamp, rows };
        }
    }

    fn remove(&mut self, fragments: u8) {
        for place in (0..VERSIONS).filter(|place| fragments >> place & 1 == 1) {
            self.fragments[place] = Fragment::default();
        }
    }

    /// Masks that hide no row are dropped.
    fn prune_masks(&mut self) {
        for key in 0..KEYS {
            let mut holding = self.fragments.iter().filter(|f| f.rows[key] != 0);
            if holding.all(|fragment| fragment.stamp > self.mask[key]) {
                self.mask[key] = 0;
            }
        }
    }
}

/// What is done wrong.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Mutant {
    /// The compacted fragment is stamped with the version that publishes it.
    StampAtCommit,
    /// The compaction drops fragments that were added after its read.
    DropWinners,
    /// The compaction drops the masks that were made after its read.
    DropWinnersMask,
    /// A refresh that was overtaken keeps the horizon that it was prepared with.
    EarlyHorizon,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Fault {
    Lost,
    Resurrected,
    Twice,
    OldValue,
}

/// Two refreshers of two refreshes, two compactors of one compaction.
pub(super) struct Stamps {
    pub(super) mutant: Option<Mutant>,
}

impl Stamps {
    fn wrong(&self, mutant: Mutant) -> bool {
        self.mutant == Some(mutant)
    }

    fn prepare_refresh(&self, state: &State, me: usize, out: &mut Vec<State>) {
        let Refresher::Idle { left: left @ 1.. } = state.refreshers[me] else {
            return;
        };
        // Only the mutant remembers it.
        let at = if self.wrong(Mutant::EarlyHorizon) {
            state.version
        } else {
            0
        };
        for found in findings() {
            let mut next = *state;
            next.refreshers[me] = Refresher::Prepared { left, at, found };
            out.push(next);
        }
    }

    fn refreshed(&self, state: &State, me: usize) -> Option<State> {
        let Refresher::Prepared { left, at, found } = state.refreshers[me] else {
            return None;
        };
        let mut next = *state;
        next.refresh(self.wrong(Mutant::EarlyHorizon).then_some(at), found);
        let left = left - 1;
        next.refreshers[me] = Refresher::Idle { left };
        Some(next)
    }

    /// The compaction on the head as it is now. If an input is gone it has to read again.
    fn compacted(&self, state: &State, me: usize) -> Option<State> {
        let Compactor::Prepared {
            left,
            at,
            inputs,
            rows,
        } = state.compactors[me]
        else {
            return None;
        };
        let mut next = *state;
        if inputs & !state.present() != 0 {
            next.compactors[me] = Compactor::Idle { left };
            return Some(next);
        }
        next.version += 1;
        next.remove(inputs);
        if self.wrong(Mutant::DropWinners) {
            next.remove(!0 << at);
        }
        if self.wrong(Mutant::DropWinnersMask) {
            next.mask = next.mask.map(|h| if h < at { h } else { 0 });
        }
        let stamp = if self.wrong(Mutant::StampAtCommit) {
            next.version
        } else {
            at
        };
        next.add(stamp, rows);
        next.prune_masks();
        let left = left - 1;
        next.compactors[me] = Compactor::Idle { left };
        Some(next)
    }
}

/// Everything that a refresh can find, except nothing.
fn findings() -> impl Iterator<Item = [Found; KEYS]> {
    let each = [Found::Same, Found::Changed, Found::Deleted];
    let pairs = each.into_iter().flat_map(move |a| each.map(|b| [a, b]));
    pairs.filter(|found| *found != [Found::Same; KEYS])
}

/// Reads the live rows of any set of fragments.
fn prepare_compaction(state: &State, me: usize, out: &mut Vec<State>) {
    let Compactor::Idle { left: left @ 1.. } = state.compactors[me] else {
        return;
    };
    let (at, present) = (state.version, state.present());
    for inputs in (1..1 << VERSIONS).filter(|inputs| inputs & !present == 0) {
        let mut rows = [0; KEYS];
        for (place, fragment) in state.fragments.iter().enumerate() {
            for (key, row) in rows.iter_mut().enumerate() {
                if inputs >> place & 1 == 1 && state.live(*fragment, key) {
                    *row = fragment.rows[key];
                }
            }
        }
        let mut next = *state;
        next.compactors[me] = Compactor::Prepared {
            left,
            at,
            inputs,
            rows,
        };
        out.push(next);
    }
}

impl Model for Stamps {
    type State = State;
    type Fault = Fault;

    fn initial(&mut self) -> State {
        let mut fragments = [Fragment::default(); VERSIONS];
        fragments[0] = Fragment {
            stamp: 1,
            rows: [1; KEYS],
        };
        State {
            version: 1,
            fragments,
            mask: [0; KEYS],
            truth: [1; KEYS],
            refreshers: [Refresher::Idle { left: 2 }; 2],
            compactors: [Compactor::Idle { left: 1 }; 2],
        }
    }

    fn successors(&mut self, state: &State, out: &mut Vec<State>) -> Result<(), Fault> {
        if usize::from(state.version) == VERSIONS {
            return Ok(());
        }
        let first = out.len();
        for me in 0..2 {
            self.prepare_refresh(state, me, out);
            prepare_compaction(state, me, out);
            out.extend(self.refreshed(state, me));
            out.extend(self.compacted(state, me));
        }
        // Actors of a kind are interchangeable.
        for next in &mut out[first..] {
            next.refreshers.sort_unstable();
            next.compactors.sort_unstable();
        }
        Ok(())
    }

    /// Every version is the newest one once: its live rows are those of the reference.
    fn check(&self, state: &State) -> Result<(), Fault> {
        for key in 0..KEYS {
            let live = state.fragments.iter().filter(|f| state.live(**f, key));
            let mut live = live.map(|fragment| fragment.rows[key]);
            match (live.next(), live.next(), state.truth[key]) {
                (_, Some(_), _) => return Err(Fault::Twice),
                (Some(_), _, 0) => return Err(Fault::Resurrected),
                (None, _, 1..) => return Err(Fault::Lost),
                (Some(row), _, truth) if row != truth => return Err(Fault::OldValue),
                _ => {}
            }
        }
        Ok(())
    }

    fn show(&self, state: &State) -> String {
        format!("{state:?}")
    }
}
