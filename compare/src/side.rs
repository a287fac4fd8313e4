//! One side of a comparison, open and loaded: a store, or `atrapos` itself.
//!
//! Owns: the order load, rounds, audit, and the clients of each side. Never: measures itself.

use std::num::NonZeroUsize;
use std::path::Path;
use std::sync::atomic::AtomicBool;

use atrapos::{Database, LoadProgress};
use atrapos_harness::driver::{Clients, Routing, RunOptions, RunResult};
use atrapos_workloads::Ledger;

use crate::audit::audit;
use crate::driver::{self, Measured, Round};
use crate::peer::{Durability, Peer, PeerError, PeerKind};
use crate::requests::Work;

/// A store that is loaded with a workload.
pub struct Side<'w> {
    work: &'w Work,
    store: Store,
    ledger: Ledger,
    rounds: u64,
}

enum Store {
    Peer(Box<dyn Peer>),
    Atrapos(Box<Database>),
}

/// Clients of one side.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SideClients {
    /// Threads, each with one transaction at a time.
    Threads(usize),
    /// Sessions on each worker of `atrapos`.
    Sessions(usize),
}

impl<'w> Side<'w> {
    /// Opens and loads a peer in an empty directory.
    ///
    /// # Errors
    /// Fails if the peer does.
    pub fn of_peer(
        kind: &PeerKind,
        work: &'w Work,
        directory: &Path,
        durability: Durability,
    ) -> Result<Side<'w>, PeerError> {
        let peer = (kind.open)(directory, durability)?;
        peer.load(&mut work.population())?;
        Ok(Side::of(work, Store::Peer(peer)))
    }

    /// Opens and loads `atrapos` with so many workers; in memory, or in an empty directory.
    ///
    /// # Errors
    /// Fails if the database does.
    pub fn of_atrapos(
        work: &'w Work,
        directory: &Path,
        durability: Durability,
        workers: usize,
    ) -> Result<Side<'w>, PeerError> {
        let builder = Database::builder(work.workload().schema()).workers(workers);
        let db = match durability {
            Durability::None => builder.durability(atrapos::Durability::None).in_memory(),
            Durability::Synchronous => {
                builder.durability(atrapos::Durability::Synchronous).open(directory.join("atrapos"))
            }
        };
        let db = db.map_err(PeerError::failed)?;
        work.workload().load(&db, &LoadProgress::default()).map_err(PeerError::failed)?;
        Ok(Side::of(work, Store::Atrapos(Box::new(db))))
    }

    /// Takes a peer that is loaded already.
    #[must_use]
    pub fn of_loaded(work: &'w Work, peer: Box<dyn Peer>) -> Side<'w> {
        Side::of(work, Store::Peer(peer))
    }

    fn of(work: &'w Work, store: Store) -> Side<'w> {
        Side { work, store, ledger: Ledger::new(), rounds: 0 }
    }

    /// Runs one round and waits until the store is quiet again.
    ///
    /// # Errors
    /// Fails if a client does.
    pub fn measure(&mut self, clients: SideClients, round: &Round) -> Result<Measured, PeerError> {
        self.rounds += 1;
        let round = Round { run: self.rounds, ..*round };
        let measured = match (&self.store, clients) {
            (Store::Peer(peer), SideClients::Threads(threads)) => {
                let measured = driver::run(&**peer, self.work, &Round { threads, ..round })?;
                peer.settle()?;
                measured
            }
            (Store::Peer(_), SideClients::Sessions(_)) => {
                return Err(PeerError::failed("only atrapos has sessions"));
            }
            (Store::Atrapos(db), clients) => run_atrapos(db, self.work, clients, &round)?,
        };
        self.ledger.add(&measured.tallies);
        Ok(measured)
    }

    /// Proves that the store is the result of the load and of all rounds. Returns the number of rows read.
    ///
    /// # Errors
    /// Fails with the first discrepancy.
    pub fn audit(&self) -> Result<u64, PeerError> {
        let report = match &self.store {
            Store::Peer(peer) => audit(&**peer, self.work, &self.ledger)?,
            Store::Atrapos(db) => self.work.workload().audit(db, &self.ledger).map_err(PeerError::failed)?,
        };
        Ok(report.rows)
    }
}

fn run_atrapos(
    db: &Database,
    work: &Work,
    clients: SideClients,
    round: &Round,
) -> Result<Measured, PeerError> {
    let count = |number: usize| NonZeroUsize::new(number).unwrap_or(NonZeroUsize::MIN);
    let clients = match clients {
        SideClients::Threads(threads) => Clients::Threads { threads: count(threads) },
        SideClients::Sessions(per_worker) => Clients::sessions(count(per_worker)),
    };
    let options = RunOptions {
        clients,
        routing: Routing::Any,
        warmup: round.warmup,
        measured: round.measured,
        run: round.run,
        live: None,
    };
    let result = work.workload().run(db, &options, &AtomicBool::new(false), &mut |_| {});
    let result = result.map_err(PeerError::failed)?;
    Ok(measured(&result))
}

fn measured(result: &RunResult) -> Measured {
    let mut latency = None;
    for class in &result.classes {
        match &mut latency {
            None => latency = Some(class.latency_ns.clone()),
            // Histograms of one kind and any size add up.
            Some(sum) => _ = sum.add(&class.latency_ns),
        }
    }
    let at = |quantile: f64| latency.as_ref().map_or(0.0, |sum| sum.value_at_quantile(quantile) as f64 / 1e3);
    Measured {
        tps: result.throughput_tps(),
        p50_us: at(0.5),
        p99_us: at(0.99),
        tallies: result.tallies_all.clone(),
    }
}
