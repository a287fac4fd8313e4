//! Requests from one worker to another with their replies, and the same through bare rings.
//!
//! Owns: the loops. Never: varies the content of a message; it carries three words.

use std::rc::Rc;
use std::time::Instant;

use atrapos_runtime::{RuntimeBuilder, Shard, Worker, WorkerId};

use super::{RawError, RawOptions, pin, wait};

/// Requests under way at once in the batched measurements.
pub(super) const BATCH: u64 = 16;

/// The content of a request, and of a reply.
type Payload = [u64; 3];

struct Nothing;
impl Shard for Nothing {}

/// Measures nanoseconds per request with its reply, `batch` of them at once.
pub(super) fn workers(options: &RawOptions, count: u64, batch: u64) -> Result<f64, RawError> {
    let refuse = |error: &dyn std::fmt::Display| RawError::Workers(error.to_string());
    let mut builder = RuntimeBuilder::new(2);
    match options.cpus {
        Some(cpus) => builder.cpus = Some(cpus.map(Some).to_vec()),
        None => builder.pin = false,
    }
    let runtime = builder.start(|_| Nothing).map_err(|error| refuse(&error))?;
    let count = count.next_multiple_of(batch);
    let asked = runtime.handle().request(WorkerId(0), move |here, sender| {
        let worker = Rc::clone(here);
        here.spawn(async move {
            // A first batch that is not measured wakes both workers.
            let _ = ask(&worker, batch, batch).await;
            let began = Instant::now();
            let sum = ask(&worker, count, batch).await;
            sender.send((sum, began.elapsed()));
        });
    });
    let answer = asked.map_err(|_| refuse(&"they stopped before they were asked"))?.wait();
    match answer {
        Ok((Some(sum), elapsed)) if sum == count * (count + 1) / 2 => {
            Ok(elapsed.as_nanos() as f64 / count as f64)
        }
        Ok(_) => Err(refuse(&"a reply was lost or wrong")),
        Err(_) => Err(refuse(&"they stopped before they had answered")),
    }
}

/// Asks worker 1 `count` times, `batch` at once, and adds up the answers; returns `None` if one was lost.
async fn ask(worker: &Rc<Worker<Nothing>>, count: u64, batch: u64) -> Option<u64> {
    let mut sum = 0;
    let mut calls = Vec::with_capacity(batch as usize);
    let mut sent = 0;
    while sent < count {
        calls.extend((sent..sent + batch).map(|value| {
            let payload: Payload = [value; 3];
            worker.call(WorkerId(1), move |there, reply| reply.send(there, [payload[0] + 1; 3]))
        }));
        sent += batch;
        for call in calls.drain(..) {
            let answer: Payload = call.await.ok()?;
            sum += answer[0];
        }
    }
    Some(sum)
}

/// Measures nanoseconds per request with its reply through a pair of bare rings, in batches.
pub(super) fn rings(options: &RawOptions, count: u64) -> f64 {
    let count = count.next_multiple_of(BATCH);
    let (mut requests, mut to_serve) = rtrb::RingBuffer::<Payload>::new(1024);
    let (mut replies, mut to_take) = rtrb::RingBuffer::<Payload>::new(1024);
    std::thread::scope(|scope| {
        scope.spawn(move || {
            pin(options, 1);
            let (mut served, mut spins) = (0, 0);
            while served < count {
                let Ok(requests) = to_serve.read_chunk(to_serve.slots()) else { continue };
                let available = requests.len();
                if available == 0 {
                    wait(&mut spins);
                    continue;
                }
                // Fewer than a ring's slots are ever under way.
                let Ok(out) = replies.write_chunk_uninit(available) else { return };
                out.fill_from_iter(requests.into_iter().map(|payload| [payload[0] + 1; 3]));
                served += available as u64;
                spins = 0;
            }
        });
        pin(options, 0);
        let began = Instant::now();
        let (mut sent, mut sum) = (0, 0);
        while sent < count {
            let Ok(out) = requests.write_chunk_uninit(BATCH as usize) else { continue };
            out.fill_from_iter((sent..sent + BATCH).map(|value| [value; 3]));
            sent += BATCH;
            let (mut taken, mut spins) = (0, 0);
            while taken < BATCH {
                let Ok(chunk) = to_take.read_chunk(to_take.slots()) else { continue };
                if chunk.is_empty() {
                    wait(&mut spins);
                    continue;
                }
                for payload in chunk {
                    sum += payload[0];
                    taken += 1;
                }
            }
        }
        assert_eq!(sum, count * (count + 1) / 2, "every request has its own reply");
        began.elapsed().as_nanos() as f64 / count as f64
    })
}
