//! The transactions of YCSB by their names, for each shape of the records.

use std::future::Future;
use std::marker::PhantomData;

use atrapos::{Abort, Handles, Route, SchemaError, StoredProcedure, TableRef, Transaction};
use serde::{Deserialize, Serialize};

use super::copies::Copies;
use super::mix::Kind;
use super::parameters::Op;
use super::procedures::{self, Order};
use super::schema::{Keys, Record};

/// One operation as a transaction.
macro_rules! operations {
    ($(
        $(#[$meta:meta])*
        $name:ident($place:literal, $class:literal) { $($field:ident: $type:ty),* } -> $result:ty;
        $(reads: |$arguments:ident| $reads:expr;)?
        run: |$own:ident, $tx:ident, $table:ident| $run:expr;
    )+) => {$(
        $(#[$meta])*
        #[derive(Clone, Debug, Serialize, Deserialize)]
        #[serde(bound = "")]
        #[allow(missing_docs, reason = "arguments are explained where they are used")]
        pub struct $name<R> {
            pub key: u64,
            $(pub $field: $type,)*
            #[serde(skip)]
            pub shape: PhantomData<fn() -> R>,
        }

        impl<R: Record> StoredProcedure for $name<R> {
            const NAME: &'static str = R::PROCEDURES[$place];
            const CLASS: &'static str = $class;
            type Result = $result;
            type Tables = TableRef<R::Table>;

            fn tables(handles: &impl Handles) -> Result<TableRef<R::Table>, SchemaError> {
                handles.table()
            }

            #[inline(always)]
            fn home(&self, table: &TableRef<R::Table>) -> Route {
                let route = table.at(&self.key);
                $(
                    let $arguments = self;
                    if $reads {
                        return route.reading();
                    }
                )?
                route
            }

            #[inline]
            fn run<X: Transaction>(
                &self,
                $tx: &mut X,
                table: &TableRef<R::Table>,
            ) -> impl Future<Output = Result<$result, Abort>> {
                let ($own, $table) = (self, *table);
                $run
            }
        }
    )+};
}

operations! {
    /// Reads a record; `None` if there is none.
    Read(0, "read") {} -> Option<Copies>;
    reads: |_own| true;
    run: |own, tx, table| tx.view(table, own.key, |record| Copies::of(record.as_bytes()));

    /// Writes a new value to a column of a record; `None` if there is none.
    Update(1, "update") { column: u32 } -> Option<()>;
    run: |own, tx, table| {
        let (key, column) = (own.key, own.column);
        tx.edit(table, key, move |record| R::write_column(record, key, column))
    };

    /// Inserts a record.
    Insert(2, "insert") {} -> bool;
    run: |own, tx, table| tx.run(table.insert(own.key, R::new(own.key)));

    /// Reads up to `count` records from a key on. See [`scan`](procedures::scan).
    Scan(3, "scan") { keys: Keys, count: u32 } -> Copies;
    reads: |_own| true;
    run: |own, tx, table| procedures::scan::<R>(tx, table, own.keys, own.key, own.count);

    /// Reads a record and writes a new value to a column of it; `None` if there is none.
    ReadModifyWrite(4, "read-modify-write") { column: u32 } -> Option<Copies>;
    run: |own, tx, table| {
        let (key, column) = (own.key, own.column);
        tx.edit(table, key, move |record| {
            let before = Copies::of(record.as_bytes());
            R::write_column(record, key, column);
            before
        })
    };

    /// Runs several operations; the key is that of the first. See [`operations`](procedures::operations).
    Operations(5, "read-write") { keys: Keys, ops: Vec<Op>, order: Order } -> ();
    reads: |own| own.ops.iter().all(|op| matches!(op.kind, Kind::Read | Kind::Scan));
    run: |own, tx, table| procedures::operations::<R>(tx, table, own.keys, &own.ops, own.order);
}
