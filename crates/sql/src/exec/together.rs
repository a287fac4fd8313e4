//! Statements that are run together: those of a pipeline, by one procedure.
//!
//! Owns: the order of the statements, and the looking up of rows ahead of those that read them. Never: runs a statement behind one that
//! has failed.
//!
//! Neighbours that each read one row by its key have their rows looked up as one phase: it overlaps their cache misses, and is one message
//! for each other owner. Nothing changes a row between the phase and the statement that it is for: the transaction has locked the row,
//! and its own statements between them only read.

use std::sync::atomic::Ordering;
use std::time::Duration;

use atrapos::{Clock, DynRow, Ticks, Tx};
use smallvec::SmallVec;

use super::scan::decode;
use super::{Answer, Fail, Request, encode_rows, key_of};
use crate::expr::Row;
use crate::plan::{Node, Work};

/// Rows that were looked up ahead; most often one, or many.
type Ahead = SmallVec<[Option<DynRow>; 1]>;

/// The most rows that are looked up ahead.
const MOST_AHEAD: usize = 64;

/// The bytes of rows after which the statements behind are left for later: what is together shall not take much memory.
const MOST_BYTES: usize = 4 << 20;

/// The outcome of statements that were run together: the answers up to the first that failed and, if one has, why, and the time that it
/// took. Statements behind large answers may not have been run; at least one has.
pub(crate) struct Ran {
    pub(crate) answers: Vec<Answer>,
    pub(crate) failed: Option<(Fail, Duration)>,
}

/// Runs statements, one after the other, up to the first that fails.
pub(crate) async fn run_all(requests: &[Request], tx: &mut Tx<'_>) -> Ran {
    let mut answers = Vec::with_capacity(requests.len());
    let mut watch = StopWatch::start();
    let failed = run_each(requests, tx, &mut answers, &mut watch).await.err();
    Ran { answers, failed: failed.map(|fail| (fail, watch.lap())) }
}

/// Measures statements that run one after the other.
struct StopWatch {
    clock: Clock,
    /// The time at which the one that runs has begun.
    began: Ticks,
}

impl StopWatch {
    fn start() -> StopWatch {
        let clock = Clock::real();
        StopWatch { began: clock.now(), clock }
    }

    /// Ends a statement, and begins the next one; returns the time that it took.
    fn lap(&mut self) -> Duration {
        let now = self.clock.now();
        Duration::from_nanos(self.clock.ns(now.since(std::mem::replace(&mut self.began, now))))
    }
}

/// Runs statements up to the first that fails; `watch` measures each.
async fn run_each(
    requests: &[Request],
    tx: &mut Tx<'_>,
    answers: &mut Vec<Answer>,
    watch: &mut StopWatch,
) -> Result<(), Fail> {
    let (mut rest, mut bytes) = (requests, 0);
    while !rest.is_empty() {
        let ahead = look_ahead(rest, tx).await?;
        let (now, later) = rest.split_at(ahead.len().max(1));
        let mut ahead = ahead.into_iter();
        for request in now {
            request.cancel.next_statement();
            let row = ahead.next();
            let known = row.as_ref().and_then(|row| answer_of(request, row.as_ref()));
            let mut answer = match known {
                Some(answer) => answer,
                // In a box: what is known needs no room for it.
                None => Box::pin(request.run(Some(tx), row)).await?,
            };
            answer.took = watch.lap();
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

/// The answer of a query that [reads one row](Plan::one_read), from the row that was found. `None` if it has to be run as others are: because
/// its plan does more, because it was cancelled or its table is being changed, because an expression fails or waits for a sequence.
fn answer_of(request: &Request, row: Option<&DynRow>) -> Option<Answer> {
    let Work::Query(query) = &request.plan.work else { return None };
    // What changes the session must not be run twice.
    if request.plan.changes_session {
        return None;
    }
    let (scan, exprs) = match &query.root {
        Node::Scan(scan) => (scan, None),
        Node::Project(input, exprs) => match &**input {
            Node::Scan(scan) => (scan, Some(exprs)),
            _ => return None,
        },
        _ => return None,
    };
    let env = &request.env;
    if scan.table.is_closed.load(Ordering::SeqCst)
        || request.cancel.check().is_err()
        || request.profile.is_some()
    {
        return None;
    }
    env.session.begin_attempt();
    let mut found: Option<Row> = None;
    if let Some(row) = row {
        let values = decode(&scan.table, &scan.columns, row).ok()?;
        if scan.filter.as_ref().map_or(Ok(true), |filter| filter.holds(env, &values)).ok()? {
            found = Some(match exprs {
                Some(exprs) => {
                    exprs.iter().map(|expr| expr.eval(env, &values)).collect::<Result<_, _>>().ok()?
                }
                None => values,
            });
        }
    }
    let rows = found.as_slice();
    let messages =
        encode_rows(rows, &query.columns, &request.formats, &env.schema, request.max_bytes).ok()?;
    Some(Answer { messages, count: rows.len(), ..Answer::of_tag(Answer::tag_of_rows(rows.len())) })
}

/// Looks up the rows of the first statements, as far as each reads one by its key.
async fn look_ahead(requests: &[Request], tx: &mut Tx<'_>) -> Result<Ahead, Fail> {
    let mut gets: SmallVec<[_; 1]> = SmallVec::new();
    for request in requests.iter().take(MOST_AHEAD) {
        let Some((table, values)) = request.plan.one_read() else { break };
        // What cannot be evaluated, or is no key, is left to the statement.
        let Ok(Some(key)) = key_of(table, values, &request.env) else { break };
        let Ok(get) = table.handle.get(&key) else { break };
        gets.push(get);
    }
    let mut rows = Ahead::new();
    if let Some(first) = requests.first().filter(|_| !gets.is_empty()) {
        first.cancel.next_statement();
        first.cancel.until(async { Ok::<_, Fail>(tx.join_each(gets, |row| rows.push(row)).await?) }).await?;
    }
    Ok(rows)
}
