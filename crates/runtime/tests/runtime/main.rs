//! Tests of the runtime through its public interface: threads, pump, shutdown, and what happens when the engine panics.

#[cfg(not(loom))]
mod hosted;
#[cfg(not(loom))]
mod panics;
#[cfg(not(loom))]
mod pool;
#[cfg(not(loom))]
mod pump;
#[cfg(not(loom))]
mod shutdown;
#[cfg(not(loom))]
mod turns;
#[cfg(not(loom))]
mod wakers;
