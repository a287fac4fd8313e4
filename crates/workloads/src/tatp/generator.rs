//! The initial population of a TATP database, subscriber by subscriber.
//!
//! Owns: the cardinalities and value rules of the specification. Never: decides what transactions do with the rows.
//!
//! Invariant: a subscriber's rows depend on the seed and its `s_id` alone. So any number of workers load the same
//! database, and the auditor can generate every row again.

use arrayvec::ArrayVec;

use super::schema::{AccessInfo, CallForwarding, SpecialFacility, Subscriber, sub_nbr};
use crate::random::Random;

/// Number of types of access information, and of facilities: from 1 to this number.
pub const TYPES: u8 = 4;
/// The hours at which call forwarding can begin.
pub const START_TIMES: [u8; 3] = [0, 8, 16];
/// The last hour at which call forwarding can end.
pub const END_TIME_MAX: u8 = 24;
/// Share of the facilities that are active, in percent.
const ACTIVE_PERCENT: u32 = 85;

/// A facility with its call forwarding, by start time, ascending.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Facility {
    /// Type of the facility, from 1 to 4.
    pub sf_type: u8,
    /// The facility's row.
    pub row: SpecialFacility,
    /// Call forwarding: start times and rows.
    pub forwarding: ArrayVec<(u8, CallForwarding), 3>,
}

/// All rows of one subscriber, in ascending order of their keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Population {
    /// The subscriber's own row.
    pub subscriber: Subscriber,
    /// Access information: types and rows.
    pub access: ArrayVec<(u8, AccessInfo), 4>,
    /// The facilities.
    pub facilities: ArrayVec<Facility, 4>,
}

/// Mean number of rows per subscriber: itself, 2.5 of access information, 2.5 facilities, 1.5 times that of forwarding.
pub const ROWS_PER_SUBSCRIBER: f64 = 1.0 + 2.5 + 2.5 + 3.75;

impl Population {
    /// Generates the rows of subscriber `s_id` in the database of `seed`.
    #[must_use]
    pub fn of(seed: u64, s_id: u64) -> Population {
        let mut random = Random::of_stream(seed, s_id);
        let subscriber = subscriber(s_id, &mut random);
        let access_types = subset::<4>(1 + random.small(4), &mut random);
        let access = access_types.into_iter().map(|at| (at + 1, access_info(&mut random))).collect();
        let facility_types = subset::<4>(1 + random.small(4), &mut random);
        let facilities = facility_types.into_iter().map(|at| facility(at + 1, &mut random)).collect();
        Population { subscriber, access, facilities }
    }
}

fn subscriber(s_id: u64, random: &mut Random) -> Subscriber {
    let (bits, hexes) = (random.bits(), random.bits());
    let (first, last) = (random.bits().to_le_bytes(), random.small(1 << 16).to_le_bytes());
    let nth = |packed: u64, at: usize, width: usize| (packed >> (at * width)) as u8 & ((1 << width) - 1);
    Subscriber {
        sub_nbr: sub_nbr(s_id),
        bit: std::array::from_fn(|at| nth(bits, at, 1)),
        hex: std::array::from_fn(|at| nth(hexes, at, 4)),
        byte2: std::array::from_fn(|at| if at < 8 { first[at] } else { last[at - 8] }),
        msc_location: location(random),
        vlr_location: location(random),
    }
}

/// Draws a location: from 1 to 2^32 - 1.
#[inline]
pub fn location(random: &mut Random) -> u32 {
    1 + random.small(u32::MAX)
}

fn access_info(random: &mut Random) -> AccessInfo {
    AccessInfo {
        data1: random.small(256) as u8,
        data2: random.small(256) as u8,
        data3: random.letters(),
        data4: random.letters(),
    }
}

fn facility(sf_type: u8, random: &mut Random) -> Facility {
    let row = SpecialFacility {
        is_active: random.small(100) < ACTIVE_PERCENT,
        error_cntrl: random.small(256) as u8,
        data_a: random.small(256) as u8,
        data_b: random.letters(),
    };
    let starts = subset::<3>(random.small(4), random);
    let forwarding = |at: u8| {
        let start_time = START_TIMES[usize::from(at)];
        let end_time = start_time + 1 + random.small(8) as u8;
        (start_time, CallForwarding { end_time, numberx: random.digits() })
    };
    Facility { sf_type, row, forwarding: starts.into_iter().map(forwarding).collect() }
}

/// Draws `count` of the numbers from 0 to `N - 1`, every such subset with equal probability, ascending.
fn subset<const N: usize>(count: u32, random: &mut Random) -> ArrayVec<u8, N> {
    let mut wanted = count;
    let mut chosen = ArrayVec::new();
    for at in 0..N as u32 {
        // Of the `N - at` numbers left, `wanted` are still to be chosen.
        if random.small(N as u32 - at) < wanted {
            chosen.push(at as u8);
            wanted -= 1;
        }
    }
    chosen
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chi_square::assert_fits;

    const SUBSCRIBERS: u64 = 40_000;

    #[test]
    fn populations_depend_on_seed_and_subscriber_alone() {
        assert_eq!(Population::of(1, 5), Population::of(1, 5));
        assert_ne!(Population::of(1, 5), Population::of(2, 5));
        assert_ne!(Population::of(1, 5).subscriber.hex, Population::of(1, 6).subscriber.hex);
    }

    #[test]
    fn cardinalities_are_the_specification_s() {
        let (mut access, mut facilities, mut forwarding) = ([0; 4], [0; 4], [0; 4]);
        let (mut access_types, mut facility_types, mut starts) = ([0; 4], [0; 4], [0; 3]);
        let mut active = [0; 2];
        for s_id in 1..=SUBSCRIBERS {
            let population = Population::of(7, s_id);
            access[population.access.len() - 1] += 1;
            facilities[population.facilities.len() - 1] += 1;
            population.access.iter().for_each(|(ai_type, _)| access_types[usize::from(*ai_type) - 1] += 1);
            for facility in &population.facilities {
                facility_types[usize::from(facility.sf_type) - 1] += 1;
                forwarding[facility.forwarding.len()] += 1;
                active[usize::from(facility.row.is_active)] += 1;
                facility.forwarding.iter().for_each(|(start, _)| starts[usize::from(*start) / 8] += 1);
            }
        }
        assert_fits("access_info per subscriber", &access, &[0.25; 4]);
        assert_fits("special_facility per subscriber", &facilities, &[0.25; 4]);
        assert_fits("call_forwarding per special_facility", &forwarding, &[0.25; 4]);
        assert_fits("ai_type", &access_types, &[0.25; 4]);
        assert_fits("sf_type", &facility_types, &[0.25; 4]);
        assert_fits("start_time", &starts, &[1.0 / 3.0; 3]);
        assert_fits("is_active", &active, &[0.15, 0.85]);
    }

    #[test]
    fn values_are_the_specification_s() {
        let (mut bits, mut hexes, mut bytes, mut lengths) = ([0; 2], [0; 16], [0; 256], [0; 8]);
        for s_id in 1..=SUBSCRIBERS {
            let population = Population::of(8, s_id);
            let subscriber = &population.subscriber;
            assert_eq!(subscriber.sub_nbr, sub_nbr(s_id));
            assert!(subscriber.msc_location > 0 && subscriber.vlr_location > 0);
            subscriber.bit.iter().for_each(|bit| bits[usize::from(*bit)] += 1);
            subscriber.hex.iter().for_each(|hex| hexes[usize::from(*hex)] += 1);
            subscriber.byte2.iter().for_each(|byte| bytes[usize::from(*byte)] += 1);
            assert!(population.access.is_sorted_by(|a, b| a.0 < b.0));
            assert!(population.facilities.is_sorted_by(|a, b| a.sf_type < b.sf_type));
            for (_, access) in &population.access {
                assert!(access.data3.iter().chain(&access.data4).all(u8::is_ascii_uppercase));
            }
            for facility in &population.facilities {
                assert!(facility.row.data_b.iter().all(u8::is_ascii_uppercase));
                assert!(facility.forwarding.is_sorted_by(|a, b| a.0 < b.0));
                for (start, row) in &facility.forwarding {
                    lengths[usize::from(row.end_time - start) - 1] += 1;
                    assert!(row.numberx.iter().all(u8::is_ascii_digit));
                }
            }
        }
        assert_fits("bit", &bits, &[0.5; 2]);
        assert_fits("hex", &hexes, &[1.0 / 16.0; 16]);
        assert_fits("byte2", &bytes, &[1.0 / 256.0; 256]);
        assert_fits("hours of forwarding", &lengths, &[0.125; 8]);
    }
}
