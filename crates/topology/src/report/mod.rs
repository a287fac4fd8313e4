//! Machines for people and for programs: a tree as text, one object as JSON, and a machine file; and
//! the tree with a mark on each processing unit, for plans.
//!
//! Owns: these forms. Never: computes anything about a machine that the model does not answer.

mod json;
mod toml_file;
mod tree;

pub use json::to_json;
pub use toml_file::to_toml;
pub use tree::{render_marks, render_tree};
