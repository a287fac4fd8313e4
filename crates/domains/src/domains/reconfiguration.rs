//! Changes of domains while clients go on (beyond the paper, which drains and restarts): workers come and go, domains are split
//! and merged, structures move.
//!
//! Owns: the steps of each change. Never: makes two changes at a time, or waits for one to end.

use std::sync::Arc;

use atrapos_topology::CpuId;

use super::{DomainError, Domains};
use crate::change::Change;
use crate::configuration::{Configuration, ConfigurationError, DomainConfiguration};
use crate::structures::{Place, Route, Structure};
use crate::task::drop_quietly;
use crate::worker::WorkerShared;

impl Domains {
    /// Adds a domain.
    ///
    /// # Errors
    /// [`DomainError`] if the settings are refused or a thread cannot be started.
    pub fn add_domain(&self, settings: &DomainConfiguration) -> Result<(), DomainError> {
        let one = Configuration {
            oversubscribe: true,
            domains: vec![settings.clone()],
            ..Configuration::default()
        };
        let cpus = one.assign(&self.inner.machine)?.remove(0);
        let mut threads = self.inner.threads();
        self.refuse_if_closing()?;
        if self.find_domain(&settings.name).is_ok() {
            return Err(ConfigurationError::NameTwice(settings.name.clone()).into());
        }
        let domain = self.new_domain(&mut threads, settings.clone())?;
        cpus.iter().try_for_each(|&cpu| self.new_worker(&mut threads, domain, cpu, &cpus))
    }

    /// Adds a worker to a domain, on `cpu`; in a migrating domain, the others may run there too, and it on their units.
    ///
    /// # Errors
    /// [`DomainError`] if there is no such domain or the thread cannot be started.
    pub fn grow(&self, domain: &str, cpu: CpuId) -> Result<(), DomainError> {
        let mut threads = self.inner.threads();
        self.refuse_if_closing()?;
        let domain = self.find_domain(domain)?;
        let units: Vec<CpuId> = self.units_of(domain).into_iter().chain([cpu]).collect();
        self.new_worker(&mut threads, domain, cpu, &units)?;
        self.bind_all(domain);
        Ok(())
    }

    fn refuse_if_closing(&self) -> Result<(), DomainError> {
        if self.inner.is_closing() { Err(DomainError::ShutDown) } else { Ok(()) }
    }

    /// Takes the youngest worker out of a domain; what it has goes to another one.
    ///
    /// # Errors
    /// [`DomainError::LastWorker`] if it is the only one.
    pub fn shrink(&self, domain: &str) -> Result<Change, DomainError> {
        let _one_at_a_time = self.inner.threads();
        self.refuse_if_closing()?;
        let index = self.find_domain(domain)?;
        let workers = self.inner.live_workers_of(index);
        let [heir, .., leaving] = workers.as_slice() else {
            return Err(DomainError::LastWorker(domain.to_owned()));
        };
        self.inner.domain(index).set_workers(|workers| workers.retain(|&worker| worker != leaving.index));
        let change = Change::new(&self.inner);
        self.inner.wake_waiting();
        let (heir, done) = (Arc::clone(heir), change.step());
        leaving.tell(Box::new(move |worker| worker.leave(heir, done)));
        self.bind_all(index);
        Ok(change)
    }

    /// Moves a structure, by name, handle or key, to another domain.
    ///
    /// # Errors
    /// [`DomainError`] if either does not exist.
    pub fn move_structure<'a>(
        &self,
        structure: impl Into<Structure<'a>>,
        to: &str,
    ) -> Result<Change, DomainError> {
        let _one_at_a_time = self.inner.threads();
        self.refuse_if_closing()?;
        let (place, to) = (self.find_place(structure.into())?, self.find_domain(to)?);
        let change = Change::new(&self.inner);
        self.move_place(&place, to, &change);
        Ok(change)
    }

    /// Tells whoever has a structure to give it to a domain, or to forget it. One that is there already may be about to go elsewhere, by an
    /// earlier change.
    fn move_place(&self, place: &Arc<Place>, to: u32, change: &Change) {
        let key = place.key;
        match place.route() {
            Route::Domain(from) if from == to => {}
            Route::Domain(from) => {
                place.set_route(to);
                self.inner.wake_waiting();
                for worker in self.inner.live_workers_of(from) {
                    let done = change.step();
                    worker.tell(Box::new(move |worker| {
                        drop_quietly(worker.reach.take(key));
                        drop(done);
                    }));
                }
            }
            Route::Worker(from) => {
                let workers = self.inner.live_workers_of(to);
                let there = workers.iter().find(|worker| worker.index == from).or(workers.first());
                let Some(heir) = there.cloned() else { return };
                let done = change.step();
                self.inner.worker(from).tell(Box::new(move |worker| worker.move_on(key, heir, done)));
            }
            Route::Removed => {}
        }
    }

    /// Makes a new domain of the youngest `workers` workers of a domain and the structures given, by name, handle or key.
    ///
    /// # Errors
    /// [`DomainError`] if anything does not exist, the name is taken, or no worker would be left.
    pub fn split<'a, S: Into<Structure<'a>> + Copy>(
        &self,
        domain: &str,
        new: &str,
        workers: usize,
        structures: &[S],
    ) -> Result<Change, DomainError> {
        let mut threads = self.inner.threads();
        self.refuse_if_closing()?;
        let from = self.find_domain(domain)?;
        if self.find_domain(new).is_ok() {
            return Err(ConfigurationError::NameTwice(new.to_owned()).into());
        }
        let moved = structures.iter().map(|&structure| self.find_place(structure.into()));
        let moved = moved.collect::<Result<Vec<_>, _>>()?;
        let all = self.inner.live_workers_of(from);
        if workers == 0 || workers >= all.len() {
            return Err(DomainError::LastWorker(if workers == 0 { new } else { domain }.to_owned()));
        }
        let settings = DomainConfiguration { name: new.to_owned(), ..self.inner.domain(from).settings() };
        let to = self.new_domain(&mut threads, settings)?;
        let (staying, leaving) = all.split_at(all.len() - workers);
        let change = Change::new(&self.inner);
        self.inner.domain(from).set_workers(|list| list.truncate(staying.len()));
        self.inner.domain(to).set_workers(|list| list.extend(leaving.iter().map(|worker| worker.index)));
        self.inner.wake_waiting();
        leaving.iter().for_each(|worker| join(worker, to, &change));
        [from, to].into_iter().for_each(|domain| self.bind_all(domain));
        for place in self.inner.registry.places() {
            let is_moved = moved.iter().any(|moved| moved.key == place.key);
            let target = match place.route() {
                Route::Domain(at) if at == from && is_moved => to,
                Route::Worker(at) if is_moved && staying.iter().any(|worker| worker.index == at) => to,
                Route::Worker(at) if !is_moved && leaving.iter().any(|worker| worker.index == at) => from,
                _ => continue,
            };
            self.move_place(&place, target, &change);
        }
        Ok(change)
    }

    /// Makes the workers and structures of a domain part of another one.
    ///
    /// # Errors
    /// [`DomainError`] if either does not exist, or they are the same.
    pub fn merge(&self, domain: &str, into: &str) -> Result<Change, DomainError> {
        let _one_at_a_time = self.inner.threads();
        self.refuse_if_closing()?;
        let (from, to) = (self.find_domain(domain)?, self.find_domain(into)?);
        if from == to {
            return Err(DomainError::WithItself(domain.to_owned()));
        }
        let change = Change::new(&self.inner);
        let workers = self.inner.live_workers_of(from);
        self.inner.domain(to).set_workers(|list| list.extend(workers.iter().map(|worker| worker.index)));
        for place in self.inner.registry.places() {
            if place.route() == Route::Domain(from) {
                place.set_route(to);
            }
        }
        self.inner.domain(from).set_workers(Vec::clear);
        self.inner.wake_waiting();
        workers.iter().for_each(|worker| join(worker, to, &change));
        self.bind_all(to);
        Ok(change)
    }
}

/// Tells a worker to join a domain.
fn join(worker: &WorkerShared, domain: u32, change: &Change) {
    let done = change.step();
    worker.tell(Box::new(move |worker| {
        worker.join(domain);
        drop(done);
    }));
}
