//! Slot bodies, and how a commit makes one from its parent.

use super::state::{ACTORS, SLOTS};

/// The distance of the floor from the version that sets it (4,096 in the code).
const KEEP: u8 = 2;

/// A set of staged objects.
pub(super) type Objects = u32;
/// A body; the same id is the same bytes.
pub(super) type BodyId = u16;
/// No body: an empty slot, an unused place.
pub(super) const NONE: BodyId = 0;

/// Who committed a body: an actor's first or second transaction, or one fill.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct Txn(u8);

impl Txn {
    pub(super) const INIT: Self = Self(63);

    pub(super) fn of(actor: usize, second: bool) -> Self {
        Self(2 * actor as u8 + u8::from(second))
    }

    pub(super) fn fill(left: u8) -> Self {
        Self(32 + left)
    }

    pub(super) fn actor(self) -> Option<usize> {
        (self.0 < 32).then_some(usize::from(self.0 / 2))
    }

    pub(super) fn is_second(self) -> bool {
        self.0 < 32 && self.0 % 2 == 1
    }

    fn bit(self) -> u64 {
        1 << self.0
    }
}

/// What a commit does to its parent's body. With parent and txn it determines the new body.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) enum Edit {
    Nothing,
    /// A new version of the actor's dataset with these objects.
    Publish(Objects),
    /// Only the newest version is retained; the index page is this object.
    Expire(Objects),
    RaiseHorizon,
    Pin(Objects),
    Unpin,
}

/// A version that can still be read.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct Retained {
    pub(super) version: u8,
    pub(super) refs: Objects,
}

/// One dataset of a body.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Dataset {
    refs: Objects,
    next: u8,
    pub(super) retained: Vec<Retained>,
    index_page: Objects,
}

impl Dataset {
    fn two_versions(old: Objects, new: Objects) -> Self {
        let retained = [(1, old), (2, new)].map(|(version, refs)| Retained { version, refs });
        Self {
            refs: new,
            next: 3,
            retained: retained.to_vec(),
            index_page: 0,
        }
    }

    /// What the branch head reaches without its retained versions.
    pub(super) fn newest(&self) -> Objects {
        self.refs | self.index_page
    }

    fn reach(&self) -> Objects {
        let old = self.retained.iter();
        old.fold(self.newest(), |all, version| all | version.refs)
    }

    fn publish(&mut self, refs: Objects) {
        let version = self.next;
        self.retained.push(Retained { version, refs });
        (self.refs, self.next, self.index_page) = (refs, version + 1, 0);
    }

    fn expire(&mut self, index_page: Objects) {
        self.cut();
        self.index_page = index_page;
    }

    fn cut(&mut self) {
        self.retained.drain(..self.retained.len() - 1);
    }
}

/// A commit on a body.
#[derive(Clone, Copy)]
pub(super) struct Commit {
    pub(super) parent: BodyId,
    pub(super) txn: Txn,
    pub(super) edit: Edit,
    /// The only dataset that it may change.
    pub(super) own: Option<usize>,
    /// Mutant: an expiry cuts every dataset.
    pub(super) cuts_all: bool,
}

/// A slot body, with what follows from it and its ancestors.
#[derive(Clone, Debug)]
pub(super) struct Body {
    pub(super) parent: BodyId,
    pub(super) txn: Txn,
    pub(super) version: u8,
    pub(super) floor: u8,
    pub(super) horizon: u8,
    pub(super) datasets: [Dataset; 2],
    /// Objects of the version that each actor has pinned.
    pub(super) pins: [Objects; ACTORS],
    /// Everything that the body reaches.
    pub(super) reach: Objects,
    /// Its ancestors and itself, by version.
    pub(super) chain: [BodyId; SLOTS],
    /// The transactions of its history.
    txns: u64,
    pub(super) committed_twice: bool,
    /// It changes a dataset that is not its actor's.
    pub(super) trespasses: bool,
}

impl Body {
    /// Two datasets of two versions, one object each.
    pub(super) fn first(id: BodyId) -> Self {
        let mut chain = [NONE; SLOTS];
        chain[0] = id;
        Self {
            parent: NONE,
            txn: Txn::INIT,
            version: 1,
            floor: 1,
            horizon: 0,
            datasets: [
                Dataset::two_versions(1 << 0, 1 << 1),
                Dataset::two_versions(1 << 2, 1 << 3),
            ],
            pins: [0; ACTORS],
            reach: 0b1111,
            chain,
            txns: Txn::INIT.bit(),
            committed_twice: false,
            trespasses: false,
        }
    }

    /// The body that the commit makes of this one.
    pub(super) fn child(&self, id: BodyId, commit: Commit) -> Self {
        let Commit { txn, edit, own, .. } = commit;
        let mut body = self.clone();
        (body.parent, body.txn, body.version) = (commit.parent, txn, self.version + 1);
        body.floor = self.floor.max(body.version.saturating_sub(KEEP));
        for (place, dataset) in body.datasets.iter_mut().enumerate() {
            match edit {
                Edit::Publish(refs) if own == Some(place) => dataset.publish(refs),
                Edit::Expire(page) if own == Some(place) => dataset.expire(page),
                Edit::Expire(_) if commit.cuts_all => dataset.cut(),
                _ => {}
            }
        }
        match (edit, txn.actor()) {
            (Edit::RaiseHorizon, _) => body.horizon = body.version,
            (Edit::Pin(refs), Some(place)) => body.pins[place] = refs,
            (Edit::Unpin, Some(place)) => body.pins[place] = 0,
            _ => {}
        }
        let pinned = body.pins.iter().fold(0, |all, refs| all | refs);
        let datasets = body.datasets.iter();
        body.reach = datasets.fold(pinned, |all, dataset| all | dataset.reach());
        body.chain[usize::from(body.version) - 1] = id;
        body.committed_twice |= self.contains(txn);
        body.txns |= txn.bit();
        let places = 0..body.datasets.len();
        body.trespasses = places
            .filter(|&place| own != Some(place))
            .any(|place| body.datasets[place] != self.datasets[place]);
        body
    }

    /// The transaction is in the history that ends here.
    pub(super) fn contains(&self, txn: Txn) -> bool {
        self.txns & txn.bit() != 0
    }
}
