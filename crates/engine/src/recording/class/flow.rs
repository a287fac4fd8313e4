//! The flow graph of a recorded class, with the details of its actions.
//!
//! Owns: the form of the result. Never: is changed once it is made.

use atrapos_adapt::{ClassFlow, TableIndex};

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
