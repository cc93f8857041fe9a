//! Warnings on standard error, such as the transaction of a verb that was interrupted.

use std::fmt::{Debug, Write};

use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

/// Prints warnings and errors of the engine, and what `RUST_LOG` asks of DataFusion.
pub(crate) fn start() {
    env_logger::init();
    // Fails only if a subscriber is set already, and nothing else in this program sets one.
    let _ = tracing::subscriber::set_global_default(Warnings);
}

struct Warnings;

impl Subscriber for Warnings {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.is_event()
            && *metadata.level() <= Level::WARN
            && metadata.target().starts_with("stratagraph")
    }

    fn event(&self, event: &Event<'_>) {
        let mut line = Line(format!("{}:", event.metadata().level()));
        event.record(&mut line);
        eprintln!("{}", line.0);
    }

    fn new_span(&self, _attributes: &Attributes<'_>) -> Id {
        // Spans are not enabled; an id is still owed.
        Id::from_u64(1)
    }

    fn record(&self, _span: &Id, _values: &Record<'_>) {}

    fn record_follows_from(&self, _span: &Id, _follows: &Id) {}

    fn enter(&self, _span: &Id) {}

    fn exit(&self, _span: &Id) {}
}

struct Line(String);

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        // Writing to a string does not fail.
        let _ = match field.name() {
            "message" => write!(self.0, " {value:?}"),
            name => write!(self.0, " {name}={value:?}"),
        };
    }
}
