//! From the text of a regular expression to its parts.

use std::ops::{Deref, Range};
use std::rc::Rc;

use super::{STATES_MAX, invalid, too_complex};
use crate::error::SqlError;

/// The options of an expression, by letters that are those of PostgreSQL.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Options {
    ignores_case: bool,
    is_expanded: bool,
    is_literal: bool,
    /// Set if `.` and complements do not match the end of a line.
    stops_at_lines: bool,
    /// Set if `^` and `$` match at the ends of lines, too.
    anchors_at_lines: bool,
}

impl Options {
    /// Sets the option of a letter; returns false if there is none. Those that would need matches to be tried out are refused.
    pub(crate) fn set(&mut self, letter: char) -> Result<bool, SqlError> {
        match letter {
            'b' | 'e' => {
                return Err(SqlError::unsupported(format!("the option {letter} of a regular expression")));
            }
            'c' => self.ignores_case = false,
            'i' => self.ignores_case = true,
            't' => self.is_expanded = false,
            'x' => self.is_expanded = true,
            'q' => self.is_literal = true,
            's' => (self.stops_at_lines, self.anchors_at_lines) = (false, false),
            'm' | 'n' => (self.stops_at_lines, self.anchors_at_lines) = (true, true),
            'p' => (self.stops_at_lines, self.anchors_at_lines) = (true, false),
            'w' => (self.stops_at_lines, self.anchors_at_lines) = (false, true),
            _ => return Ok(false),
        }
        Ok(true)
    }
}

/// A place between characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    TextStart,
    TextEnd,
    LineStart,
    LineEnd,
    WordStart,
    WordEnd,
    WordEdge,
    NoWordEdge,
}

/// Characters: those of ranges, or all others.
#[derive(Debug)]
pub(super) struct Set {
    /// In their order; no two of them have a character in common.
    ranges: Vec<(char, char)>,
    is_complement: bool,
}

impl Set {
    fn new(mut ranges: Vec<(char, char)>, is_complement: bool) -> Set {
        ranges.sort_unstable();
        ranges.dedup_by(|next, before| {
            let is_joined = next.0 <= before.1;
            if is_joined {
                before.1 = before.1.max(next.1);
            }
            is_joined
        });
        Set { ranges, is_complement }
    }

    pub(super) fn has(&self, c: char) -> bool {
        let at = self.ranges.partition_point(|(_, last)| *last < c);
        self.ranges.get(at).is_some_and(|(first, _)| *first <= c) != self.is_complement
    }
}

/// Adds both cases of the letters in some ranges.
fn add_cases(ranges: &mut Vec<(char, char)>) {
    for letter in 'a'..='z' {
        let upper = letter.to_ascii_uppercase();
        let is_in = |c: char| ranges.iter().any(|(first, last)| (*first..=*last).contains(&c));
        match (is_in(letter), is_in(upper)) {
            (true, false) => ranges.push((upper, upper)),
            (false, true) => ranges.push((letter, letter)),
            _ => {}
        }
    }
}

/// A part of an expression. What is in it is shared by its copies.
#[derive(Clone, Debug)]
pub(super) enum Part {
    /// One character.
    Set(Rc<Set>),
    Place(Place),
    /// A place before which, or behind which, something is or is not.
    Look {
        ahead: bool,
        negated: bool,
        part: Rc<Part>,
    },
    All(Row),
    /// One of several, at least two.
    Any(Rc<[Part]>),
    Repeat {
        part: Rc<Part>,
        least: u32,
        most: Option<u32>,
        taste: Option<Taste>,
    },
    Group(usize, Rc<Part>),
}

/// Neighbours: some of a list that is shared.
#[derive(Clone, Debug)]
pub(super) struct Row {
    all: Rc<[Part]>,
    own: Range<usize>,
}

impl Row {
    fn new(parts: Vec<Part>) -> Row {
        Row { own: 0..parts.len(), all: parts.into() }
    }

    /// Some of these, from one up to another.
    pub(super) fn some(&self, first: usize, end: usize) -> Row {
        Row { all: Rc::clone(&self.all), own: self.own.start + first..self.own.start + end }
    }
}

impl Deref for Row {
    type Target = [Part];

    fn deref(&self) -> &[Part] {
        &self.all[self.own.clone()]
    }
}

/// The preference of a part among its matches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Taste {
    Long,
    Short,
}

/// The most times that a bound may say.
const REPEAT_MAX: u32 = 255;

/// The deepest nesting, so that no walk of the parts needs much stack.
const DEPTH_MAX: usize = 100;

/// The most groups and quantifiers that prefer less together: neighbours are divided at each of them.
const DIVIDING_MAX: usize = 500;

/// The deepest nesting of what is only looked at: each level may read the text once for each of its places.
const LOOKS_MAX: usize = 2;

/// Parses an expression; returns it with the number of its groups.
pub(super) fn parse(text: &str, options: Options) -> Result<(Part, usize), SqlError> {
    let mut parser = Parser {
        chars: text.chars().collect(),
        at: 0,
        options,
        groups: 0,
        dividing: 0,
        parts: 0,
        depth: 0,
        looks: 0,
    };
    if options.is_literal && (options.is_expanded || options.stops_at_lines || options.anchors_at_lines) {
        return Err(invalid("invalid argument to regex function"));
    }
    parser.director()?;
    if parser.options.is_literal {
        let rest = &parser.chars[parser.at..];
        if rest.len() > STATES_MAX {
            return Err(too_complex());
        }
        return Ok((Part::All(Row::new(rest.iter().map(|c| parser.one(*c)).collect())), 0));
    }
    let part = parser.alternatives(true)?;
    if parser.at < parser.chars.len() {
        return Err(invalid("parentheses () not balanced"));
    }
    Ok((part, parser.groups))
}

struct Parser {
    chars: Vec<char>,
    at: usize,
    options: Options,
    groups: usize,
    /// The number of groups and of quantifiers that prefer less.
    dividing: usize,
    /// The number of parts, alternatives among them.
    parts: usize,
    depth: usize,
    /// The depth of what is only looked at.
    looks: usize,
}

/// Counts one more of what there may be `most` of.
fn count(count: &mut usize, most: usize) -> Result<(), SqlError> {
    *count += 1;
    if *count > most { Err(too_complex()) } else { Ok(()) }
}

impl Parser {
    fn peek(&self) -> Option<char> {
        self.chars.get(self.at).copied()
    }

    fn begins(&self, with: &str) -> bool {
        with.chars().enumerate().all(|(at, c)| self.chars.get(self.at + at) == Some(&c))
    }

    fn take(&mut self, text: &str) -> bool {
        let begins = self.begins(text);
        if begins {
            self.at += text.chars().count();
        }
        begins
    }

    /// Reads what says how the text is to be read: `***=`, `***:` and options such as `(?i)`.
    fn director(&mut self) -> Result<(), SqlError> {
        if self.options.is_literal {
            return Ok(());
        }
        if self.take("***=") {
            self.options.is_literal = true;
            return Ok(());
        }
        self.take("***:");
        let is_option = self.chars.get(self.at + 2).is_some_and(char::is_ascii_alphabetic);
        if self.begins("(?") && is_option {
            self.at += 2;
            while let Some(letter) = self.peek().filter(|c| *c != ')') {
                if !self.options.set(letter)? {
                    return Err(invalid("invalid embedded option"));
                }
                self.at += 1;
            }
            if !self.take(")") {
                return Err(invalid("invalid embedded option"));
            }
        }
        Ok(())
    }

    fn one(&self, c: char) -> Part {
        self.set(vec![(c, c)], false)
    }

    fn set(&self, mut ranges: Vec<(char, char)>, is_complement: bool) -> Part {
        if self.options.ignores_case {
            add_cases(&mut ranges);
        }
        Part::Set(Rc::new(Set::new(ranges, is_complement)))
    }

    fn alternatives(&mut self, captures: bool) -> Result<Part, SqlError> {
        count(&mut self.depth, DEPTH_MAX)?;
        let mut parts = vec![self.branch(captures)?];
        while self.take("|") {
            count(&mut self.parts, STATES_MAX)?;
            parts.push(self.branch(captures)?);
        }
        self.depth -= 1;
        Ok(if parts.len() == 1 { parts.remove(0) } else { Part::Any(parts.into()) })
    }

    fn skip(&mut self) {
        loop {
            let before = self.at;
            if self.options.is_expanded {
                while self.peek().is_some_and(char::is_whitespace) {
                    self.at += 1;
                }
                if self.peek() == Some('#') {
                    while self.peek().is_some_and(|c| c != '\n') {
                        self.at += 1;
                    }
                }
            }
            if self.begins("(?#") {
                while self.peek().is_some_and(|c| c != ')') {
                    self.at += 1;
                }
                self.take(")");
            }
            if self.at == before {
                return;
            }
        }
    }

    fn branch(&mut self, captures: bool) -> Result<Part, SqlError> {
        let mut parts = Vec::new();
        loop {
            self.skip();
            match self.peek() {
                None | Some('|' | ')') => return Ok(Part::All(Row::new(parts))),
                Some(_) => {}
            }
            count(&mut self.parts, STATES_MAX)?;
            let atom = self.atom(captures)?;
            self.skip();
            let is_place = matches!(atom, Part::Place(_) | Part::Look { .. });
            parts.push(if is_place { atom } else { self.quantified(atom)? });
        }
    }

    fn quantified(&mut self, atom: Part) -> Result<Part, SqlError> {
        let (least, most, has_taste) = match self.peek() {
            Some('*') => (0, None, true),
            Some('+') => (1, None, true),
            Some('?') => (0, Some(1), true),
            Some('{') if self.chars.get(self.at + 1).is_some_and(char::is_ascii_digit) => self.bound()?,
            _ => return Ok(atom),
        };
        self.at += 1;
        let is_short = self.take("?");
        if is_short {
            count(&mut self.dividing, DIVIDING_MAX)?;
        }
        let taste = has_taste.then_some(if is_short { Taste::Short } else { Taste::Long });
        self.skip();
        let is_another = match self.peek() {
            Some('*' | '+' | '?') => true,
            Some('{') => self.chars.get(self.at + 1).is_some_and(char::is_ascii_digit),
            _ => false,
        };
        if is_another {
            return Err(invalid("quantifier operand invalid"));
        }
        Ok(Part::Repeat { part: Rc::new(atom), least, most, taste })
    }

    /// A bound, up to its closing brace.
    fn bound(&mut self) -> Result<(u32, Option<u32>, bool), SqlError> {
        self.at += 1;
        let least = self.count()?.ok_or_else(|| invalid("invalid repetition count(s)"))?;
        let is_range = self.take(",");
        let most = if is_range { self.count()? } else { Some(least) };
        if self.peek() != Some('}') {
            let message = if self.at < self.chars.len() {
                "invalid repetition count(s)"
            } else {
                "braces {} not balanced"
            };
            return Err(invalid(message));
        }
        if most.is_some_and(|most| most < least) {
            return Err(invalid("invalid repetition count(s)"));
        }
        Ok((least, most, is_range))
    }

    fn count(&mut self) -> Result<Option<u32>, SqlError> {
        let mut count = None;
        while let Some(digit) = self.peek().and_then(|c| c.to_digit(10)) {
            self.at += 1;
            let next = count.unwrap_or(0) * 10 + digit;
            if next > REPEAT_MAX {
                return Err(invalid("invalid repetition count(s)"));
            }
            count = Some(next);
        }
        Ok(count)
    }

    fn atom(&mut self, captures: bool) -> Result<Part, SqlError> {
        let c = self.chars[self.at];
        self.at += 1;
        Ok(match c {
            '*' | '+' | '?' => return Err(invalid("quantifier operand invalid")),
            '{' if self.peek().is_some_and(|c| c.is_ascii_digit()) => {
                return Err(invalid("quantifier operand invalid"));
            }
            '^' if self.options.anchors_at_lines => Part::Place(Place::LineStart),
            '^' => Part::Place(Place::TextStart),
            '$' if self.options.anchors_at_lines => Part::Place(Place::LineEnd),
            '$' => Part::Place(Place::TextEnd),
            '.' => {
                let ranges = if self.options.stops_at_lines { vec![('\n', '\n')] } else { Vec::new() };
                Part::Set(Rc::new(Set::new(ranges, true)))
            }
            '(' => return self.parenthesis(captures),
            '[' if self.take("[:<:]]") => Part::Place(Place::WordStart),
            '[' if self.take("[:>:]]") => Part::Place(Place::WordEnd),
            '[' => return self.bracket(),
            '\\' => return self.escaped(),
            other => self.one(other),
        })
    }

    fn parenthesis(&mut self, captures: bool) -> Result<Part, SqlError> {
        let look = [("?=", true, false), ("?!", true, true), ("?<=", false, false), ("?<!", false, true)];
        let look = look.into_iter().find(|(mark, ..)| self.take(mark));
        let group = if look.is_some() || self.take("?:") {
            None
        } else if self.peek() == Some('?') {
            return Err(invalid("quantifier operand invalid"));
        } else if captures {
            count(&mut self.dividing, DIVIDING_MAX)?;
            self.groups += 1;
            Some(self.groups)
        } else {
            None
        };
        if look.is_some() {
            count(&mut self.looks, LOOKS_MAX)?;
        }
        // There are no groups in what is only looked at.
        let part = self.alternatives(captures && look.is_none())?;
        if !self.take(")") {
            return Err(invalid("parentheses () not balanced"));
        }
        if look.is_some() {
            self.looks -= 1;
        }
        Ok(match (look, group) {
            (Some((_, ahead, negated)), _) => Part::Look { ahead, negated, part: Rc::new(part) },
            (None, Some(number)) => Part::Group(number, Rc::new(part)),
            (None, None) => part,
        })
    }

    /// Parses what a backslash outside of brackets begins.
    fn escaped(&mut self) -> Result<Part, SqlError> {
        let c = self.peek().ok_or_else(|| invalid("invalid escape \\ sequence"))?;
        let place = match c {
            'A' => Some(Place::TextStart),
            'Z' => Some(Place::TextEnd),
            'm' => Some(Place::WordStart),
            'M' => Some(Place::WordEnd),
            'y' => Some(Place::WordEdge),
            'Y' => Some(Place::NoWordEdge),
            _ => None,
        };
        if let Some(place) = place {
            self.at += 1;
            return Ok(Part::Place(place));
        }
        if let Some(ranges) = escaped_class(c.to_ascii_lowercase()) {
            self.at += 1;
            return Ok(Part::Set(Rc::new(Set::new(ranges, c.is_ascii_uppercase()))));
        }
        if matches!(c, '1'..='9') {
            return Err(SqlError::unsupported("a back reference in a regular expression"));
        }
        let c = self.character()?;
        Ok(self.one(c))
    }

    /// The character that is behind a backslash.
    fn character(&mut self) -> Result<char, SqlError> {
        let wrong = || invalid("invalid escape \\ sequence");
        let c = self.peek().ok_or_else(wrong)?;
        self.at += 1;
        Ok(match c {
            'a' => '\x07',
            'b' => '\x08',
            'B' => '\\',
            'c' => {
                let control = self.peek().ok_or_else(wrong)?;
                self.at += 1;
                char::from_u32(u32::from(control) & 0x1f).ok_or_else(wrong)?
            }
            'e' => '\x1b',
            'f' => '\x0c',
            'n' => '\n',
            'r' => '\r',
            't' => '\t',
            'v' => '\x0b',
            'u' => self.code(16, 4, 4)?,
            'U' => self.code(16, 8, 8)?,
            'x' => self.code(16, 1, 255)?,
            '0' => {
                self.at -= 1;
                self.code(8, 1, 3)?
            }
            c if c.is_ascii_alphanumeric() => return Err(wrong()),
            other => other,
        })
    }

    fn code(&mut self, radix: u32, least: usize, most: usize) -> Result<char, SqlError> {
        let (mut code, mut count) = (0_u32, 0);
        while count < most
            && let Some(digit) = self.peek().and_then(|c| c.to_digit(radix))
        {
            code = code.checked_mul(radix).and_then(|code| code.checked_add(digit)).unwrap_or(u32::MAX);
            self.at += 1;
            count += 1;
        }
        let found = char::from_u32(code).filter(|_| count >= least);
        found.ok_or_else(|| invalid("invalid escape \\ sequence"))
    }

    fn bracket(&mut self) -> Result<Part, SqlError> {
        let unbalanced = || invalid("brackets [] not balanced");
        let (mut set, is_complement) = (Vec::new(), self.take("^"));
        let first = self.at;
        while self.at == first || self.peek() != Some(']') {
            if self.peek().is_none() {
                return Err(unbalanced());
            }
            if let Some(ranges) = self.class_in_bracket()? {
                set.extend(ranges);
                continue;
            }
            let (from, is_first) = (self.at, self.at == first);
            let start = self.in_bracket()?;
            let is_range = self.peek() == Some('-') && self.chars.get(self.at + 1).is_some_and(|c| *c != ']');
            if !is_range {
                if self.chars[from] == '-' && !is_first && self.peek() != Some(']') {
                    return Err(invalid("invalid character range"));
                }
                set.push((start, start));
                continue;
            }
            self.at += 1;
            if self.class_in_bracket()?.is_some() {
                return Err(invalid("invalid character range"));
            }
            let end = self.in_bracket()?;
            if end < start {
                return Err(invalid("invalid character range"));
            }
            set.push((start, end));
        }
        self.at += 1;
        if is_complement && self.options.stops_at_lines {
            set.push(('\n', '\n'));
        }
        Ok(self.set(set, is_complement))
    }

    /// A class of characters in brackets: `[:alpha:]`, `\d`.
    fn class_in_bracket(&mut self) -> Result<Option<Vec<(char, char)>>, SqlError> {
        if self.take("[:") {
            let rest = &self.chars[self.at..];
            let end = rest.windows(2).position(|pair| pair == [':', ']']);
            let end = end.ok_or_else(|| invalid("brackets [] not balanced"))?;
            let name: String = rest[..end].iter().collect();
            self.at += end + 2;
            let name = match &*name {
                "upper" | "lower" if self.options.ignores_case => "alpha",
                name => name,
            };
            return class(name).map(Some).ok_or_else(|| invalid("invalid character class"));
        }
        if self.peek() == Some('\\')
            && let Some(letter) = self.chars.get(self.at + 1)
            && let Some(ranges) = escaped_class(letter.to_ascii_lowercase())
        {
            self.at += 2;
            return Ok(Some(if letter.is_ascii_uppercase() { others(ranges) } else { ranges }));
        }
        Ok(None)
    }

    /// A character in brackets.
    fn in_bracket(&mut self) -> Result<char, SqlError> {
        let c = self.peek().ok_or_else(|| invalid("brackets [] not balanced"))?;
        self.at += 1;
        match c {
            '[' if matches!(self.peek(), Some('.' | '=')) => {
                let mark = self.chars[self.at];
                let found = self.chars.get(self.at + 1).copied();
                let closes =
                    self.chars.get(self.at + 2) == Some(&mark) && self.chars.get(self.at + 3) == Some(&']');
                self.at += 4;
                found.filter(|_| closes).ok_or_else(|| invalid("invalid collating element"))
            }
            '\\' => self.character(),
            other => Ok(other),
        }
    }
}

/// The class of an escape, `\d`, `\s` or `\w`.
fn escaped_class(letter: char) -> Option<Vec<(char, char)>> {
    match letter {
        'd' => class("digit"),
        's' => class("space"),
        'w' => class("word"),
        _ => None,
    }
}

/// The characters of a class, which are those of ASCII alone in collation C.
fn class(name: &str) -> Option<Vec<(char, char)>> {
    let ranges: &[(char, char)] = match name {
        "alnum" => &[('0', '9'), ('A', 'Z'), ('a', 'z')],
        "alpha" => &[('A', 'Z'), ('a', 'z')],
        "ascii" => &[('\0', '\x7f')],
        "blank" => &[(' ', ' '), ('\t', '\t')],
        "cntrl" => &[('\0', '\x1f'), ('\x7f', '\x7f')],
        "digit" => &[('0', '9')],
        "graph" => &[('!', '~')],
        "lower" => &[('a', 'z')],
        "print" => &[(' ', '~')],
        "punct" => &[('!', '/'), (':', '@'), ('[', '`'), ('{', '~')],
        "space" => &[('\t', '\r'), (' ', ' ')],
        "upper" => &[('A', 'Z')],
        "word" => &[('0', '9'), ('A', 'Z'), ('a', 'z'), ('_', '_')],
        "xdigit" => &[('0', '9'), ('A', 'F'), ('a', 'f')],
        _ => return None,
    };
    Some(ranges.to_vec())
}

/// The characters that are in none of some ranges.
fn others(mut ranges: Vec<(char, char)>) -> Vec<(char, char)> {
    ranges.sort_unstable();
    let (mut rest, mut next) = (Vec::new(), '\0');
    for (first, last) in ranges {
        // All of the ranges are of ASCII.
        if first > next {
            rest.push((next, char::from(first as u8 - 1)));
        }
        next = next.max(char::from(last as u8 + 1));
    }
    rest.push((next, char::MAX));
    rest
}
