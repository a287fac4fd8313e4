//! Messages between two processes, there and back, over every kind of channel: nanoseconds, as ratios to the bare primitive; and how
//! many go one way per second (figure V2 of *OLTP on hardware islands*).
//!
//! The bare primitive is a loop of reads and writes of the messages' bytes on the same kind of socket or pipe, and for shared memory two
//! threads of one process over a ring of the same type. A stream of bytes has no messages: with their lengths and the header of
//! the frame it has more bytes, and sixteen messages take a second page; so the same loop is run with as many bytes as are
//! framed, too. Run with `cargo run --release --example pingpong -p atrapos-channel`; rounds
//! per figure may follow as an argument. Both ends poll, so it takes two cores.
#![expect(clippy::print_stdout, reason = "an example prints")]

use std::error::Error;
use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::process::{Child, Command};
use std::time::{Duration, Instant};
use std::{env, fs, thread};

use atrapos_channel::ring::{Consumer, Producer, ring};
use atrapos_channel::{
    Channel, ChannelError, ChannelKind, ConnectOptions, DeploymentId, EndId, Hello, InstanceId,
    ListenOptions, Listener, RING_BYTES_DEFAULT, Watcher, connect,
};

const MESSAGE_BYTES: usize = 256;
/// Bytes before a frame's messages, and before each of them.
const FRAME_HEADER_BYTES: usize = 12;
const LENGTH_BYTES: usize = 4;
const BATCHES: [usize; 2] = [1, 16];
const ROUNDS_DEFAULT: usize = 20_000;
/// Repetitions of a figure, of which the median counts.
const REPETITIONS: usize = 5;
const PATIENCE: Duration = Duration::from_secs(30);
const DEPLOYMENT: DeploymentId = DeploymentId(0x70_69_6e_67);
/// The variable that makes this program the other process.
const ROLE: &str = "ATRAPOS_PINGPONG";

type Outcome<T> = Result<T, Box<dyn Error>>;

fn main() -> Outcome<()> {
    if let Ok(task) = env::var(ROLE) {
        return play_other(&task);
    }
    let rounds = match env::args().nth(1) {
        None => ROUNDS_DEFAULT,
        Some(rounds) => {
            rounds.parse().map_err(|_| format!("'{rounds}' is no number of rounds: give one, like 20000"))?
        }
    };
    println!("{MESSAGE_BYTES}-byte messages, {rounds} rounds, median of {REPETITIONS} repetitions");
    println!(
        "{:6} {:>6} {:>14} {:>14} {:>7} {:>14} {:>7} {:>21}",
        "kind", "batch", "ns there+back", "bare", "ratio", "bare, framed", "ratio", "K messages/s one way"
    );
    for &kind in ChannelKind::all() {
        for batch in BATCHES {
            report(kind, batch, rounds)?;
        }
    }
    Ok(())
}

fn report(kind: ChannelKind, batch: usize, rounds: usize) -> Outcome<()> {
    let mut link = Link::start(kind)?;
    let (mut times, mut rates) = (Vec::new(), Vec::new());
    let (mut bare_times, mut framed_times) = (Vec::new(), Vec::new());
    // The two sides alternate, so that the machine's moods concern both.
    for _ in 0..REPETITIONS {
        times.push(link.round_trips(batch, rounds)?);
        rates.push(link.one_way(batch, rounds * batch)?);
        link.send_to_sleep()?;
        bare_times.push(bare_round_trips(kind, batch, batch * MESSAGE_BYTES, rounds)?);
        let framed = FRAME_HEADER_BYTES + batch * (LENGTH_BYTES + MESSAGE_BYTES);
        framed_times.push(bare_round_trips(kind, batch, framed, rounds)?);
    }
    let (time, rate) = (median(times), median(rates));
    let (bare, framed) = (median(bare_times), median(framed_times));
    println!(
        "{:6} {batch:>6} {time:>14.0} {bare:>14.0} {:>7.2} {framed:>14.0} {:>7.2} {rate:>21.0}",
        kind.name(),
        time / bare,
        time / framed
    );
    Ok(())
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn nanoseconds_per_round(since: Instant, rounds: usize) -> f64 {
    since.elapsed().as_nanos() as f64 / rounds as f64
}

// --- channels ----------------------------------------------------------------------------------------------------------

/// The first byte of a message that asks the other process for as many messages as the second byte says.
const ASK: u8 = 1;
/// The first byte of a message after which the other process sleeps until the next one arrives.
const SLEEP: u8 = 2;

/// A link to another process, which answers.
struct Link {
    channel: Box<dyn Channel>,
    other: Child,
    directory: std::path::PathBuf,
}

impl Link {
    fn start(kind: ChannelKind) -> Outcome<Self> {
        let directory = env::temp_dir().join(format!("pingpong-{}", std::process::id()));
        let options = ListenOptions {
            tcp: Some(([127, 0, 0, 1], 0).into()),
            ..ListenOptions::new(&directory, DEPLOYMENT, InstanceId(0), 1, Watcher::start()?)
        };
        let mut listener = Listener::bind(options)?;
        let tcp = listener.tcp_address().ok_or("TCP was asked for")?;
        let other = Command::new(env::current_exe()?)
            .env(ROLE, format!("{kind} {tcp} {}", directory.display()))
            .spawn()?;
        let accepted = listener.accept(PATIENCE)?.ok_or("the other process does not connect")?;
        Ok(Self { channel: accepted.channel, other, directory })
    }

    fn round_trips(&mut self, batch: usize, rounds: usize) -> Outcome<f64> {
        let message = [0; MESSAGE_BYTES];
        let since = Instant::now();
        for _ in 0..rounds {
            for at in 0..batch {
                // The last one of a batch asks for as many answers.
                let head = if at + 1 == batch { [ASK, batch as u8] } else { [0, 0] };
                self.channel.send(&[&head, &message[2..]])?;
            }
            self.channel.flush()?;
            let mut answers = 0;
            while answers < batch {
                answers += self.channel.receive(batch, &mut |_| ())?;
            }
        }
        Ok(nanoseconds_per_round(since, rounds))
    }

    /// Thousands of messages per second that arrive, in batches.
    fn one_way(&mut self, batch: usize, messages: usize) -> Outcome<f64> {
        let message = [0; MESSAGE_BYTES];
        let since = Instant::now();
        let mut sent = 0;
        while sent < messages {
            if self.channel.backlog() == 0 {
                for _ in 0..batch {
                    self.channel.send(&[&message])?;
                }
                sent += batch;
            }
            self.channel.flush()?;
        }
        self.channel.send(&[&[ASK, 1]])?;
        while self.channel.backlog() > 0 || self.channel.receive(1, &mut |_| ())? == 0 {
            self.channel.flush()?;
        }
        Ok(sent as f64 / since.elapsed().as_secs_f64() / 1e3)
    }

    /// Has the other process leave its core to others.
    fn send_to_sleep(&mut self) -> Result<(), ChannelError> {
        self.channel.send(&[&[SLEEP, 0]])?;
        self.channel.flush()
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        // The other process ends when the link does, which is dropped after this: it is ended instead.
        let _ended = self.other.kill().and_then(|()| self.other.wait());
        let _removed = fs::remove_dir_all(&self.directory);
    }
}

/// The other process: answers as many messages as it is asked for.
fn play_other(task: &str) -> Outcome<()> {
    let [kind, tcp, directory] =
        task.splitn(3, ' ').collect::<Vec<_>>().try_into().map_err(|_| "no such role")?;
    let options =
        ConnectOptions { tcp: Some(tcp.parse()?), ..ConnectOptions::new(directory, Watcher::start()?) };
    let hello = Hello {
        deployment: DEPLOYMENT,
        from: EndId { instance: InstanceId(1), worker: 0 },
        to: EndId { instance: InstanceId(0), worker: 0 },
        kind: kind.parse()?,
    };
    let mut channel = connect(&options, hello, Instant::now() + PATIENCE)?;
    let me = thread::current();
    channel.on_wake(Box::new(move || me.unpark()));
    let message = [0; MESSAGE_BYTES];
    let mut answers = 0;
    loop {
        let mut sleeps = false;
        let received = channel.receive(64, &mut |message| match message[0] {
            ASK => answers += usize::from(message[1]),
            first => sleeps = first == SLEEP,
        });
        match received {
            Err(ChannelError::Gone(_)) => return Ok(()),
            received => received?,
        };
        if answers > 0 {
            for _ in 0..std::mem::take(&mut answers) {
                channel.send(&[&message])?;
            }
            channel.flush()?;
        }
        if sleeps {
            channel.arm();
            if !channel.has_arrivals() {
                thread::park();
            }
        }
    }
}

// --- bare primitives ---------------------------------------------------------------------------------------------------

/// The same round trips without channels, with a thread that answers meanwhile; on streams with so many bytes each way.
fn bare_round_trips(kind: ChannelKind, batch: usize, bytes: usize, rounds: usize) -> Outcome<f64> {
    if kind == ChannelKind::Shm {
        ring_round_trips(batch, rounds)
    } else {
        stream_round_trips(kind, bytes, rounds)
    }
}

fn ring_round_trips(batch: usize, rounds: usize) -> Outcome<f64> {
    let (mut there, mut input) = ring(RING_BYTES_DEFAULT);
    let (mut output, mut back) = ring(RING_BYTES_DEFAULT);
    let answering = thread::spawn(move || answer_rings(&mut input, &mut output, batch));
    let message = [0; MESSAGE_BYTES];
    let since = Instant::now();
    for _ in 0..rounds {
        for _ in 0..batch {
            there.push(&[&message])?;
        }
        there.publish();
        let mut answers = 0;
        while answers < batch {
            answers += back.receive(batch, &mut |_| ())?;
        }
    }
    let time = nanoseconds_per_round(since, rounds);
    // An empty message ends the thread.
    there.push(&[])?;
    there.publish();
    answering.join().map_err(|_| "the thread that answers has panicked")??;
    Ok(time)
}

fn stream_round_trips(kind: ChannelKind, bytes: usize, rounds: usize) -> Outcome<f64> {
    let (mut there, mut back, mut input, mut output) = streams(kind)?;
    let mut buffer = vec![0; bytes];
    let mut answer = buffer.clone();
    let answering = thread::spawn(move || {
        while read_all(&mut input, &mut answer).is_ok() && output.write_all(&answer).is_ok() {}
    });
    let since = Instant::now();
    for _ in 0..rounds {
        there.write_all(&buffer)?;
        read_all(&mut back, &mut buffer)?;
    }
    let time = nanoseconds_per_round(since, rounds);
    // The end of its input ends the thread.
    drop((there, back));
    answering.join().map_err(|_| "the thread that answers has panicked")?;
    Ok(time)
}

fn answer_rings(input: &mut Consumer, output: &mut Producer, batch: usize) -> Result<(), ChannelError> {
    let message = [0; MESSAGE_BYTES];
    let (mut asked, mut ends) = (0, false);
    while !ends {
        asked += input.receive(batch, &mut |message| ends = message.is_empty())?;
        if asked == batch {
            for _ in 0..std::mem::take(&mut asked) {
                output.push(&[&message])?;
            }
            output.publish();
        }
    }
    Ok(())
}

/// Reads until the buffer is full, without sleeping, as channels do.
fn read_all(input: &mut dyn Read, mut buffer: &mut [u8]) -> io::Result<()> {
    while !buffer.is_empty() {
        match input.read(buffer) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(bytes) => buffer = &mut buffer[bytes..],
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// The two ends of a two-way stream: near writer and reader, far reader and writer. Reads do not block.
type Ends = (Box<dyn Write>, Box<dyn Read>, Box<dyn Read + Send>, Box<dyn Write + Send>);

fn streams(kind: ChannelKind) -> Outcome<Ends> {
    Ok(match kind {
        ChannelKind::Unix => {
            let (near, far) = UnixStream::pair()?;
            near.set_nonblocking(true)?;
            far.set_nonblocking(true)?;
            (Box::new(near.try_clone()?), Box::new(near), Box::new(far.try_clone()?), Box::new(far))
        }
        ChannelKind::Tcp => {
            let listener = TcpListener::bind("127.0.0.1:0")?;
            let near = TcpStream::connect(listener.local_addr()?)?;
            let (far, _) = listener.accept()?;
            for end in [&near, &far] {
                end.set_nodelay(true)?;
                end.set_nonblocking(true)?;
            }
            (Box::new(near.try_clone()?), Box::new(near), Box::new(far.try_clone()?), Box::new(far))
        }
        ChannelKind::Pipe | ChannelKind::Shm => {
            let ((input, there), (back, output)) = (pipe()?, pipe()?);
            (Box::new(there), Box::new(back), Box::new(input), Box::new(output))
        }
    })
}

fn pipe() -> io::Result<(fs::File, fs::File)> {
    let (reader, writer) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::NONBLOCK)?;
    Ok((reader.into(), writer.into()))
}
