//! Transactions on embedding tables: create, refresh, compact.
//!
//! A transaction stages fragments and asks the catalog to commit. Everything that depends on the
//! parent (positions, bitmaps, masks, manifests, identity, version number) is made inside the commit
//! loop; only fragments outlive an attempt.

pub mod definition;
pub mod delta;
