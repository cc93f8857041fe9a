//! JSONL into typed batches: grammars, values, ids, rules, lines.

mod files;
mod fuzz;
mod grammar;
mod ids;
mod rules;
mod support;
mod values;
