//! The watcher: what wakes workers that sleep until something arrives on one of their channels.
//!
//! Owns: the threads that sleep in their stead, the epoll instance, this process's doorbell, and the wake function of each channel.
//! Never: reads a message; a worker that is awake needs none of this, except that the end of a peer on shared memory is
//! seen here.
//!
//! A thread can sleep in one place only, so there are two: one waits for file descriptors, one on the doorbell.
//!
//! # A watched descriptor
//! Its interest in epoll is for one event and stays there while the worker is awake, so that a worker that falls asleep and wakes
//! up for other reasons makes no system call. `WatchedFd::state` says what is to come: *quiet* (the event is to be recorded
//! only), *armed* (it is to wake the worker), *spent* (it has happened; the next arming renews the interest, and the kernel
//! reports at once what is there already).

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};

use rustix::buffer::spare_capacity;
use rustix::event::{EventfdFlags, epoll};
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use rustix::net::RecvFlags;

use crate::bell::Bell;
use crate::error::{Attempt, ChannelError};
use crate::link::{Link, Side};
use crate::memory::Memory;
use crate::planted::{Bug, planted};
use crate::sleep;

/// A function that wakes the owner of a channel: it may be called at any time, from another thread, and must neither
/// block nor panic.
pub type Wake = Box<dyn Fn() + Send + Sync>;

/// The id by which the threads are told to stop.
const STOP: u64 = 0;
/// Events that one call of epoll reports.
const EVENTS_MAX: usize = 64;

/// A handle of the threads that wake workers. One is enough for a process; they end with its last handle and the last channel.
#[derive(Clone)]
pub struct Watcher {
    threads: Arc<Threads>,
}

struct Threads {
    watch: Arc<Watch>,
    handles: Vec<JoinHandle<()>>,
}

/// What the threads look at.
struct Watch {
    epoll: OwnedFd,
    stop: OwnedFd,
    stopping: AtomicBool,
    bell: Bell,
    bell_file: OwnedFd,
    fds: Mutex<HashMap<u64, Arc<WatchedFd>>>,
    sleepers: Mutex<HashMap<u64, Arc<Sleeper>>>,
    /// Ids are never used again, so that a late event wakes nobody else.
    next_id: AtomicU64,
}

impl fmt::Debug for Watcher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watcher").finish_non_exhaustive()
    }
}

/// No critical section of this file leaves its data in pieces, so a poisoned lock is taken as it is.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The wake function of a channel, once its owner has set it.
#[derive(Default)]
pub(crate) struct Alarm {
    wake: Mutex<Option<Arc<Wake>>>,
}

impl Alarm {
    pub(crate) fn set(&self, wake: Wake) {
        *lock(&self.wake) = Some(Arc::new(wake));
    }

    fn sound(&self) {
        // Not under the lock: the function may do what it likes with the channel.
        let wake = lock(&self.wake).clone();
        if let Some(wake) = wake {
            wake();
        }
    }
}

impl Watcher {
    /// Starts the threads.
    ///
    /// # Errors
    /// If the system gives no thread, descriptor or memory.
    pub fn start() -> Result<Self, ChannelError> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).attempt("make an epoll instance")?;
        let stop = rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
            .attempt("make an event descriptor")?;
        epoll::add(&epoll, &stop, epoll::EventData::new_u64(STOP), epoll::EventFlags::IN)
            .attempt("watch an event descriptor")?;
        let (bell_file, memory) = Memory::create("atrapos-doorbell", Bell::BYTES)?;
        let watch = Arc::new(Watch {
            epoll,
            stop,
            stopping: AtomicBool::new(false),
            bell: Bell::in_mapping(memory),
            bell_file,
            fds: Mutex::default(),
            sleepers: Mutex::default(),
            next_id: AtomicU64::new(STOP + 1),
        });
        let mut threads = Threads { watch, handles: Vec::new() };
        threads.start("channel-fds", Watch::watch_fds)?;
        threads.start("channel-bell", Watch::watch_bell)?;
        Ok(Self { threads: Arc::new(threads) })
    }

    fn watch(&self) -> &Watch {
        &self.threads.watch
    }

    /// The file of this process's doorbell, to be sent to peers.
    pub(crate) fn bell_file(&self) -> &OwnedFd {
        &self.watch().bell_file
    }

    /// Watches a side of a link from now on.
    pub(crate) fn watch_link(&self, link: Arc<Link>, side: Side, alarm: Arc<Alarm>) -> LinkWatch {
        let id = self.watch().next_id.fetch_add(1, Ordering::Relaxed);
        lock(&self.watch().sleepers).insert(id, Arc::new(Sleeper { link, side, alarm }));
        LinkWatch { watcher: self.clone(), id }
    }

    /// Watches a descriptor that carries messages, or whose peer's end is all there is to see.
    pub(crate) fn watch_fd(
        &self,
        fd: Arc<OwnedFd>,
        role: Role,
        interest: epoll::EventFlags,
        alarm: Arc<Alarm>,
    ) -> Result<FdWatch, ChannelError> {
        let id = self.watch().next_id.fetch_add(1, Ordering::Relaxed);
        let watched = Arc::new(WatchedFd { id, fd, role, alarm, state: AtomicU8::new(QUIET) });
        lock(&self.watch().fds).insert(id, Arc::clone(&watched));
        let watch = FdWatch { watcher: self.clone(), watched, interest };
        let data = epoll::EventData::new_u64(id);
        let flags = interest | epoll::EventFlags::ONESHOT;
        epoll::add(&self.watch().epoll, &watch.watched.fd, data, flags).attempt("watch a channel")?;
        Ok(watch)
    }
}

impl Threads {
    fn start(&mut self, name: &str, run: fn(&Watch)) -> Result<(), ChannelError> {
        let watch = Arc::clone(&self.watch);
        let handle = thread::Builder::new()
            .name(name.to_owned())
            .spawn(move || run(&watch))
            .attempt("start a thread that watches channels")?;
        self.handles.push(handle);
        Ok(())
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        self.watch.stopping.store(true, Ordering::Release);
        // An event descriptor takes 2^64 - 2 writes of one before it refuses.
        let _written = rustix::io::write(&self.watch.stop, &1u64.to_ne_bytes());
        self.watch.bell.ring();
        for handle in self.handles.drain(..) {
            // The last channel may end in a wake function, on a thread that cannot wait for itself.
            if handle.thread().id() != thread::current().id() {
                // A thread that panicked has said so.
                let _ended = handle.join();
            }
        }
    }
}

impl Watch {
    fn watch_fds(&self) {
        let mut events = Vec::with_capacity(EVENTS_MAX);
        loop {
            match epoll::wait(&self.epoll, spare_capacity(&mut events), None) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(error) => panic!("an epoll instance of this process cannot be waited for: {error}"),
            }
            for event in events.drain(..) {
                let id = event.data.u64();
                if id == STOP {
                    return;
                }
                let watched = lock(&self.fds).get(&id).cloned();
                if let Some(watched) = watched {
                    watched.on_event(&self.epoll);
                }
            }
        }
    }

    fn watch_bell(&self) {
        let mut rung = Vec::new();
        while !self.stopping.load(Ordering::Acquire) {
            let seen = self.bell.rings();
            rung.extend(lock(&self.sleepers).values().filter(|sleeper| sleeper.was_rung()).cloned());
            for sleeper in rung.drain(..) {
                sleeper.alarm.sound();
            }
            if !self.stopping.load(Ordering::Acquire) {
                self.bell.wait(seen);
            }
        }
    }
}

// --- shared memory -----------------------------------------------------------------------------------------------------

/// A side of a link whose owner may sleep.
struct Sleeper {
    link: Arc<Link>,
    side: Side,
    alarm: Arc<Alarm>,
}

impl Sleeper {
    fn was_rung(&self) -> bool {
        sleep::was_rung(&self.link.words(self.side).sleep)
    }
}

/// A watched side of a link, until this is dropped.
pub(crate) struct LinkWatch {
    watcher: Watcher,
    id: u64,
}

impl Drop for LinkWatch {
    fn drop(&mut self) {
        let sleeper = lock(&self.watcher.watch().sleepers).remove(&self.id);
        drop(sleeper);
    }
}

// --- file descriptors --------------------------------------------------------------------------------------------------

const QUIET: u8 = 0;
const ARMED: u8 = 1;
const SPENT: u8 = 2;

/// What a watched descriptor is for.
pub(crate) enum Role {
    /// It carries messages; the channel reads it itself.
    Stream,
    /// It carries nothing, and ends when the peer does.
    Lifeline(Arc<Fate>),
}

/// What is known of a peer that shares memory.
#[derive(Default)]
pub(crate) struct Fate {
    state: AtomicU8,
}

impl Fate {
    const ALIVE: u8 = 0;
    const GONE: u8 = 1;
    const BABBLING: u8 = 2;

    /// Returns the error that the peer has come to, if it has.
    #[inline]
    pub(crate) fn error(&self) -> Option<ChannelError> {
        match self.state.load(Ordering::Acquire) {
            Self::ALIVE => None,
            end => Some(Self::sentence(end)),
        }
    }

    #[cold]
    fn sentence(end: u8) -> ChannelError {
        if end == Self::GONE {
            ChannelError::Gone("its process has ended or closed the link".into())
        } else {
            ChannelError::Nonsense("it writes to a socket that is there to be closed".into())
        }
    }
}

struct WatchedFd {
    id: u64,
    fd: Arc<OwnedFd>,
    role: Role,
    alarm: Arc<Alarm>,
    /// Written by the worker (quiet, armed) and by the watcher (spent).
    state: AtomicU8,
}

impl WatchedFd {
    fn on_event(&self, epoll: &OwnedFd) {
        match &self.role {
            Role::Stream => {
                if self.state.swap(SPENT, Ordering::AcqRel) == ARMED {
                    self.alarm.sound();
                }
            }
            Role::Lifeline(fate) => self.on_lifeline(epoll, fate),
        }
    }

    fn on_lifeline(&self, epoll: &OwnedFd, fate: &Fate) {
        let mut byte = [0];
        let state = match rustix::net::recv(&*self.fd, &mut byte[..], RecvFlags::DONTWAIT) {
            Err(Errno::INTR | Errno::AGAIN) => {
                let flags = epoll::EventFlags::IN | epoll::EventFlags::RDHUP | epoll::EventFlags::ONESHOT;
                let _renewed = epoll::modify(epoll, &self.fd, epoll::EventData::new_u64(self.id), flags);
                return;
            }
            Ok((0, _)) | Err(_) => Fate::GONE,
            Ok(_) => Fate::BABBLING,
        };
        fate.state.store(state, Ordering::Release);
        // Armed or not: a worker is woken for nothing rather than not at all.
        self.alarm.sound();
    }
}

/// A watched descriptor, until this is dropped.
pub(crate) struct FdWatch {
    watcher: Watcher,
    watched: Arc<WatchedFd>,
    interest: epoll::EventFlags,
}

impl FdWatch {
    /// Has the next event, or what is there already, wake the owner.
    pub(crate) fn arm(&mut self, interest: epoll::EventFlags) {
        let state = &self.watched.state;
        if interest == self.interest
            && state.compare_exchange(QUIET, ARMED, Ordering::AcqRel, Ordering::Acquire) != Err(SPENT)
        {
            return;
        }
        self.interest = interest;
        state.store(ARMED, Ordering::Release);
        if planted(Bug::SpentNotRenewed) {
            return;
        }
        let data = epoll::EventData::new_u64(self.watched.id);
        let flags = interest | epoll::EventFlags::ONESHOT;
        if epoll::modify(&self.watcher.watch().epoll, &self.watched.fd, data, flags).is_err() {
            // The kernel is out of memory: the owner must not sleep.
            self.watched.alarm.sound();
        }
    }

    /// Has the next event recorded only.
    #[inline]
    pub(crate) fn disarm(&self) {
        if self.watched.state.load(Ordering::Relaxed) == ARMED {
            let _spent =
                self.watched.state.compare_exchange(ARMED, QUIET, Ordering::AcqRel, Ordering::Acquire);
        }
    }
}

impl Drop for FdWatch {
    fn drop(&mut self) {
        // A descriptor whose registration failed is not there.
        let _deleted = epoll::delete(&self.watcher.watch().epoll, &self.watched.fd);
        let watched = lock(&self.watcher.watch().fds).remove(&self.watched.id);
        drop(watched);
    }
}
