//! The thread that answers those who watch a database of this process.
//!
//! Owns: the connections, one line of JSON for each line of a request, and the end. Never: keeps a database open, or wakes without being
//! asked.
//!
//! Invariants: a peer of another user is not answered; there are at most [`MOST_AT_A_TIME`] connections; whoever takes no answer is
//! dropped after [`PATIENCE`].

use std::io::{self, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use atrapos::Database;
use atrapos::activity::Activity;
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use crate::look::{BETWEEN_LOOKS, Due, Look, Looks};
use crate::place::{Place, PlaceError};
use crate::report::{DecisionReport, Latency, MachineReport, Rates, Snapshot};

/// Connections at a time.
const MOST_AT_A_TIME: usize = 8;
/// The longest request, in bytes.
const REQUEST_BYTES: usize = 256;
/// The time that sending an answer may take.
const PATIENCE: Duration = Duration::from_secs(2);

/// A source of latencies: those of the requests since it was called last. It is called when somebody looks.
pub type LatencySource = Box<dyn FnMut() -> Option<Latency> + Send>;

/// The description of a database by the program that offers it to be watched.
#[derive(Default)]
pub struct WatchedOptions {
    /// What the program is doing, in a few words.
    pub program: String,
    /// The directory of the database; `None` for one in memory.
    pub directory: Option<PathBuf>,
    /// The latencies of what the program counts as requests; `None` if it counts none.
    pub latency: Option<LatencySource>,
}

impl std::fmt::Debug for WatchedOptions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("WatchedOptions")
            .field("program", &self.program)
            .field("directory", &self.directory)
            .finish_non_exhaustive()
    }
}

/// A request, which is a line.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Request {
    /// The decision after which they are told.
    #[serde(default)]
    pub(crate) after: u64,
}

/// A database that its owner may watch, until this is dropped.
///
/// ```
/// use std::sync::Arc;
/// use atrapos::{Database, Schema};
/// use atrapos_watch::{Attached, Target, Watched, WatchedOptions};
///
/// let database = Arc::new(Database::builder(Schema::new()).workers(1).in_memory()?);
/// let watched = Watched::start(&database, WatchedOptions { program: "an example".into(), ..Default::default() })?;
/// let mut attached = Attached::to(&Target::Process { pid: std::process::id(), database: None })?;
/// assert_eq!(attached.snapshot(0)?.program, "an example");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Watched {
    stop: Arc<OwnedFd>,
    thread: Option<JoinHandle<()>>,
    place: Place,
}

impl Watched {
    /// Offers a database to be watched by the user of this process. The database closes when its owners drop it, watched or not.
    ///
    /// # Errors
    /// Fails if there is no place for a socket, or no thread.
    pub fn start(database: &Arc<Database>, options: WatchedOptions) -> Result<Watched, PlaceError> {
        let (place, listener) = Place::make(options.directory.as_deref())?;
        let failed = PlaceError::system(place.path());
        let stop = Arc::new(eventfd(0, EventfdFlags::CLOEXEC).map_err(|error| failed(error.into()))?);
        let answering = Answering {
            database: Arc::downgrade(database),
            listener,
            stop: Arc::clone(&stop),
            connections: Vec::new(),
            looks: Looks::default(),
            latency: None,
            options,
        };
        let thread = std::thread::Builder::new().name("atrapos-watch".into());
        let thread = thread.spawn(move || answering.run()).map_err(failed)?;
        Ok(Watched { stop, thread: Some(thread), place })
    }

    /// Returns the path of the socket.
    #[must_use]
    pub fn path(&self) -> &Path {
        self.place.path()
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        // The count of the descriptor is far from its limit.
        let _ = rustix::io::write(&*self.stop, &1_u64.to_ne_bytes());
        if let Some(thread) = self.thread.take() {
            // A panic of that thread was reported by it, and is no matter of the database.
            let _ = thread.join();
        }
    }
}

/// A connection, and what has arrived of its next request.
struct Connection {
    stream: UnixStream,
    request: Vec<u8>,
}

/// The reason for which a connection, or the thread, ends.
enum End {
    /// The peer has gone, or sends nonsense.
    Connection,
    /// The database closes, or nobody offers it any more.
    Thread,
}

impl From<io::Error> for End {
    fn from(_: io::Error) -> End {
        End::Connection
    }
}

/// See the heading.
struct Answering {
    database: Weak<Database>,
    listener: UnixListener,
    stop: Arc<OwnedFd>,
    connections: Vec<Connection>,
    looks: Looks,
    /// The latencies that belong to the latest look.
    latency: Option<Latency>,
    options: WatchedOptions,
}

impl Answering {
    fn run(mut self) {
        while let Ok((comes, ready)) = self.wait() {
            // From the last one on, so that places stay what they were.
            for at in ready.into_iter().rev() {
                let mut connection = self.connections.remove(at);
                match self.serve(&mut connection) {
                    Ok(()) => self.connections.insert(at, connection),
                    Err(End::Connection) => (),
                    Err(End::Thread) => return,
                }
            }
            if comes {
                self.admit();
            }
        }
    }

    /// Waits for somebody who connects, which is told first, or asks; fails at the end.
    fn wait(&self) -> Result<(bool, Vec<usize>), End> {
        let mut fds = vec![
            PollFd::from_borrowed_fd(self.stop.as_fd(), PollFlags::IN),
            PollFd::from_borrowed_fd(self.listener.as_fd(), PollFlags::IN),
        ];
        let streams = self.connections.iter().map(|connection| connection.stream.as_fd());
        fds.extend(streams.map(|stream| PollFd::from_borrowed_fd(stream, PollFlags::IN)));
        match poll(&mut fds, None) {
            Ok(_) => (),
            Err(Errno::INTR) => return Ok((false, Vec::new())),
            Err(_) => return Err(End::Thread),
        }
        let is_ready = |fd: &PollFd<'_>| !fd.revents().is_empty();
        if is_ready(&fds[0]) {
            return Err(End::Thread);
        }
        let ready = fds[2..].iter().enumerate().filter(|(_, fd)| is_ready(fd)).map(|(at, _)| at);
        Ok((is_ready(&fds[1]), ready.collect()))
    }

    /// Takes a connection of this user, unless there are too many; others are closed.
    fn admit(&mut self) {
        let Ok((stream, _)) = self.listener.accept() else { return };
        let user = rustix::net::sockopt::socket_peercred(&stream).map(|peer| peer.uid);
        let is_own = user == Ok(rustix::process::geteuid());
        if is_own
            && self.connections.len() < MOST_AT_A_TIME
            && stream.set_write_timeout(Some(PATIENCE)).is_ok()
        {
            self.connections.push(Connection { stream, request: Vec::new() });
        }
    }

    /// Reads what has arrived, and answers if it is a request.
    fn serve(&mut self, connection: &mut Connection) -> Result<(), End> {
        let mut bytes = [0; REQUEST_BYTES];
        let read = connection.stream.read(&mut bytes)?;
        connection.request.extend_from_slice(&bytes[..read]);
        if read == 0 || connection.request.len() > REQUEST_BYTES {
            return Err(End::Connection);
        }
        let Some(end) = connection.request.iter().position(|byte| *byte == b'\n') else { return Ok(()) };
        let request: Request =
            serde_json::from_slice(&connection.request[..end]).map_err(|_| End::Connection)?;
        connection.request.drain(..=end);
        let snapshot = self.snapshot(request)?;
        let mut answer = serde_json::to_vec(&snapshot).map_err(|_| End::Connection)?;
        answer.push(b'\n');
        Ok(connection.stream.write_all(&answer)?)
    }

    fn snapshot(&mut self, request: Request) -> Result<Snapshot, End> {
        let database = self.database.upgrade().ok_or(End::Thread)?;
        let look = self.look(&database)?;
        Ok(Snapshot {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            pid: std::process::id(),
            program: self.options.program.clone(),
            directory: self.options.directory.as_ref().map(|path| path.display().to_string()),
            machine: MachineReport::of(database.machine(), &look.activity),
            rates: Rates::between(&look.earlier, &look.activity),
            activity: Activity::clone(&look.activity),
            latency: self.latency,
            decisions: DecisionReport::latest(&database, request.after),
        })
    }

    fn look(&mut self, database: &Database) -> Result<Look, End> {
        // The database is closing, then.
        let ask = || database.activity().map(Arc::new).map_err(|_| End::Thread);
        let earlier = match self.looks.due(Instant::now()) {
            Due::Nothing(look) => return Ok(look),
            Due::One(earlier) => earlier,
            Due::Two => {
                // What was counted before belongs to no look.
                self.read_latency();
                let first = ask()?;
                self.pause()?;
                first
            }
        };
        let activity = ask()?;
        self.latency = self.read_latency();
        Ok(self.looks.made(Instant::now(), earlier, activity))
    }

    fn read_latency(&mut self) -> Option<Latency> {
        self.options.latency.as_mut().and_then(|source| source())
    }

    /// Lets the time between two looks pass, unless the end comes first.
    fn pause(&self) -> Result<(), End> {
        let time = Timespec { tv_sec: 0, tv_nsec: i64::from(BETWEEN_LOOKS.subsec_nanos()) };
        let mut stop = [PollFd::from_borrowed_fd(self.stop.as_fd(), PollFlags::IN)];
        match poll(&mut stop, Some(&time)) {
            Ok(0) | Err(Errno::INTR) => Ok(()),
            _ => Err(End::Thread),
        }
    }
}
