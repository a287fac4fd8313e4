//! Files that were cut or changed behind the engine's back: a torn tail is cut, damage is refused, and nothing wrong is read.

use std::path::Path;

use atrapos_baselines::Engine;
use atrapos_baselines::durable::StoreError;
use atrapos_durability::directory::DirectoryError;
use atrapos_durability::file::{FileSystem, ModelFiles};

use super::{create, open};
use crate::engines::{ENGINES, MakeEngine, Numbers, TABLE, load, put, rows};

const LOG: &str = "/shared/log";
const POPULATION: &str = "/shared/population";
const TRANSACTIONS: u64 = 5;

/// The files of a database with a few transactions, and the states after each of them.
fn database(make: MakeEngine) -> (ModelFiles, Vec<Numbers>) {
    let files = ModelFiles::new();
    let engine = make();
    load(&*engine, TABLE, [(3, 1), (4, 1)]);
    let engine = create(engine, &files).expect("files do not fail");
    let mut states = vec![rows(&engine, TABLE)];
    for number in 0..TRANSACTIONS {
        let ended = engine.client().attempt(&mut |tx| put(tx, TABLE, number, number + 10));
        assert_eq!(ended, Ok(()));
        states.push(rows(&engine, TABLE));
    }
    drop(engine);
    // An opening leaves nothing behind the last record.
    drop(open(make, &files).expect("files do not fail"));
    (files, states)
}

fn length(files: &ModelFiles, path: &str) -> usize {
    let file = files.open(Path::new(path), false).expect("it is there");
    usize::try_from(file.len().expect("it has a length")).expect("it is short")
}

/// Opens files of which one was changed; returns the number of transactions that came back (`usize::MAX` if it is no state that
/// ever was), or the refusal.
fn changed(
    make: MakeEngine,
    (files, states): &(ModelFiles, Vec<Numbers>),
    path: &str,
    change: impl FnOnce(&mut Vec<u8>),
) -> Result<usize, StoreError> {
    let files = files.kill();
    files.corrupt(Path::new(path), change).expect("it is there");
    let engine = open(make, &files)?;
    let found = rows(&engine, TABLE);
    Ok(states.iter().position(|state| *state == found).unwrap_or(usize::MAX))
}

/// Cuts the log at every byte. Fails with what comes back wrongly.
fn cuts_are_torn_tails(make: MakeEngine) -> Result<(), String> {
    let database = database(make);
    let length = length(&database.0, LOG);
    let mut last = 0;
    for cut in 40..=length {
        let found =
            changed(make, &database, LOG, |bytes| bytes.truncate(cut)).map_err(|error| error.to_string())?;
        if !(last..=last + 1).contains(&found) {
            return Err(format!(
                "{found} transactions came back after a cut at {cut}, {last} at the byte before"
            ));
        }
        last = found;
    }
    if last == TRANSACTIONS as usize { Ok(()) } else { Err(format!("only {last} transactions came back")) }
}

#[test]
fn a_log_that_is_cut_comes_back_up_to_there() {
    for make in ENGINES {
        cuts_are_torn_tails(make).unwrap_or_else(|wrong| panic!("{}: {wrong}", make().name()));
    }
}

/// Changes a bit of each byte of the log. Fails with what comes back wrongly.
fn changed_bits_are_noticed(make: MakeEngine) -> Result<(), String> {
    let database = database(make);
    let length = length(&database.0, LOG);
    let (mut refused, mut cut) = (0, 0);
    for byte in 0..length {
        match changed(make, &database, LOG, |bytes| bytes[byte] ^= 1 << (byte % 8)) {
            // Padding.
            Ok(found) if found == TRANSACTIONS as usize => {}
            // The last frame may be torn, and no other one.
            Ok(found) if found == TRANSACTIONS as usize - 1 => cut += 1,
            Ok(found) => return Err(format!("{found} transactions came back with byte {byte} changed")),
            Err(StoreError::Directory(DirectoryError::Damaged { .. })) => refused += 1,
            Err(error) => return Err(format!("byte {byte} changed: {error}")),
        }
    }
    assert!(refused > length / 2 && cut > 40, "{refused} refusals and {cut} torn tails in {length} bytes");
    Ok(())
}

#[test]
fn a_changed_bit_of_the_log_is_refused_or_cut_off() {
    for make in ENGINES {
        changed_bits_are_noticed(make).unwrap_or_else(|wrong| panic!("{}: {wrong}", make().name()));
    }
}

#[test]
fn a_changed_population_is_refused() {
    for make in ENGINES {
        let database = database(make);
        let length = length(&database.0, POPULATION);
        let mut refused = 0;
        for byte in 0..length {
            match changed(make, &database, POPULATION, |bytes| bytes[byte] ^= 1 << (byte % 8)) {
                Ok(found) => assert_eq!(found, TRANSACTIONS as usize, "byte {byte}"),
                Err(_) => refused += 1,
            }
            let cut = changed(make, &database, POPULATION, |bytes| bytes.truncate(byte));
            assert!(cut.is_err(), "a population of {byte} bytes instead of {length} was accepted");
        }
        // What is left are zeros to multiples of eight.
        assert!(refused > length * 3 / 4, "{refused} of {length}");
    }
}

#[test]
fn files_of_another_database_are_refused() {
    for make in ENGINES {
        let (files, other) = (database(make).0, database(make).0);
        let mut bytes = vec![0; length(&other, LOG)];
        let log = other.open(Path::new(LOG), false).expect("it is there");
        log.read_at(0, &mut bytes).expect("it can be read");
        files.corrupt(Path::new(LOG), |mine| *mine = bytes).expect("it is there");
        let refused = open(make, &files).expect_err("it is refused").to_string();
        assert!(refused.contains("another database") && refused.contains(LOG), "{refused}");
        files.remove(Path::new(LOG)).expect("it is there");
        assert!(open(make, &files).expect_err("it is refused").to_string().contains(LOG));
    }
}

#[cfg(debug_assertions)]
#[test]
fn planted_bugs_are_caught() {
    use atrapos_baselines::planted::{Bug, with};
    for make in ENGINES {
        assert!(with(Bug::TornTailAccepted, || changed_bits_are_noticed(make)).is_err());
    }
}
