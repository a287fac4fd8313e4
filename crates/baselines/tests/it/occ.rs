//! `shared-occ`: its isolation step by step, and planted bugs.

mod isolation;
mod planted;

use atrapos_baselines::occ::OccEngine;

use crate::engines::{OTHER, TABLE, check, get, load, put, range, rows};

fn engine() -> OccEngine {
    OccEngine::with_epoch_period(3, None)
}
