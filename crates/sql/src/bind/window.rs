//! Binding of window functions, and of functions in the list of a SELECT that return rows.
//!
//! Their values are columns that are added to the rows of the query. How many columns these have is known when all of the list is bound;
//! until then the added ones have numbers of their own ([`WINDOWS`], [`SETS`]).

use sqlparser::ast;

use super::functions::Arguments;
use super::sets::returns_rows;
use super::{Binder, Typed, object_name};
use crate::aggregate::Aggregate;
use crate::cast::Castability;
use crate::error::{SqlError, SqlState};
use crate::expr::Expr;
use crate::plan::{Frame, Node, RowsFunction, SortKey, WindowCall, WindowFunction};
use crate::types::SqlType;

/// The number of the first column of window functions.
const WINDOWS: usize = 1 << 40;
/// The number of the first column of functions that return rows.
const SETS: usize = 1 << 41;

/// The values that the list of a SELECT adds to the rows.
#[derive(Clone, Debug, Default)]
pub(super) struct Added {
    pub(super) windows: Vec<WindowCall>,
    pub(super) sets: Vec<(RowsFunction, Vec<Expr>)>,
    /// Set while an item is bound that may be such a function, or hold one.
    pub(super) is_open: bool,
}

impl Added {
    pub(super) fn is_empty(&self) -> bool {
        self.windows.is_empty() && self.sets.is_empty()
    }

    /// The expressions that are evaluated for a row of the query.
    pub(super) fn exprs(&self) -> impl Iterator<Item = &Expr> {
        let windows = self.windows.iter().flat_map(WindowCall::exprs);
        windows.chain(self.sets.iter().flat_map(|(_, arguments)| arguments))
    }

    /// Puts the nodes that add the columns above a node with so many.
    pub(super) fn above(mut self, mut node: Node, width: usize, exprs: &mut [Expr]) -> Node {
        let windows = self.windows.len();
        let placed = |expr: &Expr| {
            expr.map(&mut |part| match part {
                Expr::Column(at) if *at >= SETS => Some(Expr::Column(width + windows + at - SETS)),
                Expr::Column(at) if *at >= WINDOWS => Some(Expr::Column(width + at - WINDOWS)),
                _ => None,
            })
        };
        for expr in self.sets.iter_mut().flat_map(|(_, arguments)| arguments) {
            *expr = placed(expr);
        }
        for expr in exprs {
            *expr = placed(expr);
        }
        if windows > 0 {
            node = Node::Window { input: Box::new(node), calls: self.windows };
        }
        if !self.sets.is_empty() {
            node = Node::ProjectSet { input: Box::new(node), functions: self.sets };
        }
        node
    }
}

fn misplaced(what: &str) -> SqlError {
    SqlError::new(SqlState("42P20"), format!("{what} are not allowed here"))
}

impl Binder<'_> {
    fn added(&mut self) -> Option<&mut Added> {
        let scope = self.scopes.last_mut()?;
        if scope.grouping.as_ref().is_some_and(|grouping| grouping.is_inside) {
            return None;
        }
        Some(&mut scope.added).filter(|added| added.is_open)
    }

    /// Binds the call of a window function.
    pub(super) fn window(
        &mut self,
        function: &ast::Function,
        over: &ast::WindowType,
    ) -> Result<Typed, SqlError> {
        let (_, name) = object_name(&function.name)?;
        let ast::WindowType::WindowSpec(spec) = over else {
            return Err(SqlError::unsupported("a window with a name"));
        };
        if spec.window_name.is_some() {
            return Err(SqlError::unsupported("a window with a name"));
        }
        if self.added().is_none() {
            return Err(misplaced("window functions"));
        }
        let ast::FunctionArguments::List(list) = &function.args else {
            return Err(SqlError::unsupported(format!("the call of {name} over a window")));
        };
        self.set_open(false);
        let bound = self.window_call(&name, function, list, spec);
        self.set_open(true);
        let (call, ty) = bound?;
        let added = self.added().ok_or_else(|| misplaced("window functions"))?;
        added.windows.push(call);
        let at = WINDOWS + added.windows.len() - 1;
        Ok(Typed::new(Expr::Column(at), ty))
    }

    pub(super) fn set_open(&mut self, is_open: bool) {
        if let Some(scope) = self.scopes.last_mut() {
            scope.added.is_open = is_open;
        }
    }

    fn window_call(
        &mut self,
        name: &str,
        function: &ast::Function,
        list: &ast::FunctionArgumentList,
        spec: &ast::WindowSpec,
    ) -> Result<(WindowCall, SqlType), SqlError> {
        let frame = frame_of(spec)?;
        let mut partition = Vec::new();
        for expr in &spec.partition_by {
            let bound = self.expr(expr)?;
            partition.push(self.settled(bound)?.expr);
        }
        let mut order: Vec<SortKey> = Vec::new();
        for by in &spec.order_by {
            let bound = self.expr(&by.expr)?;
            let bound = self.settled(bound)?;
            order.push(super::query::sort_key(bound.expr, by));
        }
        let (function, arguments, ty) = match Aggregate::named(name) {
            Some(aggregate) => {
                if list.duplicate_treatment.is_some() || !list.clauses.is_empty() {
                    return Err(SqlError::unsupported(format!(
                        "DISTINCT or ORDER BY in {name} over a window"
                    )));
                }
                let call = self.aggregate_call(aggregate, name, list, function.filter.as_deref())?;
                let ty = call.ty;
                (WindowFunction::Aggregate(Box::new(call)), Vec::new(), ty)
            }
            None if function.filter.is_some() => {
                return Err(SqlError::unsupported(format!("FILTER in the call of {name}")));
            }
            None => self.own_window(name, list)?,
        };
        let call = WindowCall { function, arguments, partition, order, frame };
        if call.exprs().any(|expr| !expr.subqueries().is_empty()) {
            return Err(SqlError::unsupported("a subquery in a window function"));
        }
        Ok((call, ty))
    }

    /// Binds a function that is of windows alone.
    fn own_window(
        &mut self,
        name: &str,
        list: &ast::FunctionArgumentList,
    ) -> Result<(WindowFunction, Vec<Expr>, SqlType), SqlError> {
        let mut arguments = Vec::new();
        for argument in &list.args {
            let bound = self.argument(argument, name)?;
            arguments.push(bound);
        }
        let types: Vec<SqlType> = arguments.iter().map(|argument| argument.ty).collect();
        let (function, least, most) = match name {
            "row_number" => (WindowFunction::RowNumber, 0, 0),
            "rank" => (WindowFunction::Rank, 0, 0),
            "dense_rank" => (WindowFunction::DenseRank, 0, 0),
            "percent_rank" => (WindowFunction::PercentRank, 0, 0),
            "cume_dist" => (WindowFunction::CumeDist, 0, 0),
            "ntile" => (WindowFunction::Ntile, 1, 1),
            "lag" => (WindowFunction::Shift(-1), 1, 3),
            "lead" => (WindowFunction::Shift(1), 1, 3),
            "first_value" => (WindowFunction::FirstValue, 1, 1),
            "last_value" => (WindowFunction::LastValue, 1, 1),
            "nth_value" => (WindowFunction::NthValue, 2, 2),
            _ => {
                return Err(SqlError::new(
                    SqlState::WRONG_OBJECT_TYPE,
                    format!("OVER specified, but {name} is not a window function nor an aggregate function"),
                ));
            }
        };
        if !(least..=most).contains(&arguments.len()) {
            return Err(super::functions::no_function(name, &types));
        }
        let mut arguments = arguments.into_iter();
        let mut bound = Vec::new();
        let mut ty = match function {
            WindowFunction::PercentRank | WindowFunction::CumeDist => SqlType::Float8,
            WindowFunction::Ntile => SqlType::Int4,
            _ => SqlType::Int8,
        };
        if let Some(first) = arguments.next() {
            if matches!(function, WindowFunction::Ntile) {
                bound.push(self.coerce(first, SqlType::Int4, Castability::Assignment)?.expr);
            } else {
                let first = self.settled(first)?;
                ty = first.ty;
                bound.push(first.expr);
            }
        }
        if let Some(number) = arguments.next() {
            bound.push(self.coerce(number, SqlType::Int4, Castability::Assignment)?.expr);
        }
        if let Some(otherwise) = arguments.next() {
            bound.push(self.coerce(otherwise, ty, Castability::Implicit)?.expr);
        }
        Ok((function, bound, ty))
    }

    /// Binds a function in the list of a SELECT that returns rows; `None` if it is none.
    pub(super) fn set_function(
        &mut self,
        name: &str,
        arguments: &Arguments,
    ) -> Result<Option<Typed>, SqlError> {
        if !returns_rows(name) {
            return Ok(None);
        }
        let (function, exprs, ty) = self.rows_call(name, arguments.clone())?;
        let added = self.added().ok_or_else(|| {
            SqlError::unsupported(format!("{name} outside of FROM and the list of a SELECT"))
        })?;
        added.sets.push((function, exprs));
        let at = SETS + added.sets.len() - 1;
        Ok(Some(Typed { modifier: function.modifier(), ..Typed::new(Expr::Column(at), ty) }))
    }
}

/// The frame of a window: all that is here begins with the partition.
fn frame_of(spec: &ast::WindowSpec) -> Result<Frame, SqlError> {
    use ast::WindowFrameBound::{CurrentRow, Following, Preceding};
    let Some(frame) = &spec.window_frame else { return Ok(Frame::Peers) };
    let found = match (frame.units, &frame.start_bound, &frame.end_bound) {
        (_, Preceding(None), Some(Following(None))) => Some(Frame::Whole),
        (ast::WindowFrameUnits::Rows, Preceding(None), None | Some(CurrentRow)) => Some(Frame::Rows),
        (ast::WindowFrameUnits::Range, Preceding(None), None | Some(CurrentRow)) => Some(Frame::Peers),
        _ => None,
    };
    found.ok_or_else(|| {
        SqlError::unsupported("this frame of a window")
            .hint("A frame begins with UNBOUNDED PRECEDING and ends with CURRENT ROW or UNBOUNDED FOLLOWING.")
    })
}
