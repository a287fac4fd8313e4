//! Regular expressions as PostgreSQL has them ("advanced" ones, in collation C): which part of a text matches, and what its groups are.
//!
//! Owns: the rules by which one of several matches is chosen. PostgreSQL's are those of its library, by Henry Spencer: the match that begins
//! first, the longest or the shortest of these as the expression prefers, and then the longest or shortest beginnings for its parts, from
//! left to right. Never: replaces or splits a text (`functions::patterns` does).
//!
//! Invariant: time is polynomial in the lengths of the expression and the text, as no match is tried out: sets of places say where a part
//! may begin and end.

mod machine;
mod parse;
mod tree;

use crate::error::{SqlError, SqlState};
use machine::Machine;
pub(crate) use parse::Options;
use tree::Step;

/// The places of a match and of its groups, in characters; the whole of it is the first. `None` is a group that takes no part.
pub(crate) type Found = Vec<Option<(usize, usize)>>;

/// A compiled expression.
#[derive(Debug)]
pub(crate) struct Pattern {
    root: Step,
    machine: Machine,
    groups: usize,
}

impl Pattern {
    /// Compiles an expression.
    pub(crate) fn new(text: &str, options: Options) -> Result<Pattern, SqlError> {
        let (part, groups) = parse::parse(text, options)?;
        let machine = Machine::forward(&part)?;
        Ok(Pattern { root: tree::step(&part), machine, groups })
    }

    /// The number of groups.
    pub(crate) fn groups(&self) -> usize {
        self.groups
    }

    /// Returns true if a part of the text matches.
    pub(crate) fn is_match(&self, text: &[char]) -> bool {
        self.machine.first_start(text, 0, true).is_some()
    }

    /// The first match that begins at a place or behind it.
    pub(crate) fn find(&self, text: &[char], from: usize) -> Result<Option<Found>, SqlError> {
        let Some(start) = self.machine.first_start(text, from, false) else { return Ok(None) };
        let ends = self.machine.ends(text, start, text.len());
        let end = if self.root.is_short { ends.into_iter().min() } else { ends.into_iter().max() };
        let Some(end) = end else { return Ok(None) };
        let mut found = vec![None; self.groups + 1];
        found[0] = Some((start, end));
        self.root.divide(text, (start, end), &mut found)?;
        Ok(Some(found))
    }
}

#[cold]
fn invalid(message: &str) -> SqlError {
    SqlError::new(SqlState::INVALID_REGULAR_EXPRESSION, format!("invalid regular expression: {message}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(pattern: &str, text: &str) -> Option<Vec<Option<String>>> {
        let text: Vec<char> = text.chars().collect();
        let found = Pattern::new(pattern, Options::default()).unwrap().find(&text, 0).unwrap()?;
        Some(
            found
                .into_iter()
                .map(|part| part.map(|(start, end)| text[start..end].iter().collect()))
                .collect(),
        )
    }

    fn groups(pattern: &str, text: &str) -> Vec<String> {
        found(pattern, text).unwrap().into_iter().map(Option::unwrap_or_default).collect()
    }

    #[test]
    fn the_longest_match_is_found_whatever_comes_first_in_the_pattern() {
        assert_eq!(groups("a|ab|abc", "xabcd"), ["abc"]);
        assert_eq!(groups("a?(ab)?", "ab"), ["ab", "ab"]);
        assert_eq!(groups("(a|ab)(c|bcd)(d*)", "abcd"), ["abcd", "ab", "c", "d"]);
        assert_eq!(found("b", "aac"), None);
    }

    #[test]
    fn the_first_quantifier_says_whether_the_whole_is_long_or_short() {
        assert_eq!(groups("Y*([0-9]{1,3})", "XY1234Z"), ["Y123", "123"]);
        assert_eq!(groups("Y*?([0-9]{1,3})", "XY1234Z"), ["Y1", "1"]);
        assert_eq!(groups("(.*)([0-9]+)(.*)", "abc01234xyz"), ["abc01234xyz", "abc0123", "4", "xyz"]);
        assert_eq!(groups("(.*?)([0-9]+)(.*)", "abc01234xyz"), ["abc0", "abc", "0", ""]);
        assert_eq!(
            groups("(?:(.*?)([0-9]+)(.*)){1,1}", "abc01234xyz"),
            ["abc01234xyz", "abc", "01234", "xyz"]
        );
    }

    #[test]
    fn a_group_that_is_repeated_has_its_last_part() {
        assert_eq!(groups("(a|b)*", "abba"), ["abba", "a"]);
        assert_eq!(groups("(a|ab|c|bc)*", "abc"), ["abc", "c"]);
        assert_eq!(found("(x)?a", "a").unwrap(), [Some("a".to_owned()), None]);
    }

    #[test]
    fn time_is_bounded_where_trying_out_would_not_end() {
        let text = "a".repeat(3000);
        assert_eq!(found("(a*)*b", &text), None);
        assert_eq!(groups("(a*)*", &text)[0].len(), 3000);
        assert!(Pattern::new("((a{1,200}){1,200}){1,200}", Options::default()).is_err());
        assert!(Pattern::new(&"(".repeat(5000), Options::default()).is_err());
    }
}
