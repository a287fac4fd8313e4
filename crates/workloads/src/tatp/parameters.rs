//! The next transaction of a TATP client: its class, subscriber and other parameters.
//!
//! Owns: the mix and the parameters' distributions. Never: runs a transaction.

use std::str::FromStr;

use super::generator::{END_TIME_MAX, START_TIMES, TYPES, location};
use super::schema::CallForwarding;
use crate::keys::{KeyChoice, KeySet};
use crate::random::Random;
use crate::workload::ClassId;

/// The seven transaction classes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
#[expect(missing_docs, reason = "each is documented at the procedure of its name")]
pub enum Class {
    GetSubscriberData,
    GetNewDestination,
    GetAccessData,
    UpdateSubscriberData,
    UpdateLocation,
    InsertCallForwarding,
    DeleteCallForwarding,
}

impl Class {
    /// Every class, in the order of their discriminants.
    pub const ALL: [Class; 7] = [
        Class::GetSubscriberData,
        Class::GetNewDestination,
        Class::GetAccessData,
        Class::UpdateSubscriberData,
        Class::UpdateLocation,
        Class::InsertCallForwarding,
        Class::DeleteCallForwarding,
    ];

    /// The names of the classes, in the same order.
    pub const NAMES: [&'static str; 7] = [
        "get-subscriber-data",
        "get-new-destination",
        "get-access-data",
        "update-subscriber-data",
        "update-location",
        "insert-call-forwarding",
        "delete-call-forwarding",
    ];

    /// Share of each class in the standard mix, in percent.
    pub const STANDARD_PERCENT: [u8; 7] = [35, 10, 35, 2, 14, 2, 2];

    /// Share of each class, in percent, that succeeds on the original population, as it follows from the
    /// specification's rules for population and parameters.
    ///
    /// The specification states the same numbers except for `GET_NEW_DESTINATION`, with 23.9: its own rules yield 14.8
    /// on the original population, and 20.4 once all call forwarding has been replaced by that of
    /// `INSERT_CALL_FORWARDING`, whose end times are uniform. The implementation follows the rules.
    pub const SUCCESS_PERCENT: [f64; 7] = [100.0, 14.79, 62.5, 62.5, 100.0, 31.25, 31.25];

    /// Returns the name of the class.
    #[must_use]
    pub fn name(self) -> &'static str {
        Class::NAMES[self as usize]
    }

    /// Returns whether its transactions change rows when they succeed.
    #[must_use]
    pub fn updates(self) -> bool {
        self as u8 >= Class::UpdateSubscriberData as u8
    }

    /// Returns the number of the class.
    #[must_use]
    pub fn id(self) -> ClassId {
        ClassId(self as u8)
    }
}

/// Transaction classes that are run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum Mix {
    /// All seven, 35/10/35/2/14/2/2 in a hundred.
    #[default]
    Standard,
    /// One class alone.
    Only(Class),
}

/// Error for a mix that does not exist.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("there is no mix '{0}'; choose 'standard' or one of {names}", names = Class::NAMES.join(", "))]
pub struct UnknownMix(pub String);

impl FromStr for Mix {
    type Err = UnknownMix;

    fn from_str(name: &str) -> Result<Mix, UnknownMix> {
        if name == "standard" {
            return Ok(Mix::Standard);
        }
        let class = Class::ALL.into_iter().find(|class| class.name() == name);
        class.map(Mix::Only).ok_or_else(|| UnknownMix(name.to_owned()))
    }
}

impl std::fmt::Display for Mix {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Mix::Standard => "standard",
            Mix::Only(class) => class.name(),
        })
    }
}

/// The classes of a hundred transactions of the standard mix.
const STANDARD: [Class; 100] = {
    let mut classes = [Class::GetSubscriberData; 100];
    let (mut class, mut left, mut at) = (0, Class::STANDARD_PERCENT[0], 0);
    while at < 100 {
        while left == 0 {
            class += 1;
            left = Class::STANDARD_PERCENT[class];
        }
        classes[at] = Class::ALL[class];
        left -= 1;
        at += 1;
    }
    classes
};

/// Draws the classes and parameters of one client.
#[derive(Clone, Debug)]
pub struct Parameters {
    mix: Mix,
    choice: KeyChoice,
    keys: KeySet,
    random: Random,
}

impl Parameters {
    /// Creates a generator that draws from `random`: classes of `mix`, subscribers of `keys` by `choice`.
    #[must_use]
    pub fn new(mix: Mix, choice: KeyChoice, keys: KeySet, random: Random) -> Parameters {
        Parameters { mix, choice, keys, random }
    }

    /// Draws the class of the next transaction.
    #[inline]
    pub fn class(&mut self) -> Class {
        match self.mix {
            Mix::Standard => STANDARD[self.random.small(100) as usize],
            Mix::Only(class) => class,
        }
    }

    /// Draws a subscriber.
    #[inline]
    pub fn s_id(&mut self) -> u64 {
        self.choice.choose(&self.keys, &mut self.random)
    }

    /// Draws a type of facility or access information: from 1 to 4.
    #[inline]
    pub fn type_number(&mut self) -> u8 {
        1 + self.random.small(u32::from(TYPES)) as u8
    }

    /// Draws a start time: 0, 8 or 16.
    #[inline]
    pub fn start_time(&mut self) -> u8 {
        START_TIMES[self.random.small(3) as usize]
    }

    /// Draws an end time: from 1 to 24.
    #[inline]
    pub fn end_time(&mut self) -> u8 {
        1 + self.random.small(u32::from(END_TIME_MAX)) as u8
    }

    /// Draws a bit: 0 or 1.
    #[inline]
    pub fn bit(&mut self) -> u8 {
        self.random.small(2) as u8
    }

    /// Draws a byte: from 0 to 255.
    #[inline]
    pub fn data_a(&mut self) -> u8 {
        self.random.small(256) as u8
    }

    /// Draws a location: from 1 to 2^32 - 1.
    #[inline]
    pub fn location(&mut self) -> u32 {
        location(&mut self.random)
    }

    /// Draws new call forwarding: any end time, any number.
    #[inline]
    pub fn forwarding(&mut self) -> CallForwarding {
        CallForwarding { end_time: self.end_time(), numberx: self.random.digits() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chi_square::assert_fits;
    use crate::tatp::generator::Population;

    fn parameters(mix: Mix) -> Parameters {
        Parameters::new(
            mix,
            KeyChoice::Uniform,
            KeySet::range(1, 1000).expect("keys"),
            Random::of_stream(5, 1),
        )
    }

    #[test]
    fn the_standard_mix_has_its_shares() {
        let mut parameters = parameters(Mix::Standard);
        let mut counts = [0; 7];
        (0..200_000).for_each(|_| counts[parameters.class() as usize] += 1);
        let shares = Class::STANDARD_PERCENT.map(|percent| f64::from(percent) / 100.0);
        assert_fits("the standard mix", &counts, &shares);
    }

    #[test]
    fn names_lead_to_mixes_and_back() {
        for (name, class) in Class::NAMES.iter().zip(Class::ALL) {
            assert_eq!(name.parse(), Ok(Mix::Only(class)));
            assert_eq!(Mix::Only(class).to_string(), *name);
            let mut only = parameters(Mix::Only(class));
            assert!((0..100).all(|_| only.class() == class));
        }
        assert_eq!("standard".parse(), Ok(Mix::Standard));
        let unknown = "fast".parse::<Mix>().unwrap_err().to_string();
        assert!(unknown.contains("'fast'") && unknown.contains("update-location"), "{unknown}");
    }

    #[test]
    fn parameters_are_uniform() {
        let mut parameters = parameters(Mix::Standard);
        let (mut types, mut starts, mut ends, mut bits) = ([0; 4], [0; 3], [0; 24], [0; 2]);
        for _ in 0..50_000 {
            types[usize::from(parameters.type_number()) - 1] += 1;
            starts[usize::from(parameters.start_time()) / 8] += 1;
            ends[usize::from(parameters.end_time()) - 1] += 1;
            bits[usize::from(parameters.bit())] += 1;
            assert!(parameters.location() > 0);
        }
        assert_fits("types", &types, &[0.25; 4]);
        assert_fits("start times", &starts, &[1.0 / 3.0; 3]);
        assert_fits("end times", &ends, &[1.0 / 24.0; 24]);
        assert_fits("bits", &bits, &[0.5; 2]);
    }

    /// Returns the classes that succeed for one subscriber, by the procedures' rules.
    fn successes(population: &Population, number: u8, start: u8, end: u8) -> [bool; 7] {
        let facility = population.facilities.iter().find(|facility| facility.sf_type == number);
        let forwarding = facility.map(|facility| &facility.forwarding);
        let active = facility.is_some_and(|facility| facility.row.is_active);
        let goes_somewhere = forwarding
            .is_some_and(|rows| rows.iter().any(|(begins, row)| *begins <= start && end < row.end_time));
        let there = forwarding.is_some_and(|rows| rows.iter().any(|(begins, _)| *begins == start));
        [
            true,
            active && goes_somewhere,
            population.access.iter().any(|(ai_type, _)| *ai_type == number),
            facility.is_some(),
            true,
            facility.is_some() && !there,
            there,
        ]
    }

    const TRIALS: u32 = 100_000;

    /// Returns the shares of successes, in percent, over subscribers each of whom `change` may have changed.
    fn success_percent(change: impl Fn(&mut Population, &mut Parameters)) -> [f64; 7] {
        let mut parameters = parameters(Mix::Standard);
        let mut succeeded = [0; 7];
        for s_id in 1..=u64::from(TRIALS) {
            let mut population = Population::of(9, s_id);
            change(&mut population, &mut parameters);
            let (number, start, end) =
                (parameters.type_number(), parameters.start_time(), parameters.end_time());
            let succeeds = successes(&population, number, start, end);
            succeeded.iter_mut().zip(succeeds).for_each(|(count, succeeds)| *count += u32::from(succeeds));
        }
        succeeded.map(|count| 100.0 * f64::from(count) / f64::from(TRIALS))
    }

    /// Five standard deviations of a share of one half.
    const TOLERANCE_PERCENT: f64 = 0.8;

    #[test]
    fn successes_on_the_original_population_follow_from_the_rules() {
        let found = success_percent(|_, _| {});
        for ((name, found), percent) in Class::NAMES.iter().zip(found).zip(Class::SUCCESS_PERCENT) {
            assert!((found - percent).abs() < TOLERANCE_PERCENT, "{name}: {found}% instead of {percent}%");
        }
    }

    #[test]
    fn new_destinations_become_more_as_call_forwarding_is_replaced() {
        let found = success_percent(|population, parameters| {
            for facility in &mut population.facilities {
                let starts = START_TIMES.into_iter().filter(|_| parameters.bit() == 1).collect::<Vec<_>>();
                facility.forwarding =
                    starts.into_iter().map(|start| (start, parameters.forwarding())).collect();
            }
        });
        let found = found[Class::GetNewDestination as usize];
        assert!((found - 20.43).abs() < TOLERANCE_PERCENT, "{found}%");
    }
}
