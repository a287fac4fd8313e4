//! Functions of regular expressions.
//!
//! Owns: which matches there are, and what is made of them; the patterns of SIMILAR TO as regular expressions. Never: matches by itself
//! (`regex` does).

use std::cell::RefCell;
use std::rc::Rc;

use super::texts::bounded;
use super::{Function, int, invalid_parameter, strict, text};
use crate::error::{SqlError, SqlState};
use crate::expr::Env;
use crate::regex::{Options, Pattern, Search, Watch};
use crate::session::Session;
use crate::types::SqlType::{Bool, Int4, Text, TextArray};
use crate::value::Value;

pub(super) static FUNCTIONS: &[Function] = &[
    strict("textregexeq", &[Text, Text], Bool, |env, a| like(env, a, "")),
    strict("texticregexeq", &[Text, Text], Bool, |env, a| like(env, a, "i")),
    strict("substring", &[Text, Text], Text, substring),
    strict("substring", &[Text, Text, Text], Text, |env, a| {
        substring(env, &[a[0].clone(), Value::from(similar(text(a, 1), Some(text(a, 2)))?)])
    }),
    strict("similar_to_escape", &[Text], Text, |_, a| similar(text(a, 0), None).map(Value::from)),
    strict("similar_to_escape", &[Text, Text], Text, |_, a| {
        similar(text(a, 0), Some(text(a, 1))).map(Value::from)
    }),
    strict("regexp_like", &[Text, Text], Bool, |env, a| like(env, a, "")),
    strict("regexp_like", &[Text, Text, Text], Bool, |env, a| {
        like(env, a, of_one(text(a, 2), "regexp_like()")?)
    }),
    strict("regexp_replace", &[Text, Text, Text], Text, |env, a| replace(env, a, "")),
    strict("regexp_replace", &[Text, Text, Text, Text], Text, |env, a| replace(env, a, text(a, 3))),
    strict("regexp_match", &[Text, Text], TextArray, |env, a| first_groups(env, a, "")),
    strict("regexp_match", &[Text, Text, Text], TextArray, |env, a| {
        first_groups(env, a, of_one(text(a, 2), "regexp_match()")?)
    }),
    strict("regexp_matches", &[Text, Text], TextArray, |env, a| all_groups(env, a, "")),
    strict("regexp_matches", &[Text, Text, Text], TextArray, |env, a| all_groups(env, a, text(a, 2))),
    strict("regexp_split_to_array", &[Text, Text], TextArray, |env, a| split(env, a, "")),
    strict("regexp_split_to_array", &[Text, Text, Text], TextArray, |env, a| {
        split(env, a, of_one(text(a, 2), "regexp_split_to_array()")?)
    }),
    strict("regexp_count", &[Text, Text], Int4, |env, a| count(env, a, 1, "")),
    strict("regexp_count", &[Text, Text, Int4], Int4, |env, a| count(env, a, int(a, 2), "")),
    strict("regexp_count", &[Text, Text, Int4, Text], Int4, |env, a| {
        count(env, a, int(a, 2), of_one(text(a, 3), "regexp_count()")?)
    }),
    strict("regexp_instr", &[Text, Text], Int4, |env, a| place(env, a, Wanted::default(), false)),
    strict("regexp_instr", &[Text, Text, Int4], Int4, |env, a| place(env, a, Wanted::from(a), false)),
    strict("regexp_instr", &[Text, Text, Int4, Int4], Int4, |env, a| place(env, a, Wanted::from(a), false)),
    strict("regexp_instr", &[Text, Text, Int4, Int4, Int4], Int4, |env, a| {
        place(env, a, Wanted::from(a), is_end(int(a, 4))?)
    }),
    strict("regexp_instr", &[Text, Text, Int4, Int4, Int4, Text], Int4, |env, a| {
        let flags = of_one(text(a, 5), "regexp_instr()")?;
        place(env, a, Wanted { flags, ..Wanted::from(a) }, is_end(int(a, 4))?)
    }),
    strict("regexp_instr", &[Text, Text, Int4, Int4, Int4, Text, Int4], Int4, |env, a| {
        let (flags, group) = (of_one(text(a, 5), "regexp_instr()")?, int(a, 6));
        place(env, a, Wanted { flags, group, ..Wanted::from(a) }, is_end(int(a, 4))?)
    }),
    strict("regexp_substr", &[Text, Text], Text, |env, a| part(env, a, Wanted::default())),
    strict("regexp_substr", &[Text, Text, Int4], Text, |env, a| part(env, a, Wanted::from(a))),
    strict("regexp_substr", &[Text, Text, Int4, Int4], Text, |env, a| part(env, a, Wanted::from(a))),
    strict("regexp_substr", &[Text, Text, Int4, Int4, Text], Text, |env, a| {
        part(env, a, Wanted { flags: of_one(text(a, 4), "regexp_substr()")?, ..Wanted::from(a) })
    }),
    strict("regexp_substr", &[Text, Text, Int4, Int4, Text, Int4], Text, |env, a| {
        let (flags, group) = (of_one(text(a, 4), "regexp_substr()")?, int(a, 5));
        part(env, a, Wanted { flags, group, ..Wanted::from(a) })
    }),
];

thread_local! {
    /// The last pattern that was compiled: a statement asks for the same one for each of its rows.
    static LAST: RefCell<Option<(String, String, Rc<Pattern>)>> = const { RefCell::new(None) };
}

/// The pattern of a call, its second argument, with flags.
fn regex(values: &[Value], flags: &str) -> Result<Rc<Pattern>, SqlError> {
    let text = text(values, 1);
    let known = LAST.with_borrow(|last| match last {
        Some((known, with, pattern)) if known == text && with == flags => Some(Rc::clone(pattern)),
        _ => None,
    });
    if let Some(known) = known {
        return Ok(known);
    }
    let mut options = Options::default();
    for flag in flags.chars() {
        if flag != 'g' && !options.set(flag)? {
            return Err(invalid_parameter(format!("invalid regular expression option: \"{flag}\""))
                .hint("The options are c, g, i, m, n, p, q, s, t, w and x."));
        }
    }
    let pattern = Rc::new(Pattern::new(text, options)?);
    LAST.set(Some((text.to_owned(), flags.to_owned(), Rc::clone(&pattern))));
    Ok(pattern)
}

impl Watch for Session {
    fn check(&self) -> Result<(), SqlError> {
        self.connections.check(self.process_id)
    }
}

/// A text in which matches are looked for.
struct Subject<'t> {
    text: &'t str,
    search: Search<'t>,
    /// The byte at which each character begins, and the end of the text.
    bytes: Vec<usize>,
}

impl<'t> Subject<'t> {
    fn of(env: &'t Env, text: &'t str) -> Subject<'t> {
        let bytes = text.char_indices().map(|(at, _)| at).chain([text.len()]).collect();
        Subject { text, search: Search::new(text, &*env.session), bytes }
    }

    /// The first match from a character on, in bytes.
    fn find(&self, pattern: &Pattern, from: usize) -> Result<Option<Match>, SqlError> {
        let Some(found) = pattern.find(&self.search, from)? else { return Ok(None) };
        let (start, end) = found[0].unwrap_or((from, from));
        let bytes = |(start, end): (usize, usize)| (self.bytes[start], self.bytes[end]);
        let groups = found.into_iter().map(|group| group.map(bytes)).collect();
        Ok(Some(Match { groups, next: if start < end { end } else { end + 1 } }))
    }

    fn part(&self, (start, end): (usize, usize)) -> &'t str {
        &self.text[start..end]
    }

    /// The matches from a character on, at most so many, as PostgreSQL goes through them: behind an empty one it goes on at the next
    /// character, and an empty one may follow another at once.
    fn matches(&self, pattern: &Pattern, mut from: usize, most: usize) -> Result<Vec<Match>, SqlError> {
        let mut all = Vec::new();
        while all.len() < most
            && let Some(found) = self.find(pattern, from)?
        {
            from = found.next;
            all.push(found);
        }
        Ok(all)
    }
}

/// A match.
struct Match {
    /// The bytes of it and of its groups.
    groups: Vec<Option<(usize, usize)>>,
    /// The character at which the search for the next one begins.
    next: usize,
}

impl Match {
    fn whole(&self) -> (usize, usize) {
        self.groups[0].unwrap_or_default()
    }
}

/// The flags of a function for which `g` has no meaning.
fn of_one<'a>(flags: &'a str, function: &str) -> Result<&'a str, SqlError> {
    if flags.contains('g') {
        return Err(invalid_parameter(format!("{function} does not support the \"global\" option")));
    }
    Ok(flags)
}

fn like(env: &Env, values: &[Value], flags: &str) -> Result<Value, SqlError> {
    let search = Search::new(text(values, 0), &*env.session);
    regex(values, flags)?.is_match(&search).map(Value::Bool)
}

/// The first match, or its first group if there are groups.
fn substring(env: &Env, values: &[Value]) -> Result<Value, SqlError> {
    let (pattern, subject) = (regex(values, "")?, Subject::of(env, text(values, 0)));
    let Some(found) = subject.find(&pattern, 0)? else { return Ok(Value::Null) };
    let part = found.groups[usize::from(pattern.groups() > 0)];
    Ok(part.map_or(Value::Null, |part| Value::text(subject.part(part))))
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

fn replace(env: &Env, values: &[Value], flags: &str) -> Result<Value, SqlError> {
    let (pattern, whole, with) = (regex(values, flags)?, text(values, 0), replacement(text(values, 2)));
    let most = if flags.contains('g') { usize::MAX } else { 1 };
    let subject = Subject::of(env, whole);
    let (mut out, mut begin) = (String::new(), 0);
    for found in subject.matches(&pattern, 0, most)? {
        let (start, end) = found.whole();
        out.push_str(&whole[begin..start]);
        begin = end;
        for part in &with {
            out.push_str(match part {
                Part::Text(text) => text,
                Part::Group(group) => {
                    found.groups.get(*group).copied().flatten().map_or("", |part| subject.part(part))
                }
            });
        }
        bounded(out.len() + whole.len() - begin)?;
    }
    out.push_str(&whole[begin..]);
    Ok(Value::from(out))
}

/// The groups of a match, or all of it where the pattern has none.
fn groups(subject: &Subject<'_>, found: &Match) -> Value {
    let skipped = usize::from(found.groups.len() > 1);
    let texts = found.groups.iter().skip(skipped);
    Value::Array(
        texts.map(|group| group.map_or(Value::Null, |part| Value::text(subject.part(part)))).collect(),
    )
}

fn first_groups(env: &Env, values: &[Value], flags: &str) -> Result<Value, SqlError> {
    let (pattern, subject) = (regex(values, flags)?, Subject::of(env, text(values, 0)));
    Ok(subject.find(&pattern, 0)?.map_or(Value::Null, |found| groups(&subject, &found)))
}

/// The groups of each match, or of the first one without the flag `g`: an array for each, which the binder makes rows of.
fn all_groups(env: &Env, values: &[Value], flags: &str) -> Result<Value, SqlError> {
    let (pattern, subject) = (regex(values, flags)?, Subject::of(env, text(values, 0)));
    let most = if flags.contains('g') { usize::MAX } else { 1 };
    let found = subject.matches(&pattern, 0, most)?;
    Ok(Value::Array(found.iter().map(|found| groups(&subject, found)).collect()))
}

/// Splits a text at the matches. An empty one at an end of the text, or right behind another one, divides nothing.
fn split(env: &Env, values: &[Value], flags: &str) -> Result<Value, SqlError> {
    let (pattern, whole) = (regex(values, flags)?, text(values, 0));
    let (mut parts, mut begin) = (Vec::new(), 0);
    for found in Subject::of(env, whole).matches(&pattern, 0, usize::MAX)? {
        let (start, end) = found.whole();
        if start < whole.len() && end > begin {
            parts.push(Value::text(&whole[begin..start]));
            begin = end;
        }
    }
    parts.push(Value::text(&whole[begin..]));
    Ok(Value::Array(parts.into()))
}

/// The number of the character, which counts from 1 for a call, from 0 on.
fn first_of(character: i64) -> Result<usize, SqlError> {
    let before = usize::try_from(character).ok().and_then(|character| character.checked_sub(1));
    before.ok_or_else(|| invalid_argument("start", character))
}

#[cold]
fn invalid_argument(name: &str, value: i64) -> SqlError {
    invalid_parameter(format!("invalid value for parameter \"{name}\": {value}"))
}

fn count(env: &Env, values: &[Value], start: i64, flags: &str) -> Result<Value, SqlError> {
    let (pattern, subject) = (regex(values, flags)?, Subject::of(env, text(values, 0)));
    let found = subject.matches(&pattern, first_of(start)?, usize::MAX)?;
    Ok(Value::Int(found.len() as i64))
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
    fn find(&self, env: &Env, values: &[Value]) -> Result<Option<(usize, usize)>, SqlError> {
        let next = first_of(self.start)?;
        let number = usize::try_from(self.number).ok().and_then(|number| number.checked_sub(1));
        let number = number.ok_or_else(|| invalid_argument("n", self.number))?;
        let group = usize::try_from(self.group).map_err(|_| invalid_argument("subexpr", self.group))?;
        let (pattern, subject) = (regex(values, self.flags)?, Subject::of(env, text(values, 0)));
        let found = subject.matches(&pattern, next, number.saturating_add(1))?;
        Ok(found.get(number).and_then(|found| found.groups.get(group).copied().flatten()))
    }
}

/// Returns whether the end of the match is asked for.
fn is_end(option: i64) -> Result<bool, SqlError> {
    match option {
        0 | 1 => Ok(option == 1),
        _ => Err(invalid_argument("endoption", option)),
    }
}

fn place(env: &Env, values: &[Value], wanted: Wanted<'_>, of_end: bool) -> Result<Value, SqlError> {
    let Some((start, end)) = wanted.find(env, values)? else { return Ok(Value::Int(0)) };
    let at = if of_end { end } else { start };
    Ok(Value::Int(text(values, 0)[..at].chars().count() as i64 + 1))
}

fn part(env: &Env, values: &[Value], wanted: Wanted<'_>) -> Result<Value, SqlError> {
    let found = wanted.find(env, values)?;
    Ok(found.map_or(Value::Null, |(start, end)| Value::text(&text(values, 0)[start..end])))
}

/// The regular expression that a pattern of SIMILAR TO is, as PostgreSQL makes it. The character that escapes others is a backslash if none
/// is given; of a pattern with two of them before quotation marks, the part between is what `substring` returns.
fn similar(pattern: &str, escape: Option<&str>) -> Result<String, SqlError> {
    let mut given = escape.unwrap_or("\\").chars();
    let escape = given.next();
    if given.next().is_some() {
        return Err(SqlError::new(SqlState("22025"), "invalid escape string")
            .hint("Escape string must be empty or one character."));
    }
    let mut out = String::from("^(?:");
    let (mut after_escape, mut marks) = (false, 0);
    // The depth of brackets, and in them: 1 behind the first one, 2 behind the mark of a complement, 3 behind that.
    let (mut in_brackets, mut place) = (0, 0);
    for c in pattern.chars() {
        if after_escape {
            match (c, marks) {
                ('"', 0) if in_brackets == 0 => out.push_str("){1,1}?("),
                ('"', 1) if in_brackets == 0 => out.push_str("){1,1}(?:"),
                ('"', _) if in_brackets == 0 => {
                    return Err(SqlError::new(
                        SqlState("2200C"),
                        "SQL regular expression may not contain more than two escape-double-quote separators",
                    ));
                }
                _ => out.extend(['\\', c]),
            }
            marks += usize::from(c == '"' && in_brackets == 0);
            after_escape = false;
        } else if Some(c) == escape {
            after_escape = true;
        } else if in_brackets > 0 {
            if c == '\\' {
                out.push('\\');
            }
            out.push(c);
            match c {
                ']' if place == 3 => in_brackets -= 1,
                '[' => in_brackets += 1,
                _ => {}
            }
            place = if c == '^' && place < 3 { place + 1 } else { 3 };
        } else {
            match c {
                '[' => {
                    out.push('[');
                    (in_brackets, place) = (1, 1);
                }
                '%' => out.push_str(".*"),
                '_' => out.push('.'),
                '(' => out.push_str("(?:"),
                '\\' | '.' | '^' | '$' => out.extend(['\\', c]),
                other => out.push(other),
            }
        }
    }
    out.push_str(")$");
    Ok(out)
}
