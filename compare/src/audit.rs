//! The audit of any store by the workload's own auditor.
//!
//! Owns: the way there: everything that the store holds is loaded into a fresh database of `atrapos` in memory, with its keys
//! and references, and that database is audited against the ledger of the store's transactions. Never: knows which contents are
//! right.
//!
//! `atrapos` makes the index over subscribers' numbers itself; the store's own index is compared with the rows here.

use std::sync::mpsc::{Receiver, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};

use atrapos::{Database, LoadError, LoadProgress, Loader, Table, TableRef};
use atrapos_workloads::micro::Counters;
use atrapos_workloads::tatp::schema::{
    AccessInfos, CallForwardings, SpecialFacilities, Subscribers, sub_nbr,
};
use atrapos_workloads::tpcb::schema::{Accounts, Branches, Histories, Tellers};
use atrapos_workloads::ycsb::schema::WideTable;
use atrapos_workloads::{AuditReport, Ledger};

use crate::peer::{Peer, PeerError};
use crate::record::Record;
use crate::requests::Work;

/// Records that are handed over at once, and how often that may be ahead of loading.
const BATCH: usize = 4096;
const BATCHES_AHEAD: usize = 16;

/// Proves that a store at rest is the result of the load and of the transactions in `ledger`.
///
/// # Errors
/// Fails with the first discrepancy found, or if the store cannot be read.
pub fn audit(peer: &dyn Peer, work: &Work, ledger: &Ledger) -> Result<AuditReport, PeerError> {
    let builder = Database::builder(work.workload().schema()).workers(1).pin(false).fixed_scheme();
    let db = builder.in_memory().map_err(PeerError::failed)?;
    let (sender, receiver) = sync_channel::<Vec<Record>>(BATCHES_AHEAD);
    let (dumped, loaded) = std::thread::scope(|scope| {
        let loading = scope.spawn(|| load(&db, receiver));
        let (mut batch, mut entries) = (Vec::with_capacity(BATCH), 0);
        let mut hand_over = |record: Record| {
            if let Record::SubscriberByNumber(number, s_id) = record {
                entries += 1;
                if number != sub_nbr(s_id) {
                    return Err(PeerError::failed(format!(
                        "the index leads to subscriber {s_id} by another number"
                    )));
                }
                return Ok(());
            }
            batch.push(record);
            if batch.len() == BATCH {
                // Nobody receives if loading has failed, which is reported below.
                let _ = sender.send(std::mem::replace(&mut batch, Vec::with_capacity(BATCH)));
            }
            Ok(())
        };
        let dumped = peer.dump(&mut hand_over);
        let _ = sender.send(batch);
        drop(sender);
        (dumped.map(|()| entries), loading.join())
    });
    loaded.unwrap_or_else(|_| Err(PeerError::failed("loading what the store holds panicked")))?;
    let (found, expected) = (dumped?, work.index_entries());
    if found != expected {
        return Err(PeerError::failed(format!("the index has {found} entries where {expected} are wanted")));
    }
    work.workload().audit(&db, ledger).map_err(PeerError::failed)
}

/// Loads what is received.
fn load(db: &Database, receiver: Receiver<Vec<Record>>) -> Result<u64, PeerError> {
    let receiver = Arc::new(Mutex::new(receiver));
    let handles = Handles::of(db);
    let loaded = db.load(&LoadProgress::default(), move |loader| {
        let receiver = receiver.lock().unwrap_or_else(PoisonError::into_inner);
        receiver.iter().flatten().try_for_each(|record| handles.add(loader, &record))
    });
    loaded.map_err(PeerError::failed)
}

/// The tables of a database, as far as its workload has them.
#[derive(Clone, Copy)]
struct Handles {
    subscriber: Option<TableRef<Subscribers>>,
    access_info: Option<TableRef<AccessInfos>>,
    special_facility: Option<TableRef<SpecialFacilities>>,
    call_forwarding: Option<TableRef<CallForwardings>>,
    branch: Option<TableRef<Branches>>,
    teller: Option<TableRef<Tellers>>,
    account: Option<TableRef<Accounts>>,
    history: Option<TableRef<Histories>>,
    usertable: Option<TableRef<WideTable>>,
    counters: Option<TableRef<Counters>>,
}

impl Handles {
    fn of(db: &Database) -> Handles {
        Handles {
            subscriber: db.table().ok(),
            access_info: db.table().ok(),
            special_facility: db.table().ok(),
            call_forwarding: db.table().ok(),
            branch: db.table().ok(),
            teller: db.table().ok(),
            account: db.table().ok(),
            history: db.table().ok(),
            usertable: db.table().ok(),
            counters: db.table().ok(),
        }
    }

    fn add(&self, loader: &mut Loader<'_>, record: &Record) -> Result<(), LoadError> {
        match record {
            Record::Subscriber(key, row) => add(loader, self.subscriber, key, row),
            Record::AccessInfo(key, row) => add(loader, self.access_info, key, row),
            Record::SpecialFacility(key, row) => add(loader, self.special_facility, key, row),
            Record::CallForwarding(key, row) => add(loader, self.call_forwarding, key, row),
            Record::Branch(key, row) => add(loader, self.branch, key, row),
            Record::Teller(key, row) => add(loader, self.teller, key, row),
            Record::Account(key, row) => add(loader, self.account, key, row),
            Record::History(key, row) => add(loader, self.history, key, row),
            Record::Usertable(key, row) => add(loader, self.usertable, key, row),
            Record::Counters(key, row) => add(loader, self.counters, key, row),
            Record::SubscriberByNumber(..) => Ok(()),
        }
    }
}

fn add<T: Table>(
    loader: &mut Loader<'_>,
    table: Option<TableRef<T>>,
    key: &T::Key,
    row: &T::Row,
) -> Result<(), LoadError> {
    let table = table.ok_or_else(|| LoadError::Source(format!("the workload has no table {}", T::NAME)))?;
    loader.add(table, key, row)
}
