//! Definitions and values, as their users see them.

mod definitions;
mod differences;
mod refusals;
mod support;
mod typed;
mod values;
