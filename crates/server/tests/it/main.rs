//! Tests of the server by its sockets: with bytes, and with a driver.

mod authentication;
mod bytes;
mod end;
mod http;
mod limits;
mod random;
mod raw;
mod start;
mod statements;
mod time;
