//! Last reads: copies of rows for transactions of other instances that hold all their other locks and ask for no more.
//!
//! Their locks would be released with the reply, so such a transaction has no subordinate here, no lock and no end. What is not simply
//! there and free goes the ordinary way ([`super::subordinate`]).
//!
//! Never: enters a lock, or changes a row.

use atrapos_partition::partition::PartitionId;
use atrapos_storage::Position;
use atrapos_storage::lock::{LockMode, TxnId};
use smallvec::SmallVec;

use super::subordinate::send_copies;
use super::wire::{Bytes, FetchRequest, FetchTarget, Message, Requests};
use super::{Link, Peers};
use crate::shard::EngineWorker;
use crate::tx::free_to_read;

/// Copies the rows of requests if all are for keys that are here, durable, and not locked by others. Returns false if not, and nothing
/// has happened: so for what the monitor is about to record.
pub(super) fn read_last(
    worker: &EngineWorker,
    peers: &Peers,
    link: &Link,
    txn: TxnId,
    (requests, positions): (Requests<'_>, &[Position]),
) -> Result<bool, String> {
    let shard = worker.shard();
    if peers.subordinates.borrow().contains_key(&(link.instance, txn)) {
        return Err("it asks for the last rows of a transaction that has a part here".to_owned());
    }
    if shard.monitor.records_next() {
        return Ok(false);
    }
    let tables = shard.tables.borrow();
    let mut places: SmallVec<[PartitionId; 8]> = SmallVec::new();
    for request in requests.iter() {
        let FetchRequest { table, mode, target } = request.map_err(str::to_owned)?;
        let FetchTarget::Key { key, copies: true } = target else { return Ok(false) };
        let is_known = mode == LockMode::Shared && table.at() < tables.shards.len();
        let Some(place) = is_known.then(|| free_to_read(worker, &tables, table, key)).flatten() else {
            return Ok(false);
        };
        places.push(place);
    }
    let head = Message::Fetched { txn, is_durable: true, is_released: true, result: Ok(Bytes(&[])) };
    let sent = send_copies(peers, link, (&head, &tables), (requests, positions), &places);
    shard.stats.local_actions.add(places.len() as u64);
    shard.monitor.pass();
    // What no message carries is asked for again, and refused, in the ordinary way.
    Ok(sent.is_ok())
}
