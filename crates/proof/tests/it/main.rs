//! Torture without the killing, and histories on threads and in simulations; planted bugs, which both must find.

mod histories;
mod torture;
