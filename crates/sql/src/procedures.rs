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
use serde::de::value::SeqAccessDeserializer;
use serde::de::{DeserializeSeed, Error as _, SeqAccess};
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
    fn prepare(&self, arguments: &[(SqlType, Value)]) -> Result<Arc<dyn Call>, serde_json::Error>;
}

struct Registered<P: StoredProcedure> {
    tables: P::Tables,
}

struct Prepared<P: StoredProcedure> {
    procedure: P,
    tables: P::Tables,
}

impl<P: StoredProcedure> Callable for Registered<P> {
    fn prepare(&self, arguments: &[(SqlType, Value)]) -> Result<Arc<dyn Call>, serde_json::Error> {
        let mut left = Arguments(arguments);
        let procedure = P::deserialize(SeqAccessDeserializer::new(&mut left))?;
        if left.0.is_empty() {
            Ok(Arc::new(Prepared { procedure, tables: self.tables }))
        } else {
            let (given, most) = (arguments.len(), arguments.len() - left.0.len());
            Err(serde_json::Error::custom(format!("there are {given} of them, and it takes {most}")))
        }
    }
}

impl<P: StoredProcedure> Call for Prepared<P> {
    fn route(&self) -> Route {
        self.procedure.home(&self.tables)
    }

    fn run<'a>(&'a self, tx: &'a mut Tx<'_>) -> Running<'a> {
        Box::pin(async move {
            tx.set_class(P::CLASS);
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
    pub(crate) fn prepare(&self, arguments: &[(SqlType, Value)]) -> Result<Arc<dyn Call>, SqlError> {
        self.callable.prepare(arguments).map_err(|why| {
            SqlError::new(
                SqlState::INVALID_PARAMETER_VALUE,
                format!("these are no arguments of procedure {}: {why}", self.name),
            )
            .hint("Give them by position; what has parts of its own is given as json.")
        })
    }
}

/// The arguments that a procedure's type has not read yet, as a sequence.
struct Arguments<'a>(&'a [(SqlType, Value)]);

impl<'a> SeqAccess<'a> for &mut Arguments<'a> {
    type Error = serde_json::Error;

    fn next_element_seed<T: DeserializeSeed<'a>>(
        &mut self,
        seed: T,
    ) -> Result<Option<T::Value>, serde_json::Error> {
        let Some(((ty, value), left)) = self.0.split_first() else { return Ok(None) };
        self.0 = left;
        if let (Value::Text(text), SqlType::Json | SqlType::Jsonb) = (value, ty) {
            // Read as what it is to become: as values of json first, it would take several times as long.
            let mut reader = serde_json::Deserializer::from_str(text);
            let argument = seed.deserialize(&mut reader)?;
            reader.end()?;
            return Ok(Some(argument));
        }
        seed.deserialize(json(*ty, value)?).map(Some)
    }

    fn size_hint(&self) -> Option<usize> {
        Some(self.0.len())
    }
}

/// A value as what a procedure's type reads.
fn json(ty: SqlType, value: &Value) -> Result<Json, serde_json::Error> {
    Ok(match value {
        Value::Null => Json::Null,
        Value::Bool(value) => Json::Bool(*value),
        Value::Int(number) => Json::from(*number),
        Value::Float(number) => Json::from(*number),
        Value::Text(text) if matches!(ty, SqlType::Json | SqlType::Jsonb) => serde_json::from_str(text)?,
        Value::Text(text) => Json::from(&**text),
        Value::Bytes(bytes) => Json::from(bytes.to_vec()),
        Value::Numeric(_) => serde_json::from_str(&crate::format::text_of(value, ty))?,
        Value::Array(elements) => {
            let of = ty.element().unwrap_or(SqlType::Text);
            Json::Array(
                elements.iter().map(|element| json(of, element)).collect::<Result<_, serde_json::Error>>()?,
            )
        }
        _ => {
            let why = format!("a value of type {ty} is none; cast it to text or to a number");
            return Err(serde_json::Error::custom(why));
        }
    })
}
