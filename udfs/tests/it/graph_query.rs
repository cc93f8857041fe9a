//! Graph queries: what they answer, and the same questions in SQL.

mod defects;
mod equivalence;
mod issues;
mod pattern;
mod reads;
mod scope;
mod searches;
