//! Engines that write a log: what is acknowledged comes back, whole and with all it depends on, whatever a crash leaves.

mod crashes;
mod damage;
mod histories;
mod model;
mod scenarios;

use std::sync::Arc;
use std::time::Duration;

use atrapos_baselines::Engine;
use atrapos_baselines::durable::{Acknowledge, DurableEngine, DurableOptions, StoreError};
use atrapos_catalog::Definitions;
use atrapos_durability::file::{FileSystem, ModelFiles};

use crate::engines::MakeEngine;

/// The trees of the engines of these tests.
const TREES: usize = 3;

fn options(files: impl FileSystem) -> DurableOptions {
    DurableOptions {
        files: Arc::new(files),
        path: "/shared".into(),
        acknowledge: Acknowledge::Durable,
        room_bytes: 1024,
    }
}

fn relaxed(files: impl FileSystem) -> DurableOptions {
    DurableOptions {
        acknowledge: Acknowledge::AtOnce { flush_every: Duration::from_secs(3600) },
        ..options(files)
    }
}

fn create(engine: Box<dyn Engine>, files: &ModelFiles) -> Result<DurableEngine, StoreError> {
    DurableEngine::create(engine, TREES, &Definitions::default(), &options(files.clone()))
}

fn open(make: MakeEngine, files: &ModelFiles) -> Result<DurableEngine, StoreError> {
    DurableEngine::open(make(), &Definitions::default(), &options(files.clone()))
}
