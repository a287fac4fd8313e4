//! The messages of PostgreSQL's protocol, versions 3.0 to 3.2.
//!
//! Owns: their bytes in both directions. Never: reads a socket, or knows what a message entails.
//!
//! Invariants: a reader of a message looks at its body only, allocates nothing that the body does not hold already, and refuses what
//! is left over; a writer leaves whole messages in the buffer.

pub(crate) mod backend;
pub(crate) mod body;
pub(crate) mod frontend;
pub(crate) mod startup;
