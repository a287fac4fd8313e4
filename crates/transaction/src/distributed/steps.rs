//! Steps of two-phase commit, at each of which tests have an instance end.
//!
//! A simulated deployment stops at a step of the current thread ([`stop_at`]). A process kills itself at a step if the variable
//! `ATRAPOS_KILL_AT` names one, as `told`, or as `told:3` for the third time that it gets there.
//!
//! Owns: the list of steps, and the switches. Never: changes anything in a build without debug assertions (a release), where
//! [`reached`] is empty and no variable is read.

#[cfg(not(debug_assertions))]
use atrapos_partition::routing::InstanceId;

/// A step of two-phase commit, as far as the instance that takes it has got.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CommitStep {
    /// A subordinate has logged that it is prepared, which is not durable yet.
    PreparedLogged,
    /// The rows that a subordinate has prepared, or read, are durable. It has not voted.
    PreparedDurable,
    /// The vote of a subordinate to commit is on its way.
    Voted,
    /// The coordinator has all votes, and has logged nothing.
    VotesIn,
    /// The coordinator has logged its decision, which is not durable yet.
    DecisionLogged,
    /// The decision is durable, and nobody was told.
    DecisionDurable,
    /// The outcome is on its way to all.
    Told,
    /// A subordinate that was told has logged its end, which is not durable yet.
    EndLogged,
    /// The end of a subordinate is durable, and not acknowledged.
    EndDurable,
    /// The acknowledgement of a subordinate is on its way.
    Acknowledged,
    /// The coordinator has heard of all, and has logged that it forgets the transaction.
    Forgotten,
    /// A subordinate that commits in one phase has logged its changes, which are not durable yet, and has not voted.
    CommittedAlone,
}

impl CommitStep {
    /// All steps, and the names that the variable has for them.
    pub const ALL: [(CommitStep, &'static str); 12] = [
        (CommitStep::PreparedLogged, "prepared-logged"),
        (CommitStep::PreparedDurable, "prepared-durable"),
        (CommitStep::Voted, "voted"),
        (CommitStep::VotesIn, "votes-in"),
        (CommitStep::DecisionLogged, "decision-logged"),
        (CommitStep::DecisionDurable, "decision-durable"),
        (CommitStep::Told, "told"),
        (CommitStep::EndLogged, "end-logged"),
        (CommitStep::EndDurable, "end-durable"),
        (CommitStep::Acknowledged, "acknowledged"),
        (CommitStep::Forgotten, "forgotten"),
        (CommitStep::CommittedAlone, "committed-alone"),
    ];
}

/// Notes that an instance has got to a step. If it is to end there, `send` first has the messages that were sent before leave.
#[cfg(not(debug_assertions))]
#[inline(always)]
pub(super) fn reached(_: InstanceId, _: CommitStep, _send: impl FnOnce()) {}

/// Returns the instance of this thread that has stopped: never, in a release build.
#[cfg(not(debug_assertions))]
#[must_use]
#[inline(always)]
pub const fn stopped() -> Option<InstanceId> {
    None
}

/// Forgets which instance has stopped.
#[cfg(not(debug_assertions))]
#[inline(always)]
pub const fn go_on() {}

#[cfg(debug_assertions)]
pub(super) use switched::reached;
#[cfg(debug_assertions)]
pub use switched::{go_on, stop_at, stopped};

#[cfg(debug_assertions)]
mod switched {
    use std::cell::Cell;
    use std::sync::OnceLock;
    use std::sync::atomic::{AtomicU32, Ordering};

    use atrapos_partition::routing::InstanceId;

    use super::CommitStep;

    thread_local! {
        /// The step at which an instance of this thread stops, and the number of times until then.
        static STOP_AT: Cell<Option<(CommitStep, u32)>> = const { Cell::new(None) };
        static STOPPED: Cell<Option<InstanceId>> = const { Cell::new(None) };
    }

    /// The step at which this process kills itself, and the number of times until then.
    static KILL_AT: OnceLock<Option<(CommitStep, AtomicU32)>> = OnceLock::new();

    /// Has the instance of this thread that gets to a step for the `nth` time, counted over all of them, stop there.
    pub fn stop_at(step: CommitStep, nth: u32) {
        STOP_AT.set(Some((step, nth)));
    }

    /// Returns the instance of this thread that has stopped. Whoever steps it makes no further step; what it does until then is to have
    /// no effect outside.
    #[must_use]
    pub fn stopped() -> Option<InstanceId> {
        STOPPED.get()
    }

    /// Forgets which instance has stopped, and at which step one was to.
    pub fn go_on() {
        STOP_AT.set(None);
        STOPPED.set(None);
    }

    /// Notes that an instance has got to a step. If it is to end there, `send` first has the messages that were sent before leave.
    pub(in super::super) fn reached(instance: InstanceId, step: CommitStep, send: impl FnOnce()) {
        if let Some((awaited, times)) = STOP_AT.get()
            && awaited == step
        {
            STOP_AT.set((times > 1).then_some((step, times - 1)));
            if times <= 1 {
                send();
                STOPPED.set(Some(instance));
            }
            return;
        }
        let kill_at = KILL_AT.get_or_init(|| {
            let named = std::env::var("ATRAPOS_KILL_AT").ok();
            named.map(|named| parse(&named))
        });
        if let Some((awaited, times)) = kill_at
            && *awaited == step
            && times.fetch_sub(1, Ordering::Relaxed) == 1
        {
            send();
            let _ = rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL);
        }
    }

    fn parse(named: &str) -> (CommitStep, AtomicU32) {
        let (name, times) = named.split_once(':').unwrap_or((named, "1"));
        let known = CommitStep::ALL.iter().find(|(_, known)| *known == name);
        let (Some((step, _)), Ok(times)) = (known, times.parse()) else {
            panic!(
                "ATRAPOS_KILL_AT is '{named}', which is no step of two-phase commit; write one as {:?}, \
                 or with the number of times as 'told:3'",
                CommitStep::ALL.map(|(_, name)| name)
            );
        };
        (*step, AtomicU32::new(times))
    }
}
