//! Reservations of numbers of sequences, and their being kept.
//!
//! Owns: the transactions that write the kept state of a sequence, one at a time. They touch nothing but its row, so a statement
//! may wait for one inside of its own transaction.

use std::sync::Weak;

use atrapos::Database;
use tokio::sync::Mutex;

use crate::error::{SqlError, SqlState};
use crate::kept::Kept;
use crate::sequence::{Sequence, SequenceMeta};
use crate::session::still_open;

/// Keeps the state of sequences.
#[derive(Debug)]
pub(crate) struct Sequences {
    /// Held by nobody but who has opened it: statements outlive their answers by a moment.
    database: Weak<Database>,
    kept: Kept,
    turn: Mutex<()>,
}

impl Sequences {
    pub(crate) fn new(database: Weak<Database>, kept: Kept) -> Sequences {
        Sequences { database, kept, turn: Mutex::new(()) }
    }

    /// Reserves the next numbers of a sequence, unless another statement has done so meanwhile.
    pub(crate) async fn reserve(&self, sequence: &Sequence) -> Result<(), SqlError> {
        let _turn = self.turn.lock().await;
        if sequence.has_left() {
            return Ok(());
        }
        let meta = sequence.reservation();
        self.keep(sequence.name(), &meta).await?;
        sequence.reserved(meta);
        Ok(())
    }

    /// Reserves the next numbers of a sequence, as [`reserve`](Sequences::reserve) does. Blocks.
    pub(crate) fn reserve_blocking(&self, sequence: &Sequence) -> Result<(), SqlError> {
        let _turn = self.turn.blocking_lock();
        if sequence.has_left() {
            return Ok(());
        }
        let meta = sequence.reservation();
        self.kept.write(
            &*still_open(&self.database)?,
            format!("sequence:{}", sequence.name()),
            Some(body_of(&meta)?),
        )?;
        sequence.reserved(meta);
        Ok(())
    }

    /// Lets a sequence go on from a number.
    pub(crate) async fn set(
        &self,
        sequence: &Sequence,
        number: i64,
        is_called: bool,
    ) -> Result<(), SqlError> {
        let _turn = self.turn.lock().await;
        let meta = sequence.set(number, is_called)?;
        self.keep(sequence.name(), &meta).await?;
        sequence.was_set(meta, number, is_called);
        Ok(())
    }

    async fn keep(&self, name: &str, meta: &SequenceMeta) -> Result<(), SqlError> {
        let submitted =
            self.kept.submit(&*still_open(&self.database)?, format!("sequence:{name}"), Some(body_of(meta)?));
        match submitted {
            Ok(submitted) => submitted.await.map_err(|abort| SqlError::of_abort(&abort)),
            Err(abort) => Err(SqlError::of_abort(&abort)),
        }
    }
}

/// The text in which the state of a sequence is kept.
fn body_of(meta: &SequenceMeta) -> Result<String, SqlError> {
    serde_json::to_string(meta).map_err(|error| {
        SqlError::new(SqlState::INTERNAL_ERROR, format!("a sequence cannot be written: {error}"))
    })
}
