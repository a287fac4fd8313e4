//! System state that workers share: whatever is shared, transactions are serializable, survive crashes, and use it.

use std::sync::Arc;
use std::time::Duration;

use atrapos::sim::Simulation;
use atrapos::{Abort, CentralState, Database, Scope, Session, Tx, WorkerId};
use atrapos_topology::Machine;

use crate::durable::notes::{Notes, builder, crash_once_sharing, directory, files, note};
use crate::isolation::lists::{lists, serializable};
use crate::support::{Engine, Items, Shuffle, for_seeds_in_parallel, item, two_tables};

const SCOPES: [Scope; 3] = [Scope::Central, Scope::Island, Scope::Worker];

/// Every combination of options.
fn combinations() -> Vec<CentralState> {
    let mut all = Vec::new();
    for transaction_list in SCOPES {
        for transaction_numbers in SCOPES {
            for state_locks in SCOPES {
                for log_buffer in SCOPES {
                    all.push(CentralState { transaction_list, transaction_numbers, state_locks, log_buffer });
                }
            }
        }
    }
    all
}

/// Returns the number of accesses to shared state of so many transactions.
fn accesses(central_state: CentralState, transactions: u64) -> u64 {
    let CentralState { transaction_list, transaction_numbers, state_locks, log_buffer: _ } = central_state;
    let shared = |scope| u64::from(scope != Scope::Worker);
    transactions * (2 * shared(transaction_list) + shared(transaction_numbers) + 2 * shared(state_locks))
}

/// Runs random transactions on a simulation, while partitions move or do not, and says what is wrong: their history, or what is left
/// of them in the shared state.
pub(crate) fn serializable_and_counted(central_state: CentralState, seed: u64) -> Result<(), String> {
    let workers = 2 + (seed % 3) as usize;
    let simulation = Simulation::sharing(lists(), workers, seed, central_state, None)
        .map_err(|error| error.to_string())?;
    let shuffle = (seed % 2 == 1).then(|| Shuffle::new(seed));
    let mut engine = Engine::Simulated(Box::new(simulation), shuffle);
    serializable(&mut engine, workers, seed)?;
    let Engine::Simulated(simulation, _) = engine else { unreachable!("it was just made") };
    let listed = (central_state.transaction_list != Scope::Worker).then(Vec::new);
    if simulation.active_transactions() != listed {
        return Err(format!("at rest {:?} are under way", simulation.active_transactions()));
    }
    let statistics = simulation.statistics();
    let expected = accesses(central_state, statistics.committed + statistics.aborted_total());
    if statistics.central_accesses != expected {
        return Err(format!("{} accesses instead of {expected}", statistics.central_accesses));
    }
    Ok(())
}

#[test]
fn histories_are_serializable_whatever_is_shared() {
    let all = combinations();
    for_seeds_in_parallel(all.len() as u64, |seed| {
        let central_state = all[(seed % all.len() as u64) as usize];
        if let Err(wrong) = serializable_and_counted(central_state, seed) {
            panic!("{central_state:?}: {wrong}");
        }
    });
}

#[test]
fn what_was_acknowledged_survives_a_crash_whatever_is_shared() {
    let all = combinations();
    for_seeds_in_parallel(4 * all.len() as u64, |seed| {
        let central_state = all[(seed % all.len() as u64) as usize];
        if let Err(wrong) = crash_once_sharing(seed, central_state) {
            panic!("{central_state:?}: {wrong}");
        }
    });
}

#[test]
fn a_simulation_with_shared_state_repeats_itself() {
    let central = CentralState::all(Scope::Central);
    let [once, again] = [7, 7].map(|seed| crash_once_sharing(seed, central).expect("nothing is wrong"));
    assert_eq!(once, again);
    assert!(once.statistics.central_accesses > 0);
}

/// A database of four workers on two sockets that only exist on paper.
fn on_two_sockets(central_state: CentralState) -> Database {
    let machine = Machine::synthetic("pack:2 core:2 pu:1").expect("a machine");
    let builder = Database::builder(two_tables()).machine(machine).workers(4).huge_pages(false);
    builder.central_state(central_state).fixed_scheme().in_memory().expect("the schema is fine")
}

#[test]
fn a_transaction_under_way_is_listed_with_its_number() {
    for scope in SCOPES {
        let db = Arc::new(on_two_sockets(CentralState::all(scope)));
        let items = db.table::<Items>().expect("it is in the schema");
        let mut numbers = Vec::new();
        for key in [1, 98, 2, 97] {
            let looking = Arc::clone(&db);
            let seen = db.run(items.at(&key), async move |tx| {
                tx.insert(items, key, item(1)).await?;
                Ok((tx.home(), looking.active_transactions()))
            });
            let (home, listed) = seen.expect("it commits");
            let home_of_key = WorkerId(if key < 50 { 0 } else { 3 });
            assert_eq!(home, home_of_key);
            match listed {
                None => assert_eq!(scope, Scope::Worker),
                Some(listed) => {
                    assert_eq!(listed.iter().map(|active| active.home).collect::<Vec<_>>(), [home]);
                    numbers.push(listed[0].number);
                }
            }
        }
        let expected: &[u64] = match scope {
            Scope::Central => &[1, 2, 3, 4],
            Scope::Island => &[1, 1, 2, 2],
            Scope::Worker => &[],
        };
        assert_eq!(numbers, expected, "{scope:?}");
        assert_eq!(db.active_transactions(), (scope != Scope::Worker).then(Vec::new));
        assert_eq!(db.statistics().central_accesses, accesses(CentralState::all(scope), 4));
    }
}

#[test]
fn threads_share_what_is_central_and_all_is_there_after_reopening() {
    for scope in SCOPES {
        let files = files();
        let machine = Machine::synthetic("pack:2 core:2 pu:1").expect("a machine");
        let open = |central_state| {
            let builder = builder(&files, 4).machine(machine.clone()).central_state(central_state);
            builder.fixed_scheme().open(directory()).expect("a database")
        };
        let db = open(CentralState::all(scope));
        let notes = db.table::<Notes>().expect("it is in the schema");
        let sessions = (0..4_u16).map(|worker| {
            let body = async move |session: Session| {
                for number in 0..20 {
                    let key = u64::from(worker) * 250 + number;
                    let far = (key + 500) % 1000;
                    let insert = async move |tx: &mut Tx<'_>| {
                        tx.insert(notes, key, note(usize::from(worker), 1)).await?;
                        tx.get(notes, far).await
                    };
                    session.run(&notes.at(&key), insert).await?;
                }
                Ok::<(), Abort>(())
            };
            db.spawn_session(WorkerId(worker), body).expect("the database is open")
        });
        let sessions: Vec<_> = sessions.collect();
        for session in sessions {
            session.join().expect("it ends").expect("it commits");
        }
        let statistics = db.statistics();
        let transactions = statistics.committed + statistics.aborted_total();
        assert_eq!(statistics.central_accesses, accesses(CentralState::all(scope), transactions));
        assert_eq!(db.active_transactions(), (scope != Scope::Worker).then(Vec::new));
        assert_eq!(db.close(Duration::from_secs(30)).failure, None);
        // Another layout of the log finds the same records.
        let db = open(CentralState::default());
        let notes = db.table::<Notes>().expect("it is in the schema");
        assert_eq!(db.len(notes.id()), Ok(80), "{scope:?}");
    }
}
