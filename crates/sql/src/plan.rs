//! Plans: what a statement is made into, before it is run any number of times.
//!
//! Owns: the shape of plans. Never: evaluates anything.
//!
//! A row that flows between nodes has the columns of all tables of its `FROM` side by side; columns that nothing reads are NULL.

use std::cmp::Ordering;
use std::sync::Arc;

use crate::aggregate::AggregateCall;
use crate::catalogs::VirtualTable;
use crate::error::SqlError;
use crate::expr::{CompareOp, Env, Expr};
use crate::functions::DocumentRows;
use crate::procedures::{Call, Procedure};
use crate::roles::Need;
use crate::schema::TableEntry;
use crate::sink::Column;
use crate::types::{Modifier, SqlType};
use crate::value::Value;

/// The way to the rows of a table.
#[derive(Clone, Debug)]
pub(crate) enum Access {
    /// All of them.
    Full,
    /// One, by the values of its key, in order of the key.
    Key(Vec<Expr>),
    /// Some, by their keys: a list of values of the one column of the key.
    Keys(Vec<Expr>),
    /// Those whose keys begin with values and lie between bounds in the next column: of the table, or of an index by its place.
    Range { index: Option<usize>, prefix: Vec<Expr>, bounds: Vec<(CompareOp, Expr)> },
}

/// A scan of a table.
#[derive(Clone, Debug)]
pub(crate) struct Scan {
    pub(crate) table: Arc<TableEntry>,
    pub(crate) access: Access,
    /// The condition that rows meet, with the columns of the table alone.
    pub(crate) filter: Option<Expr>,
    /// The columns that are read.
    pub(crate) columns: Vec<usize>,
    /// Set if rows come from the greatest key to the smallest.
    pub(crate) backward: bool,
    /// Set if rows are locked as if they were changed (`FOR UPDATE`).
    pub(crate) for_update: bool,
    /// The fate of rows that others have locked.
    pub(crate) when_locked: WhenLocked,
}

/// The fate of a row that another transaction has locked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum WhenLocked {
    /// The scan waits for it.
    #[default]
    Wait,
    /// It is left out (`SKIP LOCKED`).
    Skip,
    /// The statement fails (`NOWAIT`).
    Fail,
}

/// The kind of a join.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum JoinKind {
    Inner,
    Left,
    Right,
    Full,
}

impl JoinKind {
    /// Returns true if rows of the left side that join nothing are kept.
    pub(crate) fn keeps_left(self) -> bool {
        matches!(self, JoinKind::Left | JoinKind::Full)
    }

    /// Returns true if rows of the right side that join nothing are kept.
    pub(crate) fn keeps_right(self) -> bool {
        matches!(self, JoinKind::Right | JoinKind::Full)
    }
}

/// A function that returns rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RowsFunction {
    GenerateSeries,
    Unnest,
    GenerateSubscripts,
    /// `_pg_expandarray`, of arrays of elements of this type.
    ExpandArray(SqlType),
    /// Parts of a document.
    Document(DocumentRows),
}

impl RowsFunction {
    /// The modifier of what it returns.
    pub(crate) fn modifier(self) -> Modifier {
        match self {
            RowsFunction::ExpandArray(element) => Modifier::Expanded(element),
            RowsFunction::Document(function) => function.modifier(),
            _ => Modifier::None,
        }
    }

    /// The name of its one column, if the function has one for it.
    pub(crate) fn column_name(self) -> Option<&'static str> {
        match self {
            RowsFunction::Document(function) => function.column_name(),
            _ => None,
        }
    }
}

/// An order of rows.
#[derive(Clone, Debug)]
pub(crate) struct SortKey {
    pub(crate) expr: Expr,
    pub(crate) descending: bool,
    pub(crate) nulls_first: bool,
}

/// A function over the rows of a window.
#[derive(Clone, Debug)]
pub(crate) enum WindowFunction {
    RowNumber,
    Rank,
    DenseRank,
    PercentRank,
    CumeDist,
    Ntile,
    /// `lead` with 1, `lag` with -1.
    Shift(i64),
    FirstValue,
    LastValue,
    NthValue,
    Aggregate(Box<AggregateCall>),
}

/// The rows of a partition that a function sees: from its first one to an end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Frame {
    /// To the last one that is equal to the current row in the order.
    Peers,
    /// To the current row.
    Rows,
    Whole,
}

/// A call of a function over a window.
#[derive(Clone, Debug)]
pub(crate) struct WindowCall {
    pub(crate) function: WindowFunction,
    pub(crate) arguments: Vec<Expr>,
    pub(crate) partition: Vec<Expr>,
    pub(crate) order: Vec<SortKey>,
    pub(crate) frame: Frame,
}

impl WindowCall {
    /// The expressions that it evaluates for a row.
    pub(crate) fn exprs(&self) -> impl Iterator<Item = &Expr> {
        let aggregate = match &self.function {
            WindowFunction::Aggregate(call) => Some(call),
            _ => None,
        };
        let own = self.arguments.iter().chain(&self.partition).chain(self.order.iter().map(|key| &key.expr));
        own.chain(aggregate.into_iter().flat_map(|call| call.exprs()))
    }
}

/// The order of two rows by the values of their keys.
pub(crate) fn compare_keys(keys: &[SortKey], one: &[Value], other: &[Value]) -> Ordering {
    let orders = keys.iter().zip(one.iter().zip(other)).map(|(key, (one, other))| {
        match (one.is_null(), other.is_null()) {
            (true, true) => Ordering::Equal,
            (true, false) if key.nulls_first => Ordering::Less,
            (true, false) => Ordering::Greater,
            (false, true) if key.nulls_first => Ordering::Greater,
            (false, true) => Ordering::Less,
            (false, false) if key.descending => other.total_cmp(one),
            (false, false) => one.total_cmp(other),
        }
    });
    orders.into_iter().find(|order| order.is_ne()).unwrap_or(Ordering::Equal)
}

/// A part of a plan that returns rows.
#[derive(Clone, Debug)]
pub(crate) enum Node {
    /// Rows of expressions.
    Values(Vec<Vec<Expr>>),
    Scan(Box<Scan>),
    Virtual(VirtualTable),
    Rows(RowsFunction, Vec<Expr>),
    /// The rows with their numbers behind them, from 1.
    Ordinality(Box<Node>),
    Filter(Box<Node>, Expr),
    Project(Box<Node>, Vec<Expr>),
    Join {
        left: Box<Node>,
        right: Box<Node>,
        kind: JoinKind,
        left_width: usize,
        right_width: usize,
        keys: Vec<(Expr, Expr)>,
        on: Option<Expr>,
    },
    /// For each row of `left`, a scan whose access refers to that row as the nearest outer one.
    Lookup {
        left: Box<Node>,
        right: Box<Scan>,
        kind: JoinKind,
        on: Option<Expr>,
    },
    /// For each row of `left`, the rows of `right`, which refer to that row as the nearest outer one.
    Lateral {
        left: Box<Node>,
        right: Box<Node>,
        kind: JoinKind,
        right_width: usize,
        on: Option<Expr>,
    },
    Aggregate {
        input: Box<Node>,
        groups: Vec<Expr>,
        calls: Vec<AggregateCall>,
    },
    /// The rows with a column for each call behind their own.
    Window {
        input: Box<Node>,
        calls: Vec<WindowCall>,
    },
    /// The rows with a column for each function behind their own, as often as the functions return rows.
    ProjectSet {
        input: Box<Node>,
        functions: Vec<(RowsFunction, Vec<Expr>)>,
    },
    Sort(Box<Node>, Vec<SortKey>),
    /// The first row of those with equal values: of the expressions, or of all columns if there are none.
    Distinct(Box<Node>, Vec<Expr>),
    Limit {
        input: Box<Node>,
        limit: Option<Expr>,
        offset: Option<Expr>,
    },
    /// All rows of several parts.
    Append(Vec<Node>),
    /// The rows of the first part that are (`keep`) or are not in the second: each once, or with `all` as often as they are left when
    /// each row of the second part stands for one.
    Combine {
        left: Box<Node>,
        right: Box<Node>,
        keep: bool,
        all: bool,
    },
    /// The rows of `base`, and those of `step` again and again, until it has no new ones. In `step` the rows that the last turn added
    /// are those of [`Node::Working`] with the same slot.
    Recursive {
        base: Box<Node>,
        step: Box<Node>,
        slot: usize,
        /// The slots of the subqueries of `step`, which are run again in each turn.
        inner: std::ops::Range<usize>,
        /// Set if a row that was there before is not added (`UNION`).
        distinct: bool,
    },
    /// The rows that the last turn of a recursive query has added.
    Working(usize),
}

/// A column of a query.
#[derive(Clone, Debug)]
pub(crate) struct OutputColumn {
    pub(crate) name: String,
    pub(crate) ty: SqlType,
    pub(crate) modifier: Modifier,
    /// The table's number and the column's in it, or zeros.
    pub(crate) origin: (u32, i16),
}

impl OutputColumn {
    pub(crate) fn described(&self) -> Column {
        Column {
            name: self.name.clone(),
            table: self.origin.0,
            number: self.origin.1,
            ty: self.ty,
            modifier: self.modifier,
        }
    }
}

/// A query.
#[derive(Clone, Debug)]
pub(crate) struct Query {
    pub(crate) root: Node,
    pub(crate) columns: Vec<OutputColumn>,
}

/// An INSERT: the table, and the source of its rows.
#[derive(Clone, Debug)]
pub(crate) struct Insert {
    pub(crate) table: Arc<TableEntry>,
    pub(crate) source: Node,
    /// The value of each column of the table, of a row of the source.
    pub(crate) values: Vec<Expr>,
    /// `ON CONFLICT`: nothing is done, or these columns of the row that is there are set. The row is the old one beside the new one.
    pub(crate) on_conflict: Option<Vec<(usize, Expr)>>,
    /// The condition of the two rows under which they are set.
    pub(crate) conflict_filter: Option<Expr>,
    pub(crate) checks: Vec<(String, Expr)>,
    pub(crate) returning: Option<(Vec<Expr>, Vec<OutputColumn>)>,
}

/// A change of rows.
#[derive(Clone, Debug)]
pub(crate) struct Update {
    /// The rows that are changed, unless `from` finds them.
    pub(crate) scan: Scan,
    /// `FROM`: rows whose first columns are those of the table.
    pub(crate) from: Option<Node>,
    pub(crate) assignments: Vec<(usize, Expr)>,
    pub(crate) checks: Vec<(String, Expr)>,
    pub(crate) returning: Option<(Vec<Expr>, Vec<OutputColumn>)>,
}

/// A removal of rows.
#[derive(Clone, Debug)]
pub(crate) struct Delete {
    /// The rows that are removed, unless `using` finds them.
    pub(crate) scan: Scan,
    /// `USING`: rows whose first columns are those of the table.
    pub(crate) using: Option<Node>,
    pub(crate) returning: Option<(Vec<Expr>, Vec<OutputColumn>)>,
}

/// A statement that the executor runs in a transaction.
#[derive(Clone, Debug)]
pub(crate) enum Work {
    Query(Query),
    Insert(Insert),
    Update(Update),
    Delete(Delete),
    /// `TRUNCATE`: all rows of these tables go.
    Truncate(Vec<Arc<TableEntry>>),
    Call(ProcedureCall),
}

/// `CALL` of a stored procedure.
#[derive(Clone, Debug)]
pub(crate) struct ProcedureCall {
    pub(crate) procedure: Procedure,
    pub(crate) arguments: Vec<(SqlType, Expr)>,
    /// The one column of its result.
    pub(crate) columns: Vec<OutputColumn>,
}

impl ProcedureCall {
    /// Makes a call of it ready.
    pub(crate) fn prepare(&self, env: &Env) -> Result<Arc<dyn Call>, SqlError> {
        let arguments: Result<Vec<(SqlType, Value)>, SqlError> =
            self.arguments.iter().map(|(ty, expr)| Ok((*ty, expr.eval(env, &[])?))).collect();
        self.procedure.prepare(&arguments?)
    }
}

/// A plan, with what its execution needs to know.
#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) work: Work,
    /// The tables that it uses.
    pub(crate) tables: Vec<Arc<TableEntry>>,
    /// The names of the views that it was made of.
    pub(crate) views: Vec<String>,
    /// The privileges that whoever runs it needs.
    pub(crate) needs: Vec<Need>,
    /// The number of its subqueries.
    pub(crate) subqueries: usize,
    /// Set if it tells of locks that transactions hold, so that a look at them comes before.
    pub(crate) tells_of_locks: bool,
    /// Set if it tells of the sizes of tables, so that workers are asked for them before.
    pub(crate) tells_of_sizes: bool,
    /// Set if its functions may change settings, take advisory locks, or sleep.
    pub(crate) changes_session: bool,
}

impl Plan {
    /// The plan that deletes the rows of tables which may be truncated.
    pub(crate) fn truncation(tables: Vec<Arc<TableEntry>>) -> Plan {
        Plan {
            work: Work::Truncate(tables.clone()),
            tables,
            views: Vec::new(),
            needs: Vec::new(),
            subqueries: 0,
            tells_of_locks: false,
            tells_of_sizes: false,
            changes_session: false,
        }
    }

    /// The columns of the rows that it returns; none if it returns none.
    pub(crate) fn columns(&self) -> Option<&[OutputColumn]> {
        match &self.work {
            Work::Query(query) => Some(&query.columns),
            Work::Insert(Insert { returning, .. })
            | Work::Update(Update { returning, .. })
            | Work::Delete(Delete { returning, .. }) => returning.as_ref().map(|(_, columns)| &**columns),
            Work::Truncate(_) => None,
            Work::Call(call) => Some(&call.columns),
        }
    }

    /// Returns true if it needs no transaction.
    pub(crate) fn is_on_no_table(&self) -> bool {
        self.tables.is_empty() && !matches!(self.work, Work::Call(_))
    }

    /// The node below those of a query without subqueries that filter rows, compute with them or break off.
    fn below(&self) -> Option<&Node> {
        let mut node = match &self.work {
            Work::Query(query) if self.subqueries == 0 => &query.root,
            _ => return None,
        };
        while let Node::Filter(input, _) | Node::Project(input, _) | Node::Limit { input, .. } = node {
            node = input;
        }
        Some(node)
    }

    /// Returns true if it computes rows of constants and reads none: it takes no longer than planning it did.
    pub(crate) fn is_of_constants(&self) -> bool {
        matches!(self.below(), Some(Node::Values(_)))
    }

    /// The table and the key of a query that looks up one row, without locking it for a change, and reads nothing else.
    pub(crate) fn one_read(&self) -> Option<(&TableEntry, &[Expr])> {
        match self.below() {
            Some(Node::Scan(scan)) if !scan.for_update && scan.when_locked == WhenLocked::Wait => {
                match &scan.access {
                    Access::Key(values) => Some((&scan.table, values)),
                    _ => None,
                }
            }
            _ => None,
        }
    }

    /// Returns true if it may wait for the statements behind it and be run together with them: nothing has to be known before it runs
    /// but its parameters, and what it does to the session concerns none of them.
    pub(crate) fn is_together(&self) -> bool {
        let is_apart = self.is_on_no_table() || matches!(self.work, Work::Truncate(_));
        !(is_apart || self.tells_of_locks || self.tells_of_sizes || self.changes_session)
    }

    /// The scan whose first row says where it runs.
    pub(crate) fn leading_scan(&self) -> Option<&Scan> {
        match &self.work {
            Work::Query(query) => query.root.leading_scan(),
            Work::Update(Update { from: Some(rows), .. })
            | Work::Delete(Delete { using: Some(rows), .. }) => rows.leading_scan(),
            Work::Update(update) => Some(&update.scan),
            Work::Delete(delete) => Some(&delete.scan),
            Work::Insert(_) | Work::Truncate(_) | Work::Call(_) => None,
        }
    }
}

impl Node {
    fn leading_scan(&self) -> Option<&Scan> {
        match self {
            Node::Scan(scan) => Some(scan),
            Node::Filter(input, _)
            | Node::Project(input, _)
            | Node::Sort(input, _)
            | Node::Distinct(input, _)
            | Node::Limit { input, .. }
            | Node::Window { input, .. }
            | Node::ProjectSet { input, .. }
            | Node::Recursive { base: input, .. }
            | Node::Aggregate { input, .. }
            | Node::Ordinality(input)
            | Node::Join { left: input, .. }
            | Node::Lookup { left: input, .. }
            | Node::Lateral { left: input, .. }
            | Node::Combine { left: input, .. } => input.leading_scan(),
            Node::Append(parts) => parts.first()?.leading_scan(),
            Node::Values(_) | Node::Virtual(_) | Node::Rows(..) | Node::Working(_) => None,
        }
    }

    /// Visits its expressions and those of its inputs, each with the number of rows around it that it brings itself.
    pub(crate) fn visit_exprs(&self, visit: &mut dyn FnMut(&Expr, usize)) {
        match self {
            Node::Values(rows) => rows.iter().flatten().for_each(|expr| visit(expr, 0)),
            Node::Scan(scan) => scan.visit_exprs(visit, 0),
            Node::Virtual(_) | Node::Working(_) => {}
            Node::Rows(_, arguments) => arguments.iter().for_each(|expr| visit(expr, 0)),
            Node::Ordinality(input) => input.visit_exprs(visit),
            Node::Filter(input, condition) => {
                input.visit_exprs(visit);
                visit(condition, 0);
            }
            Node::Project(input, exprs) => {
                input.visit_exprs(visit);
                exprs.iter().for_each(|expr| visit(expr, 0));
            }
            Node::Join { left, right, keys, on, .. } => {
                left.visit_exprs(visit);
                right.visit_exprs(visit);
                keys.iter().for_each(|(one, other)| {
                    visit(one, 0);
                    visit(other, 0);
                });
                on.iter().for_each(|expr| visit(expr, 0));
            }
            Node::Lookup { left, right, on, .. } => {
                left.visit_exprs(visit);
                right.visit_exprs(visit, 1);
                on.iter().for_each(|expr| visit(expr, 0));
            }
            Node::Lateral { left, right, on, .. } => {
                left.visit_exprs(visit);
                right.visit_exprs(&mut |expr, around| visit(expr, around + 1));
                on.iter().for_each(|expr| visit(expr, 0));
            }
            Node::Aggregate { input, groups, calls } => {
                input.visit_exprs(visit);
                groups.iter().for_each(|expr| visit(expr, 0));
                for call in calls {
                    call.exprs().for_each(|expr| visit(expr, 0));
                }
            }
            Node::Window { input, calls } => {
                input.visit_exprs(visit);
                calls.iter().flat_map(WindowCall::exprs).for_each(|expr| visit(expr, 0));
            }
            Node::ProjectSet { input, functions } => {
                input.visit_exprs(visit);
                functions.iter().flat_map(|(_, arguments)| arguments).for_each(|expr| visit(expr, 0));
            }
            Node::Sort(input, keys) => {
                input.visit_exprs(visit);
                keys.iter().for_each(|key| visit(&key.expr, 0));
            }
            Node::Distinct(input, on) => {
                input.visit_exprs(visit);
                on.iter().for_each(|expr| visit(expr, 0));
            }
            Node::Limit { input, limit, offset } => {
                input.visit_exprs(visit);
                limit.iter().chain(offset).for_each(|expr| visit(expr, 0));
            }
            Node::Append(parts) => parts.iter().for_each(|part| part.visit_exprs(visit)),
            Node::Combine { left, right, .. } | Node::Recursive { base: left, step: right, .. } => {
                left.visit_exprs(visit);
                right.visit_exprs(visit);
            }
        }
    }
}

impl Scan {
    fn visit_exprs(&self, visit: &mut dyn FnMut(&Expr, usize), around: usize) {
        match &self.access {
            Access::Full => {}
            Access::Key(values) | Access::Keys(values) => values.iter().for_each(|expr| visit(expr, around)),
            Access::Range { prefix, bounds, .. } => {
                prefix.iter().for_each(|expr| visit(expr, around));
                bounds.iter().for_each(|(_, expr)| visit(expr, around));
            }
        }
        self.filter.iter().for_each(|expr| visit(expr, around));
    }
}

impl Query {
    /// The columns of the row `level` rows around it that it reads.
    pub(crate) fn outer_columns(&self, level: usize, used: &mut Vec<usize>) {
        self.root.visit_exprs(&mut |expr, around| {
            expr.visit(&mut |part| match part {
                Expr::Outer { level: found, column } if *found == level + around => used.push(*column),
                Expr::Subquery(_, subquery) | Expr::InSubquery { subquery, .. } => {
                    subquery.query.outer_columns(level + around + 1, used);
                }
                _ => {}
            });
        });
    }

    /// Returns true if it reads a row around it.
    pub(crate) fn is_correlated(&self, level: usize) -> bool {
        let mut is_correlated = false;
        self.root.visit_exprs(&mut |expr, around| {
            expr.visit(&mut |part| match part {
                Expr::Outer { level: found, .. } => is_correlated |= *found >= level + around,
                Expr::Subquery(_, subquery) | Expr::InSubquery { subquery, .. } => {
                    is_correlated |= subquery.query.is_correlated(level + around + 1);
                }
                _ => {}
            });
        });
        is_correlated
    }
}
