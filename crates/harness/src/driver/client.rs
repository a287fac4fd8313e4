//! The loop of one client: it runs one transaction after the other until it is told to stop.
//!
//! Owns: the loops of sessions and of threads, and which aborts end a run. Never: decides when to stop, or measures an
//! interval.
//!
//! The loops are compiled for each workload. Code that starts and ends clients is compiled once, for clients and workloads
//! whose types are erased ([`AnyClient`], [`ClientSource`]): a virtual call each time a session is polled, and none per transaction.

use std::collections::VecDeque;
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::task::Poll;
use std::time::{Duration, Instant};

use atrapos::{Abort, AbortReason, CommitTicket, Database, KnownRoute, Session, Ticks, Upcoming};
use atrapos_baselines::SharedClient;
use atrapos_baselines::log::Ticket;
use atrapos_runtime::Clock;
use atrapos_workloads::{ClassId, Client, Outcome, Reach, SetupError, Workload};

use super::{LOOK_EVERY, RunError};
use crate::outside::{Outside, block_on};
use crate::recorder::Recorder;

/// Result of a client: success, or the class and the abort that no workload expects.
pub type ClientEnd = Result<(), (usize, Abort)>;

/// One client of a workload whose type is erased.
pub trait AnyClient: Send {
    /// Runs it as a session, until the recorder says stop. It has up to `pipeline` transactions that are not acknowledged, and draws
    /// `burst` at a time.
    fn run_session<'a>(
        &'a mut self,
        session: &'a Session,
        recorder: &'a Recorder,
        pipeline: usize,
        burst: usize,
    ) -> Pin<Box<dyn Future<Output = ClientEnd> + 'a>>;

    /// Runs it on this thread, outside the workers, until the recorder says stop.
    fn run_thread(&mut self, db: &Database, recorder: &Recorder) -> ClientEnd;

    /// Runs it on this thread with the transactions of an engine with shared data, until the recorder says stop. It has up to
    /// `pipeline` transactions that are not acknowledged.
    fn run_shared(&mut self, client: &dyn SharedClient, recorder: &Recorder, pipeline: usize) -> ClientEnd;
}

/// The state of a client of a workload.
struct ClientOf<W: Workload>(W::State);

impl<W: Workload> AnyClient for ClientOf<W> {
    fn run_session<'a>(
        &'a mut self,
        session: &'a Session,
        recorder: &'a Recorder,
        pipeline: usize,
        burst: usize,
    ) -> Pin<Box<dyn Future<Output = ClientEnd> + 'a>> {
        Box::pin(run_session::<W>(session, &mut self.0, recorder, pipeline, burst))
    }

    fn run_thread(&mut self, db: &Database, recorder: &Recorder) -> ClientEnd {
        run_thread::<W>(&Client::Blocking(&Outside::new(db)), &mut self.0, recorder)
    }

    fn run_shared(&mut self, client: &dyn SharedClient, recorder: &Recorder, pipeline: usize) -> ClientEnd {
        if pipeline > 1 {
            return run_pipelined::<W>(client, &mut self.0, recorder, pipeline);
        }
        run_thread::<W>(&Client::Shared(client), &mut self.0, recorder)
    }
}

/// A workload whose type is erased, as far as its clients are concerned. The methods are those of [`Workload`].
pub trait ClientSource {
    /// Returns the names of the classes of transactions.
    fn classes(&self) -> &'static [&'static str];

    /// Returns true if transactions of a class write.
    fn updates(&self, class: ClassId) -> bool;

    /// Returns a client of a stream of random choices.
    ///
    /// # Errors
    /// Fails if the database is none of the workload.
    fn client(&self, db: &Database, reach: Reach, stream: u64) -> Result<Box<dyn AnyClient>, SetupError>;

    /// Returns a client that does what others have asked for, if the workload has such.
    ///
    /// # Errors
    /// Fails if the database is none of the workload.
    fn server(
        &self,
        db: &Database,
        reach: Reach,
        stream: u64,
    ) -> Result<Option<Box<dyn AnyClient>>, SetupError>;
}

impl<W: Workload> ClientSource for W {
    fn classes(&self) -> &'static [&'static str] {
        Workload::classes(self)
    }

    fn updates(&self, class: ClassId) -> bool {
        Workload::updates(self, class)
    }

    fn client(&self, db: &Database, reach: Reach, stream: u64) -> Result<Box<dyn AnyClient>, SetupError> {
        Ok(Box::new(ClientOf::<W>(self.state(db, reach, stream)?)))
    }

    fn server(
        &self,
        db: &Database,
        reach: Reach,
        stream: u64,
    ) -> Result<Option<Box<dyn AnyClient>>, SetupError> {
        let server = Workload::server(self, db, reach, stream)?;
        Ok(server.map(|state| Box::new(ClientOf::<W>(state)) as Box<dyn AnyClient>))
    }
}

/// Returns the error of a client that was ended by an abort.
///
/// # Errors
/// Returns [`RunError::Broken`] with the class of the transaction.
pub fn check_end(workload: &dyn ClientSource, end: ClientEnd) -> Result<(), RunError> {
    end.map_err(|(class, abort)| RunError::Broken { class: workload.classes()[class], abort })
}

/// Returns true if a client continues after an abort. Aborts that indicate a bug, or stop the database for good, end
/// the run; the expected ones are only counted.
fn goes_on(abort: &Abort) -> bool {
    !matches!(
        abort.reason(),
        AbortReason::Panic
            | AbortReason::Misuse
            | AbortReason::Corruption
            | AbortReason::UnknownTable
            | AbortReason::NotDurable
    )
}

/// Time after which a session that never suspends lets the worker poll its rings and inbox.
const TURN: Duration = Duration::from_micros(10);

/// A transaction that has committed and is not acknowledged yet.
struct Committed<T> {
    class: ClassId,
    outcome: Outcome,
    began: Ticks,
    ticket: T,
}

/// The transactions of a session that are not acknowledged yet, the oldest first.
struct Pipeline<'a> {
    session: &'a Session,
    recorder: &'a Recorder,
    committed: VecDeque<Committed<CommitTicket>>,
    room: usize,
}

impl<'a> Pipeline<'a> {
    /// Creates one that has room for so many; with a room of 1, the session waits for each transaction itself.
    fn new(session: &'a Session, recorder: &'a Recorder, room: usize) -> Pipeline<'a> {
        session.set_pipelined(room > 1);
        Pipeline { session, recorder, committed: VecDeque::with_capacity(room), room }
    }

    /// Counts a transaction that has ended, now or when it is acknowledged.
    #[inline]
    fn add(&mut self, class: ClassId, outcome: &Result<Outcome, Abort>, began: Ticks, now: Ticks) {
        let ticket = self.session.take_ticket();
        match outcome {
            Ok(outcome) if self.room > 1 && !self.session.is_acknowledged(ticket) => {
                self.committed.push_back(Committed { class, outcome: *outcome, began, ticket });
            }
            outcome => self.recorder.record(class, outcome, now.since(began)),
        }
    }

    /// Returns true if the next transaction has to wait for an acknowledgement.
    fn is_full(&self) -> bool {
        self.room > 1 && self.committed.len() >= self.room
    }

    /// Counts the transactions that are acknowledged by now.
    #[inline]
    fn count(&mut self, now: Ticks) {
        while let Some(oldest) = self.committed.front()
            && self.session.is_acknowledged(oldest.ticket)
        {
            self.recorder.record(oldest.class, &Ok(oldest.outcome), now.since(oldest.began));
            self.committed.pop_front();
        }
    }

    /// Waits until fewer than `room` transactions are not acknowledged.
    async fn make_room(&mut self, room: usize) -> ClientEnd {
        while let Some(oldest) = self.committed.front()
            && self.committed.len() >= room
        {
            if let Err(abort) = self.session.acknowledged(oldest.ticket).await {
                return Err((oldest.class.index(), abort));
            }
            self.count(self.session.now());
        }
        Ok(())
    }
}

async fn run_session<W: Workload>(
    session: &Session,
    state: &mut W::State,
    recorder: &Recorder,
    pipeline: usize,
    burst: usize,
) -> ClientEnd {
    let mut pipeline = Pipeline::new(session, recorder, pipeline);
    run_transactions::<W>(session, state, recorder, &mut pipeline, burst).await?;
    pipeline.make_room(1).await
}

/// The transactions that a session has drawn together and not run yet.
struct Drawn {
    upcoming: Upcoming,
    /// Transactions that are drawn together; with 1, each is drawn when it runs.
    burst: usize,
    /// The time at which those that are left were drawn.
    began: Ticks,
}

impl Drawn {
    /// Returns the route of the next transaction, if it was drawn before, and the time from which its latency counts, which is
    /// `now` otherwise. Draws the next ones when none are left.
    #[inline(always)]
    fn next<W: Workload>(
        &mut self,
        session: &Session,
        state: &mut W::State,
        now: Ticks,
    ) -> (Option<&KnownRoute>, Ticks) {
        if self.burst > 1 && self.upcoming.is_empty() {
            self.upcoming.clear();
            W::draw_ahead(state, self.burst, &mut self.upcoming);
            session.look_up(&self.upcoming);
            self.began = now;
        }
        let known = self.upcoming.take();
        let began = if known.is_some() { self.began } else { now };
        (known, began)
    }
}

/// Waits for some time, or until the recorder says stop or the database is being closed.
async fn rest(session: &Session, recorder: &Recorder, time: Duration) {
    let end = session.now().after(Clock::real().ticks(time));
    while !recorder.is_stopped() && !session.is_stopping() && session.now() < end {
        session.sleep_until(end.min(session.now().after(Clock::real().ticks(LOOK_EVERY)))).await;
    }
}

/// Runs one transaction after the other until the recorder says stop.
#[inline]
async fn run_transactions<W: Workload>(
    session: &Session,
    state: &mut W::State,
    recorder: &Recorder,
    pipeline: &mut Pipeline<'_>,
    burst: usize,
) -> ClientEnd {
    let turn = Clock::real().ticks(TURN);
    let mut ended = session.now();
    let mut turn_began = ended;
    let mut drawn = Drawn { upcoming: Upcoming::new(), burst, began: ended };
    // What was drawn is run, although the recorder says stop meanwhile.
    while !(recorder.is_stopped() && drawn.upcoming.is_empty()) {
        if let Some(pause) = W::pause(state) {
            rest(session, recorder, pause).await;
            if session.is_stopping() {
                return Ok(());
            }
            ended = session.now();
            turn_began = ended;
            continue;
        }
        let (known, began) = drawn.next::<W>(session, state, ended);
        let mut suspended = false;
        let (mut now, mut aborted) = (began, None);
        {
            let client = Client::Session(session, known);
            // Pinned where it is made: handed to another function, the whole future would be copied. Its outcome is counted
            // where it is returned, for the same reason.
            let mut transaction = pin!(W::transaction(&client, state));
            poll_fn(|context| {
                let polled = transaction.as_mut().poll(context);
                let Poll::Ready((class, outcome)) = &polled else {
                    suspended = true;
                    return Poll::Pending;
                };
                now = session.now();
                pipeline.add(*class, outcome, began, now);
                if let Err(abort) = outcome {
                    aborted = Some((*class, abort.clone()));
                }
                Poll::Ready(())
            })
            .await;
        }
        if let Some((class, abort)) = aborted {
            match abort.reason() {
                AbortReason::ShuttingDown => return Ok(()),
                _ if goes_on(&abort) => {}
                _ => return Err((class.index(), abort)),
            }
        }
        pipeline.count(now);
        if pipeline.is_full() {
            pipeline.make_room(pipeline.room).await?;
            now = session.now();
            suspended = true;
        }
        ended = now;
        if suspended {
            turn_began = now;
        } else if now.since(turn_began) > turn || session.is_awaited() {
            session.yield_now().await;
            ended = session.now();
            turn_began = ended;
        }
    }
    Ok(())
}

fn run_thread<W: Workload>(client: &Client<'_>, state: &mut W::State, recorder: &Recorder) -> ClientEnd {
    let clock = Clock::real();
    let mut began = clock.now();
    while !recorder.is_stopped() {
        if let Some(time) = W::pause(state) {
            pause(time, recorder);
            began = clock.now();
            continue;
        }
        let (class, outcome) = block_on(W::transaction(client, state));
        let now = clock.now();
        recorder.record(class, &outcome, now.since(began));
        if let Err(abort) = outcome {
            match abort.reason() {
                AbortReason::ShuttingDown => return Ok(()),
                _ if goes_on(&abort) => {}
                _ => return Err((class.index(), abort)),
            }
        }
        began = now;
    }
    Ok(())
}

/// Sleeps for some time, or until the recorder says stop.
fn pause(time: Duration, recorder: &Recorder) {
    let end = Instant::now() + time;
    while let Some(rest) = end.checked_duration_since(Instant::now())
        && !rest.is_zero()
        && !recorder.is_stopped()
    {
        std::thread::sleep(rest.min(LOOK_EVERY));
    }
}

/// The transactions of a client of an engine with shared data that are not acknowledged yet, the oldest first.
struct SharedPipeline<'a> {
    client: &'a dyn SharedClient,
    recorder: &'a Recorder,
    committed: VecDeque<Committed<Ticket>>,
}

impl SharedPipeline<'_> {
    /// Counts the transactions that are acknowledged by now.
    fn count(&mut self, now: Ticks) {
        while let Some(oldest) = self.committed.front()
            && self.client.is_acknowledged(oldest.ticket)
        {
            self.recorder.record(oldest.class, &Ok(oldest.outcome), now.since(oldest.began));
            self.committed.pop_front();
        }
    }

    /// Waits until fewer than `room` transactions are not acknowledged.
    fn make_room(&mut self, room: usize) -> ClientEnd {
        while let Some(oldest) = self.committed.front()
            && self.committed.len() >= room
        {
            self.client.acknowledged(oldest.ticket).map_err(|abort| (oldest.class.index(), abort))?;
            self.count(Clock::real().now());
        }
        Ok(())
    }
}

/// Runs one transaction after the other like [`run_thread`], while up to `room` of them wait to be acknowledged.
fn run_pipelined<W: Workload>(
    client: &dyn SharedClient,
    state: &mut W::State,
    recorder: &Recorder,
    room: usize,
) -> ClientEnd {
    client.set_pipelined(true);
    let clock = Clock::real();
    let mut pipeline = SharedPipeline { client, recorder, committed: VecDeque::with_capacity(room) };
    while !recorder.is_stopped() {
        if let Some(time) = W::pause(state) {
            pipeline.make_room(1)?;
            pause(time, recorder);
            continue;
        }
        pipeline.make_room(room)?;
        let began = clock.now();
        let (class, outcome) = block_on(W::transaction(&Client::Shared(client), state));
        let (ticket, now) = (client.take_ticket(), clock.now());
        match outcome {
            Ok(outcome) => pipeline.committed.push_back(Committed { class, outcome, began, ticket }),
            Err(abort) if goes_on(&abort) => recorder.record(class, &Err(abort), now.since(began)),
            Err(abort) => return Err((class.index(), abort)),
        }
        pipeline.count(now);
    }
    pipeline.make_room(1)
}
