//! The declaration of stored procedures with names. What they are is in `atrapos-transaction`.

/// Declares [stored procedures](crate::StoredProcedure): for each its name and class, its arguments and result, the handles that
/// it uses, the way to its home, perhaps whether it [stays there](crate::StoredProcedure::stays_home), and what it does in a
/// transaction of any engine. The crate that declares them depends on `serde` (with `derive`).
///
/// ```
/// use atrapos::{Abort, Database, Registry, Schema, Table, TableRef, Transaction, decode, encode, row};
///
/// row! { #[derive(Clone)] pub struct Account { pub cents: i64 } }
/// struct Accounts;
/// impl Table for Accounts {
///     type Key = u64;
///     type Row = Account;
///     const NAME: &'static str = "accounts";
/// }
///
/// async fn deposit(tx: &mut impl Transaction, accounts: TableRef<Accounts>, id: u64, cents: i64) -> Result<i64, Abort> {
///     let deposited = tx.update(accounts, id, move |account| { account.cents += cents; account.cents }).await?;
///     deposited.ok_or_else(|| Abort::user("there is no such account"))
/// }
///
/// atrapos::stored_procedures! {
///     /// Adds cents to an account, and returns how many it has then.
///     Deposit("bank.deposit", "deposit") { id: u64, cents: i64 } -> i64;
///     tables TableRef<Accounts>: |db| db.table();
///     home: |own, accounts| accounts.at(&own.id);
///     run: |own, tx, accounts| deposit(tx, *accounts, own.id, own.cents);
/// }
///
/// let db = Database::builder(Schema::new().table::<Accounts>()).workers(1).pin(false).in_memory()?;
/// let accounts = db.table::<Accounts>()?;
/// db.run(accounts.at(&7), async move |tx| tx.insert(accounts, 7, Account { cents: 100 }).await)?;
/// let mut registry = Registry::default();
/// registry.register::<Deposit>(&db)?;
/// let result = db.call(&registry, "bank.deposit", &encode(&Deposit { id: 7, cents: 20 })?)?;
/// assert_eq!(decode::<i64>(&result)?, 120);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[macro_export]
macro_rules! stored_procedures {
    ($(
        $(#[$meta:meta])*
        $vis:vis $name:ident($id:literal, $class:literal) { $($field:ident: $type:ty),* } -> $result:ty;
        tables $tables:ty: |$handles:ident| $find:expr;
        home: |$own:ident, $at:ident| $home:expr;
        $(stays_home: |$arguments:ident| $stays_home:expr;)?
        run: |$this:ident, $tx:ident, $with:ident| $run:expr;
    )+) => {$(
        $(#[$meta])*
        #[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
        #[allow(missing_docs, reason = "arguments are explained where they are used")]
        $vis struct $name {
            $($vis $field: $type,)*
        }

        impl $crate::StoredProcedure for $name {
            const NAME: &'static str = $id;
            const CLASS: &'static str = $class;
            type Result = $result;
            type Tables = $tables;

            fn tables($handles: &impl $crate::Handles) -> Result<$tables, $crate::SchemaError> {
                $find
            }

            #[inline(always)]
            fn home(&self, $at: &$tables) -> $crate::Route {
                let $own = self;
                $home
            }

            $(
                #[inline(always)]
                fn stays_home(&self) -> bool {
                    let $arguments = self;
                    $stays_home
                }
            )?

            #[inline]
            fn run<X: $crate::Transaction>(
                &self,
                $tx: &mut X,
                $with: &$tables,
            ) -> impl ::std::future::Future<Output = Result<$result, $crate::Abort>> {
                let $this = self;
                $run
            }
        }
    )+};
}
