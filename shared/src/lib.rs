//! What every program has: the snapshot store, settings, telemetry and the admin port.

pub mod admin;
pub mod net;
pub mod settings;
pub mod shutdown;
pub mod store;
pub mod telemetry;
