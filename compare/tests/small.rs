//! Everything at small size: every workload on every store that was compiled in, with audits, and stores that lose something.
//!
//! Lengths of rounds decide how many transactions run, not whether a test passes.

use std::process::{Command, Output};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use atrapos_compare::driver::Round;
use atrapos_compare::peer::{Client, Durability, Peer, PeerError, PeerKind, WorkName};
use atrapos_compare::peers;
use atrapos_compare::record::{Record, Table};
use atrapos_compare::requests::{Scale, TatpRequest, Work};
use atrapos_compare::side::{Side, SideClients};
use atrapos_workloads::{ClassTally, tpcb, ycsb};

const WORKERS: usize = 2;

fn small(name: WorkName) -> Work {
    let scale = Scale { subscribers: 50, branches: 3, accounts: 20, records: 250, rows: 20 };
    Work::new(name, &scale, WORKERS).expect("sizes that are possible")
}

fn round() -> Round {
    Round { threads: 0, warmup: Duration::from_millis(5), measured: Duration::from_millis(25), run: 0 }
}

/// Runs rounds with several numbers of clients and audits after each. Returns the completed transactions.
fn run_and_audit(side: &mut Side<'_>, clients: &[SideClients], what: &str) -> u64 {
    let mut completed = 0;
    for clients in clients {
        let measured = side.measure(*clients, &round());
        let measured = measured.unwrap_or_else(|error| panic!("{what}, {clients:?}: {error}"));
        completed += measured.tallies.iter().map(ClassTally::completed).sum::<u64>();
        if let Err(error) = side.audit() {
            panic!("{what}, {clients:?}: {error}");
        }
    }
    completed
}

fn run_everything_on(kind: &PeerKind) {
    for name in WorkName::ALL {
        let work = small(name);
        for durability in [Durability::None, Durability::Synchronous] {
            if kind.refusal(name, durability).is_some() {
                continue;
            }
            let what = format!("{}, {}, {}", kind.name, name.name(), durability.name());
            let directory = tempfile::tempdir().expect("a directory");
            let mut side = Side::of_peer(kind, &work, directory.path(), durability)
                .unwrap_or_else(|error| panic!("{what}: {error}"));
            side.audit().unwrap_or_else(|error| panic!("{what}, right after it was loaded: {error}"));
            let clients = [SideClients::Threads(2), SideClients::Threads(5)];
            assert!(run_and_audit(&mut side, &clients, &what) > 0, "{what}: nothing has run");
        }
    }
}

macro_rules! everything_on {
    ($($name:ident)*) => { $(
        #[test]
        fn $name() {
            let kinds = peers::all();
            let name = stringify!($name).trim_start_matches("everything_runs_on_");
            run_everything_on(kinds.iter().find(|kind| kind.name == name).expect("it was compiled in"));
        }
    )* };
}

everything_on! {
    everything_runs_on_map everything_runs_on_sqlite everything_runs_on_redb everything_runs_on_fjall everything_runs_on_lmdb
}

#[cfg(feature = "rocksdb")]
everything_on! { everything_runs_on_rocksdb }

#[test]
fn everything_runs_on_atrapos() {
    for name in WorkName::ALL {
        let work = small(name);
        for durability in [Durability::None, Durability::Synchronous] {
            let directory = tempfile::tempdir().expect("a directory");
            let mut side =
                Side::of_atrapos(&work, directory.path(), durability, WORKERS).expect("a database");
            let clients = [SideClients::Sessions(3), SideClients::Threads(2)];
            run_and_audit(&mut side, &clients, name.name());
        }
    }
}

#[test]
fn every_store_is_listed_once_with_its_version_and_its_promises() {
    let kinds = peers::all();
    let mut names: Vec<&str> = kinds.iter().map(|kind| kind.name).collect();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), kinds.len());
    for kind in kinds {
        assert!(kind.version.chars().any(|c| c.is_ascii_digit()), "{}: {}", kind.name, kind.version);
        assert!(!kind.isolation.is_empty() && !kind.none.is_empty());
    }
}

/// What a store with a planted bug does wrong, once in so many transactions.
#[derive(Clone, Copy, Debug)]
enum Bug {
    /// It reports transactions that write as committed, and forgets them.
    LosesUpdates,
    /// It runs transactions twice.
    RepeatsUpdates,
    /// Its index lacks an entry.
    LosesIndexEntry,
    /// It changes a byte of a row that nobody writes.
    Damages,
}

const ONCE_IN: u64 = 7;

/// A store with a planted bug.
struct Buggy {
    peer: Box<dyn Peer>,
    bug: Bug,
    updates: AtomicU64,
}

struct BuggyClient<'a> {
    client: &'a mut dyn Client,
    buggy: &'a Buggy,
}

impl BuggyClient<'_> {
    /// Runs a transaction that writes, and loses or repeats some. `lost` is the result of one that was lost.
    fn update<R>(
        &mut self,
        lost: R,
        run: impl Fn(&mut dyn Client) -> Result<R, PeerError>,
    ) -> Result<R, PeerError> {
        let is_due = self.buggy.updates.fetch_add(1, Ordering::Relaxed) % ONCE_IN == 3;
        match self.buggy.bug {
            Bug::LosesUpdates if is_due => Ok(lost),
            Bug::RepeatsUpdates if is_due => {
                run(self.client)?;
                run(self.client)
            }
            _ => run(self.client),
        }
    }
}

impl Client for BuggyClient<'_> {
    fn tatp(&mut self, request: &TatpRequest) -> Result<bool, PeerError> {
        match request {
            TatpRequest::InsertCallForwarding { .. } | TatpRequest::DeleteCallForwarding { .. } => {
                self.update(true, |client| client.tatp(request))
            }
            _ => self.client.tatp(request),
        }
    }

    fn tpcb(&mut self, request: &tpcb::parameters::Request, time_ns: u64) -> Result<i64, PeerError> {
        self.update(0, |client| client.tpcb(request, time_ns))
    }

    fn ycsb(&mut self, op: ycsb::parameters::Op, keys: ycsb::schema::Keys) -> Result<(), PeerError> {
        if op.kind == ycsb::mix::Kind::Update {
            return self.update((), |client| client.ycsb(op, keys));
        }
        self.client.ycsb(op, keys)
    }

    fn update(&mut self, row: u64) -> Result<(), PeerError> {
        BuggyClient::update(self, (), |client| client.update(row))
    }
}

impl Peer for Buggy {
    fn load(&self, records: &mut dyn Iterator<Item = Record>) -> Result<(), PeerError> {
        self.peer.load(records)
    }

    fn with_client(
        &self,
        body: &mut dyn FnMut(&mut dyn Client) -> Result<(), PeerError>,
    ) -> Result<(), PeerError> {
        self.peer.with_client(&mut |client| body(&mut BuggyClient { client, buggy: self }))
    }

    fn dump(&self, sink: &mut dyn FnMut(Record) -> Result<(), PeerError>) -> Result<(), PeerError> {
        let mut is_due = true;
        self.peer.dump(&mut |record| match (self.bug, record) {
            (Bug::LosesIndexEntry, record) if is_due && record.table() == Table::SubscriberByNumber => {
                is_due = false;
                Ok(())
            }
            (Bug::Damages, Record::Subscriber(s_id, mut row)) if s_id == 7 => {
                row.hex[4] ^= 1;
                sink(Record::Subscriber(s_id, row))
            }
            (_, record) => sink(record),
        })
    }
}

/// Runs a workload on a store with a planted bug, until the bug has had its chance, and returns what the audit says.
fn audit_of(kind: &PeerKind, name: WorkName, bug: Bug) -> String {
    let (work, directory) = (small(name), tempfile::tempdir().expect("a directory"));
    let peer = (kind.open)(directory.path(), Durability::None).expect("a store");
    peer.load(&mut work.population()).expect("an empty store takes the load");
    let peer = Buggy { peer, bug, updates: AtomicU64::new(0) };
    let mut side = Side::of_loaded(&work, Box::new(peer));
    for _ in 0..200 {
        side.measure(SideClients::Threads(2), &round()).expect("a planted bug is not noticed by its clients");
        if let Err(error) = side.audit() {
            return error.to_string();
        }
    }
    panic!("{}, {}: the audit does not find {bug:?}", kind.name, name.name());
}

#[test]
fn the_audit_finds_what_a_store_loses() {
    for kind in peers::all() {
        let audit = |name, bug| audit_of(&kind, name, bug);
        assert!(audit(WorkName::Tatp, Bug::LosesUpdates).contains("call_forwarding"));
        assert!(audit(WorkName::Tpcb, Bug::LosesUpdates).contains("history"));
        assert!(audit(WorkName::YcsbA, Bug::LosesUpdates).contains("number of writes"));
        assert!(audit(WorkName::Update, Bug::LosesUpdates).contains("counters"));
        assert!(audit(WorkName::Update, Bug::RepeatsUpdates).contains("counters"));
        assert!(audit(WorkName::Tatp, Bug::LosesIndexEntry).contains("index"));
        assert!(audit(WorkName::Tatp, Bug::Damages).contains("no transaction changes"));
    }
}

fn run(arguments: &[&str]) -> Output {
    let program = env!("CARGO_BIN_EXE_atrapos-compare");
    Command::new(program).args(arguments).output().expect("the program starts")
}

#[test]
fn the_command_prints_a_table_and_writes_json() {
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("out.json");
    let file = file.to_str().expect("a path of letters");
    let dir = directory.path().to_str().expect("a path of letters");
    let small = "--seconds 0.02 --rounds 1 --scale 0.001 --threads 2 --many-threads 3 --sessions 4 --json";
    let arguments: Vec<&str> = small.split(' ').chain([file, "--dir", dir]).collect();
    let output = run(&arguments);
    let (text, complaints) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{complaints}");
    let written = std::fs::read_to_string(file).expect("the file was written");
    let written: serde_json::Value = serde_json::from_str(&written).expect("it is JSON");
    let results = written["results"].as_array().expect("results");
    for kind in peers::all() {
        assert!(text.contains(&kind.version), "{text}");
        for name in WorkName::ALL {
            let is_of = |row: &&serde_json::Value| {
                row["store"] == kind.name
                    && row["workload"] == name.name()
                    && row["audited_rows"].as_u64() > Some(0)
            };
            let is_refused = kind.refusal(name, Durability::None).is_some()
                || (name == WorkName::Update && kind.refusal(name, Durability::Synchronous).is_some());
            assert_eq!(results.iter().any(|row| is_of(&row)), !is_refused, "{}, {}", kind.name, name.name());
        }
    }
    assert!(results.iter().any(|row| row["clients"]["sessions_per_worker"] == 4));
    let left = std::fs::read_dir(dir).expect("the directory").count();
    assert_eq!(left, 1, "the stores are removed, the results stay");
}

#[test]
fn bad_input_is_refused_with_one_sentence() {
    for (arguments, wanted) in [
        (&["--seconds", "0"][..], "--seconds 0 is not possible"),
        (&["--seconds", "NaN"], "--seconds NaN"),
        (&["--rounds", "0"], "--rounds 0"),
        (&["--threads", "0"], "--threads 0"),
        (&["--threads", "100000"], "use 1 to 512"),
        (&["--many-threads", "0"], "--many-threads 0"),
        (&["--sessions", "0"], "--sessions 0"),
        (&["--scale", "-1"], "--scale"),
        (&["--scale", "1e9"], "up to 100"),
        (&["--peer", "oracle"], "choose from map, sqlite"),
        (&["--workload", "tpcz"], "tpcb"),
        (&["--workload", "ycsb-c", "--durability", "synchronous"], "nothing is to be measured"),
        (&["--json", "/no/such/place/out.json"], "there is no directory /no/such/place"),
        (&["--json", "/tmp"], "is a directory"),
        (&["--dir", "/no/such/place"], "no directory can be made"),
    ] {
        let output = run(arguments);
        let complaints = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {complaints}");
        assert!(complaints.contains(wanted), "{arguments:?}: {complaints}");
        assert!(!complaints.contains("panicked"), "{complaints}");
        assert!(output.stdout.is_empty());
    }
}
