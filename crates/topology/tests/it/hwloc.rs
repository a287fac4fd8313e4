//! hwloc XML files, with the feature `hwloc`: files in `tests/fixtures` that hwloc's own `lstopo` has written.

use crate::fixture::{Fixture, check_invariants, islands};
use atrapos_topology::{CpuId, Level, LiveOptions, Machine, Origin, parse_spec};
use std::path::Path;

#[test]
fn a_file_of_lstopo_is_a_machine() {
    let path = format!("{}/tests/fixtures/two-packages.xml", env!("CARGO_MANIFEST_DIR"));
    let source = parse_spec(&path).unwrap_or_else(|error| panic!("{error}"));
    let machine = source.load(&LiveOptions::new(None)).unwrap_or_else(|error| panic!("{error}"));
    check_invariants(&machine);
    assert_eq!(machine.origin(), &Origin::HwlocXml(path.into()));
    assert_eq!(islands(&machine, Level::Socket), ["0-3,8-11", "4-7,12-15"]);
    assert_eq!(islands(&machine, Level::L3), ["0,1,8,9", "2,3,10,11", "4,5,12,13", "6,7,14,15"]);
    assert_eq!(machine.cores()[1].cpus, [CpuId(1), CpuId(9)]);
    assert_eq!(machine.memory_bytes(), Some(8 << 30));
    assert_eq!(machine.refused(), []);
}

#[test]
fn what_hwloc_refuses_is_one_sentence() {
    for text in ["", "not xml", "<topology></topology>", "<?xml version=\"1.0\"?><other/>", "a\0b"] {
        let error = Machine::from_hwloc_xml(text, Path::new("m.xml")).expect_err(text).to_string();
        assert!(error.starts_with("the hwloc file m.xml is not accepted: "), "{error}");
        assert!(!error.contains('\n'), "{error}");
    }
    assert!(parse_spec("/absent/machine.xml").expect_err("absent").to_string().contains("cannot read"));
    let fixture = Fixture::empty();
    fixture.write("cut.xml", "<?xml version=\"1.0\"?><topology version=\"2.0\"><object type=\"Machine\"");
    let path = fixture.root().join("cut.xml");
    let source = parse_spec(path.to_str().expect("a temporary path is text")).expect("readable");
    assert!(source.load(&LiveOptions::new(None)).is_err());
}

/// Our parser reads a synthetic description as hwloc does.
#[test]
fn our_synthetic_parser_agrees_with_hwloc() {
    for text in [
        "pack:8 [numa] l3:2 core:5 pu:1",
        "pack:2 numa:2(memory=2GiB) l3:2 core:2 pu:2",
        "numa:2(indexes=1,0) core:2 pu:2",
        "pack:2 numa:1 core:4 pu:1(indexes=4*2:1*4)",
        "pack:2 numa:1 core:4 pu:2(indexes=pack:core)",
        "pack:2 [numa(memory=1GB)] l2:4 core:2 pu:1",
        "node:2 pack:2 l3:2 core:2 pu:1",
        "2 3 4 2",
        "2 2 2 3 1",
        "[numa] core:4 pu:2",
        "so:2 no:2 l3u:1 co:2 pu:2",
    ] {
        let ours = Machine::synthetic(text).unwrap_or_else(|error| panic!("{error}"));
        let topology = hwlocality::Topology::builder()
            .from_synthetic(text)
            .unwrap_or_else(|error| panic!("{text}: {error}"))
            .build()
            .unwrap_or_else(|error| panic!("{text}: {error}"));
        let xml = topology.export_xml(hwlocality::topology::export::xml::XMLExportFlags::empty());
        let xml = xml.unwrap_or_else(|error| panic!("{text}: {error}"));
        let theirs = Machine::from_hwloc_xml(xml.as_ref(), Path::new("m.xml"));
        let theirs = theirs.unwrap_or_else(|error| panic!("{text}: {error}"));
        check_invariants(&theirs);
        for level in Level::ALL {
            assert_eq!(islands(&ours, level), islands(&theirs, level), "{text}");
        }
        let cores =
            |machine: &Machine| machine.cores().iter().map(|core| core.cpus.clone()).collect::<Vec<_>>();
        assert_eq!(cores(&ours), cores(&theirs), "{text}");
        let nodes = |machine: &Machine| machine.cpus().iter().map(|cpu| cpu.node).collect::<Vec<_>>();
        assert_eq!(nodes(&ours), nodes(&theirs), "{text}");
    }
}
