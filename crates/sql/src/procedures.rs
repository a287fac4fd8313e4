//! Stored procedures that statements call (`CALL`): arguments and results are data on both sides.
//!
//! Owns: the names by which statements find procedures, and the way from values to arguments and from a result to a value. Never: runs a
//! procedure outside of a transaction, or looks at what it accesses: that is granted with the procedure.
//!
//! Arguments are given by position and become what the procedure's type reads: numbers, texts, truth values, arrays; what has parts of its own
//! comes as json. A result is one value of type json.

use std::collections::BTreeMap;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use atrapos::{Abort, AbortReason, Handles, Procedures, RegisterError, Route, StoredProcedure, Tx};
use serde_json::Value as Json;

use crate::error::{SqlError, SqlState};
use crate::types::SqlType;
use crate::value::Value;

/// A procedure that is running: its result as a text of json.
type Running<'a> = Pin<Box<dyn Future<Output = Result<String, Abort>> + 'a>>;

/// A call with its arguments.
pub(crate) trait Call: Send + Sync {
    /// The way to its home.
    fn route(&self) -> Route;

    /// Runs it in a transaction.
    fn run<'a>(&'a self, tx: &'a mut Tx<'_>) -> Running<'a>;
}

/// A procedure without its type.
trait Callable: Send + Sync {
    fn prepare(&self, arguments: Json) -> Result<Box<dyn Call>, serde_json::Error>;
}

struct Registered<P: StoredProcedure> {
    tables: P::Tables,
}

struct Prepared<P: StoredProcedure> {
    procedure: P,
    tables: P::Tables,
}

impl<P: StoredProcedure> Callable for Registered<P> {
    fn prepare(&self, arguments: Json) -> Result<Box<dyn Call>, serde_json::Error> {
        let procedure: P = serde_json::from_value(arguments)?;
        Ok(Box::new(Prepared { procedure, tables: self.tables }))
    }
}

impl<P: StoredProcedure> Call for Prepared<P> {
    fn route(&self) -> Route {
        self.procedure.home(&self.tables)
    }

    fn run<'a>(&'a self, tx: &'a mut Tx<'_>) -> Running<'a> {
        Box::pin(async move {
            let result = self.procedure.run(tx, &self.tables).await?;
            serde_json::to_string(&result).map_err(|error| {
                Abort::explained(AbortReason::User, format!("its result cannot be told: {error}"))
            })
        })
    }
}

/// The procedures that statements of a database may call. Fill it like a registry of the engine
/// ([`Procedures::register`]), and give it to [`SqlDatabase::open_with`](crate::SqlDatabase::open_with).
#[derive(Default)]
pub struct SqlProcedures {
    by_name: BTreeMap<String, Procedure>,
}

/// A procedure by its name.
#[derive(Clone)]
pub(crate) struct Procedure {
    /// The name as statements have it: with underscores in the place of dashes.
    pub(crate) name: Arc<str>,
    callable: Arc<dyn Callable>,
}

impl fmt::Debug for Procedure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

impl fmt::Debug for SqlProcedures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.by_name.keys()).finish()
    }
}

impl Procedures for SqlProcedures {
    fn register<P: StoredProcedure>(&mut self, handles: &impl Handles) -> Result<(), RegisterError> {
        let tables = P::tables(handles).map_err(|why| RegisterError::Schema { name: P::NAME, why })?;
        let name = P::NAME.replace('-', "_").to_lowercase();
        if self.by_name.contains_key(&name) {
            return Err(RegisterError::Taken(P::NAME));
        }
        let callable = Arc::new(Registered::<P> { tables });
        self.by_name.insert(name.clone(), Procedure { name: name.into(), callable });
        Ok(())
    }
}

impl SqlProcedures {
    /// The procedure of a name; its part behind the dot is enough if no other one has it.
    pub(crate) fn find(&self, name: &str) -> Result<&Procedure, SqlError> {
        if let Some(found) = self.by_name.get(name) {
            return Ok(found);
        }
        let is_own = |known: &&Procedure| known.name.split_once('.').is_some_and(|(_, own)| own == name);
        let mut found = self.by_name.values().filter(is_own);
        match (found.next(), found.next()) {
            (Some(procedure), None) => Ok(procedure),
            (Some(_), Some(_)) => Err(SqlError::new(
                SqlState::AMBIGUOUS_FUNCTION,
                format!(
                    "several procedures have the name {name}; write the name of the application, a dot and this name"
                ),
            )),
            (None, _) => {
                let names = self.by_name.keys().map(String::as_str).collect::<Vec<_>>().join(", ");
                let missing =
                    SqlError::new(SqlState::UNDEFINED_FUNCTION, format!("procedure {name} does not exist"));
                Err(missing.hint(if names.is_empty() {
                    "No procedures are registered with this database.".to_owned()
                } else {
                    format!("There are {names}.")
                }))
            }
        }
    }
}

impl Procedure {
    /// The name under which the access to it is kept: no table has it.
    pub(crate) fn access_name(&self) -> String {
        format!("{}()", self.name)
    }

    /// Makes a call of it ready.
    pub(crate) fn prepare(&self, arguments: &[(SqlType, Value)]) -> Result<Box<dyn Call>, SqlError> {
        let refused = |why: String| {
            SqlError::new(
                SqlState::INVALID_PARAMETER_VALUE,
                format!("these are no arguments of procedure {}: {why}", self.name),
            )
            .hint("Give them by position; what has parts of its own is given as json.")
        };
        let arguments: Result<Vec<Json>, SqlError> =
            arguments.iter().map(|(ty, value)| json(*ty, value).map_err(&refused)).collect();
        self.callable.prepare(Json::Array(arguments?)).map_err(|error| refused(error.to_string()))
    }
}

/// A value as what a procedure's type reads.
fn json(ty: SqlType, value: &Value) -> Result<Json, String> {
    Ok(match value {
        Value::Null => Json::Null,
        Value::Bool(value) => Json::Bool(*value),
        Value::Int(number) => Json::from(*number),
        Value::Float(number) => Json::from(*number),
        Value::Text(text) if matches!(ty, SqlType::Json | SqlType::Jsonb) => {
            serde_json::from_str(text).map_err(|error| error.to_string())?
        }
        Value::Text(text) => Json::from(&**text),
        Value::Bytes(bytes) => Json::from(bytes.to_vec()),
        Value::Numeric(_) => {
            serde_json::from_str(&crate::format::text_of(value, ty)).map_err(|error| error.to_string())?
        }
        Value::Array(elements) => {
            let of = ty.element().unwrap_or(SqlType::Text);
            Json::Array(elements.iter().map(|element| json(of, element)).collect::<Result<_, String>>()?)
        }
        _ => return Err(format!("a value of type {ty} is none; cast it to text or to a number")),
    })
}
