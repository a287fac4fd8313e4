//! placeholder replaced by the first commit
