//! Tests of calls from outside: instances in this process or in others, and clients that are right, wrong, or gone.

mod calls;
#[cfg(debug_assertions)]
mod crashes;
mod nonsense;
mod support;
