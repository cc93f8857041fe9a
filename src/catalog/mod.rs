//! The catalog: one log of create-only slots per root, from which all atomicity comes.

pub mod branch;
pub mod commit;
pub mod graph;
pub mod history;
mod live;
mod log;
pub mod manifest;
pub mod mark;
mod pin;
pub mod resolve;
pub mod slot;
mod status;
mod sweep;

pub use live::SnapshotPin;
pub use log::{Catalog, Head};
pub use status::Status;
pub use sweep::{Expire, Swept};
