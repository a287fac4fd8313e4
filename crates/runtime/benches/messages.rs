//! Cost of a message: bare rings (ours, and `rtrb` as the yardstick) and whole requests between workers.
//!
//! `cargo bench -p atrapos-runtime --bench messages` prints, per measurement, the best and the median of a number of
//! repetitions, which alternate between the measurements so that a disturbance meets all of them. `-- --test` runs each
//! measurement once at a tiny size and prints nothing; `-- --only NAME` runs one of them (for instruction counts).

use std::cell::Cell;
use std::future::Future;
use std::hint::{black_box, spin_loop};
use std::rc::Rc;
use std::sync::Barrier;
use std::time::Instant;

use atrapos_runtime::affinity::pin_current_thread;
use atrapos_runtime::ring::ring;
use atrapos_runtime::{RuntimeBuilder, Shard, TaskId, Worker, WorkerId};

/// Requests in flight at once in the batched measurements.
const BATCH: u64 = 16;
/// Payload of a request or reply.
type Payload = [u64; 3];

struct Nothing;
impl Shard for Nothing {}

/// A name, how many times the basic number of operations it does, and the measurement: nanoseconds per operation.
type Measurement = (&'static str, u64, fn(u64) -> f64);

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let tiny = arguments.iter().any(|argument| argument == "--test");
    let only =
        arguments.iter().position(|argument| argument == "--only").and_then(|at| arguments.get(at + 1));
    let (repetitions, scale) = if tiny { (1, 64) } else { (101, 20_000) };

    let measurements: &[Measurement] = &[
        ("rtrb one way, batches of 16", 16, rtrb_one_way),
        ("ring one way, batches of 16", 16, ring_one_way),
        ("rtrb request and reply, batches of 16", 4, |count| rtrb_round_trip(count, BATCH)),
        ("ring request and reply, batches of 16", 4, |count| ring_round_trip(count, BATCH)),
        ("worker request and reply, batches of 16", 4, |count| worker_round_trip(count, BATCH, 1)),
        ("worker request and reply, 4 tasks x 16", 4, |count| worker_round_trip(count, BATCH, 4)),
        ("rtrb round trip", 1, |count| rtrb_round_trip(count, 1)),
        ("ring round trip", 1, |count| ring_round_trip(count, 1)),
        ("worker round trip", 1, |count| worker_round_trip(count, 1, 1)),
        ("task poll (wake, pop, poll)", 16, task_poll),
        ("task spawn and finish", 16, task_spawn),
        ("message to oneself", 16, self_message),
        ("call to oneself", 16, self_call),
    ];
    let chosen: Vec<_> = measurements
        .iter()
        .filter(|(name, ..)| only.is_none_or(|only| name.contains(only.as_str())))
        .collect();
    let mut ns: Vec<Vec<f64>> = vec![Vec::new(); chosen.len()];
    for _ in 0..repetitions {
        for (&&(_, factor, measure), ns) in chosen.iter().zip(&mut ns) {
            let count = (scale * factor).next_multiple_of(BATCH);
            // On a thread of its own: some measurements pin the thread they run on.
            let measured = std::thread::spawn(move || measure(count));
            ns.push(measured.join().expect("a measurement does not fail"));
        }
    }
    if tiny {
        return;
    }
    let mut table = String::from("ns per message, or per request with its reply:     best    median\n");
    for (&&(name, ..), ns) in chosen.iter().zip(&mut ns) {
        ns.sort_by(f64::total_cmp);
        table += &format!("  {name:<46} {:8.1}  {:8.1}\n", ns[0], ns[ns.len() / 2]);
    }
    use std::io::Write;
    // Nobody is left to tell if standard output is gone.
    let _ = std::io::stdout().write_all(table.as_bytes());
}

/// Best effort: on a machine with one processing unit the numbers mean little anyway.
fn pin(cpu: usize) {
    let _ = pin_current_thread(cpu);
}

#[expect(clippy::cast_precision_loss, reason = "a mean for people to read")]
fn ns_per(count: u64, started: Instant) -> f64 {
    started.elapsed().as_nanos() as f64 / count as f64
}

/// Spins for a while, then lets others run: with one processing unit the other side needs it.
fn wait(spins: &mut u32) {
    *spins += 1;
    if *spins < 10_000 {
        spin_loop();
    } else {
        std::thread::yield_now();
    }
}

fn rtrb_one_way(count: u64) -> f64 {
    let (mut producer, mut consumer) = rtrb::RingBuffer::<Payload>::new(1024);
    let ready = &Barrier::new(2);
    std::thread::scope(|scope| {
        scope.spawn(move || {
            pin(1);
            ready.wait();
            let mut sent = 0;
            let mut spins = 0;
            while sent < count {
                let Ok(chunk) = producer.write_chunk_uninit(BATCH as usize) else {
                    wait(&mut spins);
                    continue;
                };
                chunk.fill_from_iter((sent..sent + BATCH).map(|value| [value; 3]));
                sent += BATCH;
                spins = 0;
            }
        });
        pin(0);
        ready.wait();
        let started = Instant::now();
        let (mut received, mut sum, mut spins) = (0, 0, 0);
        while received < count {
            let available = consumer.slots();
            if available == 0 {
                wait(&mut spins);
                continue;
            }
            for payload in consumer.read_chunk(available).expect("as many as there are") {
                sum += payload[0];
            }
            received += available as u64;
            spins = 0;
        }
        assert_eq!(sum, count * (count - 1) / 2);
        ns_per(count, started)
    })
}

fn ring_one_way(count: u64) -> f64 {
    let (producer, consumer) = ring::<Cell<u64>>(64 << 10);
    let ready = &Barrier::new(2);
    std::thread::scope(|scope| {
        scope.spawn(move || {
            pin(1);
            ready.wait();
            let mut spins = 0;
            for value in 0..count {
                let payload: Payload = [value; 3];
                let mut run = move |sum: &Cell<u64>| sum.set(sum.get() + payload[0]);
                while let Err(back) = producer.push(run) {
                    run = back;
                    producer.publish();
                    wait(&mut spins);
                }
                if value % BATCH == BATCH - 1 {
                    producer.publish();
                    spins = 0;
                }
            }
        });
        pin(0);
        ready.wait();
        let started = Instant::now();
        let (mut received, mut spins) = (0, 0);
        let sum = Cell::new(0);
        while received < count {
            match consumer.drain(&sum, 128) {
                0 => wait(&mut spins),
                ran => {
                    received += ran as u64;
                    spins = 0;
                }
            }
        }
        assert_eq!(sum.get(), count * (count - 1) / 2);
        ns_per(count, started)
    })
}

fn rtrb_round_trip(count: u64, batch: u64) -> f64 {
    let (mut requests, mut to_serve) = rtrb::RingBuffer::<Payload>::new(1024);
    let (mut replies, mut to_take) = rtrb::RingBuffer::<Payload>::new(1024);
    let ready = &Barrier::new(2);
    std::thread::scope(|scope| {
        scope.spawn(move || {
            pin(1);
            ready.wait();
            let (mut served, mut spins) = (0, 0);
            while served < count {
                let available = to_serve.slots();
                if available == 0 {
                    wait(&mut spins);
                    continue;
                }
                let requests = to_serve.read_chunk(available).expect("as many as there are");
                let out = replies.write_chunk_uninit(available).expect("fewer in flight than slots");
                out.fill_from_iter(requests.into_iter().map(|payload| [payload[0] + 1; 3]));
                served += available as u64;
                spins = 0;
            }
        });
        pin(0);
        ready.wait();
        let started = Instant::now();
        let (mut sent, mut sum) = (0, 0);
        while sent < count {
            let out = requests.write_chunk_uninit(batch as usize).expect("fewer in flight than slots");
            out.fill_from_iter((sent..sent + batch).map(|value| [value; 3]));
            sent += batch;
            let (mut taken, mut spins) = (0, 0);
            while taken < batch {
                let available = to_take.slots();
                if available == 0 {
                    wait(&mut spins);
                    continue;
                }
                for payload in to_take.read_chunk(available).expect("as many as there are") {
                    sum += payload[0];
                }
                taken += available as u64;
            }
        }
        assert_eq!(sum, count * (count + 1) / 2);
        ns_per(count, started)
    })
}

fn ring_round_trip(count: u64, batch: u64) -> f64 {
    let (requests, to_serve) = ring(64 << 10);
    let (replies, to_take) = ring::<Cell<u64>>(64 << 10);
    let ready = &Barrier::new(2);
    std::thread::scope(|scope| {
        scope.spawn(move || {
            pin(1);
            ready.wait();
            let (mut served, mut spins) = (0, 0);
            while served < count {
                let ran = to_serve.drain(&replies, 128);
                if ran == 0 {
                    wait(&mut spins);
                    continue;
                }
                replies.publish();
                served += ran as u64;
                spins = 0;
            }
        });
        pin(0);
        ready.wait();
        let started = Instant::now();
        let mut sent = 0;
        let sum = Cell::new(0);
        while sent < count {
            for value in sent..sent + batch {
                let payload: Payload = [value; 3];
                let pushed = requests.push(move |replies: &atrapos_runtime::ring::Producer<Cell<u64>>| {
                    let payload: Payload = [payload[0] + 1; 3];
                    let pushed = replies.push(move |sum: &Cell<u64>| sum.set(sum.get() + payload[0]));
                    assert!(pushed.is_ok(), "fewer in flight than fit");
                });
                assert!(pushed.is_ok(), "fewer in flight than fit");
            }
            requests.publish();
            sent += batch;
            let (mut taken, mut spins) = (0, 0);
            while taken < batch {
                match to_take.drain(&sum, 128) {
                    0 => wait(&mut spins),
                    ran => taken += ran as u64,
                }
            }
        }
        assert_eq!(sum.get(), count * (count + 1) / 2);
        ns_per(count, started)
    })
}

/// Asks worker 1 `count` times in batches and adds up the answers.
async fn ask(worker: Rc<Worker<Nothing>>, count: u64, batch: u64) -> u64 {
    let mut sum = 0;
    let mut sent = 0;
    let mut calls = Vec::with_capacity(BATCH as usize);
    while sent < count {
        calls.extend((sent..sent + batch).map(|value| {
            let payload: Payload = [value; 3];
            worker.call(WorkerId(1), move |there, reply| reply.send(there, [payload[0] + 1; 3]))
        }));
        sent += batch;
        for call in calls.drain(..) {
            sum += call.await.expect("nobody stops")[0];
        }
    }
    sum
}

fn worker_round_trip(count: u64, batch: u64, tasks: u64) -> f64 {
    let mut builder = RuntimeBuilder::new(2);
    builder.cpus = Some(vec![Some(0), Some(1)]);
    let runtime = builder.start(|_| Nothing).expect("two workers start");
    // The first answer shows that both workers run.
    let running = runtime.handle().request(WorkerId(0), |here, sender| {
        let inner = Rc::clone(here);
        here.spawn(async move { sender.send(ask(inner, 1, 1).await) });
    });
    assert_eq!(running.expect("the runtime runs").wait(), Ok(1));
    let each = count / tasks;
    let started = Instant::now();
    let receivers: Vec<_> = (0..tasks)
        .map(|_| {
            let request = runtime.handle().request(WorkerId(0), move |here, sender| {
                let inner = Rc::clone(here);
                here.spawn(async move { sender.send(ask(inner, each, batch).await) });
            });
            request.expect("the runtime runs")
        })
        .collect();
    for receiver in receivers {
        assert_eq!(receiver.wait(), Ok(each * (each + 1) / 2));
    }
    ns_per(count, started)
}

/// Runs one task on the only worker of a runtime, to its end.
fn alone<F: Future<Output = ()>>(task: impl FnOnce(Rc<Worker<Nothing>>) -> F + Send + 'static) {
    let mut builder = RuntimeBuilder::new(1);
    builder.cpus = Some(vec![Some(0)]);
    let runtime = builder.start(|_| Nothing).expect("one worker starts");
    let done = runtime.handle().request(WorkerId(0), |here, sender| {
        let inner = Rc::clone(here);
        here.spawn(async move {
            task(inner).await;
            sender.send(());
        });
    });
    assert_eq!(done.expect("the runtime runs").wait(), Ok(()));
}

/// Tasks that are polled in turn.
fn task_poll(count: u64) -> f64 {
    let started = Instant::now();
    alone(move |worker| async move {
        for _ in 1..BATCH {
            let here = Rc::clone(&worker);
            worker.spawn(async move {
                for _ in 0..count / BATCH {
                    here.yield_now().await;
                }
            });
        }
        for _ in 0..count / BATCH {
            worker.yield_now().await;
        }
    });
    ns_per(count, started)
}

fn task_spawn(count: u64) -> f64 {
    let started = Instant::now();
    alone(move |here| async move {
        for _ in 0..count / BATCH {
            for value in 0..BATCH {
                let payload = [value; 8];
                let task: TaskId = here.spawn(async move {
                    black_box(payload);
                });
                black_box(task);
            }
            here.yield_now().await;
        }
    });
    ns_per(count, started)
}

fn self_message(count: u64) -> f64 {
    let started = Instant::now();
    alone(move |here| async move {
        for _ in 0..count / BATCH {
            for value in 1..BATCH {
                let payload: Payload = [value; 3];
                here.send(here.id(), move |_| {
                    black_box(payload);
                });
            }
            // The last one of a batch tells when it has arrived.
            let arrived = here.call(here.id(), |there, reply| reply.send(there, ()));
            arrived.await.expect("nobody stops");
        }
    });
    ns_per(count, started)
}

fn self_call(count: u64) -> f64 {
    let started = Instant::now();
    alone(move |here| async move {
        let mut calls = Vec::with_capacity(BATCH as usize);
        for _ in 0..count / BATCH {
            calls.extend((0..BATCH).map(|value| {
                let payload: Payload = [value; 3];
                here.call(here.id(), move |there, reply| reply.send(there, payload))
            }));
            for call in calls.drain(..) {
                black_box(call.await.expect("nobody stops"));
            }
        }
    });
    ns_per(count, started)
}
