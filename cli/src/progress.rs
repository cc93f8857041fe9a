//! A progress bar for verbs that take long.

use std::io::IsTerminal;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use stratagraph::env::Progress;

/// Verbs that are done before this never show a bar.
const QUIET_TIME: Duration = Duration::from_millis(400);

const COUNTED: &str = "{msg} {wide_bar} {human_pos}/{human_len} {eta}";
const UNCOUNTED: &str = "{spinner} {msg} {human_pos}";

/// One bar on standard error, of the phase reported last. It goes when its phase is complete, or
/// when a phase without a name is reported.
#[derive(Debug)]
pub(crate) struct Bar {
    is_shown: bool,
    current: Mutex<Option<Phase>>,
}

#[derive(Debug)]
struct Phase {
    name: String,
    bar: ProgressBar,
    is_drawn: bool,
}

impl Bar {
    /// A bar that stays silent when standard error is no terminal or `quiet` is asked for.
    pub(crate) fn new(quiet: bool) -> Self {
        Self {
            is_shown: !quiet && std::io::stderr().is_terminal(),
            current: Mutex::new(None),
        }
    }

    /// Takes the bar off the screen.
    pub(crate) fn clear(&self) {
        if let Some(phase) = self.current().take() {
            phase.bar.finish_and_clear();
        }
    }

    fn current(&self) -> MutexGuard<'_, Option<Phase>> {
        // A bar that a panic left behind is drawn anew by the next report.
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Progress for Bar {
    fn report(&self, phase: &str, done: u64, total: u64) {
        if !self.is_shown {
            return;
        }
        let is_complete = total > 0 && done >= total;
        if is_complete || phase.is_empty() {
            return self.clear();
        }
        let mut current = self.current();
        if current.as_ref().is_none_or(|now| now.name != phase)
            && let Some(old) = current.replace(Phase::new(phase, total))
        {
            old.bar.finish_and_clear();
        }
        if let Some(now) = current.as_mut() {
            now.advance(done, total);
        }
    }
}

impl Phase {
    fn new(name: &str, total: u64) -> Self {
        let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::hidden());
        let template = if total > 0 { COUNTED } else { UNCOUNTED };
        if let Ok(style) = ProgressStyle::with_template(template) {
            bar.set_style(style);
        }
        bar.set_message(name.to_owned());
        Self {
            name: name.to_owned(),
            bar,
            is_drawn: false,
        }
    }

    fn advance(&mut self, done: u64, total: u64) {
        if total > 0 {
            self.bar.set_length(total);
        }
        if !self.is_drawn && self.bar.elapsed() >= QUIET_TIME {
            self.bar.set_draw_target(ProgressDrawTarget::stderr());
            self.is_drawn = true;
        }
        self.bar.set_position(done);
    }
}
