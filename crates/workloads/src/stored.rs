//! The declaration of stored procedures with names, which is the same for all workloads.

/// Declares stored procedures: for each its name, its class, its arguments and result, the tables it uses, the way to its home,
/// and the function that it is.
macro_rules! stored_procedures {
    ($(
        $(#[$meta:meta])*
        $name:ident($id:literal, $class:literal) { $($field:ident: $type:ty),* } -> $result:ty;
        tables $tables:ty: |$handles:ident| $find:expr;
        home: |$own:ident, $at:ident| $home:expr;
        run: |$this:ident, $tx:ident, $with:ident| $run:expr;
    )+) => {$(
        $(#[$meta])*
        #[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
        #[allow(missing_docs, reason = "arguments are explained where they are used")]
        pub struct $name {
            $(pub $field: $type,)*
        }

        impl atrapos::StoredProcedure for $name {
            const NAME: &'static str = $id;
            const CLASS: &'static str = $class;
            type Result = $result;
            type Tables = $tables;

            fn tables($handles: &impl atrapos::Handles) -> Result<$tables, atrapos::SchemaError> {
                $find
            }

            #[inline(always)]
            fn home(&self, $at: &$tables) -> atrapos::Route {
                let $own = self;
                $home
            }

            #[inline]
            fn run<X: atrapos::Transaction>(
                &self,
                $tx: &mut X,
                $with: &$tables,
            ) -> impl Future<Output = Result<$result, atrapos::Abort>> {
                let $this = self;
                $run
            }
        }
    )+};
}

pub(crate) use stored_procedures;
