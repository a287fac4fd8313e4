//! Unsigned integers of 384 bits: room for products and sums of numbers of 38 digits that are made small again by a division or a root.
//!
//! Owns: their arithmetic. Never: overflows silently.

use std::cmp::Ordering;

const LIMBS: usize = 6;

/// An unsigned integer; the limb of the least value comes first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Wide([u64; LIMBS]);

impl PartialOrd for Wide {
    fn partial_cmp(&self, other: &Wide) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Wide {
    fn cmp(&self, other: &Wide) -> Ordering {
        self.0.iter().rev().cmp(other.0.iter().rev())
    }
}

impl Wide {
    pub(crate) const ZERO: Wide = Wide([0; LIMBS]);

    /// The same number.
    pub(crate) fn of(number: u128) -> Wide {
        let mut wide = Wide::ZERO;
        (wide.0[0], wide.0[1]) = (number as u64, (number >> 64) as u64);
        wide
    }

    /// The product of two numbers.
    pub(crate) fn product(one: u128, other: u128) -> Wide {
        let (low, high) = (Wide::of(one).times(other as u64), Wide::of(one).times((other >> 64) as u64));
        let shifted = high.map(|high| {
            let mut shifted = Wide::ZERO;
            shifted.0[1..].copy_from_slice(&high.0[..LIMBS - 1]);
            shifted
        });
        // 256 bits have room in 384.
        low.zip(shifted).and_then(|(low, high)| low.plus(high)).unwrap_or(Wide::ZERO)
    }

    /// The sum, if it has room.
    pub(crate) fn plus(self, other: Wide) -> Option<Wide> {
        let (mut sum, mut carry) = (Wide::ZERO, false);
        for at in 0..LIMBS {
            let (part, first) = self.0[at].overflowing_add(other.0[at]);
            let (part, second) = part.overflowing_add(u64::from(carry));
            (sum.0[at], carry) = (part, first || second);
        }
        (!carry).then_some(sum)
    }

    /// The difference, if the other number is not greater.
    pub(crate) fn minus(self, other: Wide) -> Option<Wide> {
        let (mut rest, mut borrow) = (Wide::ZERO, false);
        for at in 0..LIMBS {
            let (part, first) = self.0[at].overflowing_sub(other.0[at]);
            let (part, second) = part.overflowing_sub(u64::from(borrow));
            (rest.0[at], borrow) = (part, first || second);
        }
        (!borrow).then_some(rest)
    }

    /// The number so many times, if it has room.
    pub(crate) fn times(self, factor: u64) -> Option<Wide> {
        let (mut product, mut carry) = (Wide::ZERO, 0_u128);
        for at in 0..LIMBS {
            let part = u128::from(self.0[at]) * u128::from(factor) + carry;
            (product.0[at], carry) = (part as u64, part >> 64);
        }
        (carry == 0).then_some(product)
    }

    /// The number times a power of ten, if it has room.
    pub(crate) fn times_ten_to(self, digits: u32) -> Option<Wide> {
        (0..digits).try_fold(self, |number, _| number.times(10))
    }

    /// The whole quotient and the rest of a division by a number that is not zero.
    pub(crate) fn divided(self, by: u64) -> (Wide, u64) {
        let (mut quotient, mut rest, by) = (Wide::ZERO, 0_u128, u128::from(by.max(1)));
        for at in (0..LIMBS).rev() {
            let part = rest << 64 | u128::from(self.0[at]);
            (quotient.0[at], rest) = ((part / by) as u64, part % by);
        }
        (quotient, rest as u64)
    }

    fn halved(self) -> Wide {
        let mut half = Wide::ZERO;
        for at in 0..LIMBS {
            let above = self.0.get(at + 1).copied().unwrap_or(0);
            half.0[at] = self.0[at] >> 1 | above << 63;
        }
        half
    }

    /// The nearest integer to the square root.
    pub(crate) fn root(self) -> Wide {
        let (mut rest, mut root, mut bit) = (self, Wide::ZERO, Wide::ZERO);
        bit.0[LIMBS - 1] = 1 << 62;
        while bit > rest {
            bit = bit.halved().halved();
        }
        while bit != Wide::ZERO {
            // Both are below a power of two that has room.
            let tried = root.plus(bit).unwrap_or(Wide::ZERO);
            root = root.halved();
            if let Some(less) = rest.minus(tried) {
                (rest, root) = (less, root.plus(bit).unwrap_or(Wide::ZERO));
            }
            bit = bit.halved().halved();
        }
        if rest > root { root.plus(Wide::of(1)).unwrap_or(root) } else { root }
    }

    /// The number, if it fits.
    pub(crate) fn to_u128(self) -> Option<u128> {
        let is_small = self.0[2..].iter().all(|limb| *limb == 0);
        is_small.then(|| u128::from(self.0[1]) << 64 | u128::from(self.0[0]))
    }

    /// The decimal digits.
    pub(crate) fn digits(self) -> String {
        const GROUP: u64 = 10_u64.pow(19);
        let (mut rest, mut groups) = (self, Vec::new());
        while rest != Wide::ZERO {
            let (quotient, group) = rest.divided(GROUP);
            groups.push(format!("{group:019}"));
            rest = quotient;
        }
        groups.reverse();
        let digits = groups.concat();
        let digits = digits.trim_start_matches('0');
        if digits.is_empty() { "0".to_owned() } else { digits.to_owned() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn products_quotients_and_roots_agree() {
        let most = u128::MAX;
        let square = Wide::product(most, most);
        assert_eq!(square.root().to_u128(), Some(most));
        let digits = "115792089237316195423570985008687907852589419931798687112530834793049593217025";
        assert_eq!(square.digits(), digits);
        assert_eq!(square.minus(Wide::of(1)).and_then(|less| less.root().to_u128()), Some(most));
        assert_eq!(square.to_u128(), None);
        assert_eq!(Wide::ZERO.minus(Wide::of(1)), None);
        assert_eq!(Wide::ZERO.digits(), "0");
        let (quotient, rest) = Wide::of(1000).times_ten_to(60).map(|number| number.divided(7)).unwrap();
        let again = quotient.times(7).and_then(|number| number.plus(Wide::of(rest.into()))).unwrap();
        assert_eq!(again.digits(), format!("1{}", "0".repeat(63)));
        assert_eq!(Wide::of(1).times_ten_to(116), None);
        for number in 0..200_u128 {
            let nearest = (number as f64).sqrt().round() as u128;
            assert_eq!(Wide::of(number).root().to_u128(), Some(nearest), "{number}");
        }
    }
}
