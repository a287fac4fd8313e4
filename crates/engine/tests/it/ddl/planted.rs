//! Mistakes in statements that the tests notice.

use atrapos::planted::{Bug, with};

use super::fixture::{Held, empty};

#[test]
fn a_drop_that_waits_for_nobody_is_noticed() {
    let db = empty();
    let held = Held::begin(&db);
    with(Bug::TableNotDrained, || db.drop_table("people")).unwrap();
    assert!(!held.has_ended(), "a planted bug was not noticed");
}
