//! Instances with directories: a deployment whose instances stop at any step of a commit, and come back from what their files have then.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use atrapos_baselines::durable::{Acknowledge, DurableEngine, DurableOptions, StoreError};
use atrapos_baselines::instance::{CommitStep, InstanceEngine, InstanceOptions};
use atrapos_baselines::planted::Bug;
#[cfg(debug_assertions)]
use atrapos_baselines::planted::with;
use atrapos_baselines::{Engine, EngineClient, Intent};
use atrapos_catalog::Definitions;
use atrapos_channel::{ChannelKind, DeploymentId};
use atrapos_durability::file::ModelFiles;
use atrapos_partition::abort::{Abort, AbortReason};
use atrapos_partition::routing::InstanceId;
use tempfile::TempDir;

use super::cluster::{division, locking, optimistic};
use crate::engines::{MakeEngine, TABLE, check, get, load, put, rows, run};

const ENGINES: [MakeEngine; 2] = [optimistic, locking];

/// A deployment of two instances, each with files of its own.
struct Deployment {
    make: MakeEngine,
    options: InstanceOptions,
    files: Vec<ModelFiles>,
    instances: Vec<Option<InstanceEngine>>,
    /// Files that an instance which has stopped at a step leaves behind.
    left: Arc<Mutex<Option<ModelFiles>>>,
    _directory: TempDir,
}

fn durable(files: &ModelFiles) -> DurableOptions {
    DurableOptions {
        files: Arc::new(files.clone()),
        path: "/shared".into(),
        acknowledge: Acknowledge::Durable,
        room_bytes: 1024,
    }
}

impl Deployment {
    fn new(make: MakeEngine, population: &[(u64, u64)]) -> Deployment {
        let directory = tempfile::tempdir().expect("there is room for sockets");
        let options = InstanceOptions {
            deployment: DeploymentId(7),
            directory: directory.path().join("links"),
            kind: ChannelKind::Shm,
            tcp: Vec::new(),
            instance: InstanceId(0),
            instances: 2,
            secret: None,
            clients: None,
        };
        let (files, left) = (vec![ModelFiles::new(), ModelFiles::new()], Arc::default());
        let mut all = Deployment { make, options, files, instances: Vec::new(), left, _directory: directory };
        for instance in 0..2 {
            let engine = make();
            let own = |(key, _): &(u64, u64)| {
                division(2).owner(TABLE, &key.to_be_bytes()) == Some(InstanceId(instance as u16))
            };
            load(&*engine, TABLE, population.iter().copied().filter(own));
            let definitions = Definitions::default();
            let created = DurableEngine::create(engine, 3, &definitions, &durable(&all.files[instance]));
            let joined = created.and_then(|engine| all.join(engine, instance));
            all.instances.push(Some(joined.unwrap_or_else(|error| panic!("{error}"))));
        }
        all.wait_reachable();
        all
    }

    fn join(&self, engine: DurableEngine, instance: usize) -> Result<InstanceEngine, StoreError> {
        let options = InstanceOptions { instance: InstanceId(instance as u16), ..self.options.clone() };
        InstanceEngine::join_durable(engine, division(2), options)
    }

    fn wait_reachable(&self) {
        for instance in self.instances.iter().flatten() {
            let reached = instance.wait_reachable(Instant::now() + Duration::from_secs(60));
            reached.unwrap_or_else(|error| panic!("{error}"));
        }
    }

    fn instance(&self, instance: usize) -> &InstanceEngine {
        self.instances[instance].as_ref().expect("the instance lives")
    }

    /// Ends an instance without a word, and keeps the files.
    fn kill(&mut self, instance: usize, files: ModelFiles) {
        self.files[instance] = files;
        drop(self.instances[instance].take());
    }

    fn open(&mut self, instance: usize) {
        let engine =
            DurableEngine::open((self.make)(), &Definitions::default(), &durable(&self.files[instance]));
        let joined = engine.and_then(|engine| self.join(engine, instance));
        self.instances[instance] = Some(joined.unwrap_or_else(|error| panic!("{error}")));
    }

    /// Has an instance stop at a step, and keep what a power cut leaves of its files, or a kill.
    #[cfg(debug_assertions)]
    fn stop_at(&self, instance: usize, step: CommitStep, seed: Option<u64>) {
        let (files, left) = (self.files[instance].clone(), Arc::clone(&self.left));
        self.instance(instance).stop_at(step, move || {
            let files = seed.map_or_else(|| files.kill(), |seed| files.power_cut(seed));
            *left.lock().expect("nobody panics") = Some(files);
        });
    }

    /// Reads a row of each instance in one transaction.
    fn read(&self, keys: [u64; 2]) -> [Option<u64>; 2] {
        let read = run(&mut *self.instance(0).client(), |tx| {
            Ok([get(tx, TABLE, keys[0])?, get(tx, TABLE, keys[1])?])
        });
        read.unwrap_or_else(|abort| panic!("{abort}"))
    }
}

/// Keys of the first and of the second instance.
const HERE: u64 = 0;
const THERE: u64 = 4;

/// The instance that gets to a step, of a transaction whose home is the first one.
#[cfg(debug_assertions)]
fn taker(step: CommitStep) -> usize {
    use CommitStep::{DecisionDurable, DecisionLogged, Told, VotesIn};
    usize::from(![DecisionDurable, DecisionLogged, Told, VotesIn].contains(&step))
}

/// Runs a transaction in both instances, or in the other one alone, during which one of them stops at a step and comes back. Fails if a half
/// of the transaction has survived, or less than was told.
#[cfg(debug_assertions)]
fn stop_and_judge(make: MakeEngine, step: CommitStep, seed: Option<u64>) -> Result<(), String> {
    let mut all = Deployment::new(make, &[(HERE, 1), (THERE, 1)]);
    let victim = taker(step);
    all.stop_at(victim, step, seed);
    let is_alone = step == CommitStep::CommittedAlone;
    let mut client = all.instance(0).client();
    let told = client.attempt(&mut |tx| {
        if !is_alone {
            put(tx, TABLE, HERE, 2)?;
        }
        put(tx, TABLE, THERE, 2)
    });
    if let Err(abort) = &told {
        let expected = [
            AbortReason::Unreachable,
            AbortReason::ShuttingDown,
            AbortReason::OutcomeUnknown,
            AbortReason::NotDurable,
        ];
        assert!(expected.contains(&abort.reason()), "{step:?}: {abort}");
        assert!(!is_alone || abort.reason() == AbortReason::OutcomeUnknown, "{abort}");
    }
    drop(client);
    // A part that was told does not get there before it has heard it.
    while !all.instance(victim).has_stopped() {
        std::thread::yield_now();
    }
    let left = all.left.lock().expect("nobody panics").take().expect("it has stopped");
    all.kill(victim, left);
    all.open(victim);
    all.wait_reachable();
    let expected_here = if is_alone { Some(1) } else { None };
    let [here, there] = all.read([HERE, THERE]);
    if expected_here.unwrap_or_else(|| there.unwrap_or(0)) != here.unwrap_or(0) {
        return Err(format!("{step:?}: half of a transaction has survived: {here:?}, {there:?}"));
    }
    if told.is_ok() && there != Some(2) {
        return Err(format!("{step:?}: a commit was told and has vanished"));
    }
    all.instances.iter().flatten().for_each(|instance| check(instance));
    // Nothing is locked, and all goes on, also after another opening.
    for victim in [0, 1] {
        let change = run(&mut *all.instance(1).client(), |tx| {
            put(tx, TABLE, HERE, 5).and_then(|()| put(tx, TABLE, THERE, 5))
        });
        assert_eq!(change, Ok(()), "{step:?}");
        let left = all.files[victim].power_cut(3);
        all.kill(victim, left);
        all.open(victim);
        all.wait_reachable();
        assert_eq!(all.read([HERE, THERE]), [Some(5), Some(5)], "{step:?}");
    }
    Ok(())
}

#[cfg(debug_assertions)]
#[test]
fn an_instance_that_ends_at_any_step_leaves_no_half_of_a_transaction() {
    for make in ENGINES {
        for (step, _) in CommitStep::ALL {
            for seed in [None, Some(0), Some(1), Some(2)] {
                stop_and_judge(make, step, seed)
                    .unwrap_or_else(|wrong| panic!("{}, seed {seed:?}: {wrong}", make().name()));
            }
        }
    }
}

/// Returns true if a bug shows when an instance ends at a step by a power cut.
#[cfg(debug_assertions)]
fn shows(bug: Bug, step: CommitStep) -> bool {
    ENGINES
        .into_iter()
        .all(|make| (0..8).any(|seed| with(bug, || stop_and_judge(make, step, Some(seed))).is_err()))
}

#[cfg(debug_assertions)]
#[test]
fn planted_bugs_of_the_log_are_caught() {
    assert!(shows(Bug::VoteBeforeSync, CommitStep::Voted), "a vote before the sync");
    assert!(shows(Bug::VotesNotHeeded, CommitStep::PreparedLogged), "a decision before it is prepared");
    assert!(shows(Bug::OutcomeToldEarly, CommitStep::Told), "an outcome before the decision is durable");
    assert!(shows(Bug::InDoubtForgotten, CommitStep::Voted), "in doubt, and forgotten by recovery");
    assert!(shows(Bug::ForgottenWhenTold, CommitStep::EndLogged), "a decision that is forgotten too early");
}

/// A prepared transaction whose home is away. Returns the deployment without its first instance.
#[cfg(debug_assertions)]
fn in_doubt(
    make: MakeEngine,
    population: &[(u64, u64)],
    write: fn(&mut dyn atrapos_baselines::RowTransaction) -> Result<(), Abort>,
) -> Deployment {
    let mut all = Deployment::new(make, population);
    all.stop_at(0, CommitStep::DecisionDurable, None);
    let told = all.instance(0).client().attempt(&mut |tx| write(tx));
    assert!(told.is_err(), "it has stopped");
    let left = all.left.lock().expect("nobody panics").take().expect("it has stopped");
    all.kill(0, left);
    all
}

/// Both instances end, and the one with the prepared part comes back first: its rows are locked until the home is back, too.
#[cfg(debug_assertions)]
#[test]
fn a_part_in_doubt_has_its_locks_again_and_nobody_decides_for_the_home() {
    for make in ENGINES {
        let mut all = in_doubt(make, &[(HERE, 1), (THERE, 1)], |tx| {
            put(tx, TABLE, HERE, 2)?;
            put(tx, TABLE, THERE, 2)
        });
        let left = all.files[1].power_cut(1);
        all.kill(1, left);
        all.open(1);
        // An optimistic reader would wait; whoever wants to write is refused.
        let refused = all.instance(1).client().attempt(&mut |tx| {
            tx.insert(TABLE, &5_u64.to_be_bytes(), &[0; 8])?;
            if tx.remove(TABLE, &3_u64.to_be_bytes())? { Err(Abort::user("it is not there")) } else { Ok(()) }
        });
        assert_eq!(refused, Ok(()), "work on other rows goes on");
        if make().name() == "shared-2pl" {
            let read = |tx: &mut dyn atrapos_baselines::RowTransaction| {
                tx.read(TABLE, &THERE.to_be_bytes(), Intent::Read).map(drop)
            };
            let refused = all.instance(1).client().attempt(&mut |tx| read(tx));
            assert_eq!(refused.map_err(|abort| abort.reason()), Err(AbortReason::Deadlock));
        }
        all.open(0);
        all.wait_reachable();
        assert_eq!(all.read([HERE, THERE]), [Some(2), Some(2)], "the home has decided");
    }
}

/// Two transactions that insert into one gap are prepared in the opposite order of their insertions, and both are in doubt.
#[cfg(debug_assertions)]
#[test]
fn insertions_into_one_gap_are_locked_again_whatever_their_order_was() {
    for make in ENGINES {
        let mut all = Deployment::new(make, &[(HERE, 1), (1, 1)]);
        all.stop_at(0, CommitStep::VotesIn, None);
        let ended = all.instance(0).client().attempt(&mut |first| {
            put(first, TABLE, HERE, 2)?;
            put(first, TABLE, 4, 2)?;
            let second = all.instance(0).client().attempt(&mut |second| {
                put(second, TABLE, 1, 2)?;
                put(second, TABLE, 5, 2)
            });
            assert!(second.is_err_and(|abort| abort.reason() == AbortReason::ShuttingDown));
            Ok(())
        });
        assert!(ended.is_err_and(|abort| abort.reason() == AbortReason::ShuttingDown));
        let left = all.left.lock().expect("nobody panics").take().expect("it has stopped");
        all.kill(0, left);
        let left = all.files[1].kill();
        all.kill(1, left);
        all.open(1);
        all.open(0);
        all.wait_reachable();
        // The home has decided neither.
        assert_eq!(all.read([4, 5]), [None, None]);
        assert_eq!(all.read([HERE, 1]), [Some(1), Some(1)]);
    }
}

/// A directory is opened at its own place, and nowhere else.
#[test]
fn a_directory_of_another_place_is_refused() {
    let mut all = Deployment::new(locking, &[(HERE, 1), (THERE, 1)]);
    let left = all.files[1].kill();
    all.kill(1, left);
    let open = |files: &ModelFiles| {
        DurableEngine::open(locking(), &Definitions::default(), &durable(files))
            .unwrap_or_else(|error| panic!("{error}"))
    };
    let wrong = all.join(open(&all.files[1].kill()), 0).map(drop).map_err(|error| error.to_string());
    assert!(wrong.is_err_and(|why| why.contains("another instance") && why.contains("/shared")));
    let (alone, options) = (ModelFiles::new(), all.options.clone());
    let created = DurableEngine::create(locking(), 3, &Definitions::default(), &durable(&alone));
    let created = created.unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(created.client().attempt(&mut |tx| put(tx, TABLE, THERE, 1)), Ok(()));
    drop(created);
    let other = InstanceOptions { instance: InstanceId(1), ..options };
    let wrong = InstanceEngine::join_durable(open(&alone.kill()), division(2), other).map(drop);
    assert!(wrong.is_err_and(|error| error.to_string().contains("no instance of a deployment")));
    all.open(1);
    assert_eq!(all.read([HERE, THERE]), [Some(1), Some(1)]);
}

/// While an instance cannot make its log durable, somebody elsewhere reads what was just committed there, and commits or aborts.
#[cfg(debug_assertions)]
fn told_while_not_durable(make: MakeEngine, bug: Option<Bug>, aborts: bool) -> bool {
    let planted = |run: &mut dyn FnMut()| match bug {
        Some(bug) => with(bug, run),
        None => run(),
    };
    let mut told = false;
    planted(&mut || {
        let all = Deployment::new(make, &[(HERE, 1), (THERE, 1)]);
        // From the next call on, nothing reaches the disk: the log fails, after the commit has been seen.
        let mut writer = all.instance(1).client();
        writer.set_pipelined(true);
        all.files[1].crash_at(1);
        assert_eq!(writer.attempt(&mut |tx| put(tx, TABLE, THERE, 7)), Ok(()));
        let mut seen = None;
        let ended = all.instance(0).client().attempt(&mut |tx| {
            seen = get(tx, TABLE, THERE)?;
            put(tx, TABLE, HERE, 2)?;
            if aborts { Err(Abort::user("the row says so")) } else { Ok(()) }
        });
        assert_eq!(seen, Some(7), "its locks are released before the disk is waited for");
        told = ended.err().is_none_or(|abort| abort.reason() == AbortReason::User);
    });
    told
}

#[cfg(debug_assertions)]
#[test]
fn nobody_elsewhere_is_told_what_may_vanish() {
    for make in ENGINES {
        for (aborts, bug) in [(false, Bug::PartToldEarly), (true, Bug::AbortToldEarly)] {
            assert!(!told_while_not_durable(make, None, aborts), "{}", make().name());
            assert!(told_while_not_durable(make, Some(bug), aborts), "{}, {bug:?}", make().name());
        }
    }
}

const ACCOUNTS: u64 = 9;

fn population() -> Vec<(u64, u64)> {
    (0..ACCOUNTS).map(|account| (account, 100)).collect()
}

/// The money that there is in all accounts.
fn sum(all: &Deployment) -> u64 {
    let read = run(&mut *all.instance(0).client(), |tx| {
        (0..ACCOUNTS).map(|key| Ok(get(tx, TABLE, key)?.unwrap_or(0))).sum()
    });
    read.unwrap_or_else(|abort| panic!("{abort}"))
}

/// A stream of transfers.
struct Transfers(u64);

impl Transfers {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound
    }

    fn next(&mut self, client: &mut dyn EngineClient) -> Result<(), Abort> {
        let (from, to, amount) = (self.below(ACCOUNTS), self.below(ACCOUNTS), self.below(20));
        run(client, |tx| {
            let balance = get(tx, TABLE, from)?.unwrap_or(0);
            let amount = amount.min(balance);
            put(tx, TABLE, from, balance - amount)?;
            let balance = get(tx, TABLE, to)?.unwrap_or(0);
            put(tx, TABLE, to, balance + amount)
        })
    }
}

/// One client of each instance in turn moves money, until an instance loses its power; it comes back, and they go on. (Clients of others would wait
/// for rows that are in doubt, and an instance of this process does not end while its clients wait.)
#[test]
fn money_is_neither_made_nor_lost_by_power_cuts() {
    for (make, seeds) in [(ENGINES[0], 0..6), (ENGINES[1], 6..12)] {
        for seed in seeds {
            let mut all = Deployment::new(make, &population());
            for round in 0..4 {
                let victim = usize::from((seed + round) % 2 == 1);
                all.files[victim].crash_at(1 + (seed * 31 + 13 * round) % 60);
                let mut transfers = Transfers(seed + round);
                let mut clients = [all.instance(0).client(), all.instance(1).client()];
                let lost = (0..2000).find(|home| transfers.next(&mut *clients[home % 2]).is_err());
                assert!(lost.is_some(), "the power was cut");
                drop(clients);
                let left = all.files[victim].power_cut(seed);
                all.kill(victim, left);
                all.open(victim);
                all.wait_reachable();
                assert_eq!(sum(&all), ACCOUNTS * 100, "{}, seed {seed}, round {round}", make().name());
            }
        }
    }
}

/// Clients of both instances move money at the same time. What they were told is there when both come back.
#[test]
fn transfers_of_many_clients_survive() {
    for make in ENGINES {
        let mut all = Deployment::new(make, &population());
        std::thread::scope(|scope| {
            for client in [0_u64, 1, 2, 3] {
                let instance = all.instance(client as usize % 2);
                scope.spawn(move || {
                    let (mut client, mut transfers) = (instance.client(), Transfers(client));
                    for _ in 0..200 {
                        transfers.next(&mut *client).unwrap_or_else(|abort| panic!("{abort}"));
                    }
                });
            }
        });
        let told: Vec<_> = [0, 1].map(|instance| rows(all.instance(instance), TABLE)).concat();
        for instance in [0, 1] {
            let left = all.files[instance].power_cut(5);
            all.kill(instance, left);
        }
        (0..2).for_each(|instance| all.open(instance));
        all.wait_reachable();
        assert_eq!(sum(&all), ACCOUNTS * 100, "{}", make().name());
        assert_eq!([0, 1].map(|instance| rows(all.instance(instance), TABLE)).concat(), told);
    }
}
