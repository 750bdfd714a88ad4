//! Incremental computation, without any knowledge of what is computed.
//!
//! The work is cut into **units**. A unit is a function of what it reads through a reader, which records every read. A
//! change makes dirty the units that read what changed, and [`Engine::settle`] computes those and no others. A unit
//! whose product is the same as before makes nobody else dirty.
//!
//! What there is to compute is a [`Table`], which [`table!`] generates from one entry for each unit.
//!
//! Units are ordered by **stage**, the order of the entries. A unit reads only what is settled by earlier stages and
//! demands only units of later ones, so each unit is computed at most once for a change. Both are asserted.

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
