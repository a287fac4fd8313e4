//! [`Uuid`]: a universally unique identifier.

use std::fmt;

/// A universally unique identifier: sixteen bytes, in the order in which they are shown. Who makes one is the program's business.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Uuid(pub [u8; 16]);

/// Shows a UUID as `01234567-89ab-cdef-0123-456789abcdef`.
impl fmt::Display for Uuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, byte) in self.0.iter().enumerate() {
            if matches!(at, 4 | 6 | 8 | 10) {
                f.write_str("-")?;
            }
            write!(f, "{byte:02x}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_shown_in_groups() {
        let bytes: [u8; 16] = std::array::from_fn(|at| at as u8 * 17);
        assert_eq!(Uuid(bytes).to_string(), "00112233-4455-6677-8899-aabbccddeeff");
    }
}
