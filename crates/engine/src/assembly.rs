//! Assembly of a database, for both executors of its workers: threads, or one thread that steps them all in turn.
//!
//! Owns: the parts that all workers share ([`Parts`]), the parts of each worker, and the two executors
//! ([`Parts::on_threads`], [`Parts::on_pump`]). Never: reads a setting, or touches a file.

use std::sync::Arc;
use std::time::Duration;

use atrapos_catalog::Definitions;
use atrapos_durability::manifest::InstanceRecord;
use atrapos_partition::partition::{Partition, TableShard, Tables};
use atrapos_partition::routing::stored::StoredScheme;
use atrapos_partition::routing::{Division, FamilyScheme, Scheme, nowhere};
use atrapos_partition::schema::{Catalog, PublishedCatalog, SchemaError, TableId, TableMeta, TreeKind};
use atrapos_runtime::rng::Seed;
use atrapos_runtime::{Clock, Pump, Runtime, RuntimeBuilder, Ticks, WorkerId};
use atrapos_storage::{Memory, Tree, TreeConfig};
use atrapos_transaction::central::SystemState;
use atrapos_transaction::distributed::Peers;
use atrapos_transaction::lookups::NEAR_BYTES;
use atrapos_transaction::monitor::Monitor;
use atrapos_transaction::shard::{Shard, ShardOptions};
use atrapos_transaction::stats::EngineStats;
use atrapos_transaction::wal::{CommitWaiters, Durability, Wal, WalLimits};

use crate::database::ON_WORKER;
use crate::memory::NodeMemory;

/// The parts that the workers of a database share.
#[derive(Clone)]
pub(crate) struct Parts {
    /// The catalogs: the one that workers use, and the one that clients may name trees of.
    pub(crate) catalogs: Arc<PublishedCatalog>,
    /// Partitioning and placement that the workers begin with.
    pub(crate) scheme: Arc<Scheme>,
    /// Statistics, one for each worker.
    pub(crate) stats: Vec<Arc<EngineStats>>,
    /// The WAL; `None` without a directory.
    pub(crate) wal: Option<Arc<Wal>>,
    /// The system state that workers share; `None` if they share none.
    pub(crate) system_state: Option<Arc<SystemState>>,
    /// The division of the keys, if the database is an instance of a deployment.
    pub(crate) division: Option<Division>,
    /// The number of openings of the directory, this one included; 0 in memory.
    pub(crate) incarnation: u32,
    /// The sampling period in events and the number of sub-partitions of a partition; `None` if statistics are not collected.
    pub(crate) observing: Option<(u32, usize)>,
    /// Bytes of the lines that the rows of a worker take, beyond which look-ups are made together.
    pub(crate) near_bytes: u64,
}

impl Parts {
    /// Returns the parts of a database in memory that collects no statistics. Of its workers, `spare` ones follow those that own data.
    ///
    /// # Errors
    /// Declared cuts that contradict themselves.
    pub(crate) fn new(
        catalog: Arc<Catalog>,
        (workers, spare): (usize, usize),
        division: Option<Division>,
    ) -> Result<Parts, SchemaError> {
        let owning: Vec<WorkerId> = (0..workers as u16).map(WorkerId).collect();
        let scheme = Arc::new(match &division {
            Some(division) => Scheme::of_instance(&catalog, division)?,
            None => Scheme::naive(&catalog, &owning)?,
        });
        let catalogs = Arc::new(PublishedCatalog::new(catalog));
        let stats = (0..workers + spare).map(|_| Arc::default()).collect();
        let (wal, system_state, observing) = (None, None, None);
        Ok(Parts {
            catalogs,
            scheme,
            stats,
            wal,
            system_state,
            division,
            incarnation: 0,
            observing,
            near_bytes: NEAR_BYTES,
        })
    }

    /// Gives the workers, of which `spare` ones own nothing yet, the partitions of a scheme that was stored at an earlier opening, as far as they fit.
    pub(crate) fn resume(&mut self, stored: &StoredScheme, spare: usize) {
        let owning = self.stats.len() - spare;
        self.scheme = Arc::new(self.scheme.resumed(&self.catalogs.working(), stored, owning));
    }

    /// Returns the place of an instance in a deployment, as its directory keeps it.
    pub(crate) fn instance_record(&self, deployment: u128) -> Option<InstanceRecord> {
        let division = self.division.as_ref()?;
        Some(InstanceRecord { deployment, instance: division.instance.0, division: division.encode() })
    }

    /// Returns the definitions of all trees, as they are stored.
    pub(crate) fn definitions(&self) -> Definitions {
        self.catalogs.working().describe(&self.scheme)
    }

    /// Starts the workers as threads. Trees allocate from the result of `memory`, called on the thread of their worker.
    ///
    /// # Errors
    /// Threads that cannot be started or pinned.
    pub(crate) fn on_threads(
        &self,
        runtime: RuntimeBuilder,
        memory: impl Fn(WorkerId) -> Arc<dyn Memory> + Send + Sync + 'static,
    ) -> Result<Runtime<Shard>, String> {
        let (parts, clock) = (self.clone(), Clock::real());
        let factory = move |worker: WorkerId| {
            ON_WORKER.set(true);
            parts.shard(worker, memory(worker), &clock)
        };
        runtime.start(factory).map_err(|error| error.to_string())
    }

    /// Makes workers that the caller's thread steps, in an order that follows from `seed`, with a virtual clock. Each has a memory node of its own.
    ///
    /// # Errors
    /// Too many workers.
    pub(crate) fn on_pump(&self, seed: u64, memory: &Arc<dyn Memory>) -> Result<Pump<Shard>, String> {
        let clock = Clock::virtual_from(Ticks(0));
        let own = |worker: WorkerId| Arc::new(NodeMemory::new(Arc::clone(memory), worker.index()));
        Pump::new(self.stats.len(), Seed(seed), |worker| self.shard(worker, own(worker), &clock))
            .map_err(|error| error.to_string())
    }

    fn shard(&self, worker: WorkerId, memory: Arc<dyn Memory>, clock: &Clock) -> Shard {
        let catalog = self.catalogs.working();
        let shards = (0..).map(TableId).zip(&catalog.tables).map(|(table, meta)| {
            let family = Arc::clone(self.scheme.family_at(table).unwrap_or_else(|| nowhere()));
            new_table(worker, meta, family, &memory)
        });
        let tables = Tables { shards: shards.collect(), catalog: Arc::clone(&catalog) };
        let limits = self.wal.as_ref().map_or(WalLimits::default(), |wal| wal.limits);
        let options = ShardOptions {
            deadlock_check_after: clock.ticks(DEADLOCK_CHECK_AFTER),
            transaction_redo_bytes: limits.transaction_redo_bytes,
            near_bytes: self.near_bytes,
        };
        let commit_waiters = self.wal.as_ref().filter(|wal| wal.logs()).map(|wal| {
            let max_loss = match wal.durability {
                Durability::Relaxed { max_loss_ms } => Some(clock.ticks(Duration::from_millis(max_loss_ms))),
                _ => None,
            };
            CommitWaiters::new(Arc::clone(wal), worker, catalog.tables.len(), max_loss)
        });
        let monitor = Monitor::new(&catalog, worker, clock, self.observing);
        let stats = Arc::clone(&self.stats[worker.index()]);
        let catalogs = Arc::clone(&self.catalogs);
        let shard = Shard::new(catalogs, tables, memory, stats, options, commit_waiters, monitor);
        if let Some(division) = &self.division {
            shard.peers.get_or_init(|| Peers::new(division.instance, self.incarnation));
        }
        match &self.system_state {
            Some(system_state) => shard.sharing(system_state.view(worker)),
            None => shard,
        }
    }
}

/// The time that a lock request waits before its transaction starts to detect deadlocks.
const DEADLOCK_CHECK_AFTER: Duration = Duration::from_millis(1);

/// Returns the empty partitions that a worker owns of a table with this scheme; none of a table that was dropped.
pub(crate) fn new_table(
    worker: WorkerId,
    meta: &TableMeta,
    scheme: Arc<FamilyScheme>,
    memory: &Arc<dyn Memory>,
) -> TableShard {
    let mut partitions = Vec::new();
    if meta.kind != TreeKind::Dropped {
        let config = TreeConfig::for_rows_of(meta.expected_row_bytes);
        for index in (0..scheme.partitions()).filter(|index| scheme.owner(*index) == worker) {
            let number = scheme.number(index) as usize;
            partitions.resize_with(partitions.len().max(number + 1), || None);
            partitions[number] = Some(Box::new(Partition::new(Tree::new(config, Arc::clone(memory)), 0)));
        }
    }
    TableShard::new(scheme, partitions)
}
