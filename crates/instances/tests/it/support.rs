//! Instances of a small database in this process, and its procedures.
//!
//! Owns: the patience of all tests: a wait that nothing ends fails after minutes.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use atrapos::{Database, InstanceId, Registry, Schema, Table, TableRef, row};
use atrapos_instances::{
    ChannelKind, ChosenKeys, Client, ClientOptions, DeploymentDirectory, Description, Member, MemberOptions,
    division, read_secret,
};
use tempfile::TempDir;

/// Far more than anything takes on a loaded machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(120);

row! { #[derive(Clone)] pub(crate) struct Count { pub(crate) number: u64 } }

pub(crate) struct Counts;

impl Table for Counts {
    type Key = u64;
    type Row = Count;
    const NAME: &'static str = "counts";
}

atrapos::stored_procedures! {
    /// Inserts a row.
    pub(crate) Insert("test.insert", "insert") { key: u64, number: u64 } -> ();
    tables TableRef<Counts>: |db| db.table();
    home: |own, table| table.at(&own.key);
    run: |own, tx, table| async move { tx.insert(*table, own.key, Count { number: own.number }).await };

    /// Reads a row.
    pub(crate) Read("test.read", "read") { key: u64 } -> Option<u64>;
    tables TableRef<Counts>: |db| db.table();
    home: |own, table| table.at(&own.key);
    run: |own, tx, table| async move { Ok(tx.get(*table, own.key).await?.map(|count| count.number)) };

    /// Adds to two rows.
    pub(crate) AddBoth("test.add-both", "add-both") { keys: [u64; 2], by: u64 } -> ();
    tables TableRef<Counts>: |db| db.table();
    home: |own, table| table.at(&own.keys[0]);
    run: |own, tx, table| async move {
        let by = own.by;
        for key in own.keys {
            tx.update(*table, key, move |count: &mut Count| count.number += by).await?;
        }
        Ok(())
    };

    /// Returns so many bytes.
    pub(crate) Long("test.long", "long") { bytes: usize } -> Vec<u8>;
    tables TableRef<Counts>: |db| db.table();
    home: |_own, table| table.at(&0);
    run: |own, _tx, _table| async move { Ok(vec![7; own.bytes]) };
}

/// Keys below this are of instance 0, the others of instance 1.
pub(crate) const CUT: u64 = 50;

pub(crate) fn schema() -> Schema {
    Schema::new().table::<Counts>().split_evenly("counts", 0, 2 * CUT - 1)
}

/// A deployment of two instances of one worker each.
pub(crate) struct Deployment {
    pub(crate) description: Description,
    kind: ChannelKind,
    directory: TempDir,
    _claim: DeploymentDirectory,
}

/// An instance that runs until it is dropped.
pub(crate) struct Running {
    pub(crate) member: Option<Member>,
    db: Option<Arc<Database>>,
}

impl Drop for Running {
    fn drop(&mut self) {
        self.member = None;
        let db = self.db.take().and_then(Arc::into_inner).expect("nobody else has the database");
        assert!(db.close(PATIENCE).failure.is_none(), "it closes in order");
    }
}

impl Deployment {
    pub(crate) fn new(kind: ChannelKind) -> Deployment {
        Deployment::divided(kind, &[1, 1], Vec::new())
    }

    /// A deployment with these workers in each instance, and these keys if any are chosen.
    pub(crate) fn divided(kind: ChannelKind, workers: &[usize], keys: Vec<ChosenKeys>) -> Deployment {
        let own = Permissions::from_mode(0o700);
        let directory =
            tempfile::Builder::new().prefix("inst").permissions(own).tempdir().expect("a directory");
        let tcp = match kind {
            ChannelKind::Tcp => {
                let listen = || std::net::TcpListener::bind(("127.0.0.1", 0)).expect("a free port");
                // Both are held until both have an address, so that they differ.
                [listen(), listen()]
                    .iter()
                    .map(|listener| listener.local_addr().expect("an address"))
                    .collect()
            }
            _ => Vec::new(),
        };
        let mut description = Description::new(vec!["test".to_owned()], kind, workers.to_vec(), keys, tcp);
        let claim =
            DeploymentDirectory::claim(directory.path(), &mut description).expect("an empty directory");
        Deployment { description, kind, directory, _claim: claim }
    }

    pub(crate) fn path(&self) -> &Path {
        self.directory.path()
    }

    /// Starts an instance, which clients can call unless `alone`.
    pub(crate) fn start(&self, instance: u16, alone: bool) -> Running {
        let Description { workers, keys, .. } = &self.description;
        let division = division(schema(), InstanceId(instance), workers.clone(), keys).expect("sound keys");
        let db = Database::builder(schema()).pin(false).instance(division).in_memory().expect("an instance");
        let db = Arc::new(db);
        let mut registry = Registry::default();
        register(&mut registry, &*db).expect("its own schema");
        let options = MemberOptions {
            deployment: self.description.deployment(),
            directory: self.path().to_owned(),
            kind: self.kind,
            tcp: self.description.tcp.clone(),
            secret: Some(read_secret(self.path()).expect("it was drawn")),
            registry: (!alone).then(|| Arc::new(registry)),
        };
        let member = Member::join(Arc::clone(&db), options).expect("an instance joins");
        Running { member: Some(member), db: Some(db) }
    }

    /// Starts both instances.
    pub(crate) fn start_all(&self) -> [Running; 2] {
        let running = [self.start(0, false), self.start(1, false)];
        for instance in &running {
            let member = instance.member.as_ref().expect("it runs");
            assert!(member.wait_linked(Instant::now() + PATIENCE), "{:?}", member.take_failures());
        }
        running
    }

    pub(crate) fn client(&self, patience: Duration) -> Client {
        Client::connect(self.path(), ClientOptions { kind: None, patience }).expect("a deployment")
    }
}

pub(crate) fn register(
    registry: &mut Registry,
    handles: &impl atrapos::Handles,
) -> Result<(), atrapos::RegisterError> {
    registry.register::<Insert>(handles)?;
    registry.register::<Read>(handles)?;
    registry.register::<AddBoth>(handles)?;
    registry.register::<Long>(handles)
}
