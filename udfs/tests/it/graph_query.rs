//! Graph queries: what they answer, and the same questions in SQL.

mod defects;
mod equivalence;
mod pattern;
mod reads;
mod scope;
mod searches;
