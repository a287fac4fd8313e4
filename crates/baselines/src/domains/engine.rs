//! [`DomainsEngine`]: the domains and the parts of the tables in them.
//!
//! Owns: the domains, and who has a key. Never: runs a transaction; clients do.

use std::sync::atomic::{AtomicU64, Ordering};

use atrapos::WorkerId;
use atrapos_domains::{
    CallError, Configuration, DomainConfiguration, DomainError, Domains, Owned, Placement,
};
use atrapos_partition::abort::{Abort, AbortReason};
use atrapos_partition::schema::TableId;
use atrapos_storage::KeyBuf;
use atrapos_topology::{CpuId, Machine};

use super::client::DomainsClient;
use super::part::Part;
use super::table::{Rows, TableStructure};
use crate::instance::Ownership;
use crate::occ::check_lengths;
use crate::rows::Visit;
use crate::session::{Engine, EngineClient};

/// The settings of an engine on domains.
#[derive(Clone, Debug)]
pub struct DomainsEngineOptions {
    /// The processing unit of each worker, which has a domain of its own.
    pub cpus: Vec<CpuId>,
    /// Set if workers are pinned.
    pub pin: bool,
    /// The structure of all tables.
    pub structure: TableStructure,
}

/// A database whose tables are structures in virtual domains: see the module's introduction.
pub struct DomainsEngine {
    domains: Domains,
    /// By worker.
    pub(super) parts: Vec<Owned<Part>>,
    pub(super) ownership: Ownership<WorkerId>,
    /// The age that the next client's transactions get.
    ages: AtomicU64,
}

impl std::fmt::Debug for DomainsEngine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("DomainsEngine").field("parts", &self.parts.len()).finish_non_exhaustive()
    }
}

/// Ages that a client takes at once.
pub(super) const AGES: u64 = 64;
/// Rows that are copied out of a part at once.
const WALKED: usize = 1024;

/// Returns the abort of a transaction whose task did not run to its end.
pub(super) fn refusal(error: &CallError) -> Abort {
    let reason = match error {
        CallError::Refused(_) => AbortReason::ShuttingDown,
        _ => AbortReason::Corruption,
    };
    Abort::explained(reason, format!("a task of a domain did not run: {error}"))
}

impl DomainsEngine {
    /// Starts the domains, with so many empty tables, numbered from 0. The workers of `ownership` are those of `options`, numbered from 0.
    ///
    /// # Errors
    /// The domains do not start.
    pub fn new(
        machine: &Machine,
        options: &DomainsEngineOptions,
        ownership: Ownership<WorkerId>,
        tables: usize,
    ) -> Result<DomainsEngine, DomainError> {
        let name = |worker: usize| format!("worker-{worker}");
        let placement = if options.pin { Placement::Pinned } else { Placement::Anywhere };
        let domain = |(worker, cpu): (usize, &CpuId)| DomainConfiguration {
            cpus: vec![cpu.0],
            placement,
            ..DomainConfiguration::new(&name(worker), 1)
        };
        let domains = options.cpus.iter().enumerate().map(domain).collect();
        let configuration = Configuration { oversubscribe: true, domains, ..Configuration::default() };
        let domains = Domains::start(machine, &configuration)?;
        let place = |worker: usize| {
            let part = Part::new(options.structure, tables);
            domains.at(&name(worker))?.place_owned(&format!("part-{worker}"), part)
        };
        let parts = (0..options.cpus.len()).map(place).collect::<Result<_, _>>()?;
        Ok(DomainsEngine { domains, parts, ownership, ages: AtomicU64::new(1) })
    }

    /// The first of [`AGES`] ages that no other client gets.
    pub(super) fn take_ages(&self) -> u64 {
        self.ages.fetch_add(AGES, Ordering::Relaxed)
    }

    /// The part that has a key.
    pub(super) fn part(&self, table: TableId, key: &[u8]) -> Result<usize, Abort> {
        let owner = self.ownership.owner(table, key);
        owner.map(|worker| usize::from(worker.0)).filter(|part| *part < self.parts.len()).ok_or_else(|| {
            Abort::explained(AbortReason::UnknownTable, format!("there is no table with number {}", table.0))
        })
    }

    /// Does something with a part, at its worker.
    fn with_part<R: Send + 'static>(
        &self,
        part: usize,
        run: impl FnOnce(&mut Part) -> R + Send + 'static,
    ) -> Result<R, Abort> {
        self.domains.client().call_blocking(&self.parts[part], run).map_err(|error| refusal(&error))
    }

    /// Copies the rows of a table that one worker has, in the order of their keys.
    fn walk_part(
        &self,
        part: usize,
        table: TableId,
        keep: &mut dyn FnMut(KeyBuf, Box<[u8]>),
    ) -> Result<(), Abort> {
        let numbers = self.with_part(part, move |part| part.table(table).map(|table| table.sorted()))??;
        for some in numbers.chunks(WALKED) {
            let some = some.to_vec();
            let rows = self.with_part(part, move |part| -> Result<Rows, Abort> {
                let table = part.table(table)?;
                Ok(some.into_iter().filter_map(|number| table.numbered(number)).collect())
            })??;
            rows.into_iter().for_each(|(key, row)| keep(key, row));
        }
        Ok(())
    }
}

impl Engine for DomainsEngine {
    fn name(&self) -> &'static str {
        "domains"
    }

    fn client(&self) -> Box<dyn EngineClient + '_> {
        Box::new(DomainsClient::new(self, self.domains.client()))
    }

    fn load(&self, table: TableId, rows: &[(KeyBuf, Box<[u8]>)]) -> Result<(), Abort> {
        let mut by_part: Vec<Rows> = self.parts.iter().map(|_| Rows::new()).collect();
        for (key, row) in rows {
            check_lengths(key, row)?;
            by_part[self.part(table, key)?].push((key.clone(), row.clone()));
        }
        for (part, rows) in by_part.into_iter().enumerate().filter(|(_, rows)| !rows.is_empty()) {
            self.with_part(part, move |part| part.load(table, rows))??;
        }
        Ok(())
    }

    /// Copies the rows of one table at a time.
    fn walk(&self, table: TableId, visit: &mut Visit<'_>) -> Result<(), Abort> {
        let mut rows = Rows::new();
        for part in 0..self.parts.len() {
            self.walk_part(part, table, &mut |key, row| rows.push((key, row)))?;
        }
        // A worker may have several ranges.
        rows.sort_unstable_by(|a, b| a.0.cmp(&b.0));
        for (key, row) in &rows {
            if visit(key, row)?.is_break() {
                break;
            }
        }
        Ok(())
    }

    fn memory_bytes(&self) -> u64 {
        // A part that was poisoned is reported by whoever uses it.
        (0..self.parts.len()).filter_map(|part| self.with_part(part, |part| part.memory_bytes()).ok()).sum()
    }

    fn check(&self) -> Result<(), String> {
        (0..self.parts.len()).try_for_each(|part| {
            self.with_part(part, Part::check)
                .map_err(|abort| abort.to_string())?
                .map_err(|wrong| format!("part {part}: {wrong}"))
        })
    }
}
