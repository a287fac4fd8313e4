//! Statements that are run together: those of a pipeline, by one procedure.
//!
//! Owns: the order of the statements, and the looking up of rows ahead of those that read them. Never: runs a statement behind one that
//! has failed.
//!
//! Neighbours that each read one row by its key have their rows looked up as one phase: it overlaps their cache misses, and is one message
//! for each other owner. Nothing changes a row between the phase and the statement that it is for: the transaction has locked the row,
//! and its own statements between them only read.

use std::time::Instant;

use atrapos::{DynRow, Tx};

use super::{Answer, Fail, Request, key_of};

/// The most rows that are looked up ahead.
const MOST_AHEAD: usize = 64;

/// The bytes of rows after which the statements behind are left for later: what is together shall not take much memory.
const MOST_BYTES: usize = 4 << 20;

/// Runs statements, one after the other, up to the first that fails, and appends the answers. Statements behind large answers may not
/// have been run at the end; at least one has.
pub(crate) async fn run_all(
    requests: &[Request],
    tx: &mut Tx<'_>,
    answers: &mut Vec<Answer>,
) -> Result<(), Fail> {
    let [_, _, ..] = requests else {
        for request in requests {
            answers.push(request.run(Some(tx), None).await?);
        }
        return Ok(());
    };
    let mut rest = requests;
    let (mut began, mut bytes) = (Instant::now(), 0);
    while !rest.is_empty() {
        let ahead = look_ahead(rest, tx).await?;
        let (now, later) = rest.split_at(ahead.len().max(1));
        let mut ahead = ahead.into_iter();
        for request in now {
            request.cancel.next_statement();
            let mut answer = request.run(Some(tx), ahead.next()).await?;
            let ended = Instant::now();
            answer.took = ended.duration_since(began);
            began = ended;
            bytes += answer.messages.len();
            answers.push(answer);
            if bytes > MOST_BYTES {
                return Ok(());
            }
        }
        rest = later;
    }
    Ok(())
}

/// Looks up the rows of the first statements, as far as each reads one by its key; nothing if that is one at most.
async fn look_ahead(requests: &[Request], tx: &mut Tx<'_>) -> Result<Vec<Option<DynRow>>, Fail> {
    let mut gets = Vec::new();
    for request in requests.iter().take(MOST_AHEAD) {
        let Some((table, values)) = request.plan.one_read() else { break };
        // What cannot be evaluated, or is no key, is left to the statement.
        let Ok(Some(key)) = key_of(table, values, &request.env) else { break };
        let Ok(get) = table.handle.get(&key) else { break };
        gets.push(get);
    }
    match requests {
        [first, ..] if gets.len() > 1 => {
            first.cancel.next_statement();
            first.cancel.until(async { Ok(tx.join_all(gets).await?) }).await
        }
        _ => Ok(Vec::new()),
    }
}
