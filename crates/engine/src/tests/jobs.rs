//! Jobs of the engine on workers that are full of clients.

use std::future::pending;

use atrapos_partition::planted::{Bug, with};
use atrapos_partition::schema::Schema;
use atrapos_runtime::WorkerId;
use atrapos_transaction::jobs::start_on_worker;

use crate::sim::Simulation;

/// Returns true if a job is done on a worker that has as many sessions as it accepts.
fn is_done_on_a_full_worker() -> bool {
    let full = WorkerId(0);
    let mut simulation = Simulation::new(Schema::new(), 2, 7).unwrap();
    for _ in 0..simulation.tasks_in_flight() {
        drop(simulation.spawn_session(full, async |_| pending::<()>().await));
    }
    let mut job = start_on_worker(&simulation.handle(), full, |worker| worker.id()).unwrap();
    simulation.run_for(1_000);
    job.try_take().is_some_and(|done| done == Ok(full))
}

#[test]
fn jobs_do_not_wait_for_clients() {
    assert!(is_done_on_a_full_worker());
    assert!(!with(Bug::JobInInbox, is_done_on_a_full_worker), "a planted bug was not noticed");
}
