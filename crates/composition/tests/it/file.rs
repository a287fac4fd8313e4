//! Files of structures.

use atrapos_composition::{
    CalibrationSettings, CompositionError, Curve, Curves, Demand, Point, StructureIndex, Structures,
};

const FILE: &str = r#"
[[structure]]
name = "orders"
kind = "b-tree"
mix = "ycsb-a"
load = 40
with = "lines"

[[structure]]
name = "lines"
kind = "b-tree"
mix = "ycsb-a"
size = 3

[[structure]]
name = "items"
kind = "hash-map"
mix = "ycsb-c"
load = 0.5
isolated = true

[[size]]
kind = "b-tree"
mix = "ycsb-a"
workers = 24
"#;

fn demand(text: &str, curves: Option<&Curves>) -> Result<Demand, CompositionError> {
    Structures::from_toml(text)?.demand(curves, &CalibrationSettings::default())
}

fn curves() -> Curves {
    let point = |workers, throughput| Point { workers, throughputs_per_second: vec![throughput] };
    let curve = |kind: &str, mix: &str, best| Curve {
        kind: kind.to_owned(),
        mix: mix.to_owned(),
        points: vec![point(best, 2.0), point(best + 1, 1.0)],
    };
    let curves = vec![curve("hash-map", "ycsb-c", 2), curve("b-tree", "ycsb-a", 7)];
    Curves::new(None, curves).expect("curves")
}

#[test]
fn sizes_are_of_the_structure_or_its_kind_or_its_curve() {
    let demand = demand(FILE, Some(&curves())).expect("a demand");
    let sizes: Vec<u32> = demand.structures.iter().map(|structure| structure.workers_max).collect();
    assert_eq!(sizes, [24, 3, 2]);
    let loads: Vec<f64> = demand.structures.iter().map(|structure| structure.load).collect();
    assert_eq!(loads, [40.0, 1.0, 0.5]);
    assert_eq!(demand.together, [[StructureIndex(0), StructureIndex(1)]]);
    assert!(demand.structures[2].isolated && !demand.structures[0].isolated);
}

#[test]
fn what_is_missing_or_misspelt_is_named_in_one_line() {
    let refused = |text: &str, words: &[&str]| {
        let known = Some(curves()).filter(|_| text != FILE);
        let sentence = demand(text, known.as_ref()).expect_err("refused").to_string();
        assert!(words.iter().all(|word| sentence.contains(word)), "{sentence}");
        assert_eq!(sentence.lines().count(), 1, "{sentence}");
    };
    refused(FILE, &["'items' has no size", "'hash-map'", "'ycsb-c'", "[[size]]"]);
    refused(&FILE.replace("\"lines\"\n\n", "\"line\"\n\n"), &["'orders'", "'line'", "not there"]);
    refused(&FILE.replace("isolated", "isolatd"), &["isolatd", "line 20"]);
    refused("[[structure]]\nname = \"a\"\nmix = \"ycsb-a\"", &["kind"]);
    refused("", &["no structure"]);
    let twice = format!("{FILE}\n[[size]]\nkind = \"b-tree\"\nmix = \"ycsb-a\"\nworkers = 2");
    refused(&twice, &["two sizes", "'b-tree'", "'ycsb-a'"]);
}
