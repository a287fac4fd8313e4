//! The four tables of TATP, the index over subscriber numbers, the references, and the boundaries of partitions.
//!
//! Owns: the tables' types. Never: determines their contents, which is the task of the generator.
//!
//! All tables begin their keys with the subscriber's number and are of one family: all rows of a subscriber are on one
//! worker. The index over the 15-digit numbers is a family of its own, cut at the numbers of the same subscribers, so
//! that an index entry is on the worker of its subscriber too.
//!
//! The ten columns of each of the groups `bit_1..10`, `hex_1..10` and `byte2_1..10` are one column of ten bytes here.

use atrapos::{Handles, Index, IndexRef, Schema, SchemaError, Table, TableRef, row};

use serde::{Deserialize, Serialize};

use crate::digits;

/// A phone number of 15 decimal digits, as text.
pub type Digits15 = [u8; 15];

/// Returns the `sub_nbr` of a subscriber: its `s_id` in decimal with leading zeros.
#[inline]
#[must_use]
pub fn sub_nbr(s_id: u64) -> Digits15 {
    digits::fifteen(s_id)
}

/// The largest `s_id` that has a number of 15 digits.
pub const S_ID_MAX: u64 = 999_999_999_999_999;

row! {
    /// A subscriber of the network.
    #[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
    pub struct Subscriber {
        /// The phone number: see [`sub_nbr`].
        pub sub_nbr: Digits15,
        /// `bit_1` to `bit_10`, each 0 or 1.
        pub bit: [u8; 10],
        /// `hex_1` to `hex_10`, each from 0 to 15.
        pub hex: [u8; 10],
        /// `byte2_1` to `byte2_10`, each from 0 to 255.
        pub byte2: [u8; 10],
        /// Location: from 1 to 2^32 - 1.
        pub msc_location: u32,
        /// Location: from 1 to 2^32 - 1.
        pub vlr_location: u32,
    }
}

row! {
    /// Access information of a subscriber, of one of four types.
    #[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
    pub struct AccessInfo {
        /// Data: from 0 to 255.
        pub data1: u8,
        /// Data: from 0 to 255.
        pub data2: u8,
        /// Data: capital letters.
        pub data3: [u8; 3],
        /// Data: capital letters.
        pub data4: [u8; 5],
    }
}

row! {
    /// A facility of a subscriber, of one of four types.
    #[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
    pub struct SpecialFacility {
        /// True if the facility is switched on.
        pub is_active: bool,
        /// Error control: from 0 to 255.
        pub error_cntrl: u8,
        /// Data: from 0 to 255.
        pub data_a: u8,
        /// Data: capital letters.
        pub data_b: [u8; 5],
    }
}

row! {
    /// Call forwarding of a facility from a time of the day on.
    #[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
    pub struct CallForwarding {
        /// Hour at which the forwarding ends: from 1 to 24.
        pub end_time: u8,
        /// Number to which calls are forwarded.
        pub numberx: Digits15,
    }
}

/// The family of the four tables.
pub const SUBSCRIBER_FAMILY: &str = "subscriber";

/// Table `subscriber`, by `s_id`.
#[derive(Debug)]
pub struct Subscribers;
impl Table for Subscribers {
    type Key = u64;
    type Row = Subscriber;
    const NAME: &'static str = "subscriber";
    const FAMILY: &'static str = SUBSCRIBER_FAMILY;
    const KEY_COLUMNS: &'static [&'static str] = &["s_id"];
}

/// Table `access_info`, by `s_id` and `ai_type` (from 1 to 4).
#[derive(Debug)]
pub struct AccessInfos;
impl Table for AccessInfos {
    type Key = (u64, u8);
    type Row = AccessInfo;
    const NAME: &'static str = "access_info";
    const FAMILY: &'static str = SUBSCRIBER_FAMILY;
    const KEY_COLUMNS: &'static [&'static str] = &["s_id", "ai_type"];
}

/// Table `special_facility`, by `s_id` and `sf_type` (from 1 to 4).
#[derive(Debug)]
pub struct SpecialFacilities;
impl Table for SpecialFacilities {
    type Key = (u64, u8);
    type Row = SpecialFacility;
    const NAME: &'static str = "special_facility";
    const FAMILY: &'static str = SUBSCRIBER_FAMILY;
    const KEY_COLUMNS: &'static [&'static str] = &["s_id", "sf_type"];
}

/// Table `call_forwarding`, by `s_id`, `sf_type` and `start_time` (0, 8 or 16).
#[derive(Debug)]
pub struct CallForwardings;
impl Table for CallForwardings {
    type Key = (u64, u8, u8);
    type Row = CallForwarding;
    const NAME: &'static str = "call_forwarding";
    const FAMILY: &'static str = SUBSCRIBER_FAMILY;
    const KEY_COLUMNS: &'static [&'static str] = &["s_id", "sf_type", "start_time"];
}

/// The unique index over the subscribers' numbers.
#[derive(Debug)]
pub struct SubscribersByNumber;
impl Index for SubscribersByNumber {
    type Table = Subscribers;
    type Key = Digits15;
    const NAME: &'static str = "subscriber_by_sub_nbr";
    const UNIQUE: bool = true;
    const KEY_COLUMNS: &'static [&'static str] = &["sub_nbr"];
    const KEY_FROM: Option<&'static [&'static str]> = Some(&["sub_nbr"]);
    fn key(_: &u64, row: &Subscriber) -> Digits15 {
        row.sub_nbr
    }
}

/// The handles of all tables in one open database.
#[derive(Clone, Copy, Debug)]
#[expect(missing_docs, reason = "each field is named after its table")]
pub struct Tables {
    pub subscriber: TableRef<Subscribers>,
    pub access_info: TableRef<AccessInfos>,
    pub special_facility: TableRef<SpecialFacilities>,
    pub call_forwarding: TableRef<CallForwardings>,
    pub by_number: IndexRef<SubscribersByNumber>,
}

impl Tables {
    /// Looks up the handles in `db`.
    ///
    /// # Errors
    /// Fails if the database was opened with another schema.
    pub fn of(db: &impl Handles) -> Result<Tables, SchemaError> {
        Ok(Tables {
            subscriber: db.table()?,
            access_info: db.table()?,
            special_facility: db.table()?,
            call_forwarding: db.table()?,
            by_number: db.index()?,
        })
    }
}

/// Returns the first subscriber of every worker but the first: the numbers from 1 to `subscribers` in equal parts.
fn cuts(subscribers: u64, workers: usize) -> Vec<u64> {
    let workers = workers as u128;
    let cut = |part: u128| 1 + (u128::from(subscribers) * part / workers) as u64;
    let mut cuts: Vec<u64> = (1..workers).map(cut).filter(|cut| *cut > 1).collect();
    cuts.dedup();
    cuts
}

/// Returns the schema of a database of `subscribers` subscribers.
#[must_use]
pub fn schema(subscribers: u64) -> Schema {
    Schema::new()
        .table::<Subscribers>()
        .table::<AccessInfos>()
        .table::<SpecialFacilities>()
        .table::<CallForwardings>()
        .index::<SubscribersByNumber>()
        // Transactions never insert or delete subscribers and facilities: these two references are declared for
        // partitioning, and there is nothing to enforce.
        .foreign_key_by_prefix::<AccessInfos, Subscribers>(|(s_id, _)| *s_id, false)
        .foreign_key_by_prefix::<SpecialFacilities, Subscribers>(|(s_id, _)| *s_id, false)
        .foreign_key_by_prefix::<CallForwardings, SpecialFacilities>(
            |(s_id, sf_type, _)| (*s_id, *sf_type),
            true,
        )
        .split_by(SUBSCRIBER_FAMILY, move |workers| cuts(subscribers, workers))
        .split_by(SubscribersByNumber::NAME, move |workers| {
            cuts(subscribers, workers).into_iter().map(sub_nbr).collect()
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_fifteen_digits_in_order() {
        assert_eq!(&sub_nbr(1), b"000000000000001");
        assert_eq!(&sub_nbr(90_210), b"000000000090210");
        assert_eq!(&sub_nbr(S_ID_MAX), b"999999999999999");
        assert!(sub_nbr(999) < sub_nbr(1000));
    }

    #[test]
    fn cuts_are_even_and_survive_few_subscribers() {
        assert_eq!(cuts(100, 4), [26, 51, 76]);
        assert_eq!(cuts(100, 1), [0_u64; 0]);
        assert_eq!(cuts(2, 4), [2]);
        assert_eq!(cuts(1, 8), [0_u64; 0]);
        assert_eq!(cuts(S_ID_MAX, 2).len(), 1);
    }
}
