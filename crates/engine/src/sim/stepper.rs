//! Steps of a simulation: of the pump of its workers and, with a WAL, of its flushers in between.
//!
//! Owns: the choice between workers and flushers, from the seed. Never: starts a task, or waits.

use std::sync::Arc;

use atrapos_durability::wal::{StreamOptions, StreamWriter};
use atrapos_runtime::Pump;
use atrapos_runtime::rng::Seed;
use atrapos_transaction::distributed::steps::stopped;
use atrapos_transaction::shard::Shard;
use atrapos_transaction::wal::Wal;
use atrapos_transaction::wal::flusher::Flusher;

/// The WAL of a simulated database: its flushers run on the same thread, at steps chosen by the seed.
pub(super) struct SimulatedWal {
    flushers: Vec<Flusher>,
    /// The state of the generator that chooses between workers and flushers.
    turn: Seed,
}

/// Bytes of a segment: few, so that a simulation fills many segments.
const SEGMENT_BYTES: u64 = 16 << 10;

/// Bytes of a frame: few, so that epochs often take several frames.
const FRAME_BYTES: usize = 256;

impl SimulatedWal {
    /// Returns the options of a stream with little segments and frames.
    pub(super) fn stream_options() -> StreamOptions {
        StreamOptions {
            segment_bytes: SEGMENT_BYTES,
            frame_bytes: FRAME_BYTES,
            filled_bytes: 0,
            kept_bytes: 2 * SEGMENT_BYTES,
        }
    }

    /// Makes the flushers of a WAL.
    pub(super) fn new(wal: &Arc<Wal>, writers: Vec<StreamWriter>, seed: u64) -> SimulatedWal {
        let flushers = writers.into_iter().enumerate();
        let flushers = flushers.map(|(stream, writer)| Flusher::new(Arc::clone(wal), stream, writer));
        SimulatedWal { flushers: flushers.collect(), turn: Seed(seed).derive(u64::MAX) }
    }

    /// Returns a pseudo-random number below `bound`.
    fn draw(&mut self, bound: u64) -> u64 {
        self.turn = self.turn.derive(1);
        self.turn.0 % bound
    }

    /// Runs one round of a flusher.
    pub(super) fn round(&mut self) {
        let flusher = self.draw(self.flushers.len() as u64) as usize;
        self.flushers[flusher].round();
        self.flushers[flusher].tidy_up();
    }
}

/// The pump of the workers and the flushers. See the module's introduction.
pub(super) struct Stepper {
    pub(super) pump: Pump<Shard>,
    pub(super) wal: Option<SimulatedWal>,
}

impl Stepper {
    /// Steps until every task has ended and nothing is left to do, at most about `steps_max` steps. Returns true if all
    /// tasks have ended.
    pub(super) fn run(&mut self, steps_max: u64) -> bool {
        let workers = self.pump.workers().to_vec();
        let ended = || workers.iter().all(|worker| worker.tasks_len() == 0);
        let Some(wal) = &mut self.wal else {
            return self.pump.run_until(ended, steps_max) && self.pump.run_until_idle(steps_max);
        };
        let end = self.pump.steps() + steps_max;
        while !ended() && self.pump.steps() < end {
            self.pump.run_until(ended, wal.draw(63) + 1);
            wal.round();
        }
        let ended = ended();
        let idle = self.pump.run_until_idle(steps_max);
        wal.round();
        ended && idle
    }

    /// Makes about `steps` steps.
    pub(super) fn run_for(&mut self, steps: u64) {
        let end = self.pump.steps() + steps;
        while self.pump.steps() < end {
            for _ in 0..self.wal.as_mut().map_or(1, |wal| wal.draw(63) + 1) {
                self.pump.step();
            }
            if let Some(wal) = &mut self.wal {
                wal.round();
            }
        }
    }

    /// Makes about `steps` steps of workers, and sometimes a round of a flusher. When all tasks wait for a later time, the clock advances to
    /// it. An instance that has stopped makes no further one.
    pub(super) fn step_for(&mut self, steps: u64) {
        let has_stopped = || stopped().is_some();
        self.pump.run_until(has_stopped, steps);
        if let Some(wal) = &mut self.wal
            && !has_stopped()
            && wal.draw(4) == 0
        {
            wal.round();
        }
    }

    /// Makes one step for a statement that waits. When all tasks wait for a later time, the clock advances to it.
    pub(super) fn step(&mut self) {
        self.pump.run_until(|| false, 1);
        if let Some(wal) = &mut self.wal
            && wal.draw(32) == 0
        {
            wal.round();
        }
    }
}
