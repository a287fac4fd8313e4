//! From text to the grammar's tree.
//!
//! Owns: the errors of texts that are no statements. Never: looks at what a statement means.

use sqlparser::ast::{FetchDirection, FetchPosition, Ident, ObjectName, Statement, Value, ValueWithSpan};
use sqlparser::dialect::PostgreSqlDialect;
use sqlparser::parser::{Parser, ParserError};
use sqlparser::tokenizer::{Span, Token, TokenWithSpan, Tokenizer};

use crate::error::{SqlError, SqlState};
pub(crate) use forms::ROWS_FROM;

mod forms;
mod users;

/// The longest text of statements, in bytes.
const MAX_TEXT: usize = 64 << 20;

/// Parses the statements of a text.
pub(crate) fn statements(text: &str) -> Result<Vec<Statement>, SqlError> {
    if text.len() > MAX_TEXT {
        return Err(SqlError::new(SqlState::PROGRAM_LIMIT_EXCEEDED, "the statement is longer than 64 MB"));
    }
    // The grammar wants a semicolon before the data of a COPY, which comes by messages of its own here.
    let trimmed = text.trim_end();
    let is_copy = trimmed.trim_start().get(..4).is_some_and(|word| word.eq_ignore_ascii_case("copy"));
    // Nor does it know what PostgreSQL's VACUUM may name; it does nothing here in any case.
    let is_vacuum = trimmed.trim_start().get(..6).is_some_and(|word| word.eq_ignore_ascii_case("vacuum"))
        && !trimmed.trim_end_matches(';').contains(';');
    let owned;
    let text = if is_copy {
        owned = copy_statement(trimmed);
        &owned
    } else if is_vacuum {
        "VACUUM"
    } else {
        text
    };
    let dialect = PostgreSqlDialect {};
    let tokens = Tokenizer::new(&dialect, text).tokenize_with_location();
    let tokens = tokens.map_err(|error| syntax_error(&error.into(), text))?;
    if let Some(statement) = cursor_statement(&tokens) {
        return Ok(vec![statement]);
    }
    check_chains(&tokens)?;
    let tokens = forms::turned(users::turned(tokens));
    let parsed = Parser::new(&dialect).with_tokens_with_locations(tokens).parse_statements();
    parsed.map_err(|error| syntax_error(&error, text))
}

/// FETCH or MOVE, which the grammar knows only in part. MOVE is a FETCH into a place with that name, as nothing else is one.
fn cursor_statement(tokens: &[TokenWithSpan]) -> Option<Statement> {
    let is_space = |token: &&Token| !matches!(token, Token::Whitespace(_) | Token::SemiColon | Token::EOF);
    let mut tokens: Vec<&Token> = tokens.iter().map(|token| &token.token).filter(is_space).collect();
    let word = |token: &Token| match token {
        Token::Word(word) if word.quote_style.is_none() => word.value.to_lowercase(),
        _ => String::new(),
    };
    let moves = match &word(tokens.first()?)[..] {
        "fetch" => false,
        "move" => true,
        _ => return None,
    };
    let Some(Token::Word(name)) = tokens.pop() else { return None };
    let name = Ident { value: name.value.clone(), quote_style: name.quote_style, span: Span::empty() };
    let mut rest = &tokens[1..];
    if let Some((last, before)) = rest.split_last()
        && matches!(&word(last)[..], "from" | "in")
    {
        rest = before;
    }
    let limit = |tokens: &[&Token]| {
        let (sign, digits) = match tokens {
            [Token::Minus, digits] => ("-", *digits),
            [Token::Plus, digits] | [digits] => ("", *digits),
            _ => return None,
        };
        let Token::Number(digits, false) = digits else { return None };
        Some(ValueWithSpan::from(Value::Number(format!("{sign}{digits}"), false)))
    };
    let (first, behind) =
        rest.split_first().map_or((String::new(), rest), |(first, rest)| (word(first), rest));
    let is_all = matches!(behind, [all] if word(all) == "all");
    let direction = match (&first[..], behind) {
        ("", _) if rest.is_empty() => FetchDirection::Next,
        ("next", []) => FetchDirection::Next,
        ("prior", []) => FetchDirection::Prior,
        ("first", []) => FetchDirection::First,
        ("last", []) => FetchDirection::Last,
        ("all", []) => FetchDirection::All,
        ("absolute", _) => FetchDirection::Absolute { limit: limit(behind)? },
        ("relative", _) => FetchDirection::Relative { limit: limit(behind)? },
        ("forward", []) => FetchDirection::Forward { limit: None },
        ("forward", _) if is_all => FetchDirection::ForwardAll,
        ("forward", _) => FetchDirection::Forward { limit: limit(behind) },
        ("backward", []) => FetchDirection::Backward { limit: None },
        ("backward", _) if is_all => FetchDirection::BackwardAll,
        ("backward", _) => FetchDirection::Backward { limit: limit(behind) },
        _ => FetchDirection::Count { limit: limit(rest)? },
    };
    let into = moves.then(|| ObjectName::from(vec![Ident::new("move")]));
    Some(Statement::Fetch { name, direction, position: FetchPosition::From, into })
}

/// The longest chain of operators. The grammar makes a tree of it that is as deep, which is walked and freed on the stack.
const MAX_CHAIN: usize = 1000;

/// Refuses statements whose trees would be too deep for the stack.
fn check_chains(tokens: &[TokenWithSpan]) -> Result<(), SqlError> {
    use sqlparser::keywords::Keyword;
    // The lengths of the chains that are open, one for each parenthesis.
    let mut chains = vec![0];
    for token in tokens {
        match &token.token {
            Token::LParen | Token::LBracket => chains.push(0),
            Token::RParen | Token::RBracket if chains.len() > 1 => drop(chains.pop()),
            Token::Comma | Token::SemiColon => *chains.last_mut().unwrap_or(&mut 0) = 0,
            Token::Word(word) => {
                let links = matches!(
                    word.keyword,
                    Keyword::AND
                        | Keyword::OR
                        | Keyword::NOT
                        | Keyword::UNION
                        | Keyword::EXCEPT
                        | Keyword::INTERSECT
                        | Keyword::JOIN
                        | Keyword::IS
                );
                *chains.last_mut().unwrap_or(&mut 0) += usize::from(links);
            }
            Token::Number(..)
            | Token::SingleQuotedString(_)
            | Token::Whitespace(_)
            | Token::Period
            | Token::EOF => {}
            _ => *chains.last_mut().unwrap_or(&mut 0) += 1,
        }
        if chains.last().is_some_and(|length| *length > MAX_CHAIN) {
            return Err(SqlError::new(SqlState::STATEMENT_TOO_COMPLEX, "stack depth limit exceeded")
                .hint(format!("A chain of more than {MAX_CHAIN} operators is in the statement; use a list, or parentheses.")));
        }
    }
    Ok(())
}

/// A COPY as the grammar takes it: with a semicolon at its end, and the truth values of options in its words.
fn copy_statement(text: &str) -> String {
    let mut copied = text.to_owned();
    for option in ["freeze", "header"] {
        for (word, value) in [("on", "TRUE"), ("off", "FALSE")] {
            let lower = copied.to_ascii_lowercase();
            let found = lower.match_indices(option).find_map(|(at, _)| {
                let start = at + option.len();
                let rest = &lower[start..];
                let skipped = rest.len() - rest.trim_start().len();
                let ends = |rest: &str| rest.starts_with(|c: char| c == ',' || c == ')' || c.is_whitespace());
                let is_word = skipped > 0 && rest[skipped..].strip_prefix(word).is_some_and(ends);
                is_word.then_some(start + skipped)
            });
            if let Some(at) = found {
                copied.replace_range(at..at + word.len(), value);
            }
        }
    }
    if !copied.ends_with(';') {
        copied.push(';');
    }
    copied
}

/// The error for a text that the grammar does not accept.
#[cold]
pub(crate) fn syntax_error(error: &ParserError, text: &str) -> SqlError {
    let message = match error {
        ParserError::ParserError(message) | ParserError::TokenizerError(message) => message.clone(),
        ParserError::RecursionLimitExceeded => {
            return SqlError::new(SqlState::STATEMENT_TOO_COMPLEX, "stack depth limit exceeded")
                .hint("The statement is nested too deeply.");
        }
    };
    // The grammar tells the place at the end of its message.
    let (message, place) = match message.rsplit_once(" at Line: ") {
        Some((message, place)) => (message.to_owned(), position(place, text)),
        None => (message, None),
    };
    SqlError::new(SqlState::SYNTAX_ERROR, format!("syntax error: {message}")).at(place)
}

fn position(place: &str, text: &str) -> Option<u32> {
    let (line, column) = place.split_once(", Column: ")?;
    let (line, column): (usize, usize) = (line.trim().parse().ok()?, column.trim().parse().ok()?);
    let before: usize =
        text.split_inclusive('\n').take(line.checked_sub(1)?).map(|line| line.chars().count()).sum();
    u32::try_from(before + column).ok()
}
