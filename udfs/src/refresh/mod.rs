//! How a source becomes a version: scan, difference, inference, delta.

pub(crate) mod delta;
pub(crate) mod diff;
pub(crate) mod earlier;
pub(crate) mod fold;
pub(crate) mod included;
pub(crate) mod infer;
pub(crate) mod scan;
pub(crate) mod sink;
pub(crate) mod unique;
