//! Statements that define tables while everything goes on: there is the old state or the new one, for transactions and after
//! crashes alike, and what is refused changes nothing.

mod cascade;
mod columns;
mod crash;
mod fixture;
mod foreign;
mod indexes;
#[cfg(debug_assertions)]
mod planted;
mod random;
mod simulated;
mod tables;
