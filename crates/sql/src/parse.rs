//! From text to the grammar's tree.
//!
//! Owns: the errors of texts that are no statements. Never: looks at what a statement means.

use sqlparser::ast::Statement;
use sqlparser::dialect::PostgreSqlDialect;
use sqlparser::parser::{Parser, ParserError};
use sqlparser::tokenizer::{Token, TokenWithSpan, Tokenizer};

use crate::error::{SqlError, SqlState};

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
    check_chains(&tokens)?;
    let parsed = Parser::new(&dialect).with_tokens_with_locations(tokens).parse_statements();
    parsed.map_err(|error| syntax_error(&error, text))
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
