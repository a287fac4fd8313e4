//! The search of `atrapos-adapt` against the optimum.

mod exact;
#[allow(dead_code, reason = "the tests of atrapos-adapt use the rest")]
#[path = "../../../adapt/tests/it/fixture.rs"]
mod fixture;
