//! What every program has: settings, telemetry, the admin port, and tasks that end together.

pub mod admin;
pub mod backoff;
pub mod duration;
pub mod failure_log;
pub mod net;
pub mod open_files;
pub mod output;
pub mod settings;
pub mod shutdown;
pub mod size;
pub mod table;
pub mod tasks;
pub mod telemetry;
pub mod token_bucket;
