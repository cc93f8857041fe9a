//! The committers: begin, stage, look, prepare, create, read back, look at the floor; then sweep.

use super::body::{BodyId, Edit, NONE, Objects, Txn};
use super::models::{Change, Kind};
use super::state::{Answer, Attempt, Local, Note, State};
use super::step::Step;
use super::world::Fault;

impl Step<'_> {
    pub(super) fn committer(&mut self, local: Local) -> Result<(), Fault> {
        match local {
            Local::Begin { second } => self.begin(second),
            Local::Stage(attempt) => {
                let mut next = *self.state;
                next.objects |= self.net.object(attempt.begin, self.me);
                self.go_in(next, Local::Prepare(attempt));
            }
            Local::Prepare(attempt) => self.look(attempt),
            Local::FetchByName(attempt, version) => match self.state.slot(version) {
                NONE => self.go(Local::Prepare(attempt)),
                base => self.prepare(base, attempt),
            },
            Local::Send(attempt) => self.send(attempt)?,
            Local::After(attempt) => self.after(attempt),
            Local::Resolve(attempt) => self.read_back(attempt),
            Local::FloorSeen(attempt, low) => self.late_read_back(attempt, low),
            Local::Answered(attempt, answer) => {
                let local = self.judge(attempt, answer);
                self.go(local);
            }
            Local::Unknown { begin, body, txn } if self.net.setup.status => {
                self.enquire(begin, body, txn);
            }
            Local::Scanning(scan) => self.scan(scan),
            Local::Acked { body, txn } => self.acked(body, txn),
            Local::Announced { body, txn } => {
                let dead = self.dead(body);
                self.go(Local::Sweeping { body, dead, txn });
            }
            Local::Sweeping { body, dead, txn } => self.sweep(body, dead, txn),
            _ => {}
        }
        Ok(())
    }

    /// Fixes begin and txn, and notes the version that will be imported.
    fn begin(&mut self, second: bool) {
        let (kind, top) = (self.kind(), self.state.top());
        let dataset = self.net.setup.actors[self.me].dataset.unwrap_or(0);
        let note = if kind.imports() {
            let oldest = self.net.body(top).datasets[dataset].retained.first();
            match oldest.filter(|_| !second) {
                Some(&old) => Note::Import(old),
                None => Note::Nothing,
            }
        } else if self.net.mutated(Change::StaleBase) {
            Note::Base(top)
        } else {
            Note::Nothing
        };
        let attempt = Attempt {
            begin: self.head_version(),
            note,
            body: NONE,
            txn: Txn::of(self.me, second),
        };
        self.go(if kind.stages() {
            Local::Stage(attempt)
        } else {
            Local::Prepare(attempt)
        });
    }

    fn look(&mut self, mut attempt: Attempt) {
        if self.head_version() >= self.net.setup.last {
            return;
        }
        let top = self.state.top();
        if self.net.mutated(Change::NoEtag) {
            let version = self.net.version(top);
            self.go(Local::FetchByName(attempt, version));
        } else if let Note::Base(base) = attempt.note {
            attempt.note = Note::Nothing;
            self.prepare(base, attempt);
        } else {
            self.prepare(top, attempt);
        }
    }

    /// Horizon and references on the very body that the next slot extends, then the new body.
    fn prepare(&mut self, base: BodyId, mut attempt: Attempt) {
        let txn = attempt.txn;
        if self.fenced(base, attempt) || self.reclaimed(base, attempt) {
            return self.go(Local::Failed { txn });
        }
        let imported = attempt.note.imported();
        let edit = match self.kind() {
            Kind::Writer => Edit::Publish(self.net.object(attempt.begin, self.me)),
            Kind::Restore => Edit::Publish(self.net.object(attempt.begin, self.me) | imported),
            Kind::Expire => Edit::Expire(self.net.object(attempt.begin, self.me)),
            Kind::Gc => Edit::RaiseHorizon,
            Kind::Pin if imported != 0 => Edit::Pin(imported),
            Kind::Pin => Edit::Unpin,
            _ => Edit::Nothing,
        };
        attempt.body = self.net.commit(base, txn, edit);
        self.go(Local::Send(attempt));
    }

    /// `WriterFenced`.
    fn fenced(&self, base: BodyId, attempt: Attempt) -> bool {
        self.kind().stages()
            && attempt.begin < self.net.body(base).horizon
            && attempt.note != Note::Unfenced
            && !self.net.mutated(Change::NoHorizon)
    }

    /// `HistoricalVersionReclaimed`.
    fn reclaimed(&self, base: BodyId, attempt: Attempt) -> bool {
        let Note::Import(old) = attempt.note else {
            return false;
        };
        let unchecked = self.net.mutated(Change::NoRecheck)
            || self.kind() == Kind::Pin && self.net.mutated(Change::PinNoCheck);
        let dataset = self.net.setup.actors[self.me].dataset.unwrap_or(0);
        let body = self.net.body(base);
        !unchecked
            && !body.datasets[dataset].retained.contains(&old)
            && !body.pins.contains(&old.refs)
    }

    /// The create. Any answer but success has to be resolved.
    fn send(&mut self, attempt: Attempt) -> Result<(), Fault> {
        let faulty = self.net.setup.actors[self.me].faulty;
        let landed = self.net.create(self.state, attempt.body)?;
        let anew = Local::Prepare(Attempt {
            body: NONE,
            ..attempt
        });
        let unresolved = if self.net.mutated(Change::NoReadback) {
            anew
        } else {
            Local::Resolve(attempt)
        };
        let trusting = self.net.mutated(Change::TrustExists);
        if trusting && (landed.is_none() || faulty) {
            self.go(anew);
        }
        if let Some(next) = landed {
            self.succeed(next, attempt);
            if faulty {
                // It landed, the answer is lost or turned into a conflict.
                self.go_in(next, unresolved);
            }
        } else if !trusting {
            self.go(unresolved);
        }
        if faulty {
            if self.state.in_flight() < self.net.setup.inflight {
                let mut next = *self.state;
                next.launch(attempt.body);
                self.go_in(next, unresolved);
            }
            self.go(unresolved);
        }
        Ok(())
    }

    fn succeed(&mut self, next: State, attempt: Attempt) {
        let local = if self.net.mutated(Change::NoAfter) {
            self.judge(attempt, Answer::Ours)
        } else {
            Local::After(attempt)
        };
        self.go_in(next, local);
    }

    fn after(&mut self, attempt: Attempt) {
        let Attempt { body, txn, .. } = attempt;
        let by_get = self.net.mutated(Change::AfterGetNext);
        let local = if by_get && self.state.slot(self.net.version(body) + 1) == NONE {
            Local::Acked { body, txn }
        } else {
            self.judge(attempt, Answer::Ours)
        };
        self.go(local);
    }

    fn read_back(&mut self, attempt: Attempt) {
        let Attempt {
            begin, body, txn, ..
        } = attempt;
        let local = if self.net.mutated(Change::FloorFirst) {
            Local::FloorSeen(attempt, self.net.version(body) < self.floor())
        } else {
            Local::Answered(attempt, self.found(attempt))
        };
        self.go(local);
        if self.net.setup.actors[self.me].faulty {
            // The deadline.
            self.go(if self.net.mutated(Change::UnknownFails) {
                Local::Failed { txn }
            } else {
                Local::Unknown { begin, body, txn }
            });
        }
    }

    fn found(&self, attempt: Attempt) -> Answer {
        match self.slot_of(attempt.body) {
            NONE => Answer::Missing,
            body if self.net.body(body).txn == attempt.txn => Answer::Ours,
            _ => Answer::Another,
        }
    }

    /// The floor check: one LIST after the answer about the slot gives the head; or the slot before has
    /// never been deleted, so this one was not either.
    fn judge(&self, attempt: Attempt, answer: Answer) -> Local {
        let Attempt {
            begin, body, txn, ..
        } = attempt;
        let kept = match self.net.mutated(Change::OwnName) {
            true => self.slot_of(body) == body,
            false => self.is_kept(self.net.version(body) - 1),
        };
        let kept = self.net.setup.two_names && kept;
        let low = !kept && self.net.version(body) < self.floor();
        let unchecked = match answer {
            Answer::Ours => Change::NoAfter,
            _ => Change::NoFloor,
        };
        if low && !self.net.mutated(unchecked) {
            return Local::Unknown { begin, body, txn };
        }
        match answer {
            Answer::Ours => Local::Acked { body, txn },
            Answer::Missing if !self.net.mutated(Change::ResendNew) => Local::Send(attempt),
            _ => self.next_attempt(attempt),
        }
    }

    fn next_attempt(&self, attempt: Attempt) -> Local {
        let note = match attempt.note {
            Note::Nothing if self.net.mutated(Change::HorizonOnce) => Note::Unfenced,
            Note::Import(old) if self.net.mutated(Change::RecheckOnce) => Note::ImportOnce(old),
            note => note,
        };
        Local::Prepare(Attempt {
            note,
            body: NONE,
            ..attempt
        })
    }

    /// Mutant: the slot is read after the floor.
    fn late_read_back(&mut self, attempt: Attempt, low: bool) {
        let Attempt {
            begin, body, txn, ..
        } = attempt;
        let local = match self.found(attempt) {
            _ if low => Local::Unknown { begin, body, txn },
            Answer::Ours => Local::Acked { body, txn },
            Answer::Missing => Local::Send(attempt),
            Answer::Another => self.next_attempt(attempt),
        };
        self.go(local);
    }

    fn acked(&mut self, body: BodyId, txn: Txn) {
        match self.kind() {
            Kind::Pin if !txn.is_second() => self.go(Local::Begin { second: true }),
            Kind::Gc | Kind::Expire => self.go(Local::Announced { body, txn }),
            _ => {}
        }
    }

    /// What the sweep of that body deletes: the announcement stands, now the in-process pins are read.
    fn dead(&self, id: BodyId) -> Objects {
        let body = self.net.body(id);
        let mut keep = body.reach;
        let newest = body.datasets.iter().fold(0, |all, d| all | d.newest());
        if self.net.mutated(Change::NoRetained) {
            keep = newest;
        }
        if self.net.mutated(Change::NoPinMark) {
            let retained = body.datasets.iter().flat_map(|d| &d.retained);
            keep = retained.fold(newest, |all, version| all | version.refs);
        }
        for (actor, &local) in self.net.setup.actors.iter().zip(&self.state.actors) {
            let (Local::Registered { body: pinned, .. } | Local::Reading { body: pinned, .. }) =
                self.net.local(local)
            else {
                continue;
            };
            if actor.kind == Kind::InProcess && !self.net.mutated(Change::NoInProc) {
                keep |= self.net.body(pinned).reach;
            }
        }
        let candidates = match self.kind() {
            Kind::Gc => self.net.staged_before(body.horizon),
            _ => self.net.body(body.parent).reach,
        };
        candidates & self.state.objects & !keep
    }

    fn sweep(&mut self, body: BodyId, dead: Objects, txn: Txn) {
        if dead != 0 {
            let first = dead & dead.wrapping_neg();
            let (mut next, dead) = (*self.state, dead & !first);
            next.objects &= !first;
            self.go_in(next, Local::Sweeping { body, dead, txn });
        }
        // The end, or a crash before it.
        self.go(Local::Swept { body, txn });
    }
}
