//! Graph queries: what they answer, and the same questions in SQL.

mod defects;
mod equivalence;
mod hydrate;
mod issues;
mod pattern;
mod reads;
mod scope;
mod searches;
