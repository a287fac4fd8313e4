//! New-Order and Payment on small tables, in every design, and audits that find what was planted.

use std::sync::atomic::AtomicBool;
use std::time::Duration;

use atrapos_structures::Kind;
use atrapos_topology::Machine;
use atrapos_workloads::tpcc::parameters::{CustomerBy, PaymentInput};

use super::statements::{Reply, Statement};
use super::tables::Session;
use super::{Loaded, TpccLoad, TpccRun, run_tpcc};
use crate::{Arrangement, Design, LoadError, Measurement, Threads};

fn machine() -> Machine {
    Machine::synthetic("core:8 pu:1").expect("a machine")
}

fn small(kind: Kind) -> TpccLoad {
    let length = Duration::from_millis(30);
    TpccLoad { warehouses: 4, items: 200, customers: 30, length, remote: 0.5, ..TpccLoad::new(kind) }
}

fn arrangement(design: Design, threads: Threads) -> Arrangement {
    Arrangement::new(&machine(), design, &Threads { pin: false, ..threads }).expect("possible")
}

fn run(load: &TpccLoad, arrangement: &Arrangement) -> TpccRun {
    let interrupt = AtomicBool::new(false);
    let mut measurement = Measurement { rounds: 2, interrupt: &interrupt, watch: &mut |_| {} };
    run_tpcc(&machine(), load, arrangement, &mut measurement).expect("it runs")
}

#[test]
fn every_design_places_orders_and_the_audit_finds_them() {
    let threads = |size| Threads { clients: Some(2), workers: Some(4), domain_size: size, pin: false };
    for (kind, design, size) in [
        (Kind::BTree, Design::Se, None),
        (Kind::HashMap, Design::SeNuma, None),
        (Kind::OwnedTree, Design::SnThread, None),
        (Kind::OwnedHashMap, Design::Configured, Some(1)),
        (Kind::FpTree, Design::Configured, Some(2)),
        (Kind::BwTree, Design::SnNuma, None),
    ] {
        let run = run(&small(kind), &arrangement(design, threads(size)));
        assert!(run.audit.as_ref().is_ok_and(|rows| *rows > 4 * 10 * 30 * 3), "{design}: {:?}", run.audit);
        assert_eq!(run.rounds.len(), 2);
        for round in &run.rounds {
            assert!(round.new_orders > 0 && round.payments > 0, "{design}: {round:?}");
        }
    }
}

/// Threads of several parts, with half of their transactions on the parts of others, lose nothing.
#[test]
fn parts_that_threads_use_directly_are_reached_by_all() {
    let threads = Threads { clients: Some(2), workers: Some(2), domain_size: None, pin: false };
    let arranged = |design| Arrangement::parts_directly(&machine(), design, &threads);
    for (kind, design, parts) in [(Kind::FpTree, Design::SnThread, 4), (Kind::BTree, Design::SnNuma, 1)] {
        let arrangement = arranged(design).expect("possible");
        assert_eq!((arrangement.domains().len(), arrangement.drivers()), (parts, 4));
        let run = run(&small(kind), &arrangement);
        assert!(run.audit.as_ref().is_ok_and(|rows| *rows > 4 * 10 * 30 * 3), "{design}: {:?}", run.audit);
        assert!(run.rounds.iter().all(|round| round.new_orders > 0 && round.payments > 0), "{run:?}");
    }
    assert!(matches!(arranged(Design::Se), Err(LoadError::NoParts(Design::Se))));
    let refused = arranged(Design::SnThread).expect("possible").check(Kind::OwnedTree);
    assert!(matches!(refused, Err(LoadError::Owned { workers: 4, .. })), "{refused:?}");
}

#[test]
fn bursts_and_groups_of_one_do_the_same() {
    let threads = Threads { clients: Some(1), workers: Some(2), ..Threads::default() };
    let load = TpccLoad { burst: 1, group: 1, ..small(Kind::OwnedHashMap) };
    let run = run(&load, &arrangement(Design::SnThread, threads));
    assert!(run.audit.is_ok() && run.rounds[1].new_orders > 0, "{run:?}");
}

#[test]
fn audits_find_a_statement_too_many() {
    let at = (2, 3);
    let payment = PaymentInput {
        w_id: 2,
        d_id: 3,
        c_w_id: 2,
        c_d_id: 3,
        customer: CustomerBy::Id(5),
        amount: 100,
        date: 1,
    };
    for (planted, finding) in [
        (Statement::PayWarehouse { w_id: 2, amount: 1 }, "warehouse 2: amount paid"),
        (Statement::PayDistrict { at, amount: 0 }, "district 2/3: next row of history"),
        (Statement::NumberOrder { at }, "district 2/3: next order"),
        (Statement::PayCustomer(payment), "all customers: amount paid"),
        (
            Statement::TakeStock { w_id: 2, i_id: 7, quantity: 1, d_id: 3, is_remote: false },
            "all stock: quantity",
        ),
    ] {
        let load = small(Kind::OwnedHashMap);
        let arrangement = arrangement(Design::SnThread, Threads { workers: Some(2), ..Threads::default() });
        let mut loaded = Loaded::new(&machine(), &load, &arrangement).expect("it starts");
        loaded.fill().expect("it loads");
        loaded.round(&AtomicBool::new(false)).expect("it runs");
        let part = super::part_of(planted.warehouse(), 2);
        let replies = loaded.on_sessions(|of, seat| {
            let planted = planted.clone();
            (of == part && seat.number == 0).then_some(move |tables: &mut Session| planted.run(tables))
        });
        assert!(!matches!(replies.expect("it runs")[..], [Reply::Wrong(_)]));
        let found = loaded.audit().expect("it ends").expect_err("it was planted");
        assert!(found.starts_with(finding), "{found}");
    }
}

#[test]
fn settings_that_cannot_be_are_refused() {
    let two = arrangement(Design::SnThread, Threads { workers: Some(2), ..Threads::default() });
    let load = small(Kind::BTree);
    assert!(load.check(&two, u64::MAX).is_ok());
    for (load, words) in [
        (TpccLoad { warehouses: 1, ..load.clone() }, "at least 2 warehouses"),
        (TpccLoad { remote: 1.5, ..load.clone() }, "use 0 to 1"),
        (TpccLoad { group: 0, ..load.clone() }, "use 1 to 1024"),
        (TpccLoad { burst: 65, ..load.clone() }, "use 1 to 64"),
        (TpccLoad { warehouses: 0, ..load.clone() }, "choose from 1"),
    ] {
        let refused = load.check(&two, u64::MAX).expect_err(words);
        assert!(refused.is_bad_input() && refused.to_string().contains(words), "{refused}");
    }
    assert!(matches!(load.check(&two, 1 << 20), Err(LoadError::Memory(_))));
    let shared = arrangement(Design::Se, Threads::default());
    assert!(matches!(small(Kind::OwnedTree).check(&shared, u64::MAX), Err(LoadError::Owned { .. })));
}
