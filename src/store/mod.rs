//! Object stores: what the engine asks of one, and one on local files that survives a power cut.

pub mod disk;
pub mod local;
