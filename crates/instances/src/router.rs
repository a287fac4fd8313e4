//! The choice of the instance that a call goes to, made by a client that has the schema.
//!
//! Owns: the scheme of a deployment as a client sees it. Never: runs a procedure. An instance checks the choice: a wrong one costs a
//! round trip.

use atrapos::{CallError, InstanceId, RegisterError, Registry, Schema, SchemaError, Scheme};
use atrapos_partition::schema::Catalog;

use crate::keys::{ChosenKeys, KeysError, division_of};

/// The handles of tables and indexes of a schema, for the registration of procedures.
pub type SchemaHandles = Catalog;

/// The owners of all keys of a deployment, and the procedures whose home keys are known.
#[derive(Debug)]
pub(crate) struct Router {
    scheme: Scheme,
    registry: Registry,
}

/// Reasons for which there is no router.
#[derive(Debug, thiserror::Error)]
pub enum RouterError {
    /// The schema contradicts itself.
    #[error(transparent)]
    Schema(#[from] SchemaError),
    /// The keys that the instances have are not those of the schema.
    #[error(transparent)]
    Keys(#[from] KeysError),
    /// A procedure does not fit the schema.
    #[error(transparent)]
    Register(#[from] RegisterError),
}

impl Router {
    /// Creates the router of a deployment of `workers[i]` workers in instance `i`, for the procedures that `register` adds; `keys` has
    /// the keys that are chosen for each instance, or nothing.
    ///
    /// # Errors
    /// Fails if the schema contradicts itself, or a procedure or the chosen keys do not fit it.
    pub(crate) fn new(
        schema: Schema,
        workers: &[usize],
        keys: &[ChosenKeys],
        register: impl FnOnce(&mut Registry, &SchemaHandles) -> Result<(), RegisterError>,
    ) -> Result<Router, RouterError> {
        let catalog = Catalog::new(schema)?;
        // One that is none of them sees all partitions as those of others.
        let nobody = InstanceId(workers.len() as u16);
        let scheme = Scheme::of_instance(&catalog, &division_of(&catalog, nobody, workers.to_vec(), keys)?)?;
        let mut registry = Registry::default();
        register(&mut registry, &catalog)?;
        Ok(Router { scheme, registry })
    }

    /// Returns the instance that owns the home key of a call; `None` if the procedure is not known here, or has no home key.
    ///
    /// # Errors
    /// The bytes are no arguments of the procedure.
    pub(crate) fn home(&self, name: &str, arguments: &[u8]) -> Result<Option<InstanceId>, CallError> {
        match self.registry.prepare(name, arguments) {
            Ok(call) => Ok(self.scheme.instance_of(&call.route)),
            Err(CallError::Unknown { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use atrapos::{Table, encode, row};

    use super::*;
    use crate::keys::KeyBounds;

    row! { #[derive(Clone)] pub(crate) struct Count { pub(crate) number: u64 } }
    pub(crate) struct Counts;
    impl Table for Counts {
        type Key = u64;
        type Row = Count;
        const NAME: &'static str = "counts";
    }

    atrapos::stored_procedures! {
        /// Reads a number.
        pub(crate) Read("test.read", "read") { key: u64 } -> Option<u64>;
        tables atrapos::TableRef<Counts>: |db| db.table();
        home: |own, table| table.at(&own.key);
        run: |own, tx, table| async move { Ok(tx.get(*table, own.key).await?.map(|count| count.number)) };
    }

    #[test]
    fn the_home_is_the_instance_that_owns_the_key() {
        let schema = Schema::new().table::<Counts>().split_evenly("counts", 0, 99);
        let router = Router::new(schema, &[1, 2, 1], &[], Registry::register::<Read>);
        let router = router.expect("a sound schema");
        let home = |key| router.home("test.read", &encode(&Read { key }).expect("encodes"));
        let homes = [0, 24, 25, 74, 75, 1000].map(|key| home(key).expect("arguments").map(|home| home.0));
        assert_eq!(homes, [Some(0), Some(0), Some(1), Some(1), Some(2), Some(2)]);
        let schema = Schema::new().table::<Counts>().split_evenly("counts", 0, 99);
        let keys = [(Some("90"), None), (None, Some("90"))].map(|(from, below)| {
            let bounds = KeyBounds { from: from.map(str::to_owned), below: below.map(str::to_owned) };
            ChosenKeys::from([("counts".to_owned(), bounds)])
        });
        let chosen = Router::new(schema, &[1, 2], &keys, Registry::register::<Read>).expect("sound keys");
        let home = |key| chosen.home("test.read", &encode(&Read { key }).expect("encodes"));
        let homes = [0, 50, 89, 90, 1000].map(|key| home(key).expect("arguments").map(|home| home.0));
        assert_eq!(homes, [Some(1), Some(1), Some(1), Some(0), Some(0)]);
        assert_eq!(router.home("test.other", &[]), Ok(None));
        assert!(router.home("test.read", &[1]).is_err());
    }
}
