//! Refusals of what makes no sense: one clear sentence, exit status 2, and nothing lost.

use crate::support::{bad_topologies, quick, refused, run, stderr};

#[test]
fn an_unknown_mix_is_refused_with_those_there_are() {
    let complaint = refused(&["bench", "tatp", "--mix", "fast"]);
    for name in ["'fast'", "standard", "get-subscriber-data", "delete-call-forwarding"] {
        assert!(complaint.contains(name), "{complaint}");
    }
    let complaint = refused(&["bench", "tpcc", "--mix", "get-subscriber-data"]);
    assert!(complaint.contains("standard") && complaint.contains("stock-level"), "{complaint}");
    let complaint = refused(&["bench", "ycsb", "--mix", "g"]);
    assert!(complaint.contains("'g'") && complaint.contains("a, b, c, d, e, f"), "{complaint}");
}

#[test]
fn options_that_an_engine_with_shared_data_does_not_have_are_refused() {
    for option in [
        &["--sessions", "3"][..],
        &["--reserve", "3"],
        &["--wal-reserve", "3"],
        &["--checkpoint-during"],
        &["--record", "trace.json"],
        &["--transaction-list", "central"],
        &["--transaction-numbers", "island"],
        &["--state-locks", "worker"],
        &["--log-buffer", "central"],
        &["--partitioning", "naive"],
    ] {
        let shared = ["bench", "tatp", "--engine", "shared-occ"];
        let complaint = refused(&[&shared, option].concat());
        assert!(complaint.contains(option[0]) && complaint.contains("--engine atrapos"), "{complaint}");
    }
    for engine in ["atrapos", "shared-occ"] {
        let complaint = refused(&["bench", "tatp", "--engine", engine, "--locks", "off"]);
        assert!(
            complaint.contains("--locks off") && complaint.contains("--engine shared-2pl"),
            "{complaint}"
        );
    }
    let complaint = refused(&["bench", "tatp", "--clients", "2", "--pipeline", "4"]);
    assert!(complaint.contains("--pipeline") && complaint.contains("--engine shared-occ"), "{complaint}");
    let complaint =
        refused(&["bench", "tatp", "--engine", "shared-2pl", "--durability", "none", "--dir", "somewhere"]);
    assert!(complaint.contains("--dir") && complaint.contains("--durability"), "{complaint}");
    for command in
        [&["bench", "tpcc", "--engine", "shared-2pl"][..], &["bench", "tpcc", "--engine", "domains"]]
    {
        let complaint = refused(&[command, &["--durability", "none", "--apart"]].concat());
        assert!(complaint.contains("--apart") && complaint.contains(command[3]), "{complaint}");
    }
    let complaint = refused(&["deploy", "tatp", "--engine", "shared-occ", "--oversubscribe", "--apart"]);
    assert!(complaint.contains("--apart") && complaint.contains("shared-occ"), "{complaint}");
    let complaint =
        refused(&["bench", "tatp", "--workers", "2", "--instances", "2", "--durability", "none", "--apart"]);
    assert!(complaint.contains("--apart") && complaint.contains("--instances"), "{complaint}");
}

#[test]
fn a_log_buffer_of_what_is_not_logged_is_refused() {
    let complaint = refused(&["bench", "tatp", "--log-buffer", "central", "--durability", "none"]);
    assert!(complaint.contains("--log-buffer") && complaint.contains("another --durability"), "{complaint}");
}

#[test]
fn instances_that_cannot_be_are_refused() {
    let bench = ["bench", "tatp", "--workers", "2", "--instances"];
    for (more, what) in [
        (&["0", "--durability", "none"][..], "0 instances"),
        (&["3", "--durability", "none"], "more --workers"),
        (&["2", "--durability", "none", "--engine", "plp"], "--engine atrapos"),
        (&["2", "--durability", "none", "--topology", "pack:1 core:2 pu:1"], "--topology"),
        (&["2", "--durability", "none", "--static"], "--static"),
        (&["2", "--durability", "none", "--interval", "1"], "--interval"),
        (&["2", "--durability", "none", "--threshold", "0.1"], "--threshold"),
        (&["2", "--durability", "none", "--sub-partitions", "10"], "--sub-partitions"),
        (&["2", "--durability", "none", "--sample-every", "64"], "--sample-every"),
    ] {
        let complaint = refused(&[&bench, more].concat());
        assert!(complaint.contains(what), "{more:?}: {complaint}");
    }
}

#[test]
fn numbers_of_nothing_are_refused() {
    for (arguments, what) in [
        (&["bench", "tatp", "--workers", "0"][..], "--workers 0"),
        (&["bench", "tatp", "--subscribers", "0"], "0 subscribers"),
        (&["bench", "tatp", "--runs", "0"], "--runs 0"),
        (&["bench", "tatp", "--clients", "0"], "--clients 0"),
        (&["bench", "tatp", "--sessions", "0"], "--sessions 0"),
        (&["bench", "tatp", "--seconds", "0"], "--seconds 0"),
        (&["bench", "tatp", "--seconds", "nan"], "--seconds NaN"),
        (&["bench", "tatp", "--warmup", "inf"], "--warmup inf"),
        (&["bench", "tpcc", "--warehouses", "0"], "0 warehouses"),
        (&["bench", "tpcc", "--items", "0"], "0 items"),
        (&["bench", "tpcc", "--customers", "0"], "0 customers"),
        (&["bench", "tpcc", "--remote", "2"], "share 2 of remote payments"),
        (&["bench", "tpcc", "--remote-lines", "nan"], "share NaN of remote order lines"),
        (&["bench", "micro", "--rows", "0"], "0 different rows"),
        (&["bench", "micro", "--rows-per-site", "0"], "0 rows"),
        (&["bench", "micro", "--rows", "11", "--rows-per-site", "10"], "11 different rows"),
        (&["bench", "micro", "--multisite", "2"], "probability 2"),
        (&["bench", "micro", "--zipf", "nan"], "exponent NaN"),
        (&["bench", "tpcb", "--branches", "0"], "0 branches"),
        (&["bench", "tpcb", "--accounts-per-branch", "0"], "without accounts"),
        (&["bench", "tpcb", "--remote", "1.5"], "share 1.5"),
        (&["bench", "ycsb", "--rows", "0"], "0 rows"),
        (&["bench", "ycsb", "--ops-per-txn", "0"], "0 operations"),
        (&["bench", "ycsb", "--ops-per-txn", "6", "--rows", "5"], "6 operations"),
        (&["bench", "ycsb", "--theta", "nan"], "exponent NaN"),
        (&["bench", "ycsb", "--updates", "2"], "share 2"),
        (&["bench", "smallbank", "--customers", "1"], "1 customers"),
        (&["bench", "smallbank", "--theta", "nan"], "exponent NaN"),
        (&["bench", "smallbank", "--hotspot", "0"], "0 customers"),
        (&["bench", "smallbank", "--hotspot", "5", "--hotspot-share", "3"], "share 3"),
        (&["bench", "smallbank", "--mix", "rob"], "'rob'"),
        (&["bench", "raw", "--rows", "0"], "0 rows"),
        (&["bench", "raw", "--runs", "0"], "zero runs"),
    ] {
        let complaint = refused(arguments);
        assert!(complaint.contains(what), "{arguments:?} said: {complaint}");
    }
}

#[test]
fn more_than_there_can_be_is_refused() {
    let complaint = refused(&["bench", "tatp", "--workers", "5000"]);
    assert!(complaint.contains("5000 workers"), "{complaint}");
    let complaint = refused(&["bench", "tatp", "--sessions", "1000000000"]);
    assert!(complaint.contains("1000000000 clients"), "{complaint}");
    let complaint = refused(&["bench", "tatp", "--sessions", "8193"]);
    assert!(complaint.contains("at most 8192"), "{complaint}");
    let complaint = refused(&["bench", "tatp", "--clients", "65537"]);
    assert!(complaint.contains("65537 clients"), "{complaint}");
    let complaint = refused(&["bench", "tatp", "--subscribers", "18446744073709551615"]);
    assert!(complaint.contains("15 digits"), "{complaint}");
}

#[test]
fn more_than_memory_holds_is_refused_with_what_it_holds() {
    for (arguments, unit) in [
        (&["bench", "tatp", "--subscribers", "900000000000"][..], "subscribers"),
        (&["bench", "tpcc", "--warehouses", "32767"], "warehouses"),
        (&["bench", "micro", "--rows-per-site", "900000000000"], "rows"),
        (&["bench", "tpcb", "--branches", "2000000000"], "branches"),
        (&["bench", "ycsb", "--rows", "2000000000"], "rows"),
        (&["bench", "smallbank", "--customers", "900000000000"], "customers"),
        (&["bench", "raw", "--rows", "4294967295"], "rows"),
    ] {
        let complaint = refused(arguments);
        let (_, fit) = complaint.split_once("at most ").expect("it says how much fits");
        let fit: u64 = fit.split(' ').next().expect("a number").parse().expect("a number");
        assert!(complaint.contains(unit) && fit > 0, "{complaint}");
    }
}

#[test]
fn a_topology_that_is_none_is_refused() {
    let directory = tempfile::tempdir().expect("a directory");
    for topology in &bad_topologies(directory.path()) {
        for arguments in
            [&["bench", "tatp", "--topology", topology][..], &["bench", "raw", "--topology", topology]]
        {
            refused(arguments);
        }
    }
}

#[test]
fn a_json_path_that_cannot_be_written_is_refused_before_the_run() {
    let directory = tempfile::tempdir().expect("a directory");
    let somewhere = directory.path().join("no/such/directory/result.json");
    for path in [somewhere.to_str().expect("text"), directory.path().to_str().expect("text")] {
        for benchmark in ["tatp", "tpcc", "micro", "raw"] {
            // So long a run that the test would notice if it was made.
            let complaint = refused(&["bench", benchmark, "--seconds", "100000", "--json", path]);
            assert!(complaint.contains("cannot be written") && complaint.contains(path), "{complaint}");
        }
    }
}

#[test]
fn a_refused_run_leaves_an_old_result_as_it_was() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("result.json");
    std::fs::copy(concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml"), &path).expect("an old file");
    let before = std::fs::read(&path).expect("the old file");
    let path_text = path.to_str().expect("text");
    refused(&["bench", "tatp", "--subscribers", "900000000000", "--json", path_text]);
    assert_eq!(std::fs::read(&path).expect("the old file"), before);
    assert_eq!(
        std::fs::read_dir(directory.path()).expect("the directory").count(),
        1,
        "nothing is left behind"
    );
}

#[test]
fn what_cannot_be_parsed_exits_with_2_too() {
    for arguments in [
        &[][..],
        &["bench"],
        &["bench", "fast"],
        &["bench", "tatp", "--workers", "many"],
        &["bench", "tatp", "--workers", "-1"],
        &["bench", "tatp", "--routing", "both"],
        &["bench", "tatp", "--clients", "2", "--sessions", "2"],
        &["bench", "micro", "--kind", "delete"],
        &["bench", "tpcc", "--remote", "0.5", "--remote-lines", "0"],
        &["bench", "tpcc", "--remote", "0", "--remote-payment", "0.1"],
        &["bench", "tpcc", "--delivery", "tomorrow"],
        &["bench", "tatp", "--durability", "perhaps"],
        &["bench", "ycsb", "--updates", "0.5", "--mix", "b"],
        &["bench", "ycsb", "--record-shape", "9"],
        &["bench", "ycsb", "--distribution", "normal"],
        &["bench", "smallbank", "--hotspot", "5", "--theta", "1"],
        &["bench", "smallbank", "--hotspot-share", "0.5"],
        &["inspect"],
        &["backup", "somewhere"],
        &["--no-such-option"],
    ] {
        let output = run(arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        assert!(!stderr(&output).contains("panicked") && !stderr(&output).is_empty(), "{arguments:?}");
    }
    let quick = quick("tatp", &["--keys", "hot"]);
    assert_eq!(run(&quick).status.code(), Some(2));
}
