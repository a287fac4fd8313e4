//! Sharing of tables: what workers read of tables that they do not own is given to the controller, and the tables that it has shared are
//! marked on all workers.
//!
//! Owns: the sums over workers. Never: decides ([`Controller::share`] does), or lends a partition
//! ([`lending`](atrapos_transaction::lending) does). The marks end with the database: they are found again within seconds.

use atrapos_adapt::{CYCLES_PER_NS, Controller, Decision, ReadsSeen, TableReads};
use atrapos_partition::abort::Abort;
use atrapos_partition::schema::TableId;
use atrapos_transaction::lending;

use super::Adaptive;
use super::settings::AdaptationEvent;

impl Adaptive {
    /// Lets the controller look at what workers read elsewhere, after the decision of an interval, and marks the tables that it has
    /// shared. Returns entries for the history. It waits for the next interval while a statement, a load or a change of the scheme is under
    /// way: these hold lending off only if a table was shared when they began.
    pub(super) fn share(
        &self,
        controller: &mut Controller,
        after: &Decision,
    ) -> Result<Vec<AdaptationEvent>, Abort> {
        let (Some(_definitions), Ok(_scheme)) = (self.catalogs.try_keep(), self.scheme.try_lock()) else {
            return Ok(Vec::new());
        };
        let seen = self.reads_seen(after.at_ns)?;
        let changes = controller.share(after, &seen);
        let mut events = Vec::new();
        for change in changes {
            let (table, shares) = (TableId(change.table as u16), change.shares());
            self.ask_all(move |worker| lending::set_shared(worker, table, shares))?;
            let catalog = self.catalogs.working();
            let name = catalog.tables[table.at()].name;
            let decision = Decision::of_sharing(after.at_ns, after.throughput_tps, name, &change);
            events.push(AdaptationEvent { decision, report: None, failure: None });
        }
        Ok(events)
    }

    /// Sums what the workers have read, of the tables that nobody declared as shared.
    fn reads_seen(&self, at_ns: u64) -> Result<ReadsSeen, Abort> {
        let seen = self.ask_all(|worker| (lending::reads(worker), worker.stats().busy_ticks.get()))?;
        let busy: u64 = seen.iter().map(|(_, busy)| busy).sum();
        let catalog = self.catalogs.working();
        let undeclared = (0..).zip(&catalog.tables).filter(|(_, table)| !table.is_shared);
        let of = |table: u32| {
            // A worker may not know of a table yet that was just made.
            let all = seen.iter().filter_map(|(reads, _)| reads.get(table as usize));
            all.fold(TableReads { table, messages: 0, sent: 0, in_place: 0, price: 0 }, |sum, reads| {
                TableReads {
                    table,
                    messages: sum.messages + reads.messages,
                    sent: sum.sent + reads.sent,
                    in_place: sum.in_place + reads.in_place,
                    price: sum.price + reads.price,
                }
            })
        };
        Ok(ReadsSeen {
            at_ns,
            busy_cycles: busy as f64 * CYCLES_PER_NS * self.handle.clock().ns_per_tick(),
            tables: undeclared.map(|(table, _)| of(table)).collect(),
        })
    }
}
