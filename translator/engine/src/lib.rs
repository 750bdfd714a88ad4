//! Incremental computation, without knowledge of the domain.
//!
//! The work is cut into **units**. A unit is a function of what it reads through a reader, which records every read. A
//! change makes dirty the units that read what changed, and [`Engine::settle`] computes those and no others. A unit
//! whose product is the same as before makes no other unit dirty.
//!
//! A [`Table`] lists the units; [`table!`] generates it from one entry for each.
//!
//! Units are ordered by **stage**, the order of the entries. A unit reads only what is settled by earlier stages, changes
//! only what its own stage or a later one settles, and demands only units of later ones, so each unit is computed at most
//! once for a change. All three are asserted.

mod engine;
mod graph;
mod members;
mod reads;
mod relation;
mod table;
mod work;

pub use engine::Engine;
pub use graph::Graph;
pub use members::Members;
pub use reads::Reads;
pub use relation::Relation;
pub use table::{Computed, Fact, Table, Unit, keep};
pub use work::Work;
