//! Which of the waiting calls is next.

use std::collections::BTreeMap;

use super::Rng;
use super::sched::Step;

/// Choices of an enumeration: those of `path`, then the first option each time.
pub(super) struct Enumerated {
    /// Choice and number of options.
    pub(super) path: Vec<(usize, usize)>,
    pub(super) depth: usize,
}

impl Enumerated {
    pub(super) fn choose(&mut self, options: &[Step]) -> Result<usize, String> {
        let depth = self.depth;
        self.depth += 1;
        match self.path.get(depth) {
            None => {
                self.path.push((0, options.len()));
                Ok(0)
            }
            Some((choice, count)) if *count == options.len() => Ok(*choice),
            Some((_, count)) => Err(format!(
                "the world is not repeatable: choice {depth} had {count} options and now has {}",
                options.len()
            )),
        }
    }
}

/// Probabilistic concurrency testing: priorities with a few changes find bugs of few preemptions with
/// a known probability, which plain random orders do not.
pub(super) struct Prioritised {
    rng: Rng,
    priorities: BTreeMap<usize, i128>,
    changes: Vec<u64>,
    step: u64,
    lowest: i128,
}

impl Prioritised {
    pub(super) fn new(seed: u64, preemptions: usize, steps: u64) -> Self {
        let mut rng = Rng::new(seed);
        let changes = (0..preemptions).map(|_| rng.below(steps)).collect();
        Self {
            rng,
            priorities: BTreeMap::new(),
            changes,
            step: 0,
            lowest: -1,
        }
    }

    pub(super) fn choose(&mut self, options: &[Step]) -> usize {
        for option in options {
            let rng = &mut self.rng;
            (self.priorities.entry(option.actor)).or_insert_with(|| i128::from(rng.next_u64()));
        }
        let mut first = self.first(options);
        if self.changes.contains(&self.step)
            && let Some(step) = options.get(first)
        {
            self.priorities.insert(step.actor, self.lowest);
            self.lowest -= 1;
            first = self.first(options);
        }
        self.step += 1;
        first
    }

    /// The first call of the actor with the highest priority.
    fn first(&self, options: &[Step]) -> usize {
        let priority = |index: &usize| options.get(*index).map(|o| self.priorities.get(&o.actor));
        (0..options.len())
            .rev()
            .max_by_key(priority)
            .unwrap_or_default()
    }
}
