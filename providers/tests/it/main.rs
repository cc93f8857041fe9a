//! Tests of the DataFusion read side over stores that the engine wrote.
#![allow(missing_docs, clippy::unwrap_used, clippy::too_many_lines)]

mod columns;
mod faults;
mod functions;
mod io;
mod oracle;
mod pins;
mod surface;
mod world;
