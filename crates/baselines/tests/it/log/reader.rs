//! Logs that are read back: whole, cut at every byte, and with every byte changed.

use std::io::{self, Read};

use atrapos_baselines::log::{Log, LogOptions, LogReader, LogRecord, Lsn};
use atrapos_partition::abort::AbortReason;
use proptest::prelude::*;

use super::sinks::{Memory, records};

/// Writes records to a log that begins at `first`, and returns its bytes with the records as they should be read.
fn written(bodies: &[Vec<u8>], first: Lsn) -> (Vec<u8>, Vec<LogRecord>) {
    let memory = Memory::default();
    let log = Log::start(memory.clone(), LogOptions { first, ..LogOptions::default() })
        .expect("threads can be started");
    let appended = bodies.iter().map(|body| {
        let lsn = log.append(body).expect("the log can be written");
        LogRecord { lsn, bytes: body.clone() }
    });
    let appended = appended.collect();
    log.close().expect("the log can be written");
    let bytes = memory.0.lock().expect("no sink panics").bytes.clone();
    (bytes, appended)
}

#[test]
fn a_log_that_is_cut_anywhere_ends_with_the_last_whole_record() {
    let bodies: Vec<Vec<u8>> = [1usize, 7, 8, 9, 30, 3].iter().map(|bytes| vec![0xab; *bytes]).collect();
    let (bytes, expected) = written(&bodies, Lsn(4096));
    assert_eq!(records(&bytes, Lsn(4096)), expected);
    for cut in 0..bytes.len() {
        let whole =
            expected.iter().filter(|record| (record.lsn.0 - 4096) as usize + 8 + record.bytes.len() <= cut);
        let mut reader = LogReader::new(&bytes[..cut], Lsn(4096));
        let read: Vec<LogRecord> =
            reader.by_ref().map(|record| record.expect("memory has no errors")).collect();
        assert_eq!(read, whole.cloned().collect::<Vec<_>>(), "cut at {cut}");
        let end =
            read.last().map_or(4096, |last| last.lsn.0 + 8 + (last.bytes.len() as u64).next_multiple_of(8));
        assert_eq!(reader.end(), Lsn(end));
        assert!(reader.next().is_none(), "it stays at its end");
    }
}

#[test]
fn a_changed_bit_ends_the_log_before_its_record() {
    let bodies: Vec<Vec<u8>> = [5usize, 16, 2].iter().map(|bytes| vec![0x17; *bytes]).collect();
    let (bytes, expected) = written(&bodies, Lsn(0));
    for bit in 0..bytes.len() * 8 {
        let mut changed = bytes.clone();
        changed[bit / 8] ^= 1 << (bit % 8);
        let read = records(&changed, Lsn(0));
        assert_eq!(read, expected[..read.len()], "no wrong record is read");
        let intact =
            expected.iter().take_while(|record| record.lsn.0 as usize + 8 + record.bytes.len() <= bit / 8);
        assert!(read.len() >= intact.count(), "bit {bit}");
        if let Some(hit) = expected.iter().position(|record| {
            let from = record.lsn.0 as usize;
            (from..from + 8 + record.bytes.len()).contains(&(bit / 8))
        }) {
            assert_eq!(read.len(), hit, "bit {bit} is one of the record");
        }
    }
}

/// A record of an earlier log, at another position, is whole in itself and does not belong here.
fn stale_record_is_refused() -> bool {
    let (bytes, expected) = written(&[vec![1; 8], vec![2; 8]], Lsn(0));
    let second = expected[1].lsn.0 as usize;
    let stale = [&bytes[..second], &bytes[..second]].concat();
    records(&stale, Lsn(0)).len() == 1
}

#[test]
fn a_record_at_another_position_is_refused() {
    assert!(stale_record_is_refused());
    let zeros = vec![0; 64];
    assert!(records(&zeros, Lsn(0)).is_empty(), "zeros are no record");
}

#[test]
fn an_error_of_the_file_is_not_an_end() {
    struct Failing;
    impl Read for Failing {
        fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
            Err(io::Error::other("the disk is gone"))
        }
    }
    let mut reader = LogReader::new(Failing, Lsn(0));
    assert!(reader.next().expect("it is reported").is_err());
    assert!(reader.next().is_none());
}

#[test]
fn records_that_do_not_fit_are_refused_with_a_sentence() {
    let log = Log::start(Memory::default(), LogOptions { buffer_bytes: 1024, ..LogOptions::default() })
        .expect("threads can be started");
    let abort = log.append(&[1; 505]).expect_err("it is longer than half of the buffer");
    assert_eq!(abort.reason(), AbortReason::TransactionTooLarge);
    assert!(abort.detail().contains("505 bytes") && abort.detail().contains("504"), "{abort}");
    assert_eq!(log.commit(&[]).expect_err("it is empty").reason(), AbortReason::Misuse);
    let ticket = log.commit(&[1; 504]).expect("it fits");
    log.wait(ticket).expect("the log can be written");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, failure_persistence: None, ..ProptestConfig::default() })]

    /// Whatever is appended comes back, through a buffer that is gone round many times.
    #[test]
    fn what_is_appended_comes_back(bodies in prop::collection::vec(prop::collection::vec(any::<u8>(), 1..400), 1..80)) {
        let memory = Memory::default();
        let log = Log::start(memory.clone(), LogOptions { buffer_bytes: 1024, first: Lsn(80), ..LogOptions::default() }).expect("threads");
        let mut expected = Vec::new();
        for body in &bodies {
            let lsn = log.append(body).expect("the log can be written");
            expected.push(LogRecord { lsn, bytes: body.clone() });
        }
        log.close().expect("the log can be written");
        prop_assert_eq!(memory.records(Lsn(80)), expected);
    }
}

#[cfg(debug_assertions)]
#[test]
fn planted_bugs_are_caught() {
    use atrapos_baselines::planted::{Bug, with};
    assert!(!with(Bug::PositionNotChecked, stale_record_is_refused));
}
