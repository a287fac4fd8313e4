//! Tests of the server by its sockets: with bytes, and with a driver.

mod authentication;
mod browser;
mod bytes;
mod dashboard;
mod end;
mod http;
mod limits;
mod pipelines;
mod random;
mod raw;
mod start;
mod statements;
mod time;
