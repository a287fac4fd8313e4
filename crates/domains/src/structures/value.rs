//! The values of structures, without their types.
//!
//! Owns: how a value is dropped, and how a session of it is made and read. Never: hands out a reference.
//!
//! # Why the unsafe code is sound
//! The functions that come with a value were chosen for its type when it was made; a value is dropped once, by what has it.

use std::any::Any;
use std::ptr::NonNull;
use std::sync::Arc;

use super::{Key, Retries, Sessions};

/// A value without its type, and how to drop it.
#[derive(Debug)]
pub(super) struct Value {
    pub(super) address: NonNull<()>,
    drop: unsafe fn(NonNull<()>),
}

impl Value {
    pub(super) fn new<V>(value: V) -> Self {
        /// # Safety
        /// The address came from a box of a `V`, which is gone afterwards.
        unsafe fn drop_box<V>(address: NonNull<()>) {
            // SAFETY: by this function's own contract.
            drop(unsafe { Box::from_raw(address.cast::<V>().as_ptr()) });
        }
        // SAFETY: a box is never null.
        let address = unsafe { NonNull::new_unchecked(Box::into_raw(Box::new(value))) };
        Self { address: address.cast(), drop: drop_box::<V> }
    }
}

impl Drop for Value {
    fn drop(&mut self) {
        // SAFETY: `drop` was chosen for what lies at the address, and this runs once.
        unsafe { (self.drop)(self.address) };
    }
}

/// A value that any thread may have.
#[derive(Debug)]
pub(crate) struct SendValue(Value);

// SAFETY: it is made from an `S: Send` only, and nothing but moves happens to it.
unsafe impl Send for SendValue {}

impl SendValue {
    pub(crate) fn new<S: Send + 'static>(value: S) -> Self {
        Self(Value::new(value))
    }
}

/// An owned value between two workers.
#[derive(Debug)]
pub(crate) struct OwnedValue {
    pub(crate) key: Key,
    pub(super) value: Value,
    pub(super) poisoned: bool,
}

// SAFETY: it is made from a `SendValue` only, and nothing but moves happens to it on the way.
unsafe impl Send for OwnedValue {}

impl OwnedValue {
    pub(crate) fn new(key: Key, value: SendValue) -> Self {
        Self { key, value: value.0, poisoned: false }
    }
}

/// Makes a session of a value.
type MakeSession = Box<dyn Fn(&(dyn Any + Send + Sync)) -> Value + Send + Sync>;
/// Reads the contention of a session at an address.
pub(super) type ReadRetries = unsafe fn(*const ()) -> Option<Retries>;

/// # Safety
/// The address is that of a session of an `S` that nobody changes meanwhile.
unsafe fn read_retries<S: Sessions>(session: *const ()) -> Option<Retries> {
    // SAFETY: by this function's own contract.
    S::retries(unsafe { &*session.cast::<S::Session>() })
}

/// A shared structure as the registry keeps it.
pub(crate) struct SharedValue {
    pub(super) value: Arc<dyn Any + Send + Sync>,
    pub(super) session: Option<MakeSession>,
    pub(super) retries: Option<ReadRetries>,
}

impl SharedValue {
    pub(crate) fn new<S: Send + Sync + 'static>(value: S) -> Self {
        Self { value: Arc::new(value), session: None, retries: None }
    }

    pub(crate) fn with_sessions<S: Sessions>(value: S) -> Self {
        let make = |value: &(dyn Any + Send + Sync)| {
            let value = value.downcast_ref::<S>().unwrap_or_else(|| unreachable!("made for this type"));
            Value::new(value.session())
        };
        Self { value: Arc::new(value), session: Some(Box::new(make)), retries: Some(read_retries::<S>) }
    }
}
