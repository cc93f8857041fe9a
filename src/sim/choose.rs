//! Which of the waiting calls is next.

use std::collections::BTreeMap;

use super::Rng;
use super::call::Op;
use super::sched::Step;

/// A choice of an enumeration.
#[derive(Debug)]
struct Node {
    options: Vec<Step>,
    choice: usize,
    /// Calls whose order against everything since was explored in another branch.
    asleep: Vec<Step>,
    /// Options that were explored before the current one.
    done: Vec<Step>,
}

impl Node {
    fn awake(&self, from: usize) -> Option<usize> {
        (from..self.options.len()).find(|i| !self.asleep.contains(&self.options[*i]))
    }
}

/// Depth-first choices. With `reduced`, orders that differ only in neighbouring calls that commute
/// are explored once (sleep sets: Godefroid, Partial-Order Methods, 1996).
#[derive(Debug, Default)]
pub(super) struct Enumerated {
    path: Vec<Node>,
    depth: usize,
    reduced: bool,
}

/// Whether two calls give the same results and the same store in either order.
fn commute(a: &Step, b: &Step) -> bool {
    let lists = |a: &Step, b: &Step| {
        matches!(a.op, Op::List | Op::ListOffset | Op::ListLevel) && b.key.starts_with(&a.key)
    };
    let meet = a.key == b.key || lists(a, b) || lists(b, a);
    a.actor != b.actor && !(meet && (a.op.is_write() || b.op.is_write()))
}

impl Enumerated {
    pub(super) fn new(reduced: bool) -> Self {
        Self {
            reduced,
            ..Self::default()
        }
    }

    /// Choices of the last run.
    pub(super) fn depth(&self) -> usize {
        self.depth
    }

    pub(super) fn choose(&mut self, options: &[Step]) -> Result<usize, String> {
        let depth = self.depth;
        self.depth += 1;
        match self.path.get(depth) {
            Some(node) if node.options == options => Ok(node.choice),
            Some(node) => Err(format!(
                "the world is not repeatable: choice {depth} had {} options and now has {}",
                node.options.len(),
                options.len()
            )),
            None => {
                let mut node = Node {
                    options: options.to_vec(),
                    choice: 0,
                    asleep: self.inherited(),
                    done: Vec::new(),
                };
                match node.awake(0) {
                    Some(first) => node.choice = first,
                    // The run repeats another one, so it goes on without branching.
                    None => node.asleep = node.options.clone(),
                }
                let choice = node.choice;
                self.path.push(node);
                Ok(choice)
            }
        }
    }

    fn inherited(&self) -> Vec<Step> {
        let Some(parent) = self.path.last().filter(|_| self.reduced) else {
            return Vec::new();
        };
        let chosen = &parent.options[parent.choice];
        let before = parent.asleep.iter().chain(&parent.done);
        before
            .filter(|step| commute(step, chosen))
            .cloned()
            .collect()
    }

    /// Turns to the next order; `false` when there is none.
    pub(super) fn advance(&mut self) -> bool {
        self.depth = 0;
        while let Some(mut node) = self.path.pop() {
            if let Some(next) = node.awake(node.choice + 1) {
                node.done.push(node.options[node.choice].clone());
                node.choice = next;
                self.path.push(node);
                return true;
            }
        }
        false
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
