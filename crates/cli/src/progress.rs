//! Progress bars for a user at a terminal: one while the database loads, and one with the throughput while it runs.
//!
//! Owns: the bars. Never: writes anything if standard error is no terminal.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use atrapos::{LoadProgress, RecoveryProgress};
use indicatif::{HumanCount, ProgressBar, ProgressDrawTarget, ProgressStyle};

fn bar(length: u64, template: &str) -> ProgressBar {
    let bar = ProgressBar::with_draw_target(Some(length), ProgressDrawTarget::stderr());
    // A template that cannot be parsed affects only the appearance.
    bar.set_style(ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar()));
    bar
}

/// Runs `load` while showing its progress and its rate.
pub(crate) fn while_loading<R: Send>(
    rows_expected: u64,
    progress: &LoadProgress,
    load: impl FnOnce() -> R + Send,
) -> R {
    let bar = bar(rows_expected, "loading {bar:32} {percent:>3}%  {human_pos} rows  {msg}");
    if bar.is_hidden() {
        return load();
    }
    let began = Instant::now();
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                let rows = progress.rows();
                bar.set_position(rows.min(rows_expected));
                let rate = rows as f64 / began.elapsed().as_secs_f64().max(1e-3);
                bar.set_message(format!("{} rows/s", HumanCount(rate as u64)));
                std::thread::sleep(Duration::from_millis(100));
            }
            bar.finish_and_clear();
        });
        let result = load();
        done.store(true, Ordering::Relaxed);
        result
    })
}

/// Opens a database while showing the progress of its recovery.
pub(crate) fn while_recovering<R: Send>(progress: &RecoveryProgress, open: impl FnOnce() -> R + Send) -> R {
    let bar = bar(100, "recovering {bar:32} {percent:>3}%  {msg}");
    if bar.is_hidden() {
        return open();
    }
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                let ((rows, rows_total), (bytes, bytes_total)) = (progress.rows(), progress.wal_bytes());
                // Rows of the checkpoint and bytes of the WAL each count for half of the bar.
                let share = |done: u64, total: u64| (done * 50).checked_div(total).unwrap_or(50);
                bar.set_position(share(rows, rows_total) + share(bytes, bytes_total));
                bar.set_message(format!(
                    "{} rows, {} changes",
                    HumanCount(rows),
                    HumanCount(progress.changes())
                ));
                std::thread::sleep(Duration::from_millis(100));
            }
            bar.finish_and_clear();
        });
        let result = open();
        done.store(true, Ordering::Relaxed);
        result
    })
}

/// The throughput of one run, live.
#[derive(Debug)]
pub struct RunBar {
    bar: ProgressBar,
    label: String,
}

impl RunBar {
    /// Creates the bar; `label` names the run.
    pub fn new(label: String, warmup: Duration, measured: Duration) -> RunBar {
        let length = (warmup + measured).as_millis() as u64;
        RunBar { bar: bar(length, "{msg:40} {bar:32}"), label }
    }

    /// Creates the bar of a measurement of so many steps, each to be told by [`RunBar::step`].
    pub fn of_steps(steps: u64) -> RunBar {
        RunBar::new(String::new(), Duration::ZERO, Duration::from_millis(steps))
    }

    /// Shows a rate; `before` is the time that has passed in earlier phases.
    pub fn show(&self, phase: &str, before: Duration, elapsed: Duration, rate: f64) {
        if self.bar.is_hidden() {
            return;
        }
        self.bar.set_position((before + elapsed).as_millis() as u64);
        self.bar.set_message(format!("{}{phase} {} tps", self.label, HumanCount(rate as u64)));
    }

    /// Shows the number of steps done.
    pub fn step(&self, what: &str) {
        if !self.bar.is_hidden() {
            self.bar.set_message(format!("{}{what}", self.label));
            self.bar.inc(1);
        }
    }

    /// Removes the bar from the screen.
    pub fn finish(&self) {
        self.bar.finish_and_clear();
    }
}
