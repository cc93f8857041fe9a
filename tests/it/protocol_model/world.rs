//! One model's world: its interning, how a create lands, and what must always hold.

use super::body::{Body, BodyId, Commit, Edit, NONE, Objects, Txn};
use super::models::{Actor, Change, Kind, Setup};
use super::search::FastMap;
use super::state::{ACTORS, Local, SLOTS, State, Verdict, slot_bit};

/// What can break.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Fault {
    /// Something reachable from the head, a retained version or a pin is deleted.
    Dangling,
    /// A live slot is missing, or it holds a body that is not in the history.
    GapOrForeignSlot,
    CommittedTwice,
    AckedButAbsent,
    FailedButVisible,
    /// Somebody reads a snapshot that is not in the history.
    NeverCommitted,
    StatementLostObject,
    NotBuiltOnHead,
    PastTheHead,
    ForeignDataset,
    HeadSticks,
    /// A look ended with a head older than the one at its start.
    OldHead,
    ColdTookRemade,
}

/// One model under one change: its interned bodies, local states and objects.
pub(super) struct Net {
    pub(super) setup: &'static Setup,
    pub(super) change: Option<Change>,
    bodies: Vec<Body>,
    body_ids: FastMap<(BodyId, Txn, Edit), BodyId>,
    locals: Vec<Local>,
    local_ids: FastMap<Local, u16>,
    /// Begin and stager of each object's bit.
    objects: Vec<(u8, usize)>,
}

/// The body that every history starts with.
const FIRST: BodyId = NONE + 1;
/// The stager of the objects that are there from the start.
const NOBODY: usize = usize::MAX;

impl Net {
    pub(super) fn new(setup: &'static Setup, change: Option<Change>) -> Self {
        let first = Body::first(FIRST);
        Self {
            setup,
            change,
            // The place of `NONE` holds a copy that nothing refers to.
            bodies: vec![first.clone(), first],
            body_ids: FastMap::default(),
            locals: vec![Local::End],
            local_ids: FastMap::from_iter([(Local::End, 0)]),
            objects: vec![(0, NOBODY); 4],
        }
    }

    /// The one state that the model starts in.
    pub(super) fn start(&mut self) -> State {
        let (setup, head) = (self.setup, FIRST);
        let mut state = State {
            head,
            slots: [NONE; SLOTS],
            flying: [NONE; 2],
            objects: self.body(head).reach,
            remade: 0,
            actors: [0; ACTORS],
        };
        state.set_slot(1, head);
        for (place, actor) in setup.actors.iter().enumerate() {
            let left = match actor.kind {
                Kind::InProcess => setup.statements,
                _ => 1,
            };
            state.actors[place] = self.local_id(match actor.kind {
                Kind::Fill => Local::Filling { left: setup.fills },
                Kind::Asker => Local::Ask,
                Kind::Cold => Local::Directories,
                Kind::InProcess | Kind::Outside => Local::Look { left, cached: 1 },
                _ => Local::Begin { second: false },
            });
        }
        state
    }

    #[inline]
    pub(super) fn mutated(&self, change: Change) -> bool {
        self.change == Some(change)
    }

    #[inline]
    pub(super) fn body(&self, id: BodyId) -> &Body {
        &self.bodies[usize::from(id)]
    }

    #[inline]
    pub(super) fn version(&self, id: BodyId) -> u8 {
        self.body(id).version
    }

    #[inline]
    pub(super) fn local(&self, id: u16) -> Local {
        self.locals[usize::from(id)]
    }

    #[inline]
    pub(super) fn local_id(&mut self, local: Local) -> u16 {
        let id = self.locals.len() as u16;
        let known = *self.local_ids.entry(local).or_insert(id);
        if known == id {
            assert!(id < u16::MAX, "too many local states");
            self.locals.push(local);
        }
        known
    }

    /// The object that an actor stages under `begin`.
    pub(super) fn object(&mut self, begin: u8, actor: usize) -> Objects {
        let known = self.objects.iter().position(|&o| o == (begin, actor));
        let bit = known.unwrap_or_else(|| {
            self.objects.push((begin, actor));
            self.objects.len() - 1
        });
        1 << bit
    }

    /// Objects whose begin is below the horizon.
    pub(super) fn staged_before(&self, horizon: u8) -> Objects {
        let old = self.objects.iter().enumerate();
        let old = old.filter(|(_, (begin, _))| *begin < horizon);
        old.fold(0, |all, (bit, _)| all | 1 << bit)
    }

    /// The body that `txn` makes of `parent`.
    pub(super) fn commit(&mut self, parent: BodyId, txn: Txn, edit: Edit) -> BodyId {
        if let Some(&id) = self.body_ids.get(&(parent, txn, edit)) {
            return id;
        }
        let id = BodyId::try_from(self.bodies.len()).unwrap_or(NONE);
        assert_ne!(id, NONE, "too many bodies");
        let commit = Commit {
            parent,
            txn,
            edit,
            own: txn
                .actor()
                .and_then(|place| self.setup.actors[place].dataset),
            cuts_all: self.mutated(Change::SlotHistory),
        };
        let body = self.body(parent).child(id, commit);
        self.bodies.push(body);
        self.body_ids.insert((parent, txn, edit), id);
        id
    }

    /// `id` is the head or one of its ancestors.
    #[inline]
    pub(super) fn in_history(&self, head: BodyId, id: BodyId) -> bool {
        self.body(head).chain[usize::from(self.version(id)) - 1] == id
    }

    /// A create-only put arrives: the state with the body in its slot, or none if the slot is taken.
    pub(super) fn create(&self, state: &State, id: BodyId) -> Result<Option<State>, Fault> {
        let body = self.body(id);
        if state.slot(body.version) != NONE {
            return Ok(None);
        }
        let next = self.version(state.head) + 1;
        let mut after = *state;
        if body.version > next {
            return Err(Fault::PastTheHead);
        }
        if body.version == next {
            if body.parent != state.head {
                return Err(Fault::NotBuiltOnHead);
            }
            if body.trespasses {
                return Err(Fault::ForeignDataset);
            }
            after.head = id;
        }
        after.set_slot(body.version, id);
        if self.setup.two_names && body.version < next {
            after.remade |= slot_bit(body.version);
        }
        Ok(Some(after))
    }

    /// What holds in every state.
    pub(super) fn invariant(&self, state: &State) -> Result<(), Fault> {
        let head = self.body(state.head);
        if head.reach & !state.objects != 0 {
            return Err(Fault::Dangling);
        }
        let mut live = usize::from(head.floor) - 1..usize::from(head.version);
        if live.any(|place| state.slots[place] != head.chain[place]) {
            return Err(Fault::GapOrForeignSlot);
        }
        if head.committed_twice {
            return Err(Fault::CommittedTwice);
        }
        let mut actors = self.setup.actors.iter().zip(state.actors);
        actors.try_for_each(|(actor, local)| self.promises_kept(state, actor, self.local(local)))
    }

    /// What an actor was told is so.
    fn promises_kept(&self, state: &State, actor: &Actor, local: Local) -> Result<(), Fault> {
        let visible = |txn| self.body(state.head).contains(txn);
        let (committed, not) = (Verdict::Committed, Verdict::NotCommitted);
        match local {
            Local::Acked { txn, .. }
            | Local::Announced { txn, .. }
            | Local::Sweeping { txn, .. }
                if !visible(txn) =>
            {
                Err(Fault::AckedButAbsent)
            }
            Local::Status { verdict, txn } if verdict == committed && !visible(txn) => {
                Err(Fault::AckedButAbsent)
            }
            Local::Failed { txn } if visible(txn) => Err(Fault::FailedButVisible),
            Local::Status { verdict, txn } if verdict == not && visible(txn) => {
                Err(Fault::FailedButVisible)
            }
            Local::Reading { body, .. } if !self.in_history(state.head, body) => {
                Err(Fault::NeverCommitted)
            }
            Local::Reading { body, .. }
                if actor.kind == Kind::InProcess && self.body(body).reach & !state.objects != 0 =>
            {
                Err(Fault::StatementLostObject)
            }
            _ => Ok(()),
        }
    }

    /// One line of a trace.
    pub(super) fn describe(&self, state: &State) -> String {
        let name = |txn: Txn| match txn.actor() {
            Some(place) => self.setup.actors[place].name,
            None if txn == Txn::INIT => "init",
            None => "fill",
        };
        let show = |id: BodyId| {
            let body = self.body(id);
            let (floor, horizon) = (body.floor, body.horizon);
            let (version, txn) = (body.version, name(body.txn));
            format!("{version}:{txn}(floor {floor}, horizon {horizon}) ")
        };
        let mut line: String = state.listed().map(|v| show(state.slot(v))).collect();
        line.push_str("| under way ");
        let flying = state.flying.iter().filter(|&&id| id != NONE);
        line.extend(flying.map(|&id| show(id)));
        line.push_str(&format!("| objects {:b} | ", state.objects));
        for (actor, local) in self.setup.actors.iter().zip(state.actors) {
            line.push_str(&format!("{}={:?} ", actor.name, self.local(local)));
        }
        line
    }
}
