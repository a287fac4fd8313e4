//! Operations: tasks of one type that a worker runs together, so that their cache misses overlap.
//!
//! Owns: what a type of operation has to say. Never: decides which ones run together (`chunk`).

use arrayvec::ArrayVec;

use crate::structures::Target;

/// Operations of a group at most.
pub const GROUP_MAX: usize = 16;

/// Operations that run together, or their replies.
pub type Group<V> = ArrayVec<V, GROUP_MAX>;

/// A task as a value, which a worker runs together with those of its type that come right behind it in the same burst. If one panics, all
/// of them have failed.
///
/// ```
/// use atrapos_domains::{Configuration, Domains, Group, Operation, Owned};
/// use atrapos_topology::{LiveOptions, Machine};
///
/// /// Reads one place of a table.
/// struct Read(usize);
///
/// impl Operation<Owned<Vec<u64>>> for Read {
///     type Reply = u64;
///     fn run_group(reads: Group<Self>, table: &mut Vec<u64>) -> Group<u64> {
///         // An index that waits for memory would ask for all of it here first.
///         reads.into_iter().map(|Read(at)| table[at]).collect()
///     }
/// }
///
/// let machine = Machine::live(&LiveOptions::new(None));
/// let domains = Domains::start(&machine, &Configuration::one_worker_each(&["d"]))?;
/// let table = domains.at("d")?.place_owned("squares", (0..100_u64).map(|n| n * n).collect::<Vec<_>>())?;
/// let mut burst = domains.client().burst(&table, 14)?;
/// let mut sum = 0;
/// for at in 0..100 {
///     sum += burst.push_operation(Read(at))?.transpose()?.unwrap_or(0);
/// }
/// sum += burst.drain().sum::<Result<u64, _>>()?;
/// assert_eq!(sum, 328_350);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub trait Operation<T: Target>: Sized + Send + 'static {
    /// The result of one operation.
    type Reply: Send + 'static;

    /// Runs operations, with the same effects as one after the other, and returns the reply of each in their order.
    fn run_group(operations: Group<Self>, access: T::Access<'_>) -> Group<Self::Reply>;
}
