//! placeholder replaced by the first commit
fn main(){}
