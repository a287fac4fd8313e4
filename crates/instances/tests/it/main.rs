//! Tests of calls from outside: instances in this process, and clients that are right, wrong, or gone.

mod calls;
mod nonsense;
mod support;
