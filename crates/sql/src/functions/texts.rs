//! Functions of texts and bytes, `LIKE` and regular expressions.

use super::{ANY, Function, Run, int, invalid_parameter, strict, text, variadic};
use crate::error::{SqlError, SqlState};
use crate::format::{text_of, without_padding};
use crate::types::SqlType::{self, Bool, Int4, Text};
use crate::value::Value;

/// The longest text or array that a function makes, in bytes.
pub(super) const MAX_BYTES: usize = 64 << 20;

const fn of_text(name: &'static str, result: SqlType, run: Run) -> Function {
    strict(name, &[Text], result, run)
}

pub(super) static FUNCTIONS: &[Function] = &[
    of_text("lower", Text, |_, a| Ok(Value::from(text(a, 0).to_lowercase()))),
    of_text("upper", Text, |_, a| Ok(Value::from(text(a, 0).to_uppercase()))),
    of_text("length", Int4, |_, a| Ok(Value::Int(text(a, 0).chars().count() as i64))),
    of_text("char_length", Int4, |_, a| Ok(Value::Int(text(a, 0).chars().count() as i64))),
    of_text("octet_length", Int4, |_, a| Ok(Value::Int(text(a, 0).len() as i64))),
    of_text("reverse", Text, |_, a| Ok(Value::from(text(a, 0).chars().rev().collect::<String>()))),
    of_text("ascii", Int4, |_, a| Ok(Value::Int(text(a, 0).chars().next().map_or(0, |c| c as i64)))),
    of_text("quote_ident", Text, |_, a| Ok(Value::from(quote_ident(text(a, 0))))),
    of_text("quote_literal", Text, |_, a| Ok(Value::from(format!("'{}'", text(a, 0).replace('\'', "''"))))),
    strict("substring", &[Text, Int4], Text, |_, a| substring(text(a, 0), int(a, 1), None)),
    strict("substring", &[Text, Int4, Int4], Text, |_, a| substring(text(a, 0), int(a, 1), Some(int(a, 2)))),
    strict("substr", &[Text, Int4], Text, |_, a| substring(text(a, 0), int(a, 1), None)),
    strict("substr", &[Text, Int4, Int4], Text, |_, a| substring(text(a, 0), int(a, 1), Some(int(a, 2)))),
    strict("left", &[Text, Int4], Text, |_, a| Ok(left(text(a, 0), int(a, 1)))),
    strict("right", &[Text, Int4], Text, |_, a| Ok(right(text(a, 0), int(a, 1)))),
    of_text("btrim", Text, |_, a| Ok(Value::text(text(a, 0).trim_matches(' ')))),
    of_text("ltrim", Text, |_, a| Ok(Value::text(text(a, 0).trim_start_matches(' ')))),
    of_text("rtrim", Text, |_, a| Ok(Value::text(without_padding(text(a, 0))))),
    strict("btrim", &[Text, Text], Text, |_, a| {
        Ok(Value::text(text(a, 0).trim_matches(|c| text(a, 1).contains(c))))
    }),
    strict("ltrim", &[Text, Text], Text, |_, a| {
        Ok(Value::text(text(a, 0).trim_start_matches(|c| text(a, 1).contains(c))))
    }),
    strict("rtrim", &[Text, Text], Text, |_, a| {
        Ok(Value::text(text(a, 0).trim_end_matches(|c| text(a, 1).contains(c))))
    }),
    strict("strpos", &[Text, Text], Int4, |_, a| Ok(position(text(a, 0), text(a, 1)))),
    strict("position", &[Text, Text], Int4, |_, a| Ok(position(text(a, 1), text(a, 0)))),
    strict("replace", &[Text, Text, Text], Text, |_, a| {
        let (whole, from, to) = (text(a, 0), text(a, 1), text(a, 2));
        if from.is_empty() {
            return Ok(Value::text(whole));
        }
        bounded(whole.len() + whole.matches(from).count().saturating_mul(to.len()))?;
        Ok(Value::from(whole.replace(from, to)))
    }),
    strict("repeat", &[Text, Int4], Text, |_, a| {
        let count = usize::try_from(int(a, 1)).unwrap_or(0);
        bounded(text(a, 0).len().saturating_mul(count))?;
        Ok(Value::from(text(a, 0).repeat(count)))
    }),
    strict("lpad", &[Text, Int4], Text, |_, a| pad(text(a, 0), int(a, 1), " ", true)),
    strict("lpad", &[Text, Int4, Text], Text, |_, a| pad(text(a, 0), int(a, 1), text(a, 2), true)),
    strict("rpad", &[Text, Int4], Text, |_, a| pad(text(a, 0), int(a, 1), " ", false)),
    strict("rpad", &[Text, Int4, Text], Text, |_, a| pad(text(a, 0), int(a, 1), text(a, 2), false)),
    strict("split_part", &[Text, Text, Int4], Text, |_, a| {
        let at = usize::try_from(int(a, 2) - 1)
            .map_err(|_| invalid_parameter("field position must not be zero"))?;
        let separator = text(a, 1);
        let part = if separator.is_empty() {
            (at == 0).then(|| text(a, 0))
        } else {
            text(a, 0).split(separator).nth(at)
        };
        Ok(Value::text(part.unwrap_or("")))
    }),
    strict("starts_with", &[Text, Text], Bool, |_, a| Ok(Value::Bool(text(a, 0).starts_with(text(a, 1))))),
    strict("chr", &[Int4], Text, |_, a| {
        let character = u32::try_from(int(a, 0)).ok().filter(|code| *code != 0).and_then(char::from_u32);
        let character = character.ok_or_else(|| invalid_parameter("requested character is not valid"))?;
        Ok(Value::from(character.to_string()))
    }),
    variadic("concat", &[ANY], Text, |_, a| Ok(Value::from(a.iter().map(shown).collect::<String>()))),
    variadic("concat_ws", &[Text, ANY], Text, |_, a| {
        let Some(Value::Text(separator)) = a.first() else { return Ok(Value::Null) };
        let parts: Vec<String> = a[1..].iter().filter(|part| !part.is_null()).map(shown).collect();
        Ok(Value::from(parts.join(separator)))
    }),
    strict("textcat", &[Text, Text], Text, |_, a| {
        bounded(text(a, 0).len() + text(a, 1).len())?;
        Ok(Value::from(format!("{}{}", text(a, 0), text(a, 1))))
    }),
];

/// Refuses a text that would be too long.
pub(super) fn bounded(bytes: usize) -> Result<(), SqlError> {
    if bytes <= MAX_BYTES {
        return Ok(());
    }
    Err(SqlError::new(SqlState::PROGRAM_LIMIT_EXCEEDED, "the text would be longer than 64 MB"))
}

pub(super) fn shown(value: &Value) -> String {
    if value.is_null() { String::new() } else { text_of(value, value.natural_type()) }
}

/// A name as a statement writes it.
pub(crate) fn quote_ident(name: &str) -> String {
    let is_plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
    if !name.is_empty() && !name.starts_with(|c: char| c.is_ascii_digit()) && name.chars().all(is_plain) {
        name.to_owned()
    } else {
        format!("\"{}\"", name.replace('"', "\"\""))
    }
}

fn substring(whole: &str, from: i64, count: Option<i64>) -> Result<Value, SqlError> {
    let until = match count {
        Some(count) if count < 0 => {
            return Err(SqlError::new(SqlState("22011"), "negative substring length not allowed"));
        }
        Some(count) => from.saturating_add(count),
        None => i64::MAX,
    };
    let skipped = usize::try_from(from.max(1) - 1).unwrap_or(usize::MAX);
    let taken = usize::try_from(until.saturating_sub(from.max(1))).unwrap_or(0);
    Ok(Value::from(whole.chars().skip(skipped).take(taken).collect::<String>()))
}

fn left(whole: &str, count: i64) -> Value {
    let all = whole.chars().count() as i64;
    let taken = if count < 0 { all + count.max(-all) } else { count };
    Value::from(whole.chars().take(taken as usize).collect::<String>())
}

fn right(whole: &str, count: i64) -> Value {
    let all = whole.chars().count() as i64;
    let skipped = if count < 0 { -count.max(-all) } else { all - count.min(all) };
    Value::from(whole.chars().skip(skipped as usize).collect::<String>())
}

fn position(whole: &str, part: &str) -> Value {
    Value::Int(whole.find(part).map_or(0, |at| whole[..at].chars().count() as i64 + 1))
}

fn pad(whole: &str, length: i64, with: &str, at_left: bool) -> Result<Value, SqlError> {
    let length = usize::try_from(length).unwrap_or(0);
    bounded(length.saturating_mul(4))?;
    let count = whole.chars().count();
    if count >= length || with.is_empty() {
        return Ok(Value::from(whole.chars().take(length).collect::<String>()));
    }
    let padding: String = with.chars().cycle().take(length - count).collect();
    Ok(Value::from(if at_left { format!("{padding}{whole}") } else { format!("{whole}{padding}") }))
}

/// `LIKE`, with `any_case` `ILIKE`.
pub(crate) fn like(
    value: &Value,
    pattern: &Value,
    escape: Option<&Value>,
    any_case: bool,
) -> Result<Value, SqlError> {
    let (Value::Text(value), Value::Text(pattern)) = (value, pattern) else { return Ok(Value::Null) };
    let escape = match escape {
        None => Some('\\'),
        Some(Value::Text(escape)) if escape.chars().count() <= 1 => escape.chars().next(),
        Some(Value::Text(_)) => {
            return Err(SqlError::new(SqlState::INVALID_ESCAPE_SEQUENCE, "invalid escape string")
                .hint("Escape string must be empty or one character."));
        }
        Some(_) => return Ok(Value::Null),
    };
    let folded = |text: &str| if any_case { text.to_lowercase() } else { text.to_owned() };
    let (value, pattern) = (folded(value), folded(pattern));
    let tokens = like_tokens(&pattern, escape)?;
    let value: Vec<char> = value.chars().collect();
    Ok(Value::Bool(like_matches(&value, &tokens)))
}

enum LikeToken {
    Any,
    One,
    Character(char),
}

fn like_tokens(pattern: &str, escape: Option<char>) -> Result<Vec<LikeToken>, SqlError> {
    let mut tokens = Vec::new();
    let mut characters = pattern.chars();
    while let Some(c) = characters.next() {
        tokens.push(match c {
            c if Some(c) == escape => LikeToken::Character(characters.next().ok_or_else(|| {
                SqlError::new(
                    SqlState::INVALID_ESCAPE_SEQUENCE,
                    "LIKE pattern must not end with escape character",
                )
            })?),
            '%' => LikeToken::Any,
            '_' => LikeToken::One,
            c => LikeToken::Character(c),
        });
    }
    Ok(tokens)
}

/// Matches with one way back, to the last `%`: an earlier one never helps where that does not.
fn like_matches(value: &[char], pattern: &[LikeToken]) -> bool {
    let (mut at, mut token, mut back) = (0, 0, None);
    while at < value.len() {
        match pattern.get(token) {
            Some(LikeToken::Any) => {
                back = Some((token + 1, at));
                token += 1;
                continue;
            }
            Some(LikeToken::One) => {
                (at, token) = (at + 1, token + 1);
                continue;
            }
            Some(LikeToken::Character(c)) if *c == value[at] => {
                (at, token) = (at + 1, token + 1);
                continue;
            }
            _ => {}
        }
        let Some((after, from)) = back else { return false };
        (at, token) = (from + 1, after);
        back = Some((after, from + 1));
    }
    pattern[token..].iter().all(|token| matches!(token, LikeToken::Any))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_like(value: &str, pattern: &str) -> bool {
        matches!(like(&value.into(), &pattern.into(), None, false), Ok(Value::Bool(true)))
    }

    #[test]
    fn patterns_match() {
        assert!(is_like("abc", "a%"));
        assert!(is_like("abc", "%b%"));
        assert!(is_like("abcabd", "%ab_"));
        assert!(is_like("", "%"));
        assert!(is_like("a%c", "a\\%c"));
        assert!(!is_like("abc", "a\\%c"));
        assert!(!is_like("abc", "ab"));
        assert!(!is_like("ab", "a_c%"));
        assert!(like(&"a".into(), &"\\".into(), None, false).is_err());
    }

    #[test]
    fn parts_of_texts_are_counted_in_characters() {
        let shown = |value: Value| value.as_text().map(str::to_owned).unwrap_or_default();
        assert_eq!(shown(substring("größe", 2, Some(3)).unwrap()), "röß");
        assert_eq!(shown(substring("abc", -1, Some(3)).unwrap()), "a");
        assert_eq!(shown(left("abc", -1)), "ab");
        assert_eq!(shown(right("abc", -5)), "");
        assert_eq!(shown(pad("x", 4, "ab", true).unwrap()), "abax");
    }
}
