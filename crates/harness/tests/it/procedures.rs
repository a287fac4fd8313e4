//! Stored procedures of the workloads, called by their names with encoded arguments.

use std::fmt::Write as _;

use atrapos::{
    Abort, AbortReason, CallError, Database, FixedStr, Handles, RegisterError, Registry, Session,
    SessionHandle, StoredProcedure, TableRef, WorkerId, decode, encode,
};
use atrapos_workloads::micro::procedures::{ReadRows, UpdateRows};
use atrapos_workloads::micro::{Kind, Micro, MicroConfig};
use atrapos_workloads::smallbank::stored::{Balance, SendPayment};
use atrapos_workloads::tatp::Tatp;
use atrapos_workloads::tatp::parameters::Mix;
use atrapos_workloads::tatp::schema::{CallForwarding, Subscribers, sub_nbr};
use atrapos_workloads::tatp::stored::{GetSubscriberData, InsertCallForwarding, UpdateSubscriberData};
use atrapos_workloads::tpcb::parameters::Request;
use atrapos_workloads::tpcb::stored::AccountUpdate;
use atrapos_workloads::tpcc::parameters::{CustomerBy, LineInput, NewOrderInput, PaymentInput};
use atrapos_workloads::tpcc::stored::{NewOrder, NextOrders, Payment};
use atrapos_workloads::{KeyChoice, Workload};

use crate::support::loaded;

const SUBSCRIBERS: u64 = 100;

fn tatp() -> Tatp {
    Tatp::new(SUBSCRIBERS, Mix::Standard, KeyChoice::Uniform, 5).expect("subscribers")
}

fn micro() -> Micro {
    let config = MicroConfig {
        sites: 2,
        rows_per_site: 10,
        rows_per_transaction: 2,
        kind: Kind::Update,
        multisite: 1.0,
        zipf: 0.0,
        seed: 3,
    };
    Micro::new(config).expect("a sound configuration")
}

fn registry<W: Workload>(workload: &W, db: &Database) -> Registry {
    let mut registry = Registry::default();
    workload.register(&mut registry, db).expect("the workload's own schema");
    registry
}

fn call<P: StoredProcedure>(
    db: &Database,
    registry: &Registry,
    procedure: &P,
) -> Result<P::Result, CallError> {
    decode(&db.call(registry, P::NAME, &encode(procedure)?)?)
}

#[test]
fn a_call_by_name_does_what_the_procedure_does() {
    let db = loaded(&tatp(), 2);
    let registry = registry(&tatp(), &db);
    let names: Vec<_> = registry.names().collect();
    assert_eq!(names.len(), tatp().classes().len());
    for s_id in [1, SUBSCRIBERS] {
        let row = call(&db, &registry, &GetSubscriberData { s_id }).expect("it is there");
        assert_eq!(row.expect("a subscriber").sub_nbr, sub_nbr(s_id));
    }
    assert_eq!(call(&db, &registry, &GetSubscriberData { s_id: SUBSCRIBERS + 1 }), Ok(None));
    let missing = UpdateSubscriberData { s_id: SUBSCRIBERS + 1, bit: 1, sf_type: 1, data_a: 2 };
    match call(&db, &registry, &missing) {
        Err(CallError::Aborted(abort)) => assert_eq!(abort.reason(), AbortReason::User),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_call_reaches_rows_of_several_workers() {
    let db = loaded(&micro(), 2);
    let registry = registry(&micro(), &db);
    for _ in 0..3 {
        call(&db, &registry, &UpdateRows { rows: vec![0, 19] }).expect("an update");
    }
    assert_eq!(call(&db, &registry, &ReadRows { rows: vec![19, 1] }), Ok(3));
    assert_eq!(call(&db, &registry, &ReadRows { rows: vec![0, 19] }), Ok(6));
    // A transaction of no rows reads none.
    assert_eq!(call(&db, &registry, &ReadRows { rows: Vec::new() }), Ok(0));
}

#[test]
fn bad_calls_are_refused_with_a_sentence() {
    let db = loaded(&tatp(), 1);
    let registry = registry(&tatp(), &db);
    let refused =
        |name, arguments: &[u8]| db.call(&registry, name, arguments).expect_err("refused").to_string();
    let good = encode(&GetSubscriberData { s_id: 1 }).expect("encodes");
    let unknown = refused("tatp.get", &good);
    assert!(unknown.contains("'tatp.get'") && unknown.contains("tatp.get-subscriber-data"), "{unknown}");
    for (bytes, why) in [
        (&[][..], "empty"),
        (&[9, 1], "format 9"),
        (&good[..1], "no arguments"),
        (&[good.as_slice(), &[0]].concat(), "1 bytes follow"),
    ] {
        let refused = refused(GetSubscriberData::NAME, bytes);
        assert!(refused.contains(why), "{bytes:?}: {refused}");
    }
    let mut twice = Registry::default();
    twice.register::<GetSubscriberData>(&db).expect("once");
    assert_eq!(twice.register::<GetSubscriberData>(&db), Err(RegisterError::Taken(GetSubscriberData::NAME)));
    let other = micro().register(&mut twice, &db).expect_err("another schema").to_string();
    assert!(other.contains("micro.read") && other.contains("does not fit"), "{other}");
}

/// Every prefix of good arguments, and good arguments with one byte changed, are refused or are other arguments: none panics.
#[test]
fn damaged_arguments_never_panic() {
    let db = loaded(&tatp(), 1);
    let registry = registry(&tatp(), &db);
    let row = CallForwarding { end_time: 9, numberx: sub_nbr(7) };
    let insert = InsertCallForwarding { sub_nbr: sub_nbr(1), sf_type: 1, start_time: 8, row };
    let good = encode(&insert).expect("encodes");
    for len in 0..good.len() {
        assert!(registry.prepare(InsertCallForwarding::NAME, &good[..len]).is_err(), "{len} bytes");
    }
    for at in 0..good.len() {
        for flip in [1, 0x80, 0xff] {
            let mut bytes = good.clone();
            bytes[at] ^= flip;
            // What is refused must not have run; what is not, ends with a result or an abort.
            drop(db.call(&registry, InsertCallForwarding::NAME, &bytes));
        }
    }
    assert!(db.verify().is_ok(), "the database is sound");
}

/// Writes a line with the name of a procedure and its encoded arguments.
fn note<P: StoredProcedure>(text: &mut String, procedure: &P) {
    let bytes = encode(procedure).expect("encodes");
    let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    writeln!(text, "{} {hex}", P::NAME).expect("text grows");
    let again: P = decode(&bytes).expect("its own bytes");
    assert_eq!(encode(&again).expect("encodes"), bytes);
}

/// The encoding is a promise to other processes and later versions: these bytes do not change.
#[test]
fn the_encoding_is_stable() {
    let mut text = String::new();
    note(&mut text, &GetSubscriberData { s_id: 300 });
    note(&mut text, &UpdateSubscriberData { s_id: 1, bit: 1, sf_type: 2, data_a: 200 });
    note(&mut text, &Balance { name: *b"000000000000012" });
    note(&mut text, &SendPayment { names: (*b"000000000000001", *b"000000000000002"), amount: -5 });
    let request = Request { b_id: 1, t_id: 2, account: (3, 400), delta: -5_000 };
    note(&mut text, &AccountUpdate { request, time_ns: 77 });
    note(&mut text, &ReadRows { rows: vec![1, 1 << 40] });
    let lines = [LineInput { i_id: 5, supply_w_id: 300, quantity: 3 }].into_iter().collect();
    note(&mut text, &NewOrder { input: NewOrderInput { w_id: 2, d_id: 4, c_id: 9, lines, entry_d: 77 } });
    let customer = CustomerBy::Name(FixedStr::new("BARBARBAR").expect("short"));
    let input = PaymentInput { w_id: 1, d_id: 2, c_w_id: 3, c_d_id: 4, customer, amount: 555, date: 6 };
    note(&mut text, &Payment { input });
    note(&mut text, &NextOrders { w_id: 7 });
    assert_eq!(text, STABLE);
}

const STABLE: &str = "\
tatp.get-subscriber-data 01ac02
tatp.update-subscriber-data 01010102c8
smallbank.balance 01303030303030303030303030303132
smallbank.send-payment 0130303030303030303030303030303130303030303030303030303030303209
tpcb.account-update 0101020390038f4e4d
micro.read 010201808080808020
tpcc.new-order 010204090105ac02034d
tpcc.payment 01010203040109424152424152424152d60806
tpcc.next-orders 0107
";

/// Panics before it has a future to be polled.
fn panic_early(s_id: u64) -> std::future::Ready<Result<u64, Abort>> {
    assert!(s_id != 1, "subscriber 1 is too much for it");
    std::future::ready(Ok(s_id))
}

atrapos::stored_procedures! {
    PanicsEarly("test.panics-early", "panics-early") { s_id: u64 } -> u64;
    tables TableRef<Subscribers>: |db| db.table();
    home: |own, table| table.at(&own.s_id);
    run: |own, _tx, _table| panic_early(own.s_id);
}

/// The session goes on after a procedure that panics, wherever in it that is.
#[test]
fn a_panic_on_the_way_to_the_future_aborts_the_transaction_alone() {
    let db = loaded(&tatp(), 1);
    let tables = PanicsEarly::tables(&db).expect("the schema");
    let body = async move |session: Session| {
        let mut outcomes = Vec::new();
        for s_id in [1, 2] {
            let procedure = PanicsEarly { s_id };
            outcomes.push(session.run_stored(&procedure.home(&tables), &tables, &procedure).await);
        }
        outcomes
    };
    let outcomes =
        db.spawn_session(WorkerId(0), body).and_then(SessionHandle::join).expect("it ends by itself");
    assert_eq!(outcomes[0].as_ref().map_err(Abort::reason), Err(AbortReason::Panic));
    assert_eq!(outcomes[1], Ok(2));
}

/// A registry takes handles from whatever has them.
#[test]
fn handles_come_from_databases() {
    fn tables(handles: &impl Handles) -> bool {
        GetSubscriberData::tables(handles).is_ok()
    }
    let (db, other) = (loaded(&tatp(), 1), loaded(&micro(), 1));
    assert!(tables(&db) && !tables(&other));
}
