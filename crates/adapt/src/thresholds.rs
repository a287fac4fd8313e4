//! Structures of thresholds, each made of one table: name, type, default, unit, and the values that make sense; and those of planning.
//!
//! Owns: the table's form, and the thresholds by which costs are estimated and schemes searched for. Never: applies them.
//!
//! Invariant: with values in these ranges no computation overflows, and memory stays bounded.

/// A number that a setting can have.
pub(crate) trait Number: Copy {
    fn to_f64(self) -> f64;
    fn from_f64(value: f64) -> Self;
}

impl Number for f64 {
    fn to_f64(self) -> f64 {
        self
    }

    fn from_f64(value: f64) -> f64 {
        value
    }
}

impl Number for u32 {
    fn to_f64(self) -> f64 {
        f64::from(self)
    }

    fn from_f64(value: f64) -> u32 {
        value.round() as u32
    }
}

/// Makes a structure of thresholds, its defaults, its settings by name and its check of one table. After `in` stands where it is in
/// [`ControllerSettings`](crate::ControllerSettings).
macro_rules! thresholds {
    (
        $(#[$of:meta])+ $structure:ident in |$settings:ident| $place:expr;
        $($(#[$doc:meta])+ $name:ident: $number:ty = $default:literal $unit:literal from $least:literal to $most:literal;)+
    ) => {
        $(#[$of])+
        #[derive(Debug, Clone, Copy, PartialEq, serde::Serialize, serde::Deserialize)]
        #[serde(deny_unknown_fields, default)]
        pub struct $structure {
            $(
                $(#[$doc])+
                #[doc = concat!("In ", $unit, ", from ", $least, " to ", $most, "; default ", $default, ".")]
                pub $name: $number,
            )+
        }

        impl Default for $structure {
            fn default() -> Self {
                Self::DEFAULT
            }
        }

        impl $structure {
            pub(crate) const DEFAULT: Self = Self { $($name: $default,)+ };

            /// Each of them by its name.
            pub(crate) const SETTINGS: &[$crate::controller::Setting] = &[$(
                $crate::controller::setting(
                    stringify!($name),
                    $unit,
                    |$settings| $crate::thresholds::Number::to_f64($place.$name),
                    |$settings, value| $place.$name = $crate::thresholds::Number::from_f64(value),
                )
                .between($least as f64, $most as f64),
            )+];

            /// Checks that the thresholds are in their ranges.
            ///
            /// # Errors
            /// [`$crate::AdaptError::Setting`] names the first that is out of its range.
            pub(crate) fn check(&self) -> Result<(), $crate::AdaptError> {
                $(
                    if !($least..=$most).contains(&self.$name) {
                        let cure = concat!("give it from ", $least, " to ", $most);
                        return Err($crate::AdaptError::Setting {
                            name: stringify!($name),
                            value: self.$name.to_string(),
                            cure,
                        });
                    }
                )+
                Ok(())
            }
        }
    };
}
pub(crate) use thresholds;

thresholds! {
    /// Thresholds of planning. What each is worth shows `experiment adapt-world --sensitivity`.
    Thresholds in |settings| settings.planning.thresholds;

    /// The greatest share of the load and of the synchronization that a quiet table has: its partitions are kept.
    quiet_max: f64 = 0.01 "share" from 0.0 to 1.0;
    /// The greatest load of a group of slices that are put together because they synchronize. Groups are dealt as they are, so that a worker has up to half
    /// of one too much, and no single slice can leave it without synchronizing.
    group_max: f64 = 0.25 "workers" from 0.0 to 1.0;
    /// The share of the work that [short annealing](crate::Annealing::Short) must save.
    annealed_min: f64 = 0.01 "share" from 0.0 to 1.0;
    /// The greatest share of the observed time that is taken for synchronization: the rest is left for the work.
    sync_share_max: f64 = 0.8 "share" from 0.0 to 0.99;
    /// Standard deviation of the factor by which the model is wrong about what distance costs, before a trace says so.
    premium_deviation: f64 = 0.5 "times" from 0.0 to 1000.0;
    /// The least that this factor can be.
    premium_min: f64 = 0.2 "times" from 0.0 to 1.0;
    /// The greatest.
    premium_max: f64 = 3.0 "times" from 1.0 to 1000.0;
    /// The fewest workers from which it is found.
    premium_workers: u32 = 4 "workers" from 3 to 65536;
}
