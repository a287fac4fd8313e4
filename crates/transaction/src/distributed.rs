//! Transactions over several instances of a deployment.
//!
//! A deployment divides its keys among *instances*: databases in processes of their own, each with its workers, memory and
//! directory. A transaction runs at its home in one of them, its *coordinator*. For each other instance whose rows it accesses it
//! has a *subordinate* there (the terms of System R*): a transaction of that instance, which holds its locks and makes
//! its changes.
//!
//! # Links
//!
//! Two instances with `a` and `b` workers have `max(a, b)` [links](Link); link `i` is between worker `i` modulo `a` of the one and
//! `i` modulo `b` of the other. So link `w` begins at worker `w` of an instance with more than `w` workers: it is the worker's *own*
//! link to the other instance, the only one by which it speaks to its subordinates there and they to it. The part of a transaction
//! in another instance is therefore on one worker from its beginning to its end, before and after a crash and whichever links there
//! are meanwhile.
//!
//! # Access
//!
//! Closures never travel. An action on rows of another instance is run in three steps ([`coordinator`]): the subordinate locks and
//! copies the rows, in one message for all actions of a phase in one instance; the copies are *staged*, in trees that only the
//! transaction has ([`staged`]); and the operation runs on these. So an operation finds what earlier ones have written, and leaves
//! dependents like any other. A row is copied once, unless its lock has to become exclusive.
//!
//! A procedure may declare its last operation. If that, or the last part of it, reads keys of an instance without a subordinate, all
//! other locks are held when that instance is asked, and none is acquired after: its locks would be released with the reply, so
//! it copies the rows if they are free, and has no subordinate ([`last_reads`]). The transaction is closed then
//! ([`TxnState::close`](crate::tx::TxnState::close)). Nothing reads the copies of a last operation again, so it runs on them where they are.
//!
//! # Commit
//!
//! Two-phase commit with presumed abort (Mohan, Lindsay and Obermarck 1986). When the procedure has succeeded, all locks are held, so
//! subordinates that have changed nothing are released at once; they vote only if what they have read is not durable yet.
//!
//! The home commits without votes ([`coordinator::needs_votes`]) if no subordinate has anything to say: what each has read is durable, and
//! either nothing was changed in other instances, or the data is in memory and every change there replaces a row by one of
//! the same length. The subordinate has the exclusive lock on such a row, so that the row stays as it was copied, and needs no memory:
//! it cannot refuse. It is told to *commit*, with the changes, on the link on which it has answered, and releases its locks when it has
//! made them. So whoever reads what was changed waits for the message, and finds the changes even if the client of the
//! transaction has its answer already: histories stay strictly serializable. A message is lost only with its link,
//! as the one that tells a decision after votes is (see "Loss of an instance").
//!
//! In any other case there are votes. Each of the subordinates with changes is sent the final images of its changed rows, makes the changes, and votes. If all vote to commit the coordinator decides to, which
//! its own commit is, and tells them; it tells them to abort in any other case. A single subordinate with changes,
//! when the home has none, commits in one phase.
//!
//! # Deadlocks
//!
//! Probes ([`crate::deadlock`]) follow a transaction from its home to its subordinates, and from a subordinate to its
//! coordinator. Ages and identities are those of the coordinator. An identity has the incarnation of its instance's database, since
//! numbers begin anew in each: what is in doubt may be of an earlier one than the transaction that has its number now.
//!
//! # Loss of an instance
//!
//! The end of a link dooms the transactions that have a subordinate behind it, and aborts the subordinates whose coordinator was
//! there, but for those that are prepared: they are in doubt until there is a link again ([`hardening`]). With data in
//! memory, the knowledge of a lost instance is gone, so there is nobody to ask, and the prepared abort too. A link that is
//! cut while both instances live is treated alike, so that in memory a transaction that was decided and not yet told may be
//! committed at its home alone: within a machine, links end with a process.
//!
//! Owns: the messages between instances ([`wire`]), links, and both parts of such transactions. Never: moves bytes itself (a
//! [`Channel`] does), or changes a row other than by an operation.

mod arrivals;
pub(crate) mod coordinator;
pub(crate) mod hardening;
mod last_reads;
pub(crate) mod probes;
mod staged;
pub mod steps;
pub(crate) mod subordinate;
mod wire;

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;

use atrapos_channel::{Channel, ChannelError};
use atrapos_durability::wal::GlobalId;
use atrapos_partition::abort::{Abort, AbortReason};
use atrapos_partition::planted::{Bug, planted};
use atrapos_partition::routing::InstanceId;
use atrapos_storage::lock::TxnId;

use self::arrivals::{Arrival, Arrivals};
use self::coordinator::Remote;
use self::hardening::Hardening;
pub use self::hardening::{log_again, recover_decision, unresolved};
use self::steps::CommitStep;
use self::subordinate::Subordinate;
pub use self::subordinate::{recover_prepared, rows_of_prepared};
pub(crate) use self::wire::GlobalProbe;
use self::wire::Message;
use crate::deadlock::home_of;
use crate::shard::{EngineWorker, FastMap};

/// Messages taken from a link before what they ask for is done.
const MESSAGES_AT_A_TIME: usize = 256;

/// The links of a worker to other instances, and its subordinates.
pub struct Peers {
    /// The number of this instance.
    instance: InstanceId,
    /// The links that end at this worker: several to an instance with more workers.
    links: RefCell<Vec<Rc<Link>>>,
    /// The subordinates here, by the instance and the number of their coordinators.
    subordinates: RefCell<FastMap<(InstanceId, TxnId), Subordinate>>,
    /// Remote parts of transactions that have ended, to be used again.
    #[expect(clippy::vec_box, reason = "a transaction takes the box, and puts it back")]
    spare: RefCell<Vec<Box<Remote>>>,
    /// The messages that were received last.
    received: RefCell<Arrivals>,
    /// A message that is being written.
    draft: RefCell<Vec<u8>>,
    /// The last sentence about a link that has ended.
    lost: RefCell<Option<String>>,
    /// The function that is told of an instance that cannot be reached any more.
    observer: RefCell<Option<LossObserver>>,
    /// The part that outlives the processes, if the database logs.
    hardening: Hardening,
}

/// A function that is told of an instance that a worker cannot reach any more. It is called on the worker's thread, so it must
/// not wait.
pub type LossObserver = Arc<dyn Fn(InstanceId) + Send + Sync>;

impl std::fmt::Debug for Peers {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Peers").field("instance", &self.instance).finish_non_exhaustive()
    }
}

/// A link to a worker of another instance (see "Links").
pub(crate) struct Link {
    instance: InstanceId,
    /// Its number among the links of the two instances.
    number: usize,
    /// True if it is the own link of its worker here.
    is_own: bool,
    channel: RefCell<Box<dyn Channel>>,
    /// True if messages were sent since the last flush.
    is_dirty: Cell<bool>,
}

/// Returns the sentence about a transaction that no worker of this instance can have begun, if it is none.
fn check_own(worker: &EngineWorker, peers: &Peers, of: GlobalId) -> Result<(), String> {
    if of.instance == peers.instance.0 && home_of(TxnId(of.txn)).index() < worker.workers() {
        return Ok(());
    }
    Err("it speaks of a transaction that no worker can have begun".to_owned())
}

impl Peers {
    /// Creates the state of a worker of this instance, without links, in an incarnation of its database; 0 of one in memory.
    #[must_use]
    pub fn new(instance: InstanceId, incarnation: u32) -> Peers {
        Peers {
            instance,
            links: RefCell::default(),
            subordinates: RefCell::default(),
            spare: RefCell::default(),
            received: RefCell::default(),
            draft: RefCell::default(),
            lost: RefCell::default(),
            observer: RefCell::default(),
            hardening: Hardening::new(incarnation),
        }
    }

    /// The incarnation of this instance's database.
    fn incarnation(&self) -> u32 {
        self.hardening.incarnation
    }

    fn find_link(&self, is_it: impl Fn(&Link) -> bool) -> Option<Rc<Link>> {
        self.links.borrow().iter().find(|link| is_it(link)).cloned()
    }

    /// Sends a message to another instance, by the own link. It is visible there when the step ends.
    fn send(&self, to: InstanceId, message: &Message<'_>) -> Result<(), Abort> {
        let own = self.find_link(|link| link.instance == to && (link.is_own || planted(Bug::AnyLinkIsOwn)));
        self.send_on(&*own.ok_or_else(|| unreachable(to))?, message)
    }

    /// Sends a message to the home of a transaction that has a subordinate on this worker.
    fn send_home(&self, of: GlobalId, message: &Message<'_>) -> Result<(), Abort> {
        let (instance, number) = (InstanceId(of.instance), home_of(TxnId(of.txn)).index());
        let own_there = self.find_link(|link| link.instance == instance && link.number == number);
        self.send_on(&*own_there.ok_or_else(|| unreachable(instance))?, message)
    }

    /// Publishes what was sent. Returns true if there was anything.
    fn flush(&self) -> bool {
        let mut found = false;
        for link in self.links.borrow().iter() {
            let mut channel = link.channel.borrow_mut();
            if link.is_dirty.get() || channel.backlog() > 0 {
                found |= link.is_dirty.replace(false);
                // The next receive reports the end of the link.
                let _ = channel.flush();
            }
        }
        found
    }

    /// Notes that a transaction has got to a step of its commit ([`steps`]), whose messages were sent.
    fn reached(&self, step: CommitStep) {
        steps::reached(self.instance, step, || {
            self.flush();
        });
    }

    /// Sends a message on a link.
    fn send_on(&self, link: &Link, message: &Message<'_>) -> Result<(), Abort> {
        self.send_written(link, |draft| message.encode(draft))
    }

    /// Sends a message on a link, which `write` writes.
    fn send_written(&self, link: &Link, write: impl FnOnce(&mut Vec<u8>)) -> Result<(), Abort> {
        self.send_behind(link, write, &[])
    }

    /// Sends a message on a link, whose beginning `write` writes and whose end is `rest`.
    fn send_behind(&self, link: &Link, write: impl FnOnce(&mut Vec<u8>), rest: &[u8]) -> Result<(), Abort> {
        let mut draft = self.draft.take();
        draft.clear();
        write(&mut draft);
        let sent = link.channel.borrow_mut().send(&[&draft, rest]);
        link.is_dirty.set(true);
        self.draft.replace(draft);
        sent.map_err(|error| match error {
            ChannelError::TooLong { .. } => {
                Abort::explained(AbortReason::TransactionTooLarge, error.to_string())
            }
            // The next receive reports the end of the link.
            _ => unreachable(link.instance),
        })
    }
}

/// Creates the abort of a transaction that needs an instance to which there is no link.
#[cold]
pub(crate) fn unreachable(instance: InstanceId) -> Abort {
    Abort::explained(
        AbortReason::Unreachable,
        format!("{instance} of the deployment cannot be reached; start it again, or wait until it is back"),
    )
}

/// Adds the link with this number to another instance (see "Links"), on the worker where it ends.
pub fn add_link(worker: &Rc<EngineWorker>, instance: InstanceId, number: usize, channel: Box<dyn Channel>) {
    if let Some(peers) = worker.shard().peers.get() {
        let is_own = number == worker.id().index();
        let (channel, is_dirty) = (RefCell::new(channel), Cell::new(false));
        let link = Rc::new(Link { instance, number, is_own, channel, is_dirty });
        peers.links.borrow_mut().push(Rc::clone(&link));
        hardening::on_linked(peers, &link);
    }
}

/// Sets the function that is told of the loss of an instance. Links that this instance removes are no loss.
pub fn observe(worker: &Rc<EngineWorker>, observer: LossObserver) {
    if let Some(peers) = worker.shard().peers.get() {
        peers.observer.replace(Some(observer));
    }
}

/// Removes the links to another instance.
pub fn remove_links(worker: &Rc<EngineWorker>, instance: InstanceId) {
    let Some(peers) = worker.shard().peers.get() else { return };
    while let Some(link) = peers.find_link(|link| link.instance == instance) {
        end_link(worker, peers, &link, "it was removed");
    }
}

/// Returns the instances to which there are links, and the sentence about the link that ended last.
pub fn links(worker: &Rc<EngineWorker>) -> (Vec<InstanceId>, Option<String>) {
    let Some(peers) = worker.shard().peers.get() else { return (Vec::new(), None) };
    let mut linked: Vec<InstanceId> = peers.links.borrow().iter().map(|link| link.instance).collect();
    linked.sort_unstable();
    linked.dedup();
    (linked, peers.lost.borrow().clone())
}

/// Takes in what other instances have sent, and publishes what was sent to them; called once per step. Returns true if there was
/// anything to do.
#[inline]
pub(crate) fn step(worker: &Rc<EngineWorker>) -> bool {
    worker.shard().peers.get().is_some_and(|peers| step_peers(worker, peers))
}

#[inline(never)]
fn step_peers(worker: &Rc<EngineWorker>, peers: &Peers) -> bool {
    let mut found = peers.step_hardening(worker);
    let count = peers.links.borrow().len();
    for at in 0..count {
        let link = peers.links.borrow().get(at).cloned();
        if let Some(link) = link {
            found |= receive(worker, peers, &link);
        }
    }
    found | peers.flush()
}

/// Takes in what has arrived on a link.
fn receive(worker: &Rc<EngineWorker>, peers: &Peers, link: &Rc<Link>) -> bool {
    let mut received = peers.received.take();
    received.clear();
    let taken = link.channel.borrow_mut().receive(MESSAGES_AT_A_TIME, &mut |message| received.add(message));
    received.locate(&worker.shard().tables.borrow());
    let mut failed = taken.err().map(|error| error.to_string());
    for arrival in received.iter() {
        if let Err(nonsense) = on_message(worker, peers, link, arrival) {
            failed = Some(nonsense);
            break;
        }
    }
    let found = !received.is_empty() || failed.is_some();
    peers.received.replace(received);
    if let Some(why) = failed {
        lose_link(worker, peers, link, &why);
    }
    found
}

fn on_message(
    worker: &Rc<EngineWorker>,
    peers: &Peers,
    link: &Rc<Link>,
    Arrival { bytes, positions }: Arrival<'_>,
) -> Result<(), String> {
    let from = link.instance;
    let message = Message::decode(bytes).map_err(|what| {
        format!(
            "{from} has sent a message that is none ({what}); use the same version of the program everywhere"
        )
    })?;
    match message {
        Message::Fetch { txn, incarnation, age, is_last, requests } => {
            let requests = (requests, positions);
            if !is_last || !last_reads::read_last(worker, peers, link, txn, requests)? {
                let of = GlobalId { instance: from.0, incarnation, txn: txn.0 };
                subordinate::on_fetch(worker, peers, link, (of, age), requests)?;
            }
        }
        Message::Fetched { txn, .. } | Message::Vote { txn, .. } => {
            coordinator::on_reply(worker, from, txn, message);
        }
        Message::Prepare { txn, incarnation, in_one_phase, writes } => {
            let of = GlobalId { instance: from.0, incarnation, txn: txn.0 };
            subordinate::on_prepare(worker, peers, link, (of, in_one_phase), (writes, positions))?;
        }
        Message::Commit { txn, writes } => {
            subordinate::on_commit(worker, peers, link, txn, (writes, positions))?;
        }
        Message::End { txn, commit } => subordinate::on_end(worker, peers, (from, txn), commit),
        Message::Outcome { of, commit } => {
            if of.instance != from.0 || home_of(TxnId(of.txn)).index() != link.number {
                return Err(format!("{from} tells the outcome of a transaction that is not of its worker"));
            }
            subordinate::on_outcome(worker, peers, of, commit);
        }
        Message::Ended { of } => hardening::on_ended(worker, peers, from, of)?,
        Message::Ask { of } => hardening::on_ask(worker, peers, from, of)?,
        Message::Probe { probe, waiter } => probes::on_probe(worker, peers, from, probe, waiter),
        Message::ProbeHome { probe, met } => probes::on_probe_home(worker, peers, probe, met)?,
        Message::Victim { round, victim } => probes::on_victim(worker, peers, round, victim)?,
        Message::RefuseWaits { round, victim } => probes::on_refuse_waits(worker, peers, from, round, victim),
    }
    Ok(())
}

/// Ends a link that has failed, and tells the observer.
#[cold]
fn lose_link(worker: &Rc<EngineWorker>, peers: &Peers, link: &Rc<Link>, why: &str) {
    end_link(worker, peers, link, why);
    let observer = peers.observer.borrow().clone();
    if let Some(observe) = observer {
        observe(link.instance);
    }
}

/// Ends a link: see "Loss of an instance".
#[cold]
fn end_link(worker: &Rc<EngineWorker>, peers: &Peers, link: &Rc<Link>, why: &str) {
    peers.links.borrow_mut().retain(|other| !Rc::ptr_eq(other, link));
    peers.lost.replace(Some(format!("the link to {} has ended: {why}", link.instance)));
    if link.is_own {
        coordinator::on_lost(worker, link.instance);
    }
    subordinate::on_lost(worker, peers, link);
}

/// Returns true if another instance has sent something. The worker is about to sleep: whatever arrives from now on wakes it.
pub(crate) fn has_arrivals(worker: &Rc<EngineWorker>) -> bool {
    let Some(peers) = worker.shard().peers.get() else { return false };
    let mut arrived = peers.has_durable_news(worker);
    for link in peers.links.borrow().iter() {
        let mut channel = link.channel.borrow_mut();
        channel.arm();
        arrived |= channel.has_arrivals();
    }
    arrived
}
