//! Looks at the workers, shared by all who ask at about the same time.
//!
//! Owns: how old a look may be, and which two are compared. Never: asks a worker, or waits; whoever asks does.
//!
//! Invariant: however many ask, the workers are asked at most once in [`LOOK_AGAIN_AFTER`].

use std::sync::Arc;
use std::time::{Duration, Instant};

use atrapos::activity::Activity;

/// The age from which on a look is made again.
pub const LOOK_AGAIN_AFTER: Duration = Duration::from_millis(700);
/// The age beyond which a look says nothing of the present.
const STALE_AFTER: Duration = Duration::from_secs(5);
/// The time between the two looks that are made then.
pub const BETWEEN_LOOKS: Duration = Duration::from_millis(250);

/// Two looks at the workers: rates are those between them.
#[derive(Clone, Debug)]
pub struct Look {
    at: Instant,
    /// The one before.
    pub earlier: Arc<Activity>,
    /// The latest one.
    pub activity: Arc<Activity>,
}

/// The latest look, if there was one.
#[derive(Debug, Default)]
pub struct Looks(Option<Look>);

/// Work that is due for a look.
#[derive(Debug)]
pub enum Due {
    /// Nothing: this one is new enough.
    Nothing(Look),
    /// The workers are to be asked, and their answer compared with this one.
    One(Arc<Activity>),
    /// They are to be asked twice, [`BETWEEN_LOOKS`] apart.
    Two,
}

impl Looks {
    /// Returns what has to be done for a look at this time.
    #[must_use]
    pub fn due(&self, now: Instant) -> Due {
        let age = |look: &Look| now.saturating_duration_since(look.at);
        match &self.0 {
            Some(look) if age(look) < LOOK_AGAIN_AFTER => Due::Nothing(look.clone()),
            Some(look) if age(look) <= STALE_AFTER => Due::One(Arc::clone(&look.activity)),
            _ => Due::Two,
        }
    }

    /// Keeps the answers of the workers, and returns the look that they make.
    pub fn made(&mut self, now: Instant, earlier: Arc<Activity>, activity: Arc<Activity>) -> Look {
        self.0.insert(Look { at: now, earlier, activity }).clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn activity(at_ns: u64) -> Arc<Activity> {
        Arc::new(Activity {
            at_ns,
            loads_from_ns: None,
            statistics: atrapos::Statistics::default(),
            workers: Vec::new(),
            classes: Vec::new(),
            families: Vec::new(),
            lock_waits: Vec::new(),
            durability: None,
        })
    }

    #[test]
    fn a_look_is_shared_while_it_is_new_and_compared_with_while_it_is_not_stale() {
        let (mut looks, began) = (Looks::default(), Instant::now());
        assert!(matches!(looks.due(began), Due::Two));
        looks.made(began, activity(1), activity(2));
        let Due::Nothing(look) = looks.due(began + LOOK_AGAIN_AFTER / 2) else { panic!("it is new") };
        assert_eq!((look.earlier.at_ns, look.activity.at_ns), (1, 2));
        let Due::One(earlier) = looks.due(began + LOOK_AGAIN_AFTER) else { panic!("it is old") };
        assert_eq!(earlier.at_ns, 2);
        assert!(matches!(looks.due(began + 2 * STALE_AFTER), Due::Two));
    }
}
