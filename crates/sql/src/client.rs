//! The client that a transaction works for, as the engine knows it: the number of its connection, and the class of its transactions.
//!
//! Owns: the names of classes, which live as long as the process. Never: keeps more than [`CLASSES_MAX`] of them, each of at most
//! [`NAME_BYTES`] printable bytes, whatever clients call themselves.

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};

use atrapos::Tx;
use atrapos::activity::OTHERS;

/// The number of applications of a process whose transactions are counted apart.
const CLASSES_MAX: usize = 48;
/// The longest name of a class, as of any name in PostgreSQL.
const NAME_BYTES: usize = 63;

/// A client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Client {
    pub(crate) process_id: i32,
    /// The class of its transactions: the name of its application.
    pub(crate) class: &'static str,
}

impl Client {
    /// Tells a transaction whom it works for.
    pub(crate) fn introduce(self, tx: &mut Tx<'_>) {
        tx.set_client(self.process_id.unsigned_abs());
        tx.set_class(self.class);
    }
}

/// Returns the class of the transactions of an application.
pub(crate) fn class_of(application: &str) -> &'static str {
    static KNOWN: Mutex<BTreeSet<&'static str>> = Mutex::new(BTreeSet::new());
    if application.is_empty() {
        return "";
    }
    let mut name = application.replace(char::is_control, "?");
    name.truncate(name.floor_char_boundary(NAME_BYTES));
    let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(class) = known.get(&*name) {
        return class;
    }
    if known.len() == CLASSES_MAX {
        return OTHERS;
    }
    let class: &'static str = name.leak();
    known.insert(class);
    class
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn applications_have_one_class_each_and_no_more_than_so_many() {
        assert_eq!(class_of(""), "");
        assert!(std::ptr::eq(class_of("psql"), class_of("psql")));
        assert_eq!(class_of("a\nb\u{1b}[0m"), "a?b?[0m");
        assert_eq!(class_of(&"\u{e4}".repeat(100)), "\u{e4}".repeat(31));
        let classes: BTreeSet<_> = (0..200).map(|at| class_of(&format!("application {at}"))).collect();
        assert!(classes.len() <= CLASSES_MAX && classes.contains(OTHERS));
        assert_eq!(class_of("psql"), "psql");
    }
}
