//! Forms in which a user may choose a machine.

use crate::fixture::{Fixture, one_node};
use atrapos_topology::{LiveOptions, TopologyError, TopologySource, parse_spec};

fn error(text: &str) -> String {
    let error = parse_spec(text).expect_err(text).to_string();
    assert!(!error.contains('\n'), "one sentence: {error}");
    error
}

#[test]
fn nothing_and_live_are_the_live_machine() {
    for text in ["", "  ", "live", "LIVE"] {
        assert_eq!(parse_spec(text), Ok(TopologySource::Live));
    }
    let fixture = one_node(4);
    let live = LiveOptions { root: fixture.root().to_path_buf(), affinity: None };
    let machine = TopologySource::default().load(&live).expect("the live machine is always there");
    assert_eq!(machine.cpus().len(), 4);
}

#[test]
fn descriptions_are_checked_at_once() {
    let source = parse_spec(" pack:2 core:4 pu:1 ").expect("valid");
    assert_eq!(source, TopologySource::Synthetic("pack:2 core:4 pu:1".to_owned()));
    assert_eq!(source.to_string(), "pack:2 core:4 pu:1");
    let machine = source.load(&LiveOptions::new(None)).expect("checked already");
    assert!(!machine.is_live());
    assert!(error("pack:2 core:4").contains("the last level must be pu"));
    assert!(error("lvie").contains("no level is called `lvie`"));
}

#[test]
fn files_must_be_readable_and_of_a_known_format() {
    let fixture = Fixture::empty();
    fixture
        .write("box.toml", "synthetic = \"pack:2 core:4 pu:1\"")
        .write("bad.toml", "synthetic = 3")
        .write("box.json", "{}");
    let path = |name: &str| fixture.root().join(name).to_str().expect("a temporary path is text").to_owned();
    let live = LiveOptions::new(None);
    let source = parse_spec(&path("box.toml")).expect("readable");
    assert_eq!(source.load(&live).expect("valid").cpus().len(), 8);
    let bad = parse_spec(&path("bad.toml")).expect("readable").load(&live).expect_err("not valid");
    assert!(bad.to_string().contains("bad.toml is not accepted: line 1: "), "{bad}");
    assert!(error(&path("absent.toml")).contains("cannot read the topology file"));
    assert!(error(&path("box.json")).contains("must end in .toml (machine file) or .xml (hwloc)"));
    std::fs::create_dir(fixture.root().join("directory.toml")).expect("a directory");
    assert!(error(&path("directory.toml")).contains("no regular file"));
    // Taken away between choosing and loading.
    std::fs::remove_file(fixture.root().join("box.toml")).expect("it was there");
    assert!(matches!(source.load(&live), Err(TopologyError::Unreadable { .. })));
    // A machine file that is no text.
    std::fs::write(fixture.root().join("binary.toml"), [0xFF, 0xFE, 0x00]).expect("a file");
    let binary = parse_spec(&path("binary.toml")).expect("readable").load(&live).expect_err("no text");
    assert!(binary.to_string().contains("cannot read the topology file"), "{binary}");
}

#[cfg(not(feature = "hwloc"))]
#[test]
fn an_hwloc_file_says_how_to_enable_it() {
    let said = error("/some/machine.xml");
    assert!(said.contains("/some/machine.xml") && said.contains("--features hwloc"), "{said}");
    let source = TopologySource::HwlocXml("machine.xml".into());
    assert!(matches!(source.load(&LiveOptions::new(None)), Err(TopologyError::HwlocDisabled { .. })));
}
