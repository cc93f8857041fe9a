//! The commit protocol as explicit-state models: every interleaving within small bounds.
//!
//! - The protocol itself ([`world`], [`step`], [`committer`], [`readers`]): slots that are only ever
//!   created, a network that loses, delays and repeats, slots below the floor that vanish and come
//!   back, sweeps, pins, readers. [`models`] says who takes part. The floor is two versions below
//!   the head and a directory holds two slots, so that a handful of commits goes all the way round.
//! - The stamp of a compacted fragment ([`stamp`]).
//! - The mark of a sweep from history entries ([`mark`]).
//!
//! A model passes when nothing breaks in any state; the guards are shown to be needed by taking each
//! away: every mutant has to be caught, by the invariant and at the depth that its table says.
//!
//! A violation prints a trace, a shortest one if it was searched. Run with `--nocapture` for the
//! figures; with `SOAK=1` (three minutes, 3 GB) the capped models go to 20 million states, which
//! completes `gc2`, `import` and the variants.

mod body;
mod committer;
mod mark;
mod models;
mod readers;
mod search;
mod stamp;
mod state;
mod step;
mod world;

use std::fmt::Display;
use std::time::Instant;

use models::{Change, MUTANTS, setup};
use search::{Explored, Model, explore, walk};
use world::Net;

/// Models that are not completed here.
const LARGE: [&str; 8] = [
    "gc2",
    "headlocal",
    "import",
    "pin",
    "two",
    "read",
    "head",
    "status",
];

/// No cap.
const ALL: usize = usize::MAX;

/// Bounds of the searches that have one, higher with `SOAK` in the environment: states of a capped
/// search, steps of the walks.
fn bounds() -> (usize, usize) {
    match std::env::var_os("SOAK") {
        Some(_) => (20_000_000, 5_000_000),
        None => (400_000, 100_000),
    }
}

/// Explores and prints the figures.
fn measured<M: Model>(name: impl Display, model: &mut M, cap: usize) -> Explored<M::Fault> {
    #[allow(clippy::disallowed_methods)] // Only printed.
    let start = Instant::now();
    let explored = explore(model, cap);
    let result = match &explored.violation {
        Some(violation) => format!("{:?} after {} steps", violation.fault, violation.steps()),
        None if explored.complete => "complete".to_owned(),
        None => "capped".to_owned(),
    };
    let (states, transitions) = (explored.states, explored.transitions);
    let time = start.elapsed();
    println!("{name}: {result}, {states} states, {transitions} transitions, {time:.1?}");
    explored
}

/// Explores a model in which nothing may break.
fn sound<M: Model>(name: impl Display, model: &mut M, cap: usize) -> Explored<M::Fault> {
    let explored = measured(&name, model, cap);
    if let Some(violation) = &explored.violation {
        panic!("{name}: {violation}");
    }
    explored
}

/// Explores a mutant: something must break. Returns what and after how many steps.
fn caught<M: Model>(name: impl Display, model: &mut M) -> (M::Fault, usize) {
    let violation = measured(&name, model, ALL).violation;
    let Some(violation) = violation else {
        panic!("{name} is not caught");
    };
    (violation.fault, violation.steps())
}

/// Completes a model; the figures are those of an independent implementation of the same model.
fn complete(name: &str, change: Option<Change>, states: usize, transitions: u64) {
    let explored = sound(name, &mut Net::new(setup(name), change), ALL);
    assert!(explored.complete);
    let found = (explored.states, explored.transitions);
    assert_eq!(found, (states, transitions), "{name}");
}

#[test]
fn two_writers_on_a_faulty_network() {
    complete("net", None, 2_700_024, 14_589_385);
}

#[test]
fn a_writer_and_gc_on_a_faulty_network() {
    complete("gc", None, 2_040_099, 11_027_799);
}

#[test]
fn small_models() {
    complete("head1", None, 147_944, 568_411);
    complete("cold1", None, 361_862, 1_462_202);
    complete("cold1l", None, 301_750, 1_222_543);
    complete("gc1", None, 19_857, 62_004);
}

#[test]
fn two_names_instead_of_a_list() {
    for name in ["names", "names1", "namesgc"] {
        assert!(sound(name, &mut Net::new(setup(name), None), ALL).complete);
    }
}

#[test]
fn large_models_up_to_a_cap() {
    for name in LARGE {
        sound(name, &mut Net::new(setup(name), None), bounds().0);
    }
}

#[test]
fn random_walks_to_the_end() {
    for name in [
        "net", "gc", "import", "pin", "two", "read", "head", "status",
    ] {
        let walked = walk(&mut Net::new(setup(name), None), 0x5eed, bounds().1);
        println!("{name}: {} steps, longest {}", walked.steps, walked.longest);
        if let Some(violation) = walked.violation {
            panic!("{name}: {violation}");
        }
    }
}

#[test]
fn variants_are_sound_too() {
    let explored = sound(
        "getlist",
        &mut Net::new(setup("head1"), Some(Change::GetList)),
        ALL,
    );
    assert_eq!((explored.complete, explored.states), (true, 91_672));
    for name in ["gc", "net", "import"] {
        let mut net = Net::new(setup(name), Some(Change::StaleBase));
        sound(format!("{name} stalebase"), &mut net, bounds().0);
    }
}

#[test]
fn every_guard_is_needed() {
    let mut others = Vec::new();
    for &(name, change, fault, steps) in MUTANTS {
        let title = format!("{name} {change:?}");
        let found = caught(&title, &mut Net::new(setup(name), Some(change)));
        if found != (fault, steps) {
            others.push((title, found));
        }
    }
    assert_eq!(others, [], "caught, but not as their table says");
}

#[test]
fn compacted_fragments_are_stamped_as_read() {
    use stamp::{Fault, Mutant, Stamps};
    assert!(sound("compact", &mut Stamps { mutant: None }, ALL).complete);
    let mutants = [
        (Mutant::StampAtCommit, Fault::Twice),
        (Mutant::DropWinners, Fault::Lost),
        (Mutant::DropWinnersMask, Fault::Twice),
        (Mutant::EarlyHorizon, Fault::Twice),
    ];
    for (mutant, fault) in mutants {
        let title = format!("compact {mutant:?}");
        let mutant = Some(mutant);
        assert_eq!(caught(title, &mut Stamps { mutant }).0, fault);
    }
}

#[test]
fn history_entries_mark_what_is_reachable() {
    use mark::{Fault, Marks, Mutant};
    assert!(sound("mark", &mut Marks { mutant: None }, ALL).complete);
    for mutant in [
        Mutant::NoImports,
        Mutant::NoRunStarts,
        Mutant::OldestRunOnly,
    ] {
        let title = format!("mark {mutant:?}");
        let mutant = Some(mutant);
        assert_eq!(caught(title, &mut Marks { mutant }).0, Fault::Unmarked);
    }
}
