//! Workloads against real databases: small runs of every class under every driver, each followed by its audit, and audits
//! that find planted bugs.

mod apart;
mod flows;
mod micro;
mod pair;
mod procedures;
mod shared;
mod smallbank;
mod support;
mod tatp;
mod tpcb;
mod tpcc;
mod ycsb;
