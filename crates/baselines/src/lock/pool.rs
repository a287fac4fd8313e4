//! The requests of one agent.
//!
//! Owns: their memory, and the free ones. Never: knows whether a request is linked: whoever gives one back has unlinked it.
//!
//! Invariant: the address of a request does not change while the pool lives; the steady state allocates nothing.
//!
//! # Why the unsafe code is sound
//! A [`Handle`] refers to memory of the pool it came from. Handles stay within the agent that owns the pool
//! (and in the queues, from which the agent takes its requests before it goes away), so they do not outlive it.

use std::ops::Deref;
use std::ptr::NonNull;

use super::request::Request;

/// The requests that are allocated at once.
const CHUNK: usize = 64;

/// A request of this agent.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Handle(NonNull<Request>);

impl Deref for Handle {
    type Target = Request;

    #[inline(always)]
    fn deref(&self) -> &Request {
        // SAFETY: the heading: the pool is alive.
        unsafe { self.0.as_ref() }
    }
}

/// A pool of requests.
#[derive(Default)]
pub(super) struct Pool {
    free: Vec<Handle>,
    chunks: Vec<NonNull<[Request; CHUNK]>>,
}

impl Pool {
    /// Takes a request. The one that was given back last, as it is still in the cache.
    #[inline(always)]
    pub(super) fn take(&mut self) -> Handle {
        match self.free.pop() {
            Some(handle) => handle,
            None => self.grow(),
        }
    }

    /// Takes back a request that is not linked.
    #[inline(always)]
    pub(super) fn give_back(&mut self, handle: Handle) {
        self.free.push(handle);
    }

    #[cold]
    #[inline(never)]
    fn grow(&mut self) -> Handle {
        let chunk = NonNull::from(Box::leak(Box::new(std::array::from_fn(|_| Request::new()))));
        self.chunks.push(chunk);
        let first = chunk.cast::<Request>();
        // SAFETY: all are in the chunk. Backwards, so that they are taken in the order of their addresses.
        self.free.extend((1..CHUNK).rev().map(|at| Handle(unsafe { first.add(at) })));
        Handle(first)
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        for chunk in self.chunks.drain(..) {
            // SAFETY: leaked from a box of this type; no request of it is linked any more.
            drop(unsafe { Box::from_raw(chunk.as_ptr()) });
        }
    }
}
