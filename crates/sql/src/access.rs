//! The choice of the way to the rows of a table.
//!
//! Owns: which conditions of a statement are a key, a list of keys or a range. Never: evaluates one.
//!
//! The choice follows rules, not costs: a whole primary key, a list of keys, a whole unique index, then the way with the most leading
//! columns given. A condition that a key fulfils exactly is left out of the filter; all others stay in it.

use crate::expr::{CompareOp, Expr};
use crate::plan::Access;
use crate::schema::{IndexMeta, TableEntry};
use crate::types::SqlType;

/// A condition that a column is compared with something that does not depend on the row.
struct Bound<'a> {
    /// Its place among the conditions.
    at: usize,
    column: usize,
    op: CompareOp,
    value: &'a Expr,
}

/// The column that an expression is, perhaps brought to a wider type.
fn column_of(expr: &Expr) -> Option<usize> {
    match expr {
        Expr::Column(at) => Some(*at),
        Expr::Cast { value, from, to, .. } => {
            let exact = |ty: SqlType| ty.is_integer() || ty == SqlType::Numeric;
            let keeps_order = (exact(*from) && exact(*to)) || (from.is_text() && to.is_text());
            match &**value {
                Expr::Column(at) if keeps_order => Some(*at),
                _ => None,
            }
        }
        _ => None,
    }
}

fn bounds<'a>(conjuncts: &'a [Expr], table: &TableEntry) -> Vec<Bound<'a>> {
    let mut bounds = Vec::new();
    for (at, conjunct) in conjuncts.iter().enumerate() {
        let Expr::Compare(op, one, other) = conjunct else { continue };
        if *op == CompareOp::Ne {
            continue;
        }
        let (column, op, value) = match (column_of(one), column_of(other)) {
            (Some(column), None) => (column, *op, &**other),
            (None, Some(column)) => (column, op.flipped(), &**one),
            _ => continue,
        };
        // Floating-point numbers have several forms that are equal, and are not looked up by key.
        let is_float = matches!(table.columns[column].ty, SqlType::Float4 | SqlType::Float8);
        if value.is_row_independent() && !is_float {
            bounds.push(Bound { at, column, op, value });
        }
    }
    bounds
}

fn equal<'a, 'b>(bounds: &'b [Bound<'a>], column: usize) -> Option<&'b Bound<'a>> {
    bounds.iter().find(|bound| bound.column == column && bound.op == CompareOp::Eq)
}

/// Chooses the way to the rows of a table that meet all of some conditions; returns it with the conditions that rows have to be
/// checked for.
pub(crate) fn choose(table: &TableEntry, mut conjuncts: Vec<Expr>) -> (Access, Vec<Expr>) {
    let found = bounds(&conjuncts, table);
    if let Some(key) = table.cluster_key() {
        let parts: Option<Vec<&Bound<'_>>> =
            key.columns.iter().map(|(column, _)| equal(&found, *column)).collect();
        if let Some(parts) = parts {
            let values = parts.iter().map(|bound| bound.value.clone()).collect();
            let mut used: Vec<usize> = parts.iter().map(|bound| bound.at).collect();
            used.sort_unstable();
            used.iter().rev().for_each(|at| drop(conjuncts.remove(*at)));
            return (Access::Key(values), conjuncts);
        }
        if let [(column, _)] = key.columns[..]
            && let Some(values) = conjuncts.iter().find_map(|conjunct| key_list(conjunct, column))
        {
            return (Access::Keys(values), conjuncts);
        }
    }
    let mut best: Option<(usize, Access)> = None;
    for (at, index) in table.indexes.iter().enumerate() {
        let place = index.handle.is_some().then_some(at);
        let Some((score, access)) = range(&index.meta, place, &found) else { continue };
        if best.as_ref().is_none_or(|(known, _)| score > *known) {
            best = Some((score, access));
        }
    }
    (best.map_or(Access::Full, |(_, access)| access), conjuncts)
}

/// The keys of a condition that the one column of the key is in a list.
fn key_list(conjunct: &Expr, column: usize) -> Option<Vec<Expr>> {
    match conjunct {
        Expr::InList(value, list)
            if column_of(value) == Some(column) && list.iter().all(Expr::is_row_independent) =>
        {
            Some(list.clone())
        }
        Expr::Any { op: CompareOp::Eq, all: false, value, array }
            if column_of(value) == Some(column) && array.is_row_independent() =>
        {
            Some(vec![(**array).clone()])
        }
        _ => None,
    }
}

/// The range of an index, or of the table if `place` is none, and how good it is.
fn range(index: &IndexMeta, place: Option<usize>, found: &[Bound<'_>]) -> Option<(usize, Access)> {
    let mut prefix = Vec::new();
    let mut rest = index.columns.iter();
    let mut next = rest.next();
    while let Some(bound) = next.and_then(|(column, _)| equal(found, *column)) {
        prefix.push(bound.value.clone());
        next = rest.next();
    }
    let is_bounded = |bound: &&Bound<'_>| {
        next.is_some_and(|(column, descending)| {
            bound.column == *column && !descending && bound.op != CompareOp::Eq
        })
    };
    let bounds: Vec<(CompareOp, Expr)> =
        found.iter().filter(is_bounded).map(|bound| (bound.op, bound.value.clone())).collect();
    let is_whole_unique = index.unique && prefix.len() == index.columns.len();
    let score = prefix.len() * 4 + bounds.len().min(2) + usize::from(is_whole_unique) * 1000;
    // The table itself is better than an index that leads to it.
    let score = score * 2 + usize::from(place.is_none());
    (!prefix.is_empty() || !bounds.is_empty())
        .then_some((score, Access::Range { index: place, prefix, bounds }))
}
