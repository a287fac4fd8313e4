//! Binding of calls: which function of a name takes arguments of these types.

use sqlparser::ast;

use super::{Binder, Typed, ident, object_name};
use crate::aggregate::{Aggregate, AggregateCall, Hypothetical, Ordered};
use crate::cast::{Castability, castability};
use crate::error::{SqlError, SqlState};
use crate::expr::{Expr, SubqueryKind};
use crate::functions::{ANY, Function, changes_session, named, tells_of_sizes};
use crate::plan::SortKey;
use crate::types::SqlType;

impl Binder<'_> {
    /// Binds the call of a function or an aggregate.
    pub(super) fn function(&mut self, function: &ast::Function) -> Result<Typed, SqlError> {
        let (_, name) = object_name(&function.name)?;
        if function.null_treatment.is_some() {
            return Err(SqlError::unsupported(format!("a clause in the call of {name}")));
        }
        if !matches!(function.parameters, ast::FunctionArguments::None) {
            return Err(SqlError::unsupported(format!("parameters in the call of {name}")));
        }
        let ordered = match Aggregate::named(&name) {
            Some(Aggregate::Ordered(ordered)) => Some(ordered),
            _ => None,
        };
        let hypothetical = Hypothetical::named(&name).filter(|_| !function.within_group.is_empty());
        check_order_of_group(&name, ordered.is_some() || hypothetical.is_some(), function)?;
        if let Some(over) = &function.over {
            return self.window(function, over);
        }
        let list = match &function.args {
            ast::FunctionArguments::None => None,
            ast::FunctionArguments::Subquery(query) if name == "array" => {
                let (subquery, columns) = self.subquery(query, None)?;
                let [(ty, _)] = columns[..] else {
                    return Err(SqlError::new(
                        SqlState::SYNTAX_ERROR,
                        "subquery must return only one column",
                    ));
                };
                let array = ty.array().ok_or_else(|| SqlError::unsupported(format!("an array of {ty}")))?;
                return Ok(Typed::new(Expr::Subquery(SubqueryKind::Array, subquery), array));
            }
            ast::FunctionArguments::Subquery(_) => {
                return Err(SqlError::unsupported(format!("a query as the argument of {name}")));
            }
            ast::FunctionArguments::List(list) => Some(list),
        };
        if let Some(hypothetical) = hypothetical {
            return self.aggregate(|binder| binder.hypothetical_call(hypothetical, &name, list, function));
        }
        if let Some(ordered) = ordered {
            return self.aggregate(|binder| binder.ordered_call(ordered, &name, list, function));
        }
        if let Some(aggregate) = Aggregate::named(&name) {
            let list = list
                .ok_or_else(|| SqlError::new(SqlState::SYNTAX_ERROR, format!("{name} needs an argument")))?;
            let filter = function.filter.as_deref();
            return self.aggregate(|binder| binder.aggregate_call(aggregate, &name, list, filter));
        }
        if function.filter.is_some() {
            return Err(SqlError::new(
                SqlState::WRONG_OBJECT_TYPE,
                format!("FILTER specified, but {name} is not an aggregate function"),
            ));
        }
        let mut arguments = Arguments::default();
        if let Some(list) = list {
            if list.duplicate_treatment.is_some() || !list.clauses.is_empty() {
                return Err(SqlError::unsupported(format!("a clause in the arguments of {name}")));
            }
            arguments = self.arguments(&list.args, &name)?;
        }
        if let Some(set) = self.set_function(&name, &arguments)? {
            return Ok(set);
        }
        self.call_with(&name, arguments).map_err(|error| {
            let position = self.position_of(&function.name);
            error.at(position)
        })
    }

    /// Binds the arguments of a call, those by their places and those by names.
    pub(super) fn arguments(
        &mut self,
        arguments: &[ast::FunctionArg],
        function: &str,
    ) -> Result<Arguments, SqlError> {
        let mut bound = Arguments::default();
        for argument in arguments {
            let Some((name, value)) = named_argument(argument) else {
                if !bound.names.is_empty() {
                    return Err(SqlError::new(
                        SqlState::SYNTAX_ERROR,
                        "positional argument cannot follow named argument",
                    ));
                }
                bound.values.push(self.argument(argument, function)?);
                continue;
            };
            let name = ident(name);
            if bound.names.contains(&name) {
                return Err(SqlError::new(
                    SqlState::SYNTAX_ERROR,
                    format!("argument name \"{name}\" used more than once"),
                ));
            }
            bound.values.push(self.expr(value)?);
            bound.names.push(name);
        }
        Ok(bound)
    }

    pub(super) fn argument(&mut self, argument: &ast::FunctionArg, name: &str) -> Result<Typed, SqlError> {
        match argument {
            ast::FunctionArg::Unnamed(ast::FunctionArgExpr::Expr(expr)) => self.expr(expr),
            _ => Err(SqlError::unsupported(format!("such an argument in the call of {name}"))),
        }
    }

    /// Binds the call of an aggregate as `bind` does, in the scope of the rows of its group.
    fn aggregate(
        &mut self,
        bind: impl FnOnce(&mut Self) -> Result<AggregateCall, SqlError>,
    ) -> Result<Typed, SqlError> {
        let misplaced = |message: &str| SqlError::new(SqlState::GROUPING_ERROR, message);
        match self.scopes.last().and_then(|scope| scope.grouping.as_ref()) {
            None => return Err(misplaced("aggregate functions are not allowed here")),
            Some(grouping) if grouping.is_inside => {
                return Err(misplaced("aggregate function calls cannot be nested"));
            }
            Some(_) => {}
        }
        self.set_inside(true);
        let bound = bind(self);
        self.set_inside(false);
        let call = bound?;
        let ty = call.ty;
        let Some(grouping) = self.scopes.last_mut().and_then(|scope| scope.grouping.as_mut()) else {
            return Err(misplaced("aggregate functions are not allowed here"));
        };
        grouping.calls.push(call);
        let at = grouping.groups.len() + grouping.calls.len() - 1;
        Ok(Typed::new(Expr::Column(at), ty))
    }

    /// Binds the filter of an aggregate with WITHIN GROUP, and returns it with the arguments.
    pub(super) fn filter_and_arguments<'a>(
        &mut self,
        name: &str,
        list: Option<&'a ast::FunctionArgumentList>,
        function: &ast::Function,
    ) -> Result<(Option<Expr>, &'a [ast::FunctionArg]), SqlError> {
        let filter = function.filter.as_deref();
        let filter = filter.map(|filter| self.condition(filter, "FILTER")).transpose()?;
        if list.is_some_and(|list| list.duplicate_treatment.is_some() || !list.clauses.is_empty()) {
            let message =
                format!("{name} takes no DISTINCT and no clause in its arguments beside WITHIN GROUP");
            return Err(SqlError::new(SqlState::SYNTAX_ERROR, message));
        }
        Ok((filter, list.map_or(&[][..], |list| &list.args[..])))
    }

    /// Binds the call of an aggregate of ordered rows.
    fn ordered_call(
        &mut self,
        ordered: Ordered,
        name: &str,
        list: Option<&ast::FunctionArgumentList>,
        function: &ast::Function,
    ) -> Result<AggregateCall, SqlError> {
        let (filter, given) = self.filter_and_arguments(name, list, function)?;
        let fraction =
            given.iter().map(|argument| self.argument(argument, name)).collect::<Result<Vec<_>, _>>()?;
        let [by] = &function.within_group[..] else {
            return Err(SqlError::unsupported(format!("several keys in the order of {name}")));
        };
        let value = self.expr(&by.expr)?;
        let mut types: Vec<SqlType> = fraction.iter().map(|fraction| fraction.ty).collect();
        types.push(value.ty);
        let wanted = ordered.value_type(value.ty).ok_or_else(|| no_function(name, &types))?;
        let value = self.coerce(value, wanted, Castability::Implicit)?.expr;
        let order = vec![super::query::sort_key(value.clone(), by)];
        let (mut arguments, mut ty) = (vec![value], wanted);
        for fraction in fraction {
            if arguments.len() == 2 || !ordered.takes_fraction() {
                return Err(no_function(name, &types));
            }
            let is_array = fraction.ty.element().is_some();
            let wanted_of = if is_array { SqlType::Float8Array } else { SqlType::Float8 };
            if is_array {
                ty = ty.array().ok_or_else(|| no_function(name, &types))?;
            }
            let fraction = self.coerce(fraction, wanted_of, Castability::Implicit)?.expr;
            let mut has_column = false;
            fraction.visit(&mut |part| has_column |= matches!(part, Expr::Column(_) | Expr::Subquery(..)));
            if has_column {
                return Err(SqlError::unsupported(format!("a fraction of {name} that is read from rows")));
            }
            arguments.push(fraction);
        }
        if ordered.takes_fraction() && arguments.len() == 1 {
            return Err(no_function(name, &types));
        }
        Ok(AggregateCall {
            aggregate: Aggregate::Ordered(ordered),
            arguments,
            ty,
            distinct: false,
            order,
            filter,
        })
    }

    pub(super) fn set_inside(&mut self, is_inside: bool) {
        if let Some(grouping) = self.scopes.last_mut().and_then(|scope| scope.grouping.as_mut()) {
            grouping.is_inside = is_inside;
        }
    }

    pub(super) fn aggregate_call(
        &mut self,
        aggregate: Aggregate,
        name: &str,
        list: &ast::FunctionArgumentList,
        filter: Option<&ast::Expr>,
    ) -> Result<AggregateCall, SqlError> {
        let filter = filter.map(|filter| self.condition(filter, "FILTER")).transpose()?;
        let order = self.aggregate_order(name, &list.clauses)?;
        let distinct = list.duplicate_treatment == Some(ast::DuplicateTreatment::Distinct);
        if let [ast::FunctionArg::Unnamed(ast::FunctionArgExpr::Wildcard)] = &list.args[..]
            && aggregate == Aggregate::Count
            && !distinct
        {
            return Ok(AggregateCall {
                aggregate,
                arguments: Vec::new(),
                ty: SqlType::Int8,
                distinct,
                order,
                filter,
            });
        }
        let mut arguments = Vec::new();
        for argument in &list.args {
            arguments.push(self.argument(argument, name)?);
        }
        let types: Vec<SqlType> = arguments.iter().map(|argument| argument.ty).collect();
        if arguments.len() != aggregate.arguments() {
            return Err(no_function(name, &types));
        }
        let first = arguments.remove(0);
        let first = if aggregate == Aggregate::Count { self.settled(first)? } else { first };
        let (wanted, ty) = aggregate.types(first.ty).ok_or_else(|| no_function(name, &types))?;
        let json = aggregate.json_argument();
        // The key of an object may be of any type.
        let needed = if json == Some(1) { Castability::Assignment } else { Castability::Implicit };
        let unknown = |error: SqlError| match error.code {
            SqlState::DATATYPE_MISMATCH => no_function(name, &types),
            _ => error,
        };
        let first = match json {
            Some(0) => self.json_of(first)?,
            _ => self.coerce(first, wanted, needed).map_err(unknown)?.expr,
        };
        let mut bound = vec![first];
        for rest in arguments {
            let rest_type = if aggregate.is_of_pairs() { wanted } else { SqlType::Text };
            bound.push(if json == Some(1) {
                self.json_of(rest)?
            } else {
                self.coerce(rest, rest_type, Castability::Implicit).map_err(unknown)?.expr
            });
        }
        if distinct && !order.is_empty() {
            return Err(SqlError::unsupported("DISTINCT and ORDER BY in one call of an aggregate"));
        }
        Ok(AggregateCall { aggregate, arguments: bound, ty, distinct, order, filter })
    }

    /// The JSON that a value is, or is brought to.
    fn json_of(&mut self, argument: Typed) -> Result<Expr, SqlError> {
        let argument = self.settled(argument)?;
        if matches!(argument.ty, SqlType::Json | SqlType::Jsonb) {
            return Ok(argument.expr);
        }
        Ok(Expr::Call(resolve("to_json", &[ANY], &[])?.0, vec![argument.expr]))
    }

    /// The order in the arguments of an aggregate.
    fn aggregate_order(
        &mut self,
        name: &str,
        clauses: &[ast::FunctionArgumentClause],
    ) -> Result<Vec<SortKey>, SqlError> {
        let mut keys = Vec::new();
        for clause in clauses {
            let ast::FunctionArgumentClause::OrderBy(exprs) = clause else {
                return Err(SqlError::unsupported(format!("a clause in the arguments of {name}")));
            };
            for by in exprs {
                let bound = self.expr(&by.expr)?;
                let bound = self.settled(bound)?;
                keys.push(super::query::sort_key(bound.expr, by));
            }
        }
        Ok(keys)
    }

    /// Binds the call of a function by its name.
    pub(super) fn call(&mut self, name: &str, arguments: Vec<Typed>) -> Result<Typed, SqlError> {
        self.call_with(name, Arguments { values: arguments, names: Vec::new() })
    }

    /// Binds the call of a function by its name, with arguments that may have names.
    pub(super) fn call_with(&mut self, name: &str, arguments: Arguments) -> Result<Typed, SqlError> {
        match name {
            _ if !arguments.names.is_empty() => {}
            "coalesce" => {
                let (parts, ty) = self.unify_all(arguments.values, "COALESCE")?;
                return Ok(Typed::new(Expr::Coalesce(parts), ty));
            }
            "greatest" | "least" => return self.extreme(name == "greatest", arguments.values),
            "nullif" => return self.null_if(arguments.values),
            "array_cat" | "array_append" | "array_prepend" | "array_remove" | "arraycontains"
            | "arraycontained" | "arrayoverlap" => return self.array_call(name, arguments.values),
            "width_bucket" if arguments.values.len() == 2 => return self.array_call(name, arguments.values),
            "array_replace" if arguments.values.len() == 3 => return self.array_replace(arguments),
            "trim_array" => {
                let ty = arguments.values.first().map_or(SqlType::Unknown, |array| array.ty);
                if ty.element().is_none() {
                    return Err(no_function(name, &arguments.types()));
                }
                return self.table_call(name, arguments).map(|call| Typed::new(call.expr, ty));
            }
            "array_fill" => {
                let filled = arguments.values.first().map_or(SqlType::Unknown, |value| value.ty);
                if filled == SqlType::Unknown {
                    let message = "could not determine polymorphic type because input has type unknown";
                    return Err(SqlError::new(SqlState::DATATYPE_MISMATCH, message));
                }
                let ty = filled.array().ok_or_else(|| no_function(name, &arguments.types()))?;
                return self.table_call(name, arguments).map(|call| Typed::new(call.expr, ty));
            }
            "array_position" | "array_positions" => {
                let bound = self.array_call("array_remove", arguments.values)?;
                let Expr::Call(_, parts) = bound.expr else { return Ok(bound) };
                let (function, _) = resolve(name, &[ANY, ANY], &[])?;
                return Ok(Typed::new(Expr::Call(function, parts), function.result));
            }
            _ => {}
        }
        self.table_call(name, arguments)
    }

    /// Binds the call of a function of the table of functions.
    fn table_call(&mut self, name: &str, arguments: Arguments) -> Result<Typed, SqlError> {
        self.tells_of_locks |= name == "pg_blocking_pids";
        self.tells_of_sizes |= tells_of_sizes(name);
        self.changes_session |= changes_session(name);
        let types = arguments.types();
        let (function, places) = resolve(name, &types, &arguments.names)?;
        let mut bound: Vec<Option<Expr>> = (0..function.arguments.len().max(types.len()))
            .map(|at| function.default(at).cloned().map(Expr::Const))
            .collect();
        for (at, argument) in places.into_iter().zip(arguments.values) {
            let wanted = function.argument(at).unwrap_or(ANY);
            let is_document = match name {
                "json_build_array" | "jsonb_build_array" => true,
                "json_build_object" | "jsonb_build_object" => at % 2 == 1,
                "to_json" | "to_jsonb" => matches!(argument.ty, SqlType::Json | SqlType::Jsonb),
                _ => false,
            };
            bound[at] = Some(if is_document {
                self.json_of(argument)?
            } else if wanted == ANY {
                self.settled(argument)?.expr
            } else {
                self.coerce(argument, wanted, Castability::Assignment)?.expr
            });
        }
        let mut bound: Vec<Expr> = bound.into_iter().flatten().collect();
        if let ("to_json" | "to_jsonb", [SqlType::Json | SqlType::Jsonb]) = (name, &types[..]) {
            let document = bound.remove(0);
            let from = types[0];
            return self.coerce(Typed::new(document, from), function.result, Castability::Explicit);
        }
        if name == "pg_typeof" {
            let ty = types.first().copied().unwrap_or(SqlType::Unknown);
            return Ok(Typed::new(Expr::Const(crate::value::Value::Int(ty.oid().into())), SqlType::Regtype));
        }
        Ok(Typed::new(Expr::Call(function, bound), function.result))
    }

    /// Binds `array_replace`, whose second and third arguments are elements of its first.
    fn array_replace(&mut self, mut arguments: Arguments) -> Result<Typed, SqlError> {
        let types = arguments.types();
        let to = arguments.values.pop();
        let bound = self.array_call("array_remove", arguments.values)?;
        let (Some(to), Expr::Call(_, mut parts), Some(element)) = (to, bound.expr, bound.ty.element()) else {
            return Err(no_function("array_replace", &types));
        };
        parts.push(self.coerce(to, element, Castability::Implicit)?.expr);
        let (function, _) = resolve("array_replace", &[ANY, ANY, ANY], &[])?;
        Ok(Typed::new(Expr::Call(function, parts), bound.ty))
    }

    /// Binds a function of arrays: the array, or both, have one type, and an element that of theirs.
    fn array_call(&mut self, name: &str, mut arguments: Vec<Typed>) -> Result<Typed, SqlError> {
        let types: Vec<SqlType> = arguments.iter().map(|argument| argument.ty).collect();
        let (Some(other), Some(one), None) = (arguments.pop(), arguments.pop(), arguments.pop()) else {
            return Err(no_function(name, &types));
        };
        let element_at = match name {
            "array_append" | "array_remove" => Some(1),
            "array_prepend" | "width_bucket" => Some(0),
            _ => None,
        };
        let (array, element) = if element_at == Some(0) { (&other, &one) } else { (&one, &other) };
        if array.ty.element().is_none() && array.ty != SqlType::Unknown {
            return Err(no_function(name, &types));
        }
        // The wider type of what both bring decides.
        let own = array.ty.element();
        let brought = if element_at.is_some() { Some(element.ty) } else { element.ty.element() };
        let element_ty = match (own, brought.filter(|ty| *ty != SqlType::Unknown)) {
            (Some(own), Some(brought)) => super::operators::common_type(own, brought),
            (one, other) => one.or(other),
        };
        let array_ty = element_ty.and_then(SqlType::array).ok_or_else(|| no_function(name, &types))?;
        let element_ty = element_ty.unwrap_or(SqlType::Text);
        let mut bound = Vec::new();
        for (at, argument) in [one, other].into_iter().enumerate() {
            let wanted = if element_at == Some(at) { element_ty } else { array_ty };
            bound.push(self.coerce(argument, wanted, Castability::Implicit)?.expr);
        }
        let (function, _) = resolve(name, &[ANY, ANY], &[])?;
        let ty = if function.result == ANY { array_ty } else { function.result };
        Ok(Typed::new(Expr::Call(function, bound), ty))
    }

    fn extreme(&mut self, is_greatest: bool, arguments: Vec<Typed>) -> Result<Typed, SqlError> {
        use crate::expr::CompareOp;
        let (parts, ty) = self.unify_all(arguments, if is_greatest { "GREATEST" } else { "LEAST" })?;
        let op = if is_greatest { CompareOp::Ge } else { CompareOp::Le };
        // NULLs are left out: one against the next, the better one goes on.
        let best = parts.into_iter().reduce(|best, next| {
            let is_better = Expr::Or(vec![
                Expr::Compare(op, Box::new(best.clone()), Box::new(next.clone())),
                Expr::IsNull(Box::new(next.clone())),
            ]);
            Expr::Case { conditions: vec![(is_better, best)], otherwise: Box::new(next) }
        });
        let best = best.ok_or_else(|| SqlError::new(SqlState::SYNTAX_ERROR, "a list of values is empty"))?;
        Ok(Typed::new(best, ty))
    }

    fn null_if(&mut self, mut arguments: Vec<Typed>) -> Result<Typed, SqlError> {
        use crate::expr::CompareOp;
        use crate::value::Value;
        let (Some(other), Some(one), None) = (arguments.pop(), arguments.pop(), arguments.pop()) else {
            return Err(SqlError::new(SqlState::SYNTAX_ERROR, "NULLIF takes two values"));
        };
        let one = self.settled(one)?;
        let equal = self.comparison(CompareOp::Eq, one.clone(), other)?.expr;
        let (ty, modifier) = (one.ty, one.modifier);
        let conditions = vec![(equal, Expr::Const(Value::Null))];
        Ok(Typed { expr: Expr::Case { conditions, otherwise: Box::new(one.expr) }, ty, modifier })
    }
}

/// The arguments of a call: those by their places, and behind them those by names.
#[derive(Clone, Debug, Default)]
pub(super) struct Arguments {
    pub(super) values: Vec<Typed>,
    /// The names of the last ones.
    pub(super) names: Vec<String>,
}

impl Arguments {
    pub(super) fn types(&self) -> Vec<SqlType> {
        self.values.iter().map(|argument| argument.ty).collect()
    }
}

/// The name and the value of an argument that is given by its name.
fn named_argument(argument: &ast::FunctionArg) -> Option<(&ast::Ident, &ast::Expr)> {
    use ast::FunctionArgOperator::{Assignment, RightArrow};
    match argument {
        ast::FunctionArg::ExprNamed {
            name: ast::Expr::Identifier(name),
            arg: ast::FunctionArgExpr::Expr(value),
            operator: Assignment | RightArrow,
        } => Some((name, value)),
        _ => None,
    }
}

/// The value of an argument, whether it has a name or not.
pub(super) fn argument_value(argument: &ast::FunctionArg) -> Option<&ast::Expr> {
    match argument {
        ast::FunctionArg::Unnamed(ast::FunctionArgExpr::Expr(value)) => Some(value),
        named => named_argument(named).map(|(_, value)| value),
    }
}

/// The function that takes arguments of these types, the last of which have names, with the places of the arguments: exactly, or with
/// the fewest conversions.
fn resolve(
    name: &str,
    types: &[SqlType],
    names: &[String],
) -> Result<(&'static Function, Vec<usize>), SqlError> {
    let cost = |function: &Function, places: &[usize]| -> Option<u32> {
        let mut total = 0;
        for (ty, at) in types.iter().zip(places) {
            let wanted = function.argument(*at)?;
            total += match () {
                () if *ty == wanted => 0,
                () if *ty == SqlType::Unknown && wanted == SqlType::Text => 1,
                () if *ty == SqlType::Unknown || wanted == ANY => 2,
                () if castability(*ty, wanted) == Some(Castability::Implicit) => {
                    // Numbers prefer the widest exact type that is offered, then double precision.
                    if wanted == SqlType::Float8 { 5 } else { 3 }
                }
                () if ty.is_integer()
                    && castability(*ty, wanted) == Some(Castability::Assignment)
                    && wanted == SqlType::Int4 =>
                {
                    20
                }
                () => return None,
            };
        }
        Some(total)
    };
    let best = named(name).filter_map(|function| {
        let places = function.places(types.len(), names)?;
        cost(function, &places).map(|cost| (cost, function, places))
    });
    let best = best.min_by_key(|(cost, ..)| *cost);
    best.map(|(_, function, places)| (function, places)).ok_or_else(|| no_function(name, types))
}

/// Refuses the order of a group where there is none, and its lack where there has to be one.
fn check_order_of_group(name: &str, is_ordered: bool, function: &ast::Function) -> Result<(), SqlError> {
    let wrong = |message: String| Err(SqlError::new(SqlState::UNDEFINED_FUNCTION, message));
    match (is_ordered, function.within_group.is_empty()) {
        (true, _) if function.over.is_some() => {
            Err(SqlError::unsupported(format!("OVER for ordered-set aggregate {name}")))
        }
        (true, true) => wrong(format!("WITHIN GROUP is required for ordered-set aggregate {name}")),
        (false, false) if Aggregate::named(name).is_some() => {
            wrong(format!("{name} is not an ordered-set aggregate, so it cannot have WITHIN GROUP"))
        }
        (false, false) => wrong(format!("WITHIN GROUP specified, but {name} is not an aggregate function")),
        _ => Ok(()),
    }
}

#[cold]
pub(super) fn no_function(name: &str, types: &[SqlType]) -> SqlError {
    let types: Vec<&str> = types.iter().map(|ty| ty.name()).collect();
    SqlError::new(
        SqlState::UNDEFINED_FUNCTION,
        format!("function {name}({}) does not exist", types.join(", ")),
    )
    .hint("No function matches the given name and argument types. You might need to add explicit type casts.")
}
