//! Functions of regular expressions.
//!
//! Owns: which matches there are, and what is made of them. Never: matches by itself; `regex-lite` does, whose grammar is not all of
//! PostgreSQL's (`docs/sql.md`).

use regex_lite::{Captures, Regex, RegexBuilder};

use super::texts::bounded;
use super::{Function, int, invalid_parameter, strict, text};
use crate::error::{SqlError, SqlState};
use crate::types::SqlType::{Bool, Int4, Text, TextArray};
use crate::value::Value;

pub(super) static FUNCTIONS: &[Function] = &[
    strict("textregexeq", &[Text, Text], Bool, |_, a| like(a, "")),
    strict("texticregexeq", &[Text, Text], Bool, |_, a| like(a, "i")),
    strict("regexp_like", &[Text, Text], Bool, |_, a| like(a, "")),
    strict("regexp_like", &[Text, Text, Text], Bool, |_, a| like(a, of_one(text(a, 2), "regexp_like()")?)),
    strict("regexp_replace", &[Text, Text, Text], Text, |_, a| replace(a, "")),
    strict("regexp_replace", &[Text, Text, Text, Text], Text, |_, a| replace(a, text(a, 3))),
    strict("regexp_match", &[Text, Text], TextArray, |_, a| first_groups(a, "")),
    strict("regexp_match", &[Text, Text, Text], TextArray, |_, a| {
        first_groups(a, of_one(text(a, 2), "regexp_match()")?)
    }),
    strict("regexp_matches", &[Text, Text], TextArray, |_, a| all_groups(a, "")),
    strict("regexp_matches", &[Text, Text, Text], TextArray, |_, a| all_groups(a, text(a, 2))),
    strict("regexp_split_to_array", &[Text, Text], TextArray, |_, a| split(a, "")),
    strict("regexp_split_to_array", &[Text, Text, Text], TextArray, |_, a| {
        split(a, of_one(text(a, 2), "regexp_split_to_array()")?)
    }),
    strict("regexp_count", &[Text, Text], Int4, |_, a| count(a, 1, "")),
    strict("regexp_count", &[Text, Text, Int4], Int4, |_, a| count(a, int(a, 2), "")),
    strict("regexp_count", &[Text, Text, Int4, Text], Int4, |_, a| {
        count(a, int(a, 2), of_one(text(a, 3), "regexp_count()")?)
    }),
    strict("regexp_instr", &[Text, Text], Int4, |_, a| place(a, Wanted::default(), false)),
    strict("regexp_instr", &[Text, Text, Int4], Int4, |_, a| place(a, Wanted::from(a), false)),
    strict("regexp_instr", &[Text, Text, Int4, Int4], Int4, |_, a| place(a, Wanted::from(a), false)),
    strict("regexp_instr", &[Text, Text, Int4, Int4, Int4], Int4, |_, a| {
        place(a, Wanted::from(a), is_end(int(a, 4))?)
    }),
    strict("regexp_instr", &[Text, Text, Int4, Int4, Int4, Text], Int4, |_, a| {
        let flags = of_one(text(a, 5), "regexp_instr()")?;
        place(a, Wanted { flags, ..Wanted::from(a) }, is_end(int(a, 4))?)
    }),
    strict("regexp_instr", &[Text, Text, Int4, Int4, Int4, Text, Int4], Int4, |_, a| {
        let (flags, group) = (of_one(text(a, 5), "regexp_instr()")?, int(a, 6));
        place(a, Wanted { flags, group, ..Wanted::from(a) }, is_end(int(a, 4))?)
    }),
    strict("regexp_substr", &[Text, Text], Text, |_, a| part(a, Wanted::default())),
    strict("regexp_substr", &[Text, Text, Int4], Text, |_, a| part(a, Wanted::from(a))),
    strict("regexp_substr", &[Text, Text, Int4, Int4], Text, |_, a| part(a, Wanted::from(a))),
    strict("regexp_substr", &[Text, Text, Int4, Int4, Text], Text, |_, a| {
        part(a, Wanted { flags: of_one(text(a, 4), "regexp_substr()")?, ..Wanted::from(a) })
    }),
    strict("regexp_substr", &[Text, Text, Int4, Int4, Text, Int4], Text, |_, a| {
        let (flags, group) = (of_one(text(a, 4), "regexp_substr()")?, int(a, 5));
        part(a, Wanted { flags, group, ..Wanted::from(a) })
    }),
];

/// The pattern of a call, its second argument, with flags.
fn regex(values: &[Value], flags: &str) -> Result<Regex, SqlError> {
    if let Some(flag) = flags.chars().find(|flag| !matches!(flag, 'g' | 'i')) {
        return Err(invalid_parameter(format!("invalid regular expression option: \"{flag}\""))
            .hint("The options are g and i."));
    }
    let mut builder = RegexBuilder::new(text(values, 1));
    builder
        .case_insensitive(flags.contains('i'))
        .dot_matches_new_line(true)
        .size_limit(1 << 20)
        .build()
        .map_err(|error| {
            SqlError::new(
                SqlState::INVALID_REGULAR_EXPRESSION,
                format!("invalid regular expression: {error}"),
            )
        })
}

/// The flags of a function for which `g` has no meaning.
fn of_one<'a>(flags: &'a str, function: &str) -> Result<&'a str, SqlError> {
    if flags.contains('g') {
        return Err(invalid_parameter(format!("{function} does not support the \"global\" option")));
    }
    Ok(flags)
}

fn like(values: &[Value], flags: &str) -> Result<Value, SqlError> {
    Ok(Value::Bool(regex(values, flags)?.is_match(text(values, 0))))
}

/// A part of the text that replaces a match.
enum Part {
    Text(String),
    Group(usize),
}

/// The text that replaces a match: `\1` to `\9` are groups, `\&` is all of it, and `\\` is a backslash.
fn replacement(with: &str) -> Vec<Part> {
    let (mut parts, mut text) = (Vec::new(), String::new());
    let mut characters = with.chars().peekable();
    while let Some(c) = characters.next() {
        let next = if c == '\\' { characters.peek().copied() } else { None };
        let group = match next {
            Some('&') => Some(0),
            Some(digit @ '1'..='9') => digit.to_digit(10).map(|digit| digit as usize),
            _ => None,
        };
        if let Some(group) = group {
            parts.push(Part::Text(std::mem::take(&mut text)));
            parts.push(Part::Group(group));
        } else {
            text.push(c);
        }
        if group.is_some() || next == Some('\\') {
            characters.next();
        }
    }
    parts.push(Part::Text(text));
    parts
}

fn replace(values: &[Value], flags: &str) -> Result<Value, SqlError> {
    let (pattern, whole, with) = (regex(values, flags)?, text(values, 0), replacement(text(values, 2)));
    let most = if flags.contains('g') { usize::MAX } else { 1 };
    let (mut out, mut begin) = (String::new(), 0);
    for found in matches(&pattern, whole).take(most) {
        let Some((start, end)) = found.get(0).map(|all| (all.start(), all.end())) else { continue };
        out.push_str(&whole[begin..start]);
        begin = end;
        for part in &with {
            out.push_str(match part {
                Part::Text(text) => text,
                Part::Group(group) => found.get(*group).map_or("", |part| part.as_str()),
            });
        }
        bounded(out.len() + whole.len() - begin)?;
    }
    out.push_str(&whole[begin..]);
    Ok(Value::from(out))
}

/// The matches of a pattern from a byte on, as PostgreSQL goes through them: behind an empty one it goes on at the next character, and an
/// empty one may follow another at once.
struct Matches<'p, 't> {
    pattern: &'p Regex,
    whole: &'t str,
    next: usize,
}

impl<'t> Iterator for Matches<'_, 't> {
    type Item = Captures<'t>;

    fn next(&mut self) -> Option<Captures<'t>> {
        if self.next > self.whole.len() {
            return None;
        }
        let found = self.pattern.captures_at(self.whole, self.next)?;
        let (start, end) = found.get(0).map(|all| (all.start(), all.end()))?;
        self.next =
            if start < end { end } else { end + self.whole[end..].chars().next().map_or(1, char::len_utf8) };
        Some(found)
    }
}

fn matches<'p, 't>(pattern: &'p Regex, whole: &'t str) -> Matches<'p, 't> {
    Matches { pattern, whole, next: 0 }
}

/// The groups of a match, or all of it where the pattern has none.
fn groups(found: &Captures<'_>) -> Value {
    let skipped = usize::from(found.len() > 1);
    let texts = found.iter().skip(skipped);
    Value::Array(texts.map(|group| group.map_or(Value::Null, |group| Value::text(group.as_str()))).collect())
}

fn first_groups(values: &[Value], flags: &str) -> Result<Value, SqlError> {
    let pattern = regex(values, flags)?;
    Ok(pattern.captures(text(values, 0)).map_or(Value::Null, |found| groups(&found)))
}

/// The groups of each match, or of the first one without the flag `g`: an array for each, which the binder makes rows of.
fn all_groups(values: &[Value], flags: &str) -> Result<Value, SqlError> {
    let pattern = regex(values, flags)?;
    let most = if flags.contains('g') { usize::MAX } else { 1 };
    let found = matches(&pattern, text(values, 0)).take(most);
    Ok(Value::Array(found.map(|found| groups(&found)).collect()))
}

/// Splits a text at the matches. An empty one at an end of the text, or right behind another one, divides nothing.
fn split(values: &[Value], flags: &str) -> Result<Value, SqlError> {
    let (pattern, whole) = (regex(values, flags)?, text(values, 0));
    let (mut parts, mut begin) = (Vec::new(), 0);
    for found in matches(&pattern, whole) {
        let Some((start, end)) = found.get(0).map(|all| (all.start(), all.end())) else { continue };
        if start < whole.len() && end > begin {
            parts.push(Value::text(&whole[begin..start]));
            begin = end;
        }
    }
    parts.push(Value::text(&whole[begin..]));
    Ok(Value::Array(parts.into()))
}

/// The byte of a character, which counts from 1; the end of the text behind its last one.
fn byte_of(whole: &str, character: i64) -> Result<usize, SqlError> {
    let before = usize::try_from(character).ok().and_then(|character| character.checked_sub(1));
    let before = before.ok_or_else(|| invalid_argument("start", character))?;
    Ok(whole
        .char_indices()
        .nth(before)
        .map_or(whole.len() + usize::from(before > whole.chars().count()), |(at, _)| at))
}

#[cold]
fn invalid_argument(name: &str, value: i64) -> SqlError {
    invalid_parameter(format!("invalid value for parameter \"{name}\": {value}"))
}

fn count(values: &[Value], start: i64, flags: &str) -> Result<Value, SqlError> {
    let (pattern, whole) = (regex(values, flags)?, text(values, 0));
    let found = Matches { pattern: &pattern, whole, next: byte_of(whole, start)? };
    Ok(Value::Int(found.count() as i64))
}

/// The match that `regexp_instr` and `regexp_substr` look for.
struct Wanted<'a> {
    /// The character from which on it is looked for, from 1.
    start: i64,
    /// Its number, from 1.
    number: i64,
    flags: &'a str,
    /// The group in it; 0 is all of it.
    group: i64,
}

impl Default for Wanted<'_> {
    fn default() -> Self {
        Wanted { start: 1, number: 1, flags: "", group: 0 }
    }
}

impl Wanted<'_> {
    /// The start and the number that a call gives, its third and fourth argument.
    fn from(values: &[Value]) -> Self {
        let given = |at| values.get(at).and_then(Value::as_int).unwrap_or(1);
        Wanted { start: given(2), number: given(3), ..Wanted::default() }
    }

    /// The bytes of it; `None` if there is no such match, or no such group in it.
    fn find(&self, values: &[Value]) -> Result<Option<(usize, usize)>, SqlError> {
        let whole = text(values, 0);
        let next = byte_of(whole, self.start)?;
        let number = usize::try_from(self.number).ok().and_then(|number| number.checked_sub(1));
        let number = number.ok_or_else(|| invalid_argument("n", self.number))?;
        let group = usize::try_from(self.group).map_err(|_| invalid_argument("subexpr", self.group))?;
        let pattern = regex(values, self.flags)?;
        let found = Matches { pattern: &pattern, whole, next }.nth(number);
        Ok(found.and_then(|found| found.get(group).map(|part| (part.start(), part.end()))))
    }
}

/// Returns whether the end of the match is asked for.
fn is_end(option: i64) -> Result<bool, SqlError> {
    match option {
        0 | 1 => Ok(option == 1),
        _ => Err(invalid_argument("endoption", option)),
    }
}

fn place(values: &[Value], wanted: Wanted<'_>, of_end: bool) -> Result<Value, SqlError> {
    let Some((start, end)) = wanted.find(values)? else { return Ok(Value::Int(0)) };
    let at = if of_end { end } else { start };
    Ok(Value::Int(text(values, 0)[..at].chars().count() as i64 + 1))
}

fn part(values: &[Value], wanted: Wanted<'_>) -> Result<Value, SqlError> {
    let found = wanted.find(values)?;
    Ok(found.map_or(Value::Null, |(start, end)| Value::text(&text(values, 0)[start..end])))
}
