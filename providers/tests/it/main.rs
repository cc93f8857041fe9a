//! Tests of the DataFusion read side over stores that the engine wrote.
#![allow(missing_docs)]

mod columns;
mod faults;
mod functions;
mod oracle;
mod pins;
mod surface;
mod world;
