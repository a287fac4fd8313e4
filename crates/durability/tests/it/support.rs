//! Fixtures shared by the tests: small databases and parts, and the enumeration of crashes and faults.

use std::path::Path;

use atrapos_catalog::{
    ColumnDef, ColumnType, Definitions, ForeignKeyDef, IndexDef, IndexPart, KeyColumn, KeyPart, OnDelete,
    PrimaryKey, TableDef, TreeDef,
};
use atrapos_durability::checkpoint::{PartEncoder, PartId};
use atrapos_durability::file::{Fault, FaultKind, FileSystem, ModelFiles, Times};
use atrapos_durability::manifest::PartRecord;

/// A small part with four sections, one of them empty, as the bytes of its file.
pub(crate) fn small_part(id: PartId) -> (Vec<u8>, PartRecord) {
    let mut encoder = PartEncoder::new(id);
    encoder.begin_section(0, b"", Some(b"m"));
    for key in [&b""[..], b"ab", b"abc", b"l"] {
        encoder.push(key, 11, b"a row").expect("pushed");
    }
    encoder.begin_section(1, b"x", None);
    encoder.begin_section(0, b"m", None);
    for key in 0..20_u8 {
        encoder.push(&[b'm', key], u64::from(key) << 40, &vec![key; usize::from(key)]).expect("pushed");
    }
    encoder.begin_section(1, b"", Some(b"x"));
    encoder.push(&[b'a'; 200], u64::MAX, b"").expect("pushed");
    let finished = encoder.finish().expect("finished");
    (finished.pieces.concat(), finished.record)
}

/// Writes a whole file, durably.
pub(crate) fn write_file(fs: &ModelFiles, path: &Path, bytes: &[u8]) {
    let mut file = fs.create(path).expect("created");
    file.write_at(0, bytes).expect("written");
    file.sync().expect("synced");
    fs.sync_dir(path.parent().expect("it has one")).expect("synced");
}

/// Reads a whole file.
pub(crate) fn read_file(fs: &ModelFiles, path: &Path) -> Vec<u8> {
    let file = fs.open(path, false).expect("opened");
    let mut bytes = vec![0; file.len().expect("measured") as usize];
    let read = file.read_at(0, &mut bytes).expect("read");
    assert_eq!(read, bytes.len());
    bytes
}

/// A schema with a table, an index of it, and a foreign key, as the manifest of version 1 had it: without names in keys.
pub(crate) fn schema() -> Definitions {
    let number = ColumnType::Unsigned(8);
    let accounts = TableDef {
        name: "accounts".to_owned(),
        columns: vec![
            ColumnDef::new("#1", number),
            ColumnDef::new("owner", number),
            ColumnDef::new("balance", ColumnType::Signed(8)),
        ],
        key: PrimaryKey::Columns(vec![KeyColumn::ascending(0)]),
        family: "bank".to_owned(),
        read_only: false,
        splits: vec![vec![0x80], vec![0xc0, 1]],
    };
    let part = |name: &str| IndexPart::Computed { name: name.to_owned(), part: KeyPart::ascending(number) };
    let by_owner = IndexDef {
        name: "accounts_by_owner".to_owned(),
        of: 0,
        parts: vec![part("#1"), part("#2")],
        unique: false,
        family: "bank".to_owned(),
        splits: Vec::new(),
    };
    let foreign_key = ForeignKeyDef {
        child: 0,
        parent: 0,
        through: Some(1),
        enforced: true,
        on_delete: OnDelete::Restrict,
    };
    Definitions {
        trees: vec![TreeDef::Table(accounts), TreeDef::Index(by_owner)],
        foreign_keys: vec![foreign_key],
    }
}

/// Plays `script` on a fresh `base` with a crash at its first call to the file layer, then at the second, and so on until
/// it runs to its end, and hands what a killed process and several power cuts would leave to `check`, together with what the
/// script returned and words that say which crash it was.
pub(crate) fn crash_everywhere<T>(
    base: impl Fn() -> ModelFiles,
    script: impl Fn(&ModelFiles) -> Result<T, String>,
    check: impl Fn(ModelFiles, &Result<T, String>, &str),
) {
    for call in 1.. {
        let fs = base();
        fs.crash_at(call);
        let outcome = script(&fs);
        check(fs.kill(), &outcome, &format!("killed at call {call}"));
        for seed in 0..6 {
            check(fs.power_cut(seed), &outcome, &format!("power cut at call {call}, seed {seed}"));
        }
        if outcome.is_ok() {
            assert!(call > 3, "the script makes calls");
            return;
        }
    }
}

/// Plays `script` on a fresh `base` with every call to the file layer failing in turn, in every way, once and for good, and
/// hands what is left to `check` as [`crash_everywhere`] does. An error must name a file and its cause.
pub(crate) fn fail_everywhere<T>(
    base: impl Fn() -> ModelFiles,
    script: impl Fn(&ModelFiles) -> Result<T, String>,
    check: impl Fn(ModelFiles, &Result<T, String>, &str),
) {
    let calls = {
        let fs = base();
        let before = fs.calls();
        assert!(script(&fs).is_ok(), "without faults the script succeeds");
        fs.calls() - before
    };
    let mut errors = 0;
    for kind in [FaultKind::Eio, FaultKind::NoSpace, FaultKind::ShortWrite, FaultKind::SyncFails] {
        for times in [Times::Once, Times::Forever] {
            for call in 1..=calls {
                let fs = base();
                fs.set_fault(Fault { at: call, calls: None, kind, times });
                let outcome = script(&fs);
                if let Err(error) = &outcome {
                    errors += 1;
                    assert!(
                        error.contains("/db") || error.contains(" / ") || error.contains(" /:"),
                        "{error}"
                    );
                }
                let told = format!("{kind:?} at call {call}, {times:?}");
                check(fs.kill(), &outcome, &format!("{told}, killed"));
                for seed in 0..2 {
                    check(fs.power_cut(seed), &outcome, &format!("{told}, power cut with seed {seed}"));
                }
            }
        }
    }
    assert!(errors > calls, "faults are reported");
}
