//! Forms of PostgreSQL that the grammar does not know, turned into such as it does.
//!
//! - `ROWS FROM (f(..), g(..))` is a call of a function with a name that no other has ([`ROWS_FROM`]).
//! - `substring(x SIMILAR y ESCAPE z)` is `substring(x FROM y FOR z)`, which means the same for texts.

use sqlparser::keywords::Keyword;
use sqlparser::tokenizer::{Token, TokenWithSpan};

/// The name of the function that ROWS FROM is to the binder.
pub(crate) const ROWS_FROM: &str = "rows from";

/// An open parenthesis.
#[derive(Clone, Copy, Default)]
struct Open {
    /// Set while the tables of a FROM are listed.
    in_from: bool,
    /// Set for the arguments of `substring`.
    of_substring: bool,
    /// Set if SIMILAR was found in them.
    is_similar: bool,
}

impl Open {
    /// Notes the clause that a keyword begins.
    fn enters(&mut self, word: Keyword) {
        match word {
            Keyword::FROM => self.in_from = !self.of_substring,
            Keyword::JOIN => self.in_from = true,
            Keyword::SELECT | Keyword::WHERE | Keyword::GROUP | Keyword::ORDER | Keyword::ON => {
                self.in_from = false;
            }
            _ => {}
        }
    }
}

/// Turns the forms, if there are any.
pub(super) fn turned(tokens: Vec<TokenWithSpan>) -> Vec<TokenWithSpan> {
    let is_one = |token: &TokenWithSpan| matches!(keyword(&token.token), Keyword::ROWS | Keyword::SIMILAR);
    if !tokens.iter().any(is_one) {
        return tokens;
    }
    let is_space = |token: &TokenWithSpan| matches!(token.token, Token::Whitespace(_));
    let written: Vec<Keyword> =
        tokens.iter().filter(|token| !is_space(token)).map(|token| keyword(&token.token)).collect();
    let mut written = written.into_iter().skip(1);
    let (mut out, mut open) = (Vec::with_capacity(tokens.len()), vec![Open::default()]);
    // The keyword before a token, and whether a table may come behind it.
    let (mut before, mut may_be_table) = (Keyword::NoKeyword, false);
    let mut leaves_out = false;
    for mut token in tokens {
        if is_space(&token) {
            out.push(token);
            continue;
        }
        let (word, next) = (keyword(&token.token), written.next().unwrap_or(Keyword::NoKeyword));
        if std::mem::take(&mut leaves_out) {
            (before, may_be_table) = (word, false);
            continue;
        }
        let mut own = open.pop().unwrap_or_default();
        own.enters(word);
        let is_table = own.in_from && may_be_table;
        match &token.token {
            Token::Word(_) if is_table && word == Keyword::ROWS && next == Keyword::FROM => {
                token.token = Token::make_word(ROWS_FROM, Some('"'));
                leaves_out = true;
            }
            Token::Word(_) if own.of_substring && word == Keyword::SIMILAR && next != Keyword::TO => {
                own.is_similar = true;
                token.token = Token::make_keyword("FROM");
            }
            Token::Word(_) if own.is_similar && word == Keyword::ESCAPE => {
                token.token = Token::make_keyword("FOR");
            }
            _ => {}
        }
        may_be_table = matches!(token.token, Token::Comma | Token::LParen)
            || matches!(word, Keyword::FROM | Keyword::JOIN | Keyword::LATERAL);
        match &token.token {
            Token::LParen => {
                open.push(own);
                open.push(Open {
                    of_substring: before == Keyword::SUBSTRING,
                    in_from: is_table,
                    ..Open::default()
                });
            }
            Token::RParen if !open.is_empty() => {}
            _ => open.push(own),
        }
        before = word;
        out.push(token);
    }
    out
}

/// The keyword that a token is, without quotation marks.
fn keyword(token: &Token) -> Keyword {
    match token {
        Token::Word(word) if word.quote_style.is_none() => word.keyword,
        _ => Keyword::NoKeyword,
    }
}
