//! Decimal digits, eight at a time.
//!
//! Owns: the conversion. Never: knows the meaning of the number. A subscriber's number is part of every fourth
//! transaction of TATP, and one division per digit cost as much as half a look-up.

/// Returns the eight decimal digits of a number below 100,000,000, as text with leading zeros.
#[inline]
pub(crate) fn eight(number: u32) -> [u8; 8] {
    debug_assert!(number < 100_000_000, "{number} has more than eight digits");
    let number = u64::from(number);
    // Split in halves again and again, all parts at once, the first digits in the lowest bytes: two parts of four digits,
    // four of two, eight of one. `x * 10486 >> 20` is `x / 100` below 10,000, and `x * 103 >> 10` is `x / 10` below 100.
    let halves = (number / 10_000) | ((number % 10_000) << 32);
    let hundreds = ((halves * 10_486) >> 20) & 0x0000_007f_0000_007f;
    let pairs = hundreds | ((halves - hundreds * 100) << 16);
    let tens = ((pairs * 103) >> 10) & 0x000f_000f_000f_000f;
    let digits = tens | ((pairs - tens * 10) << 8);
    (digits | 0x3030_3030_3030_3030).to_le_bytes()
}

/// Returns the fifteen decimal digits of a number below 10^15, as text with leading zeros.
#[inline]
pub(crate) fn fifteen(number: u64) -> [u8; 15] {
    debug_assert!(number < 1_000_000_000_000_000, "{number} has more than fifteen digits");
    let (high, low) = (eight((number / 100_000_000) as u32), eight((number % 100_000_000) as u32));
    let mut digits = [0; 15];
    digits[..7].copy_from_slice(&high[1..]);
    digits[7..].copy_from_slice(&low);
    digits
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn every_pair_of_four_digits_is_right() {
        for number in 0..10_000 {
            assert_eq!(
                eight(number * 10_000 + (9_999 - number)),
                *format!("{number:04}{:04}", 9_999 - number).as_bytes()
            );
        }
        assert_eq!(&eight(99_999_999), b"99999999");
        assert_eq!(&fifteen(999_999_999_999_999), b"999999999999999");
    }

    proptest! {
        #[test]
        fn fifteen_digits_are_those_of_the_formatter(number in 0_u64..1_000_000_000_000_000) {
            prop_assert_eq!(fifteen(number).to_vec(), format!("{number:015}").into_bytes());
        }
    }
}
