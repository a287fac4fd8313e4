//! `atrapos serve`: a database for clients of PostgreSQL.
//!
//! Owns: the order of start and end, and what is said of them. Never: speaks to a client.

mod file;

use std::fmt::Write as _;
use std::fs::{DirBuilder, Permissions};
use std::io::ErrorKind;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use atrapos::{Database, Schema, ThreadHost};
use atrapos_durability::directory::Directory;
use atrapos_server::{Server, ServerOptions, SlowLog, WorkerThreads, generate_password, password_verifier};
use atrapos_sql::{Settings, SqlDatabase, SqlOptions, SqlProcedures};
use atrapos_topology::{LiveOptions, Machine};
use atrapos_watch::WatchedOptions;

use crate::args::{AuthenticationArg, ServeArgs};
use crate::error::CliError;
use crate::{config, input, interrupt, output, store, watch};

/// The address that is listened at if none is chosen: this machine only.
const LISTEN_DEFAULT: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 5432);

/// The directory, inside of the database's, of the owner's socket.
pub(crate) const SERVER_DIRECTORY: &str = "server";

/// Cores of the machine for which there is one thread on which clients log in.
const CORES_PER_LOGIN_THREAD: usize = 8;

/// The time between two looks at what the user wants.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// Runs `atrapos serve`, with the options of a configuration file if one is named.
pub(crate) fn serve(args: &ServeArgs) -> Result<(), CliError> {
    match &args.config {
        Some(path) => serve_with(&file::with_file(path, args)?),
        None => serve_with(args),
    }
}

fn serve_with(args: &ServeArgs) -> Result<(), CliError> {
    interrupt::install_saying("ending: sessions end with their transactions (once more to end at once)");
    let stop = interrupt::flag();
    let (workers, io_threads) = threads(args);
    let worker_threads = Arc::new(WorkerThreads::new());
    let database = open(args, workers, &worker_threads)?;
    let private = args.directory.join(SERVER_DIRECTORY);
    make_private(&private)?;
    hide_from_others(&args.directory)?;
    let generated = match args.auth {
        AuthenticationArg::Trust => None,
        AuthenticationArg::Scram => set_password(args, &database)?,
    };
    let options = server_options(args, private, io_threads, worker_threads)?;
    let server = Server::start(Arc::clone(&database), options).map_err(CliError::bad_input)?;
    let watched = watch::offer(
        database.database(),
        WatchedOptions {
            program: "serve".to_owned(),
            directory: Some(args.directory.clone()),
            latency: Some(Box::new(server.latency_source())),
        },
    );
    output::print(&greeting(args, &server, generated.as_deref()))?;
    while !stop.load(Ordering::Relaxed) {
        if !args.until_eof {
            std::thread::sleep(LOOK_EVERY);
        } else if input::has_ended(LOOK_EVERY) {
            break;
        }
    }
    drop(watched);
    server.drain();
    let until = Instant::now() + Duration::from_secs(args.drain_seconds);
    while server.sessions() > 0 && Instant::now() < until {
        std::thread::sleep(LOOK_EVERY);
    }
    server.end();
    // It closes with its last owner, which this is.
    drop(database);
    output::print("ended\n")
}

/// Returns the settings of the server.
fn server_options(
    args: &ServeArgs,
    private: PathBuf,
    threads: usize,
    worker_threads: Arc<WorkerThreads>,
) -> Result<ServerOptions, CliError> {
    let http_token =
        args.http_token_file.as_deref().map(|path| first_line("token file", path)).transpose()?;
    if http_token.as_deref() == Some("") {
        return Err(CliError::bad_input("the token file is empty; its first line is the token"));
    }
    if http_token.as_deref().is_some_and(|token| !token.bytes().all(|byte| byte.is_ascii_graphic())) {
        return Err(CliError::bad_input(
            "the token in the token file has spaces or letters that a request cannot carry; use letters of ASCII and digits",
        ));
    }
    let slow_log = args.slow_ms.map(|limit| SlowLog {
        limit: Duration::from_millis(limit),
        sink: Arc::new(|line: &str| output::complain(line)),
    });
    Ok(ServerOptions {
        listen: if args.listen.is_empty() { vec![LISTEN_DEFAULT] } else { args.listen.clone() },
        socket_directory: args.socket_dir.clone(),
        private_directory: Some(private),
        http: args.http,
        http_token,
        trust: matches!(args.auth, AuthenticationArg::Trust),
        tls: args.tls_cert.clone().zip(args.tls_key.clone()),
        max_connections: args.max_connections,
        threads,
        worker_threads: Some(worker_threads),
        slow_log,
    })
}

/// Returns the numbers of workers and of threads on which clients log in: those that were asked for, or as many together as there are
/// cores, for a thread that is ready and finds no core keeps others waiting, clients among them. Sessions are served on the threads of
/// workers, so few threads are needed for the rest.
fn threads(args: &ServeArgs) -> (usize, usize) {
    let cores = Machine::live(&LiveOptions::new(None)).usable_core_count();
    let io_threads = args.io_threads.unwrap_or_else(|| cores.div_ceil(CORES_PER_LOGIN_THREAD));
    (args.workers.unwrap_or_else(|| cores.saturating_sub(io_threads).max(1)), io_threads)
}

/// Returns the number of spare workers beside so many, unless another one is asked for: one for each core that this process may not use now, but
/// no more than workers, since each costs a thread, and a queue to and from every other.
fn spare_workers(workers: usize) -> usize {
    let machine = Machine::live(&LiveOptions::new(None));
    (machine.cores().len() - machine.usable_core_count()).min(workers)
}

/// Opens the database, or creates it.
fn open(
    args: &ServeArgs,
    workers: usize,
    threads: &Arc<WorkerThreads>,
) -> Result<Arc<SqlDatabase>, CliError> {
    let durability = config::durability_of(args.durability, args.max_loss_ms)?;
    let exists = Directory::exists(&*store::files(), &args.directory).unwrap_or(false);
    let builder = if exists { Database::existing() } else { Database::builder(Schema::new()) };
    let host: Arc<dyn ThreadHost> = Arc::clone(threads) as Arc<dyn ThreadHost>;
    let builder = builder.pin(!args.no_pin).workers(workers).thread_host(host);
    let builder = builder.spare_workers(args.spare_workers.unwrap_or_else(|| spare_workers(workers)));
    let builder = match config::adaptation_unless(args.fixed, &args.observing, "--control", &args.control)? {
        Some(adaptation) => builder.adaptation(adaptation),
        None => builder.fixed_scheme(),
    };
    let database = builder.durability(durability).open(&args.directory);
    let settings = settings(&args.set)?;
    let options = SqlOptions {
        name: args.database.clone(),
        settings,
        superuser: args.user.clone(),
        password_verifier: Some(password_verifier),
        ..SqlOptions::default()
    };
    let database = database.map_err(CliError::bad_input)?;
    let procedures = match &args.procedures {
        Some(workload) => {
            atrapos_callable::procedures_of(workload, &database).map_err(CliError::bad_input)?
        }
        None => SqlProcedures::default(),
    };
    SqlDatabase::open_with(database, options, procedures).map_err(CliError::failed)
}

/// Returns the settings that sessions begin with.
fn settings(given: &[String]) -> Result<Vec<(String, String)>, CliError> {
    let refuse = |text: &String, why: &dyn std::fmt::Display| {
        CliError::bad_input(format!("--set {text} is no setting of a session: {why}"))
    };
    let mut tried = Settings::new("");
    let mut settings = Vec::new();
    for text in given {
        let (name, value) = text.split_once('=').ok_or_else(|| refuse(text, &"write NAME=VALUE"))?;
        tried.set(name.trim(), value.trim()).map_err(|error| refuse(text, &error.message))?;
        settings.push((name.trim().to_owned(), value.trim().to_owned()));
    }
    Ok(settings)
}

/// Makes a directory that nobody else can look into, if it is not there.
fn make_private(path: &Path) -> Result<(), CliError> {
    match DirBuilder::new().mode(0o700).create(path) {
        Err(error) if error.kind() != ErrorKind::AlreadyExists => {
            Err(CliError::bad_input(format!("the directory {} cannot be made: {error}", path.display())))
        }
        _ => Ok(()),
    }
}

/// Takes a database from users of the machine who are not in its group: whoever reads its files can try passwords on their verifiers.
fn hide_from_others(path: &Path) -> Result<(), CliError> {
    let hide = || {
        let mode = std::fs::metadata(path)?.permissions().mode();
        std::fs::set_permissions(path, Permissions::from_mode(mode & 0o770))
    };
    hide().map_err(|error| {
        CliError::bad_input(format!("the directory {} cannot be hidden from others: {error}", path.display()))
    })
}

/// Gives the user the password of the file, or a generated one if no role has any, which is returned: it is nowhere else.
fn set_password(args: &ServeArgs, database: &SqlDatabase) -> Result<Option<String>, CliError> {
    let given = args.password_file.as_deref().map(|path| first_line("password file", path)).transpose()?;
    let generated = if given.is_none() && database.first_password_verifier().is_none() {
        Some(generate_password().map_err(CliError::failed)?)
    } else {
        None
    };
    if let Some(password) = given.as_ref().or(generated.as_ref()) {
        let verifier = password_verifier(password).map_err(CliError::bad_input)?;
        database.set_password_verifier(&args.user, verifier).map_err(CliError::failed)?;
    }
    Ok(generated)
}

/// Returns the first line of a file.
fn first_line(what: &str, path: &Path) -> Result<String, CliError> {
    let text = std::fs::read_to_string(path).map_err(|error| {
        CliError::bad_input(format!("the {what} {} cannot be read: {error}", path.display()))
    })?;
    Ok(text.lines().next().unwrap_or_default().to_owned())
}

/// Returns the lines by which a user learns how to connect.
fn greeting(args: &ServeArgs, server: &Server, password: Option<&str>) -> String {
    let mut text = String::new();
    let directory = args.directory.display();
    let (user, database) = (&args.user, &args.database);
    for address in server.addresses() {
        let (host, port) = (address.ip(), address.port());
        // Writing to a string cannot fail.
        let _ = writeln!(
            text,
            "serving {directory}: psql \"host={host} port={port} user={user} dbname={database}\""
        );
    }
    if let Some(socket) = &args.socket_dir {
        let _ = writeln!(
            text,
            "serving {directory}: psql \"host={} user={user} dbname={database}\"",
            socket.display()
        );
    }
    if let Some(address) = server.http_address() {
        let _ = writeln!(text, "dashboard: http://{address}/");
        if let Some(token) = server.generated_token() {
            let _ = writeln!(text, "token of the dashboard, for this start: {token}");
        }
        let _ = writeln!(text, "for monitoring: http://{address}/metrics and http://{address}/health");
    }
    let _ = writeln!(text, "a shell without a password: atrapos sql {directory}");
    if let Some(password) = password {
        let _ = writeln!(text, "password of {user}, shown this once: {password}");
    }
    text
}
