//! A cache of bounded size in a domain of its own: an ordinary map and queue, with no lock around them.
//!
//! `cargo run --release -p atrapos-domains --example cache`

use std::collections::{HashMap, VecDeque};

use atrapos_domains::{CallError, Client, Configuration, Domains, Owned};
use atrapos_topology::{LiveOptions, Machine};

/// The values that were added last, by key.
#[derive(Default)]
struct Cache {
    values: HashMap<u64, String>,
    order: VecDeque<u64>,
}

const CAPACITY: usize = 100;

impl Cache {
    fn put(&mut self, key: u64, value: String) {
        if self.values.insert(key, value).is_none() {
            self.order.push_back(key);
        }
        if self.order.len() > CAPACITY
            && let Some(oldest) = self.order.pop_front()
        {
            self.values.remove(&oldest);
        }
    }
}

/// The value of a key, from the cache or made now.
fn get(client: &mut Client, cache: &Owned<Cache>, key: u64) -> Result<String, CallError> {
    if let Some(value) = client.call_blocking(cache, move |cache| cache.values.get(&key).cloned())? {
        return Ok(value);
    }
    let value = format!("value of {key}");
    let kept = value.clone();
    client.call_blocking(cache, move |cache| cache.put(key, kept))?;
    Ok(value)
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let machine = Machine::live(&LiveOptions::new(None));
    let domains = Domains::start(&machine, &Configuration::one_worker_each(&["caches"]))?;
    let cache = domains.at("caches")?.place_owned("cache", Cache::default())?;
    let mut client = domains.client();
    for round in 0..2 {
        for key in 0..150 {
            assert_eq!(get(&mut client, &cache, key)?, format!("value of {key}"), "round {round}");
        }
    }
    let kept = client.call_blocking(&cache, |cache| (cache.values.len(), cache.order.front().copied()))?;
    assert_eq!(kept, (CAPACITY, Some(50)));
    Ok(())
}
