//! Tests of internals that need a whole database.

#[cfg(debug_assertions)]
mod jobs;
mod probes;
mod published_scheme;
