//! Property tests of the formats: what is written is read as it was, and no bytes make reading panic.

use proptest::prelude::*;

use super::*;

/// A type and a value of it.
fn typed_value() -> impl Strategy<Value = (SqlType, Value)> {
    let int = |ty: SqlType, least: i64, most: i64| (least..=most).prop_map(move |n| (ty, Value::Int(n)));
    let text = "[ -~äß€]{0,20}";
    let array = proptest::collection::vec(
        prop_oneof![Just(Value::Null), "[ -~,{}\"\\\\]{0,6}".prop_map(Value::from)],
        0..5,
    );
    prop_oneof![
        any::<bool>().prop_map(|value| (SqlType::Bool, Value::Bool(value))),
        int(SqlType::Int2, i16::MIN.into(), i16::MAX.into()),
        int(SqlType::Int4, i32::MIN.into(), i32::MAX.into()),
        int(SqlType::Int8, i64::MIN, i64::MAX),
        int(SqlType::Oid, 0, u32::MAX.into()),
        any::<f64>().prop_map(|number| (SqlType::Float8, Value::Float(number))),
        any::<f32>().prop_map(|number| (SqlType::Float4, Value::Float(number.into()))),
        (-(10_i128.pow(38) - 1)..10_i128.pow(38), 0_u8..=38)
            .prop_map(|(unscaled, scale)| (SqlType::Numeric, Value::Numeric(Numeric { unscaled, scale }))),
        text.prop_map(|text| (SqlType::Text, Value::from(text))),
        proptest::collection::vec(any::<u8>(), 0..20).prop_map(|b| (SqlType::Bytea, Value::Bytes(b.into()))),
        (-1_000_000..10_000_000).prop_map(|days| (SqlType::Date, Value::Date(days))),
        (0..=DAY).prop_map(|time| (SqlType::Time, Value::Time(time))),
        (-60_000 * DAY..1_000_000 * DAY).prop_map(|at| (SqlType::Timestamp, Value::Timestamp(at))),
        (-60_000 * DAY..1_000_000 * DAY).prop_map(|at| (SqlType::Timestamptz, Value::Timestamp(at))),
        any::<[u8; 16]>().prop_map(|uuid| (SqlType::Uuid, Value::Uuid(uuid))),
        array.prop_map(|elements| (SqlType::TextArray, Value::Array(elements.into()))),
    ]
}

proptest! {
    #[test]
    fn what_is_written_is_read_as_it_was((ty, value) in typed_value()) {
        for format in [Format::Text, Format::Binary] {
            let mut bytes = Vec::new();
            encode(&value, ty, format, &mut bytes);
            let back = decode(&bytes, ty, format);
            prop_assert_eq!(back.as_ref().ok(), Some(&value), "{:?} {:?} {:?}", ty, format, &bytes);
        }
    }

    #[test]
    fn no_bytes_make_reading_panic(bytes in proptest::collection::vec(any::<u8>(), 0..40)) {
        for ty in SqlType::all() {
            let _ = decode(&bytes, ty, Format::Text);
            let _ = decode(&bytes, ty, Format::Binary);
        }
    }

    #[test]
    fn no_text_makes_reading_panic(text in "[-0-9:.+TZ eE{},\"\\\\BC ]{0,24}") {
        for ty in SqlType::all() {
            let _ = parse(&text, ty);
        }
    }
}

#[test]
fn floats_are_written_as_postgresql_writes_them() {
    let shown = |number: f64| text_of(&Value::Float(number), SqlType::Float8);
    assert_eq!(shown(0.1), "0.1");
    assert_eq!(shown(1e15), "1e+15");
    assert_eq!(shown(123_456_789_012_345.0), "123456789012345");
    assert_eq!(shown(0.00001), "1e-05");
    assert_eq!(shown(-0.0001), "-0.0001");
    assert_eq!(shown(f64::NEG_INFINITY), "-Infinity");
    assert_eq!(text_of(&Value::Float(f64::from(0.1_f32)), SqlType::Float4), "0.1");
}

#[test]
fn moments_count_from_2000_in_binary() {
    let mut bytes = Vec::new();
    encode(
        &Value::Timestamp(i64::from(EPOCH_DAYS) * DAY + 1),
        SqlType::Timestamp,
        Format::Binary,
        &mut bytes,
    );
    assert_eq!(bytes, 1_i64.to_be_bytes());
}

#[test]
fn padding_is_taken_off_at_the_end_alone() {
    for text in ["", "a", " a b", "\u{e4}", "a\t"] {
        for spaces in 0..20 {
            assert_eq!(without_padding(&format!("{text}{}", " ".repeat(spaces))), text);
        }
    }
}
