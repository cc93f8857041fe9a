//! What the process tells a `tracing` subscriber, on standard output.

use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

/// Prints every span and every event with its fields: what a search for secrets reads.
#[derive(Debug)]
pub struct PrintAll;

impl Subscriber for PrintAll {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    fn new_span(&self, span: &Attributes<'_>) -> Id {
        println!("span {span:?}");
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, values: &Record<'_>) {
        println!("record {values:?}");
    }

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        println!("event {event:?}");
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}
