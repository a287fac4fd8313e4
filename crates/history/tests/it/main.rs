//! Histories made by hand, right ones and wrong ones, each wrong in its way; and random ones that are right because they were
//! run one transaction after the other, and wrong after one thing in them was changed.

mod rows;
mod serial;
