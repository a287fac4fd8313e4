//! What transactions may rely on, one property at a time.

use atrapos_baselines::lock::{KeyMode, KeyOrEnd, Lockable, TableMode};
use atrapos_partition::abort::AbortReason;
use atrapos_partition::schema::TableId;

use super::{TABLE, agents, crowded, key};

#[test]
fn a_scan_protects_its_gaps_and_nothing_else() {
    let manager = crowded(true);
    let [mut scan, mut other] = agents(&manager);
    scan.lock(TABLE, key(b"m"), KeyMode::READ | KeyMode::PROTECT).expect("nobody waits");
    scan.lock(TABLE, KeyOrEnd::End, KeyMode::PROTECT).expect("nobody waits");
    assert!(!other.try_lock(TABLE, key(b"m"), KeyMode::INSERT), "nothing is inserted below m");
    assert!(!other.try_lock(TABLE, KeyOrEnd::End, KeyMode::INSERT), "nothing is inserted behind m");
    assert!(!other.try_lock(TABLE, key(b"m"), KeyMode::WRITE), "m is not changed");
    assert!(other.try_lock(TABLE, key(b"m"), KeyMode::READ | KeyMode::PROTECT), "m is read");
    assert!(
        other.try_lock(TABLE, key(b"g"), KeyMode::WRITE | KeyMode::INSERT),
        "another gap is another lock"
    );
    scan.release_all();
    assert!(other.try_lock(TABLE, KeyOrEnd::End, KeyMode::INSERT));
}

#[test]
fn insertions_into_one_gap_go_together() {
    let manager = crowded(true);
    let [mut one, mut other, mut scan] = agents(&manager);
    for (agent, inserted) in [(&mut one, b"b"), (&mut other, b"c")] {
        agent.lock(TABLE, key(b"m"), KeyMode::INSERT).expect("nobody waits");
        let gap = agent.held(TABLE, key(b"m")).gap();
        agent.lock(TABLE, key(inserted), KeyMode::WRITE | gap).expect("nobody waits");
        assert_eq!(agent.held(TABLE, key(inserted)), KeyMode::READ | KeyMode::WRITE | KeyMode::INSERT);
    }
    assert!(!scan.try_lock(TABLE, key(b"b"), KeyMode::PROTECT), "the insertion of b may be undone");
    assert!(scan.try_lock(TABLE, key(b"m"), KeyMode::WRITE), "m itself has nothing to do with it");
}

#[test]
fn a_transaction_that_has_scanned_a_gap_keeps_its_protection_when_it_divides_it() {
    let manager = crowded(true);
    let [mut one, mut other] = agents(&manager);
    one.lock(TABLE, key(b"m"), KeyMode::READ | KeyMode::PROTECT).expect("nobody waits");
    one.lock(TABLE, key(b"m"), KeyMode::INSERT).expect("nobody waits");
    let gap = one.held(TABLE, key(b"m")).gap();
    one.lock(TABLE, key(b"d"), KeyMode::WRITE | gap).expect("nobody waits");
    assert!(!other.try_lock(TABLE, key(b"d"), KeyMode::INSERT), "what was scanned stays without phantoms");
    assert!(!other.try_lock(TABLE, key(b"m"), KeyMode::INSERT));
}

#[test]
fn a_lock_of_a_table_covers_its_keys() {
    let manager = crowded(true);
    let [mut one, mut other] = agents(&manager);
    one.lock_table(TABLE, TableMode::SIX).expect("nobody waits");
    one.lock(TABLE, key(b"a"), KeyMode::READ | KeyMode::PROTECT).expect("it has that");
    assert_eq!(one.key_locks(), 0, "the table's lock says it");
    assert_eq!(one.held(TABLE, key(b"a")), KeyMode::READ | KeyMode::PROTECT);
    one.lock(TABLE, key(b"a"), KeyMode::WRITE).expect("nobody waits");
    assert_eq!(one.key_locks(), 1);
    assert!(!other.try_lock(TABLE, key(b"z"), KeyMode::WRITE));
    assert!(other.try_lock(TABLE, key(b"z"), KeyMode::READ));
    assert!(!other.try_lock(TABLE, key(b"a"), KeyMode::READ));
    one.release_all();
    other.release_all();
    one.lock_database(TableMode::X).expect("nobody waits");
    one.lock(TABLE, key(b"a"), KeyMode::WRITE | KeyMode::INSERT).expect("it has that");
    assert_eq!(one.key_locks(), 0);
    assert!(!other.try_lock(TableId(9), key(b"z"), KeyMode::READ));
}

#[test]
fn a_lock_that_is_held_is_not_requested_again() {
    let manager = crowded(true);
    let [mut agent] = agents(&manager);
    agent.lock(TABLE, key(b"a"), KeyMode::WRITE).expect("nobody waits");
    let before = agent.counts();
    for _ in 0..10 {
        agent.lock(TABLE, key(b"a"), KeyMode::WRITE).expect("it has it");
        agent.lock(TABLE, key(b"a"), KeyMode::READ).expect("it has it");
    }
    assert_eq!(agent.counts(), before);
}

#[test]
fn locks_of_tables_are_inherited_until_somebody_needs_them() {
    let manager = crowded(true);
    let [mut one, mut other] = agents(&manager);
    for round in 0..5 {
        one.lock(TABLE, key(b"a"), KeyMode::WRITE).expect("nobody waits");
        one.release_all();
        one.begin(round);
    }
    assert_eq!(one.counts().acquired, 2 + 5, "the database and the table once, the key every time");
    assert_eq!(one.counts().reclaimed, 2 * 4);
    other.lock_table(TABLE, TableMode::S).expect("what is inherited is not in use");
    assert!(!one.try_lock(TABLE, key(b"a"), KeyMode::WRITE), "the table is read");
    assert!(one.try_lock(TABLE, key(b"a"), KeyMode::READ));
    other.release_all();
    assert!(one.try_lock(TABLE, key(b"a"), KeyMode::WRITE));
}

#[test]
fn an_inherited_lock_of_a_table_needs_its_intention_on_the_database() {
    let manager = crowded(true);
    let [mut one, mut other] = agents(&manager);
    one.lock(TABLE, key(b"a"), KeyMode::WRITE).expect("nobody waits");
    one.release_all();
    other.lock_database(TableMode::S).expect("what is inherited is not in use");
    other.release_all();
    one.begin(3);
    one.lock(TABLE, key(b"a"), KeyMode::READ).expect("nobody waits");
    one.lock(TABLE, key(b"a"), KeyMode::WRITE).expect("nobody waits");
    assert_eq!(one.held_table(None), Some(TableMode::IX), "the database was locked for a read");
    assert!(!other.start(Lockable::Database(TableMode::S)), "a row is being written");
}

#[test]
fn what_is_inherited_and_not_used_is_released() {
    let manager = crowded(true);
    let [mut one, mut other] = agents(&manager);
    one.lock_table(TableId(1), TableMode::IX).expect("nobody waits");
    one.release_all();
    for round in 0..100 {
        one.begin(round);
        one.lock_table(TableId(2), TableMode::IS).expect("nobody waits");
        one.release_all();
    }
    let acquired = one.counts().acquired;
    one.begin(100);
    one.lock_table(TableId(1), TableMode::IX).expect("nobody waits");
    assert_eq!(one.counts().acquired, acquired + 1, "the table's lock was gone, the database's was used");
    drop(one);
    other.lock_database(TableMode::X).expect("an agent that goes away leaves nothing");
}

#[test]
fn without_inheritance_nothing_is_kept() {
    let manager = crowded(false);
    let [mut one] = agents(&manager);
    for round in 0..3 {
        one.begin(round);
        one.lock_table(TABLE, TableMode::IS).expect("nobody waits");
        one.release_all();
    }
    assert_eq!((one.counts().acquired, one.counts().reclaimed), (6, 0));
}

#[test]
fn the_youngest_of_two_that_upgrade_gives_way() {
    let manager = crowded(true);
    let [mut old, mut young] = agents(&manager);
    let read = Lockable::Key(TABLE, key(b"a"), KeyMode::READ);
    let write = Lockable::Key(TABLE, key(b"a"), KeyMode::WRITE);
    assert!(old.start(read) && young.start(read));
    assert!(!old.start(write) && old.poll().is_none());
    assert!(!young.start(write));
    let abort = young.poll().expect("it is answered").expect_err("it is the youngest");
    assert_eq!(abort.reason(), AbortReason::Deadlock);
    assert!(old.poll().is_none(), "the victim holds its lock until it ends");
    young.release_all();
    assert_eq!(old.poll(), Some(Ok(())));
    assert_eq!((young.counts().victims, old.counts().victims), (1, 0));
}

#[test]
fn a_waiting_transaction_may_end() {
    let manager = crowded(true);
    let [mut one, mut waiting, mut behind] = agents(&manager);
    let lock = |mode| Lockable::Key(TABLE, key(b"a"), mode);
    assert!(one.start(lock(KeyMode::READ)));
    assert!(!waiting.start(lock(KeyMode::WRITE)));
    assert!(!behind.start(lock(KeyMode::READ)), "it does not overtake");
    waiting.release_all();
    assert_eq!(behind.poll(), Some(Ok(())), "nobody is ahead any more");
    drop(waiting);
    one.release_all();
    assert!(!one.start(lock(KeyMode::WRITE)));
    drop(behind);
    assert_eq!(one.poll(), Some(Ok(())), "an agent that goes away leaves nothing");
}
