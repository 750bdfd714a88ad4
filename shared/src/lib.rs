//! The snapshot store, settings and telemetry that every program has.
