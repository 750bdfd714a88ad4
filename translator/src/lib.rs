//! Watches objects, translates and publishes.
