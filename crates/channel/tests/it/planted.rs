//! Planted bugs, each of which a test must notice.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use atrapos_channel::planted::{Bug, with};
use atrapos_channel::{Channel, ChannelKind, ConnectOptions, Hello, RING_BYTES_DEFAULT};

use crate::access::{Place, another_deployment, secret};
use crate::messages::what_does_not_fit_waits_in_order;
use crate::support::{hello, link_between, meet, until, watchers};

#[test]
fn a_deployment_that_is_ignored_is_noticed() {
    let mut place = Place::new();
    let stranger = Hello { deployment: another_deployment(), ..hello(ChannelKind::Tcp) };
    let options = place.connect_options();
    let (accepted, _) = with(Bug::DeploymentIgnored, || meet(&mut place.listener, options, stranger));
    assert!(accepted.is_ok(), "the planted bug changes nothing");
}

#[test]
fn a_proof_that_is_ignored_is_noticed() {
    let mut place = Place::with_secret(secret("the secret of this deployment"));
    let wrong = secret("the secret of another deployment");
    let options = ConnectOptions { secret: wrong, ..place.connect_options() };
    let (accepted, _) =
        with(Bug::ProofIgnored, || meet(&mut place.listener, options, hello(ChannelKind::Tcp)));
    assert!(accepted.is_ok(), "the planted bug changes nothing");
}

#[test]
fn a_backlog_that_is_overtaken_is_noticed() {
    let disorder = || with(Bug::BacklogOvertaken, || what_does_not_fit_waits_in_order(ChannelKind::Shm));
    assert!(catch_unwind(AssertUnwindSafe(disorder)).is_err(), "the planted bug changes nothing");
}

/// Counts the wake-ups of a channel.
fn count_wakes(channel: &mut dyn Channel) -> Arc<AtomicUsize> {
    let wakes = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&wakes);
    channel.on_wake(Box::new(move || {
        counted.fetch_add(1, Ordering::SeqCst);
    }));
    wakes
}

/// Wake-ups by two messages, with an arming before each, the second one perhaps with a bug.
fn two_wakes(second_arming: impl Fn(&mut dyn Channel)) -> usize {
    let watchers = watchers();
    let links = [(); 2].map(|()| link_between(&watchers, ChannelKind::Unix, RING_BYTES_DEFAULT, None));
    let [(mut one, mut other), (mut later, mut after)] = links;
    let [wakes, later_wakes] = [count_wakes(&mut *one), count_wakes(&mut *later)];
    let knock = |channel: &mut dyn Channel| channel.send(&[b"knock"]).and_then(|()| channel.flush());
    one.arm();
    knock(&mut *other).expect("the peer lives");
    until("the first wake-up", || wakes.load(Ordering::SeqCst) == 1);
    until("it arrives", || one.receive(1, &mut |_| ()) == Ok(1));
    second_arming(&mut *one);
    knock(&mut *other).expect("the peer lives");
    // The watcher takes events in order: when this one has woken, the one before it has, or never will.
    later.arm();
    knock(&mut *after).expect("the peer lives");
    until("the later wake-up", || later_wakes.load(Ordering::SeqCst) == 1);
    wakes.load(Ordering::SeqCst)
}

#[test]
fn a_registration_that_is_not_renewed_is_noticed() {
    assert_eq!(two_wakes(|channel| channel.arm()), 2);
    assert_eq!(
        two_wakes(|channel| with(Bug::SpentNotRenewed, || channel.arm())),
        1,
        "the planted bug changes nothing"
    );
}
