//! Tables that are known as types of Rust are the same tables, byte for byte, as those that are known by their definition.

use std::cmp::Reverse;

use atrapos_catalog::{ColumnDef, KeyCodec, KeyField, RowLayout, Value};
use atrapos_storage::{Date, Decimal, Field, FixedStr, Key, Row, Timestamp, Uuid, row};
use proptest::prelude::*;

use crate::support::config;

/// Values of Rust as [`Value`]s.
trait AsValue {
    fn as_value(&self) -> Value;
}

macro_rules! as_value {
    ($($ty:ty: $value:ident => $as:expr;)*) => {$(
        impl AsValue for $ty {
            fn as_value(&self) -> Value {
                let $value = self;
                $as
            }
        }
    )*};
}

as_value! {
    u8: it => Value::Unsigned((*it).into());
    u16: it => Value::Unsigned((*it).into());
    u32: it => Value::Unsigned((*it).into());
    u64: it => Value::Unsigned((*it).into());
    u128: it => Value::Unsigned(*it);
    i8: it => Value::Signed((*it).into());
    i16: it => Value::Signed((*it).into());
    i32: it => Value::Signed((*it).into());
    i64: it => Value::Signed((*it).into());
    i128: it => Value::Signed(*it);
    f64: it => Value::F64(*it);
    bool: it => Value::Bool(*it);
    String: it => Value::Text(it.clone());
    Vec<u8>: it => Value::Bytes(it.clone());
    [u8; 5]: it => Value::Bytes(it.to_vec());
    FixedStr<7>: it => Value::Text(it.as_str().to_owned());
    Date: it => Value::Date(it.0);
    Timestamp: it => Value::Timestamp(it.0);
    Uuid: it => Value::Uuid(it.0);
}

impl<const P: u8, const S: u8> AsValue for Decimal<P, S> {
    fn as_value(&self) -> Value {
        Value::Decimal { unscaled: self.unscaled(), scale: S }
    }
}

impl<T: AsValue> AsValue for Option<T> {
    fn as_value(&self) -> Value {
        self.as_ref().map_or(Value::Null, AsValue::as_value)
    }
}

fn codec<K: Key>() -> KeyCodec {
    KeyCodec::new(K::parts().into_iter().map(|part| KeyField { part }).collect())
}

fn text() -> impl Strategy<Value = String> {
    "[\u{0}\u{1}ab\u{e9}]{0,5}"
}

fn fixed() -> impl Strategy<Value = FixedStr<7>> {
    "[a-z]{0,7}".prop_map(|text| FixedStr::new(&text).expect("at most seven letters"))
}

fn byte_string() -> impl Strategy<Value = Vec<u8>> {
    proptest::collection::vec(prop_oneof![Just(0_u8), any::<u8>()], 0..6)
}

fn decimal<const P: u8, const S: u8>() -> impl Strategy<Value = Decimal<P, S>> {
    let bound = 10_i128.pow(u32::from(P));
    prop_oneof![Just(1 - bound), Just(bound - 1), 1 - bound..bound, -9..10_i128]
        .prop_map(|digits| Decimal::new(digits).expect("below the bound"))
}

fn date() -> impl Strategy<Value = Date> {
    any::<i32>().prop_map(Date)
}

fn timestamp() -> impl Strategy<Value = Timestamp> {
    any::<i64>().prop_map(Timestamp)
}

fn uuid() -> impl Strategy<Value = Uuid> {
    any::<[u8; 16]>().prop_map(Uuid)
}

/// Zero has one sign in a key, and what is not a number one form.
fn number() -> impl Strategy<Value = f64> {
    any::<f64>().prop_filter("not a negative zero", |number| number.to_bits() != (-0.0_f64).to_bits())
}

macro_rules! same_keys {
    ($($name:ident: $ty:ty, $strategy:expr;)*) => {
        proptest! {
            #![proptest_config(config(128))]
            $(#[test]
            fn $name(key in $strategy) {
                let values = [key.as_value()];
                let typed = key.encode();
                prop_assert_eq!(&codec::<$ty>().encode(&values).expect("fits"), &typed);
                prop_assert_eq!(codec::<$ty>().decode(&typed).expect("sound"), values.clone());
                let descending = Reverse(key).encode();
                prop_assert_eq!(&codec::<Reverse<$ty>>().encode(&values).expect("fits"), &descending);
            })*
        }
    };
}

same_keys! {
    u8_keys: u8, any::<u8>();
    u16_keys: u16, any::<u16>();
    u32_keys: u32, any::<u32>();
    u64_keys: u64, any::<u64>();
    u128_keys: u128, any::<u128>();
    i8_keys: i8, any::<i8>();
    i16_keys: i16, any::<i16>();
    i32_keys: i32, any::<i32>();
    i64_keys: i64, any::<i64>();
    i128_keys: i128, any::<i128>();
    bool_keys: bool, any::<bool>();
    text_keys: String, text();
    byte_string_keys: Vec<u8>, byte_string();
    array_keys: [u8; 5], any::<[u8; 5]>();
    fixed_text_keys: FixedStr<7>, fixed();
    number_keys: f64, number();
    date_keys: Date, date();
    timestamp_keys: Timestamp, timestamp();
    uuid_keys: Uuid, uuid();
    small_decimal_keys: Decimal<9, 2>, decimal::<9, 2>();
    decimal_keys: Decimal<18, 0>, decimal::<18, 0>();
    large_decimal_keys: Decimal<38, 10>, decimal::<38, 10>();
    optional_number_keys: Option<i16>, any::<Option<i16>>();
    optional_text_keys: Option<String>, proptest::option::of(text());
    optional_decimal_keys: Option<Decimal<18, 0>>, proptest::option::of(decimal::<18, 0>());
}

proptest! {
    #![proptest_config(config(256))]

    #[test]
    fn keys_of_many_parts_are_the_same(a in any::<u16>(), b in text(), c in any::<i64>(), d in fixed(), e in any::<bool>()) {
        let key = (a, (b.clone(), Reverse((c, d))), e);
        type Parts = (u16, (String, Reverse<(i64, FixedStr<7>)>), bool);
        let values = [a.as_value(), b.as_value(), c.as_value(), d.as_value(), e.as_value()];
        prop_assert_eq!(codec::<Parts>().encode(&values).expect("fits"), key.encode());
    }

    #[test]
    fn keys_with_nulls_are_the_same(a in any::<Option<u16>>(), b in proptest::option::of(text()), c in any::<i64>()) {
        let key = (a, Reverse((b.clone(), c)), Reverse(a));
        type Parts = (Option<u16>, Reverse<(Option<String>, i64)>, Reverse<Option<u16>>);
        let values = [a.as_value(), b.as_value(), c.as_value(), a.as_value()];
        prop_assert_eq!(&codec::<Parts>().encode(&values).expect("fits"), &key.encode());
        prop_assert_eq!(Parts::decode(&key.encode()), Ok(key));
    }
}

row! {
    /// Every type of a field.
    #[derive(Clone, Debug, PartialEq)]
    struct Wide {
        a: u8,
        b: u16,
        text: String,
        c: u32,
        d: u64,
        e: i8,
        f: i16,
        bytes: Vec<u8>,
        g: i32,
        h: i64,
        i: f64,
        j: bool,
        k: [u8; 5],
        l: FixedStr<7>,
        m: u128,
        n: i128,
    }
}

fn values_of(row: &Wide) -> Vec<Value> {
    let Wide { a, b, text, c, d, e, f, bytes, g, h, i, j, k, l, m, n } = row;
    let first = [a.as_value(), b.as_value(), text.as_value(), c.as_value(), d.as_value(), e.as_value()];
    let second = [f.as_value(), bytes.as_value(), g.as_value(), h.as_value(), i.as_value(), j.as_value()];
    let third = [k.as_value(), l.as_value(), m.as_value(), n.as_value()];
    first.into_iter().chain(second).chain(third).collect()
}

fn wide() -> impl Strategy<Value = Wide> {
    let numbers =
        (any::<u8>(), any::<u16>(), any::<u32>(), any::<u64>(), any::<i8>(), any::<i16>(), any::<i32>());
    let rest = (any::<i64>(), any::<f64>(), any::<bool>(), any::<[u8; 5]>(), fixed(), any::<(u128, i128)>());
    (numbers, rest, text(), byte_string()).prop_map(
        |((a, b, c, d, e, f, g), (h, i, j, k, l, (m, n)), text, bytes)| Wide {
            a,
            b,
            text,
            c,
            d,
            e,
            f,
            bytes,
            g,
            h,
            i,
            j,
            k,
            l,
            m,
            n,
        },
    )
}

row! {
    /// More columns that may be NULL than one byte has bits for, among others.
    #[derive(Clone, Debug, PartialEq)]
    struct Sparse {
        a: Option<u8>,
        text: Option<String>,
        b: i32,
        day: Option<Date>,
        moment: Option<Timestamp>,
        id: Option<Uuid>,
        small: Decimal<9, 2>,
        price: Option<Decimal<18, 0>>,
        more: String,
        bytes: Option<Vec<u8>>,
        flag: Option<bool>,
        name: Option<FixedStr<7>>,
        large: Option<Decimal<38, 10>>,
    }
}

fn values_of_sparse(row: &Sparse) -> Vec<Value> {
    let Sparse { a, text, b, day, moment, id, small, price, more, bytes, flag, name, large } = row;
    let first = [a.as_value(), text.as_value(), b.as_value(), day.as_value(), moment.as_value()];
    let second = [id.as_value(), small.as_value(), price.as_value(), more.as_value(), bytes.as_value()];
    let third = [flag.as_value(), name.as_value(), large.as_value()];
    first.into_iter().chain(second).chain(third).collect()
}

fn sparse() -> impl Strategy<Value = Sparse> {
    use proptest::option::of;
    let first = (any::<Option<u8>>(), of(text()), any::<i32>(), of(date()), of(timestamp()), of(uuid()));
    let second = (decimal(), of(decimal()), text(), of(byte_string()), any::<Option<bool>>(), of(fixed()));
    (first, second, of(decimal())).prop_map(
        |((a, text, b, day, moment, id), (small, price, more, bytes, flag, name), large)| Sparse {
            a,
            text,
            b,
            day,
            moment,
            id,
            small,
            price,
            more,
            bytes,
            flag,
            name,
            large,
        },
    )
}

row! {
    /// A row of few bytes, so that bytes at random are one now and then.
    #[derive(Clone, Debug, PartialEq)]
    struct Tiny {
        a: Option<u8>,
        b: Option<String>,
        c: u8,
    }
}

fn layout<R: Row>() -> RowLayout {
    let columns: Vec<ColumnDef> = R::COLUMNS
        .iter()
        .map(|column| ColumnDef { nullable: column.nullable, ..ColumnDef::new(column.name, column.ty) })
        .collect();
    RowLayout::new(&columns)
}

proptest! {
    #![proptest_config(config(256))]

    #[test]
    fn rows_are_the_same(row in wide()) {
        let mut typed = Vec::new();
        row.encode(&mut typed);
        let mut by_definition = Vec::new();
        layout::<Wide>().encode(&values_of(&row), &mut by_definition).expect("fits");
        prop_assert_eq!(&by_definition, &typed);
        prop_assert_eq!(layout::<Wide>().decode(&typed).expect("sound"), values_of(&row));
    }

    #[test]
    fn rows_with_nulls_are_the_same(row in sparse()) {
        // What is overwritten leaves nothing behind.
        let mut typed = vec![0xff; row.encoded_len()];
        row.write(&mut typed);
        let mut by_definition = Vec::new();
        layout::<Sparse>().encode(&values_of_sparse(&row), &mut by_definition).expect("fits");
        prop_assert_eq!(&by_definition, &typed);
        prop_assert_eq!(layout::<Sparse>().decode(&typed).expect("sound"), values_of_sparse(&row));
        prop_assert_eq!(Sparse::decode(&typed), Ok(row));
    }

    #[test]
    fn bytes_are_a_row_with_nulls_to_both_or_to_none(bytes in proptest::collection::vec(0_u8..6, 4..7)) {
        let typed = Tiny::decode(&bytes).map(|row| vec![row.a.as_value(), row.b.as_value(), row.c.as_value()]).ok();
        prop_assert_eq!(layout::<Tiny>().decode(&bytes).ok(), typed);
    }

    #[test]
    fn bytes_are_a_row_to_both_or_to_none(bytes in proptest::collection::vec(0_u8..3, 60..120)) {
        let typed = Wide::decode(&bytes).map(|row| values_of(&row)).ok();
        prop_assert_eq!(layout::<Wide>().decode(&bytes).ok(), typed);
    }
}

#[test]
fn fields_say_the_width_that_they_have() {
    assert_eq!(Some(<u128 as Field>::WIDTH), u128::TYPE.width());
    assert_eq!(Some(<FixedStr<7> as Field>::WIDTH), FixedStr::<7>::TYPE.width());
    assert_eq!(<String as Field>::TYPE.width(), None);
    assert_eq!(Some(<Option<Decimal<10, 2>> as Field>::WIDTH), Decimal::<10, 2>::TYPE.width());
    assert_eq!((Tiny::NULLABLE, Tiny::FIXED_BYTES), (2, 3));
    assert_eq!((Sparse::NULLABLE, Wide::NULLABLE), (10, 0));
    assert_eq!(Sparse::FIXED_BYTES, 1 + 4 + 4 + 8 + 16 + 4 + 8 + 1 + 7 + 16 + 2);
}

#[test]
fn long_values_are_the_same() {
    for len in [65_534, 65_535, 65_536, 1 << 20] {
        let row = Tiny { a: None, b: Some("x".repeat(len)), c: 7 };
        let mut typed = Vec::new();
        row.encode(&mut typed);
        let values = [Value::Null, row.b.as_value(), Value::Unsigned(7)];
        let mut by_definition = Vec::new();
        layout::<Tiny>().encode(&values, &mut by_definition).expect("fits");
        assert!(by_definition == typed, "{len}");
        assert!(layout::<Tiny>().decode(&typed).expect("sound") == values, "{len}");
        assert!(Tiny::decode(&typed) == Ok(row), "{len}");
    }
}
