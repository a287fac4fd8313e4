//! Bringing a database to rest before it is audited.
//!
//! Owns: [`verify_at_rest`]. Never: waits for a time to pass.
//!
//! A transaction with actions on other workers has an outcome before these have heard of it: the messages that release its
//! locks there are still on their way. Messages between two workers arrive in order, so an empty transaction sent along
//! every such way arrives after them.

use atrapos::{Abort, Database, Route, Tx, Verification, VerifyError, WorkerId};

/// Verifies a database on which every client has ended.
pub(crate) fn verify_at_rest(db: &Database) -> Result<Verification, VerifyError> {
    let workers = || (0..db.workers()).map(|worker| WorkerId(worker as u16));
    let others = db.workers() as u16;
    let sessions: Vec<_> = workers()
        .map(|worker| {
            db.spawn_session(worker, async move |session| {
                for other in (0..others).map(WorkerId).filter(|other| *other != worker) {
                    session.run(&Route::worker(other), async |_: &mut Tx<'_>| Ok(())).await?;
                }
                Ok::<(), Abort>(())
            })
        })
        .collect::<Result<_, _>>()?;
    for session in sessions {
        session.join()??;
    }
    db.verify()
}
