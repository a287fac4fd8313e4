//! Terminals: the times and classes of their transactions, and deferred deliveries.
//!
//! Owns: keying and think times (clause 5.2.5), the queue of deferred deliveries (clause 2.7.2), and the clients that
//! take from it. Never: runs a transaction, sleeps, or reads a clock: it returns how long its client is to wait.
//!
//! A deferred delivery is no transaction of its terminal, which only puts it into the queue and continues. One more
//! client per worker (see [`Workload::server`](crate::Workload::server)) takes requests from the queue and runs the
//! transactions, which are counted when they run.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use super::parameters::{Class, Parameters};
use crate::random::Random;
use crate::workload::Reach;

/// Modes of delivery: terminals wait for their deliveries or not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default, clap::ValueEnum)]
pub enum Deliveries {
    /// They do; a delivery is ten orders.
    #[default]
    Interactive,
    /// They do not: deliveries are queued, and made by one more session on each worker.
    Deferred,
}

impl Deliveries {
    /// Returns the name on the command line.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Deliveries::Interactive => "interactive",
            Deliveries::Deferred => "deferred",
        }
    }
}

/// Time from the choice of a transaction until its input is complete, in seconds, by class (clause 5.2.5.7).
pub const KEYING_S: [u64; 5] = [18, 3, 2, 2, 2];
/// Mean time from the end of a transaction until the choice of the next, in seconds, by class (clause 5.2.5.7).
pub const THINK_MEAN_S: [f64; 5] = [12.0, 12.0, 10.0, 5.0, 5.0];
/// Limit of a think time, as a multiple of its mean (clause 5.2.5.4).
const THINK_MAX: f64 = 10.0;

/// Terminals per warehouse that the specification requires (clause 4.2.2).
pub const TERMINALS_PER_WAREHOUSE: usize = 10;

/// Draws a think time: exponentially distributed.
fn think_time(random: &mut Random, after: Class) -> Duration {
    let mean = THINK_MEAN_S[after as usize];
    // The unit is below 1, so the logarithm is of more than 0.
    Duration::from_secs_f64((-mean * (1.0 - random.unit()).ln()).min(THINK_MAX * mean))
}

/// A request for a delivery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct DeliveryRequest {
    pub(super) w_id: u16,
    pub(super) carrier_id: u8,
}

/// A queue of requests for deliveries.
#[derive(Debug, Default)]
pub(super) struct Queue {
    requests: Mutex<VecDeque<DeliveryRequest>>,
}

/// Greatest number of requests in one queue; terminals that request another delivery are held up then.
const QUEUE_MAX: usize = 1024;

/// Interval between two attempts to use a queue that is full or empty.
const QUEUE_WAIT: Duration = Duration::from_millis(1);

impl Queue {
    /// Adds a request; returns false if the queue is full.
    fn push(&self, request: DeliveryRequest) -> bool {
        let mut requests = self.requests.lock().unwrap_or_else(PoisonError::into_inner);
        let has_room = requests.len() < QUEUE_MAX;
        if has_room {
            requests.push_back(request);
        }
        has_room
    }

    fn pop(&self) -> Option<DeliveryRequest> {
        self.requests.lock().unwrap_or_else(PoisonError::into_inner).pop_front()
    }
}

/// The queues of one configuration: one for each worker whose clients keep to its data, one for all others.
#[derive(Clone, Debug, Default)]
pub(super) struct Queues(Arc<Mutex<BTreeMap<Option<u16>, Arc<Queue>>>>);

impl Queues {
    pub(super) fn of(&self, reach: Reach) -> Arc<Queue> {
        let name = match reach {
            Reach::Everywhere => None,
            Reach::OwnedBy(worker) => Some(worker.0),
        };
        let mut queues = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(queues.entry(name).or_default())
    }
}

/// The behaviour of a client over time: see the documentation of the module.
#[derive(Clone, Debug)]
pub(super) enum Terminal {
    /// A client that requests one transaction after the other, of any warehouse.
    Busy { next: Option<Class>, queue: Option<Arc<Queue>> },
    /// A terminal at a warehouse, and at a district for Stock-Level; it waits for keying and think times.
    Human { w_id: u16, d_id: u8, next: Option<Class>, last: Option<Class>, queue: Option<Arc<Queue>> },
    /// A server that makes the deliveries of a queue.
    Server { queue: Arc<Queue>, request: Option<DeliveryRequest> },
}

impl Terminal {
    /// Returns the time to wait before the next transaction; called again after the wait.
    #[inline]
    pub(super) fn pause(&mut self, parameters: &mut Parameters) -> Option<Duration> {
        match self {
            Terminal::Busy { queue: None, .. } => None,
            Terminal::Busy { next, queue: Some(queue) } => loop {
                let class = *next.get_or_insert_with(|| parameters.class());
                if class != Class::Delivery {
                    return None;
                }
                let w_id = parameters.warehouse();
                if !queue.push(DeliveryRequest { w_id, carrier_id: parameters.carrier() }) {
                    return Some(QUEUE_WAIT);
                }
                *next = None;
            },
            Terminal::Human { w_id, next, last, queue, .. } => {
                if let (Some(Class::Delivery), Some(queue)) = (*next, queue) {
                    let request = DeliveryRequest { w_id: *w_id, carrier_id: parameters.carrier() };
                    if !queue.push(request) {
                        return Some(QUEUE_WAIT);
                    }
                    (*next, *last) = (None, Some(Class::Delivery));
                }
                if next.is_some() {
                    return None;
                }
                let class = parameters.class();
                *next = Some(class);
                let thinking = last.map(|last| think_time(parameters.random(), last)).unwrap_or_default();
                Some(thinking + Duration::from_secs(KEYING_S[class as usize]))
            }
            Terminal::Server { queue, request } => {
                *request = request.take().or_else(|| queue.pop());
                request.is_none().then_some(QUEUE_WAIT)
            }
        }
    }

    /// Returns the class of the transaction to run now.
    #[inline]
    pub(super) fn class(&mut self, parameters: &mut Parameters) -> Class {
        match self {
            Terminal::Busy { next, .. } => next.take().unwrap_or_else(|| parameters.class()),
            Terminal::Human { next, last, .. } => {
                let class = next.take().unwrap_or_else(|| parameters.class());
                *last = Some(class);
                class
            }
            Terminal::Server { .. } => Class::Delivery,
        }
    }

    /// Returns the warehouse of the transaction to run now.
    #[inline]
    pub(super) fn warehouse(&self, parameters: &mut Parameters) -> u16 {
        match self {
            Terminal::Human { w_id, .. } => *w_id,
            Terminal::Busy { .. } | Terminal::Server { .. } => parameters.warehouse(),
        }
    }

    /// Returns the district of a Stock-Level transaction.
    #[inline]
    pub(super) fn district(&self, parameters: &mut Parameters) -> u8 {
        match self {
            Terminal::Human { d_id, .. } => *d_id,
            Terminal::Busy { .. } | Terminal::Server { .. } => parameters.district(),
        }
    }

    /// Returns the delivery to make now.
    #[inline]
    pub(super) fn delivery(&mut self, parameters: &mut Parameters) -> DeliveryRequest {
        if let Terminal::Server { request, .. } = self
            && let Some(request) = request.take()
        {
            return request;
        }
        let w_id = self.warehouse(parameters);
        DeliveryRequest { w_id, carrier_id: parameters.carrier() }
    }
}

#[cfg(test)]
mod tests {
    use super::super::generator::Scale;
    use super::super::nurand::Constants;
    use super::super::parameters::{Mix, Remote};
    use super::*;
    use crate::keys::KeySet;

    fn parameters(mix: Mix) -> Parameters {
        let constants = Constants::draw(&mut Random::of_stream(1, 0));
        let all = KeySet::range(1, 3).expect("warehouses");
        Parameters::new(mix, Remote::STANDARD, Scale::of(3), constants, all, Random::of_stream(5, 1))
    }

    #[test]
    fn who_is_busy_never_waits() {
        let mut parameters = parameters(Mix::Standard);
        let mut terminal = Terminal::Busy { next: None, queue: None };
        for _ in 0..100 {
            assert_eq!(terminal.pause(&mut parameters), None);
            terminal.class(&mut parameters);
        }
    }

    #[test]
    fn people_key_and_think_as_long_as_the_specification_says() {
        let mut parameters = parameters(Mix::Standard);
        let mut terminal = Terminal::Human { w_id: 2, d_id: 7, next: None, last: None, queue: None };
        let (mut thought, mut times) = ([0.0; 5], [0; 5]);
        let mut last: Option<Class> = None;
        for _ in 0..200_000 {
            let waited = terminal.pause(&mut parameters).expect("people are slow");
            assert_eq!(terminal.pause(&mut parameters), None, "and then they ask");
            let class = terminal.class(&mut parameters);
            let thinking = waited.as_secs_f64() - KEYING_S[class as usize] as f64;
            match last {
                Some(last) => {
                    thought[last as usize] += thinking;
                    times[last as usize] += 1;
                    assert!((0.0..=THINK_MAX * THINK_MEAN_S[last as usize] + 1e-6).contains(&thinking));
                }
                None => assert!(thinking.abs() < 1e-9),
            }
            last = Some(class);
            assert_eq!((terminal.warehouse(&mut parameters), terminal.district(&mut parameters)), (2, 7));
        }
        for ((thought, times), mean) in thought.iter().zip(times).zip(THINK_MEAN_S) {
            let found = thought / f64::from(times);
            assert!((found / mean - 1.0).abs() < 0.06, "{found} instead of {mean}");
        }
    }

    #[test]
    fn deferred_deliveries_go_through_the_queue() {
        for is_human in [false, true] {
            let queue = Arc::new(Queue::default());
            let mut parameters = parameters(Mix::Standard);
            let own = Some(Arc::clone(&queue));
            let mut terminal = match is_human {
                true => Terminal::Human { w_id: 2, d_id: 7, next: None, last: None, queue: own },
                false => Terminal::Busy { next: None, queue: own },
            };
            for _ in 0..2_000 {
                while terminal.pause(&mut parameters).is_some() {}
                assert_ne!(terminal.class(&mut parameters), Class::Delivery);
            }
            let mut server = Terminal::Server { queue: Arc::clone(&queue), request: None };
            let mut served = 0;
            while server.pause(&mut parameters).is_none() {
                assert_eq!(server.class(&mut parameters), Class::Delivery);
                let DeliveryRequest { w_id, carrier_id } = server.delivery(&mut parameters);
                assert!(
                    (1..=3).contains(&w_id) && (1..=10).contains(&carrier_id) && (!is_human || w_id == 2)
                );
                served += 1;
            }
            assert!((40..130).contains(&served), "about one in 25 of the mix: {served}");
        }
    }

    #[test]
    fn a_full_queue_holds_terminals_up() {
        let queues = Queues::default();
        let queue = queues.of(Reach::Everywhere);
        assert!(Arc::ptr_eq(&queue, &queues.clone().of(Reach::Everywhere)));
        let mut parameters = parameters(Mix::Only(Class::Delivery));
        let mut terminal = Terminal::Busy { next: None, queue: Some(Arc::clone(&queue)) };
        assert_eq!(terminal.pause(&mut parameters), Some(QUEUE_WAIT));
        assert_eq!(std::iter::from_fn(|| queue.pop()).count(), QUEUE_MAX);
        assert!(!Arc::ptr_eq(&queue, &queues.of(Reach::OwnedBy(atrapos::WorkerId(0)))));
    }
}
