//! Gateway API objects to xDS resources and statuses, as a pure function.
