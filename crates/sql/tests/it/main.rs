//! Statements and their answers, by connections to a database in memory.

mod support;

mod programs;
