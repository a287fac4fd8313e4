//! Statements on users, as statements on roles: the grammar has those of another database for them.
//!
//! Owns: the words that are put in the place of others. Never: looks at names or options.

use sqlparser::tokenizer::{Token, TokenWithSpan};

/// The word of a token, in lower case, unless it is in quotes.
fn word(token: &Token) -> String {
    match token {
        Token::Word(word) if word.quote_style.is_none() => word.value.to_lowercase(),
        _ => String::new(),
    }
}

fn keyword(value: &str) -> Token {
    Token::make_word(value, None)
}

/// Turns `CREATE USER` into `CREATE ROLE .. LOGIN`, `ALTER USER` into `ALTER ROLE`, and leaves out ENCRYPTED, as every password is.
pub(super) fn turned(tokens: Vec<TokenWithSpan>) -> Vec<TokenWithSpan> {
    let is_about_roles = |token: &TokenWithSpan| matches!(&word(&token.token)[..], "user" | "role" | "group");
    if !tokens.iter().any(is_about_roles) {
        return tokens;
    }
    let mut all = Vec::with_capacity(tokens.len() + 1);
    for statement in tokens.split_inclusive(|token| token.token == Token::SemiColon) {
        all.extend(turned_statement(statement.to_vec()));
    }
    all
}

fn turned_statement(mut tokens: Vec<TokenWithSpan>) -> Vec<TokenWithSpan> {
    let is_written = |token: &TokenWithSpan| !matches!(token.token, Token::Whitespace(_));
    let mut written = (0..tokens.len()).filter(|at| is_written(&tokens[*at]));
    let (Some(first), Some(second)) = (written.next(), written.next()) else { return tokens };
    let third = written.next().map(|at| word(&tokens[at].token));
    let (verb, noun) = (word(&tokens[first].token), word(&tokens[second].token));
    let is_about_roles = matches!(&verb[..], "create" | "alter")
        && (noun == "role" || noun == "group" || (noun == "user" && third.as_deref() != Some("mapping")));
    if !is_about_roles {
        return tokens;
    }
    let makes_user = verb == "create" && noun == "user";
    let says_login = tokens.iter().any(|token| matches!(&word(&token.token)[..], "login" | "nologin"));
    tokens[second].token = keyword("ROLE");
    tokens.retain(|token| word(&token.token) != "encrypted");
    if makes_user && !says_login {
        let end = tokens.iter().rposition(|token| !matches!(token.token, Token::SemiColon | Token::EOF));
        let at = end.map_or(tokens.len(), |last| last + 1);
        let span = tokens[second].span;
        tokens.insert(at, TokenWithSpan { token: keyword("LOGIN"), span });
    }
    tokens
}

#[cfg(test)]
mod tests {
    use crate::parse::statements;

    fn shown(text: &str) -> String {
        let parsed = statements(text).expect(text);
        parsed.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
    }

    #[test]
    fn users_are_roles_that_log_in() {
        assert_eq!(shown("create user bob"), "CREATE ROLE bob LOGIN");
        assert_eq!(
            shown("select 1; CREATE USER bob WITH ENCRYPTED PASSWORD 'x'; select 2"),
            "SELECT 1; CREATE ROLE bob LOGIN PASSWORD 'x'; SELECT 2"
        );
        assert_eq!(shown("create user bob nologin"), "CREATE ROLE bob NOLOGIN");
        assert_eq!(shown("alter user bob password null"), "ALTER ROLE bob WITH PASSWORD NULL");
        assert_eq!(shown("select user"), "SELECT user");
    }
}
