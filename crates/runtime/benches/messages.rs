//! Message costs.
fn main() {}
