//! The settings of a connection: what `SET` changes, `SHOW` tells and drivers are reported.
//!
//! Owns: the list of settings, their values and which of them may change to what. Never: acts on one; who needs a setting
//! reads it. A setting that would change what statements do, and cannot, is refused.

use std::sync::Arc;
use std::time::Duration;

use crate::error::{SqlError, SqlState};

/// The version of PostgreSQL whose protocol and catalogs are spoken.
pub const SERVER_VERSION: &str = "17.0";
/// [`SERVER_VERSION`] as a number.
pub(crate) const SERVER_VERSION_NUM: &str = "170000";

/// The values that a setting may have.
#[derive(Clone, Copy, Debug)]
enum Accepts {
    /// Any text.
    Any,
    /// A fixed value: changing it is refused.
    Fixed,
    /// One of these, in any case; the first spelling is kept.
    OneOf(&'static [&'static str]),
    /// A time in milliseconds, or with a unit; 0 for no limit.
    Time,
}

struct Definition {
    name: &'static str,
    default: &'static str,
    accepts: Accepts,
    /// Set if a change is reported to the client at once.
    is_reported: bool,
    description: &'static str,
}

const fn setting(
    name: &'static str,
    default: &'static str,
    accepts: Accepts,
    is_reported: bool,
    description: &'static str,
) -> Definition {
    Definition { name, default, accepts, is_reported, description }
}

const ON_OFF: Accepts = Accepts::OneOf(&["on", "off", "true", "false", "1", "0", "yes", "no"]);
const ONLY_ON: Accepts = Accepts::OneOf(&["on", "true", "1", "yes"]);
const ONLY_OFF: Accepts = Accepts::OneOf(&["off", "false", "0", "no"]);
const ONLY_ZERO: Accepts = Accepts::OneOf(&["0", "0ms", "0s"]);
/// Every level is served by the strictest, as the standard allows.
const LEVELS: Accepts =
    Accepts::OneOf(&["serializable", "repeatable read", "read committed", "read uncommitted"]);

const IDLE_IN_TRANSACTION: &str = "idle_in_transaction_session_timeout";
const LOCK: &str = "lock_timeout";
const STATEMENT: &str = "statement_timeout";

/// All settings, in the order of their names.
const SETTINGS: [Definition; 42] = [
    setting("application_name", "", Accepts::Any, true, "Name of the program that uses the connection."),
    setting("backslash_quote", "safe_encoding", Accepts::Fixed, false, "Backslashes before quotes."),
    setting("bytea_output", "hex", Accepts::OneOf(&["hex"]), false, "Text of values of type bytea."),
    setting("check_function_bodies", "on", ON_OFF, false, "There are no functions to create."),
    setting(
        "client_encoding",
        "UTF8",
        Accepts::OneOf(&["UTF8", "UTF-8", "unicode"]),
        true,
        "Encoding of texts.",
    ),
    setting(
        "client_min_messages",
        "notice",
        Accepts::OneOf(&["notice", "warning", "error"]),
        false,
        "Least notices told.",
    ),
    setting(
        "DateStyle",
        "ISO, MDY",
        Accepts::OneOf(&["ISO, MDY", "ISO", "iso,mdy"]),
        true,
        "Texts of dates.",
    ),
    setting("default_table_access_method", "heap", Accepts::OneOf(&["heap"]), false, "Kind of tables."),
    setting(
        "default_tablespace",
        "",
        Accepts::OneOf(&["", "pg_default"]),
        false,
        "There are no tablespaces.",
    ),
    setting(
        "default_transaction_isolation",
        "serializable",
        LEVELS,
        false,
        "Every transaction is serializable.",
    ),
    setting("default_transaction_read_only", "off", ONLY_OFF, true, "Whether transactions may write."),
    setting(
        "extra_float_digits",
        "1",
        Accepts::OneOf(&["1", "0", "2", "3"]),
        false,
        "Numbers have their shortest texts.",
    ),
    setting(
        IDLE_IN_TRANSACTION,
        "0",
        Accepts::Time,
        false,
        "Time that an open transaction may wait for its client.",
    ),
    setting("in_hot_standby", "off", Accepts::Fixed, true, "This is no standby."),
    setting("integer_datetimes", "on", Accepts::Fixed, true, "Times are integers."),
    setting("IntervalStyle", "postgres", Accepts::OneOf(&["postgres"]), true, "There are no intervals yet."),
    setting("is_superuser", "on", Accepts::Fixed, true, "Whether the role is a superuser."),
    setting("lc_collate", "C", Accepts::Fixed, false, "Order of texts: byte by byte."),
    setting("lc_ctype", "C", Accepts::Fixed, false, "Classes of characters."),
    setting(
        "lc_messages",
        "C",
        Accepts::OneOf(&["C", "POSIX", "en_US.UTF-8", "C.UTF-8"]),
        false,
        "Language of messages.",
    ),
    setting(
        "lc_monetary",
        "C",
        Accepts::OneOf(&["C", "POSIX", "en_US.UTF-8", "C.UTF-8"]),
        false,
        "There is no type money.",
    ),
    setting(LOCK, "0", Accepts::Time, false, "Time that a statement may wait for a lock."),
    setting("max_identifier_length", "63", Accepts::Fixed, false, "Bytes of a name."),
    setting("max_index_keys", "32", Accepts::Fixed, false, "Parts of a key."),
    setting("role", "none", Accepts::Any, false, "Role that statements run as, if it is not the user."),
    setting("row_security", "off", ON_OFF, false, "There are no policies of rows."),
    setting("scram_iterations", "4096", Accepts::Fixed, true, "Iterations of new passwords."),
    setting("search_path", "\"$user\", public", Accepts::Any, true, "Schemas in which names are looked up."),
    setting("server_encoding", "UTF8", Accepts::Fixed, true, "Encoding of the database."),
    setting("server_version", SERVER_VERSION, Accepts::Fixed, true, "Version that is spoken."),
    setting(
        "server_version_num",
        SERVER_VERSION_NUM,
        Accepts::Fixed,
        false,
        "Version that is spoken, as a number.",
    ),
    setting("session_authorization", "", Accepts::Fixed, true, "User of the connection."),
    setting("standard_conforming_strings", "on", ONLY_ON, true, "Backslashes in texts are themselves."),
    setting(STATEMENT, "0", Accepts::Time, false, "Time that a statement may take."),
    setting("synchronous_commit", "on", ONLY_ON, false, "A commit is told of when it is durable."),
    setting("TimeZone", "UTC", Accepts::OneOf(&["UTC", "Etc/UTC", "GMT", "Z"]), true, "Zone of moments."),
    setting("transaction_isolation", "serializable", LEVELS, false, "Every transaction is serializable."),
    setting("transaction_read_only", "off", ONLY_OFF, false, "Whether the transaction may write."),
    setting("transaction_timeout", "0", ONLY_ZERO, false, "There is no such limit yet."),
    setting("work_mem", "4MB", Accepts::Any, false, "Not used: answers have a limit of their own."),
    setting("xmlbinary", "base64", Accepts::Fixed, false, "There is no type xml."),
    setting("xmloption", "content", Accepts::OneOf(&["content"]), false, "There is no type xml."),
];

/// A setting as `SHOW ALL` tells of it: name, value, description.
pub(crate) type Shown = (&'static str, String, &'static str);

/// The limits of time of a connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TimeLimits {
    /// The time that a statement may take: `statement_timeout`.
    pub statement: Option<Duration>,
    /// The time that a statement may wait for a lock: `lock_timeout`.
    pub lock: Option<Duration>,
    /// The time that an open transaction may wait for its client: `idle_in_transaction_session_timeout`.
    pub idle_in_transaction: Option<Duration>,
}

/// The settings of one connection.
#[derive(Clone, Debug)]
pub struct Settings {
    limits: TimeLimits,
    /// Shared with the clones that transactions and statements have, until a value changes.
    values: Arc<Vec<String>>,
    /// The values as they were when the connection began, to which `RESET` goes back.
    initial: Arc<Vec<String>>,
    changed: Vec<usize>,
}

impl Settings {
    /// The settings of a new connection of a user.
    #[must_use]
    pub fn new(user: &str) -> Settings {
        let mut values: Vec<String> = SETTINGS.iter().map(|setting| setting.default.to_owned()).collect();
        if let Some(at) = find("session_authorization") {
            user.clone_into(&mut values[at]);
        }
        let values = Arc::new(values);
        Settings { initial: Arc::clone(&values), values, changed: Vec::new(), limits: TimeLimits::default() }
    }

    /// The value of a setting, by its name in any case.
    ///
    /// # Errors
    /// When there is no such setting.
    pub fn get(&self, name: &str) -> Result<&str, SqlError> {
        find(name).map(|at| self.values[at].as_str()).ok_or_else(|| unknown(name))
    }

    /// The name of a setting as it is spelled.
    #[must_use]
    pub fn spelled(name: &str) -> Option<&'static str> {
        find(name).map(|at| SETTINGS[at].name)
    }

    /// Changes a setting.
    ///
    /// # Errors
    /// When there is no such setting, or it cannot have the value.
    pub fn set(&mut self, name: &str, value: &str) -> Result<(), SqlError> {
        let at = find(name).ok_or_else(|| unknown(name))?;
        let setting = &SETTINGS[at];
        let time;
        let value = match setting.accepts {
            Accepts::Any => value,
            Accepts::Time => {
                time = shown_time(milliseconds(setting.name, value)?);
                &time
            }
            Accepts::Fixed if value == self.values[at] => value,
            Accepts::Fixed => {
                return Err(SqlError::new(
                    SqlState::CANT_CHANGE_RUNTIME_PARAM,
                    format!("parameter \"{}\" cannot be changed", setting.name),
                ));
            }
            Accepts::OneOf(values) => {
                if !values.iter().any(|one| is_same(setting, one, value)) {
                    return Err(SqlError::unsupported(format!(
                        "the value \"{value}\" of the setting \"{}\"",
                        setting.name
                    ))
                    .hint(format!("It takes {}.", values.join(", "))));
                }
                canonical(setting, value)
            }
        };
        self.assign(at, value.to_owned());
        Ok(())
    }

    /// Sets what the client asked for when it connected; `RESET` goes back to it.
    ///
    /// # Errors
    /// As [`set`](Settings::set).
    pub fn set_initial(&mut self, name: &str, value: &str) -> Result<(), SqlError> {
        self.set(name, value)?;
        if let Some(at) = find(name) {
            Arc::make_mut(&mut self.initial)[at] = self.values[at].clone();
        }
        Ok(())
    }

    /// Tells of a value that only the connection changes.
    pub(crate) fn tell(&mut self, name: &str, value: &str) {
        if let Some(at) = find(name) {
            self.assign(at, value.to_owned());
            Arc::make_mut(&mut self.initial)[at] = self.values[at].clone();
        }
    }

    /// Goes back to the value that a setting had when the connection began.
    ///
    /// # Errors
    /// When there is no such setting.
    pub fn reset(&mut self, name: &str) -> Result<(), SqlError> {
        let at = find(name).ok_or_else(|| unknown(name))?;
        self.assign(at, self.initial[at].clone());
        Ok(())
    }

    /// Goes back to the values that all settings had when the connection began.
    pub fn reset_all(&mut self) {
        for at in 0..SETTINGS.len() {
            self.assign(at, self.initial[at].clone());
        }
    }

    fn assign(&mut self, at: usize, value: String) {
        if self.values[at] != value {
            Arc::make_mut(&mut self.values)[at] = value;
            self.note_limit(at);
            if SETTINGS[at].is_reported {
                self.changed.push(at);
            }
        }
    }

    /// Keeps a limit of time as one, for whoever enforces it at each statement.
    fn note_limit(&mut self, at: usize) {
        let limit = match SETTINGS[at].name {
            IDLE_IN_TRANSACTION => &mut self.limits.idle_in_transaction,
            LOCK => &mut self.limits.lock,
            STATEMENT => &mut self.limits.statement,
            _ => return,
        };
        let milliseconds = milliseconds(SETTINGS[at].name, &self.values[at]).unwrap_or(0);
        *limit = (milliseconds > 0).then(|| Duration::from_millis(milliseconds));
    }

    /// The limits of time.
    #[must_use]
    pub fn limits(&self) -> TimeLimits {
        self.limits
    }

    /// Goes back to values that a clone has kept, as at the end of a transaction that failed.
    pub(crate) fn restore(&mut self, before: &Settings) {
        for at in 0..SETTINGS.len() {
            self.assign(at, before.values[at].clone());
        }
    }

    /// All settings that a client is told of when it connects, with their values.
    pub fn reported(&self) -> impl Iterator<Item = (&'static str, &str)> {
        let all = SETTINGS.iter().zip(self.values.iter());
        all.filter(|(setting, _)| setting.is_reported).map(|(setting, value)| (setting.name, value.as_str()))
    }

    /// The reported settings that have changed since the last call, with their values: a ParameterStatus each.
    pub fn take_changes(&mut self) -> Vec<(&'static str, String)> {
        let changed = std::mem::take(&mut self.changed);
        changed.into_iter().map(|at| (SETTINGS[at].name, self.values[at].clone())).collect()
    }

    /// All settings.
    pub(crate) fn all(&self) -> impl Iterator<Item = Shown> {
        SETTINGS
            .iter()
            .zip(self.values.iter())
            .map(|(setting, value)| (setting.name, value.clone(), setting.description))
    }
}

/// Returns true if a value is one of a setting's. Of the names of encodings, letters and digits count.
fn is_same(setting: &Definition, one: &str, value: &str) -> bool {
    if setting.name != "client_encoding" {
        return one.eq_ignore_ascii_case(value);
    }
    let counts = |text: &str| text.chars().filter(char::is_ascii_alphanumeric).collect::<String>();
    counts(one).eq_ignore_ascii_case(&counts(value))
}

/// The spelling of a value that a setting keeps.
fn canonical<'a>(setting: &Definition, value: &'a str) -> &'a str {
    let lower = value.to_ascii_lowercase();
    match setting.name {
        "client_encoding" => "UTF8",
        "DateStyle" => "ISO, MDY",
        // Whatever is asked for, this is what there is.
        "transaction_isolation" | "default_transaction_isolation" => "serializable",
        _ => match lower.as_str() {
            "true" | "yes" | "1" if matches!(setting.accepts, Accepts::OneOf(values) if values.contains(&"on")) => {
                "on"
            }
            "false" | "no" | "0" if matches!(setting.accepts, Accepts::OneOf(values) if values.contains(&"off")) => {
                "off"
            }
            "0ms" | "0s" => "0",
            _ => value,
        },
    }
}

/// Units of time with their milliseconds, the longest first.
const UNITS: [(&str, u64); 5] =
    [("d", 86_400_000), ("h", 3_600_000), ("min", 60_000), ("s", 1000), ("ms", 1)];

/// The milliseconds of a time, a number of them or one with a unit.
fn milliseconds(name: &str, value: &str) -> Result<u64, SqlError> {
    let text = value.trim();
    let (number, unit) = text.split_at(text.bytes().take_while(u8::is_ascii_digit).count());
    let unit = unit.trim();
    let factor = if unit.is_empty() {
        Some(1)
    } else {
        UNITS.iter().find(|(known, _)| *known == unit).map(|(_, ms)| *ms)
    };
    let time = number.parse::<u64>().ok().zip(factor).and_then(|(number, factor)| number.checked_mul(factor));
    time.filter(|time| *time <= i32::MAX as u64).ok_or_else(|| {
        SqlError::new(
            SqlState::INVALID_PARAMETER_VALUE,
            format!("invalid value for parameter \"{name}\": \"{value}\""),
        )
        .hint("It takes milliseconds, or a whole number with a unit: \"ms\", \"s\", \"min\", \"h\" or \"d\".")
    })
}

/// A time with the longest unit of which it is a multiple.
fn shown_time(milliseconds: u64) -> String {
    let unit = UNITS.iter().find(|(_, unit)| milliseconds > 0 && milliseconds.is_multiple_of(*unit));
    unit.map_or_else(|| "0".to_owned(), |(name, unit)| format!("{}{name}", milliseconds / unit))
}

fn find(name: &str) -> Option<usize> {
    SETTINGS.iter().position(|setting| setting.name.eq_ignore_ascii_case(name))
}

#[cold]
fn unknown(name: &str) -> SqlError {
    SqlError::new(SqlState::UNDEFINED_OBJECT, format!("unrecognized configuration parameter \"{name}\""))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_units() {
        let mut settings = Settings::new("ann");
        for (given, shown) in [("0", "0"), ("250", "250ms"), ("5000", "5s"), ("2 min", "2min"), ("48h", "2d")]
        {
            settings.set("statement_timeout", given).unwrap();
            assert_eq!(settings.get("statement_timeout").unwrap(), shown);
        }
        assert_eq!(settings.limits().statement, Some(Duration::from_secs(48 * 3600)));
        assert_eq!(settings.limits().lock, None);
        for bad in ["", "-1", "5 apples", "s", "99999999999", "30d"] {
            assert_eq!(
                settings.set("lock_timeout", bad).unwrap_err().code,
                SqlState::INVALID_PARAMETER_VALUE,
                "{bad}"
            );
        }
        settings.reset("statement_timeout").unwrap();
        assert_eq!(settings.limits(), TimeLimits::default());
    }

    #[test]
    fn settings_change_to_what_they_accept() {
        let mut settings = Settings::new("ann");
        assert_eq!(settings.get("SESSION_authorization").unwrap(), "ann");
        settings.set("Application_Name", "x").unwrap();
        settings.set("client_encoding", "utf-8").unwrap();
        settings.set("client_encoding", "'Utf_8'").unwrap();
        assert_eq!(
            settings.set("client_encoding", "latin1").unwrap_err().code,
            SqlState::FEATURE_NOT_SUPPORTED
        );
        settings.set("transaction_isolation", "read committed").unwrap();
        assert_eq!(settings.get("transaction_isolation").unwrap(), "serializable");
        assert_eq!(settings.take_changes(), [("application_name", "x".to_owned())]);
        assert_eq!(settings.set("nothing", "1").unwrap_err().code, SqlState::UNDEFINED_OBJECT);
        assert_eq!(
            settings.set("transaction_timeout", "5").unwrap_err().code,
            SqlState::FEATURE_NOT_SUPPORTED
        );
        assert_eq!(
            settings.set("server_version", "5").unwrap_err().code,
            SqlState::CANT_CHANGE_RUNTIME_PARAM
        );
        settings.reset("application_name").unwrap();
        assert_eq!(settings.get("application_name").unwrap(), "");
        assert!(settings.reported().any(|(name, value)| name == "TimeZone" && value == "UTC"));
    }
}
