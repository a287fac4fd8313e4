//! The clients of an experiment: sessions that live on the workers that may own data, and move when these change.
//!
//! Owns: the sessions and their counters. Never: decides which worker is lost.
//!
//! Invariants: between [`Crowd::gather`] and [`Crowd::pause`] the number of sessions stays the same, and none lives on a worker that
//! may own no data; the counts of a session are kept when it moves or ends.

use std::sync::Arc;

use atrapos::{Database, SessionHandle, WorkerId};
use atrapos_harness::driver::{ClientEnd, ClientSource, RunError, check_end};
use atrapos_harness::recorder::{Recorder, Snapshot};
use atrapos_workloads::{Ledger, Reach};

/// Sessions with a common host.
struct Group {
    host: WorkerId,
    recorder: Arc<Recorder>,
    sessions: Vec<SessionHandle<ClientEnd>>,
}

/// All sessions of an experiment, in a closed loop.
pub(crate) struct Crowd<'a> {
    db: &'a Database,
    workload: &'a dyn ClientSource,
    /// Groups of each worker: on the worker itself while it is available, on others otherwise.
    homes: Vec<Vec<Group>>,
    per_worker: usize,
    /// Recorders of groups that have ended.
    past: Vec<Arc<Recorder>>,
    /// Streams of random numbers that were given out.
    streams: u64,
}

impl<'a> Crowd<'a> {
    /// Returns a crowd of `per_worker` sessions for every worker of `db`, none of which runs before [`Crowd::gather`].
    pub(crate) fn new(db: &'a Database, workload: &'a dyn ClientSource, per_worker: usize) -> Crowd<'a> {
        let homes = (0..db.workers()).map(|_| Vec::new()).collect();
        Crowd { db, workload, homes, per_worker, past: Vec::new(), streams: 0 }
    }

    /// Returns it with streams of random numbers after this one, which no other crowd gives out.
    pub(crate) fn with_streams_after(mut self, stream: u64) -> Crowd<'a> {
        self.streams = stream;
        self
    }

    /// Starts the sessions that do not run, moves others off workers that may own no data now, and back to those that may again.
    pub(crate) fn gather(&mut self) -> Result<(), RunError> {
        let available = self.db.available_workers();
        let hosts: Vec<WorkerId> =
            (0..).map(WorkerId).zip(&available).filter(|(_, is)| **is).map(|(worker, _)| worker).collect();
        for (home, is_available) in available.iter().enumerate() {
            let wanted: Vec<WorkerId> =
                if *is_available { vec![WorkerId(home as u16)] } else { hosts.clone() };
            let is: Vec<WorkerId> = self.homes[home].iter().map(|group| group.host).collect();
            if is == wanted {
                continue;
            }
            for group in std::mem::take(&mut self.homes[home]) {
                self.end(group)?;
            }
            for (at, host) in wanted.iter().enumerate() {
                // Spread as evenly as possible.
                let (from, to) =
                    (self.per_worker * at / wanted.len(), self.per_worker * (at + 1) / wanted.len());
                let group = self.group(*host, to - from)?;
                self.homes[home].push(group);
            }
        }
        Ok(())
    }

    fn group(&mut self, host: WorkerId, sessions: usize) -> Result<Group, RunError> {
        let recorder = Arc::new(Recorder::new(self.workload.classes().len()));
        let mut group = Group { host, recorder: Arc::clone(&recorder), sessions: Vec::new() };
        for _ in 0..sessions {
            self.streams += 1;
            let started =
                self.workload.client(self.db, Reach::Everywhere, self.streams).map_err(RunError::from);
            let started = started.and_then(|mut client| {
                let recorder = Arc::clone(&recorder);
                let body = async move |session| client.run_session(&session, &recorder, 1, 1).await;
                self.db.spawn_session(host, body).map_err(RunError::from)
            });
            // Sessions that have already started must not continue untracked.
            group.sessions.push(started.inspect_err(|_| recorder.stop())?);
        }
        Ok(group)
    }

    /// Waits for the sessions of a group to end.
    fn end(&mut self, group: Group) -> Result<(), RunError> {
        group.recorder.stop();
        self.past.push(group.recorder);
        let mut ended = Ok(());
        for session in group.sessions {
            let end = session.join().map_err(RunError::from).and_then(|end| check_end(self.workload, end));
            ended = ended.and(end);
        }
        ended
    }

    fn recorders(&self) -> impl Iterator<Item = &Recorder> {
        let present = self.homes.iter().flatten().map(|group| &group.recorder);
        self.past.iter().chain(present).map(Arc::as_ref)
    }

    /// Returns the number of transactions completed so far.
    pub(crate) fn completed(&self) -> u64 {
        self.recorders().map(Recorder::completed).sum()
    }

    /// Returns the current values of all counters, approximately at one moment.
    pub(crate) fn snapshot(&self) -> Snapshot {
        Snapshot::sum(self.recorders(), self.workload.classes().len())
    }

    /// Ends all sessions, until the crowd gathers again.
    pub(crate) fn pause(&mut self) -> Result<(), RunError> {
        let groups: Vec<Group> = self.homes.iter_mut().flat_map(std::mem::take).collect();
        // All are told before the first is waited for.
        groups.iter().for_each(|group| group.recorder.stop());
        let mut ended = Ok(());
        for group in groups {
            ended = ended.and(self.end(group));
        }
        ended
    }

    /// Ends all sessions and adds their outcomes to those that the auditor knows.
    pub(crate) fn leave(mut self, ledger: &mut Ledger) -> Result<(), RunError> {
        self.pause()?;
        ledger.add(&self.snapshot().tallies);
        Ok(())
    }
}

impl Drop for Crowd<'_> {
    /// Stops the sessions that are left after an error; they end by themselves soon.
    fn drop(&mut self) {
        self.recorders().for_each(Recorder::stop);
    }
}
