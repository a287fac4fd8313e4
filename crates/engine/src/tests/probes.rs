//! Deadlock probes on a worker on which nothing waits.

use atrapos_partition::schema::Schema;
use atrapos_runtime::WorkerId;
use atrapos_storage::lock::TxnId;
use atrapos_transaction::deadlock::{VISITS_MAX, on_probe_again};

use crate::sim::Simulation;

#[test]
fn a_worker_on_which_nothing_waits_remembers_a_bounded_number_of_probes() {
    let simulation = Simulation::new(Schema::new(), 1, 7).expect("the schema is fine");
    let worker = simulation.worker(WorkerId(0));
    let rounds = 2 * VISITS_MAX as u64 + 10;
    for round in 0..rounds {
        on_probe_again(worker, round, TxnId::new(1, 0));
    }
    let remembered = worker.shard().probes.borrow().visits.len();
    assert!((1..=VISITS_MAX).contains(&remembered), "{remembered} of {rounds} are remembered");
    assert!(worker.shard().waits.borrow().is_empty());
}
