//! Statements at random in a simulation, among sessions, moving partitions and a crash: from a seed, and the same again.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;

use atrapos::sim::{Outcome, Simulation};
use atrapos::{DefineError, Schema, SchemeChange, Session, Statistics, WorkerId};
use atrapos_durability::file::ModelFiles;

use super::fixture::{directory, files, people, reopen};
use super::random::{KEYS, Statement, TABLES, change_here, is_expected, refused_is_fine};
use crate::support::{Random, for_seeds};

const SESSIONS: u64 = 3;
const STATEMENTS: u64 = 12;
/// Steps of a statement after which it is taken for stuck.
const STATEMENT_STEPS_MAX: u64 = 5_000_000;

fn statement(simulation: &Simulation, random: &mut Random) -> Result<(), DefineError> {
    let done = match Statement::draw(random) {
        Statement::CreateTable(table) => simulation.create_table(table).map(drop),
        Statement::DropTable(name) => simulation.drop_table(name),
        Statement::CreateIndex(name, index) => simulation.create_index(name, index).map(drop),
        Statement::DropIndex(name) => simulation.drop_index(&name),
        Statement::AddColumn(name, column) => simulation.add_column(name, column).map(drop),
        Statement::DropColumn(name) => simulation.drop_column(name, "height").map(drop),
        Statement::AddForeignKey(name, key) => simulation.add_foreign_key(name, &key),
        Statement::DropForeignKey(name, parent) => simulation.drop_foreign_key(name, parent, None),
    };
    refused_is_fine(done)
}

/// Sessions that use the tables by name, whatever becomes of them, until they are told to end.
fn start(
    simulation: &Simulation,
    seed: u64,
    workers: u64,
    running: &Rc<Cell<bool>>,
) -> Vec<Outcome<Result<(), String>>> {
    let client = |client: u64| {
        let running = Rc::clone(running);
        let body = async move |session: Session| {
            let mut random = Random::new(seed).part(client as usize);
            while running.get() {
                if let Err(abort) = change_here(&session, &mut random).await
                    && !is_expected(&abort)
                {
                    return Err(abort.to_string());
                }
                session.yield_now().await;
            }
            Ok(())
        };
        simulation.spawn_session(WorkerId((client % workers) as u16), body)
    };
    (0..SESSIONS).map(client).collect()
}

fn begin_move(simulation: &Simulation, random: &mut Random, workers: u64) {
    let Ok(table) = simulation.table_named(TABLES[random.below(3) as usize]) else { return };
    let to = WorkerId(random.below(workers) as u16);
    let at = atrapos::KeyBuf::from_slice(&random.below(KEYS).to_be_bytes());
    // The table may be gone by then.
    drop(simulation.repartition(vec![SchemeChange::Move { table: table.id(), at, to }]));
}

/// Everything that can be seen of a run.
#[derive(Debug, PartialEq)]
struct Observed {
    trace: u64,
    statistics: Statistics,
    told: Vec<Result<(), DefineError>>,
    names: Vec<String>,
}

/// Runs sessions, statements and moves. With `crash`, the last statement is given up somewhere in the middle. What the files hold
/// then is whole.
fn run(seed: u64, crash: bool) -> Observed {
    let mut random = Random::new(seed);
    let workers = 1 + random.below(3);
    let streams = 1 + random.below(workers) as usize;
    let files: ModelFiles = files();
    let own = Arc::new(files.clone());
    let mut simulation =
        Simulation::durable(Schema::new(), workers as usize, streams, seed, own, directory()).unwrap();
    simulation.set_statement_steps(STATEMENT_STEPS_MAX);
    for name in &TABLES[..2] {
        simulation.create_table(people(name, &[KEYS / 2])).unwrap();
    }
    let running = Rc::new(Cell::new(true));
    let sessions = start(&simulation, seed, workers, &running);
    let mut told = Vec::new();
    for number in 0..STATEMENTS {
        simulation.run_for(random.below(400));
        (0..random.below(3)).for_each(|_| begin_move(&simulation, &mut random, workers));
        if crash && number + 1 == STATEMENTS {
            simulation.set_statement_steps(random.below(2_000));
        }
        told.push(statement(&simulation, &mut random));
    }
    running.set(false);
    let names = |definitions: atrapos::catalog::Definitions| -> Vec<String> {
        definitions.trees.iter().map(|tree| tree.name().to_owned()).filter(|name| !name.is_empty()).collect()
    };
    if !crash {
        for told in &told {
            assert_eq!(told, &Ok(()), "statements are refused for what there is, or made");
        }
        assert!(simulation.run(STATEMENT_STEPS_MAX), "it does not come to rest: {:?}", simulation.locks());
        assert_eq!(simulation.locks(), (0, 0));
        simulation.check_trees().unwrap();
        for session in sessions {
            session.take().expect("it has ended").unwrap_or_else(|wrong| panic!("{wrong}"));
        }
    }
    let left = if crash { files.power_cut(seed) } else { files.kill() };
    let (trace, statistics) = (simulation.trace_hash(), simulation.statistics());
    drop(simulation);
    let db = reopen(&left);
    db.verify().unwrap();
    Observed { trace, statistics, told, names: names(db.definitions()) }
}

#[test]
fn statements_run_among_simulated_transactions() {
    let (mut committed, mut statements) = (0, 0);
    for_seeds(60, |seed| {
        committed += run(seed, false).statistics.committed;
        statements += STATEMENTS;
    });
    assert!(committed > 4 * statements, "{committed} transactions are too few for {statements} statements");
}

#[test]
fn what_a_crash_in_the_middle_of_a_statement_leaves_is_whole() {
    for_seeds(60, |seed| drop(run(seed, true)));
}

#[test]
fn the_same_seed_gives_the_same_statements() {
    for_seeds(6, |seed| {
        for crash in [false, true] {
            assert_eq!(run(seed, crash), run(seed, crash));
        }
    });
}
