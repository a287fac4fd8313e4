//! The integration tests of `atrapos-adapt`: traces in, schemes and steps out.

mod cost;
mod exact;
mod fixture;
mod flows;
mod plans;
mod search;
mod steps;
mod traces;
