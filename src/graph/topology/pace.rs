//! Pauses of long work on the CPU, so that others run and a dropped query ends.

/// Steps between two pauses: one or two milliseconds of edges.
const STEPS: usize = 128 * 1024;

/// Counts steps.
#[derive(Debug, Default)]
pub(super) struct Pace {
    steps: usize,
}

impl Pace {
    /// Counts `steps`; whether it is time for [`Pace::rest`].
    #[inline]
    pub(super) fn due(&mut self, steps: usize) -> bool {
        self.steps += steps;
        let due = self.steps >= STEPS;
        if due {
            self.steps = 0;
        }
        due
    }

    /// Lets others run.
    pub(super) async fn rest() {
        tokio::task::yield_now().await;
    }
}
