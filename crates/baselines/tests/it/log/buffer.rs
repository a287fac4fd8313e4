//! The buffer and its daemon: order, acknowledgement, failures, and many threads.

use std::collections::BTreeMap;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::thread;

use atrapos_baselines::log::{Log, LogOptions, LogSink, Lsn};
use atrapos_partition::abort::AbortReason;

use super::sinks::{Memory, Steered, records};

fn small() -> LogOptions {
    LogOptions { buffer_bytes: 1024, ..LogOptions::default() }
}

/// Commits, and looks whether that is acknowledged before the write ends. Fails with what is wrong.
fn acknowledgement_follows_the_write() -> Result<(), String> {
    let (asked, is_asked) = channel();
    let (end, ends) = channel();
    let sink = Steered { memory: Memory::default(), asked, ends };
    let log = Log::start(sink, small()).expect("threads can be started");
    let ticket = log.commit(b"first").expect("the log can be written");
    is_asked.recv().expect("the daemon lives");
    let early = log.is_durable(ticket).expect("nothing has failed");
    end.send(Ok(())).expect("the daemon lives");
    log.wait(ticket).expect("nothing has failed");
    if early { Err("it was acknowledged before the write".to_owned()) } else { Ok(()) }
}

#[test]
fn nothing_is_acknowledged_before_the_write() {
    acknowledgement_follows_the_write().expect("the write comes first");
}

/// Lets the second of three writes fail. Fails with what is acknowledged afterwards.
fn failure_is_final() -> Result<(), String> {
    let (asked, is_asked) = channel();
    let (end, ends) = channel();
    let sink = Steered { memory: Memory::default(), asked, ends };
    let log = Log::start(sink, small()).expect("threads can be started");
    let first = log.commit(b"first").expect("nothing has failed");
    is_asked.recv().expect("the daemon lives");
    let second = log.commit(b"second").expect("nothing has failed");
    end.send(Ok(())).expect("the daemon lives");
    is_asked.recv().expect("the daemon lives");
    end.send(Err(io::Error::other("the disk is full"))).expect("the daemon lives");
    drop(end);
    log.wait(first).expect("it was durable before");
    match log.wait(second) {
        Ok(()) => return Err("the record whose write failed is acknowledged".to_owned()),
        Err(abort) if abort.reason() != AbortReason::NotDurable => return Err(abort.to_string()),
        Err(abort) => assert!(abort.detail().contains("the disk is full"), "{abort}"),
    }
    assert_eq!(log.is_durable(first), Ok(true));
    if log.is_durable(second).is_ok() || log.commit(b"third").is_ok() || log.append(b"fourth").is_ok() {
        return Err("the log goes on".to_owned());
    }
    if log.close().is_ok() { Err("the log closes well".to_owned()) } else { Ok(()) }
}

#[test]
fn a_failed_write_is_final() {
    failure_is_final().expect("nothing is acknowledged after it");
}

#[test]
fn a_sink_that_panics_has_failed() {
    struct Panics;
    impl LogSink for Panics {
        fn write(&mut self, _: [&[u8]; 2]) -> io::Result<()> {
            std::panic::resume_unwind(Box::new("planned"))
        }
    }
    let log = Log::start(Panics, small()).expect("threads can be started");
    let ticket = log.commit(b"a").expect("nothing has failed yet");
    assert_eq!(log.wait(ticket).expect_err("it is not written").reason(), AbortReason::NotDurable);
}

/// A thread that waits for room is told of a failure, too.
#[test]
fn a_failure_wakes_those_who_wait_for_room() {
    struct Full;
    impl LogSink for Full {
        fn write(&mut self, _: [&[u8]; 2]) -> io::Result<()> {
            Err(io::Error::other("no space"))
        }
    }
    let log = Log::start(Full, small()).expect("threads can be started");
    let abort = (0..).find_map(|_| log.append(&[7; 200]).err()).expect("the buffer is full some time");
    assert_eq!(abort.reason(), AbortReason::NotDurable);
}

/// A sink that notices when it gets something before the first place has been filled.
struct Watching {
    memory: Memory,
    filled: Arc<AtomicBool>,
    early: Arc<AtomicBool>,
}

impl LogSink for Watching {
    fn write(&mut self, parts: [&[u8]; 2]) -> io::Result<()> {
        if !self.filled.load(Ordering::SeqCst) {
            self.early.store(true, Ordering::SeqCst);
        }
        self.memory.write(parts)
    }
}

/// Fills a place after what is behind it. Fails if that was written, or acknowledged, before.
fn release_is_in_order() -> Result<(), String> {
    let (filled, early) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
    let memory = Memory::default();
    let sink = Watching { memory: memory.clone(), filled: Arc::clone(&filled), early: Arc::clone(&early) };
    let log = Log::start(sink, small()).expect("threads can be started");
    let place = log.reserve(5).expect("there is room");
    let behind = log.commit(b"behind").expect("there is room");
    for _ in 0..2000 {
        thread::yield_now();
        if early.load(Ordering::SeqCst) {
            return Err("it was written before it was filled".to_owned());
        }
    }
    assert_eq!(log.is_durable(behind), Ok(false));
    filled.store(true, Ordering::SeqCst);
    log.fill(place, b"first");
    log.wait(behind).expect("nothing has failed");
    let bodies: Vec<Vec<u8>> = memory.records(Lsn(0)).into_iter().map(|record| record.bytes).collect();
    assert_eq!(bodies, [b"first".to_vec(), b"behind".to_vec()]);
    Ok(())
}

#[test]
fn records_are_released_in_order() {
    release_is_in_order().expect("a place that is not filled holds up what is behind it");
}

#[test]
fn many_commits_are_written_together() {
    let (asked, is_asked) = channel();
    let (end, ends) = channel();
    let memory = Memory::default();
    let sink = Steered { memory: memory.clone(), asked, ends };
    let log = Log::start(sink, LogOptions::default()).expect("threads can be started");
    let first = log.commit(b"first").expect("nothing has failed");
    is_asked.recv().expect("the daemon lives");
    let tickets: Vec<_> =
        (0..100u8).map(|number| log.commit(&[number]).expect("nothing has failed")).collect();
    let reader = log.ticket_of_everything();
    assert_eq!(tickets.last(), Some(&reader), "who has only read waits for what it may have read");
    drop(end);
    for ticket in tickets.into_iter().chain([first, reader]) {
        log.wait(ticket).expect("nothing has failed");
    }
    let written = memory.0.lock().expect("no sink panics");
    assert_eq!(written.writes, 2, "all that came during the first write share the second");
}

/// Threads append and commit through a buffer that is full most of the time. Fails with what is missing or wrong.
fn all_records_arrive_once() -> Result<(), String> {
    const THREADS: u8 = 5;
    const RECORDS: u32 = 600;
    let memory = Memory::default();
    let log = Arc::new(Log::start(memory.clone(), small()).expect("threads can be started"));
    let positions = Arc::new(Mutex::new(BTreeMap::new()));
    let threads: Vec<_> = (0..THREADS)
        .map(|number| {
            let (log, memory, positions) = (Arc::clone(&log), memory.clone(), Arc::clone(&positions));
            thread::spawn(move || {
                for round in 0..RECORDS {
                    let mut body = vec![number; 5 + (round as usize * 37 + usize::from(number)) % 200];
                    body[1..5].copy_from_slice(&round.to_le_bytes());
                    let lsn = if round % 8 == 7 {
                        let ticket = log.commit(&body).expect("nothing has failed");
                        log.wait(ticket).expect("nothing has failed");
                        let synced = memory.0.lock().expect("no sink panics").bytes.len() as u64;
                        assert!(synced >= ticket.lsn().0, "it is acknowledged, and not durable");
                        Lsn(ticket.lsn().0 - 8 - (body.len() as u64).next_multiple_of(8))
                    } else {
                        log.append(&body).expect("nothing has failed")
                    };
                    positions.lock().expect("no test thread panics").insert(lsn, body);
                }
            })
        })
        .collect();
    for thread in threads {
        thread.join().map_err(|_| "a thread failed".to_owned())?;
    }
    Arc::into_inner(log).expect("the threads have ended").close().expect("nothing has failed");
    let read = records(&memory.0.lock().expect("no sink panics").bytes, Lsn(0));
    let positions =
        Arc::into_inner(positions).expect("the threads have ended").into_inner().expect("as above");
    let expected: Vec<_> = positions.into_iter().collect();
    let read: Vec<_> = read.into_iter().map(|record| (record.lsn, record.bytes)).collect();
    if read == expected { Ok(()) } else { Err("not all records came back".to_owned()) }
}

#[test]
fn many_threads_share_the_buffer() {
    all_records_arrive_once().expect("each record arrives once, where its thread was told");
}

#[cfg(debug_assertions)]
#[test]
fn planted_bugs_are_caught() {
    use atrapos_baselines::planted::{Bug, with};
    assert!(with(Bug::ToldBeforeWrite, acknowledgement_follows_the_write).is_err());
    assert!(with(Bug::FailureForgotten, failure_is_final).is_err());
    // On a busy machine the thread that writes may not get its turn in time.
    assert!((0..50).any(|_| with(Bug::HolesWritten, release_is_in_order).is_err()));
}
