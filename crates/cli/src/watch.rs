//! The offer of databases of this program to be watched. Who watches is another process: `atrapos watch`, or the page of a server.
//!
//! Never: draws, or answers who asks; `atrapos-watch` does.

use std::sync::Arc;

use atrapos::Database;
use atrapos_watch::{Watched, WatchedOptions};

use crate::output;

/// Offers a database to be watched by the user of this process, until the result is dropped. A database runs as well where that cannot be.
pub(crate) fn offer(database: &Arc<Database>, options: WatchedOptions) -> Option<Watched> {
    let offered = Watched::start(database, options);
    offered.inspect_err(|error| output::complain(&format!("warning: it cannot be watched: {error}"))).ok()
}
