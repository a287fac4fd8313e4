//! The flow graph of a transaction class, derived from its recorded runs (`ATraPos §V-A`, Figure 7).
//!
//! Owns: the definitions of one action, of a dependency and of a synchronization point. Never: runs a transaction.
//!
//! # Actions
//!
//! All accesses of one table by one kind of operation are one action of the graph, however often a transaction makes them:
//! it repeats. Accesses that follow from a write (entries of indexes, checks of foreign keys) are an action of their own. The
//! tables are those of the catalog, every index being one, in the catalog's order ([`Database::table_names`]).
//!
//! # Dependencies
//!
//! A part of an action's key comes from an earlier action if it is equal to a part of that one's key, or to a value that it
//! has found, in at least nine of ten cases over all runs: many runs with different arguments distinguish keys from
//! parameters that agree by chance. (Not in all: one in a hundred items of an order is from another warehouse.) Every
//! part gets at most one source: the action that supplies most parts; then one that the schema relates by an index or a
//! foreign key; then the one whose key has the fewest other parts; then the latest.
//!
//! # Synchronization points
//!
//! A transaction waits at the end of each phase (a `join`, or an action awaited alone). There the actions of the phase meet
//! those before it on which they depend; or, if there are none, the first of all, at which the transaction has its home. A
//! phase that is a single action with nothing before it has no synchronization point. The bytes are those that go to the
//! data and come back in the phase, averaged over all runs.
//!
//! Invariant: the flow passes [`ClassFlow::check`] for the tables of the catalog.
//!
//! [`Database::table_names`]: crate::Database::table_names

mod actions;
mod dependencies;
mod flow;
mod trees;

use std::collections::BTreeSet;
use std::sync::Arc;

use atrapos_adapt::{ClassFlow, FlowAction, FlowDependency, FlowSyncPoint, TableIndex};
use atrapos_partition::schema::{Catalog, SchemaError};
use atrapos_transaction::recording::RecordedRun;

use self::actions::{Node, phases_of};
use self::dependencies::Seen;
use self::trees::Tree;
use super::fields::Asked;
use crate::database::Database;

pub use self::flow::{RecordedAction, RecordedFlow};

/// Recorded runs of one transaction class: of different arguments, failing ones among them.
///
/// ```
/// use atrapos::{Abort, ClassRecording, Database, Schema, Table, row};
///
/// row! { #[derive(Clone, Debug)] pub struct Account { pub owner: u64 } }
/// row! { #[derive(Clone, Debug)] pub struct Owner { pub age: u8 } }
/// struct Accounts;
/// impl Table for Accounts {
///     type Key = u64;
///     type Row = Account;
///     const NAME: &'static str = "accounts";
/// }
/// struct Owners;
/// impl Table for Owners {
///     type Key = u64;
///     type Row = Owner;
///     const NAME: &'static str = "owners";
///     const KEY_COLUMNS: &'static [&'static str] = &["owner_id"];
/// }
///
/// let db = Database::builder(Schema::new().table::<Accounts>().table::<Owners>()).workers(1).in_memory()?;
/// let (accounts, owners) = (db.table::<Accounts>()?, db.table::<Owners>()?);
/// let mut class = ClassRecording::new(&db);
/// for id in 0..20 {
///     db.run(accounts.at(&id), async move |tx| tx.insert(accounts, id, Account { owner: 1000 - id }).await)?;
///     let (_, run) = db.record(accounts.at(&id), async move |tx| {
///         let Some(account) = tx.get(accounts, id).await? else { return Ok(None) };
///         tx.get(owners, account.owner).await
///     })?;
///     class.add(run)?;
/// }
/// let flow = class.flow("age-of-owner").class;
/// assert_eq!(flow.actions.len(), 2);
/// assert_eq!(flow.dependencies[0].key, "owner_id");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct ClassRecording {
    catalog: Arc<Catalog>,
    runs: Vec<RecordedRun>,
}

impl std::fmt::Debug for ClassRecording {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ClassRecording").field("runs", &self.runs.len()).finish_non_exhaustive()
    }
}

impl ClassRecording {
    /// Creates a recording without runs, of a class of transactions on `db`.
    #[must_use]
    pub fn new(db: &Database) -> ClassRecording {
        ClassRecording { catalog: db.catalogs.visible(), runs: Vec::new() }
    }

    /// Adds a run.
    ///
    /// # Errors
    /// Fails if it was recorded on another database.
    pub fn add(&mut self, run: RecordedRun) -> Result<(), SchemaError> {
        if run.tag != self.catalog.tag {
            return Err(SchemaError::new(
                "the run was recorded on another database; record all runs of a class on the same one"
                    .to_owned(),
            ));
        }
        self.runs.push(run);
        Ok(())
    }

    /// Returns the number of runs.
    #[must_use]
    pub fn runs(&self) -> usize {
        self.runs.len()
    }

    /// Returns the flow graph of the class, called `name`.
    #[must_use]
    pub fn flow(&self, name: &str) -> RecordedFlow {
        let trees: Vec<Tree> = (0..self.catalog.tables.len()).map(|at| Tree::of(&self.catalog, at)).collect();
        let phases = phases_of(&self.runs);
        let nodes: Vec<Node> = phases.iter().flatten().copied().collect();
        let runs: Vec<Vec<Seen>> = self.runs.iter().map(|run| self.seen(run, &trees, &nodes)).collect();
        let count = |node: usize, run: &[Seen]| run.iter().filter(|seen| seen.node == node).count() as u32;
        let actions: Vec<FlowAction> = (0..nodes.len())
            .map(|at| FlowAction {
                table: TableIndex(u32::from(nodes[at].table.0)),
                operation: nodes[at].operation(),
                repeat_min: runs.iter().map(|run| count(at, run)).min().unwrap_or(0),
                repeat_max: runs.iter().map(|run| count(at, run)).max().unwrap_or(1),
            })
            .collect();
        let dependencies = self.dependencies(&nodes, &trees, &runs);
        let mut next = 0;
        let phases: Vec<Vec<u32>> = phases
            .iter()
            .map(|phase| {
                next += phase.len() as u32;
                (next - phase.len() as u32..next).collect()
            })
            .collect();
        let (sync_phases, sync_points) = sync_points(&phases, &actions, &dependencies, &runs);
        let by = |at: usize| {
            let asked = runs.iter().flatten().filter(|seen| seen.node == at);
            let parts = asked.map(|seen| seen.asked.fixed.len()).min().unwrap_or(0);
            trees[nodes[at].table.at()].names.iter().take(parts).cloned().collect()
        };
        RecordedFlow {
            actions: (0..nodes.len())
                .map(|at| RecordedAction { by: by(at), follows: nodes[at].follows })
                .collect(),
            class: ClassFlow {
                name: name.to_owned(),
                count: runs.len() as u64,
                actions,
                dependencies,
                sync_points,
            },
            phases,
            sync_phases,
            tables: self.catalog.tables.iter().map(|table| table.name.to_owned()).collect(),
            families: self.catalog.tables.iter().map(|table| table.family as u32).collect(),
            aborted: self.runs.iter().filter(|run| run.aborted).count() as u64,
        }
    }

    /// Returns the accesses of a run, with their keys and the rows they found decoded.
    fn seen(&self, run: &RecordedRun, trees: &[Tree], nodes: &[Node]) -> Vec<Seen> {
        run.accesses
            .iter()
            .map(|access| {
                let tree = &trees[access.table.at()];
                let node = Node::of(access);
                let known = nodes.iter().position(|other| *other == node);
                let found = access.rows.iter().flat_map(|(key, row)| tree.values(key, row));
                Seen {
                    node: known.expect("every access of every run has its node"),
                    phase: access.phase,
                    asked: Asked::of(&tree.parts, &access.asked),
                    found: found.collect(),
                    bytes: access.bytes,
                }
            })
            .collect()
    }
}

/// Returns the synchronization points, and the phases at whose end they are.
fn sync_points(
    phases: &[Vec<u32>],
    actions: &[FlowAction],
    dependencies: &[FlowDependency],
    runs: &[Vec<Seen>],
) -> (Vec<u32>, Vec<FlowSyncPoint>) {
    let mut points = (Vec::new(), Vec::new());
    for (at, phase) in phases.iter().enumerate() {
        let mut meeting: BTreeSet<u32> = phase.iter().copied().collect();
        let sources = dependencies.iter().filter(|edge| phase.contains(&edge.to)).map(|edge| edge.from);
        meeting.extend(sources);
        if meeting.len() == phase.len() && at > 0 {
            meeting.insert(0);
        }
        let most: u32 = meeting.iter().map(|action| actions[*action as usize].repeat_max).sum();
        if most < 2 {
            continue;
        }
        let of_phase = runs.iter().flatten().filter(|seen| phase.contains(&(seen.node as u32)));
        let bytes: u64 = of_phase.map(|seen| seen.bytes).sum();
        points.0.push(at as u32);
        points.1.push(FlowSyncPoint {
            actions: meeting.into_iter().collect(),
            bytes: (bytes + runs.len() as u64 / 2) / (runs.len() as u64).max(1),
        });
    }
    points
}
