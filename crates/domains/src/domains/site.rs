//! Sites: a domain, to place structures in.
//!
//! Owns: how a structure comes to its domain: made by the caller and sent there, or made there. Never: moves one.

use std::marker::PhantomData;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::mpsc::sync_channel;

use super::{DomainError, Domains};
use crate::structures::{
    Kind, Owned, OwnedValue, Place, Route, SendValue, Sessioned, Sessions, Shared, SharedValue,
};
use crate::task::Panic;
use crate::worker::{self, WorkerShared};

/// One domain, to place structures in.
#[derive(Debug)]
pub struct Site<'d> {
    pub(super) domains: &'d Domains,
    pub(super) domain: u32,
    pub(super) name: String,
    /// The use of the domain's number then.
    pub(super) life: u32,
}

impl Site<'_> {
    /// Refuses if the domain is no more.
    fn check(&self) -> Result<(), DomainError> {
        let domain = self.domains.inner.domain(self.domain);
        let exists = domain.life() == self.life && !domain.workers().is_empty();
        if exists { Ok(()) } else { Err(DomainError::NoSuchDomain(self.name.clone())) }
    }

    fn add(
        &self,
        name: &str,
        kind: Kind,
        route: u32,
        shared: Option<SharedValue>,
    ) -> Result<Arc<Place>, DomainError> {
        let added = self.domains.inner.registry.add(name, kind, route, shared);
        added.ok_or_else(|| DomainError::NameTaken(name.to_owned()))
    }

    fn add_shared(&self, name: &str, value: SharedValue) -> Result<Arc<Place>, DomainError> {
        let _one_at_a_time = self.domains.inner.threads();
        self.check()?;
        self.add(name, Kind::Shared, self.domain, Some(value))
    }

    /// Places a shared structure here. One that threads cannot share is refused by the compiler; it can be owned:
    ///
    /// ```compile_fail
    /// # use atrapos_domains::Domains;
    /// fn place(domains: &Domains) {
    ///     let _ = domains.at("d").map(|site| site.place("cell", std::cell::Cell::new(0)));
    /// }
    /// ```
    ///
    /// ```
    /// # use atrapos_domains::Domains;
    /// fn place(domains: &Domains) {
    ///     let _ = domains.at("d").map(|site| site.place_owned("cell", std::cell::Cell::new(0)));
    /// }
    /// ```
    ///
    /// Its memory is the caller's, until the domain's workers allocate more of it; [`place_with`](Self::place_with) makes it there.
    ///
    /// # Errors
    /// [`DomainError::NameTaken`], or [`DomainError::NoSuchDomain`] if the domain is no more.
    pub fn place<S: Send + Sync + 'static>(
        &self,
        name: &str,
        structure: S,
    ) -> Result<Shared<S>, DomainError> {
        let place = self.add_shared(name, SharedValue::new(structure))?;
        Ok(Shared { place, of: PhantomData })
    }

    /// Places a shared structure with a session per worker here.
    ///
    /// # Errors
    /// [`DomainError::NameTaken`], or [`DomainError::NoSuchDomain`] if the domain is no more.
    pub fn place_with_sessions<S: Sessions>(
        &self,
        name: &str,
        structure: S,
    ) -> Result<Sessioned<S>, DomainError> {
        let place = self.add_shared(name, SharedValue::with_sessions(structure))?;
        Ok(Sessioned { place, of: PhantomData })
    }

    /// Places an owned structure here, with the worker that has the fewest.
    ///
    /// # Errors
    /// [`DomainError::NameTaken`], or [`DomainError::NoSuchDomain`] if the domain is no more.
    pub fn place_owned<S: Send + 'static>(&self, name: &str, structure: S) -> Result<Owned<S>, DomainError> {
        self.add_owned(name, SendValue::new(structure))
    }

    /// Places a shared structure that a worker of the domain makes, between two tasks: all its memory comes from there, by the domain's
    /// [`MemoryPolicy`](crate::MemoryPolicy). Waits until it is made.
    ///
    /// # Errors
    /// As for [`place`](Self::place); [`DomainError::Constructor`] if `make` panicked, and [`DomainError::WouldDeadlock`] inside a task of
    /// these domains.
    pub fn place_with<S: Send + Sync + 'static>(
        &self,
        name: &str,
        make: impl FnOnce() -> S + Send + 'static,
    ) -> Result<Shared<S>, DomainError> {
        let value = self.made(name, move || SharedValue::new(make()))?;
        let place = self.add_shared(name, value)?;
        Ok(Shared { place, of: PhantomData })
    }

    /// Places a shared structure with a session per worker that a worker of the domain makes; as [`place_with`](Self::place_with).
    ///
    /// # Errors
    /// As for [`place_with`](Self::place_with).
    pub fn place_sessioned_with<S: Sessions>(
        &self,
        name: &str,
        make: impl FnOnce() -> S + Send + 'static,
    ) -> Result<Sessioned<S>, DomainError> {
        let value = self.made(name, move || SharedValue::with_sessions(make()))?;
        let place = self.add_shared(name, value)?;
        Ok(Sessioned { place, of: PhantomData })
    }

    /// Places an owned structure that a worker of the domain makes; as [`place_with`](Self::place_with).
    ///
    /// # Errors
    /// As for [`place_with`](Self::place_with).
    pub fn place_owned_with<S: Send + 'static>(
        &self,
        name: &str,
        make: impl FnOnce() -> S + Send + 'static,
    ) -> Result<Owned<S>, DomainError> {
        let value = self.made(name, move || SendValue::new(make()))?;
        self.add_owned(name, value)
    }

    /// Has the worker with the fewest owned structures make something, and waits for it.
    fn made<V: Send + 'static>(
        &self,
        name: &str,
        make: impl FnOnce() -> V + Send + 'static,
    ) -> Result<V, DomainError> {
        let inner = &self.domains.inner;
        if worker::running(inner).is_some() {
            return Err(DomainError::WouldDeadlock);
        }
        if inner.registry.named(name).is_some() {
            return Err(DomainError::NameTaken(name.to_owned()));
        }
        let (sender, receiver) = sync_channel(1);
        self.least_occupied()?.tell(Box::new(move |_| {
            // Whoever waits takes it; a panic is its own to report.
            let _ = sender.send(catch_unwind(AssertUnwindSafe(make)));
        }));
        match receiver.recv() {
            Ok(Ok(made)) => Ok(made),
            Ok(Err(panic)) => {
                let panic = Panic::new(panic);
                Err(DomainError::Constructor { structure: name.to_owned(), panic: panic.to_string() })
            }
            Err(_) => Err(DomainError::ShutDown),
        }
    }

    /// The worker that owns the fewest structures.
    fn least_occupied(&self) -> Result<Arc<WorkerShared>, DomainError> {
        self.check()?;
        let inner = &self.domains.inner;
        let places = inner.registry.places();
        let owned =
            |worker: u32| places.iter().filter(|place| place.route() == Route::Worker(worker)).count();
        let workers = inner.live_workers_of(self.domain);
        let worker = workers.into_iter().min_by_key(|worker| owned(worker.index));
        worker.ok_or_else(|| DomainError::NoSuchDomain(self.name.clone()))
    }

    fn add_owned<S>(&self, name: &str, value: SendValue) -> Result<Owned<S>, DomainError> {
        let _one_at_a_time = self.domains.inner.threads();
        let worker = self.least_occupied()?;
        let place = self.add(name, Kind::Owned, worker.index, None)?;
        worker.send_owned(OwnedValue::new(place.key, value), self.domains.inner.steps.begin());
        Ok(Owned { place, of: PhantomData })
    }
}
