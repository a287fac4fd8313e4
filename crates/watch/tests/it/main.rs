//! Databases that are watched, by the process that has them.

use std::fs::{self, Permissions};
use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::Arc;

use atrapos::{Database, Schema, Table, row};
use atrapos_watch::report::Latency;
use atrapos_watch::{Attached, Target, WatchError, Watched, WatchedOptions};

row! { #[derive(Clone, Debug)] struct Account { balance: i64 } }

struct Accounts;

impl Table for Accounts {
    type Key = u64;
    type Row = Account;
    const NAME: &'static str = "accounts";
}

fn schema() -> Schema {
    Schema::new().table::<Accounts>().split_evenly("accounts", 0, 100)
}

fn in_directory(directory: &Path) -> (Arc<Database>, Watched) {
    let database = Database::builder(schema()).workers(2).pin(false).open(directory).expect("it opens");
    let database = Arc::new(database);
    let options = WatchedOptions {
        program: "a test".into(),
        directory: Some(directory.to_owned()),
        latency: Some(Box::new(|| Some(Latency { p50_us: 5.0, p99_us: 9.0 }))),
    };
    let watched = Watched::start(&database, options).expect("a socket");
    (database, watched)
}

fn insert(database: &Database, key: u64) {
    let accounts = database.table::<Accounts>().expect("the table");
    let run = database
        .run(accounts.at(&key), async move |tx| tx.insert(accounts, key, Account { balance: 0 }).await);
    run.expect("it commits");
}

#[test]
fn a_database_is_watched_through_its_directory() {
    let directory = tempfile::tempdir().expect("a directory");
    let (database, watched) = in_directory(directory.path());
    assert_eq!(watched.path(), directory.path().join("watch.sock"));
    assert_eq!(fs::metadata(watched.path()).expect("a socket").permissions().mode() & 0o777, 0o600);
    let mut attached = Attached::to(&Target::Directory(directory.path().to_owned())).expect("it listens");
    for key in 0..20 {
        insert(&database, key);
    }
    let snapshot = attached.snapshot(0).expect("an answer");
    assert_eq!((snapshot.pid, &*snapshot.program), (std::process::id(), "a test"));
    assert_eq!(snapshot.activity.statistics.committed, 20);
    assert_eq!((snapshot.activity.workers.len(), snapshot.rates.busy.len()), (2, 2));
    let family = &snapshot.activity.families[0];
    assert_eq!((&*family.name, family.partitions.len()), ("accounts", 2));
    assert_eq!(family.partitions.iter().map(|part| part.rows[0]).sum::<u64>(), 20);
    assert_eq!(snapshot.latency, Some(Latency { p50_us: 5.0, p99_us: 9.0 }));
    assert!(snapshot.rates.seconds > 0.2 && snapshot.activity.durability.is_some());
    assert_eq!(
        snapshot.machine.island.as_ref().map(|island| island.level.to_string()),
        Some("machine".into())
    );
    // Others that ask at about the same time are told of the same look.
    let mut second = Attached::to(&Target::Directory(directory.path().to_owned())).expect("it listens");
    assert_eq!(second.snapshot(0).expect("an answer").activity, snapshot.activity);
}

#[test]
fn who_watches_is_told_of_the_end_and_nothing_is_left() {
    let directory = tempfile::tempdir().expect("a directory");
    let (database, watched) = in_directory(directory.path());
    let target = Target::Directory(directory.path().to_owned());
    let mut attached = Attached::to(&target).expect("it listens");
    attached.snapshot(0).expect("an answer");
    let socket = watched.path().to_owned();
    drop(watched);
    assert!(matches!(attached.snapshot(0), Err(WatchError::Ended)));
    assert!(!socket.exists());
    assert!(matches!(Attached::to(&target), Err(WatchError::NotOpen(_))));
    Arc::into_inner(database).expect("nobody else has it").close(std::time::Duration::from_secs(10));
    // A database that its owner drops while it is offered closes all the same.
    let (database, _watched) = in_directory(directory.path());
    let mut attached = Attached::to(&target).expect("it listens");
    attached.snapshot(0).expect("an answer");
    drop(database);
    assert!(matches!(attached.snapshot(0), Err(WatchError::Ended)));
}

#[test]
fn a_process_is_found_by_its_number() {
    let database = Database::builder(schema()).workers(1).pin(false).in_memory().expect("it opens");
    let database = Arc::new(database);
    let watched = Watched::start(&database, WatchedOptions::default()).expect("a socket");
    let name = watched.path().file_stem().and_then(|name| name.to_str()).expect("a name");
    let mut attached = Attached::to(&Target::parse(name.as_ref())).expect("it listens");
    let snapshot = attached.snapshot(0).expect("an answer");
    assert_eq!((snapshot.directory, snapshot.latency), (None, None));
    assert!(snapshot.activity.durability.is_none());
    // No process has a number beyond the greatest that Linux gives.
    let nobody = Target::Process { pid: 4_194_305, database: None };
    assert!(matches!(Attached::to(&nobody), Err(WatchError::NoProcess(4_194_305))));
}

#[test]
fn sockets_that_others_could_have_made_or_left_are_refused() {
    let directory = tempfile::tempdir().expect("a directory");
    let target = Target::Directory(directory.path().to_owned());
    let socket = directory.path().join("watch.sock");
    let refused = || Attached::to(&target).expect_err("it is refused").to_string();
    assert!(refused().contains("no process offers"), "{}", refused());
    let listener = UnixListener::bind(&socket).expect("a socket");
    fs::set_permissions(&socket, Permissions::from_mode(0o666)).expect("a mode");
    assert!(refused().contains("has mode 0666 and not 0600"), "{}", refused());
    fs::set_permissions(&socket, Permissions::from_mode(0o600)).expect("a mode");
    Attached::to(&target).expect("it is this user's now");
    drop(listener);
    assert!(refused().contains("has ended"), "{}", refused());
    fs::remove_file(&socket).expect("it goes");
    fs::write(&socket, "no socket").expect("a file");
    assert!(refused().contains("no process offers"), "{}", refused());
    let nowhere = Target::Directory(directory.path().join("nowhere"));
    assert!(matches!(Attached::to(&nowhere), Err(WatchError::NoDirectory(_))));
}

#[test]
fn an_answer_of_another_version_is_named_as_such() {
    let directory = tempfile::tempdir().expect("a directory");
    let socket = directory.path().join("watch.sock");
    let listener = UnixListener::bind(&socket).expect("a socket");
    fs::set_permissions(&socket, Permissions::from_mode(0o600)).expect("a mode");
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let (mut stream, _) = listener.accept().expect("a connection");
            stream.write_all(b"{\"version\":\"9\"}\n").expect("it is there");
            stream.read_to_end(&mut Vec::new()).expect("its request");
        });
        let mut attached = Attached::to(&Target::Directory(directory.path().to_owned())).expect("it listens");
        let error = attached.snapshot(0).expect_err("it is not understood").to_string();
        assert!(error.contains("of the same version"), "{error}");
    });
}

#[test]
fn nonsense_and_crowds_are_turned_away_and_others_are_served() {
    let directory = tempfile::tempdir().expect("a directory");
    let (_database, watched) = in_directory(directory.path());
    let ends = |mut stream: UnixStream| {
        // A connection that is closed with something unread is reset.
        let read = stream.read(&mut [0; 16]);
        read.map_or_else(|error| error.kind() == std::io::ErrorKind::ConnectionReset, |read| read == 0)
    };
    for nonsense in [&b"GET / HTTP/1.1\r\n\r\n"[..], &[b'x'; 4096]] {
        let mut stream = UnixStream::connect(watched.path()).expect("it listens");
        stream.write_all(nonsense).expect("it is there");
        assert!(ends(stream));
    }
    let crowd: Vec<UnixStream> =
        (0..8).map(|_| UnixStream::connect(watched.path()).expect("it listens")).collect();
    assert!(ends(UnixStream::connect(watched.path()).expect("it listens")), "the ninth");
    drop(crowd);
    // The places of those who have gone are free when they are asked for by the next but one at most.
    let target = Target::Directory(directory.path().to_owned());
    let served = (0..100).find_map(|_| Attached::to(&target).expect("it listens").snapshot(0).ok());
    assert!(served.is_some());
}
