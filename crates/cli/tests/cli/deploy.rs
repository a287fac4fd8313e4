//! `atrapos deploy` and `atrapos call`: instances that others call, that may die, and that stop when they are told to.

use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use assert_cmd::cargo::CommandCargoExt;
use atrapos_cli::benchmarks::entries;
use atrapos_instances::{Client, ClientError, ClientOptions};
use atrapos_workloads::Workload;
use atrapos_workloads::micro::procedures::{ReadRows, UpdateRows};
use atrapos_workloads::micro::{Kind, Micro, MicroConfig};

use crate::support::{interrupt, refused, run, stderr, stdout};

/// Far more than anything takes on a loaded machine.
const PATIENCE: Duration = Duration::from_secs(120);

/// Rows of the microbenchmark: those below are of instance 0, the others of instance 1.
const ROWS_PER_INSTANCE: u64 = 100;

/// A deployment of the microbenchmark, which ends with its standard input.
struct Deployment {
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
    /// The lines up to the one that says that it is open.
    opening: Vec<String>,
    directory: PathBuf,
}

impl Drop for Deployment {
    fn drop(&mut self) {
        // The instances end with it.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn arguments<'a>(directory: &'a str, more: &[&'a str]) -> Vec<&'a str> {
    let mut arguments =
        vec!["deploy", "micro", "--rows-per-site", "100", "--instances", "2", "--workers", "2"];
    arguments.extend(["--placement", "system", "--oversubscribe", "--until-eof", "--dir", directory]);
    arguments.extend(more);
    arguments
}

fn text(path: &Path) -> &str {
    path.to_str().expect("text")
}

fn command() -> Command {
    Command::cargo_bin("atrapos").expect("the binary is built with its tests")
}

impl Deployment {
    fn start(directory: &Path, more: &[&str]) -> Deployment {
        Deployment::start_as(directory, &arguments(text(directory), more))
    }

    fn start_as(directory: &Path, arguments: &[&str]) -> Deployment {
        Deployment::start_by(command(), directory, arguments)
    }

    fn start_by(mut command: Command, directory: &Path, arguments: &[&str]) -> Deployment {
        command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().expect("the command starts");
        let input = child.stdin.take();
        let output = BufReader::new(child.stdout.take().expect("it was asked for"));
        let directory = directory.to_owned();
        let mut deployment = Deployment { child, input, output, opening: Vec::new(), directory };
        let open = format!("open in {}", text(&deployment.directory));
        deployment.opening = deployment.read_until(&open);
        deployment
    }

    /// Returns the lines up to one that begins with the words.
    fn read_until(&mut self, words: &str) -> Vec<String> {
        let mut lines = Vec::new();
        while lines.last().is_none_or(|line: &String| !line.starts_with(words)) {
            let mut line = String::new();
            let read = self.output.read_line(&mut line).expect("text");
            assert!(read > 0, "the output ends without '{words}': {lines:?}");
            lines.push(line.trim_end().to_owned());
        }
        lines
    }

    /// The process of an instance, as the deployment has shown it.
    fn process(&self, instance: u16) -> &str {
        let begin = format!("instance {instance}: process ");
        let line = self.opening.iter().find_map(|line| line.strip_prefix(begin.as_str()));
        line.and_then(|line| line.split(',').next()).expect("a line for each instance")
    }

    fn client(&self) -> Client {
        Client::connect(&self.directory, ClientOptions { kind: None, patience: PATIENCE })
            .expect("it is open")
    }

    /// A client that knows who owns a key.
    fn knowing_client(&self) -> Client {
        let config = MicroConfig {
            sites: 2,
            rows_per_site: ROWS_PER_INSTANCE,
            rows_per_transaction: 10,
            kind: Kind::Read,
            multisite: 0.0,
            zipf: 0.0,
            seed: 1,
        };
        let workload = Micro::new(config).expect("a sound configuration");
        let knowing = self
            .client()
            .with_schema(workload.schema(), |registry, handles| workload.register(registry, handles));
        knowing.expect("its own schema")
    }

    fn stop(mut self) {
        self.input = None;
        self.has_stopped();
    }

    /// Asserts that it stops, as it was told to.
    fn has_stopped(&mut self) {
        let lines = self.read_until("instance 1 has stopped");
        assert_eq!(lines, ["instance 0 has stopped", "instance 1 has stopped"]);
        assert!(self.child.wait().expect("it ends").success());
    }
}

/// The sum of the counters of rows.
fn sum(client: &Client, rows: &[u64]) -> Result<u64, ClientError> {
    client.call(&ReadRows { rows: rows.to_vec() })
}

#[test]
fn others_call_the_procedures_of_a_deployment() {
    for channel in ["shm", "unix", "pipe", "tcp"] {
        let parent = tempfile::tempdir().expect("a directory");
        let directory = parent.path().join("d");
        let deployment = Deployment::start(&directory, &["--channel", channel]);
        let shown = deployment.opening.join("\n");
        for words in
            ["2 instances, 2 workers", channel, "below 100", "from 100", "rows 100", text(&directory)]
        {
            assert!(shown.contains(words), "no '{words}' in:\n{shown}");
        }
        let client = deployment.client();
        let rows = [0, ROWS_PER_INSTANCE, 1, ROWS_PER_INSTANCE + 1];
        client.call(&UpdateRows { rows: rows.to_vec() }).expect("rows of both instances");
        assert_eq!(sum(&client, &rows).expect("an answer"), 4);
        // The counters of rows 100 and 0: format 1, two rows, 100, 0. And back: format 1, two.
        let called = run(&["call", text(&directory), "micro.read", "01026400"]);
        assert_eq!(stdout(&called), "0102\n", "{}", stderr(&called));
        let aborted = run(&["call", text(&directory), "micro.update", "0101e807"]);
        assert_eq!(aborted.status.code(), Some(1), "{}", stderr(&aborted));
        assert!(stderr(&aborted).starts_with("error: transaction aborted (user)"), "{}", stderr(&aborted));
        deployment.stop();
    }
}

#[test]
fn an_instance_that_is_killed_starts_again_and_the_others_go_on() {
    let parent = tempfile::tempdir().expect("a directory");
    let options = ["--channel", "unix", "--durability", "none"];
    let mut deployment = Deployment::start(&parent.path().join("d"), &options);
    let client = deployment.knowing_client();
    let local = [0, 1];
    let far = [ROWS_PER_INSTANCE, ROWS_PER_INSTANCE + 1];
    client.call(&UpdateRows { rows: local.to_vec() }).expect("instance 0");
    client.call(&UpdateRows { rows: far.to_vec() }).expect("instance 1");
    let killed = Command::new("kill").args(["-KILL", deployment.process(1)]).status().expect("kill starts");
    assert!(killed.success());
    // Whether instance 1 is gone, away or back, instance 0 answers.
    for done in 1..50 {
        assert_eq!(sum(&client, &local).expect("instance 0"), 2 * done);
        client.call(&UpdateRows { rows: local.to_vec() }).expect("instance 0");
    }
    let seen = deployment.read_until("instance 1: process");
    assert!(seen[0].starts_with("instance 1 has ended (signal: 9 (SIGKILL))"), "{seen:?}");
    assert!(seen[0].contains("starts again") && seen[0].contains("is lost"), "{seen:?}");
    assert!(seen[1].ends_with("is open and has links to all others"), "{seen:?}");
    // The end of the connection may not have been seen yet.
    let read = loop {
        match sum(&client, &far) {
            Err(ClientError::Lost { .. }) => {}
            other => break other,
        }
    };
    assert_eq!(read.expect("instance 1"), 0, "it has the rows of the population");
    let both = vec![0, ROWS_PER_INSTANCE];
    // The link of instance 0 may be a moment younger than that of instance 1.
    let again = loop {
        match client.call(&UpdateRows { rows: both.clone() }) {
            Err(ClientError::Call(error)) if error.to_string().contains("unreachable") => {
                std::thread::yield_now();
            }
            other => break other,
        }
    };
    again.expect("rows of both instances");
    assert_eq!(sum(&client, &far).expect("instance 1"), 1);
    deployment.stop();
}

#[test]
fn an_interrupt_and_a_request_to_end_stop_the_instances_in_their_order() {
    let parent = tempfile::tempdir().expect("a directory");
    let mut deployment = Deployment::start(&parent.path().join("d"), &[]);
    interrupt(&deployment.child);
    deployment.has_stopped();
    let mut deployment = Deployment::start(&deployment.directory, &[]);
    let sent = Command::new("kill").args(["-TERM", &deployment.child.id().to_string()]).status();
    assert!(sent.expect("kill starts").success());
    deployment.has_stopped();
    // The same deployment may use the directory again.
    Deployment::start(&deployment.directory, &[]).stop();
}

#[test]
fn directories_of_others_are_refused() {
    let parent = tempfile::tempdir().expect("a directory");
    let directory = parent.path().join("d");
    let complaint = refused(&["call", text(&directory), "micro.read"]);
    assert!(complaint.contains("has no deployment"), "{complaint}");
    let deployment = Deployment::start(&directory, &[]);
    let complaint = refused(&arguments(text(&directory), &[]));
    assert!(complaint.contains("runs in"), "{complaint}");
    assert_eq!(sum(&deployment.client(), &[1]).expect("nothing has changed"), 0);
    deployment.stop();
    let complaint = refused(&arguments(text(&directory), &["--workers", "3"]));
    assert!(complaint.contains("belongs to another deployment"), "{complaint}");
    let files = tempfile::tempdir().expect("a directory");
    File::create(files.path().join("letter")).expect("a file");
    let complaint = refused(&arguments(text(files.path()), &[]));
    assert!(complaint.contains("it has 'letter'"), "{complaint}");
}

/// The directories of two instances change their places: neither is opened, and both have their data when they are back.
#[test]
fn the_directory_of_another_instance_is_refused_and_nothing_is_lost() {
    for engine in ["atrapos", SHARED[0], SHARED[1]] {
        let parent = tempfile::tempdir().expect("a directory");
        let (directory, options) = (parent.path().join("d"), ["--engine", engine]);
        let deployment = Deployment::start(&directory, &options);
        let rows = [0, ROWS_PER_INSTANCE];
        deployment.client().call(&UpdateRows { rows: rows.to_vec() }).expect("rows of both instances");
        deployment.stop();
        let exchange = || {
            let places = [0, 1].map(|instance| directory.join(format!("instance-{instance}")));
            let aside = parent.path().join("aside");
            for (from, to) in [(&places[0], &aside), (&places[1], &places[0]), (&aside, &places[1])] {
                std::fs::rename(from, to).expect("both are there");
            }
        };
        exchange();
        let output = run(&arguments(text(&directory), &options));
        assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
        let complaint = stderr(&output);
        assert!(complaint.contains("instance-0 is") && complaint.contains("own"), "{complaint}");
        exchange();
        let deployment = Deployment::start(&directory, &options);
        assert_eq!(sum(&deployment.client(), &rows).expect("an answer"), 2);
        deployment.stop();
    }
}

#[test]
fn what_makes_no_sense_is_refused() {
    let complaint = refused(&["deploy", "tatp", "--instances", "3", "--workers", "2"]);
    assert!(complaint.contains("3 instances need a worker each"), "{complaint}");
    let complaint = refused(&["deploy", "tatp", "--instances", "9999"]);
    assert!(
        complaint.contains("9999 instances need") && complaint.contains("--oversubscribe"),
        "{complaint}"
    );
    let complaint = refused(&["deploy", "tatp", "--instances", "2", "--workers", "4096"]);
    assert!(complaint.contains("4096 workers") && complaint.contains("--oversubscribe"), "{complaint}");
    let complaint = refused(&["deploy", "tatp", "--instances", "0"]);
    assert!(complaint.contains("0 instances"), "{complaint}");
    let complaint = refused(&["deploy", "tatp", "--subscribers", "0"]);
    assert!(complaint.contains("0 subscribers"), "{complaint}");
    let complaint = refused(&["call", ".", "tatp.get-subscriber-data", "0g"]);
    assert!(complaint.contains("'0g'"), "{complaint}");
}

#[test]
fn a_file_says_the_parts_of_the_instances() {
    let parent = tempfile::tempdir().expect("a directory");
    let file = parent.path().join("deployment.toml");
    let write = |text: &str| {
        let written = File::create(&file).and_then(|mut file| file.write_all(text.as_bytes()));
        written.expect("a file");
    };
    let deploy = ["deploy", "micro", "--until-eof", "--file", text(&file)];
    write(
        "channel = \"unix\"\noversubscribe = true\n[[instance]]\nworkers = 1\nkeys = { counters = { below = 30 } }\n\
         [[instance]]\nworkers = 2\nkeys = { counters = { from = 30 } }\n",
    );
    let directory = parent.path().join("d");
    let deployment = Deployment::start_as(&directory, &[&deploy[..], &["--dir", text(&directory)]].concat());
    let shown = deployment.opening.join("\n");
    for words in [
        "2 instances, 3 workers, channel unix",
        "workers 1, processors any, rows 30, keys: counters below 30,",
        "workers 2, processors any, rows 29970, keys: counters from 30,",
    ] {
        assert!(shown.contains(words), "no '{words}' in:\n{shown}");
    }
    let (client, rows) = (deployment.client(), [29, 30, 29_999]);
    client.call(&UpdateRows { rows: rows.to_vec() }).expect("rows of both instances");
    assert_eq!(sum(&client, &rows).expect("an answer"), 3);
    deployment.stop();
    let instance = |keys: &str| format!("[[instance]]\nworkers = 1\nkeys = {{ {keys} }}\n");
    for (keys, words) in [
        (
            ["counters = { below = 50 }", "counters = { from = 40 }"],
            "instance 0 and instance 1 both have the keys counters from 40 below 50",
        ),
        (
            ["counters = { below = 40 }", "counters = { from = 50 }"],
            "no instance has the keys counters from 40 below 50, between those of instance 0 and instance 1",
        ),
        (
            ["counters = { below = 40 }", ""],
            "no instance has the keys counters from 40, after those of instance 0",
        ),
        (["counter = {}", ""], "there are no tables 'counter' to divide; choose the keys of counters"),
    ] {
        write(&format!("oversubscribe = true\n{}", keys.map(instance).concat()));
        let complaint = refused(&deploy);
        assert!(complaint.contains(words) && complaint.contains(text(&file)), "{complaint}");
    }
    for (file, words) in [
        ("", "0 instances"),
        ("[[instance]]\nworkers = 1\nprocessors = [9999]", "processor 9999"),
        ("[[instance]]\nworkers = 1\nrows = [1]", "unknown field `rows`"),
        ("[[instance]]\nworkers = 4096", "oversubscribe = true"),
    ] {
        write(file);
        let complaint = refused(&deploy);
        assert!(complaint.contains(words), "{complaint}");
    }
}

#[test]
fn engines_with_shared_data_run_in_instances() {
    let parent = tempfile::tempdir().expect("a directory");
    for engine in SHARED {
        for durability in ["none", "synchronous"] {
            for channel in ["unix", "tcp"] {
                let directory = parent.path().join(format!("{engine}-{durability}-{channel}"));
                let options = ["--engine", engine, "--durability", durability, "--channel", channel];
                let deployment = Deployment::start(&directory, &options);
                let shown = deployment.opening.join("\n");
                for words in [engine, "below 100", "from 100", "rows 100"] {
                    assert!(shown.contains(words), "no '{words}' in:\n{shown}");
                }
                let (client, rows) = (deployment.client(), [ROWS_PER_INSTANCE, 0, 1, ROWS_PER_INSTANCE + 1]);
                client.call(&UpdateRows { rows: rows.to_vec() }).expect("rows of both instances");
                assert_eq!(sum(&client, &rows).expect("an answer"), 4);
                let aborted = run(&["call", text(&directory), "micro.update", "0101e807"]);
                assert_eq!(aborted.status.code(), Some(1), "{}", stderr(&aborted));
                let unknown = refused(&["call", text(&directory), "micro.drop"]);
                assert!(unknown.contains("micro.read, micro.update"), "{unknown}");
                let nonsense = refused(&["call", text(&directory), "micro.update", "0102"]);
                assert!(nonsense.contains("no arguments"), "{nonsense}");
                deployment.stop();
            }
        }
    }
    let directory = parent.path().join("shared-2pl-synchronous-unix");
    let other = refused(&arguments(text(&directory), &["--channel", "unix"]));
    assert!(other.contains("belongs to another deployment"), "{other}");
    let again = ["--engine", "shared-2pl", "--channel", "unix"];
    let deployment = Deployment::start(&directory, &again);
    assert_eq!(sum(&deployment.client(), &[0, ROWS_PER_INSTANCE]).expect("its data"), 2);
    deployment.stop();
    let complaint = refused(&["deploy", "tatp", "--engine", "plp"]);
    assert!(complaint.contains("plp is no engine of an instance"), "{complaint}");
    let complaint = refused(&["deploy", "tatp", "--engine", "shared-occ", "--interval", "2"]);
    assert!(complaint.contains("--interval"), "{complaint}");
}

#[test]
fn every_workload_can_be_deployed() {
    let list = stdout(&run(&["deploy", "--help"]));
    for entry in entries() {
        assert!(list.contains(entry.name()), "no {} in:\n{list}", entry.name());
        let help = stdout(&run(&["deploy", entry.name(), "--help"]));
        assert!(help.contains("--until-eof") && !help.contains("--member"), "{help}");
    }
}

#[test]
fn one_that_is_to_stop_at_once_stops_in_order() {
    let output = run(&[
        "deploy",
        "micro",
        "--workers",
        "2",
        "--placement",
        "system",
        "--oversubscribe",
        "--until-eof",
    ]);
    assert!(output.status.success(), "{}", stderr(&output));
    assert!(
        stdout(&output).ends_with("instance 0 has stopped\ninstance 1 has stopped\n"),
        "{}",
        stdout(&output)
    );
}

/// Counters of one row in each instance, which a client increments together.
struct Witness {
    rows: Vec<u64>,
    acknowledged: AtomicU64,
    begun: AtomicU64,
}

impl Witness {
    fn some() -> [Witness; 3] {
        [0, 1, 2].map(|at| Witness {
            rows: vec![at, ROWS_PER_INSTANCE + at],
            acknowledged: AtomicU64::new(0),
            begun: AtomicU64::new(0),
        })
    }

    /// Increments until it is to stop.
    fn increment(&self, client: &Client, stop: &AtomicBool) {
        while !stop.load(Ordering::Relaxed) {
            self.begun.fetch_add(1, Ordering::Relaxed);
            if client.call(&UpdateRows { rows: self.rows.clone() }).is_ok() {
                self.acknowledged.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    fn acknowledged(&self) -> u64 {
        self.acknowledged.load(Ordering::Relaxed)
    }

    /// Asserts that nothing is half there, missing or made up, and nothing locked.
    fn judge(&self, client: &Client, when: &str) {
        let [here, there] = [0, 1].map(|at| sum(client, &self.rows[at..=at]).expect("it is open"));
        let (acknowledged, begun) = (self.acknowledged(), self.begun.load(Ordering::Relaxed));
        assert_eq!(here, there, "of row {} half a transaction has committed ({when})", self.rows[0]);
        assert!(
            (acknowledged..=begun).contains(&here),
            "{here} of {acknowledged} acknowledged and {begun} begun ({when})"
        );
        assert!(acknowledged > 0, "the witness got somewhere ({when})");
    }
}

/// Has clients outside increment the counters of the witnesses while something is done to the deployment.
fn while_incremented(deployment: &mut Deployment, witnesses: &[Witness], act: impl FnOnce(&mut Deployment)) {
    /// Tells the clients to stop, also when a test fails.
    struct Stop<'a>(&'a AtomicBool);
    impl Drop for Stop<'_> {
        fn drop(&mut self) {
            self.0.store(true, Ordering::Relaxed);
        }
    }
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for witness in witnesses {
            let (client, stop) = (deployment.knowing_client(), &stop);
            scope.spawn(move || witness.increment(&client, stop));
        }
        let _stop = Stop(&stop);
        act(deployment);
    });
}

/// Sends a signal to a process.
fn signal(process: &str, name: &str) {
    assert!(Command::new("kill").args([name, process]).status().expect("kill starts").success());
}

/// The number of times that an instance is killed or stopped.
fn kills() -> u64 {
    std::env::var("ATRAPOS_KILLS").ok().and_then(|kills| kills.parse().ok()).unwrap_or(8)
}

/// Kills an instance, and returns the process that was started in its place.
fn kill(deployment: &mut Deployment, instance: usize, process: &str) -> String {
    signal(process, "-KILL");
    let back = deployment.read_until(&format!("instance {instance}: process"));
    assert!(back[0].contains("starts again") && back[0].ends_with("with its data"), "{back:?}");
    let words = back.last().map(|line| line.split(' ').collect::<Vec<_>>()).expect("a line");
    words[3].to_owned()
}

/// Kills and stops instances while clients outside increment counters in both, and opens the deployment once more.
fn kill_at_any_time(options: &[&str]) {
    let parent = tempfile::tempdir().expect("a directory");
    let directory = parent.path().join("d");
    let mut deployment = Deployment::start(&directory, options);
    let witnesses = Witness::some();
    while_incremented(&mut deployment, &witnesses, |deployment| {
        let mut processes = [0, 1].map(|instance| deployment.process(instance).to_owned());
        for round in 0..kills() {
            let instance = (round.wrapping_mul(0x9e37_79b9) >> 7) as usize % 2;
            // Sometimes an instance is open for so long that the next pause before its start is the shortest again.
            let goes_on_ms = if round % 8 == 7 { 1_200 } else { round * 37 % 230 };
            std::thread::sleep(Duration::from_millis(goes_on_ms));
            if round % 4 == 3 {
                signal(&processes[instance], "-STOP");
                std::thread::sleep(Duration::from_millis(150));
                signal(&processes[instance], "-CONT");
                continue;
            }
            processes[instance] = kill(deployment, instance, &processes[instance]);
        }
    });
    deployment.stop();
    // Opened once more, nothing is missing, and nothing is locked.
    let deployment = Deployment::start(&directory, options);
    let client = deployment.knowing_client();
    witnesses.iter().for_each(|witness| witness.judge(&client, "after kills"));
    deployment.stop();
}

#[test]
fn transactions_over_instances_are_whole_after_kills_at_any_time() {
    kill_at_any_time(&[]);
}

#[test]
fn transactions_over_instances_of_engines_with_shared_data_are_whole_after_kills_at_any_time() {
    SHARED.iter().for_each(|engine| kill_at_any_time(&["--engine", engine]));
}

/// The engines with shared data that run inside of instances.
const SHARED: [&str; 2] = ["shared-2pl", "shared-occ"];

/// A time longer than any after which an instance or a client gives something up while the other side is silent: the longest one is that in
/// which whoever connects has to say who he is.
const LONGER_THAN_ANY_TIME_OUT: Duration = Duration::from_secs(6);

#[test]
fn an_instance_that_stands_still_for_longer_than_any_time_out_loses_nothing() {
    std::thread::scope(|scope| {
        for engine in ["atrapos", SHARED[0], SHARED[1]] {
            scope.spawn(move || stand_still(engine));
        }
    });
}

fn stand_still(engine: &str) {
    let parent = tempfile::tempdir().expect("a directory");
    let options = ["--engine", engine];
    let mut deployment = Deployment::start(&parent.path().join("d"), &options);
    let witnesses = Witness::some();
    let local = [ROWS_PER_INSTANCE - 1, ROWS_PER_INSTANCE - 2];
    let mut done = 0;
    while_incremented(&mut deployment, &witnesses, |deployment| {
        let survivor = deployment.knowing_client();
        // A witness of each connection has got somewhere, so that something is under way when the instance stands still.
        while witnesses.iter().any(|witness| witness.acknowledged() == 0) {
            std::thread::sleep(Duration::from_millis(1));
        }
        signal(deployment.process(1), "-STOP");
        let until = std::time::Instant::now() + LONGER_THAN_ANY_TIME_OUT;
        while std::time::Instant::now() < until {
            survivor.call(&UpdateRows { rows: local.to_vec() }).expect("local work goes on");
            done += 1;
            std::thread::sleep(Duration::from_millis(5));
        }
        signal(deployment.process(1), "-CONT");
        let before = witnesses.each_ref().map(Witness::acknowledged);
        while witnesses.iter().zip(before).any(|(witness, before)| witness.acknowledged() <= before) {
            std::thread::sleep(Duration::from_millis(1));
        }
    });
    let client = deployment.knowing_client();
    assert_eq!(sum(&client, &local).expect("it is open"), 2 * done);
    witnesses.iter().for_each(|witness| witness.judge(&client, engine));
    deployment.stop();
}

/// Builds that can end at a step of a commit.
#[cfg(debug_assertions)]
mod steps {
    use std::time::Instant;

    use atrapos::planted::CommitStep;
    use atrapos_baselines::instance::CommitStep as SharedStep;

    use super::*;

    /// The instance that takes a step of the transactions of witnesses, whose home is instance 0; none of a step that they do not take.
    fn instance_of(step: CommitStep) -> Option<u16> {
        match step {
            CommitStep::VotesIn
            | CommitStep::DecisionLogged
            | CommitStep::DecisionDurable
            | CommitStep::Told
            | CommitStep::Forgotten => Some(0),
            CommitStep::PreparedLogged
            | CommitStep::PreparedDurable
            | CommitStep::Voted
            | CommitStep::EndLogged
            | CommitStep::EndDurable
            | CommitStep::Acknowledged => Some(1),
            // They change rows of both instances.
            CommitStep::CommittedAlone => None,
        }
    }

    #[test]
    fn transactions_over_instances_are_whole_after_a_kill_at_each_step() {
        for (step, name) in CommitStep::ALL {
            let Some(instance) = instance_of(step) else { continue };
            kill_at_step(&format!("{name}:5"), instance, &[]);
        }
    }

    /// The instance that takes a step of an engine with shared data.
    fn instance_of_shared(step: SharedStep) -> Option<u16> {
        match step {
            SharedStep::VotesIn
            | SharedStep::DecisionLogged
            | SharedStep::DecisionDurable
            | SharedStep::Told => Some(0),
            SharedStep::PreparedLogged
            | SharedStep::PreparedDurable
            | SharedStep::Voted
            | SharedStep::EndLogged => Some(1),
            // They change rows of both instances.
            SharedStep::CommittedAlone => None,
        }
    }

    #[test]
    fn transactions_of_engines_with_shared_data_are_whole_after_a_kill_at_each_step() {
        for engine in SHARED {
            for (step, name) in SharedStep::ALL {
                let Some(instance) = instance_of_shared(step) else { continue };
                kill_at_step(name, instance, &["--engine", engine]);
            }
        }
    }

    /// Has an instance kill itself at a step under clients outside, and looks at what is left when it is back.
    fn kill_at_step(at: &str, instance: u16, options: &[&str]) {
        let parent = tempfile::tempdir().expect("a directory");
        let directory = parent.path().join("d");
        let mut command = command();
        command.env("ATRAPOS_KILL_AT", at);
        let mut deployment = Deployment::start_by(command, &directory, &arguments(text(&directory), options));
        let witnesses = Witness::some();
        while_incremented(&mut deployment, &witnesses, |deployment| {
            let back = deployment.read_until(&format!("instance {instance}: process"));
            let end = format!("instance {instance} has ended (signal: 9 (SIGKILL))");
            assert!(back[0].starts_with(&end), "{at}: {back:?}");
            // All go on, so that none of their rows is locked.
            let before = witnesses.each_ref().map(Witness::acknowledged);
            let deadline = Instant::now() + PATIENCE;
            while witnesses.iter().zip(before).any(|(witness, before)| witness.acknowledged() <= before) {
                assert!(Instant::now() < deadline, "{at}: a witness does not go on");
                std::thread::sleep(Duration::from_millis(5));
            }
        });
        let client = deployment.knowing_client();
        witnesses.iter().for_each(|witness| witness.judge(&client, at));
        deployment.stop();
    }
}
