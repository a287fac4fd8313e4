//! Plain types for columns that the standard library has no type for: decimals, days, moments, identifiers.
//!
//! Owns their values and how they are shown. It never encodes one: rows and keys do ([`Field`](crate::Field),
//! [`Key`](crate::Key)).

mod decimal;
mod time;
mod uuid;

pub use decimal::Decimal;
pub use time::{Date, Timestamp};
pub use uuid::Uuid;
