//! Binding of aggregates of a row that is not there: `rank(3) WITHIN GROUP (ORDER BY value)`.

use sqlparser::ast;

use super::Binder;
use super::functions::no_function;
use crate::aggregate::{Aggregate, AggregateCall, Hypothetical};
use crate::error::SqlError;
use crate::types::SqlType;

impl Binder<'_> {
    /// Binds the call: its arguments are the values of the keys of the row that is not there.
    pub(super) fn hypothetical_call(
        &mut self,
        hypothetical: Hypothetical,
        name: &str,
        list: Option<&ast::FunctionArgumentList>,
        function: &ast::Function,
    ) -> Result<AggregateCall, SqlError> {
        let (filter, given) = self.filter_and_arguments(name, list, function)?;
        // They are the same for all rows of a group: they read what it is grouped by alone.
        self.set_inside(false);
        let are_of_group = given.iter().try_for_each(|argument| self.argument(argument, name).map(drop));
        self.set_inside(true);
        are_of_group?;
        let given =
            given.iter().map(|argument| self.argument(argument, name)).collect::<Result<Vec<_>, _>>()?;
        let keys = function.within_group.iter().map(|by| self.expr(&by.expr));
        let keys = keys.collect::<Result<Vec<_>, _>>()?;
        if given.len() != keys.len() {
            let types: Vec<SqlType> = given.iter().chain(&keys).map(|typed| typed.ty).collect();
            let (arguments, columns) = (given.len(), keys.len());
            return Err(no_function(name, &types).hint(format!(
                "To use the hypothetical-set aggregate {name}, the number of hypothetical direct arguments (here {arguments}) must match the number of ordering columns (here {columns})."
            )));
        }
        let (mut arguments, mut order) = (Vec::new(), Vec::new());
        for ((value, key), by) in given.into_iter().zip(keys).zip(&function.within_group) {
            let (mut both, _) = self.unify_all(vec![key, value], "WITHIN GROUP")?;
            let (Some(value), Some(key)) = (both.pop(), both.pop()) else { continue };
            if !value.subqueries().is_empty() {
                return Err(SqlError::unsupported(format!("a subquery in an argument of {name}")));
            }
            arguments.push(value);
            order.push(super::query::sort_key(key, by));
        }
        Ok(AggregateCall {
            aggregate: Aggregate::Hypothetical(hypothetical),
            arguments,
            ty: hypothetical.result(),
            distinct: false,
            order,
            filter,
        })
    }
}
