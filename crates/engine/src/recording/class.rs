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

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use atrapos_adapt::{
    ClassFlow, FlowAction, FlowDependency, FlowOperation as Kind, FlowSyncPoint, TableIndex,
};
use atrapos_catalog::{KeyField, RowLayout, TableDef, is_placeholder};
use atrapos_partition::action::AccessKind;
use atrapos_partition::schema::{Catalog, SchemaError, TableId, TreeKind};
use atrapos_transaction::recording::{RecordedAccess, RecordedRun};

use super::fields::{Asked, Value, values_of_key, values_of_row};
use crate::database::Database;

/// The percentage of the occurrences of an action in which a dependency must hold.
const BORNE_OUT_PERCENT: u64 = 90;

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

/// The flow graph of a class, with details that a [`ClassFlow`] does not have.
#[derive(Clone, Debug, PartialEq)]
pub struct RecordedFlow {
    /// The graph. Its count is the number of runs; its tables are those of [`tables`](RecordedFlow::tables).
    pub class: ClassFlow,
    /// Details of each of its actions.
    pub actions: Vec<RecordedAction>,
    /// Positions of the actions that run together, in order of the phases; every action is in one phase.
    pub phases: Vec<Vec<u32>>,
    /// Phases at whose end the synchronization points are, in the order of the points.
    pub sync_phases: Vec<u32>,
    /// Names of all tables and indexes of the database, in catalog order.
    pub tables: Vec<String>,
    /// The position of each table's family among the families of the database.
    pub families: Vec<u32>,
    /// The number of runs that were aborted.
    pub aborted: u64,
}

/// Details of an action of a flow graph.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordedAction {
    /// Names of the parts of the key by which it accesses the table; for a range, of those that all its keys share.
    pub by: Vec<String>,
    /// True if it follows from a write, to maintain an index or enforce a foreign key.
    pub follows: bool,
}

impl RecordedFlow {
    /// Returns the graph with families in place of tables, as the traces of a database have them
    /// ([`Database::workload_trace`](crate::Database::workload_trace)).
    #[must_use]
    pub fn class_by_family(&self) -> ClassFlow {
        let mut class = self.class.clone();
        for action in &mut class.actions {
            action.table = TableIndex(self.families[action.table.index()]);
        }
        class
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

    /// Returns true if a write to `written` may be followed by an access of `then`.
    fn is_followed(&self, written: TableId, then: TableId) -> bool {
        let table = &self.catalog.tables[written.at()];
        table.indexes.iter().any(|index| index.id == then)
            || table.parents.iter().any(|parent| parent.parent == then)
            || table.children.iter().any(|child| child.through == then)
    }

    /// Returns true if an index or a declared dependency relates two tables.
    fn are_related(&self, a: TableId, b: TableId) -> bool {
        let is_index = |index: TableId, table: TableId| matches!(self.catalog.tables[index.at()].kind, TreeKind::Entries { of, .. } if of == table);
        let is_declared = |child: TableId, parent: TableId| {
            self.catalog.dependencies.iter().any(|known| (known.child, known.parent) == (child, parent))
        };
        is_index(a, b) || is_index(b, a) || is_declared(a, b) || is_declared(b, a)
    }

    /// Returns the dependencies between the actions. See the module's introduction.
    fn dependencies(&self, nodes: &[Node], trees: &[Tree], runs: &[Vec<Seen>]) -> Vec<FlowDependency> {
        let supplies = supplies(nodes, runs);
        let nothing = BTreeSet::new();
        let mut edges = Vec::new();
        for (to, node) in nodes.iter().enumerate() {
            let names = &trees[node.table.at()].names;
            let label = |parts: &BTreeSet<usize>| {
                let parts = parts.iter().filter_map(|part| names.get(*part).map(String::as_str));
                parts.collect::<Vec<_>>().join(", ")
            };
            let edge = |from: usize, key: String| FlowDependency { from: from as u32, to: to as u32, key };
            let supplied = |from: usize| supplies.get(&(from, to)).unwrap_or(&nothing);
            if node.follows {
                // What follows from a write depends on it, even if the key was computed in some other way.
                for from in (0..to).filter(|from| !nodes[*from].follows && nodes[*from].writes()) {
                    if self.is_followed(nodes[from].table, node.table) {
                        let parts = supplied(from);
                        edges
                            .push(edge(from, if parts.is_empty() { names.join(", ") } else { label(parts) }));
                    }
                }
                continue;
            }
            let mut covered = BTreeSet::new();
            loop {
                let best = (0..to)
                    .filter(|from| !nodes[*from].follows)
                    .map(|from| {
                        let parts = supplied(from);
                        let new = parts.difference(&covered).count();
                        let related = self.are_related(nodes[from].table, node.table);
                        let others = trees[nodes[from].table.at()].parts.len().saturating_sub(parts.len());
                        (new, related, std::cmp::Reverse(others), from)
                    })
                    .max();
                let Some((1.., .., from)) = best else { break };
                let new: BTreeSet<usize> = supplied(from).difference(&covered).copied().collect();
                edges.push(edge(from, label(&new)));
                covered.extend(new);
            }
        }
        edges.sort_by_key(|edge| (edge.to, edge.from));
        edges
    }
}

/// A tree of the catalog, with the layout of its keys and rows.
struct Tree {
    parts: Vec<KeyField>,
    /// The parts' names.
    names: Vec<String>,
    row: RowOf,
}

/// The layout of the rows of a tree.
enum RowOf {
    /// The columns of a table.
    Columns(RowLayout),
    /// The keys of a table, which an index leads to.
    Keys(Vec<KeyField>),
}

impl Tree {
    fn of(catalog: &Catalog, at: usize) -> Tree {
        let definitions = &catalog.definitions;
        let key_of = |table: TableId| {
            (
                definitions.key_fields(table.0),
                named(catalog.tables[table.at()].name, &definitions.key_names(table.0)),
            )
        };
        let table = TableId(at as u16);
        let (mut parts, mut names) = key_of(table);
        let row = match catalog.tables[at].kind {
            TreeKind::Rows | TreeKind::Dropped => {
                let columns = definitions.table(table.0).into_iter().flat_map(TableDef::row_columns);
                RowOf::Columns(RowLayout::new(columns))
            }
            TreeKind::Entries { of, unique } => {
                let (primary, primary_names) = key_of(of);
                if !unique {
                    // Keys of an index that is not unique end with the primary key.
                    parts.extend_from_slice(&primary);
                    names.extend(primary_names);
                }
                RowOf::Keys(primary)
            }
        };
        Tree { parts, names, row }
    }

    /// Returns the values of an entry of the tree.
    fn values(&self, key: &[u8], row: &[u8]) -> Vec<(Source, Value)> {
        let key = values_of_key(&self.parts, key).into_iter().map(|(_, value)| value);
        let mut values: Vec<_> = key.enumerate().map(|(at, value)| (Source::Key(at), value)).collect();
        let row: Vec<Option<Value>> = match &self.row {
            RowOf::Columns(layout) => values_of_row(layout, row),
            RowOf::Keys(parts) => {
                values_of_key(parts, row).into_iter().map(|(_, value)| Some(value)).collect()
            }
        };
        let row = row.into_iter().enumerate();
        values.extend(row.filter_map(|(at, value)| Some((Source::Column(at), value?))));
        values
    }
}

/// Returns the names of the parts of keys; for those that have none, their numbers.
fn named(table: &str, names: &[&str]) -> Vec<String> {
    let name = |(at, name): (usize, &&str)| {
        if is_placeholder(name) { format!("{table}.{at}") } else { (*name).to_owned() }
    };
    names.iter().enumerate().map(name).collect()
}

/// The place of a value in an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Source {
    /// A part of the key.
    Key(usize),
    /// A column of the row.
    Column(usize),
}

/// The identity of an action of the graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Node {
    table: TableId,
    /// The position of the operation in [`KINDS`].
    kind: usize,
    follows: bool,
}

/// The operations of accesses and of flow graphs.
const KINDS: [(AccessKind, Kind); 5] = [
    (AccessKind::Read, Kind::Read),
    (AccessKind::Scan, Kind::Scan),
    (AccessKind::Update, Kind::Update),
    (AccessKind::Insert, Kind::Insert),
    (AccessKind::Delete, Kind::Delete),
];

impl Node {
    fn of(access: &RecordedAccess) -> Node {
        let kind = KINDS.iter().position(|(kind, _)| *kind == access.kind.kind);
        let kind = kind.expect("the list has every operation");
        Node { table: access.table, kind, follows: access.kind.follows }
    }

    fn operation(self) -> Kind {
        KINDS[self.kind].1
    }

    fn writes(self) -> bool {
        matches!(self.operation(), Kind::Update | Kind::Insert | Kind::Delete)
    }
}

/// A decoded access.
struct Seen {
    node: usize,
    phase: u32,
    asked: Asked,
    found: Vec<(Source, Value)>,
    bytes: u64,
}

impl Seen {
    /// Returns the places of `value` in its key and, with `found_too`, in the rows it has found.
    fn sources<'a>(&'a self, value: &'a Value, found_too: bool) -> impl Iterator<Item = Source> + 'a {
        let asked = self.asked.fixed.iter().enumerate().filter(move |(_, known)| *known == value);
        let found = self.found.iter().filter(move |(_, known)| found_too && known == value);
        asked.map(|(at, _)| Source::Key(at)).chain(found.map(|(source, _)| *source))
    }
}

/// Returns the actions of all runs, by phase. Actions that were in one phase of any run are in one phase of the graph.
fn phases_of(runs: &[RecordedRun]) -> Vec<Vec<Node>> {
    let mut order: Vec<Node> = Vec::new();
    let mut together: Vec<Vec<Node>> = Vec::new();
    for run in runs {
        let mut after = 0;
        let mut phase: Vec<Node> = Vec::new();
        let mut phase_of = None;
        for access in &run.accesses {
            let node = Node::of(access);
            let this = (access.phase, node.follows);
            if phase_of.replace(this) != Some(this) {
                together.push(std::mem::take(&mut phase));
            }
            phase.push(node);
            // An action that other runs have not made comes right after the one before it in this run.
            after = match order.iter().position(|known| *known == node) {
                Some(at) => after.max(at + 1),
                None => {
                    order.insert(after, node);
                    after + 1
                }
            };
        }
        together.push(phase);
    }
    let mut group: Vec<usize> = (0..order.len()).collect();
    let at = |node: &Node| order.iter().position(|known| known == node).expect("all are in order");
    for phase in &together {
        for pair in phase.windows(2) {
            let (a, b) = (group[at(&pair[0])], group[at(&pair[1])]);
            group.iter_mut().filter(|group| **group == a.max(b)).for_each(|group| *group = a.min(b));
        }
    }
    let groups: BTreeSet<usize> = group.iter().copied().collect();
    let members = |wanted: usize| {
        order.iter().zip(&group).filter(move |(_, group)| **group == wanted).map(|(node, _)| *node).collect()
    };
    groups.into_iter().map(members).collect()
}

/// Returns, by (earlier, later) action, the parts of the later one's key that the earlier one supplies.
fn supplies(nodes: &[Node], runs: &[Vec<Seen>]) -> BTreeMap<(usize, usize), BTreeSet<usize>> {
    // Occurrences of each part of a key after the earlier action, and those in which each source had its value.
    let mut asked: BTreeMap<(usize, usize, usize), u64> = BTreeMap::new();
    let mut borne_out: BTreeMap<(usize, usize, usize, Source), u64> = BTreeMap::new();
    for run in runs {
        for (at, later) in run.iter().enumerate() {
            for from in 0..later.node {
                let earlier: Vec<&Seen> = run[..at].iter().filter(|seen| seen.node == from).collect();
                if earlier.is_empty() {
                    continue;
                }
                let parts = later.asked.fixed.len();
                let fixed = later.asked.fixed.iter().enumerate();
                let bounds = later.asked.bounds.iter().map(|value| (parts, value));
                let mut had: BTreeSet<(usize, Source)> = BTreeSet::new();
                for (part, value) in fixed.chain(bounds) {
                    for seen in &earlier {
                        // Actions of one phase have the same parameters, but not the rows that the others find.
                        let found_too = seen.phase < later.phase || nodes[later.node].follows;
                        had.extend(seen.sources(value, found_too).map(|source| (part, source)));
                    }
                }
                let parts = parts + usize::from(!later.asked.bounds.is_empty());
                (0..parts).for_each(|part| *asked.entry((from, later.node, part)).or_default() += 1);
                for (part, source) in had {
                    *borne_out.entry((from, later.node, part, source)).or_default() += 1;
                }
            }
        }
    }
    let mut supplies: BTreeMap<(usize, usize), BTreeSet<usize>> = BTreeMap::new();
    for ((from, to, part, _), hits) in borne_out {
        if hits * 100 >= asked[&(from, to, part)] * BORNE_OUT_PERCENT {
            supplies.entry((from, to)).or_default().insert(part);
        }
    }
    supplies
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
