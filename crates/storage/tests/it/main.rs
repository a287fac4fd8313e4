//! Tests of the crate through its public interface: the tree against a model, cuts and joins, memory.

mod long_rows;
mod memory;
mod model;
mod relocation;
mod split_append;
mod tree;
mod undo;

#[path = "../../src/testing.rs"]
mod testing;
