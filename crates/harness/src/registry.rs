//! Every workload by its name, with its type erased: the interface of programs that treat all workloads alike.
//!
//! Owns: how a choice made at run time becomes a workload's type, and back. Never: knows the list of workloads (their own crate
//! does), instantiates the driver for one (`atrapos-standard-benchmarks` and `atrapos-research-benchmarks` do, so that they are compiled
//! side by side), or decides anything about them.
//!
//! Everything here is called a few times per run. The code that runs for every transaction is below, in the driver's
//! loops, one instance for each type of workload, without any dispatch at run time.

use std::fmt::Debug;
use std::marker::PhantomData;
use std::sync::atomic::AtomicBool;

use atrapos::{Database, LoadError, LoadProgress, RecordedFlow, RegisterError, Registry, Schema};
use atrapos_baselines::{SharedDatabase, SharedRegistry};
use atrapos_workloads::registry::{BadOptions, Choice, Classes, Common, Options, Registrar, Visitor};
use atrapos_workloads::{AuditError, AuditReport, Ledger, NoShare, NotEnoughMemory, Workload};
use clap::{ArgMatches, Command};

use crate::driver::{self, Progress, RunError, RunOptions, RunResult, SharedThreads};
use crate::flows::{FlowError, flows};

/// A workload by name: the facts known before its options are given.
pub trait Entry: Send + Sync {
    /// Returns its name.
    fn name(&self) -> &'static str;

    /// Returns the classes of its transactions.
    fn classes(&self) -> &'static [Classes];

    /// Returns a command of its name that has its help and its options.
    fn command(&self) -> Command;

    /// Returns the options that were given to such a command, or to one that has further options.
    ///
    /// # Errors
    /// Returns an error if the command does not have them.
    fn given(&self, matches: &ArgMatches) -> Result<Box<dyn Given>, clap::Error>;

    /// Returns the flow graphs of the class of this name, or of all.
    ///
    /// # Errors
    /// Returns an error if the transactions could not be recorded.
    fn flows(&self, class: Option<&str>) -> Result<Vec<RecordedFlow>, FlowError>;
}

/// The options that were given for a workload.
pub trait Given: Debug + Send + Sync {
    /// Returns the workload they describe.
    ///
    /// # Errors
    /// Returns an error that names the impossible option and the possible ones.
    fn configure(&self, common: Common) -> Result<Configured, BadOptions>;
}

/// A workload, ready to be loaded and run.
pub struct Configured {
    /// Its name.
    pub name: &'static str,
    /// The chosen options, for reports.
    pub choice: Choice,
    /// The workload.
    pub workload: Box<dyn AnyWorkload>,
}

impl Debug for Configured {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Configured")
            .field("name", &self.name)
            .field("choice", &self.choice)
            .finish_non_exhaustive()
    }
}

/// A [`Workload`] whose type is erased: its methods are documented there.
#[expect(missing_docs, reason = "each is documented at the item of its name")]
#[expect(clippy::missing_errors_doc, reason = "each is documented at the item of its name")]
pub trait AnyWorkload: Send + Sync {
    fn schema(&self) -> Schema;
    fn classes(&self) -> &'static [&'static str];
    fn only_reads(&self) -> bool;
    fn encoded_bytes(&self) -> u64;
    fn growth_bytes_per_second(&self) -> u64;
    fn check_memory(&self, available_bytes: u64) -> Result<(), NotEnoughMemory>;
    fn expected_rows(&self) -> u64;
    fn load(&self, db: &Database, progress: &LoadProgress) -> Result<u64, LoadError>;
    fn register(&self, registry: &mut Registry, db: &Database) -> Result<(), RegisterError>;

    /// Registers the procedures like [`Workload::register`], for clients of an engine with shared data.
    fn register_shared(&self, registry: &mut SharedRegistry, db: &Database) -> Result<(), RegisterError>;
    fn audit(&self, db: &Database, ledger: &Ledger) -> Result<AuditReport, AuditError>;
    fn distributed_share(&self, parts: usize) -> Result<f64, NoShare>;
    fn remote_share(&self) -> Option<f64>;
    fn with_remote_share(&self, share: f64) -> Box<dyn AnyWorkload>;

    /// Runs it like [`driver::run`].
    fn run(
        &self,
        db: &Database,
        options: &RunOptions,
        interrupt: &AtomicBool,
        watch: &mut dyn FnMut(Progress),
    ) -> Result<RunResult, RunError>;

    /// Runs it on an engine with shared data like [`driver::run_shared`].
    fn run_shared(
        &self,
        databases: (&SharedDatabase, &Database),
        options: &RunOptions,
        threads: SharedThreads<'_>,
        interrupt: &AtomicBool,
        watch: &mut dyn FnMut(Progress),
    ) -> Result<RunResult, RunError>;

    /// Records its flow graphs like [`flows`](flows()).
    fn flows(&self) -> Result<Vec<RecordedFlow>, FlowError>;
}

impl<W: Workload> AnyWorkload for W {
    fn schema(&self) -> Schema {
        Workload::schema(self)
    }

    fn classes(&self) -> &'static [&'static str] {
        Workload::classes(self)
    }

    fn only_reads(&self) -> bool {
        Workload::only_reads(self)
    }

    fn encoded_bytes(&self) -> u64 {
        Workload::encoded_bytes(self)
    }

    fn growth_bytes_per_second(&self) -> u64 {
        Workload::growth_bytes_per_second(self)
    }

    fn check_memory(&self, available_bytes: u64) -> Result<(), NotEnoughMemory> {
        Workload::check_memory(self, available_bytes)
    }

    fn expected_rows(&self) -> u64 {
        Workload::expected_rows(self)
    }

    fn load(&self, db: &Database, progress: &LoadProgress) -> Result<u64, LoadError> {
        Workload::load(self, db, progress)
    }

    fn register(&self, registry: &mut Registry, db: &Database) -> Result<(), RegisterError> {
        Workload::register(self, registry, db)
    }

    fn register_shared(&self, registry: &mut SharedRegistry, db: &Database) -> Result<(), RegisterError> {
        Workload::register(self, registry, db)
    }

    fn audit(&self, db: &Database, ledger: &Ledger) -> Result<AuditReport, AuditError> {
        Workload::audit(self, db, ledger)
    }

    fn distributed_share(&self, parts: usize) -> Result<f64, NoShare> {
        Workload::distributed_share(self, parts)
    }

    fn remote_share(&self) -> Option<f64> {
        Workload::remote_share(self)
    }

    fn with_remote_share(&self, share: f64) -> Box<dyn AnyWorkload> {
        Box::new(Workload::with_remote_share(self, share))
    }

    fn run(
        &self,
        db: &Database,
        options: &RunOptions,
        interrupt: &AtomicBool,
        watch: &mut dyn FnMut(Progress),
    ) -> Result<RunResult, RunError> {
        driver::run(db, self, options, interrupt, watch)
    }

    fn run_shared(
        &self,
        databases: (&SharedDatabase, &Database),
        options: &RunOptions,
        threads: SharedThreads<'_>,
        interrupt: &AtomicBool,
        watch: &mut dyn FnMut(Progress),
    ) -> Result<RunResult, RunError> {
        driver::run_shared(databases, self, options, threads, interrupt, watch)
    }

    fn flows(&self) -> Result<Vec<RecordedFlow>, FlowError> {
        flows(self)
    }
}

/// Workloads that are registered, with their types erased. The code that runs a workload is compiled in the crate that registers it here.
#[derive(Default)]
pub struct Entries(pub Vec<Box<dyn Entry>>);

impl Debug for Entries {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.0.iter().map(|entry| entry.name())).finish()
    }
}

impl Registrar for Entries {
    fn add<O: Options>(&mut self) {
        self.0.push(Box::new(Of::<O>(PhantomData)));
    }
}

/// The entry of the workload with these options.
struct Of<O>(PhantomData<fn() -> O>);

impl<O: Options> Entry for Of<O> {
    fn name(&self) -> &'static str {
        O::NAME
    }

    fn classes(&self) -> &'static [Classes] {
        O::CLASSES
    }

    fn command(&self) -> Command {
        O::augment_args(Command::new(O::NAME))
    }

    fn given(&self, matches: &ArgMatches) -> Result<Box<dyn Given>, clap::Error> {
        Ok(Box::new(GivenOptions(O::from_arg_matches(matches)?)))
    }

    fn flows(&self, class: Option<&str>) -> Result<Vec<RecordedFlow>, FlowError> {
        let mut chosen = Vec::new();
        let explained = O::explained().map_err(FlowError::Configuration)?;
        for (classes, workload) in O::CLASSES.iter().zip(&explained) {
            if class.is_none_or(|class| classes.names.contains(&class)) {
                chosen.extend(flows(workload)?);
            }
        }
        chosen.retain(|flow| class.is_none_or(|class| flow.class.name == class));
        Ok(chosen)
    }
}

#[derive(Debug)]
struct GivenOptions<O>(O);

impl<O: Options> Given for GivenOptions<O> {
    fn configure(&self, common: Common) -> Result<Configured, BadOptions> {
        self.0.configure(common, Forget { name: O::NAME })
    }
}

/// Erases the type of a workload.
struct Forget {
    name: &'static str,
}

impl Visitor for Forget {
    type Output = Configured;

    fn visit<W: Workload>(self, workload: W, choice: Choice) -> Configured {
        Configured { name: self.name, choice, workload: Box::new(workload) }
    }
}
