//! Instances in processes of their own, which end at each step of a commit, stand still, or stay away, under clients outside. What
//! the clients were told has to be a strictly serializable history. This test binary starts itself.

mod recorder;
mod steps;

use std::fs::Permissions;
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::{Duration, Instant};

use atrapos::planted::{Bug, CommitStep, plant_everywhere};
use atrapos::{Database, InstanceId, Registry};
use atrapos_history::{Entry, Event, Found, Outcome};
use atrapos_instances::{
    ChannelKind, Client, ClientOptions, DeploymentDirectory, Description, Member, MemberOptions, division,
    read_secret,
};
use tempfile::TempDir;

use self::recorder::Recorder;
use self::steps::{CUT, KEYS, LOCAL, SHARED, Step, register, schema};
use crate::support::PATIENCE;

/// The workers of the instances.
const WORKERS: [usize; 2] = [2, 2];

const CLIENTS: u64 = 3;

/// The variable that tells the process of [`child`] which instance it is, and where.
const TASK: &str = "ATRAPOS_INSTANCES_CHILD";

/// The variable whose presence plants [`Bug::ScanNotLocked`] there.
const PLANTED: &str = "ATRAPOS_INSTANCES_SCAN_NOT_LOCKED";

#[test]
#[ignore = "run by other tests, as a process of its own"]
fn child() {
    let task = std::env::var(TASK).expect("it is started with a task");
    let (instance, directory) = task.split_once(' ').expect("a task of two words");
    let (instance, directory) = (instance.parse().expect("a number"), Path::new(directory));
    if std::env::var_os(PLANTED).is_some() {
        plant_everywhere(Bug::ScanNotLocked);
    }
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
    /// True if ranges are read without locks in all instances.
    is_planted: bool,
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
        Deployment { _claim: claim.expect("an empty directory"), is_planted: false, directory }
    }

    /// Starts the process of an instance; it kills itself when it has got to a step so many times.
    fn start(&self, instance: usize, kill_at: Option<(&str, u64)>) -> Process {
        let mut command = Command::new(std::env::current_exe().expect("a test knows its own path"));
        command
            .args(["crashes::child", "--exact", "--ignored", "--test-threads=1"])
            .env(TASK, format!("{instance} {}", self.directory.path().display()))
            .stdin(Stdio::piped())
            .stdout(Stdio::null());
        if self.is_planted {
            command.env(PLANTED, "1");
        }
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

/// New versions of all rows.
fn all_new() -> Vec<Step> {
    (KEYS.0..KEYS.1).map(|key| Step::Put { key, version: 0 }).collect()
}

/// All rows, and what was removed.
const LOOK: [Step; 2] = [Step::ALL, Step::Tombs];

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
    recorder.commit(&client, CLIENTS, CUT, &all_new());
    let _processes = thread::scope(|scope| {
        for session in 0..CLIENTS {
            let (client, recorder, stop) = (deployment.client(), &recorder, &stop);
            scope.spawn(move || recorder.run(&client, session, stop));
        }
        let _stop = Stop(&stop);
        act(&deployment, processes, &recorder)
    });
    for steps in [&LOOK[..], &all_new(), &LOOK] {
        recorder.commit(&client, CLIENTS, CUT, steps);
    }
    recorder
}

/// Returns the states that transactions which are known to have committed have replaced, and the versions that they have written.
fn known(entries: &[Entry]) -> (Vec<Found>, Vec<u64>) {
    let events = entries
        .iter()
        .filter_map(|entry| if let Entry::Ends { events, .. } = entry { Some(events) } else { None });
    let writes = events.flatten().filter_map(|event| match event {
        Event::Write { found, version, .. } => Some((*found, *version)),
        _ => None,
    });
    writes.unzip()
}

/// Returns the rows of the range that the last transaction has read.
fn last_range(entries: &mut [Entry]) -> &mut Vec<(u64, Found)> {
    let Some(Entry::Ends { events, .. }) = entries.last_mut() else { panic!("the history has an end") };
    let range = events.iter_mut().find_map(|event| match event {
        Event::Read { rows, .. } => Some(rows),
        _ => None,
    });
    range.expect("it has read all rows")
}

/// Changes what the last transaction has found of one row to the version before.
fn make_stale(entries: &mut [Entry]) {
    let (replaced, _) = known(entries);
    let stale = last_range(entries).iter_mut().find_map(|(_, found)| {
        let is_before = |known: &&Found| known.version == found.over && known.group.is_some();
        *found = *replaced.iter().find(is_before)?;
        Some(())
    });
    stale.expect("a row has been replaced");
}

/// Leaves out one row of what the last transaction has found in its range.
fn make_phantom(entries: &mut [Entry]) {
    let (_, written) = known(entries);
    let rows = last_range(entries);
    let at = rows.iter().position(|(_, found)| written.contains(&found.version));
    rows.remove(at.expect("a row is of a transaction that has committed"));
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
    assert!(report.predicates > 0, "{report:?}");
    let recorded = recorder.lock().clone();
    make_phantom(&mut recorder.lock());
    let anomaly = recorder.judge().expect_err("a row that a range did not bring is noticed").to_string();
    assert!(anomaly.contains("without key"), "{anomaly}");
    show(&format!("a history with a phantom: {anomaly}"));
    *recorder.lock() = recorded;
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
                recorder.commit(&client, CLIENTS + 1, CUT, &all_new());
                let go_on = || {
                    for _ in 0..LOCAL_CALLS {
                        let key = LOCAL[1 - gone];
                        let step = Step::Put { key, version: 0 };
                        let outcome = recorder.call(&client, CLIENTS + 1, key, &[step]);
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
                recorder.commit(&client, CLIENTS + 1, CUT, &all_new());
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

/// Attempts of two transactions to miss each other.
const SKEWS: usize = 300;

/// Has two transactions, each at home in one of the instances, read a range over both that has no row, and then insert one there.
/// Returns the anomaly that was found, if there is one.
fn skew_over_instances(is_planted: bool) -> Option<String> {
    let mut deployment = Deployment::new(ChannelKind::Shm);
    deployment.is_planted = is_planted;
    let _processes = [0, 1].map(|instance| deployment.start(instance, None));
    let (client, recorder, barrier) = (deployment.client(), Recorder::default(), Barrier::new(2));
    let other = deployment.client();
    let keys = [CUT - 1, CUT];
    let range = Step::Scan { from: SHARED.0, to: SHARED.1, backward: false, limit: usize::MAX };
    (0..SKEWS).find_map(|_| {
        let removals = keys.map(|key| Step::Remove { key, version: 0 });
        recorder.commit(&client, 2, CUT, &removals);
        thread::scope(|scope| {
            for (session, (client, key)) in (0..).zip([&client, &other].into_iter().zip(keys)) {
                let (recorder, barrier) = (&recorder, &barrier);
                scope.spawn(move || {
                    barrier.wait();
                    recorder.call(client, session, key, &[range, Step::Put { key, version: 0 }]);
                });
            }
        });
        recorder.judge().err().map(|anomaly| anomaly.to_string())
    })
}

#[test]
fn phantoms_over_instances_are_refused() {
    assert_eq!(skew_over_instances(false), None);
    let anomaly = skew_over_instances(true).expect("ranges without locks are noticed");
    show(&anomaly);
    assert!(anomaly.starts_with("G2:") && anomaly.contains("without key"), "{anomaly}");
}
