//! A deployment of instances in this process, as one engine whose clients are those of the instances in turn.

use std::ops::ControlFlow;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use atrapos_baselines::instance::{InstanceEngine, InstanceOptions, Ownership};
use atrapos_baselines::lock::{Deadlocks, LockOptions};
use atrapos_baselines::occ::OccEngine;
use atrapos_baselines::two_phase::LockingEngine;
use atrapos_baselines::{Engine, EngineClient, Visit};
use atrapos_channel::{ChannelKind, DeploymentId};
use atrapos_partition::abort::Abort;
use atrapos_partition::routing::InstanceId;
use atrapos_partition::schema::TableId;
use atrapos_storage::KeyBuf;
use tempfile::TempDir;

use crate::engines::MakeEngine;

/// The engines in instances.
pub(crate) const IN_INSTANCES: [MakeEngine; 2] =
    [|| Box::new(Cluster::new(optimistic, 3)), || Box::new(Cluster::new(locking, 3))];

pub(crate) fn optimistic() -> Box<dyn Engine> {
    Box::new(OccEngine::new(3))
}

pub(crate) fn locking() -> Box<dyn Engine> {
    let options = LockOptions { deadlocks: Deadlocks::Prevented, ..LockOptions::default() };
    Box::new(LockingEngine::with_locks(3, options))
}

/// The instances.
#[derive(Debug)]
pub(crate) struct Cluster {
    pub(crate) instances: Vec<Option<InstanceEngine>>,
    pub(crate) options: InstanceOptions,
    ownership: Ownership,
    next: AtomicUsize,
    _directory: TempDir,
}

/// The division of the keys to the instances in turn: numbers below 3, below 6, below 9, and larger keys by their first byte.
pub(crate) fn division(instances: usize) -> Ownership {
    let numbers = [3_u64, 6, 9].map(|cut| KeyBuf::from(&cut.to_be_bytes()[..]));
    let cuts: Vec<KeyBuf> = numbers.into_iter().chain([&[1][..], &[64], &[128]].map(KeyBuf::from)).collect();
    let owners = (0..=cuts.len()).map(|part| InstanceId((part % instances) as u16));
    Ownership::uniform(3, cuts, owners.collect())
}

impl Cluster {
    /// Starts so many instances, each with an engine of three tables.
    pub(crate) fn new(engine: fn() -> Box<dyn Engine>, instances: usize) -> Cluster {
        let directory = tempfile::tempdir().expect("there is room for sockets");
        let options = InstanceOptions {
            deployment: DeploymentId(7),
            // Made by the first instance, for its user alone.
            directory: directory.path().join("links"),
            kind: ChannelKind::Shm,
            tcp: Vec::new(),
            instance: InstanceId(0),
            instances,
            secret: None,
            clients: None,
        };
        let ownership = division(instances);
        let join = |instance: usize| {
            let options = InstanceOptions { instance: InstanceId(instance as u16), ..options.clone() };
            let joined = InstanceEngine::join(engine(), ownership.clone(), options);
            Some(joined.unwrap_or_else(|error| panic!("{error}")))
        };
        let instances: Vec<_> = (0..instances).map(join).collect();
        for instance in instances.iter().flatten() {
            let reached = instance.wait_reachable(Instant::now() + Duration::from_secs(60));
            reached.unwrap_or_else(|error| panic!("{error}"));
        }
        Cluster { instances, options, ownership, next: AtomicUsize::new(0), _directory: directory }
    }

    pub(crate) fn instance(&self, instance: usize) -> &InstanceEngine {
        self.instances[instance].as_ref().expect("the instance lives")
    }
}

impl Engine for Cluster {
    fn name(&self) -> &'static str {
        self.instance(0).name()
    }

    fn client(&self) -> Box<dyn EngineClient + '_> {
        let next = self.next.fetch_add(1, Ordering::Relaxed);
        self.instance(next % self.instances.len()).client()
    }

    fn load(&self, table: TableId, rows: &[(KeyBuf, Box<[u8]>)]) -> Result<(), Abort> {
        for (at, instance) in self.instances.iter().flatten().enumerate() {
            let own = |(key, _): &&(KeyBuf, Box<[u8]>)| {
                self.ownership.owner(table, key) == Some(InstanceId(at as u16))
            };
            instance.load(table, &rows.iter().filter(own).cloned().collect::<Vec<_>>())?;
        }
        Ok(())
    }

    fn walk(&self, table: TableId, visit: &mut Visit<'_>) -> Result<(), Abort> {
        let mut rows: Vec<(Vec<u8>, Vec<u8>)> = Vec::new();
        for instance in self.instances.iter().flatten() {
            instance.walk(table, &mut |key, row| {
                rows.push((key.to_vec(), row.to_vec()));
                Ok(ControlFlow::Continue(()))
            })?;
        }
        rows.sort();
        for (key, row) in &rows {
            if visit(key, row)?.is_break() {
                break;
            }
        }
        Ok(())
    }

    fn memory_bytes(&self) -> u64 {
        self.instances.iter().flatten().map(Engine::memory_bytes).sum()
    }

    fn check(&self) -> Result<(), String> {
        for instance in self.instances.iter().flatten() {
            instance.check()?;
            let failures = instance.take_failures();
            if !failures.is_empty() {
                return Err(failures.join("; "));
            }
        }
        Ok(())
    }
}
