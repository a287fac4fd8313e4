//! Integration tests of the runtime.
