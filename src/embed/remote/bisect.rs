//! One request's worth of texts, of which a server may refuse some.

use std::ops::Range;

use super::answer::Answer;
use super::client::{Call, Failure};
use super::{RemoteEmbedder, Slot};
use crate::embed::RejectReason;
use crate::{Result, limits};

impl RemoteEmbedder {
    /// One slot per text. A server refuses a request as a whole, so a refused one is halved until
    /// the texts stand alone that it does not take.
    pub(super) async fn request(&self, call: &Call, texts: &[&str]) -> Result<Vec<Slot>> {
        let mut slots: Vec<Option<Slot>> = Vec::new();
        slots.resize_with(texts.len(), || None);
        let mut requests = most_requests(texts.len());
        let (mut refused, mut last) = (0, String::new());
        let mut parts: Vec<Range<usize>> = std::iter::once(0..texts.len()).collect();
        while let Some(part) = parts.pop() {
            if refused > limits::REMOTE_REFUSALS || requests == 0 {
                return Err(self.server.client.failed(format!(
                    "it refused too much of a request of {} texts; the last: {last}",
                    texts.len()
                )));
            }
            requests -= 1;
            let part_texts = &texts[part.clone()];
            match self.server.ask(call, part_texts, self.dimensions).await {
                Ok(answer) => {
                    for (row, slot) in part.zip(self.check(answer)?) {
                        slots[row] = Some(slot);
                    }
                }
                Err(Failure::Whole(error)) => return Err(error),
                Err(Failure::Refused(why)) if part.len() == 1 => {
                    slots[part.start] = Some(Slot::Rejected(RejectReason::Rejected));
                    (refused, last) = (refused + 1, why);
                }
                Err(Failure::Refused(why)) => {
                    let middle = part.start + part.len() / 2;
                    parts.push(middle..part.end);
                    parts.push(part.start..middle);
                    last = why;
                }
            }
        }
        let slots: Option<Vec<Slot>> = slots.into_iter().collect();
        slots.ok_or_else(|| {
            self.server
                .client
                .failed("a text was left without an answer")
        })
    }

    /// Holds an answer against the definition; what is wrong with one vector concerns its row alone.
    fn check(&self, answer: Answer) -> Result<Vec<Slot>> {
        if answer.model != self.reported {
            let name = |name: &Option<String>| name.clone().unwrap_or_default();
            return Err(self.server.client.failed(format!(
                "model {:?} answered, not {:?} which the definition names; look at the server, or open its model in a new session",
                name(&answer.model),
                name(&self.reported)
            )));
        }
        let slot = |vector: Vec<f32>| {
            if vector.len() != self.dimensions {
                return Err(self.server.client.failed(format!(
                    "it gave a vector of {} components, not {}",
                    vector.len(),
                    self.dimensions
                )));
            }
            Ok(if !vector.iter().all(|x| x.is_finite()) {
                Slot::Rejected(RejectReason::NonFinite)
            } else if vector.iter().all(|x| *x == 0.0) {
                Slot::Rejected(RejectReason::ZeroNorm)
            } else {
                Slot::Vector(vector)
            })
        };
        answer.vectors.into_iter().map(slot).collect()
    }
}

/// Requests that halving `rows` texts may take: to find one refused text it asks for both halves at
/// each of log2(rows) levels.
fn most_requests(rows: usize) -> usize {
    let levels = rows.max(1).next_power_of_two().trailing_zeros() as usize;
    1 + limits::REMOTE_REFUSALS * 2 * levels.max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_grow_with_the_depth() {
        for (rows, levels) in [(1, 1), (2, 1), (3, 2), (64, 6), (65, 7), (1024, 10)] {
            let expected = 1 + 32 * levels;
            assert_eq!(most_requests(rows), expected, "{rows}");
        }
    }
}
