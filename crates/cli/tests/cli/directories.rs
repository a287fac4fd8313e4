//! Databases in directories: benchmarks that keep them or not, `inspect` and `backup`.

use std::fs::OpenOptions;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use serde_json::Value;

use crate::support::{atrapos, interrupt, quick, refused, run, stderr, stdout};

fn text(path: &Path) -> &str {
    path.to_str().expect("text")
}

/// Runs a quick benchmark whose temporary files go to `temporary`, and returns its text and its JSON.
fn benchmark(temporary: &Path, benchmark: &str, more: &[&str]) -> (String, Value) {
    let results = tempfile::tempdir().expect("a directory");
    let path = results.path().join("result.json");
    let mut arguments = quick(benchmark, more);
    arguments.extend(["--json", text(&path)]);
    let output = atrapos(&arguments).env("TMPDIR", temporary).output().expect("the command starts");
    assert_eq!(output.status.code(), Some(0), "{arguments:?} said: {}", stderr(&output));
    let json = std::fs::read_to_string(&path).expect("the file");
    (stdout(&output), serde_json::from_str(&json).expect("one JSON object"))
}

fn is_empty(directory: &Path) -> bool {
    std::fs::read_dir(directory).expect("the directory").next().is_none()
}

/// A directory with a database that a benchmark left.
fn database() -> (tempfile::TempDir, PathBuf) {
    let parent = tempfile::tempdir().expect("a directory");
    let path = parent.path().join("database");
    benchmark(parent.path(), "tatp", &["--dir", text(&path)]);
    (parent, path)
}

#[test]
fn transactions_are_durable_unless_asked_otherwise_and_leave_nothing_behind() {
    let temporary = tempfile::tempdir().expect("a directory");
    let (shown, json) = benchmark(temporary.path(), "tatp", &["--runs", "2", "--checkpoint-during"]);
    assert_eq!(json["config"]["durability"], "synchronous");
    // How many depends on the device.
    assert!(json["config"]["sessions"].as_u64().is_some_and(|sessions| (256..=2048).contains(&sessions)));
    assert_eq!((&json["config"]["dir"], &json["config"]["max_loss_ms"]), (&Value::Null, &Value::Null));
    let wal = &json["wal"];
    for key in
        ["bytes", "syncs", "bytes_per_update", "transactions_per_sync", "updates_per_sync", "device_sync_us"]
    {
        assert!(wal[key].as_f64().is_some_and(|value| value > 0.0), "{key}: {wal}");
    }
    // A change of a row takes some bytes, and a record less than the rows it changes and a head.
    assert!(wal["bytes_per_update"].as_f64().is_some_and(|bytes| bytes > 8.0), "{wal}");
    let checkpoints = &json["checkpoints"];
    assert!(checkpoints["count"].as_u64().is_some_and(|count| count > 0), "{checkpoints}");
    assert!(checkpoints["rows"].as_u64().is_some_and(|rows| rows > 300), "{checkpoints}");
    for word in ["durability synchronous", "temporary directory", "wal ", "checkpoints "] {
        assert!(shown.contains(word), "no '{word}' in:\n{shown}");
    }
    assert!(is_empty(temporary.path()));

    let (shown, json) = benchmark(temporary.path(), "micro", &["--durability", "none", "--kind", "update"]);
    assert_eq!((&json["wal"], &json["checkpoints"]), (&Value::Null, &Value::Null));
    assert_eq!(json["config"]["sessions"], 64);
    assert!(shown.contains("in memory only"), "{shown}");

    let more = ["--durability", "relaxed", "--max-loss-ms", "7", "--sessions", "16", "--kind", "update"];
    let (_, json) = benchmark(temporary.path(), "micro", &more);
    assert_eq!(json["config"]["max_loss_ms"], 7);
    assert!(json["wal"]["updates"].as_u64().is_some_and(|updates| updates > 0), "{}", json["wal"]);
    let (_, json) =
        benchmark(temporary.path(), "micro", &["--clients", "3", "--kind", "update", "--rows", "1"]);
    assert_eq!(json["wal"]["updates"], json["classes"]["update-local"]["committed"]);
    assert!(is_empty(temporary.path()));
}

#[test]
fn a_database_that_was_asked_for_stays_and_can_be_inspected() {
    let (_parent, path) = database();
    let output = run(&["inspect", text(&path)]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    for word in ["subscriber_by_sub_nbr", "unique index", "closed in order", "all checksums are right"] {
        assert!(stdout(&output).contains(word), "no '{word}' in:\n{}", stdout(&output));
    }
    let json: Value = serde_json::from_str(&stdout(&run(&["inspect", text(&path), "--json"]))).expect("JSON");
    assert_eq!((&json["sound"], &json["closed_in_order"]), (&Value::Bool(true), &Value::Bool(true)));
    let tables = json["tables"].as_array().expect("a list");
    let rows =
        |name: &str| tables.iter().find(|table| table["name"] == name).map(|table| &table["checkpoint_rows"]);
    assert_eq!(rows("subscriber"), Some(&Value::from(300)));
    let records: u64 = json["streams"]
        .as_array()
        .expect("a list")
        .iter()
        .filter_map(|stream| stream["records"].as_u64())
        .sum();
    assert!(records > 0, "the benchmark has committed something");

    // A second benchmark does not go over the first one's database.
    let before = stdout(&run(&["inspect", text(&path), "--json"]));
    let complaint = refused(&["bench", "tatp", "--dir", text(&path)]);
    assert!(complaint.contains("holds a database already"), "{complaint}");
    assert_eq!(stdout(&run(&["inspect", text(&path), "--json"])), before);
}

#[test]
#[expect(clippy::disallowed_methods, reason = "the file is an input, not a result")]
fn costs_that_a_database_has_learnt_are_shown_beside_the_given_ones() {
    let (_parent, path) = database();
    let of = |name: &str| {
        let json: Value =
            serde_json::from_str(&stdout(&run(&["inspect", text(&path), "--json"]))).expect("JSON");
        json["sync_costs"][name].clone()
    };
    assert_eq!(of("factor"), Value::Null, "it has learnt nothing");
    let costs = "atrapos-refined-costs 1\nmachine a machine, 2 cores\ncycles_per_byte 1.25\nmessage_bytes 384\nexchange_cycles 800\nfactor 1.5\nchecksum 3ae3a12d\n";
    std::fs::write(path.join("COSTS"), costs).expect("written");
    let shown = stdout(&run(&["inspect", text(&path)]));
    let words = "1.25 cycles per byte and 800 per exchange were given; 1.88 and 1200 were learnt from changes (times 1.50), on a machine, 2 cores";
    assert!(shown.contains(words), "{shown}");
    assert_eq!(of("factor"), Value::from(1.5));
    std::fs::write(path.join("COSTS"), costs.replace("800", "801")).expect("written");
    let output = run(&["inspect", text(&path)]);
    assert!(stdout(&output).contains("COSTS is not used, as it is damaged"), "{}", stdout(&output));
    assert_eq!(output.status.code(), Some(0), "the database is sound all the same");
    assert!(of("problem").to_string().contains("damaged"));
}

#[test]
#[expect(clippy::disallowed_methods, reason = "the file is an input, not a result")]
fn the_scheme_that_a_database_has_adapted_itself_to_is_shown() {
    let (_parent, path) = database();
    let shown = || stdout(&run(&["inspect", text(&path)]));
    let body = "atrapos-scheme 1\nworkers 2\nfamily subscriber\ntables 0\npartition worker 1 \npartition worker 0 0000000000000007\npartition instance 3 61\n";
    let written = |checksum: u32| {
        std::fs::write(path.join("SCHEME"), format!("{body}checksum {checksum:08x}\n")).expect("written");
    };
    let checksum = 0xa9b52f60;
    written(checksum);
    let line = "subscriber: worker 1 | 0x0000000000000007 | worker 0 | 0x61 | instance 3";
    assert!(shown().contains(line), "{}", shown());
    let json = || -> Value {
        serde_json::from_str(&stdout(&run(&["inspect", text(&path), "--json"]))).expect("JSON")
    };
    assert_eq!(json()["scheme"]["workers"], 2);
    assert_eq!(json()["scheme"]["families"][0]["partitions"][2]["instance"], 3);
    written(checksum ^ 1);
    assert!(shown().contains("SCHEME is not used, as it is damaged"), "{}", shown());
    assert!(json()["scheme"]["problem"].to_string().contains("damaged"));
}

/// All files below a directory.
fn files_in(directory: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(directory).expect("the directory") {
        let path = entry.expect("an entry").path();
        if path.is_dir() { files.extend(files_in(&path)) } else { files.push(path) }
    }
    files
}

#[test]
fn damage_is_found_wherever_it_is() {
    let (_parent, path) = database();
    let mut damaged = 0;
    for file in files_in(&path) {
        // What has been learnt, if anything was, is no part of the data.
        if ["LOCK", "COSTS", "SCHEME"].iter().any(|name| file.ends_with(name)) {
            continue;
        }
        let open = OpenOptions::new().read(true).write(true).open(&file).expect("the file");
        // Beyond the headers, and in the written part of a segment.
        let at = 100.min(open.metadata().expect("its length").len() - 1);
        let mut byte = [0];
        open.read_exact_at(&mut byte, at).expect("a byte");
        open.write_all_at(&[byte[0] ^ 4], at).expect("a damaged byte");
        for command in [&["inspect", text(&path)][..], &["inspect", text(&path), "--json"]] {
            let output = run(command);
            let complaint = stderr(&output);
            assert_eq!(output.status.code(), Some(1), "{}: {complaint}", file.display());
            let name = file.file_name().and_then(|name| name.to_str()).expect("a name");
            assert!(complaint.contains(name), "{}: {complaint}", file.display());
            assert_eq!(complaint.lines().count(), 1, "{complaint}");
        }
        let copy = path.with_file_name(format!("copy-{damaged}"));
        let output = run(&["backup", text(&path), text(&copy)]);
        assert_eq!(output.status.code(), Some(1), "{}: {}", file.display(), stderr(&output));
        open.write_all_at(&byte, at).expect("the byte repaired");
        damaged += 1;
    }
    assert!(damaged >= 3, "a manifest, parts of a checkpoint, and a segment");
    assert_eq!(run(&["inspect", text(&path)]).status.code(), Some(0), "repaired, it is as it was");
}

#[test]
fn what_is_no_database_is_refused() {
    let directory = tempfile::tempdir().expect("a directory");
    let missing = directory.path().join("missing");
    let target = directory.path().join("target");
    let file = directory.path().join("file");
    drop(OpenOptions::new().create_new(true).write(true).open(&file).expect("a file"));
    for path in [&missing, directory.path(), file.as_path()].map(|path: &Path| path) {
        refused(&["inspect", text(path)]);
        refused(&["backup", text(path), text(&target)]);
        assert!(!target.exists(), "nothing is made where there is nothing to copy");
    }
    let nowhere = missing.join("deeper");
    for (arguments, what) in [
        (&["bench", "tatp", "--dir", text(directory.path())][..], "not empty"),
        (&["bench", "tatp", "--dir", text(&file)], "file"),
        (&["bench", "tatp", "--dir", text(&nowhere)], "deeper"),
        (&["bench", "tatp", "--durability", "none", "--dir", text(&target)], "--dir is of no use"),
        (
            &["bench", "tatp", "--durability", "none", "--checkpoint-during"],
            "--checkpoint-during is of no use",
        ),
        (&["bench", "tatp", "--max-loss-ms", "5"], "--durability relaxed"),
        (&["bench", "tatp", "--durability", "relaxed", "--max-loss-ms", "0"], "--max-loss-ms 0"),
    ] {
        let complaint = refused(arguments);
        assert!(complaint.contains(what), "{arguments:?} said: {complaint}");
    }
    assert!(!target.exists());
}

/// A benchmark that goes on until it is told to stop.
fn endless(temporary: &Path, more: &[&str]) -> Child {
    Command::new(assert_cmd::cargo::cargo_bin("atrapos"))
        .args(["bench", "tatp", "--no-pin", "--workers", "2", "--subscribers", "300", "--sessions", "16"])
        .args(["--warmup", "0", "--seconds", "100000"])
        .args(more)
        .env("TMPDIR", temporary)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the command starts")
}

const A_MOMENT: Duration = Duration::from_millis(20);

#[test]
fn a_running_database_is_backed_up_by_another_process() {
    let parent = tempfile::tempdir().expect("a directory");
    let path = parent.path().join("database");
    let child = endless(parent.path(), &["--dir", text(&path)]);
    // It is loaded when there is a checkpoint.
    let loaded = || {
        let output = run(&["inspect", text(&path), "--json"]);
        let json: Value = serde_json::from_str(&stdout(&output)).unwrap_or_default();
        json["checkpoint"].is_object()
    };
    while !loaded() {
        std::thread::sleep(A_MOMENT);
    }
    for copy in ["one", "another"].map(|name| parent.path().join(name)) {
        let output = run(&["backup", text(&path), text(&copy)]);
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        let output = run(&["inspect", text(&copy)]);
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        let complaint = refused(&["backup", text(&path), text(&copy)]);
        assert!(complaint.contains(text(&copy)), "a backup does not go over another: {complaint}");
    }
    interrupt(&child);
    let output = child.wait_with_output().expect("it ends");
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert_eq!(run(&["inspect", text(&path)]).status.code(), Some(0));
}

#[test]
fn an_interrupted_benchmark_takes_its_temporary_directory_with_it() {
    for interrupts in [1, 2] {
        let temporary = tempfile::tempdir().expect("a directory");
        let mut child = endless(temporary.path(), &[]);
        while is_empty(temporary.path()) {
            std::thread::sleep(A_MOMENT);
        }
        for _ in 0..interrupts {
            interrupt(&child);
        }
        // Drained, so that it can say as much as it wants.
        let mut said = String::new();
        if let Some(stderr) = &mut child.stderr {
            std::io::Read::read_to_string(stderr, &mut said).expect("text");
        }
        let output = child.wait_with_output().expect("it ends");
        assert!(matches!(output.status.code(), Some(0 | 130)), "{:?}: {said}", output.status);
        assert!(is_empty(temporary.path()), "something is left after {interrupts} interrupts: {said}");
    }
}

#[test]
fn what_was_created_and_dropped_at_run_time_is_shown() {
    let parent = tempfile::tempdir().expect("a directory");
    let path = parent.path().join("db");
    let table = |name: &str| atrapos::catalog::TableDef {
        name: name.to_owned(),
        columns: vec![
            atrapos::catalog::ColumnDef::new("id", atrapos::ColumnType::Unsigned(8)),
            atrapos::catalog::ColumnDef::new("age", atrapos::ColumnType::Unsigned(4)),
        ],
        key: atrapos::catalog::PrimaryKey::Columns(vec![atrapos::catalog::KeyColumn::ascending(0)]),
        family: name.to_owned(),
        read_only: false,
        splits: Vec::new(),
    };
    let index = atrapos::catalog::IndexDef {
        name: "by_age".to_owned(),
        of: 0,
        parts: vec![atrapos::catalog::IndexPart::Column(atrapos::catalog::KeyColumn::ascending(1))],
        unique: true,
        family: "by_age".to_owned(),
        splits: Vec::new(),
    };
    let db = atrapos::Database::builder(atrapos::Schema::new()).workers(1).pin(false).open(&path);
    let db = db.expect("a new database");
    db.create_table(table("gone")).expect("a table");
    db.create_table(table("people")).expect("a table");
    db.create_index("people", index).expect("an index");
    db.drop_table("gone").expect("it is there");
    drop(db);
    let output = stdout(&run(&["inspect", text(&path)]));
    let definitions: Vec<&str> = output.lines().filter(|line| line.contains(": ")).collect();
    for expected in [
        "0: dropped",
        "1: table people (id u64, age u32), key (id)",
        "2: unique index by_age of people on (age)",
    ] {
        assert!(definitions.contains(&expected), "{output}");
    }
    assert!(output.contains("number 0"), "{output}");
    let json: Value = serde_json::from_str(&stdout(&run(&["inspect", text(&path), "--json"]))).expect("JSON");
    assert_eq!(json["definitions"][0], "0: dropped");
    assert_eq!(json["tables"][0]["kind"], "dropped");
}
