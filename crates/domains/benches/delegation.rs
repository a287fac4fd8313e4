//! Cost of a delegated task: one at a time, in bursts, beside a bare ping-pong of two threads and the runtime's own ring.
//!
//! `cargo bench -p atrapos-domains --bench delegation` prints best and median over repetitions that alternate between the
//! measurements. Without cargo's own `--bench`, as in `cargo test --benches`, each runs once at a tiny size and nothing is printed.

use std::hint::{black_box, spin_loop};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use atrapos_domains::{BURST_DEFAULT, Client, Configuration, Domains, Owned};
use atrapos_runtime::affinity::pin_current_thread;
use atrapos_topology::{LiveOptions, Machine};

fn main() {
    let tiny = !std::env::args().any(|argument| argument == "--bench");
    let (repetitions, count) = if tiny { (1, 1_000) } else { (31, 400_000) };
    let machine = Machine::live(&LiveOptions::new(None));
    let cpus = machine.placement(2);
    let mut configuration = Configuration::one_worker_each(&["d"]);
    configuration.domains[0].cpus = vec![cpus[1].0];
    let domains = Domains::start(&machine, &configuration).expect("one worker starts");
    let counter =
        domains.at("d").and_then(|site| site.place_owned("counter", 0_u64)).expect("the name is free");
    let mut client = domains.client();
    // Best effort: on a machine with one processing unit the numbers mean little anyway.
    let _ = pin_current_thread(cpus[0].0 as usize);

    let names = ["bare ping-pong", "call", "burst of 14", "burst of 32", "burst of 64", "bulk of 14"];
    let mut ns: Vec<Vec<f64>> = vec![Vec::new(); names.len()];
    for _ in 0..repetitions {
        ns[0].push(ping_pong(count / 4, cpus[1].0 as usize));
        ns[1].push(calls(&mut client, &counter, count / 4));
        for (at, size) in [(2, BURST_DEFAULT), (3, 32), (4, 64)] {
            ns[at].push(bursts(&mut client, &counter, count, size));
        }
        ns[5].push(bulks(&mut client, &counter, count));
    }
    if tiny {
        return;
    }
    let mut table = String::from("ns per task:            best    median\n");
    for (name, ns) in names.iter().zip(&mut ns) {
        ns.sort_by(f64::total_cmp);
        table += &format!("  {name:<18} {:8.1}  {:8.1}\n", ns[0], ns[ns.len() / 2]);
    }
    table += &format!("idle for ten seconds, one worker: {} ms of processor time\n", idle_ms());
    use std::io::Write;
    // Nobody is left to tell if standard output is gone.
    let _ = std::io::stdout().write_all(table.as_bytes());
}

/// Processor time of the process while nobody does anything, as the system counts it, by ten milliseconds.
#[expect(clippy::disallowed_methods, reason = "a bench reads what the system says of the process")]
fn idle_ms() -> u64 {
    let ticks = || {
        let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
        // The second field, in parentheses, is a name with anything in it; times are fields 14 and 15.
        let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
        fields.iter().skip(11).take(2).filter_map(|ticks| ticks.parse::<u64>().ok()).sum::<u64>()
    };
    std::thread::sleep(Duration::from_millis(100));
    let before = ticks();
    std::thread::sleep(Duration::from_secs(10));
    (ticks() - before) * 10
}

#[expect(clippy::cast_precision_loss, reason = "a mean for people to read")]
fn ns_per(count: u64, started: Instant) -> f64 {
    started.elapsed().as_nanos() as f64 / count as f64
}

/// A cache line of its own.
#[repr(align(128))]
struct Line(AtomicU64);

fn wait_for(line: &Line, value: u64) {
    let mut looks = 0;
    while line.0.load(Ordering::Acquire) != value {
        looks += 1;
        if looks < 10_000 { spin_loop() } else { std::thread::yield_now() }
    }
}

fn ping_pong(count: u64, cpu: usize) -> f64 {
    let (there, back) = (&Line(AtomicU64::new(0)), &Line(AtomicU64::new(0)));
    std::thread::scope(|scope| {
        scope.spawn(move || {
            let _ = pin_current_thread(cpu);
            for round in 1..=count {
                wait_for(there, round);
                back.0.store(round, Ordering::Release);
            }
        });
        let started = Instant::now();
        for round in 1..=count {
            there.0.store(round, Ordering::Release);
            wait_for(back, round);
        }
        ns_per(count, started)
    })
}

fn calls(client: &mut Client, counter: &Owned<u64>, count: u64) -> f64 {
    let started = Instant::now();
    for _ in 0..count {
        black_box(client.call_blocking(counter, |_| 0_u64).expect("the task runs"));
    }
    ns_per(count, started)
}

fn bursts(client: &mut Client, counter: &Owned<u64>, count: u64, size: usize) -> f64 {
    let mut burst = client.burst(counter, size).expect("there are slots");
    let started = Instant::now();
    for _ in 0..count {
        if let Some(answer) = burst.push(|_| 0_u64).expect("it is submitted") {
            black_box(answer.expect("the task runs"));
        }
    }
    burst.drain().for_each(|answer| {
        black_box(answer.expect("the task runs"));
    });
    ns_per(count, started)
}

/// Bulks of fourteen, two under way.
fn bulks(client: &mut Client, counter: &Owned<u64>, count: u64) -> f64 {
    let started = Instant::now();
    let mut before = None;
    for _ in 0..count / BURST_DEFAULT as u64 {
        let tasks = (0..BURST_DEFAULT).map(|_| |_: &mut u64| 0_u64).collect();
        let bulk = client.bulk(counter, tasks).expect("there is room");
        if let Some(before) = before.replace(bulk) {
            before.wait().expect("the bulk runs").for_each(|answer| {
                black_box(answer.expect("the task runs"));
            });
        }
    }
    black_box(before.map(|bulk| bulk.wait().expect("the bulk runs").count()));
    ns_per(count, started)
}
