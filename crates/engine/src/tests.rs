//! Tests that look inside.

#[cfg(debug_assertions)]
mod jobs;
mod probes;
mod published_scheme;
