//! Messages per second over a channel, from one thread of this process to another one (Islands, Figure 2).
//!
//! Owns: the two ends and their loops. Never: pins a thread; its caller says how an end begins.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use atrapos_channel::{
    Channel, ChannelError, ChannelKind, ConnectOptions, DeploymentId, EndId, Hello, InstanceId,
    ListenOptions, Listener, Watcher, connect,
};

/// Bytes of a message, as in the paper.
pub const MESSAGE_BYTES: usize = 256;

/// The time in which the two ends find each other.
const PATIENCE: Duration = Duration::from_secs(30);

/// Empty looks for messages after which an end leaves its processor to others.
const LOOKS: u32 = 1000;

/// A measurement of messages one way.
#[derive(Clone, Copy, Debug)]
pub struct MessageRate<'a> {
    /// The kind of the channel between the threads.
    pub kind: ChannelKind,
    /// Messages that are sent before the sender flushes.
    pub batch: usize,
    /// The time for which messages are sent.
    pub measured: Duration,
    /// An empty directory of this user alone, or one that is not there yet.
    pub directory: &'a Path,
}

impl MessageRate<'_> {
    /// Returns the messages that arrive per second. Each end, 0 and 1, begins by `begin`, on its own thread.
    ///
    /// # Errors
    /// If the ends cannot be linked, or the link ends.
    pub fn measure(&self, begin: &(dyn Fn(usize) + Sync)) -> Result<f64, ChannelError> {
        let watcher = Watcher::start()?;
        let deployment = DeploymentId::draw()?;
        let options = ListenOptions {
            tcp: Some(([127, 0, 0, 1], 0).into()),
            ..ListenOptions::new(self.directory, deployment, InstanceId(0), 1, watcher.clone())
        };
        let mut listener = Listener::bind(options)?;
        let connecting = ConnectOptions {
            tcp: listener.tcp_address(),
            ..ConnectOptions::new(self.directory, watcher.clone())
        };
        let end = |instance| EndId { instance: InstanceId(instance), worker: 0 };
        let hello = Hello { deployment, from: end(1), to: end(0), kind: self.kind };
        let stopped = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let receiving = scope.spawn(|| {
                begin(1);
                receive(connect(&connecting, hello, Instant::now() + PATIENCE)?, &stopped)
            });
            begin(0);
            let sent = listener.accept(PATIENCE).and_then(|accepted| match accepted {
                Some(accepted) => self.send(accepted.channel, &stopped).map(Some),
                None => Ok(None),
            });
            stopped.store(true, Ordering::Release);
            let received = receiving.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
            // Only an end that has not connected is not accepted, and that has said why.
            Ok(sent?.map_or(0.0, |elapsed| received as f64 / elapsed.as_secs_f64()))
        })
    }

    /// Sends for the time of the measurement; the first message of the other end says that all has arrived. Returns the time until
    /// then.
    fn send(&self, mut channel: Box<dyn Channel>, stopped: &AtomicBool) -> Result<Duration, ChannelError> {
        let message = [0; MESSAGE_BYTES];
        let began = Instant::now();
        let mut full = 0;
        while began.elapsed() < self.measured {
            if channel.backlog() == 0 {
                (0..self.batch).try_for_each(|_| channel.send(&[&message]))?;
                full = 0;
            } else {
                pause(&mut full);
            }
            channel.flush()?;
        }
        channel.send(&[])?;
        let mut looks = 0;
        while channel.receive(1, &mut |_| ())? == 0 {
            channel.flush()?;
            pause(&mut looks);
        }
        let elapsed = began.elapsed();
        stopped.store(true, Ordering::Release);
        Ok(elapsed)
    }
}

/// Counts messages until an empty one arrives, which it answers, and stays until the other end has seen that.
fn receive(mut channel: Box<dyn Channel>, stopped: &AtomicBool) -> Result<u64, ChannelError> {
    let (mut received, mut ended, mut looks) = (0, false, 0);
    while !ended && !stopped.load(Ordering::Acquire) {
        let arrived = channel.receive(64, &mut |message| {
            ended |= message.is_empty();
            received += u64::from(!message.is_empty());
        })?;
        if arrived == 0 {
            pause(&mut looks);
        } else {
            looks = 0;
        }
    }
    channel.send(&[&[0]])?;
    while !stopped.load(Ordering::Acquire) {
        channel.flush()?;
        std::thread::yield_now();
    }
    Ok(received)
}

/// Leaves the processor to others now and then.
fn pause(looks: &mut u32) {
    *looks += 1;
    if *looks > LOOKS {
        std::thread::yield_now();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_arrive_over_every_channel() {
        for &kind in ChannelKind::all() {
            let directory = tempfile::tempdir().expect("a directory");
            let (measured, place) = (Duration::from_millis(50), directory.path().join("links"));
            let rate = MessageRate { kind, batch: 4, measured, directory: &place };
            let per_second = rate.measure(&|_| ()).expect("the ends are linked");
            assert!(per_second > 0.0, "{kind}");
        }
    }
}
