//! Transactions: create, refresh, compact, restore and rename embedding tables; create, write and branch graphs.
//!
//! A transaction stages fragments and asks the catalog to commit. Everything that depends on the
//! parent (positions, bitmaps, masks, manifests, identity, version number) is made inside the commit
//! loop; only fragments outlive an attempt.

mod attach;
pub mod branch;
pub mod changes;
mod compact;
mod create;
pub mod definition;
mod delta;
mod descriptor;
pub mod evolve;
mod footprint;
pub mod graph;
mod kill;
pub mod merge;
mod moves;
pub mod optimize;
mod overlap;
mod refresh;
mod rename;
mod restore;
mod successor;
mod tables;
mod tail;

pub use attach::{AttachRequest, attach};
pub use compact::{CompactRequest, Compacted, Merge, compact};
pub use create::{Made, NewTable, create};
pub use delta::{DeltaSource, StagedDelta};
pub use moves::only_moved_since;
pub use refresh::{Deletes, RefreshRequest, Refreshed, refresh};
pub use rename::rename;
pub use restore::{RestoreRequest, restore};
pub use successor::{Published, Requester};
