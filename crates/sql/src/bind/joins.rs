//! The plan of a FROM: conditions go down to the tables they are about, and joins find their way.
//!
//! The columns of all tables of a FROM have numbers one after the other; a node has those of a contiguous part of them, and its
//! expressions count from the first of these. Conditions with subqueries stay above all joins.

use std::sync::Arc;

use super::Binder;
use super::from::From;
use crate::access;
use crate::error::SqlError;
use crate::expr::{CompareOp, Expr};
use crate::plan::{Access, JoinKind, Node, Scan, WhenLocked};
use crate::schema::TableEntry;

impl Binder<'_> {
    /// Plans a FROM with the condition of its rows. `used` are the columns that are read above.
    pub(super) fn plan_from(
        &mut self,
        from: From,
        filter: Option<Expr>,
        mut used: Vec<usize>,
        locks: &[Lock],
    ) -> Result<Node, SqlError> {
        let conjuncts = match filter {
            None => Vec::new(),
            Some(Expr::And(parts)) => parts,
            Some(other) => vec![other],
        };
        conjuncts.iter().for_each(|conjunct| conjunct.columns(&mut used));
        used_by_joins(&from, &mut used);
        let (above, below): (Vec<Expr>, Vec<Expr>) =
            conjuncts.into_iter().partition(|conjunct| !conjunct.subqueries().is_empty());
        let node = build(from, below, &used, locks)?;
        Ok(filtered(node, above))
    }
}

/// A lock that a SELECT asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Lock {
    /// The number of the first column of the table whose rows are locked; all tables if there is none.
    pub(super) offset: Option<usize>,
    /// Set if rows are locked as if they were changed.
    pub(super) for_update: bool,
    pub(super) when_locked: WhenLocked,
}

/// The locks that a SELECT asks for.
pub(super) type Locks = Vec<Lock>;

/// The lock of the rows of a table: whether they are locked as if they were changed, and the fate of those that are locked.
fn lock_of(locks: &[Lock], offset: usize) -> (bool, WhenLocked) {
    let of_it = || locks.iter().filter(|lock| lock.offset.is_none_or(|of| of == offset));
    let when_locked = of_it().map(|lock| lock.when_locked).max().unwrap_or_default();
    (of_it().any(|lock| lock.for_update), when_locked)
}

/// One condition that holds when all do.
pub(super) fn all(mut conjuncts: Vec<Expr>) -> Option<Expr> {
    conjuncts.retain(|conjunct| !conjunct.is_true_constant());
    if conjuncts.len() > 1 { Some(Expr::And(conjuncts)) } else { conjuncts.pop() }
}

fn filtered(node: Node, conjuncts: Vec<Expr>) -> Node {
    match all(conjuncts) {
        Some(condition) => Node::Filter(Box::new(node), condition),
        None => node,
    }
}

fn used_by_joins(from: &From, used: &mut Vec<usize>) {
    if let From::Lateral { query, .. } = from {
        query.outer_columns(1, used);
    }
    if let From::Join { left, right, on, .. } = from {
        on.iter().for_each(|condition| condition.columns(used));
        used_by_joins(left, used);
        used_by_joins(right, used);
    }
}

/// The same expression for rows that begin `base` columns later.
fn shifted(expr: &Expr, base: usize) -> Expr {
    if base == 0 {
        return expr.clone();
    }
    expr.map(&mut |part| match part {
        Expr::Column(at) => Some(Expr::Column(at.saturating_sub(base))),
        _ => None,
    })
}

/// Returns true if all columns that it reads are in a range.
fn is_within(expr: &Expr, (start, end): (usize, usize)) -> bool {
    let mut used = Vec::new();
    expr.columns(&mut used);
    used.iter().all(|column| (start..end).contains(column))
}

/// Plans a part of a FROM, with conditions about it alone.
fn build(from: From, conjuncts: Vec<Expr>, used: &[usize], locks: &[Lock]) -> Result<Node, SqlError> {
    match from {
        From::Nothing => Ok(filtered(Node::Values(vec![Vec::new()]), conjuncts)),
        From::Other { node, offset, .. } => {
            let is_locked = lock_of(locks, offset) != (false, WhenLocked::Wait);
            if is_locked
                && !matches!(node, Node::Values(_) | Node::Rows(..) | Node::Ordinality(_) | Node::Virtual(_))
            {
                return Err(SqlError::unsupported("FOR UPDATE of a subquery"));
            }
            Ok(filtered(node, conjuncts.iter().map(|conjunct| shifted(conjunct, offset)).collect()))
        }
        From::Lateral { query, offset } => {
            // Without tables before it there is nothing that it could refer to but the row of no columns.
            let left = Box::new(Node::Values(vec![Vec::new()]));
            let right_width = query.columns.len();
            if offset > 0 {
                return Err(SqlError::unsupported("LATERAL in this place"));
            }
            let node = Node::Lateral {
                left,
                right: Box::new(query.root),
                kind: JoinKind::Inner,
                right_width,
                on: None,
            };
            Ok(filtered(node, conjuncts))
        }
        From::Table { table, offset } => {
            let conjuncts = conjuncts.iter().map(|conjunct| shifted(conjunct, offset)).collect();
            Ok(Node::Scan(Box::new(scan(table, offset, conjuncts, used, locks))))
        }
        From::Join { left, right, kind, on } => join(*left, *right, kind, on, conjuncts, used, locks),
    }
}

fn scan(table: Arc<TableEntry>, offset: usize, conjuncts: Vec<Expr>, used: &[usize], locks: &[Lock]) -> Scan {
    let (access, rest) = access::choose(&table, conjuncts);
    let width = table.columns.len();
    let mut columns: Vec<usize> =
        used.iter().filter_map(|at| at.checked_sub(offset)).filter(|at| *at < width).collect();
    columns.sort_unstable();
    columns.dedup();
    let (for_update, when_locked) = lock_of(locks, offset);
    Scan { table, access, filter: all(rest), columns, backward: false, for_update, when_locked }
}

fn join(
    left: From,
    right: From,
    kind: JoinKind,
    on: Vec<Expr>,
    conjuncts: Vec<Expr>,
    used: &[usize],
    locks: &[Lock],
) -> Result<Node, SqlError> {
    let (left_range, right_range) = (left.range(), right.range());
    let (mut to_left, mut to_right, mut between, mut above) =
        (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for conjunct in conjuncts {
        match kind {
            _ if !kind.keeps_right() && is_within(&conjunct, left_range) => to_left.push(conjunct),
            _ if !kind.keeps_left() && is_within(&conjunct, right_range) => to_right.push(conjunct),
            JoinKind::Inner => between.push(conjunct),
            _ => above.push(conjunct),
        }
    }
    for condition in on {
        match kind {
            _ if !condition.subqueries().is_empty() => {
                return Err(SqlError::unsupported("a subquery in the condition of a join"));
            }
            _ if !kind.keeps_right() && is_within(&condition, right_range) => to_right.push(condition),
            _ if !kind.keeps_left() && is_within(&condition, left_range) => to_left.push(condition),
            _ => between.push(condition),
        }
    }
    let base = left_range.0;
    let left = build(left, to_left, used, locks)?;
    let between: Vec<Expr> = between.iter().map(|condition| shifted(condition, base)).collect();
    let (left_width, right_width) = (left_range.1 - base, right_range.1 - right_range.0);
    let above = above.iter().map(|condition| shifted(condition, base)).collect();
    if let From::Table { table, offset } = &right
        && !kind.keeps_right()
        && let Some(found) = lookup(table, *offset, &to_right, &between, left_width, used, locks)
    {
        let node = Node::Lookup { left: Box::new(left), right: Box::new(found), kind, on: all(between) };
        return Ok(filtered(node, above));
    }
    if let From::Lateral { query, .. } = right {
        if base > 0 || kind.keeps_right() {
            return Err(SqlError::unsupported("LATERAL in this place"));
        }
        let mut on = between;
        on.extend(to_right);
        let node = Node::Lateral {
            left: Box::new(left),
            right: Box::new(query.root),
            kind,
            right_width,
            on: all(on),
        };
        return Ok(filtered(node, above));
    }
    let right = build(right, to_right, used, locks)?;
    let (mut keys, mut rest) = (Vec::new(), Vec::new());
    for condition in between {
        match hash_key(&condition, left_width) {
            Some(key) => keys.push(key),
            None => rest.push(condition),
        }
    }
    let (left, right) = (Box::new(left), Box::new(right));
    let node = Node::Join { left, right, kind, left_width, right_width, keys, on: all(rest) };
    Ok(filtered(node, above))
}

/// The two sides of an equation between the left and the right of a join, each for rows of its own side.
fn hash_key(condition: &Expr, left_width: usize) -> Option<(Expr, Expr)> {
    let Expr::Compare(CompareOp::Eq, one, other) = condition else { return None };
    let side = |expr: &Expr| {
        let mut used = Vec::new();
        expr.columns(&mut used);
        let is_left = |column: &usize| *column < left_width;
        let first = used.first()?;
        used.iter().all(|column| is_left(column) == is_left(first)).then(|| is_left(first))
    };
    match (side(one)?, side(other)?) {
        (true, false) => Some(((**one).clone(), shifted(other, left_width))),
        (false, true) => Some(((**other).clone(), shifted(one, left_width))),
        _ => None,
    }
}

/// A scan of the right side of a join by keys that come from the row of the left side, if there is such a way.
fn lookup(
    table: &Arc<TableEntry>,
    offset: usize,
    own: &[Expr],
    between: &[Expr],
    left_width: usize,
    used: &[usize],
    locks: &[Lock],
) -> Option<Scan> {
    if own.iter().chain(between).any(|condition| !condition.subqueries().is_empty()) {
        return None;
    }
    let from_left = between.iter().map(|condition| {
        condition.map(&mut |part| match part {
            Expr::Column(at) if *at < left_width => Some(Expr::Outer { level: 1, column: *at }),
            Expr::Column(at) => Some(Expr::Column(at - left_width)),
            Expr::Outer { level, column } => Some(Expr::Outer { level: level + 1, column: *column }),
            _ => None,
        })
    });
    let own_deeper = own.iter().map(|condition| {
        shifted(condition, offset).map(&mut |part| match part {
            Expr::Outer { level, column } => Some(Expr::Outer { level: level + 1, column: *column }),
            _ => None,
        })
    });
    let scan = scan(Arc::clone(table), offset, from_left.chain(own_deeper).collect(), used, locks);
    let reads_left = |expr: &Expr| {
        let mut reads = false;
        expr.visit(&mut |part| reads |= matches!(part, Expr::Outer { level: 1, .. }));
        reads
    };
    let is_useful = match &scan.access {
        Access::Full | Access::Keys(_) => false,
        Access::Key(values) => values.iter().any(reads_left),
        Access::Range { prefix, .. } => prefix.iter().any(reads_left),
    };
    is_useful.then_some(scan)
}
