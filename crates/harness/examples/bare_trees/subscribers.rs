//! Subscribers of TATP and their facilities, in trees.

use std::hint::black_box;

use atrapos::{Key as _, KeyBuf, Row, RowEdit};
use atrapos_storage::{Probe, Tree, locate_batch};
use atrapos_workloads::tatp::parameters::{Class, Mix, Parameters};
use atrapos_workloads::tatp::schema::{SpecialFacility, Subscriber};
use atrapos_workloads::tatp::{Tatp, generator};
use atrapos_workloads::{KeyChoice, KeySet};

use crate::{Bare, Error, SEED, insert, tree};

/// Lookups that are made together.
pub(crate) const TOGETHER: usize = 16;

/// Subscribers and their facilities, in trees.
pub(crate) struct Subscribers {
    subscribers: Tree,
    facilities: Tree,
    parameters: Parameters,
    class: Class,
    /// Number of keys that are looked up together.
    together: usize,
}

impl Subscribers {
    /// The subscribers of one of `of` threads.
    pub(crate) fn new(
        subscribers: u64,
        class: Class,
        (thread, of): (u64, u64),
        together: usize,
    ) -> Result<Subscribers, Error> {
        let tatp = Tatp::new(subscribers, Mix::Only(class), KeyChoice::Uniform, SEED)?;
        let (first, last) = (1 + thread * subscribers / of, (thread + 1) * subscribers / of);
        let keys = KeySet::range(first, last).ok_or("there is no subscriber for each thread")?;
        let (mut rows, mut facilities) = (tree::<Subscriber>(), tree::<SpecialFacility>());
        let mut scratch = Vec::new();
        for s_id in first..=last {
            let population = generator::Population::of(SEED, s_id);
            insert(&mut rows, &s_id.encode(), &population.subscriber, &mut scratch)?;
            for facility in &population.facilities {
                let key = (s_id, facility.sf_type).encode();
                insert(&mut facilities, &key, &facility.row, &mut scratch)?;
            }
        }
        let parameters = tatp.parameters(keys, thread + 1);
        Ok(Subscribers { subscribers: rows, facilities, parameters, class, together })
    }

    fn get_one(&mut self) -> Result<u64, Error> {
        let s_id = self.parameters.s_id();
        let row = self.subscribers.get(&s_id.encode()).ok_or("a subscriber is missing")?;
        black_box(Subscriber::decode(row.bytes)?);
        Ok(1)
    }

    fn get_together(&mut self) -> Result<u64, Error> {
        let keys: [KeyBuf; TOGETHER] = std::array::from_fn(|_| self.parameters.s_id().encode());
        let mut probes = keys.each_ref().map(|key| Probe::new(&self.subscribers, key));
        locate_batch(&mut probes);
        for probe in &probes {
            let row = probe.row().ok_or("a subscriber is missing")?;
            black_box(Subscriber::decode(row.bytes)?);
        }
        Ok(TOGETHER as u64)
    }

    fn update(&mut self) -> Result<u64, Error> {
        let (s_id, bit) = (self.parameters.s_id(), self.parameters.bit());
        let (sf_type, data_a) = (self.parameters.type_number(), self.parameters.data_a());
        let mut row = self.subscribers.get_mut(&s_id.encode()).ok_or("a subscriber is missing")?;
        RowEdit::<Subscriber>::new(row.bytes_mut())?.change(
            |column| column.bit,
            |mut bits| {
                bits[0] = bit;
                bits
            },
        );
        if let Some(mut row) = self.facilities.get_mut(&(s_id, sf_type).encode()) {
            RowEdit::<SpecialFacility>::new(row.bytes_mut())?.set(|column| column.data_a, data_a);
        }
        Ok(1)
    }
}

impl Bare for Subscribers {
    fn run_some(&mut self) -> Result<u64, Error> {
        match self.class {
            Class::UpdateSubscriberData => self.update(),
            _ if self.together > 1 => self.get_together(),
            _ => self.get_one(),
        }
    }
}
