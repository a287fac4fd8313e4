//! The transaction of TPC-B by its name.

use super::parameters::Request;
use super::procedures;
use super::schema::Tables;

atrapos::stored_procedures! {
    /// `AccountUpdate`, with the time that its entry of the history has. See [`account_update`](procedures::account_update). Its
    /// home is the teller's branch; the account is looked up on the way if it belongs to that branch, too.
    pub AccountUpdate("tpcb.account-update", "account-update") { request: Request, time_ns: u64 } -> i64;
    tables Tables: |db| Tables::of(db);
    home: |own, tables| if own.request.is_remote() {
        tables.branch.at(&own.request.b_id)
    } else {
        tables.account.at(&own.request.account)
    };
    stays_home: |own| !own.request.is_remote();
    run: |own, tx, tables| procedures::account_update(tx, *tables, own.request, own.time_ns);
}
