//! Actions of a flow graph, and their phases.
//!
//! Owns: the identity and the order of the actions. Never: reads keys or rows.

use std::collections::BTreeSet;

use atrapos_adapt::FlowOperation as Kind;
use atrapos_partition::action::AccessKind;
use atrapos_partition::schema::TableId;
use atrapos_transaction::recording::{RecordedAccess, RecordedRun};

/// The identity of an action of the graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Node {
    pub(super) table: TableId,
    /// The position of the operation in [`KINDS`].
    kind: usize,
    pub(super) follows: bool,
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
    pub(super) fn of(access: &RecordedAccess) -> Node {
        let kind = KINDS.iter().position(|(kind, _)| *kind == access.kind.kind);
        let kind = kind.expect("the list has every operation");
        Node { table: access.table, kind, follows: access.kind.follows }
    }

    pub(super) fn operation(self) -> Kind {
        KINDS[self.kind].1
    }

    pub(super) fn writes(self) -> bool {
        matches!(self.operation(), Kind::Update | Kind::Insert | Kind::Delete)
    }
}

/// Returns the actions of all runs, by phase. Actions that were in one phase of any run are in one phase of the graph.
pub(super) fn phases_of(runs: &[RecordedRun]) -> Vec<Vec<Node>> {
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
