//! Those who only read: statements, cold discovery, the status of a commit.

use super::body::{BodyId, NONE, Txn};
use super::models::{Change, Kind};
use super::state::{Local, Scan, Verdict};
use super::step::Step;
use super::world::Fault;

/// Slots of one directory (1,024 in the code).
const DIRECTORY: u8 = 2;

impl Step<'_> {
    /// A statement looks at the head and reads it; one in the sweepers' process pins it first.
    pub(super) fn statement(&mut self, local: Local) -> Result<(), Fault> {
        match local {
            Local::Look { left, cached } => self.look_at_head(left, cached)?,
            Local::Named { left, version } => match self.state.slot(version) {
                NONE => self.go(Local::Look { left, cached: 1 }),
                body if self.net.mutated(Change::GetList) => {
                    self.go(Local::Fetched { left, body });
                }
                body => self.have(left, body),
            },
            // The second LIST: what was read must not be below the floor.
            Local::Fetched { left, body } if self.net.version(body) < self.floor() => {
                self.go(Local::Look { left, cached: 1 });
            }
            Local::Fetched { left, body } => self.go(Local::Reading { left, body }),
            Local::FirstName {
                left,
                cached,
                start,
            } => self.second_name(left, cached, start)?,
            Local::Page {
                left,
                after,
                best,
                start,
            } => self.page(left, after, best, start)?,
            Local::Seen { left, body } => self.go(Local::Registered { left, body }),
            Local::Registered { left, body } => {
                let swept_later = self.announced() > self.net.version(body);
                self.go(if swept_later && !self.net.mutated(Change::NoValidate) {
                    Local::Look { left, cached: 1 }
                } else {
                    Local::Reading { left, body }
                });
            }
            Local::Reading { left, body } if left > 1 => {
                let (left, cached) = (left - 1, self.net.version(body));
                self.go(Local::Look { left, cached });
            }
            Local::Reading { .. } => self.go(Local::End),
            _ => {}
        }
        Ok(())
    }

    fn look_at_head(&mut self, left: u8, cached: u8) -> Result<(), Fault> {
        let start = self.head_version();
        if self.net.mutated(Change::Probe) {
            let mut last = cached;
            while self.state.slot(last + 1) != NONE {
                last += 1;
            }
            if last < start {
                return Err(Fault::HeadSticks);
            }
        }
        let top = self.state.top();
        if self.net.setup.two_names && self.name_holds(cached, true) {
            self.go(Local::FirstName {
                left,
                cached,
                start,
            });
            return Ok(());
        }
        if self.net.mutated(Change::NoEtag) || self.net.mutated(Change::GetList) {
            let version = self.net.version(top);
            self.go(Local::Named { left, version });
        } else if self.net.setup.paged && self.kind() == Kind::Outside {
            self.go(Local::Page {
                left,
                after: cached - 1,
                best: NONE,
                start,
            });
        } else {
            self.have(left, top);
        }
        Ok(())
    }

    /// What a look without a LIST asks, first that the next slot is free, then that the cached one was never
    /// deleted.
    fn name_holds(&self, cached: u8, first: bool) -> bool {
        match first != self.net.mutated(Change::NamesReversed) {
            true => self.state.slot(cached + 1) == NONE,
            false => self.is_kept(cached),
        }
    }

    fn second_name(&mut self, left: u8, cached: u8, start: u8) -> Result<(), Fault> {
        if !self.name_holds(cached, false) {
            let top = self.state.top();
            self.have(left, top);
        } else if cached < start {
            return Err(Fault::OldHead);
        } else {
            let body = self.state.slot(cached);
            self.have(left, body);
        }
        Ok(())
    }

    fn have(&mut self, left: u8, body: BodyId) {
        self.go(match self.kind() {
            Kind::InProcess => Local::Seen { left, body },
            _ => Local::Reading { left, body },
        });
    }

    /// One page of two names; the last one of the last page is the head.
    fn page(&mut self, left: u8, after: u8, best: BodyId, start: u8) -> Result<(), Fault> {
        let state = self.state;
        let mut names = state.listed().filter(|&version| version > after);
        let (first, second) = (names.next(), names.next());
        let more = names.next().is_some();
        let best = second.or(first).map_or(best, |last| state.slot(last));
        if more {
            let after = self.net.version(best);
            self.go(Local::Page {
                left,
                after,
                best,
                start,
            });
        } else if best == NONE {
            self.go(Local::Look { left, cached: 1 });
        } else if self.net.version(best) < start {
            return Err(Fault::OldHead);
        } else {
            self.go(Local::Reading { left, body: best });
        }
        Ok(())
    }

    /// The newest version whose sweep has been announced in this process.
    fn announced(&self) -> u8 {
        let sweeps = self
            .state
            .actors
            .iter()
            .map(|&local| match self.net.local(local) {
                Local::Announced { body, .. }
                | Local::Sweeping { body, .. }
                | Local::Swept { body, .. } => self.net.version(body),
                _ => 0,
            });
        sweeps.max().unwrap_or(0)
    }

    /// A cold process lists the directories, then from the last one on.
    pub(super) fn cold(&mut self, local: Local) -> Result<(), Fault> {
        let top = self.state.top();
        let last = self.net.version(top) / DIRECTORY;
        match local {
            Local::Directories => {
                let start = self.head_version();
                self.go(Local::LastDirectory {
                    directory: last,
                    start,
                });
            }
            Local::LastDirectory { directory, start } => {
                let alone = self.net.setup.two_calls || self.net.mutated(Change::ColdDir);
                let body = if alone { self.last_of(directory) } else { top };
                self.go(if self.net.setup.two_calls && body != NONE {
                    Local::DirectoriesAgain {
                        directory,
                        start,
                        body,
                    }
                } else if body == NONE || self.has_successor(body) {
                    Local::Directories
                } else {
                    Local::Discovered { body, start }
                });
            }
            Local::DirectoriesAgain {
                directory,
                start,
                body,
            } => self.go(if last == directory {
                Local::Discovered { body, start }
            } else {
                Local::Directories
            }),
            Local::Discovered { body, start } => {
                if !self.net.in_history(self.state.head, body) {
                    return Err(Fault::ColdTookRemade);
                }
                if self.net.version(body) < start {
                    return Err(Fault::OldHead);
                }
                self.go(Local::End);
            }
            _ => {}
        }
        Ok(())
    }

    fn last_of(&self, directory: u8) -> BodyId {
        let here = self.state.listed().filter(|v| v / DIRECTORY == directory);
        here.last().map_or(NONE, |version| self.state.slot(version))
    }

    fn has_successor(&self, body: BodyId) -> bool {
        body != self.state.top() && self.state.slot(self.net.version(body) + 1) != NONE
    }

    /// Another process asks, at any moment after the first actor's begin, with nothing but the txn.
    pub(super) fn asker(&mut self, local: Local) {
        match local {
            Local::Ask => match self.net.local(self.state.actors[0]) {
                Local::Stage(asked)
                | Local::Prepare(asked)
                | Local::Send(asked)
                | Local::After(asked)
                | Local::Resolve(asked)
                | Local::Answered(asked, _) => self.start_scan(asked.begin, NONE, asked.txn),
                _ => {}
            },
            Local::Scanning(scan) => self.scan(scan),
            _ => {}
        }
    }

    /// The owner asks, which has stopped.
    pub(super) fn enquire(&mut self, begin: u8, body: BodyId, txn: Txn) {
        if begin + 1 < self.floor() && !self.net.mutated(Change::StLow) {
            let verdict = Verdict::Unknown;
            self.go(Local::Status { verdict, txn });
        } else {
            self.start_scan(begin, body, txn);
        }
    }

    fn start_scan(&mut self, begin: u8, stopped: BodyId, txn: Txn) {
        self.go(Local::Scanning(Scan {
            at: begin + 1,
            listed: self.state.head,
            hit: 0,
            begin,
            stopped,
            txn,
        }));
    }

    /// Slots from begin + 1 to the listed head one by one, then the floor again.
    pub(super) fn scan(&mut self, mut scan: Scan) {
        let listed = self.net.body(scan.listed);
        let (at, txn) = (scan.at, scan.txn);
        if at <= listed.version {
            let body = self.state.slot(at);
            if body != NONE && self.net.body(body).txn == txn {
                scan.hit = at;
            }
            scan.at += 1;
            return self.go(Local::Scanning(scan));
        }
        let evidence = match scan.hit {
            0 => scan.begin + 1,
            hit => hit,
        };
        let low = self.floor() > evidence && !self.net.mutated(Change::StLow);
        let fenced = listed.horizon > scan.begin;
        let taken = scan.stopped != NONE && listed.version >= self.net.version(scan.stopped);
        let verdict = if low {
            Verdict::Unknown
        } else if scan.hit != 0 {
            Verdict::Committed
        } else if fenced || taken || self.net.mutated(Change::StFinal) {
            Verdict::NotCommitted
        } else {
            Verdict::Unknown
        };
        self.go(Local::Status { verdict, txn });
    }
}
