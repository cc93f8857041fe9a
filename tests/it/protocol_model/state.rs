//! The global state and the actors' local states.
//!
//! A state is 40 bytes: bodies and local states are interned, objects are bits.

use super::body::{BodyId, NONE, Objects, Retained, Txn};

/// Slots of a state; the highest version of any model.
pub(super) const SLOTS: usize = 8;
/// Actors of a state.
pub(super) const ACTORS: usize = 6;

/// The bit of a slot.
#[inline]
pub(super) fn slot_bit(version: u8) -> u8 {
    1 << (version - 1)
}

/// The whole world at one moment.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct State {
    /// The true head, which no actor sees: its chain of parents is the history.
    pub(super) head: BodyId,
    pub(super) slots: [BodyId; SLOTS],
    /// Creates whose answer came before they did, in ascending order.
    pub(super) flying: [BodyId; 2],
    pub(super) objects: Objects,
    /// Bits of the slots that were made again after they had gone.
    pub(super) remade: u8,
    /// The actors' interned local states.
    pub(super) actors: [u16; ACTORS],
}

impl State {
    /// The body in that slot, or `NONE`.
    #[inline]
    pub(super) fn slot(&self, version: u8) -> BodyId {
        let place = usize::from(version).wrapping_sub(1);
        self.slots.get(place).copied().unwrap_or(NONE)
    }

    #[inline]
    pub(super) fn set_slot(&mut self, version: u8, body: BodyId) {
        self.slots[usize::from(version) - 1] = body;
    }

    /// That slot is there as it was made first: its `e_tag` is the one that was seen.
    #[inline]
    pub(super) fn is_original(&self, version: u8) -> bool {
        self.slot(version) != NONE && self.remade & slot_bit(version) == 0
    }

    /// That slot goes.
    pub(super) fn delete_slot(&mut self, version: u8) {
        self.set_slot(version, NONE);
        self.remade &= !slot_bit(version);
    }

    /// What an atomic LIST shows last.
    #[inline]
    pub(super) fn top(&self) -> BodyId {
        let last = self.slots.iter().rev().find(|&&body| body != NONE);
        last.copied().unwrap_or(NONE)
    }

    /// The versions of the slots that are there, in order.
    pub(super) fn listed(&self) -> impl Iterator<Item = u8> {
        (1..=SLOTS as u8).filter(|&version| self.slot(version) != NONE)
    }

    /// How many different creates are under way.
    pub(super) fn in_flight(&self) -> usize {
        self.flying.iter().filter(|&&body| body != NONE).count()
    }

    /// One more create under way, unless these bytes are under way already.
    pub(super) fn launch(&mut self, body: BodyId) {
        if !self.flying.contains(&body) {
            self.flying[0] = body;
            self.flying.sort_unstable();
        }
    }

    /// The create at that place is no longer under way.
    pub(super) fn land(&mut self, place: usize) {
        self.flying[place] = NONE;
        self.flying.sort_unstable();
    }
}

/// An actor's view of its commit while it is open.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct Attempt {
    pub(super) begin: u8,
    pub(super) note: Note,
    /// What it creates; `NONE` until it is prepared.
    pub(super) body: BodyId,
    pub(super) txn: Txn,
}

/// What an attempt carries along.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) enum Note {
    Nothing,
    /// The older version that it will reference, checked again at every attempt.
    Import(Retained),
    /// Mutant: not checked again.
    ImportOnce(Retained),
    /// Mutant: no fence from now on.
    Unfenced,
    /// Variant: the head to build on.
    Base(BodyId),
}

impl Note {
    pub(super) fn imported(self) -> Objects {
        match self {
            Self::Import(old) | Self::ImportOnce(old) => old.refs,
            _ => 0,
        }
    }
}

/// What the read-back of a slot gave.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) enum Answer {
    Ours,
    Another,
    Missing,
}

/// What the status of a commit is reported to be.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) enum Verdict {
    Committed,
    NotCommitted,
    Unknown,
}

/// A status enquiry under way: slots up to that of `listed` are read one by one.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct Scan {
    pub(super) at: u8,
    pub(super) listed: BodyId,
    /// The slot where the transaction was seen, or zero.
    pub(super) hit: u8,
    pub(super) begin: u8,
    /// The body whose owner has stopped, or `NONE`.
    pub(super) stopped: BodyId,
    pub(super) txn: Txn,
}

/// Where an actor is.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) enum Local {
    /// Nothing more to do, or no such actor.
    End,
    // Committers.
    Begin {
        second: bool,
    },
    Stage(Attempt),
    Prepare(Attempt),
    FetchByName(Attempt, u8),
    Send(Attempt),
    After(Attempt),
    Resolve(Attempt),
    FloorSeen(Attempt, bool),
    Answered(Attempt, Answer),
    Acked {
        body: BodyId,
        txn: Txn,
    },
    Failed {
        txn: Txn,
    },
    Unknown {
        begin: u8,
        body: BodyId,
        txn: Txn,
    },
    Announced {
        body: BodyId,
        txn: Txn,
    },
    Sweeping {
        body: BodyId,
        dead: Objects,
        txn: Txn,
    },
    Swept {
        body: BodyId,
        txn: Txn,
    },
    Filling {
        left: u8,
    },
    // Status.
    Ask,
    Scanning(Scan),
    Status {
        verdict: Verdict,
        txn: Txn,
    },
    // Statements; `left` counts them.
    Look {
        left: u8,
        cached: u8,
    },
    Page {
        left: u8,
        after: u8,
        best: BodyId,
        start: u8,
    },
    Named {
        left: u8,
        version: u8,
    },
    /// One of the two names has been asked for.
    FirstName {
        left: u8,
        cached: u8,
        start: u8,
    },
    Fetched {
        left: u8,
        body: BodyId,
    },
    Seen {
        left: u8,
        body: BodyId,
    },
    Registered {
        left: u8,
        body: BodyId,
    },
    Reading {
        left: u8,
        body: BodyId,
    },
    // Cold discovery.
    Directories,
    LastDirectory {
        directory: u8,
        start: u8,
    },
    DirectoriesAgain {
        directory: u8,
        start: u8,
        body: BodyId,
    },
    Discovered {
        body: BodyId,
        start: u8,
    },
}
