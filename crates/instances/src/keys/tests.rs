//! Every key is read as it was written, and what divides no keys is refused by its name.

use atrapos::{Key, KeyPart, Table, row};

use super::*;

row! { #[derive(Clone)] pub(crate) struct Count { pub(crate) number: u64 } }

macro_rules! table {
    ($name:ident, $key:ty, $text:literal, $family:literal) => {
        struct $name;
        impl Table for $name {
            type Key = $key;
            type Row = Count;
            const NAME: &'static str = $text;
            const FAMILY: &'static str = $family;
        }
    };
}

table!(Counts, u64, "counts", "counts");
table!(Details, (u64, u8), "details", "counts");
table!(Names, [u8; 4], "names", "names");

fn schema() -> Schema {
    let schema = Schema::new().table::<Counts>().table::<Details>().table::<Names>();
    schema.split_evenly("counts", 0, 99)
}

fn bounds(from: &str, below: &str) -> KeyBounds {
    let end = |text: &str| (!text.is_empty()).then(|| text.to_owned());
    KeyBounds { from: end(from), below: end(below) }
}

/// The division of one family among instances, each with a first key and the first one after; no keys where both are "-".
fn divided(family: &str, ends: &[(&str, &str)]) -> Result<Division, String> {
    let of = |(from, below): &(&str, &str)| match *from {
        "-" => ChosenKeys::new(),
        _ => ChosenKeys::from([(family.to_owned(), bounds(from, below))]),
    };
    let keys: Vec<ChosenKeys> = ends.iter().map(of).collect();
    division(schema(), InstanceId(0), vec![1; ends.len()], &keys).map_err(|error| error.to_string())
}

#[test]
fn chosen_keys_become_ranges_in_whatever_order_the_instances_have_them() {
    let ranges = |cuts: &[u64], owners: &[u16]| {
        let cuts = cuts.iter().map(Key::encode).collect();
        KeyRanges::new(cuts, owners.iter().copied().map(InstanceId).collect()).expect("sound")
    };
    let of = |ends: &[(&str, &str)]| divided("counts", ends).expect("sound").ranges["counts"].clone();
    assert_eq!(of(&[("", "30"), ("30", "")]), ranges(&[30], &[0, 1]));
    assert_eq!(of(&[("30", ""), ("0", "10"), ("10", "30")]), ranges(&[10, 30], &[1, 2, 0]));
    assert_eq!(of(&[("-", "-"), ("", "")]), ranges(&[], &[1]));
    assert!(division(schema(), InstanceId(0), vec![1, 1], &[]).expect("sound").ranges.is_empty());
}

#[test]
fn keys_of_two_instances_or_of_none_are_refused() {
    for (ends, words) in [
        (
            &[("", "50"), ("40", "")][..],
            "instance 0 and instance 1 both have the keys counts from 40 below 50; give them to one of the two",
        ),
        (&[("", ""), ("40", "")], "instance 0 and instance 1 both have the keys counts from 40;"),
        (&[("", ""), ("", "")], "instance 0 and instance 1 both have the keys counts;"),
        (
            &[("20", "30"), ("", "90"), ("90", "")],
            "instance 1 and instance 0 both have the keys counts from 20 below 30;",
        ),
        (
            &[("", "40"), ("50", "")],
            "no instance has the keys counts from 40 below 50, between those of instance 0 and instance 1; give them to one",
        ),
        (&[("50", ""), ("1", "50")], "no instance has the keys counts below 1, before those of instance 1;"),
        (&[("", "40"), ("40", "99")], "no instance has the keys counts from 99, after those of instance 1;"),
        (&[("", "40"), ("40", "40")], "instance 1 has no keys of 'counts': from 40 below 40;"),
        (&[("", "0"), ("0", "")], "instance 0 has no keys of 'counts': from the smallest below 0;"),
        (&[("", "x"), ("0", "")], "the keys of 'counts' in instance 0 cannot be read: 'x' is no number"),
        (&[("", "-1"), ("0", "")], "'-1' is no number"),
        (&[("", "99999999999999999999"), ("0", "")], "instance 0 cannot be read"),
        (&[("", "0x0"), ("0", "")], "'0x0' is not the bytes of a value of type u64"),
        (&[("", "0x0102"), ("0", "")], "'0x0102' is not the bytes"),
    ] {
        let refused = divided("counts", ends).expect_err("refused");
        assert!(refused.contains(words) && !refused.contains('\n'), "{ends:?}: {refused}");
    }
    let refused = divided("details", &[("", "")]).expect_err("refused");
    assert!(refused.contains("'details' is divided with the tables of 'counts'"), "{refused}");
    let refused = divided("letters", &[("", "")]).expect_err("refused");
    assert!(refused.contains("no tables 'letters'") && refused.contains("counts, names"), "{refused}");
    let refused = divided("names", &[("", "abcd"), ("abcd", "")]).expect_err("refused");
    assert!(refused.contains("in quotes"), "{refused}");
    let refused = divided("names", &[("", "'abc'"), ("'abc'", "")]).expect_err("refused");
    assert!(refused.contains("'names' in instance 0 cannot be read"), "{refused}");
}

#[test]
fn a_key_is_read_as_it_was_written() {
    let field = |ty: ColumnType| KeyField { part: KeyPart::ascending(ty) };
    for (ty, text) in [
        (ColumnType::Unsigned(8), "0"),
        (ColumnType::Unsigned(8), "18446744073709551615"),
        (ColumnType::Unsigned(2), "300"),
        (ColumnType::Signed(4), "-5"),
        (ColumnType::Bytes(5), "'it's '"),
        (ColumnType::Bytes(2), "0x00ff"),
        (ColumnType::String, "'smith'"),
        (ColumnType::FixedStr(8), "'smith'"),
        (ColumnType::Bool, "0x01"),
    ] {
        let key = read(field(ty), text).expect("a key");
        assert_eq!(write(field(ty), &key), text, "{ty}");
    }
    assert_eq!(read(field(ColumnType::Unsigned(8)), "7").expect("a key"), 7_u64.encode());
    assert_eq!(read(field(ColumnType::Unsigned(8)), "0x0000000000000007").expect("a key"), 7_u64.encode());
}
