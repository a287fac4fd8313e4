//! The seven transactions of TATP as stored procedures.
//!
//! Owns: the reads and writes of each transaction, statement by statement as in the specification. Never: draws a
//! random number, or knows which client runs it.
//!
//! Each returns the result of its SQL, by value. A parameter that leads to no row (or, for an insertion, to an existing
//! one) yields a result, not an abort. One transaction is an exception: when `UPDATE_SUBSCRIBER_DATA` finds no
//! facility, it has changed the subscriber already; it aborts, so that a failed transaction changes nothing.

#![expect(
    clippy::manual_async_fn,
    reason = "rustc compiles a `pub async fn` here, and once more where it is used; a function that returns a future only there"
)]

use std::future::Future;
use std::ops::ControlFlow;

use arrayvec::ArrayVec;
use atrapos::{Abort, KeyRange, RowEdit, TableRef, Transaction};

use super::generator::TYPES;
use super::schema::{
    AccessInfo, AccessInfos, CallForwarding, Digits15, SpecialFacility, Subscriber, Subscribers, Tables,
};

/// The numbers that `GET_NEW_DESTINATION` returns: at most one per start time.
pub type Destinations = ArrayVec<Digits15, 3>;

/// Runs `GET_SUBSCRIBER_DATA`: returns the whole row of a subscriber.
///
/// # Errors
/// The errors of [`Transaction::run`].
#[inline(always)]
pub fn get_subscriber_data(
    tx: &mut impl Transaction,
    subscriber: TableRef<Subscribers>,
    s_id: u64,
) -> impl Future<Output = Result<Option<Subscriber>, Abort>> {
    tx.get(subscriber, s_id)
}

/// Runs `GET_NEW_DESTINATION`: returns the numbers to which calls of an active facility are forwarded, by forwarding
/// that began at `start_time` or earlier and ends after `end_time`.
///
/// # Errors
/// The errors of [`Transaction::run`].
#[inline]
pub fn get_new_destination(
    tx: &mut impl Transaction,
    tables: Tables,
    s_id: u64,
    sf_type: u8,
    start_time: u8,
    end_time: u8,
) -> impl Future<Output = Result<Destinations, Abort>> {
    async move {
        let facility = tx.get(tables.special_facility, (s_id, sf_type)).await?;
        if !facility.is_some_and(|facility| facility.is_active) {
            return Ok(Destinations::new());
        }
        let begun = KeyRange::through(&(s_id, sf_type), &(s_id, sf_type, start_time));
        tx.fold(tables.call_forwarding, begun, Destinations::new(), move |found, _, row: CallForwarding| {
            if end_time < row.end_time {
                // There are three start times, so there is room.
                found.push(row.numberx);
            }
            ControlFlow::Continue(())
        })
        .await
    }
}

/// Runs `GET_ACCESS_DATA`: returns a subscriber's access information of one type.
///
/// # Errors
/// The errors of [`Transaction::run`].
#[inline(always)]
pub fn get_access_data(
    tx: &mut impl Transaction,
    access_info: TableRef<AccessInfos>,
    s_id: u64,
    ai_type: u8,
) -> impl Future<Output = Result<Option<AccessInfo>, Abort>> {
    tx.get(access_info, (s_id, ai_type))
}

/// Returns the bits with another first one.
fn with_first<const N: usize>(mut bits: [u8; N], first: u8) -> [u8; N] {
    bits[0] = first;
    bits
}

/// Detail of the abort of `UPDATE_SUBSCRIBER_DATA`.
pub const NO_FACILITY: &str = "the subscriber has no facility of that type";

/// Runs `UPDATE_SUBSCRIBER_DATA`: sets a subscriber's `bit_1` and a facility's `data_a`.
///
/// # Errors
/// Fails like [`Transaction::run`]; also with reason [`AbortReason::User`](atrapos::AbortReason::User) if there is no such
/// subscriber or facility.
pub fn update_subscriber_data(
    tx: &mut impl Transaction,
    tables: Tables,
    s_id: u64,
    bit: u8,
    sf_type: u8,
    data_a: u8,
) -> impl Future<Output = Result<(), Abort>> {
    async move {
        let set_bit_1 = move |row: &mut RowEdit<'_, Subscriber>| {
            row.change(|column| column.bit, |bits| with_first(bits, bit));
        };
        let set_data_a =
            move |row: &mut RowEdit<'_, SpecialFacility>| row.set(|column| column.data_a, data_a);
        let subscriber = tx.edit(tables.subscriber, s_id, set_bit_1).await?;
        let facility = tx.edit(tables.special_facility, (s_id, sf_type), set_data_a).await?;
        subscriber.and(facility).ok_or_else(|| Abort::user(NO_FACILITY))
    }
}

/// Runs `UPDATE_LOCATION`: sets the `vlr_location` of the subscriber with a number. Returns whether the subscriber
/// exists.
///
/// # Errors
/// The errors of [`Transaction::run`].
pub fn update_location(
    tx: &mut impl Transaction,
    tables: Tables,
    sub_nbr: Digits15,
    vlr_location: u32,
) -> impl Future<Output = Result<bool, Abort>> {
    async move {
        let Some(s_id) = tx.run(tables.by_number.lookup(sub_nbr)).await? else { return Ok(false) };
        let set_location =
            move |row: &mut RowEdit<'_, Subscriber>| row.set(|column| column.vlr_location, vlr_location);
        let updated = tx.edit(tables.subscriber, s_id, set_location).await?;
        Ok(updated.is_some())
    }
}

/// Runs `INSERT_CALL_FORWARDING`: adds forwarding to a facility of the subscriber with a number. Returns whether it
/// did: false if there is no such subscriber or facility, or if the facility already has forwarding from that time on.
///
/// # Errors
/// The errors of [`Transaction::run`].
pub fn insert_call_forwarding(
    tx: &mut impl Transaction,
    tables: Tables,
    sub_nbr: Digits15,
    sf_type: u8,
    start_time: u8,
    row: CallForwarding,
) -> impl Future<Output = Result<bool, Abort>> {
    async move {
        let Some(s_id) = tx.run(tables.by_number.lookup(sub_nbr)).await? else { return Ok(false) };
        // The specification's second statement reads the types of all facilities of the subscriber.
        let facilities = KeyRange::prefix(&s_id);
        let types = tx
            .fold(
                tables.special_facility,
                facilities,
                [false; TYPES as usize + 1],
                |types, (_, sf_type), _| {
                    types[usize::from(sf_type)] = true;
                    ControlFlow::Continue(())
                },
            )
            .await?;
        if !types[usize::from(sf_type)] {
            return Ok(false);
        }
        tx.run(tables.call_forwarding.insert_if_absent((s_id, sf_type, start_time), row)).await
    }
}

/// Runs `DELETE_CALL_FORWARDING`: removes forwarding of the subscriber with a number. Returns whether there was any.
///
/// # Errors
/// The errors of [`Transaction::run`].
pub fn delete_call_forwarding(
    tx: &mut impl Transaction,
    tables: Tables,
    sub_nbr: Digits15,
    sf_type: u8,
    start_time: u8,
) -> impl Future<Output = Result<bool, Abort>> {
    async move {
        let Some(s_id) = tx.run(tables.by_number.lookup(sub_nbr)).await? else { return Ok(false) };
        Ok(tx.delete(tables.call_forwarding, (s_id, sf_type, start_time)).await?.is_some())
    }
}
