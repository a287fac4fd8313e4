//! Instances in processes of their own, which end at each step of a commit, stand still, or stay away, under clients outside. What
//! the clients were told has to be a strictly serializable history. This test binary starts itself.

use std::fs::Permissions;
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use atrapos::planted::CommitStep;
use atrapos::{
    AbortReason, CallError, Database, Handles, InstanceId, RegisterError, Registry, Schema, Table, TableRef,
    row,
};
use atrapos_history::{Anomaly, Entry, Event, Found, History, Outcome, Predicate, Report};
use atrapos_instances::{
    ChannelKind, Client, ClientError, ClientOptions, DeploymentDirectory, Description, Member, MemberOptions,
    division, read_secret,
};
use tempfile::TempDir;

use crate::support::PATIENCE;

row! { #[derive(Clone)] struct Versioned { version: u64, over: u64 } }

/// Rows that say which version they are, and which one that has replaced.
struct Versions;

impl Table for Versions {
    type Key = u64;
    type Row = Versioned;
    const NAME: &'static str = "versions";
}

atrapos::stored_procedures! {
    /// Reads rows one after the other, and gives each that has a number the version of this number. Returns the versions that it has
    /// found, with those that they have replaced; zero where there was no row.
    ReadWrite("test.read-write", "read-write") { keys: Vec<u64>, numbers: Vec<u64> } -> Vec<(u64, u64)>;
    tables TableRef<Versions>: |db| db.table();
    home: |own, table| table.at(&own.keys[0]);
    run: |own, tx, table| async move {
        let mut found = Vec::new();
        for (key, number) in own.keys.iter().zip(&own.numbers) {
            let before = tx.get(*table, *key).await?.map(|row| (row.version, row.over));
            let row = Versioned { version: *number, over: before.map_or(0, |(version, _)| version) };
            match before {
                _ if *number == 0 => {}
                Some(_) => drop(tx.update(*table, *key, move |old: &mut Versioned| *old = row).await?),
                None => tx.insert(*table, *key, row).await?,
            }
            found.push(before.unwrap_or_default());
        }
        Ok(found)
    };
}

/// Keys below this are of instance 0, the others of instance 1.
const CUT: u64 = 50;

/// The workers of the instances.
const WORKERS: [usize; 2] = [2, 2];

/// Rows of each instance that transactions over both use.
const ROWS: u64 = 4;

/// A row of each instance that none of them uses.
const LOCAL: [u64; 2] = [ROWS, CUT + ROWS];

const CLIENTS: u64 = 3;

fn schema() -> Schema {
    Schema::new().table::<Versions>().split_evenly("versions", 0, 2 * CUT - 1)
}

fn register(registry: &mut Registry, handles: &impl Handles) -> Result<(), RegisterError> {
    registry.register::<ReadWrite>(handles)
}

/// The variable that tells the process of [`child`] which instance it is, and where.
const TASK: &str = "ATRAPOS_INSTANCES_CHILD";

#[test]
#[ignore = "run by other tests, as a process of its own"]
fn child() {
    let task = std::env::var(TASK).expect("it is started with a task");
    let (instance, directory) = task.split_once(' ').expect("a task of two words");
    let (instance, directory) = (instance.parse().expect("a number"), Path::new(directory));
    let description = Description::read(directory).expect("a deployment");
    let division = division(schema(), InstanceId(instance), description.workers.clone(), &description.keys);
    let builder = Database::builder(schema()).pin(false).instance(division.expect("sound keys"));
    let path = directory.join(format!("instance-{instance}"));
    let db = builder.deployment(description.deployment().0).open(path).expect("its directory");
    let db = Arc::new(db);
    let mut registry = Registry::default();
    register(&mut registry, &*db).expect("its own schema");
    let options = MemberOptions {
        deployment: description.deployment(),
        directory: directory.to_owned(),
        kind: description.channel,
        tcp: description.tcp,
        secret: Some(read_secret(directory).expect("it was drawn")),
        registry: Some(Arc::new(registry)),
    };
    let member = Member::join(Arc::clone(&db), options).expect("an instance joins");
    let _ = std::io::stdin().read_to_end(&mut Vec::new());
    drop(member);
    let db = Arc::into_inner(db).expect("nobody else has the database");
    assert!(db.close(PATIENCE).failure.is_none(), "it closes in order");
}

/// The process of an instance, which ends in order when it is dropped.
struct Process {
    child: Child,
    input: Option<ChildStdin>,
}

impl Process {
    /// Returns how it has ended, if it has.
    fn ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().expect("it was started")
    }

    fn kill(mut self) {
        self.child.kill().expect("it was not waited for");
    }

    /// Sends it a signal.
    fn signal(&self, name: &str) {
        let sent = Command::new("kill").args([name, &self.child.id().to_string()]).status();
        assert!(sent.expect("kill starts").success());
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.input = None;
        if thread::panicking() {
            // It may stand still.
            let _ = self.child.kill();
        }
        self.child.wait().expect("it was started");
    }
}

/// A deployment of two instances with directories.
struct Deployment {
    directory: TempDir,
    _claim: DeploymentDirectory,
}

impl Deployment {
    fn new(kind: ChannelKind) -> Deployment {
        let own = Permissions::from_mode(0o700);
        let directory =
            tempfile::Builder::new().prefix("crash").permissions(own).tempdir().expect("a directory");
        let data = vec!["test".to_owned()];
        let mut description = Description::new(data, kind, WORKERS.to_vec(), Vec::new(), Vec::new());
        let claim = DeploymentDirectory::claim(directory.path(), &mut description);
        Deployment { _claim: claim.expect("an empty directory"), directory }
    }

    /// Starts the process of an instance; it kills itself when it has got to a step so many times.
    fn start(&self, instance: usize, kill_at: Option<(&str, u64)>) -> Process {
        let mut command = Command::new(std::env::current_exe().expect("a test knows its own path"));
        command
            .args(["crashes::child", "--exact", "--ignored", "--test-threads=1"])
            .env(TASK, format!("{instance} {}", self.directory.path().display()))
            .stdin(Stdio::piped())
            .stdout(Stdio::null());
        if let Some((step, times)) = kill_at {
            command.env("ATRAPOS_KILL_AT", format!("{step}:{times}"));
        }
        let mut child = command.spawn().expect("a test starts itself");
        let input = child.stdin.take();
        Process { child, input }
    }

    fn client(&self) -> Client {
        let options = ClientOptions { kind: None, patience: PATIENCE };
        let client = Client::connect(self.directory.path(), options).expect("a deployment");
        client.with_schema(schema(), register).expect("its own schema")
    }
}

/// The calls of the clients, and the answers they got.
#[derive(Default)]
struct Recorder {
    entries: Mutex<Vec<Entry>>,
}

impl Recorder {
    fn lock(&self) -> MutexGuard<'_, Vec<Entry>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Calls, and records the call and what came of it. The place of an entry is its moment, and makes numbers of versions too.
    fn call(&self, client: &Client, session: u64, rows: &[(u64, bool)]) -> Outcome {
        let keys: Vec<u64> = rows.iter().map(|(key, _)| *key).collect();
        let mut entries = self.lock();
        let at = entries.len() as u64;
        let number = |(place, (_, writes)): (usize, &(u64, bool))| {
            if *writes { (at + 1) << 8 | place as u64 } else { 0 }
        };
        let numbers: Vec<u64> = rows.iter().enumerate().map(number).collect();
        let writes = keys.iter().copied().zip(numbers.iter().copied()).filter(|(_, number)| *number > 0);
        entries.push(Entry::Begins { session, at, writes: writes.collect(), appends: Vec::new() });
        drop(entries);
        let called = client.call(&ReadWrite { keys: keys.clone(), numbers: numbers.clone() });
        let (outcome, events) = match called {
            Ok(found) => (Outcome::Committed, events(&keys, &numbers, &found)),
            Err(error) => (outcome_of(&error), Vec::new()),
        };
        let mut entries = self.lock();
        let at = entries.len() as u64;
        entries.push(Entry::Ends { session, at, outcome, events });
        outcome
    }

    /// Calls until it has committed.
    fn commit(&self, client: &Client, session: u64, rows: &[(u64, bool)]) {
        while self.call(client, session, rows) != Outcome::Committed {
            thread::sleep(Duration::from_millis(1));
        }
    }

    /// Runs transactions over both instances until they are to stop. Some change no row of their home.
    fn run(&self, client: &Client, session: u64, stop: &AtomicBool) {
        let mut random = session + 1;
        let mut below = |bound: u64| {
            random = random.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
            (random >> 33) % bound
        };
        while !stop.load(Ordering::Relaxed) {
            let home = below(2);
            let rows = [home, 1 - home, below(2)].map(|instance| instance * CUT + below(ROWS));
            let kind = below(4);
            let written = [kind != 0 && below(2) == 0, true, kind == 1];
            // A row is asked for once.
            let count = if rows[..2].contains(&rows[2]) { 2 } else { 3 };
            let rows: Vec<(u64, bool)> = rows.into_iter().zip(written).take(count).collect();
            self.call(client, session, &rows);
        }
    }

    fn judge(&self) -> Result<Report, Anomaly> {
        History::new(self.lock().iter().cloned()).expect("a history").check()
    }
}

/// Returns what a transaction did that has found these versions.
fn events(keys: &[u64], numbers: &[u64], found: &[(u64, u64)]) -> Vec<Event> {
    let event = |((key, version), (found, over)): ((&u64, &u64), &(u64, u64))| {
        let (key, version) = (*key, *version);
        let group = (*found > 0).then_some(0);
        let found = Found { version: *found, over: *over, group };
        if version > 0 {
            return Event::Write { key, found, version, group: Some(0) };
        }
        let rows = if group.is_some() { vec![(key, found)] } else { Vec::new() };
        Event::Read { what: Predicate::key(key), rows }
    };
    keys.iter().zip(numbers).zip(found).map(event).collect()
}

/// Returns what is known of a transaction that has no result.
fn outcome_of(error: &ClientError) -> Outcome {
    match error {
        ClientError::Lost { .. } => Outcome::Unknown,
        ClientError::NotCalled(_) => Outcome::Aborted,
        ClientError::Call(CallError::Aborted(abort)) => match abort.reason() {
            AbortReason::Deadlock | AbortReason::Unreachable => Outcome::Aborted,
            AbortReason::OutcomeUnknown | AbortReason::NotDurable | AbortReason::ShuttingDown => {
                Outcome::Unknown
            }
            _ => panic!("{error}"),
        },
        _ => panic!("{error}"),
    }
}

/// All rows.
fn all(writes: bool) -> Vec<(u64, bool)> {
    let keys = (0..ROWS).flat_map(|row| [row, CUT + row]).chain(LOCAL);
    keys.map(|key| (key, writes)).collect()
}

/// Has clients outside run transactions over both instances while something is done to these, and reads all rows when that is over.
fn under_clients(
    kind: ChannelKind,
    act: impl FnOnce(&Deployment, [Process; 2], &Recorder) -> [Process; 2],
) -> Recorder {
    /// Tells the clients to stop, also when a test fails.
    struct Stop<'a>(&'a AtomicBool);
    impl Drop for Stop<'_> {
        fn drop(&mut self) {
            self.0.store(true, Ordering::Relaxed);
        }
    }
    let (deployment, recorder, stop) = (Deployment::new(kind), Recorder::default(), AtomicBool::new(false));
    let processes = [0, 1].map(|instance| deployment.start(instance, None));
    let client = deployment.client();
    recorder.commit(&client, CLIENTS, &all(true));
    let _processes = thread::scope(|scope| {
        for session in 0..CLIENTS {
            let (client, recorder, stop) = (deployment.client(), &recorder, &stop);
            scope.spawn(move || recorder.run(&client, session, stop));
        }
        let _stop = Stop(&stop);
        act(&deployment, processes, &recorder)
    });
    recorder.commit(&client, CLIENTS, &all(false));
    recorder
}

/// Changes what the last transaction that has read all rows has found of one of them to the version before.
fn make_stale(entries: &mut [Entry]) {
    let known: Vec<Found> = entries
        .iter()
        .filter_map(|entry| if let Entry::Ends { events, .. } = entry { Some(events) } else { None })
        .flatten()
        .filter_map(|event| if let Event::Write { found, .. } = event { Some(*found) } else { None })
        .collect();
    let Some(Entry::Ends { events, .. }) = entries.last_mut() else { panic!("the history has an end") };
    let mut read = events.iter_mut().filter_map(|event| match event {
        Event::Read { rows, .. } => rows.first_mut(),
        _ => None,
    });
    let stale = read.find_map(|(_, found)| {
        let before = known.iter().find(|known| known.version == found.over)?;
        *found = *before;
        Some(())
    });
    stale.expect("a row has been replaced");
}

#[expect(clippy::print_stdout, reason = "the test harness shows it when the test fails")]
fn show(text: &str) {
    println!("{text}");
}

/// The step at which an instance ends next, if there is one left: the two begin at different ones.
fn step_of(instance: usize, ends: usize) -> Option<(&'static str, u64)> {
    let steps = CommitStep::ALL.len();
    let (_, name) = CommitStep::ALL[(ends + instance * steps / 2) % steps];
    (ends < steps).then_some((name, 10 + ends as u64 % 3))
}

#[test]
fn histories_are_strictly_serializable_when_instances_end_at_each_step() {
    let recorder = under_clients(ChannelKind::Unix, |deployment, processes, _| {
        processes.into_iter().for_each(Process::kill);
        let start = |instance, ends| deployment.start(instance, step_of(instance, ends));
        let mut processes = [0, 1].map(|instance| start(instance, 0));
        let mut ends = [0, 0];
        while ends != [CommitStep::ALL.len(); 2] {
            for (instance, process) in processes.iter_mut().enumerate() {
                if let Some(status) = process.ended() {
                    assert!(
                        status.to_string().contains("SIGKILL"),
                        "{:?}: {status}",
                        step_of(instance, ends[instance])
                    );
                    ends[instance] += 1;
                    *process = start(instance, ends[instance]);
                }
            }
            thread::sleep(Duration::from_millis(2));
        }
        processes
    });
    let report = recorder.judge().unwrap_or_else(|anomaly| panic!("{anomaly}"));
    show(&format!("{report:?}"));
    assert!(report.committed > 0 && report.unknown > 0, "{report:?}");
    make_stale(&mut recorder.lock());
    let anomaly = recorder.judge().expect_err("a read of an older version is noticed");
    show(&format!("a history with a stale read: {anomaly}"));
}

/// Local transactions that a survivor runs.
const LOCAL_CALLS: usize = 50;

#[test]
fn survivors_go_on_and_nothing_stays_in_doubt() {
    let recorder = under_clients(ChannelKind::Shm, |deployment, mut processes, recorder| {
        let client = deployment.client();
        for gone in [0, 1, 0, 1] {
            for stands_still in [true, false] {
                // Its clients have used it since the last time.
                recorder.commit(&client, CLIENTS + 1, &all(true));
                let go_on = || {
                    for _ in 0..LOCAL_CALLS {
                        let outcome = recorder.call(&client, CLIENTS + 1, &[(LOCAL[1 - gone], true)]);
                        assert_eq!(outcome, Outcome::Committed, "a local transaction of the survivor");
                    }
                };
                let back = if stands_still {
                    processes[gone].signal("-STOP");
                    go_on();
                    processes[gone].signal("-CONT");
                    Instant::now()
                } else {
                    processes[gone].signal("-KILL");
                    go_on();
                    processes[gone] = deployment.start(gone, None);
                    Instant::now()
                };
                recorder.commit(&client, CLIENTS + 1, &all(true));
                let how = if stands_still { "stood still" } else { "was away" };
                show(&format!("instance {gone} {how}: all rows are free after {:?}", back.elapsed()));
                assert!(back.elapsed() < Duration::from_secs(30), "what was in doubt is resolved");
            }
        }
        processes
    });
    let report = recorder.judge().unwrap_or_else(|anomaly| panic!("{anomaly}"));
    show(&format!("{report:?}"));
}
