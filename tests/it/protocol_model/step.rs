//! One atomic step of anybody: a delayed create arrives, an old slot goes, an actor moves.
//!
//! A create, a GET, a LIST and a delete are one step each; everything else interleaves. A look (LIST,
//! GET with the listed `e_tag`, again on a mismatch) shows the head at its LIST, so it is one step too,
//! except under the changes that read the body without its tag.

use super::body::{BodyId, Edit, NONE, Txn};
use super::models::{Change, Kind};
use super::search::Model;
use super::state::{Local, State};
use super::world::{Fault, Net};

impl Model for Net {
    type State = State;
    type Fault = Fault;

    fn initial(&mut self) -> State {
        self.start()
    }

    fn successors(&mut self, state: &State, out: &mut Vec<State>) -> Result<(), Fault> {
        self.arrivals(state, out)?;
        self.deletions(state, out);
        for me in 0..self.setup.actors.len() {
            let local = self.local(state.actors[me]);
            let mut step = Step {
                net: self,
                state,
                me,
                out,
            };
            step.advance(local)?;
        }
        Ok(())
    }

    fn check(&self, state: &State) -> Result<(), Fault> {
        self.invariant(state)
    }

    fn show(&self, state: &State) -> String {
        self.describe(state)
    }
}

impl Net {
    fn arrivals(&self, state: &State, out: &mut Vec<State>) -> Result<(), Fault> {
        for (place, &body) in state.flying.iter().enumerate() {
            if body == NONE {
                continue;
            }
            let landed = self.create(state, body)?;
            let mut next = landed.unwrap_or(*state);
            next.land(place);
            out.push(next);
            if self.setup.duplicates {
                out.extend(landed);
            }
        }
        Ok(())
    }

    fn deletions(&self, state: &State, out: &mut Vec<State>) {
        let floor = self.body(state.head).floor;
        let any_order = self.setup.any_order || self.mutated(Change::AnyOrder);
        for version in 1..floor {
            if state.slot(version) == NONE {
                continue;
            }
            let mut next = *state;
            next.delete_slot(version);
            out.push(next);
            // One that was made again is not in the listing of who deletes.
            if !any_order && state.is_original(version) {
                break;
            }
        }
    }
}

/// The step of one actor.
pub(super) struct Step<'a> {
    pub(super) net: &'a mut Net,
    pub(super) state: &'a State,
    pub(super) me: usize,
    out: &'a mut Vec<State>,
}

impl Step<'_> {
    fn advance(&mut self, local: Local) -> Result<(), Fault> {
        match self.kind() {
            _ if local == Local::End => Ok(()),
            Kind::Fill => self.fill(local),
            Kind::InProcess | Kind::Outside => self.statement(local),
            Kind::Cold => self.cold(local),
            Kind::Asker => {
                self.asker(local);
                Ok(())
            }
            _ => self.committer(local),
        }
    }

    #[inline]
    pub(super) fn kind(&self) -> Kind {
        self.net.setup.actors[self.me].kind
    }

    /// The floor that a LIST would give now.
    #[inline]
    pub(super) fn floor(&self) -> u8 {
        self.net.body(self.state.head).floor
    }

    #[inline]
    pub(super) fn head_version(&self) -> u8 {
        self.net.version(self.state.head)
    }

    /// Only this actor's local state changes.
    #[inline]
    pub(super) fn go(&mut self, local: Local) {
        self.go_in(*self.state, local);
    }

    /// The world changes too.
    #[inline]
    pub(super) fn go_in(&mut self, mut next: State, local: Local) {
        next.actors[self.me] = self.net.local_id(local);
        self.out.push(next);
    }

    /// The slot, seen as a head or built upon before, has never been deleted.
    pub(super) fn is_kept(&self, version: u8) -> bool {
        match self.net.mutated(Change::AnyTag) {
            true => self.state.slot(version) != NONE,
            false => self.state.is_original(version),
        }
    }

    /// What a GET of the body's slot gives.
    pub(super) fn slot_of(&self, body: BodyId) -> BodyId {
        self.state.slot(self.net.version(body))
    }

    fn fill(&mut self, local: Local) -> Result<(), Fault> {
        let Local::Filling { left } = local else {
            return Ok(());
        };
        if left == 0 || self.head_version() >= self.net.setup.last {
            return Ok(());
        }
        let head = self.state.head;
        let body = self.net.commit(head, Txn::fill(left), Edit::Nothing);
        if let Some(next) = self.net.create(self.state, body)? {
            self.go_in(next, Local::Filling { left: left - 1 });
        }
        Ok(())
    }
}
