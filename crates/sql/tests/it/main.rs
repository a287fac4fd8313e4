//! Statements and their answers, by connections to a database in memory.

mod support;

mod conflicts;
mod copying;
mod definitions;
mod extended;
mod fuzz;
mod loading;
mod postgresql;
mod procedures;
mod programs;
mod queries;
mod references;
mod roles;
mod shell;
mod transactions;
mod writes;
