//! PREPARE, EXECUTE and DEALLOCATE: prepared statements by SQL, the same as those of the extended protocol.
//!
//! Owns: the values of EXECUTE's parameters. Never: keeps a statement: `extended` does.

use std::sync::Arc;

use sqlparser::ast;

use super::Connection;
use super::running::give;
use crate::bind::{Binder, data_type, ident, object_name};
use crate::error::{SqlError, SqlState};
use crate::expr::Env;
use crate::format::Format;
use crate::sink::{Column, Sink};
use crate::types::SqlType;
use crate::value::Value;

impl Connection {
    pub(super) async fn prepare_named(
        &mut self,
        name: &ast::Ident,
        types: &[ast::DataType],
        statement: &ast::Statement,
        text: &str,
        sink: &mut dyn Sink,
    ) -> Result<(), SqlError> {
        if !super::planning::is_planned(statement) || matches!(statement, ast::Statement::Truncate(_)) {
            return Err(SqlError::new(
                SqlState::SYNTAX_ERROR,
                "only SELECT, INSERT, UPDATE, DELETE and VALUES can be prepared",
            ));
        }
        let given: Result<Vec<Option<SqlType>>, SqlError> =
            types.iter().map(|ty| data_type(ty).map(|(ty, _)| Some(ty))).collect();
        self.prepare_statement(&ident(name), text, Some(statement.clone()), given?).await?;
        sink.complete("PREPARE");
        Ok(())
    }

    pub(super) async fn execute_named(
        &mut self,
        name: Option<&ast::ObjectName>,
        parameters: &[ast::Expr],
        sink: &mut dyn Sink,
        describes: bool,
    ) -> Result<(), SqlError> {
        let name = name.ok_or_else(|| SqlError::unsupported("EXECUTE without a name"))?;
        let (_, name) = object_name(name)?;
        let (plan, columns) = self.prepared_plan(&name).await?;
        if plan.types.len() != parameters.len() {
            return Err(SqlError::new(
                SqlState::SYNTAX_ERROR,
                format!("wrong number of parameters for prepared statement \"{name}\""),
            )
            .detail(format!(
                "Expected {} parameters but got {}.",
                plan.types.len(),
                parameters.len()
            )));
        }
        let schema = self.schema();
        let env = Env::new(Arc::from([]), self.session(), Arc::clone(&schema));
        let mut values = Vec::with_capacity(parameters.len());
        for (parameter, ty) in parameters.iter().zip(plan.types.iter()) {
            values.push(Binder::new(&schema, "", &[]).value(parameter, *ty)?.eval(&env, &[])?);
        }
        let params: Arc<[Value]> = values.into();
        let formats: Arc<[Format]> = Arc::from([]);
        let answer = self.run(&plan, params, formats, false).await?;
        if let (Some(columns), true) = (&columns, describes) {
            sink.row_description(columns);
        }
        give(&answer.messages, answer.count, sink).await?;
        sink.complete(&answer.tag);
        Ok(())
    }

    pub(super) fn deallocate(&mut self, name: &ast::Ident, sink: &mut dyn Sink) -> Result<(), SqlError> {
        if name.quote_style.is_none() && name.value.eq_ignore_ascii_case("all") {
            self.statements.clear();
            sink.complete("DEALLOCATE ALL");
            return Ok(());
        }
        let name = ident(name);
        self.statements.remove(&name).ok_or_else(|| {
            SqlError::new(
                SqlState::INVALID_SQL_STATEMENT_NAME,
                format!("prepared statement \"{name}\" does not exist"),
            )
        })?;
        sink.complete("DEALLOCATE");
        Ok(())
    }

    /// The columns of the rows of a statement that becomes no plan.
    pub(super) fn columns_of_utility(&self, statement: &ast::Statement) -> Option<Vec<Column>> {
        match statement {
            ast::Statement::Fetch { name, into: None, .. } => self.cursor_columns(name),
            ast::Statement::Execute { name: Some(name), .. } => {
                let (_, name) = object_name(name).ok()?;
                self.prepared_columns(&name)
            }
            other => super::utility::utility_columns(other),
        }
    }
}
