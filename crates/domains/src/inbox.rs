//! Buffers: the slots in which clients leave requests for one worker, and the lines in which it answers.
//!
//! Owns: the memory, the leases on it, and the words by which a waiting client asks to be woken. Never: runs a task
//! (`polled`) or decides who waits (`client`).
//!
//! # Layout (after FFWD §3, Virtual domains §6)
//! A slot begins every 128 bytes, because processors fetch lines in pairs. Its first line is the request: a header, the key of the request's
//! first structure, and a payload ([`task`](crate::task)). In the second one is the waker of a client that gave up spinning. The header is the address of the task's table with
//! tags in its low bits. Fifteen slots make a group, whose reply line (a pair of lines, 128 bytes) has one word of toggle bits
//! and one word per slot. A slot's turn is the comparison of two bits:
//!
//! | toggle bit in the header | bit in the reply line | turn |
//! |---|---|---|
//! | equal | | the client's: the slot is free, or its reply is there |
//! | different | | the worker's: there is a request |
//!
//! A ring is a lease on consecutive slots, which its client uses in order and round, so that the worker looks at one
//! header per ring. The paper's clients own single slots and the worker looks at all; a ring of one is that.
//!
//! # Waking
//! A client that waits sets its slot's bit in the group's attention word, and the group's bit in the buffer's, and looks once
//! more. The worker reads the buffer's word once per step; once per step is often enough, because a worker that is about to
//! sleep reads it after its barrier. These two words are the only ones with several writers, and only a client that gave
//! up spinning touches them.
//!
//! # Why the unsafe code is sound
//! A payload and a reply word are `Handed` memory: whoever's turn it is may use them, and the toggle bit passes the turn with
//! release and acquire. On the client's side, a slot belongs to the one ring that leases it, and ring slots have states
//! of their own (`ring`); on the worker's side, to the one `Polled` of the buffer.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::task::Waker;

use atomic_waker::AtomicWaker;

use crate::planted::{Bug, ordering, planted};
use crate::structures::Key;
use crate::sync::{Arc, AtomicBool, AtomicPtr, AtomicU32, AtomicU64, Handed, Mutex, Ordering, lock};
use crate::task::{Failure, TaskError, TaskTable, drop_quietly, take_failure, take_reply, write_failure};
use crate::worker::WorkerShared;

/// Slots that share a reply line.
pub(crate) const GROUP_SLOTS: usize = 15;
/// Groups of a buffer at most: their bits make one word.
pub(crate) const GROUPS_MAX: usize = 64;

/// Tag of a header: passes the turn.
pub(crate) const TOGGLE: usize = 1;
/// Tag of a header: whoever submitted the task wants it not to run.
pub(crate) const CANCELLED: usize = 2;
const TAGS: usize = 7;

/// One request in a cache line, and in another one what is touched when its client sleeps: the next slot may be another client's.
#[repr(C, align(128))]
#[derive(Debug)]
struct Slot {
    header: AtomicPtr<TaskTable>,
    /// The key of the request's first structure, as a word: written by the client before the header, and read by anybody who wants to say
    /// what a request is about while its worker may be running it.
    key: AtomicU64,
    payload: Handed<[u64; 6]>,
    /// The waker of the client, in the second line.
    waker: AtomicWaker,
}

/// A request fills its line, so that the waker is in the next one.
const _: () = assert!(std::mem::offset_of!(Slot, waker) >= 64 && size_of::<Slot>() == 128);

/// The reply line of fifteen slots.
#[repr(C, align(128))]
#[derive(Debug)]
struct Replies {
    /// Bit `i`: the toggle of the last answer in slot `i`. Bit `32 + i`: that answer is a failure.
    answered: AtomicU64,
    words: [Handed<u64>; GROUP_SLOTS],
}

/// The slots that one worker serves.
#[derive(Debug)]
pub(crate) struct Buffer {
    slots: Box<[Slot]>,
    replies: Box<[Replies]>,
    /// Bit `g`: somebody waits in group `g`.
    attention: AtomicU64,
    /// Per group, bit `i`: the client of slot `i` waits.
    attention_of: Box<[AtomicU64]>,
    /// Counts changes of the leases.
    version: AtomicU32,
    leases: Mutex<Leases>,
    /// Per group, bit `i`: the task in slot `i` was passed on to another worker, which may be running it.
    passed: Box<[AtomicU64]>,
    /// The worker that serves the buffer now.
    server: AtomicPtr<WorkerShared>,
    /// Set once nobody will serve it again.
    dead: AtomicBool,
}

#[derive(Debug, Default)]
struct Leases {
    rings: Vec<Lease>,
    used: Vec<bool>,
    next_id: u64,
    waiting: Vec<Waker>,
}

/// Some consecutive slots and their client.
#[derive(Debug, Clone)]
pub(crate) struct Lease {
    pub(crate) id: u64,
    pub(crate) first: usize,
    pub(crate) count: usize,
    /// The client is gone. Slots of which nobody has taken the reply.
    abandoned: Option<Vec<usize>>,
}

/// The header that a worker found in a slot, split.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Header {
    pub(crate) table: *const TaskTable,
    pub(crate) toggle: bool,
    pub(crate) cancelled: bool,
}

// SAFETY: the table is `'static` and never changes.
unsafe impl Send for Header {}

fn split(header: *mut TaskTable) -> Header {
    let tags = header.addr() & TAGS;
    Header {
        table: header.map_addr(|address| address & !TAGS),
        toggle: tags & TOGGLE != 0,
        cancelled: tags & CANCELLED != 0,
    }
}

/// Wakes clients. A waker is code of the client's executor: if it panics, that is not the end of who wakes it, and the others are woken.
pub(crate) fn wake_all(wakers: impl IntoIterator<Item = Waker>) {
    for waker in wakers {
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| waker.wake())) {
            drop_quietly(panic);
        }
    }
}

pub(crate) const fn group_of(slot: usize) -> (usize, u32) {
    (slot / GROUP_SLOTS, (slot % GROUP_SLOTS) as u32)
}

/// The bit of a slot in its group's word that says failure.
pub(crate) const fn failure_bit(bit: u32) -> u64 {
    1 << (32 + bit)
}

impl Buffer {
    /// A buffer of so many groups, served by `server`, which outlives it.
    pub(crate) fn new(groups: usize, server: *const WorkerShared) -> Arc<Self> {
        let groups = groups.clamp(1, GROUPS_MAX);
        let slot = || Slot {
            header: AtomicPtr::new(std::ptr::null_mut()),
            key: AtomicU64::new(0),
            payload: Handed::new(),
            waker: AtomicWaker::new(),
        };
        let replies =
            || Replies { answered: AtomicU64::new(0), words: std::array::from_fn(|_| Handed::new()) };
        let slots = groups * GROUP_SLOTS;
        Arc::new(Self {
            slots: (0..slots).map(|_| slot()).collect(),
            replies: (0..groups).map(|_| replies()).collect(),
            attention: AtomicU64::new(0),
            attention_of: (0..groups).map(|_| AtomicU64::new(0)).collect(),
            version: AtomicU32::new(0),
            leases: Mutex::new(Leases { used: vec![false; slots], ..Leases::default() }),
            passed: (0..groups).map(|_| AtomicU64::new(0)).collect(),
            server: AtomicPtr::new(server.cast_mut()),
            dead: AtomicBool::new(false),
        })
    }

    /// Number of groups.
    pub(crate) fn groups(&self) -> usize {
        self.replies.len()
    }

    /// Counts changes of the leases: a worker whose number is older reads them again.
    #[inline(always)]
    pub(crate) fn version(&self) -> u32 {
        self.version.load(Ordering::Acquire)
    }

    /// All leases, with those whose clients are gone but whose tasks are not.
    pub(crate) fn leases(&self) -> Vec<Lease> {
        lock(&self.leases).rings.clone()
    }

    /// Slots that nobody leases.
    pub(crate) fn free_slots(&self) -> usize {
        lock(&self.leases).used.iter().filter(|used| !**used).count()
    }

    /// The first structure of each request that was submitted and is not answered: of the one that runs, if any, and of those behind it. A
    /// chunk is one.
    pub(crate) fn requests(&self) -> Vec<Key> {
        let leases = lock(&self.leases);
        let slots = leases.rings.iter().flat_map(|lease| lease.first..lease.first + lease.count);
        slots.filter(|&slot| !self.is_answered(slot)).map(|slot| self.key(slot)).collect()
    }

    /// Leases `count` consecutive slots (all there are, if there are fewer), within one group if that can be. `None` if they are not
    /// free; then the waker, if any, is woken once some come back.
    pub(crate) fn lease(&self, count: usize, waker: Option<&Waker>) -> Option<Lease> {
        let (lease, woken) = {
            let mut leases = lock(&self.leases);
            let woken = self.reclaim(&mut leases);
            (self.lease_of(&mut leases, count, waker), woken)
        };
        // What came back may be enough for others than this client.
        if !planted(Bug::ForgetWaiting) {
            wake_all(woken);
        }
        lease
    }

    fn lease_of(&self, leases: &mut Leases, count: usize, waker: Option<&Waker>) -> Option<Lease> {
        let count = count.min(leases.used.len());
        let fits = |first: usize| leases.used[first..first + count].iter().all(|used| !used);
        let mut starts = 0..=leases.used.len() - count;
        let one_group = |first: usize| first / GROUP_SLOTS == (first + count - 1) / GROUP_SLOTS;
        let first = starts
            .clone()
            .find(|&first| one_group(first) && fits(first))
            .or_else(|| starts.find(|&first| fits(first)));
        let Some(first) = first else {
            let is_new = |waker: &&Waker| !leases.waiting.iter().any(|waiting| waiting.will_wake(waker));
            let new = waker.filter(is_new).cloned();
            leases.waiting.extend(new);
            return None;
        };
        leases.used[first..first + count].fill(true);
        leases.next_id += 1;
        let lease = Lease { id: leases.next_id, first, count, abandoned: None };
        leases.rings.push(lease.clone());
        self.version.fetch_add(1, Ordering::Release);
        Some(lease)
    }

    /// Gives a lease back. `untaken` are the slots whose reply, there or to come, nobody will take.
    pub(crate) fn give_back(&self, id: u64, untaken: Vec<usize>) {
        let woken = {
            let mut leases = lock(&self.leases);
            if let Some(lease) = leases.rings.iter_mut().find(|lease| lease.id == id) {
                lease.abandoned = Some(untaken);
            }
            self.reclaim(&mut leases)
        };
        wake_all(woken);
    }

    /// Frees the slots of abandoned leases whose tasks have ended, and returns who waits for slots.
    pub(crate) fn reclaim_abandoned(&self) {
        let woken = self.reclaim(&mut lock(&self.leases));
        wake_all(woken);
    }

    fn reclaim(&self, leases: &mut Leases) -> Vec<Waker> {
        let ended = |lease: &Lease| {
            lease.abandoned.is_some()
                && (lease.first..lease.first + lease.count).all(|slot| self.is_answered(slot))
        };
        let mut freed = false;
        while let Some(at) = leases.rings.iter().position(ended) {
            let lease = leases.rings.swap_remove(at);
            for &slot in lease.abandoned.iter().flatten() {
                // SAFETY: the slot is answered, and its client is gone without its reply.
                unsafe { self.drop_answer(slot) };
            }
            leases.used[lease.first..lease.first + lease.count].fill(false);
            freed = true;
        }
        if freed {
            self.version.fetch_add(1, Ordering::Release);
            std::mem::take(&mut leases.waiting)
        } else {
            Vec::new()
        }
    }

    /// Wakes who waits for slots, to look elsewhere.
    pub(crate) fn wake_waiting(&self) {
        let waiting = std::mem::take(&mut lock(&self.leases).waiting);
        wake_all(waiting);
    }

    /// The worker that serves the buffer.
    #[inline(always)]
    pub(crate) fn server(&self) -> *const WorkerShared {
        self.server.load(Ordering::Acquire)
    }

    /// Names another worker, which outlives the buffer.
    pub(crate) fn set_server(&self, server: *const WorkerShared) {
        self.server.store(server.cast_mut(), Ordering::Release);
    }

    /// Says that nobody will serve the buffer again: what is not answered now never will be, and no slots come back.
    pub(crate) fn die(&self) {
        self.dead.store(true, Ordering::Release);
        let waiting = std::mem::take(&mut lock(&self.leases).waiting);
        wake_all(self.slots.iter().filter_map(|slot| slot.waker.take()).chain(waiting));
    }

    /// Returns whether nobody will serve the buffer again.
    #[inline]
    pub(crate) fn is_dead(&self) -> bool {
        self.dead.load(Ordering::Acquire)
    }

    /// Ends the task in a slot that nobody will answer: drops its request, unless another worker may be running it, and takes the
    /// turn back.
    ///
    /// # Safety
    /// The buffer is dead, the slot is not answered since, and the caller is its client.
    #[cold]
    pub(crate) unsafe fn abandon(&self, slot: usize) {
        let (group, bit) = group_of(slot);
        let header = &self.slots[slot].header;
        if self.passed[group].load(Ordering::Acquire) >> bit & 1 == 0 {
            let table = split(header.load(Ordering::Relaxed)).table;
            // SAFETY: nobody but the client will touch the slot again, and its request is there.
            unsafe { ((*table).drop_request)(self.payload(slot)) };
        }
        header.store(header.load(Ordering::Relaxed).map_addr(|address| address ^ TOGGLE), Ordering::Relaxed);
    }

    // The client's side.

    /// The memory of a slot's request.
    #[inline(always)]
    pub(crate) fn payload(&self, slot: usize) -> *mut u8 {
        self.slots[slot].payload.address()
    }

    /// The memory of a slot's reply word.
    #[inline(always)]
    pub(crate) fn word(&self, slot: usize) -> *mut u8 {
        let (group, bit) = group_of(slot);
        self.replies[group].words[bit as usize].address()
    }

    /// The key of the first structure of the request in a slot.
    #[inline(always)]
    pub(crate) fn key(&self, slot: usize) -> Key {
        Key::from_word(self.slots[slot].key.load(Ordering::Relaxed))
    }

    /// Passes a slot with a written request, whose first structure is `first`, to the worker.
    #[inline(always)]
    pub(crate) fn publish(&self, slot: usize, first: Key, table: &'static TaskTable) {
        let header = &self.slots[slot].header;
        self.slots[slot].key.store(first.to_word(), Ordering::Relaxed);
        let toggle = !header.load(Ordering::Relaxed).addr() & TOGGLE;
        let tagged = std::ptr::from_ref(table).cast_mut().map_addr(|address| address | toggle);
        header.store(tagged, ordering(Bug::Publish, Ordering::Release));
    }

    /// Asks the worker not to run the task in a slot, if it has not begun.
    pub(crate) fn cancel(&self, slot: usize) {
        let header = &self.slots[slot].header;
        let tagged = header.load(Ordering::Relaxed).map_addr(|address| address | CANCELLED);
        header.store(tagged, Ordering::Release);
    }

    /// Returns whether it is the client's turn in this slot.
    #[inline(always)]
    pub(crate) fn is_answered(&self, slot: usize) -> bool {
        let (group, bit) = group_of(slot);
        let toggle = self.slots[slot].header.load(Ordering::Relaxed).addr() & TOGGLE;
        (self.replies[group].answered.load(Ordering::Acquire) >> bit) as usize & 1 == toggle
    }

    /// Moves the answer out of a slot.
    ///
    /// # Safety
    /// The slot is answered, its reply is an `R`, and nobody has taken it.
    #[inline(always)]
    pub(crate) unsafe fn take<R>(&self, slot: usize) -> Result<R, TaskError> {
        let (group, bit) = group_of(slot);
        let failed = self.replies[group].answered.load(Ordering::Relaxed) & failure_bit(bit) != 0;
        if failed {
            // SAFETY: by this function's own contract, and it is a failure.
            return Err(unsafe { take_failure(self.payload(slot), self.word(slot)) });
        }
        // SAFETY: by this function's own contract, and it is no failure.
        Ok(unsafe { take_reply(self.payload(slot), self.word(slot)) })
    }

    /// Drops the answer in a slot.
    ///
    /// # Safety
    /// The slot is answered, and nobody has taken its answer.
    pub(crate) unsafe fn drop_answer(&self, slot: usize) {
        let (group, bit) = group_of(slot);
        let header = split(self.slots[slot].header.load(Ordering::Relaxed));
        if self.replies[group].answered.load(Ordering::Relaxed) & failure_bit(bit) != 0 {
            // SAFETY: by this function's own contract, and it is a failure.
            drop(unsafe { take_failure(self.payload(slot), self.word(slot)) });
        } else {
            // SAFETY: the header names the table of the task that was answered; there is an untaken reply.
            unsafe { ((*header.table).drop_reply)(self.payload(slot), self.word(slot)) };
        }
    }

    /// Asks the worker to wake the client of this slot once it is answered; whoever asks has left its waker, and looks once more
    /// afterwards.
    pub(crate) fn ask_to_be_woken(&self, slot: usize) {
        let (group, bit) = group_of(slot);
        self.attention_of[group].fetch_or(1 << bit, Ordering::SeqCst);
        self.attention.fetch_or(1 << group, Ordering::SeqCst);
    }

    // The worker's side.

    /// The header of a slot.
    #[inline(always)]
    pub(crate) fn header(&self, slot: usize) -> Header {
        split(self.slots[slot].header.load(Ordering::Acquire))
    }

    /// The answers of a group as they were last published.
    pub(crate) fn answers(&self, group: usize) -> u64 {
        self.replies[group].answered.load(Ordering::Acquire)
    }

    /// Publishes the answers of a group.
    #[inline(always)]
    pub(crate) fn answer(&self, group: usize, answers: u64) {
        self.replies[group].answered.store(answers, ordering(Bug::Answer, Ordering::Release));
    }

    /// Takes the groups in which somebody has asked to be woken.
    #[inline(always)]
    pub(crate) fn take_attention(&self) -> u64 {
        if self.attention.load(Ordering::Relaxed) == 0 { 0 } else { self.attention.swap(0, Ordering::SeqCst) }
    }

    /// Takes the slots of a group whose clients have asked to be woken.
    pub(crate) fn take_attention_of(&self, group: usize) -> u64 {
        self.attention_of[group].swap(0, Ordering::SeqCst)
    }

    /// The place for the waker of a slot's client.
    pub(crate) fn waker(&self, slot: usize) -> &AtomicWaker {
        &self.slots[slot].waker
    }

    /// Notes that the task in a slot was passed on, or that it came back.
    pub(crate) fn set_passed(&self, slot: usize, passed: bool) {
        let (group, bit) = group_of(slot);
        if passed {
            self.passed[group].fetch_or(1 << bit, Ordering::Release);
        } else {
            self.passed[group].fetch_and(!(1 << bit), Ordering::Release);
        }
    }

    /// Returns whether somebody has asked to be woken.
    pub(crate) fn wants_attention(&self) -> bool {
        self.attention.load(Ordering::SeqCst) != 0
    }

    /// Writes a failure as the answer of a slot in the worker's turn whose request is there, and drops the request.
    pub(crate) fn refuse(&self, slot: usize, header: Header, failure: Failure) {
        // SAFETY: it is the worker's turn, and the request of this table is there.
        unsafe { ((*header.table).drop_request)(self.payload(slot)) };
        // SAFETY: it is the worker's turn.
        unsafe { write_failure(self.word(slot), failure) };
    }
}

// SAFETY: all that is shared is atomic or behind a lock, but for what is handed over with the toggle bits; requests and replies are
// `Send`; the server is a pointer to something `Sync` that outlives the buffer.
unsafe impl Send for Buffer {}
// SAFETY: as above.
unsafe impl Sync for Buffer {}

impl Drop for Buffer {
    fn drop(&mut self) {
        let leases = std::mem::take(&mut lock(&self.leases).rings);
        for lease in &leases {
            for &slot in lease.abandoned.iter().flatten() {
                // SAFETY: nobody but this function has the buffer; its clients left these answers, or these requests.
                unsafe { if self.is_answered(slot) { self.drop_answer(slot) } else { self.abandon(slot) } };
            }
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::sync::atomic::AtomicUsize;
    use std::task::Wake;

    use super::*;
    use crate::planted::must_notice;

    #[derive(Default)]
    struct Woken(AtomicUsize);

    impl Wake for Woken {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }

    /// A waker of an executor that is broken.
    struct Broken;

    impl Wake for Broken {
        fn wake(self: Arc<Self>) {
            panic!("a waker that panics");
        }
    }

    /// A buffer of one group all of whose slots are leased, for which somebody waits; the lease, and who waits.
    fn exhausted() -> (Arc<Buffer>, Lease, Arc<Woken>) {
        let buffer = Buffer::new(1, std::ptr::null());
        let all = buffer.lease(GROUP_SLOTS, None).expect("nobody has any");
        let woken = Arc::new(Woken::default());
        for waker in [Waker::from(Arc::new(Broken)), Waker::from(Arc::clone(&woken))] {
            assert!(buffer.lease(1, Some(&waker)).is_none());
        }
        (buffer, all, woken)
    }

    /// A client dies with a task under way, and another one asks for slots before the worker has looked for those that come back.
    #[test]
    fn who_waits_for_slots_is_woken_whoever_finds_them() {
        let (buffer, dead, woken) = exhausted();
        buffer.slots[0].header.store(std::ptr::without_provenance_mut(TOGGLE), Ordering::Release);
        buffer.give_back(dead.id, Vec::new());
        assert_eq!(woken.0.load(Ordering::SeqCst), 0, "the task has not ended");
        buffer.answer(0, 1);
        assert!(buffer.lease(1, None).is_some());
        assert_eq!(woken.0.load(Ordering::SeqCst), 1);
    }

    #[test]
    fn a_client_that_is_forgotten_is_noticed() {
        must_notice("inbox::tests::who_waits_for_slots_is_woken_whoever_finds_them", Bug::ForgetWaiting);
    }

    #[test]
    fn who_waits_for_slots_of_a_worker_that_ends_is_woken() {
        let (buffer, _, woken) = exhausted();
        buffer.die();
        assert_eq!(woken.0.load(Ordering::SeqCst), 1);
        assert!(buffer.is_dead());
    }
}
