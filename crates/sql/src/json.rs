//! JSON texts: the parts of one, and the form in which `jsonb` shows it.
//!
//! Owns: a reader that keeps numbers as they are written, and the place of each part in the text. Never: keeps anything: values of
//! `json` are the texts that were given, those of `jsonb` texts in one form (keys by length and then by bytes, the last of two equal
//! ones, a space behind `:` and `,`), so that equal ones are equal texts but for numbers such as 1 and 1.0.

use crate::error::{SqlError, SqlState};
use crate::types::SqlType;

/// A JSON value, with its place in the text it was read from.
#[derive(Clone, Debug)]
pub(crate) struct Json {
    pub(crate) kind: Kind,
    start: usize,
    end: usize,
}

/// The type of a value.
#[derive(Clone, Debug)]
pub(crate) enum Kind {
    Null,
    Bool(bool),
    /// The digits, as they are written.
    Number(String),
    Text(String),
    Array(Vec<Json>),
    Object(Vec<(String, Json)>),
}

/// The deepest nesting.
const MAX_DEPTH: usize = 500;

struct Reader<'a> {
    text: &'a str,
    at: usize,
}

#[cold]
fn invalid(ty: SqlType, text: &str) -> SqlError {
    let shown: String = text.chars().take(60).collect();
    SqlError::new(
        SqlState::INVALID_TEXT_REPRESENTATION,
        format!("invalid input syntax for type {ty}: \"{shown}\""),
    )
}

impl Json {
    /// Reads a value.
    pub(crate) fn read(text: &str, ty: SqlType) -> Result<Json, SqlError> {
        let mut reader = Reader { text, at: 0 };
        let value = reader.value(0).filter(|_| {
            reader.space();
            reader.at == text.len()
        });
        value.ok_or_else(|| invalid(ty, text))
    }

    /// The text of it in the text that it was read from.
    pub(crate) fn slice<'t>(&self, text: &'t str) -> &'t str {
        text.get(self.start..self.end).unwrap_or("")
    }

    /// The value of a key, or of a number of an element: from 0, or backward from -1.
    pub(crate) fn get(&self, key: &str) -> Option<&Json> {
        match &self.kind {
            Kind::Object(members) => {
                members.iter().rev().find(|(name, _)| name == key).map(|(_, value)| value)
            }
            Kind::Array(_) => self.at(key.parse().ok()?),
            _ => None,
        }
    }

    /// The element of a number.
    pub(crate) fn at(&self, at: i64) -> Option<&Json> {
        let Kind::Array(elements) = &self.kind else { return None };
        let at = if at < 0 { i64::try_from(elements.len()).ok()? + at } else { at };
        elements.get(usize::try_from(at).ok()?)
    }

    /// The word for what it is.
    pub(crate) fn type_name(&self) -> &'static str {
        match self.kind {
            Kind::Null => "null",
            Kind::Bool(_) => "boolean",
            Kind::Number(_) => "number",
            Kind::Text(_) => "string",
            Kind::Array(_) => "array",
            Kind::Object(_) => "object",
        }
    }

    /// Appends it in the form of `jsonb`.
    pub(crate) fn push(&self, out: &mut String) {
        match &self.kind {
            Kind::Null => out.push_str("null"),
            Kind::Bool(value) => out.push_str(if *value { "true" } else { "false" }),
            Kind::Number(digits) => push_number(digits, out),
            Kind::Text(text) => push_text(text, out),
            Kind::Array(elements) => {
                out.push('[');
                for (at, element) in elements.iter().enumerate() {
                    out.push_str(if at > 0 { ", " } else { "" });
                    element.push(out);
                }
                out.push(']');
            }
            Kind::Object(members) => {
                let mut sorted: Vec<&(String, Json)> = Vec::new();
                for member in members.iter().rev() {
                    if !sorted.iter().any(|(name, _)| *name == member.0) {
                        sorted.push(member);
                    }
                }
                sorted
                    .sort_by(|(one, _), (other, _)| one.len().cmp(&other.len()).then_with(|| one.cmp(other)));
                out.push('{');
                for (at, (name, value)) in sorted.into_iter().enumerate() {
                    out.push_str(if at > 0 { ", " } else { "" });
                    push_text(name, out);
                    out.push_str(": ");
                    value.push(out);
                }
                out.push('}');
            }
        }
    }

    /// The form of `jsonb`.
    pub(crate) fn shown(&self) -> String {
        let mut out = String::new();
        self.push(&mut out);
        out
    }

    /// The form without spaces, with the members of objects as they were given.
    pub(crate) fn compact(&self) -> String {
        let mut out = String::new();
        self.push_compact(&mut out);
        out
    }

    fn push_compact(&self, out: &mut String) {
        match &self.kind {
            Kind::Number(digits) => out.push_str(digits),
            Kind::Array(elements) => {
                out.push('[');
                for (at, element) in elements.iter().enumerate() {
                    out.push_str(if at > 0 { "," } else { "" });
                    element.push_compact(out);
                }
                out.push(']');
            }
            Kind::Object(members) => {
                out.push('{');
                for (at, (name, value)) in members.iter().enumerate() {
                    out.push_str(if at > 0 { "," } else { "" });
                    push_text(name, out);
                    out.push(':');
                    value.push_compact(out);
                }
                out.push('}');
            }
            _ => self.push(out),
        }
    }

    /// The form for people: a line for each element and member, indented by its depth.
    pub(crate) fn pretty(&self) -> String {
        let mut out = String::new();
        self.push_pretty(0, &mut out);
        out
    }

    fn push_pretty(&self, depth: usize, out: &mut String) {
        let line = |at: usize, depth: usize, out: &mut String| {
            out.push_str(if at > 0 { ",\n" } else { "\n" });
            out.push_str(&"    ".repeat(depth));
        };
        match &self.kind {
            Kind::Array(elements) => {
                out.push('[');
                for (at, element) in elements.iter().enumerate() {
                    line(at, depth + 1, out);
                    element.push_pretty(depth + 1, out);
                }
                line(0, depth, out);
                out.push(']');
            }
            Kind::Object(members) => {
                out.push('{');
                for (at, (name, value)) in members.iter().enumerate() {
                    line(at, depth + 1, out);
                    push_text(name, out);
                    out.push_str(": ");
                    value.push_pretty(depth + 1, out);
                }
                line(0, depth, out);
                out.push('}');
            }
            _ => self.push(out),
        }
    }

    /// Returns true if all of another one is in it, as `@>` means it.
    pub(crate) fn contains(&self, other: &Json) -> bool {
        match (&self.kind, &other.kind) {
            (Kind::Object(_), Kind::Object(members)) => {
                members.iter().all(|(name, value)| self.get(name).is_some_and(|own| own.contains(value)))
            }
            (Kind::Array(own), Kind::Array(others)) => {
                others.iter().all(|other| own.iter().any(|element| element.contains(other)))
            }
            (Kind::Array(own), _) => own.iter().any(|element| element.shown() == other.shown()),
            _ => self.shown() == other.shown(),
        }
    }
}

/// Appends a number as `numeric` shows it: without an exponent, with its zeros behind the point.
fn push_number(digits: &str, out: &mut String) {
    match crate::numeric::Numeric::parse(digits) {
        Ok(number) => out.push_str(&number.to_string()),
        // More digits than a numeric has here.
        Err(_) => out.push_str(digits),
    }
}

/// Appends a text in quotes.
pub(crate) fn push_text(text: &str, out: &mut String) {
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\u{8}' => out.push_str("\\b"),
            '\u{c}' => out.push_str("\\f"),
            c if c < ' ' => out.push_str(&format!("\\u{:04x}", c as u32)),
            c => out.push(c),
        }
    }
    out.push('"');
}

impl Reader<'_> {
    fn space(&mut self) {
        let rest = &self.text[self.at..];
        self.at = self.text.len() - rest.trim_start_matches([' ', '\t', '\n', '\r']).len();
    }

    fn eat(&mut self, word: &str) -> bool {
        let is_next = self.text[self.at..].starts_with(word);
        self.at += if is_next { word.len() } else { 0 };
        is_next
    }

    fn value(&mut self, depth: usize) -> Option<Json> {
        if depth > MAX_DEPTH {
            return None;
        }
        self.space();
        let start = self.at;
        let kind = match self.text[self.at..].chars().next()? {
            'n' if self.eat("null") => Kind::Null,
            't' if self.eat("true") => Kind::Bool(true),
            'f' if self.eat("false") => Kind::Bool(false),
            '"' => Kind::Text(self.string()?),
            '[' => self.array(depth)?,
            '{' => self.object(depth)?,
            _ => Kind::Number(self.number()?),
        };
        Some(Json { kind, start, end: self.at })
    }

    fn array(&mut self, depth: usize) -> Option<Kind> {
        self.at += 1;
        let mut elements = Vec::new();
        self.space();
        if self.eat("]") {
            return Some(Kind::Array(elements));
        }
        loop {
            elements.push(self.value(depth + 1)?);
            self.space();
            if self.eat("]") {
                return Some(Kind::Array(elements));
            }
            if !self.eat(",") {
                return None;
            }
        }
    }

    fn object(&mut self, depth: usize) -> Option<Kind> {
        self.at += 1;
        let mut members = Vec::new();
        self.space();
        if self.eat("}") {
            return Some(Kind::Object(members));
        }
        loop {
            self.space();
            let name = self.string()?;
            self.space();
            if !self.eat(":") {
                return None;
            }
            members.push((name, self.value(depth + 1)?));
            self.space();
            if self.eat("}") {
                return Some(Kind::Object(members));
            }
            if !self.eat(",") {
                return None;
            }
        }
    }

    fn string(&mut self) -> Option<String> {
        if !self.eat("\"") {
            return None;
        }
        let mut out = String::new();
        loop {
            let c = self.text[self.at..].chars().next()?;
            self.at += c.len_utf8();
            match c {
                '"' => return Some(out),
                '\\' => {
                    let escaped = self.text[self.at..].chars().next()?;
                    self.at += escaped.len_utf8();
                    out.push(match escaped {
                        '"' | '\\' | '/' => escaped,
                        'b' => '\u{8}',
                        'f' => '\u{c}',
                        'n' => '\n',
                        'r' => '\r',
                        't' => '\t',
                        'u' => self.escape()?,
                        _ => return None,
                    });
                }
                c if c < ' ' => return None,
                c => out.push(c),
            }
        }
    }

    /// The character of four hexadecimal digits, or of twice four for one beyond the first plane.
    fn escape(&mut self) -> Option<char> {
        let high = self.unit()?;
        if !(0xd800..0xdc00).contains(&high) {
            return char::from_u32(high).filter(|c| *c != '\0');
        }
        if !self.eat("\\u") {
            return None;
        }
        let low = self.unit()?.checked_sub(0xdc00).filter(|low| *low < 0x400)?;
        char::from_u32(0x10000 + ((high - 0xd800) << 10) + low)
    }

    fn unit(&mut self) -> Option<u32> {
        let digits = self.text.get(self.at..self.at + 4)?;
        self.at += 4;
        if digits.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            u32::from_str_radix(digits, 16).ok()
        } else {
            None
        }
    }

    fn number(&mut self) -> Option<String> {
        let rest = &self.text[self.at..];
        let digits = |text: &str| text.bytes().take_while(u8::is_ascii_digit).count();
        let mut end = usize::from(rest.starts_with('-'));
        let whole = digits(&rest[end..]);
        if whole == 0 || (whole > 1 && rest[end..].starts_with('0')) {
            return None;
        }
        end += whole;
        if let Some(fraction) = rest[end..].strip_prefix('.') {
            let count = digits(fraction);
            if count == 0 {
                return None;
            }
            end += 1 + count;
        }
        if rest[end..].starts_with(['e', 'E']) {
            let sign = usize::from(rest[end + 1..].starts_with(['+', '-']));
            let count = digits(&rest[end + 1 + sign..]);
            if count == 0 {
                return None;
            }
            end += 1 + sign + count;
        }
        self.at += end;
        Some(rest[..end].to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(text: &str) -> Option<String> {
        Json::read(text, SqlType::Jsonb).ok().map(|json| json.shown())
    }

    #[test]
    fn the_form_of_jsonb_is_one() {
        assert_eq!(
            shown(r#" {"bb":1.50 , "a":[1,null,true,"x\n\u00e4"], "c":{}, "a": 2e1}"#).as_deref(),
            Some(r#"{"a": 20, "c": {}, "bb": 1.50}"#)
        );
        assert_eq!(shown(r#""\ud83d\ude00""#).as_deref(), Some("\"\u{1f600}\""));
        for wrong in ["", "{", "[1,]", "01", "1.", "\"a", "nul", "{\"a\" 1}", "\"\\ud800\"", "1 2", "'a'"] {
            assert_eq!(shown(wrong), None, "{wrong}");
        }
        assert_eq!(shown(&"[".repeat(100_000)), None);
    }

    #[test]
    fn parts_are_found_where_they_are() {
        let text = r#"{"a": [ 1, {"b" :2} ]}"#;
        let json = Json::read(text, SqlType::Json).unwrap();
        let part = json.get("a").and_then(|list| list.at(-1)).unwrap();
        assert_eq!(part.slice(text), r#"{"b" :2}"#);
        let read = |text: &str| Json::read(text, SqlType::Jsonb).unwrap();
        assert!(read(r#"{"a":[1,2],"b":1}"#).contains(&read(r#"{"a":[2]}"#)));
        assert!(!read("[1]").contains(&read("[1,2]")));
    }
}
