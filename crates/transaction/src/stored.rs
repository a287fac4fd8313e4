//! Stored procedures whose arguments and results are data ([`StoredProcedure`]), and the registry by which they are called by
//! name ([`Registry`]).
//!
//! # Encoding
//!
//! Arguments and results are encoded as a byte with the version of the format, [`FORMAT`], and the value as `postcard` writes
//! it: fields in their order, integers of variable length, no names. A procedure whose arguments or result change gets
//! another name.
//!
//! Owns: the encoding, the names. Never: runs a procedure, or moves bytes from process to process.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::future::Future;

use atrapos_partition::abort::{Abort, AbortReason};
use atrapos_partition::routing::Route;
use atrapos_partition::schema::{Catalog, Index, IndexRef, SchemaError, Table, TableRef};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::procedure::{AnyProcedure, Procedure};
use crate::session::Session;
use crate::transaction::Transaction;
use crate::tx::Tx;

/// Something that has handles of tables and indexes: a database, or an engine of another design.
pub trait Handles {
    /// The handle of table `T`.
    ///
    /// # Errors
    /// Fails if there is no such table.
    fn table<T: Table>(&self) -> Result<TableRef<T>, SchemaError>;

    /// The handle of index `I`.
    ///
    /// # Errors
    /// Fails if there is no such index.
    fn index<I: Index>(&self) -> Result<IndexRef<I>, SchemaError>;
}

impl Handles for Catalog {
    fn table<T: Table>(&self) -> Result<TableRef<T>, SchemaError> {
        Catalog::table(self)
    }

    fn index<I: Index>(&self) -> Result<IndexRef<I>, SchemaError> {
        Catalog::index(self)
    }
}

impl Handles for Session {
    fn table<T: Table>(&self) -> Result<TableRef<T>, SchemaError> {
        Session::table(self)
    }

    fn index<I: Index>(&self) -> Result<IndexRef<I>, SchemaError> {
        Session::index(self)
    }
}

/// A stored procedure with a name; the value holds its arguments.
///
/// It runs on any engine ([`Transaction`]), perhaps more than once, and may be asked for by another process.
pub trait StoredProcedure: Serialize + DeserializeOwned + Clone + Send + Sync + 'static {
    /// The name: that of its application, a dot, and its own.
    const NAME: &'static str;
    /// The class of its transactions: a database that observes itself knows how many of each class there are.
    const CLASS: &'static str;
    /// The result.
    type Result: Serialize + DeserializeOwned + Send + 'static;
    /// Handles of the tables and indexes that it uses.
    type Tables: Copy + Send + Sync + 'static;

    /// Looks up the handles.
    ///
    /// # Errors
    /// Fails if the database lacks a table or index.
    fn tables(handles: &impl Handles) -> Result<Self::Tables, SchemaError>;

    /// Returns the way to the data that decides where it runs.
    fn home(&self, tables: &Self::Tables) -> Route;

    /// Returns false if it is known to need data that its home may not have. Only a hint: it saves the attempt to run as a
    /// transaction that needs none (a direct one, which keeps no footprint and takes no locks).
    #[inline(always)]
    fn stays_home(&self) -> bool {
        true
    }

    /// Runs it in a transaction.
    ///
    /// # Errors
    /// The reason for which the transaction has to abort.
    fn run<X: Transaction>(
        &self,
        tx: &mut X,
        tables: &Self::Tables,
    ) -> impl Future<Output = Result<Self::Result, Abort>>;

    /// Returns it as a procedure that owns its arguments and handles.
    fn into_closure(self, tables: Self::Tables) -> impl Procedure<Self::Result> {
        async move |tx: &mut Tx<'_>| {
            tx.set_class(Self::CLASS);
            self.run(tx, &tables).await
        }
    }
}

/// Version of the encoding of arguments and results.
pub const FORMAT: u8 = 1;

/// Encodes the arguments of a procedure, or a result.
///
/// # Errors
/// Fails if the value cannot be encoded, for instance since it does not know its length.
pub fn encode(value: &impl Serialize) -> Result<Vec<u8>, CallError> {
    postcard::to_extend(value, vec![FORMAT]).map_err(|error| CallError::Encoding(error.to_string()))
}

/// Decodes what [`encode`] has written.
///
/// # Errors
/// Fails if the bytes are of another version, or no such value.
pub fn decode<V: DeserializeOwned>(bytes: &[u8]) -> Result<V, CallError> {
    let Some((&version, value)) = bytes.split_first() else {
        return Err(CallError::Arguments("they are empty".into()));
    };
    if version != FORMAT {
        return Err(CallError::Version(version));
    }
    match postcard::take_from_bytes(value) {
        Ok((value, [])) => Ok(value),
        Ok((_, rest)) => Err(CallError::Arguments(format!("{} bytes follow them", rest.len()))),
        Err(error) => Err(CallError::Arguments(error.to_string())),
    }
}

/// Reasons for which a procedure is not called, or its result is not known.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CallError {
    /// There is no procedure of that name.
    #[error("there is no procedure '{name}'; the ones there are: {known}")]
    Unknown {
        /// The name that was asked for.
        name: String,
        /// The names that there are.
        known: String,
    },
    /// The version of the encoding is not known.
    #[error(
        "the bytes have format {0}, and this version of the program reads format {FORMAT}; use the same version on both sides"
    )]
    Version(u8),
    /// The bytes are no arguments of the procedure, or no result of it.
    #[error("the bytes are no arguments or result of the procedure: {0}; encode and decode its own types")]
    Arguments(String),
    /// The value cannot be encoded.
    #[error("the value cannot be encoded: {0}")]
    Encoding(String),
    /// The transaction aborted.
    #[error(transparent)]
    Aborted(#[from] Abort),
}

/// A name that is registered twice, or a table that a procedure needs and the database does not have.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RegisterError {
    /// Two procedures have one name.
    #[error("two procedures have the name '{0}'; rename one")]
    Taken(&'static str),
    /// A table or index is missing.
    #[error("procedure '{name}' does not fit the database: {why}")]
    Schema {
        /// The procedure.
        name: &'static str,
        /// The table or index that is missing.
        why: SchemaError,
    },
}

/// A call of a procedure, ready to run: its result is a `Vec<u8>`, encoded by [`encode`].
#[derive(Debug)]
pub struct PreparedCall {
    /// The way to its home.
    pub route: Route,
    /// The class of the transaction.
    pub class: &'static str,
    /// The procedure with its arguments.
    pub procedure: AnyProcedure,
}

/// A collection of stored procedures that others may call by their names.
pub trait Procedures {
    /// Adds a procedure for a database, or for an engine of another design.
    ///
    /// # Errors
    /// Fails if the name is taken, or a table or index that the procedure uses is missing.
    fn register<P: StoredProcedure>(&mut self, handles: &impl Handles) -> Result<(), RegisterError>;
}

impl Procedures for Registry {
    fn register<P: StoredProcedure>(&mut self, handles: &impl Handles) -> Result<(), RegisterError> {
        Registry::register::<P>(self, handles)
    }
}

type Prepare<C> = Box<dyn Fn(&[u8]) -> Result<C, CallError> + Send + Sync>;

/// Names, each with the way from encoded arguments to a call that is ready to run.
pub struct ByName<C> {
    by_name: BTreeMap<&'static str, Prepare<C>>,
}

impl<C> Default for ByName<C> {
    fn default() -> ByName<C> {
        ByName { by_name: BTreeMap::new() }
    }
}

impl<C> std::fmt::Debug for ByName<C> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_set().entries(self.by_name.keys()).finish()
    }
}

impl<C> ByName<C> {
    /// Adds a procedure; `call` makes a call of it ready, with its handles.
    ///
    /// # Errors
    /// Fails if the name is taken, or a table or index that the procedure uses is missing.
    pub fn add<P: StoredProcedure>(
        &mut self,
        handles: &impl Handles,
        call: impl Fn(P, P::Tables) -> C + Send + Sync + 'static,
    ) -> Result<(), RegisterError> {
        let tables = P::tables(handles).map_err(|why| RegisterError::Schema { name: P::NAME, why })?;
        match self.by_name.entry(P::NAME) {
            Entry::Vacant(free) => {
                free.insert(Box::new(move |arguments: &[u8]| Ok(call(decode(arguments)?, tables))));
                Ok(())
            }
            Entry::Occupied(_) => Err(RegisterError::Taken(P::NAME)),
        }
    }

    /// The names, in their order.
    pub fn names(&self) -> impl Iterator<Item = &'static str> {
        self.by_name.keys().copied()
    }

    /// Decodes the arguments of a call.
    ///
    /// # Errors
    /// Fails if there is no such procedure, or the bytes are no arguments of it.
    pub fn prepare(&self, name: &str, arguments: &[u8]) -> Result<C, CallError> {
        match self.by_name.get(name) {
            Some(prepare) => prepare(arguments),
            None => {
                let known = self.names().collect::<Vec<_>>().join(", ");
                Err(CallError::Unknown { name: name.to_owned(), known })
            }
        }
    }
}

/// Procedures that are called by their names, with encoded arguments.
#[derive(Debug, Default)]
pub struct Registry(ByName<PreparedCall>);

impl Registry {
    /// Adds a procedure for a database.
    ///
    /// # Errors
    /// Fails if the name is taken, or the database lacks a table or index that the procedure uses.
    pub fn register<P: StoredProcedure>(&mut self, handles: &impl Handles) -> Result<(), RegisterError> {
        self.0.add(handles, |procedure: P, tables| {
            let route = procedure.home(&tables);
            let call = async move |tx: &mut Tx<'_>| {
                tx.set_class(P::CLASS);
                encode_result(&procedure.run(tx, &tables).await?)
            };
            PreparedCall { route, class: P::CLASS, procedure: AnyProcedure::new(call) }
        })
    }

    /// The names, in their order.
    pub fn names(&self) -> impl Iterator<Item = &'static str> {
        self.0.names()
    }

    /// Decodes the arguments of a call.
    ///
    /// # Errors
    /// Fails if there is no such procedure, or the bytes are no arguments of it.
    pub fn prepare(&self, name: &str, arguments: &[u8]) -> Result<PreparedCall, CallError> {
        self.0.prepare(name, arguments)
    }
}

/// Encodes the result of a transaction.
///
/// # Errors
/// Has the transaction abort if the value cannot be encoded.
pub fn encode_result(result: &impl Serialize) -> Result<Vec<u8>, Abort> {
    encode(result).map_err(|error| Abort::explained(AbortReason::InvalidValue, error.to_string()))
}
