//! Literals that are lifted out of the text of a statement, so that statements which differ in them alone share a plan.
//!
//! Owns: which literals are taken for parameters: those that are compared with something, that arithmetic is done with, and the values
//! of an INSERT. Never: decides whether the statement means the same with them; a statement that cannot be planned so is planned as it
//! is. A text with anything that makes its tokens doubtful (comments, prefixes of strings, dollars, several statements) is left alone.

use crate::error::SqlError;
use crate::format::{Format, decode};
use crate::numeric::Numeric;
use crate::types::SqlType;
use crate::value::Value;

/// The longest text that is looked at.
const MAX_TEXT: usize = 8 << 10;
/// The most literals that are lifted.
const MAX_LITERALS: usize = 256;

/// A literal.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Literal {
    Number(SqlType, Value),
    /// A string, whose type follows from its place.
    Text(String),
}

impl Literal {
    /// The type that its parameter is given.
    pub(crate) fn ty(&self) -> Option<SqlType> {
        match self {
            Literal::Number(ty, _) => Some(*ty),
            Literal::Text(_) => None,
        }
    }

    /// Its value, as a parameter of a type.
    pub(crate) fn value(&self, ty: SqlType) -> Result<Value, SqlError> {
        match self {
            Literal::Number(_, value) => Ok(value.clone()),
            Literal::Text(text) => decode(text.as_bytes(), ty, Format::Text),
        }
    }
}

/// A statement with parameters in the place of literals.
#[derive(Debug)]
pub(crate) struct Lifted {
    /// Its text.
    pub(crate) text: String,
    /// The text with the types of the literals, by which its plan is kept.
    pub(crate) key: String,
    pub(crate) literals: Vec<Literal>,
}

/// The kind of a token, as far as the next one needs to know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Token {
    Start,
    Word,
    /// A comparison.
    Comparison,
    Arithmetic,
    /// An opening parenthesis or a comma.
    ListBegin,
    Other,
}

/// Lifts the literals of a statement; `None` if there are none, or the text is left alone.
pub(crate) fn lift(text: &str) -> Option<Lifted> {
    let text = text.trim();
    let text = text.strip_suffix(';').unwrap_or(text);
    let first = text.split(|c: char| !c.is_ascii_alphabetic()).next().unwrap_or("");
    let is_insert = first.eq_ignore_ascii_case("insert");
    let is_lifted = ["select", "update", "delete"].iter().any(|verb| first.eq_ignore_ascii_case(verb));
    if text.len() > MAX_TEXT || !(is_insert || is_lifted) {
        return None;
    }
    let mut lifter = Lifter {
        bytes: text.as_bytes(),
        text,
        at: 0,
        copied: 0,
        out: String::with_capacity(text.len() + 16),
        types: String::new(),
        literals: Vec::new(),
    };
    lifter.run(is_insert)?;
    if lifter.literals.is_empty() {
        return None;
    }
    lifter.out.push_str(&text[lifter.copied..]);
    let Lifter { out, types, literals, .. } = lifter;
    let key = format!("{types}\0{out}");
    Some(Lifted { text: out, key, literals })
}

struct Lifter<'t> {
    text: &'t str,
    bytes: &'t [u8],
    at: usize,
    /// The end of the part that has been copied.
    copied: usize,
    out: String,
    types: String,
    literals: Vec<Literal>,
}

impl Lifter<'_> {
    /// Goes through the tokens; `None` if the text is left alone.
    fn run(&mut self, is_insert: bool) -> Option<()> {
        let (mut last, mut before, mut in_values) = (Token::Start, Token::Start, false);
        while let Some(&byte) = self.bytes.get(self.at) {
            let start = self.at;
            let next = match byte {
                byte if byte.is_ascii_whitespace() => {
                    self.at += 1;
                    continue;
                }
                b'a'..=b'z' | b'A'..=b'Z' | b'_' => {
                    self.skip(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
                    if self.bytes.get(self.at).is_some_and(|next| matches!(next, b'\'' | b'&' | b'$')) {
                        return None;
                    }
                    in_values |= is_insert && self.text[start..self.at].eq_ignore_ascii_case("values");
                    Token::Word
                }
                b'"' => {
                    self.quoted(b'"')?;
                    Token::Word
                }
                b'0'..=b'9' | b'\'' => {
                    let literal = self.literal(byte)?;
                    let is_sign = last == Token::Arithmetic && before != Token::Start;
                    let is_wanted =
                        last == Token::Comparison || is_sign || (in_values && last == Token::ListBegin);
                    if is_wanted && !self.is_cast() {
                        self.lift(start, literal)?;
                    }
                    Token::Other
                }
                b'=' | b'<' | b'>' | b'!' => {
                    self.skip(|byte| matches!(byte, b'=' | b'<' | b'>' | b'!'));
                    Token::Comparison
                }
                b'+' | b'-' | b'*' => {
                    self.at += 1;
                    if byte == b'-' && self.bytes.get(self.at) == Some(&b'-') {
                        return None;
                    }
                    Token::Arithmetic
                }
                b'(' | b',' => {
                    self.at += 1;
                    Token::ListBegin
                }
                b')' | b'.' | b'[' | b']' | b':' => {
                    self.at += 1;
                    Token::Other
                }
                // Other operators, comments, dollars, semicolons, letters of other alphabets.
                _ => return None,
            };
            (before, last) = (last, next);
        }
        Some(())
    }

    fn skip(&mut self, is_part: impl Fn(u8) -> bool) {
        self.at += self.bytes[self.at..].iter().take_while(|byte| is_part(**byte)).count();
    }

    /// Skips a quoted text; `None` if it does not end, or has a backslash.
    fn quoted(&mut self, quote: u8) -> Option<String> {
        let mut content = String::new();
        self.at += 1;
        loop {
            let rest = &self.text[self.at..];
            let end = rest.find([quote as char, '\\']).filter(|end| rest.as_bytes()[*end] == quote)?;
            content.push_str(&rest[..end]);
            self.at += end + 1;
            if self.bytes.get(self.at) != Some(&quote) {
                return Some(content);
            }
            content.push(quote as char);
            self.at += 1;
        }
    }

    fn literal(&mut self, first: u8) -> Option<Literal> {
        if first == b'\'' {
            return self.quoted(b'\'').map(Literal::Text);
        }
        let start = self.at;
        self.skip(|byte| byte.is_ascii_digit() || byte == b'.');
        // A number with an exponent, or another form, is left alone with its statement.
        if self.bytes.get(self.at).is_some_and(|next| next.is_ascii_alphanumeric() || *next == b'_') {
            return None;
        }
        let digits = &self.text[start..self.at];
        let (ty, value) = match digits.parse::<i64>() {
            Ok(number) if i32::try_from(number).is_ok() => (SqlType::Int4, Value::Int(number)),
            Ok(number) => (SqlType::Int8, Value::Int(number)),
            Err(_) => (SqlType::Numeric, Value::Numeric(Numeric::parse(digits).ok()?)),
        };
        Some(Literal::Number(ty, value))
    }

    /// Returns true if a cast follows, or another string that belongs to the one before.
    fn is_cast(&self) -> bool {
        let rest = self.text[self.at..].trim_start();
        rest.starts_with(':') || rest.starts_with('\'')
    }

    /// Puts a parameter in the place of the literal that began at `start`.
    fn lift(&mut self, start: usize, literal: Literal) -> Option<()> {
        self.out.push_str(&self.text[self.copied..start]);
        self.literals.push(literal);
        if self.literals.len() > MAX_LITERALS {
            return None;
        }
        self.out.push_str(&format!("${}", self.literals.len()));
        self.types.push(match self.literals.last() {
            Some(Literal::Number(SqlType::Int4, _)) => 'i',
            Some(Literal::Number(SqlType::Int8, _)) => 'l',
            Some(Literal::Number(..)) => 'n',
            _ => 't',
        });
        self.copied = self.at;
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lifted(text: &str) -> (String, Vec<Literal>) {
        lift(text).map_or_else(Default::default, |lifted| (lifted.text, lifted.literals))
    }

    fn int(number: i64) -> Literal {
        Literal::Number(SqlType::Int4, Value::Int(number))
    }

    #[test]
    fn literals_become_parameters_where_they_are_values() {
        let (text, literals) = lifted("UPDATE t SET v = v + -3045, w = 'it''s' WHERE id = 12 AND x >= 1.5;");
        assert_eq!(text, "UPDATE t SET v = v + -$1, w = $2 WHERE id = $3 AND x >= $4");
        assert_eq!(literals[..3], [int(3045), Literal::Text("it's".to_owned()), int(12)]);
        let (text, literals) = lifted("INSERT INTO t(a, b) VALUES (1, -2, 'x'), (3000000000, now(), '')");
        assert_eq!(text, "INSERT INTO t(a, b) VALUES ($1, -$2, $3), ($4, now(), $5)");
        assert_eq!(literals[3], Literal::Number(SqlType::Int8, Value::Int(3_000_000_000)));
        // The types are a part of the key.
        let keys =
            ["1", "3000000000", "'1'"].map(|value| lift(&format!("SELECT a FROM t WHERE a = {value}")));
        let keys = keys.map(|lifted| lifted.unwrap().key);
        assert!(keys[0] != keys[1] && keys[1] != keys[2]);
    }

    #[test]
    fn numbers_that_are_no_values_stay() {
        let (text, _) = lifted("SELECT a, 5, 'x' FROM t WHERE a = 1 GROUP BY 1 ORDER BY 2 LIMIT 10 OFFSET 3");
        assert_eq!(text, "SELECT a, 5, 'x' FROM t WHERE a = $1 GROUP BY 1 ORDER BY 2 LIMIT 10 OFFSET 3");
        let (text, _) = lifted("SELECT a FROM t WHERE a = '1'::int AND b = 2 AND c IN (1, 2)");
        assert_eq!(text, "SELECT a FROM t WHERE a = '1'::int AND b = $1 AND c IN (1, 2)");
    }

    #[test]
    fn doubtful_texts_are_left_alone() {
        for text in [
            "SELECT 1",
            "SELECT a FROM t WHERE a = 1 -- comment",
            "SELECT a FROM t WHERE a = 1 /* comment */",
            "SELECT a FROM t WHERE a = E'x'",
            "SELECT a FROM t WHERE a = $1 AND b = 2",
            "SELECT a FROM t WHERE a = 1; SELECT 2",
            "SELECT a FROM t WHERE a = 1e5",
            "SELECT a FROM t WHERE a = 'x\\y'",
            "SELECT a FROM t WHERE a = 'x",
            "SELECT a FROM t WHERE a = $$x$$",
            "CREATE TABLE t(a int DEFAULT 1)",
        ] {
            assert_eq!(lifted(text).1, [], "{text}");
        }
    }
}
