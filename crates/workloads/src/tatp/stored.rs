//! The transactions of TATP by their names.

use atrapos::TableRef;

use super::procedures::{self, Destinations};
use super::schema::{AccessInfo, AccessInfos, CallForwarding, Digits15, Subscriber, Subscribers, Tables};

atrapos::stored_procedures! {
    /// `GET_SUBSCRIBER_DATA`. See [`get_subscriber_data`](procedures::get_subscriber_data).
    pub GetSubscriberData("tatp.get-subscriber-data", "get-subscriber-data") { s_id: u64 } -> Option<Subscriber>;
    tables TableRef<Subscribers>: |db| db.table();
    home: |own, table| table.at(&own.s_id).reading();
    run: |own, tx, table| procedures::get_subscriber_data(tx, *table, own.s_id);

    /// `GET_NEW_DESTINATION`. See [`get_new_destination`](procedures::get_new_destination).
    pub GetNewDestination("tatp.get-new-destination", "get-new-destination") {
        s_id: u64, sf_type: u8, start_time: u8, end_time: u8
    } -> Destinations;
    tables Tables: |db| Tables::of(db);
    home: |own, tables| tables.special_facility.at(&(own.s_id, own.sf_type)).reading();
    run: |own, tx, tables|
        procedures::get_new_destination(tx, *tables, own.s_id, own.sf_type, own.start_time, own.end_time);

    /// `GET_ACCESS_DATA`. See [`get_access_data`](procedures::get_access_data).
    pub GetAccessData("tatp.get-access-data", "get-access-data") { s_id: u64, ai_type: u8 } -> Option<AccessInfo>;
    tables TableRef<AccessInfos>: |db| db.table();
    home: |own, table| table.at(&(own.s_id, own.ai_type)).reading();
    run: |own, tx, table| procedures::get_access_data(tx, *table, own.s_id, own.ai_type);

    /// `UPDATE_SUBSCRIBER_DATA`. See [`update_subscriber_data`](procedures::update_subscriber_data).
    pub UpdateSubscriberData("tatp.update-subscriber-data", "update-subscriber-data") {
        s_id: u64, bit: u8, sf_type: u8, data_a: u8
    } -> ();
    tables Tables: |db| Tables::of(db);
    home: |own, tables| tables.subscriber.at(&own.s_id);
    run: |own, tx, tables|
        procedures::update_subscriber_data(tx, *tables, own.s_id, own.bit, own.sf_type, own.data_a);

    /// `UPDATE_LOCATION`. See [`update_location`](procedures::update_location).
    pub UpdateLocation("tatp.update-location", "update-location") { sub_nbr: Digits15, vlr_location: u32 } -> bool;
    tables Tables: |db| Tables::of(db);
    home: |own, tables| tables.by_number.at(&own.sub_nbr);
    run: |own, tx, tables| procedures::update_location(tx, *tables, own.sub_nbr, own.vlr_location);

    /// `INSERT_CALL_FORWARDING`. See [`insert_call_forwarding`](procedures::insert_call_forwarding).
    pub InsertCallForwarding("tatp.insert-call-forwarding", "insert-call-forwarding") {
        sub_nbr: Digits15, sf_type: u8, start_time: u8, row: CallForwarding
    } -> bool;
    tables Tables: |db| Tables::of(db);
    home: |own, tables| tables.by_number.at(&own.sub_nbr);
    run: |own, tx, tables| procedures::insert_call_forwarding(
        tx, *tables, own.sub_nbr, own.sf_type, own.start_time, own.row.clone()
    );

    /// `DELETE_CALL_FORWARDING`. See [`delete_call_forwarding`](procedures::delete_call_forwarding).
    pub DeleteCallForwarding("tatp.delete-call-forwarding", "delete-call-forwarding") {
        sub_nbr: Digits15, sf_type: u8, start_time: u8
    } -> bool;
    tables Tables: |db| Tables::of(db);
    home: |own, tables| tables.by_number.at(&own.sub_nbr);
    run: |own, tx, tables|
        procedures::delete_call_forwarding(tx, *tables, own.sub_nbr, own.sf_type, own.start_time);
}
