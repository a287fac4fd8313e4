//! Steps of two-phase commit, at each of which a test has an instance end.
//!
//! Owns: the list of steps, and the switch of an instance. Never: changes anything in a build without debug assertions (a release), where
//! [`Stops::reached`] is false.

/// A step of two-phase commit, as far as the instance that takes it has got.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CommitStep {
    /// A part has logged that it is prepared, which is not known to be durable.
    PreparedLogged,
    /// It is durable that a part is prepared. It has not voted.
    PreparedDurable,
    /// The vote of a part with changes is on its way.
    Voted,
    /// The home has all votes, and has logged nothing.
    VotesIn,
    /// The home has logged its decision, which is not known to be durable.
    DecisionLogged,
    /// The decision is durable, and nobody was told.
    DecisionDurable,
    /// The outcome is on its way to all.
    Told,
    /// A part that was told has logged its end, which is not known to be durable.
    EndLogged,
    /// A part that commits in one phase has logged its changes, which are not known to be durable, and has not answered.
    CommittedAlone,
}

impl CommitStep {
    /// All steps, and their names outside of the program.
    pub const ALL: [(CommitStep, &'static str); 9] = [
        (CommitStep::PreparedLogged, "prepared-logged"),
        (CommitStep::PreparedDurable, "prepared-durable"),
        (CommitStep::Voted, "voted"),
        (CommitStep::VotesIn, "votes-in"),
        (CommitStep::DecisionLogged, "decision-logged"),
        (CommitStep::DecisionDurable, "decision-durable"),
        (CommitStep::Told, "told"),
        (CommitStep::EndLogged, "end-logged"),
        (CommitStep::CommittedAlone, "committed-alone"),
    ];
}

#[cfg(not(debug_assertions))]
mod switch {
    /// The switch of an instance, which nobody has in a release build.
    #[derive(Default)]
    pub(in super::super) struct Stops;

    impl Stops {
        /// Returns true if the instance has stopped: never.
        #[inline(always)]
        pub(in super::super) fn reached(&self, _step: super::CommitStep) -> bool {
            false
        }
    }
}

#[cfg(debug_assertions)]
mod switch {
    use std::sync::Mutex;
    use std::sync::PoisonError;
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::CommitStep;

    /// Function that keeps what the instance leaves behind.
    type Leave = Box<dyn FnOnce() + Send>;

    /// The switch of an instance.
    #[derive(Default)]
    pub(in super::super) struct Stops {
        awaited: Mutex<Option<(CommitStep, Leave)>>,
        stopped: AtomicBool,
    }

    impl Stops {
        /// Has the instance stop when it first gets to a step. From then on it tells nobody anything, and `leave` keeps what there is.
        pub(in super::super) fn at(&self, step: CommitStep, leave: Leave) {
            *self.awaited.lock().unwrap_or_else(PoisonError::into_inner) = Some((step, leave));
        }

        /// Returns true if the instance has stopped.
        pub(in super::super) fn have_stopped(&self) -> bool {
            self.stopped.load(Ordering::Acquire)
        }

        /// Notes that the instance has got to a step. Returns true if it has stopped.
        pub(in super::super) fn reached(&self, step: CommitStep) -> bool {
            let mut awaited = self.awaited.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some((_, leave)) = awaited.take_if(|(awaited, _)| *awaited == step) {
                // First: what is acknowledged without noticing it was durable before.
                self.stopped.store(true, Ordering::Release);
                leave();
            }
            drop(awaited);
            self.have_stopped()
        }
    }
}

pub(super) use switch::Stops;
