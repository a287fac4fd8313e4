//! The integration tests of `atrapos-adapt`: traces in, schemes and steps out.

mod attribution;
mod controller;
mod cost;
mod fixture;
mod flows;
mod model;
mod plans;
mod scenarios;
mod search;
mod steps;
mod traces;
mod undo;
