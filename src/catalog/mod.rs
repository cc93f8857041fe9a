//! The catalog: one log of create-only slots per root, from which all atomicity comes.

pub mod history;
pub mod manifest;
pub mod slot;
