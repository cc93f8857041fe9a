//! Tests of the DataFusion read side over stores that the engine wrote.
#![allow(missing_docs, clippy::unwrap_used, clippy::too_many_lines)]

mod columns;
mod dml;
mod expand;
mod faults;
mod functions;
mod io;
mod matching;
mod oracle;
mod pins;
mod plans;
mod probes;
mod publish;
mod surface;
mod world;
