//! Binding of CALL.

use sqlparser::ast;

use super::{Binder, Scope, ident};
use crate::error::{SqlError, SqlState};
use crate::plan::{OutputColumn, ProcedureCall};
use crate::roles::{Object, Privileges};
use crate::types::{Modifier, SqlType};

/// The name of a procedure in a statement: of its application, a dot and its own, or its own alone.
pub(crate) fn procedure_name(name: &ast::ObjectName) -> Result<String, SqlError> {
    let parts = name.0.iter().map(|part| part.as_ident().map(|part| ident(part).replace('-', "_")));
    let parts: Option<Vec<String>> = parts.collect();
    parts.map(|parts| parts.join(".")).ok_or_else(|| SqlError::unsupported(format!("the name {name}")))
}

impl Binder<'_> {
    pub(super) fn procedure_call(&mut self, call: &ast::Function) -> Result<ProcedureCall, SqlError> {
        let position = self.position_of(&call.name);
        let name = procedure_name(&call.name)?;
        let procedure = self.schema.procedures.find(&name).map_err(|error| error.at(position))?.clone();
        self.needs(Object::Procedure, &procedure.access_name(), Privileges::EXECUTE);
        let mut arguments = Vec::new();
        if let ast::FunctionArguments::List(list) = &call.args {
            if list.duplicate_treatment.is_some() || !list.clauses.is_empty() {
                return Err(SqlError::unsupported("a clause in the arguments of CALL"));
            }
            self.scopes.push(Scope::default());
            let bound: Result<Vec<_>, SqlError> = list
                .args
                .iter()
                .map(|argument| self.argument(argument, &name).and_then(|bound| self.settled(bound)))
                .collect();
            self.scopes.pop();
            arguments.extend(bound?.into_iter().map(|bound| (bound.ty, bound.expr)));
        }
        if arguments.iter().any(|(_, expr)| !expr.subqueries().is_empty()) {
            return Err(SqlError::new(
                SqlState::FEATURE_NOT_SUPPORTED,
                "cannot use subquery in CALL argument",
            ));
        }
        let result = OutputColumn {
            name: "result".to_owned(),
            ty: SqlType::Json,
            modifier: Modifier::None,
            origin: (0, 0),
        };
        Ok(ProcedureCall { procedure, arguments, columns: vec![result] })
    }
}
