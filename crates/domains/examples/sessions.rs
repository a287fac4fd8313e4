//! Sessions of users in a domain, used from tasks of tokio: each task has a client of its own, which asks nothing of the executor.
//!
//! `cargo run --release -p atrapos-domains --example sessions`

use std::collections::HashMap;

use atrapos_domains::{CallError, Client, Configuration, Domains, Owned};
use atrapos_topology::{LiveOptions, Machine};

/// Visits by user.
type Sessions = HashMap<u64, u32>;

async fn visit(
    mut client: Client,
    sessions: Owned<Sessions>,
    user: u64,
    times: u32,
) -> Result<u32, CallError> {
    let mut visits = 0;
    for _ in 0..times {
        visits = client
            .call(&sessions, move |sessions: &mut Sessions| {
                let visits = sessions.entry(user).or_default();
                *visits += 1;
                *visits
            })
            .await?;
        tokio::task::yield_now().await;
    }
    Ok(visits)
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let machine = Machine::live(&LiveOptions::new(None));
    let domains = Domains::start(&machine, &Configuration::one_worker_each(&["sessions"]))?;
    let sessions = domains.at("sessions")?.place_owned("sessions", Sessions::new())?;
    let executor = tokio::runtime::Builder::new_multi_thread().worker_threads(2).build()?;
    executor.block_on(async {
        let visits: Vec<_> =
            (0..50).map(|user| tokio::spawn(visit(domains.client(), sessions.clone(), user, 20))).collect();
        for visits in visits {
            assert_eq!(visits.await??, 20);
        }
        Ok::<_, Box<dyn std::error::Error>>(())
    })?;
    let users = domains.client().call_blocking(&sessions, |sessions| sessions.len())?;
    assert_eq!(users, 50);
    Ok(())
}
