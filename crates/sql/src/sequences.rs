//! Reservations of numbers of sequences, and their being kept.
//!
//! Owns: the transactions that write the kept state of a sequence, one at a time. They touch nothing but its row, so a statement
//! may wait for one inside of its own transaction.

use std::sync::Arc;

use atrapos::Database;
use tokio::sync::Mutex;

use crate::error::{SqlError, SqlState};
use crate::kept::Kept;
use crate::sequence::{Sequence, SequenceMeta};

/// Keeps the state of sequences.
#[derive(Debug)]
pub(crate) struct Sequences {
    database: Arc<Database>,
    kept: Kept,
    turn: Mutex<()>,
}

impl Sequences {
    pub(crate) fn new(database: Arc<Database>, kept: Kept) -> Sequences {
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
        self.kept.write(&self.database, format!("sequence:{}", sequence.name()), Some(body_of(&meta)?))?;
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
        let submitted = self.kept.submit(&self.database, format!("sequence:{name}"), Some(body_of(meta)?));
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
