//! The command lines of `atrapos serve` and `atrapos sql`.
//!
//! Owns: names, defaults and help texts. Never: judges values beyond their syntax.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Args, ValueEnum};

use super::{DurabilityArg, ObservingArgs};

/// A database to serve, and how.
#[derive(Debug, Args)]
pub(crate) struct ServeArgs {
    /// The directory of the database; it is created if there is none.
    #[arg(value_name = "DIR")]
    pub(crate) directory: PathBuf,
    /// A file with options (TOML; contrib/atrapos.toml explains them all). An option that is given here counts before it.
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// An address to listen at, with its port; can be given several times [default: 127.0.0.1:5432].
    #[arg(long, value_name = "ADDR:PORT", help_heading = "Connections")]
    pub(crate) listen: Vec<SocketAddr>,
    /// A directory for a Unix socket that everybody on this machine may connect to, as `psql -h DIR` does.
    #[arg(long, value_name = "DIR", help_heading = "Connections")]
    pub(crate) socket_dir: Option<PathBuf>,
    /// An address for monitoring, with its port: the dashboard, and pages /metrics (Prometheus) and /health.
    #[arg(long, value_name = "ADDR:PORT", help_heading = "Connections")]
    pub(crate) http: Option<SocketAddr>,
    /// A file whose first line is the token that the dashboard asks for and requests for /metrics carry (as `Authorization: Bearer TOKEN`);
    /// without it a token for the dashboard is made and shown at the start, and all requests for /metrics are answered.
    #[arg(long, value_name = "FILE", requires = "http", help_heading = "Connections")]
    pub(crate) http_token_file: Option<PathBuf>,
    /// Sessions at a time.
    #[arg(long, value_name = "N", default_value_t = 1000, help_heading = "Connections")]
    pub(crate) max_connections: usize,
    /// The file of a certificate chain (PEM), to offer TLS.
    #[arg(long, value_name = "FILE", requires = "tls_key", help_heading = "Connections")]
    pub(crate) tls_cert: Option<PathBuf>,
    /// The file of the certificate's private key (PEM).
    #[arg(long, value_name = "FILE", requires = "tls_cert", help_heading = "Connections")]
    pub(crate) tls_key: Option<PathBuf>,
    /// The proof of who a client is.
    #[arg(long, value_name = "A", value_enum, default_value_t = AuthenticationArg::Scram, help_heading = "Authentication")]
    pub(crate) auth: AuthenticationArg,
    /// The owner of the database, by whose name clients log in.
    #[arg(long, value_name = "NAME", default_value = "atrapos", help_heading = "Authentication")]
    pub(crate) user: String,
    /// A file whose first line becomes the password of the owner.
    #[arg(long, value_name = "FILE", help_heading = "Authentication")]
    pub(crate) password_file: Option<PathBuf>,
    /// The name of the database, as clients connect to it.
    #[arg(long, value_name = "NAME", default_value = "atrapos", help_heading = "Authentication")]
    pub(crate) database: String,
    /// When a transaction is reported as committed.
    #[arg(long, value_name = "D", value_enum, default_value_t = DurabilityArg::Synchronous, help_heading = "Durability")]
    pub(crate) durability: DurabilityArg,
    /// With relaxed durability: milliseconds of committed transactions that a crash may lose [default: 100].
    #[arg(long, value_name = "MS", help_heading = "Durability")]
    pub(crate) max_loss_ms: Option<u64>,
    /// Tell statements that take at least so many milliseconds on the standard error, without their parameters.
    #[arg(long, value_name = "MS", help_heading = "Statements")]
    pub(crate) slow_ms: Option<u64>,
    /// A setting that sessions begin with, like statement_timeout=30s; can be given several times.
    #[arg(long, value_name = "NAME=VALUE", help_heading = "Statements")]
    pub(crate) set: Vec<String>,
    /// Procedures that statements may CALL: those of a workload whose tables the database has, like tpcc.
    #[arg(long, value_name = "WORKLOAD", help_heading = "Statements")]
    pub(crate) procedures: Option<String>,
    /// Workers, each a thread that owns a part of the data and serves sessions [default: one for each physical core that --io-threads leave].
    #[arg(long, value_name = "N", help_heading = "Machine")]
    pub(crate) workers: Option<usize>,
    /// Spare workers, each for a core that appears while the server runs: a wider affinity mask or cpuset, a greater quota [default: one for
    /// each physical core that it may not use at the start, and no more than workers].
    #[arg(long, value_name = "N", help_heading = "Machine")]
    pub(crate) spare_workers: Option<usize>,
    /// Threads on which clients log in, and which serve connections with TLS [default: one for eight physical cores].
    #[arg(long, value_name = "N", help_heading = "Machine")]
    pub(crate) io_threads: Option<usize>,
    /// Leave the threads of workers where the kernel puts them.
    #[arg(long, help_heading = "Machine")]
    pub(crate) no_pin: bool,
    /// Keep the scheme that tables are declared with: do not adapt.
    #[arg(long = "static", help_heading = "Adaptation")]
    pub(crate) fixed: bool,
    #[command(flatten)]
    pub(crate) observing: ObservingArgs,
    /// Another setting of the controller, such as imbalance=0.3; a wrong name lists them all, with their units. Can be given several times.
    #[arg(long, value_name = "NAME=VALUE", help_heading = "Adaptation")]
    pub(crate) control: Vec<String>,
    /// Seconds that transactions have to end when the server is asked to.
    #[arg(long, value_name = "S", default_value_t = 10, help_heading = "Machine")]
    pub(crate) drain_seconds: u64,
    /// End when the standard input ends, too.
    #[arg(long, help_heading = "Machine")]
    pub(crate) until_eof: bool,
}

/// The proof of who a client is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum AuthenticationArg {
    /// The password, by SCRAM-SHA-256, which never sends it.
    Scram,
    /// None: only addresses of this machine and Unix sockets can be listened at.
    Trust,
}

/// A shell of SQL.
#[derive(Debug, Args)]
pub(crate) struct SqlArgs {
    /// The directory of a database that is being served.
    #[arg(value_name = "DIR")]
    pub(crate) directory: PathBuf,
    /// Run these statements instead of reading some from the standard input.
    #[arg(short, long, value_name = "SQL")]
    pub(crate) command: Option<String>,
    /// The user to be.
    #[arg(long, value_name = "NAME", default_value = "atrapos")]
    pub(crate) user: String,
}
