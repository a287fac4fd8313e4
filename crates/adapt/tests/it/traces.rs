//! Traces as text: what is read, what is written, what is refused.

use atrapos_adapt::{AdaptError, TRACE_FORMAT, WorkloadTrace};

const GOOD: &str = r#"{
    "format": "atrapos-trace 1", "seconds": 2.5, "workers": 2, "machine": "two cores",
    "tables": [
        {"name": "a", "partitions": [{"worker": 0, "cost_cycles": [5, 6]}, {"worker": 1, "cost_cycles": [7, 8, 9]}]},
        {"name": "b", "partitions": [{"worker": 1, "cost_cycles": [1]}]}
    ],
    "sync_points": [
        {"partners": [[0, 1, 2], [1, 0, 0]], "bytes": 100, "count": 4},
        {"partners": [[1, 0, 0], [0, 1, 2]], "bytes": 20, "count": 1},
        {"partners": [[0, 0, 0], [0, 0, 0]], "bytes": 20, "count": 1}
    ],
    "classes": [{
        "name": "c", "count": 5,
        "actions": [
            {"table": 0, "operation": "read", "repeat_min": 1, "repeat_max": 1},
            {"table": 1, "operation": "insert", "repeat_min": 0, "repeat_max": 4}
        ],
        "dependencies": [{"from": 0, "to": 1, "key": "id"}],
        "sync_points": [{"actions": [0, 1], "bytes": 24}]
    }]
}"#;

#[test]
fn a_trace_is_read_and_written() {
    let trace = WorkloadTrace::from_json(GOOD).expect("a trace");
    assert_eq!(trace.format, TRACE_FORMAT);
    assert_eq!(WorkloadTrace::from_json(&trace.to_json()).expect("its own text"), trace);
    let scheme = trace.scheme().expect("a scheme");
    assert_eq!(scheme.tables()[0].cuts(), [2]);
    assert_eq!(scheme.tables()[1].cuts(), [0_u32; 0]);
    let workload = trace.workload().expect("a workload");
    assert_eq!(workload.work_cycles(), 36.0);
    // The two points with the same partners are one; the one within a sub-partition costs nothing anywhere.
    let points = workload.sync_points();
    assert_eq!(points.len(), 1);
    assert_eq!(
        (points[0].partners.as_slice(), points[0].bytes, points[0].count),
        ([4, 5].as_slice(), 120.0, 5.0)
    );
    assert_eq!(workload.classes()[0].actions_per_table(2), [1.0, 2.0]);
}

#[test]
fn what_contradicts_itself_is_refused_in_one_sentence() {
    let cases = [
        ("not json", "{", "not a trace"),
        ("another format", &GOOD.replace("atrapos-trace 1", "atrapos-trace 2"), "'atrapos-trace 2'"),
        ("an unknown field", &GOOD.replace("\"machine\"", "\"mashine\""), "mashine"),
        ("a missing field", &GOOD.replace("\"seconds\": 2.5, ", ""), "seconds"),
        ("no time", &GOOD.replace("2.5", "0.0"), "0 seconds"),
        ("a worker too many", &GOOD.replace("\"workers\": 2", "\"workers\": 1"), "worker 1 of 1"),
        ("too many workers", &GOOD.replace("\"workers\": 2", "\"workers\": 99999999"), "99999999 workers"),
        ("two tables of a name", &GOOD.replace("\"name\": \"b\"", "\"name\": \"a\""), "table name 'a'"),
        (
            "no sub-partitions",
            &GOOD.replace("\"cost_cycles\": [1]", "\"cost_cycles\": []"),
            "partition 0 of table 'b'",
        ),
        ("a negative cost", &GOOD.replace("[5, 6]", "[-5, 6]"), "not a trace"),
        ("an unknown partner", &GOOD.replace("[0, 1, 2], [1", "[0, 1, 3], [1"), "[0, 1, 3]"),
        ("bytes without an exchange", &GOOD.replace("\"count\": 4", "\"count\": 0"), "never happened"),
        ("an action elsewhere", &GOOD.replace("{\"table\": 1,", "{\"table\": 2,"), "table 2 of 2"),
        (
            "a dependency backwards",
            &GOOD.replace("\"from\": 0, \"to\": 1", "\"from\": 1, \"to\": 0"),
            "1 to 0",
        ),
        ("an unknown action", &GOOD.replace("\"actions\": [0, 1]", "\"actions\": [0, 2]"), "action 2"),
        ("impossible repeats", &GOOD.replace("\"repeat_max\": 4", "\"repeat_max\": 0"), "from 0 to 0"),
        (
            "no tables",
            r#"{"format":"atrapos-trace 1","seconds":1,"workers":1,"tables":[],"sync_points":[],"classes":[]}"#,
            "no table",
        ),
    ];
    for (what, text, expected) in cases {
        let error: AdaptError = WorkloadTrace::from_json(text).expect_err(what);
        let sentence = error.to_string();
        assert!(sentence.contains(expected), "{what}: {sentence}");
        assert!(!sentence.contains('\n'), "{what}: {sentence}");
    }
}
