//! Sweeps: every store call of every verb meets every fault, every await is cancelled, orders of
//! calls are explored. Simulated stores, one thread, repeatable.

mod cancel;
mod cost;
pub mod crash;
mod order;
mod power;
mod s3;
mod verbs;
