//! The next transaction of a TATP client, with its arguments ([`Request`]).
//!
//! Owns: which arguments a transaction of each class draws, and in which order. Never: runs one.

use atrapos::{Route, StoredProcedure as _};

use super::parameters::{Class, Parameters};
use super::schema::{Tables, sub_nbr};
use super::stored::{
    DeleteCallForwarding, GetAccessData, GetNewDestination, GetSubscriberData, InsertCallForwarding,
    UpdateLocation, UpdateSubscriberData,
};

/// A transaction that a client is about to run: one variant per [`Class`], of its name.
#[derive(Clone, Debug)]
pub(super) enum Request {
    GetSubscriberData(GetSubscriberData),
    GetNewDestination(GetNewDestination),
    GetAccessData(GetAccessData),
    UpdateSubscriberData(UpdateSubscriberData),
    UpdateLocation(UpdateLocation),
    InsertCallForwarding(InsertCallForwarding),
    DeleteCallForwarding(DeleteCallForwarding),
}

impl Request {
    /// Draws the class of the next transaction and its arguments.
    #[inline]
    pub(super) fn draw(parameters: &mut Parameters) -> Request {
        match parameters.class() {
            Class::GetSubscriberData => {
                Request::GetSubscriberData(GetSubscriberData { s_id: parameters.s_id() })
            }
            Class::GetNewDestination => {
                let (s_id, sf_type) = (parameters.s_id(), parameters.type_number());
                let (start_time, end_time) = (parameters.start_time(), parameters.end_time());
                Request::GetNewDestination(GetNewDestination { s_id, sf_type, start_time, end_time })
            }
            Class::GetAccessData => {
                let (s_id, ai_type) = (parameters.s_id(), parameters.type_number());
                Request::GetAccessData(GetAccessData { s_id, ai_type })
            }
            Class::UpdateSubscriberData => {
                let (s_id, bit) = (parameters.s_id(), parameters.bit());
                let (sf_type, data_a) = (parameters.type_number(), parameters.data_a());
                Request::UpdateSubscriberData(UpdateSubscriberData { s_id, bit, sf_type, data_a })
            }
            Class::UpdateLocation => {
                let (sub_nbr, vlr_location) = (sub_nbr(parameters.s_id()), parameters.location());
                Request::UpdateLocation(UpdateLocation { sub_nbr, vlr_location })
            }
            Class::InsertCallForwarding => {
                let (sub_nbr, sf_type) = (sub_nbr(parameters.s_id()), parameters.type_number());
                let (start_time, row) = (parameters.start_time(), parameters.forwarding());
                Request::InsertCallForwarding(InsertCallForwarding { sub_nbr, sf_type, start_time, row })
            }
            Class::DeleteCallForwarding => {
                let (sub_nbr, sf_type) = (sub_nbr(parameters.s_id()), parameters.type_number());
                let start_time = parameters.start_time();
                Request::DeleteCallForwarding(DeleteCallForwarding { sub_nbr, sf_type, start_time })
            }
        }
    }

    /// Returns its class.
    #[inline]
    pub(super) fn class(&self) -> Class {
        match self {
            Request::GetSubscriberData(_) => Class::GetSubscriberData,
            Request::GetNewDestination(_) => Class::GetNewDestination,
            Request::GetAccessData(_) => Class::GetAccessData,
            Request::UpdateSubscriberData(_) => Class::UpdateSubscriberData,
            Request::UpdateLocation(_) => Class::UpdateLocation,
            Request::InsertCallForwarding(_) => Class::InsertCallForwarding,
            Request::DeleteCallForwarding(_) => Class::DeleteCallForwarding,
        }
    }

    /// Returns the way to its home.
    #[inline]
    pub(super) fn home(&self, tables: &Tables) -> Route {
        match self {
            Request::GetSubscriberData(get) => get.home(&tables.subscriber),
            Request::GetNewDestination(get) => get.home(tables),
            Request::GetAccessData(get) => get.home(&tables.access_info),
            Request::UpdateSubscriberData(update) => update.home(tables),
            Request::UpdateLocation(update) => update.home(tables),
            Request::InsertCallForwarding(insert) => insert.home(tables),
            Request::DeleteCallForwarding(delete) => delete.home(tables),
        }
    }
}
