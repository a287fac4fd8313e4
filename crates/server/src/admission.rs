//! Admission of connections: how many may log in at a time, and how many may be logged in.
//!
//! Owns: the places of both. Never: authenticates.
//!
//! Invariants: whoever has not logged in takes no place of those who have; when all places for logging in are taken, the address that
//! has most of them loses its oldest one, so that a flood from one address displaces itself. A place is returned when it is dropped.

use std::collections::{HashMap, VecDeque};
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::oneshot;

/// Connections that log in at a time.
const MOST_HALF_OPEN: usize = 512;

/// The places of a server.
#[derive(Debug)]
pub(crate) struct Admission {
    state: Mutex<State>,
    most_sessions: usize,
    most_half_open: usize,
}

#[derive(Debug, Default)]
struct State {
    /// Those who log in, by address (`None` is this machine), oldest first, with what makes them go.
    half_open: HashMap<Option<IpAddr>, VecDeque<(u64, oneshot::Sender<()>)>>,
    number: usize,
    next: u64,
    sessions: usize,
}

/// A place among those who log in.
#[derive(Debug)]
pub(crate) struct HalfOpen {
    admission: Arc<Admission>,
    address: Option<IpAddr>,
    number: u64,
    /// Resolved when the place has been given to somebody else.
    pub(crate) displaced: oneshot::Receiver<()>,
}

/// A place among those who have logged in.
#[derive(Debug)]
pub(crate) struct Admitted {
    admission: Arc<Admission>,
}

impl Admission {
    pub(crate) fn new(most_sessions: usize) -> Arc<Admission> {
        Admission::with(most_sessions, MOST_HALF_OPEN)
    }

    fn with(most_sessions: usize, most_half_open: usize) -> Arc<Admission> {
        Arc::new(Admission { state: Mutex::default(), most_sessions, most_half_open })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Every change of the state is complete before anything could panic.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the number of sessions.
    pub(crate) fn sessions(&self) -> usize {
        self.state().sessions
    }

    /// Takes a place for logging in, if need be somebody else's.
    pub(crate) fn half_open(self: &Arc<Admission>, address: Option<IpAddr>) -> HalfOpen {
        let (leave, displaced) = oneshot::channel();
        let mut state = self.state();
        if state.number == self.most_half_open {
            state.displace();
        }
        let number = state.next;
        state.next += 1;
        state.number += 1;
        state.half_open.entry(address).or_default().push_back((number, leave));
        drop(state);
        HalfOpen { admission: Arc::clone(self), address, number, displaced }
    }

    /// Takes a place for a session; `None` if there is none.
    pub(crate) fn admit(self: &Arc<Admission>) -> Option<Admitted> {
        let mut state = self.state();
        if state.sessions == self.most_sessions {
            return None;
        }
        state.sessions += 1;
        drop(state);
        Some(Admitted { admission: Arc::clone(self) })
    }
}

impl State {
    fn displace(&mut self) {
        let Some(address) =
            self.half_open.iter().max_by_key(|(_, places)| places.len()).map(|(address, _)| *address)
        else {
            return;
        };
        let oldest = self.half_open.get_mut(&address).and_then(VecDeque::pop_front);
        if let Some((_, leave)) = oldest {
            // Whoever has gone already needs not be told.
            let _ = leave.send(());
            self.left(address);
        }
    }

    fn left(&mut self, address: Option<IpAddr>) {
        self.number -= 1;
        if self.half_open.get(&address).is_some_and(VecDeque::is_empty) {
            self.half_open.remove(&address);
        }
    }
}

impl Drop for HalfOpen {
    fn drop(&mut self) {
        let mut state = self.admission.state();
        let Some(places) = state.half_open.get_mut(&self.address) else { return };
        if let Ok(at) = places.binary_search_by_key(&self.number, |(number, _)| *number) {
            places.remove(at);
            state.left(self.address);
        }
    }
}

impl Drop for Admitted {
    fn drop(&mut self) {
        self.admission.state().sessions -= 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_displaces_itself() {
        let admission = Admission::with(1, 8);
        let address = |last| Some(IpAddr::from([10, 0, 0, last]));
        let mut honest = admission.half_open(address(1));
        let flood: Vec<_> = (0..100).map(|_| admission.half_open(address(2))).collect();
        assert!(honest.displaced.try_recv().is_err(), "the other address keeps its place");
        let mut displaced: Vec<_> = flood;
        let gone = displaced.iter_mut().filter_map(|place| place.displaced.try_recv().ok()).count();
        assert_eq!(gone, 93);
        drop(displaced);
        drop(honest);
        let state = admission.state();
        assert_eq!((state.number, state.half_open.len()), (0, 0));
    }

    #[test]
    fn sessions_are_limited_and_places_returned() {
        let admission = Admission::with(1, 8);
        let first = admission.admit().expect("a place");
        assert!(admission.admit().is_none());
        assert_eq!(admission.sessions(), 1);
        drop(first);
        assert!(admission.admit().is_some());
    }
}
