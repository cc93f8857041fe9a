//! The models (who takes part, what may happen) and the changes (mutants and variants).

use super::world::Fault;

/// What an actor does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Kind {
    /// Publishes a version that holds one staged object.
    Writer,
    /// Publishes the oldest retained version again, with one staged object.
    Restore,
    /// Keeps only the newest version, stages an index page, sweeps what it dropped.
    Expire,
    /// Raises the horizon to its own version, sweeps.
    Gc,
    /// Pins the oldest retained version, then drops the pin.
    Pin,
    /// Commits of other well-behaved processes that change no dataset: they push the floor.
    Fill,
    /// A statement in the sweepers' process: registers a pin, validates it, reads.
    InProcess,
    /// A statement of another process: no pin.
    Outside,
    /// A process that has no cached head.
    Cold,
    /// Another process asks for the status of the first actor's commit.
    Asker,
}

impl Kind {
    /// Puts an object before it commits.
    pub(super) fn stages(self) -> bool {
        matches!(self, Self::Writer | Self::Restore | Self::Expire)
    }

    /// References a version older than the head.
    pub(super) fn imports(self) -> bool {
        matches!(self, Self::Restore | Self::Pin)
    }
}

/// One actor of a model.
#[derive(Debug)]
pub(super) struct Actor {
    pub(super) name: &'static str,
    pub(super) kind: Kind,
    /// The only dataset that it may change.
    pub(super) dataset: Option<usize>,
    /// The network may lose or delay its creates and its answers; otherwise it only stalls.
    pub(super) faulty: bool,
}

const fn faulty(name: &'static str, kind: Kind, dataset: usize) -> Actor {
    Actor {
        name,
        kind,
        dataset: Some(dataset),
        faulty: true,
    }
}

const fn sync(name: &'static str, kind: Kind, dataset: usize) -> Actor {
    Actor {
        faulty: false,
        ..faulty(name, kind, dataset)
    }
}

const fn other(name: &'static str, kind: Kind) -> Actor {
    Actor {
        name,
        kind,
        dataset: None,
        faulty: false,
    }
}

const FAULTY_GC: Actor = Actor { faulty: true, ..GC };
const GC: Actor = other("gc", Kind::Gc);
const W1: Actor = faulty("w1", Kind::Writer, 0);
const X1: Actor = sync("x1", Kind::Expire, 0);
const QO: Actor = other("qo", Kind::Outside);
const CC: Actor = other("cc", Kind::Cold);
const FF: Actor = other("ff", Kind::Fill);

/// One model.
#[derive(Debug)]
pub(super) struct Setup {
    pub(super) name: &'static str,
    pub(super) actors: &'static [Actor],
    /// How many commits the fill actor has.
    pub(super) fills: u8,
    /// The highest version that is committed.
    pub(super) last: u8,
    /// How many different creates may be under way at once.
    pub(super) inflight: usize,
    /// A delayed create that has landed may land again.
    pub(super) duplicates: bool,
    /// Slots below the floor go in any order, not only the lowest first.
    pub(super) any_order: bool,
    /// A LIST by name comes in pages of two.
    pub(super) paged: bool,
    /// A LIST is one call for each directory (local files).
    pub(super) two_calls: bool,
    /// Looks and floor checks ask for two names before they LIST (local files).
    pub(super) two_names: bool,
    /// Commits of unknown outcome are asked for.
    pub(super) status: bool,
    /// How many statements the in-process reader runs.
    pub(super) statements: u8,
}

const BASE: Setup = Setup {
    name: "",
    actors: &[],
    fills: 0,
    last: 8,
    inflight: 1,
    duplicates: true,
    any_order: false,
    paged: false,
    two_calls: false,
    two_names: false,
    status: false,
    statements: 1,
};

static SETUPS: &[Setup] = &[
    Setup {
        name: "net",
        actors: &[W1, faulty("w2", Kind::Writer, 0), FF],
        fills: 3,
        last: 6,
        inflight: 2,
        any_order: true,
        ..BASE
    },
    Setup {
        name: "gc",
        actors: &[W1, FAULTY_GC, FF],
        fills: 3,
        last: 6,
        inflight: 2,
        any_order: true,
        ..BASE
    },
    Setup {
        name: "gc1",
        actors: &[W1, GC, FF],
        fills: 2,
        last: 5,
        duplicates: false,
        ..BASE
    },
    Setup {
        name: "head1",
        actors: &[W1, QO, FF],
        fills: 5,
        last: 6,
        paged: true,
        ..BASE
    },
    Setup {
        name: "cold1",
        actors: &[W1, CC, FF],
        fills: 7,
        last: 7,
        ..BASE
    },
    Setup {
        name: "cold1l",
        actors: &[W1, CC, FF],
        fills: 7,
        last: 7,
        two_calls: true,
        ..BASE
    },
    Setup {
        name: "names",
        actors: &[W1, faulty("w2", Kind::Writer, 0), FF],
        fills: 3,
        last: 6,
        inflight: 2,
        duplicates: false,
        two_names: true,
        ..BASE
    },
    Setup {
        name: "names1",
        actors: &[W1, other("qi", Kind::InProcess), FF],
        fills: 6,
        last: 7,
        duplicates: false,
        two_names: true,
        statements: 2,
        ..BASE
    },
    Setup {
        name: "namesgc",
        actors: &[W1, FAULTY_GC, QO, FF],
        fills: 2,
        last: 5,
        inflight: 2,
        duplicates: false,
        two_names: true,
        ..BASE
    },
    Setup {
        name: "status",
        actors: &[W1, GC, other("t", Kind::Asker), FF],
        fills: 4,
        last: 7,
        inflight: 2,
        status: true,
        ..BASE
    },
    Setup {
        name: "gc2",
        actors: &[
            W1,
            Actor {
                name: "g1",
                ..FAULTY_GC
            },
            other("g2", Kind::Gc),
            FF,
        ],
        fills: 2,
        last: 6,
        ..BASE
    },
    Setup {
        name: "headlocal",
        actors: &[W1, sync("w2", Kind::Writer, 1), CC, FF],
        fills: 5,
        last: 7,
        inflight: 2,
        two_calls: true,
        ..BASE
    },
    Setup {
        name: "import",
        actors: &[
            faulty("r1", Kind::Restore, 0),
            faulty("x1", Kind::Expire, 0),
            GC,
            FF,
        ],
        fills: 2,
        last: 6,
        ..BASE
    },
    Setup {
        name: "pin",
        actors: &[
            sync("p1", Kind::Pin, 0),
            sync("r1", Kind::Restore, 0),
            faulty("x1", Kind::Expire, 0),
            GC,
            sync("w1", Kind::Writer, 1),
        ],
        ..BASE
    },
    Setup {
        name: "two",
        actors: &[
            W1,
            sync("r1", Kind::Restore, 1),
            X1,
            sync("x2", Kind::Expire, 1),
            GC,
        ],
        last: 7,
        duplicates: false,
        ..BASE
    },
    Setup {
        name: "read",
        actors: &[W1, X1, GC, other("qi", Kind::InProcess), QO, FF],
        fills: 1,
        last: 5,
        statements: 2,
        ..BASE
    },
    Setup {
        name: "head",
        actors: &[W1, faulty("w2", Kind::Writer, 1), QO, CC, FF],
        fills: 5,
        last: 7,
        ..BASE
    },
];

/// The model of that name.
pub(super) fn setup(name: &str) -> &'static Setup {
    let found = SETUPS.iter().find(|setup| setup.name == name);
    found.unwrap_or_else(|| panic!("no model {name}"))
}

/// A change of the protocol: a guard removed (a mutant), or one of the two variants that are safe.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Change {
    /// Every answer but success means that the create lost.
    NoReadback,
    /// "It exists" means that the create lost.
    TrustExists,
    /// A slot that is missing is rebased instead of sent again.
    ResendNew,
    /// The deadline is reported as a failure.
    UnknownFails,
    /// A read-back is believed without a look at the floor.
    NoFloor,
    /// The floor is looked at before the read-back.
    FloorFirst,
    /// Success is believed without a look at the floor.
    NoAfter,
    /// The look after a success is a GET of the next slot.
    AfterGetNext,
    /// The horizon fences nobody.
    NoHorizon,
    /// The horizon fences first attempts only.
    HorizonOnce,
    /// Imported versions are not looked up in the head.
    NoRecheck,
    /// Imported versions are looked up by first attempts only.
    RecheckOnce,
    /// Imported versions are not looked up for pins.
    PinNoCheck,
    /// The mark leaves out retained versions.
    NoRetained,
    /// The mark leaves out pins.
    NoPinMark,
    /// An expiry cuts the history of every dataset.
    SlotHistory,
    /// The head is the first slot without a successor, from the cached one on.
    Probe,
    /// The head's body is read by its name alone.
    NoEtag,
    /// A cold process lists the last directory alone.
    ColdDir,
    /// A sweep does not look at in-process pins.
    NoInProc,
    /// An in-process pin is not compared with the announced sweep.
    NoValidate,
    /// "Not there now" is reported as "never will be".
    StFinal,
    /// The status looks at no floor.
    StLow,
    /// Slots below the floor are deleted in any order where two names are asked for.
    AnyOrder,
    /// Of the two names the cached one is asked for first.
    NamesReversed,
    /// A name is enough, whatever its `e_tag`.
    AnyTag,
    /// The floor check asks for the slot itself, not for the one before.
    OwnName,
    /// Variant: a first attempt builds on the head that the commit began with.
    StaleBase,
    /// Variant: where there is no `e_tag`, a second LIST after the GET.
    GetList,
}

/// Every mutant where it is caught: the model, what breaks, after how many steps.
pub(super) const MUTANTS: &[(&str, Change, Fault, usize)] = &[
    ("net", Change::NoReadback, Fault::CommittedTwice, 6),
    ("net", Change::TrustExists, Fault::CommittedTwice, 10),
    ("net", Change::ResendNew, Fault::CommittedTwice, 9),
    ("net", Change::UnknownFails, Fault::FailedButVisible, 5),
    ("net", Change::FloorFirst, Fault::AckedButAbsent, 15),
    ("net", Change::NoFloor, Fault::CommittedTwice, 16),
    ("net", Change::NoAfter, Fault::AckedButAbsent, 12),
    ("gc", Change::NoAfter, Fault::AckedButAbsent, 11),
    ("gc", Change::NoHorizon, Fault::Dangling, 11),
    ("gc", Change::HorizonOnce, Fault::Dangling, 15),
    ("import", Change::NoRecheck, Fault::Dangling, 12),
    ("import", Change::RecheckOnce, Fault::Dangling, 16),
    ("pin", Change::NoRecheck, Fault::Dangling, 11),
    ("pin", Change::PinNoCheck, Fault::Dangling, 11),
    ("pin", Change::NoRetained, Fault::Dangling, 7),
    ("gc", Change::NoRetained, Fault::Dangling, 7),
    ("pin", Change::NoPinMark, Fault::Dangling, 11),
    ("import", Change::SlotHistory, Fault::ForeignDataset, 3),
    ("two", Change::SlotHistory, Fault::ForeignDataset, 3),
    ("head", Change::Probe, Fault::HeadSticks, 6),
    ("head1", Change::NoEtag, Fault::NeverCommitted, 13),
    ("cold1", Change::ColdDir, Fault::ColdTookRemade, 14),
    ("read", Change::NoInProc, Fault::StatementLostObject, 11),
    ("read", Change::NoValidate, Fault::StatementLostObject, 11),
    ("status", Change::StFinal, Fault::FailedButVisible, 6),
    ("status", Change::StLow, Fault::FailedButVisible, 13),
    ("cold1", Change::AfterGetNext, Fault::AckedButAbsent, 13),
    ("names1", Change::AnyOrder, Fault::OldHead, 6),
    ("names", Change::AnyOrder, Fault::AckedButAbsent, 13),
    ("names1", Change::NamesReversed, Fault::OldHead, 7),
    ("names1", Change::AnyTag, Fault::AckedButAbsent, 18),
    ("names", Change::OwnName, Fault::AckedButAbsent, 14),
];
