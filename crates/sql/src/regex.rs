//! Regular expressions as PostgreSQL has them ("advanced" ones, in collation C): which part of a text matches, and what its groups are.
//!
//! Owns: the rules by which one of several matches is chosen. PostgreSQL's are those of its library, by Henry Spencer: the match that begins
//! first, the longest or the shortest of these as the expression prefers, and then the longest or shortest beginnings for its parts, from
//! left to right. Never: replaces or splits a text (`functions::patterns` does).
//!
//! Invariants:
//! - Time is polynomial in the lengths of the expression and the text, as no match is tried out: sets of places say where a part may begin
//!   and end. What is looked ahead or behind for is looked for at each place anew, so that each level of it is one more power, of which there
//!   are two at most.
//! - A search asks after some thousands of steps whether it is to go on.

mod machine;
mod parse;
mod tree;

use std::cell::{Cell, OnceCell};

use crate::error::{SqlError, SqlState};
use machine::Machine;
pub(crate) use parse::Options;
use parse::Part;
use tree::Division;

/// The most states of an expression, those of what it looks ahead or behind for among them.
const STATES_MAX: usize = 20_000;

/// The steps between looks at whether a search is to go on: less than a millisecond.
const STEPS: usize = 1 << 16;

/// An observer that may have a search end.
pub(crate) trait Watch {
    /// Returns the error with which the search is to end now, if it is.
    fn check(&self) -> Result<(), SqlError>;
}

/// A text in which matches are looked for.
pub(crate) struct Search<'s> {
    pub(crate) text: Vec<char>,
    watch: &'s dyn Watch,
    /// The number of steps up to the next look.
    left: Cell<usize>,
}

impl<'s> Search<'s> {
    pub(crate) fn new(text: &str, watch: &'s dyn Watch) -> Search<'s> {
        Search { text: text.chars().collect(), watch, left: Cell::new(STEPS) }
    }

    /// Counts steps; fails if the search is to end.
    fn takes(&self, steps: usize) -> Result<(), SqlError> {
        if let Some(left) = self.left.get().checked_sub(steps) {
            self.left.set(left);
            return Ok(());
        }
        self.left.set(STEPS);
        self.watch.check()
    }
}

/// The places of a match and of its groups, in characters; the whole of it is the first. `None` is a group that takes no part.
pub(crate) type Found = Vec<Option<(usize, usize)>>;

/// A compiled expression.
#[derive(Debug)]
pub(crate) struct Pattern {
    part: Part,
    machine: Machine,
    groups: usize,
    /// Set if the match that ends first is wanted.
    is_short: bool,
    /// Made for the first match whose groups are asked for.
    division: OnceCell<Division>,
}

impl Pattern {
    /// Compiles an expression.
    pub(crate) fn new(text: &str, options: Options) -> Result<Pattern, SqlError> {
        let (part, groups) = parse::parse(text, options)?;
        let machine = Machine::forward(&part, &mut { STATES_MAX })?;
        let is_short = tree::is_short(&part);
        Ok(Pattern { part, machine, groups, is_short, division: OnceCell::new() })
    }

    /// The number of groups.
    pub(crate) fn groups(&self) -> usize {
        self.groups
    }

    /// Returns true if a part of the text matches.
    pub(crate) fn is_match(&self, search: &Search<'_>) -> Result<bool, SqlError> {
        Ok(self.machine.first_start(search, 0, true)?.is_some())
    }

    /// The first match that begins at a place or behind it.
    pub(crate) fn find(&self, search: &Search<'_>, from: usize) -> Result<Option<Found>, SqlError> {
        let Some(start) = self.machine.first_start(search, from, false)? else { return Ok(None) };
        let ends = self.machine.ends(search, start, search.text.len())?;
        let end = if self.is_short { ends.into_iter().min() } else { ends.into_iter().max() };
        let Some(end) = end else { return Ok(None) };
        let mut found = vec![None; self.groups + 1];
        found[0] = Some((start, end));
        if self.groups > 0 {
            let division = self.division.get_or_init(|| Division::of(&self.part));
            division.divide(search, (start, end), &mut found)?;
        }
        Ok(Some(found))
    }
}

#[cold]
fn invalid(message: &str) -> SqlError {
    SqlError::new(SqlState::INVALID_REGULAR_EXPRESSION, format!("invalid regular expression: {message}"))
}

#[cold]
fn too_complex() -> SqlError {
    invalid("regular expression is too complex")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The number of looks that a search may still have.
    struct Looks(Cell<usize>);

    impl Watch for Looks {
        fn check(&self) -> Result<(), SqlError> {
            let left = self.0.get().checked_sub(1);
            self.0.set(left.ok_or_else(|| SqlError::new(SqlState::QUERY_CANCELED, "it takes too long"))?);
            Ok(())
        }
    }

    /// Looks for so many steps that a search ends within a second or two.
    fn looks() -> Looks {
        Looks(Cell::new(1_000))
    }

    fn pattern(text: &str) -> Result<Pattern, SqlError> {
        Pattern::new(text, Options::default())
    }

    fn found(text: &str, within: &str) -> Option<Vec<Option<String>>> {
        let looks = looks();
        let search = Search::new(within, &looks);
        let found = pattern(text).unwrap().find(&search, 0).unwrap()?;
        Some(
            found
                .into_iter()
                .map(|part| part.map(|(start, end)| search.text[start..end].iter().collect()))
                .collect(),
        )
    }

    #[track_caller]
    fn assert_too_complex(text: &str) {
        assert_eq!(pattern(text).unwrap_err(), too_complex());
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
        assert_too_complex("((a{1,200}){1,200}){1,200}");
        assert_too_complex(&"(".repeat(5000));
    }

    #[test]
    fn what_is_empty_is_repeated_at_no_cost() {
        let empty = format!("{}(?:){}a", "(?:".repeat(90), "){255}".repeat(90));
        assert_eq!(groups(&empty, "ba"), ["a"]);
        let none = format!("{}b{{0}}{}(a)", "(".repeat(90), "){255}".repeat(90));
        assert_eq!(groups(&none, "ba").last().map(String::as_str), Some("a"));
        // States would be few here, and walks of the parts without end.
        assert_too_complex(&format!("(?:(?:a{}){{255}}){{70}}", "(?:){2}".repeat(10_000)));
        assert_too_complex(&"(?:)".repeat(30_000));
        assert_too_complex(&"|".repeat(30_000));
    }

    #[test]
    fn changes_of_taste_are_counted_with_groups() {
        assert_too_complex(&"a*?b*".repeat(100_000));
        assert_too_complex(&format!("{}{}", "(a)".repeat(300), "b*?c*".repeat(300)));
        let long = format!("(x){}(.*)$", "a*?b*".repeat(400));
        assert_eq!(groups(&long, "xaabbabc"), ["xaabbabc", "x", "aabbabc"]);
        let nested = format!("{}a*?b*{}", "(".repeat(90), ")*c*?".repeat(90));
        assert_eq!(groups(&nested, "aabb")[0], "aabb");
    }

    #[test]
    fn states_are_counted_in_all_of_a_pattern() {
        assert_too_complex(&"(?=a{250})".repeat(100));
        assert_too_complex("(?:(?=a{250})b){100}");
        assert_too_complex("(?=(?=(?=a)))");
        assert_eq!(groups("(?=(?=ab)a)(a)(?!(?!b))", "aab"), ["a", "a"]);
        // The rest behind each group has a machine of its own.
        let (looks, text) = (looks(), "x".repeat(39 * 490));
        let (search, pattern) =
            (Search::new(&text, &looks), pattern(&format!("^{}", "(x{39})".repeat(490))).unwrap());
        assert!(pattern.is_match(&search).unwrap());
        assert_eq!(pattern.find(&search, 0).unwrap_err(), too_complex());
    }

    #[test]
    fn a_search_ends_when_it_is_told_to() {
        let text = "a".repeat(30_000);
        let looks = Looks(Cell::new(3));
        let search = Search::new(&text, &looks);
        let pattern = pattern("(?=a*b)(?=a*c)a").unwrap();
        assert_eq!(pattern.find(&search, 0).unwrap_err().code, SqlState::QUERY_CANCELED);
        assert_eq!(pattern.is_match(&search).unwrap_err().code, SqlState::QUERY_CANCELED);
    }

    const PIECES: &[&str] = &[
        "a",
        "a",
        "b",
        "b",
        "é",
        "𝄞",
        ".",
        "(a",
        "(",
        ")",
        ")",
        "|",
        "*",
        "+",
        "*?",
        "(a|b)*?",
        "(?:",
        "(?:)",
        "(?=a",
        "(?!b",
        "(?<=a",
        "(?<!",
        "[^b]",
        "[é-𝄞]",
        "[",
        "-",
        "]",
        "?",
        "{2}",
        "{0}",
        "{0,3}",
        "{1,}?",
        "{255}",
        "{",
        ",",
        "^",
        "$",
        "\\",
        "\\d",
        "\\W",
        "\\y",
        "\\m",
        "\\1",
        "\\x41",
        "\\u00e9",
        "[[:alpha:]]",
        "[[:<:]]",
        "[[.a.]]",
        "[[=",
        "(?i)",
        "(?x)",
        "(?#",
        "***=",
        "***:",
        " ",
        "#",
        "\n",
        "0",
    ];

    #[test]
    fn no_pattern_panics_or_takes_long() {
        let mut state = 7_u64;
        let mut below = move |bound: usize| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) as usize % bound
        };
        let (mut matched, mut refused) = (0, 0);
        for _ in 0..10_000 {
            let text: String = (0..1 + below(7)).map(|_| PIECES[below(PIECES.len())]).collect();
            let within: String =
                (0..below(9)).map(|_| ["a", "b", "é", "𝄞", "\n", "0", " "][below(7)]).collect();
            let mut options = Options::default();
            if below(4) == 0 {
                let letter = ['i', 'x', 'n', 'p', 'w'][below(5)];
                assert!(options.set(letter).unwrap());
            }
            let pattern = match Pattern::new(&text, options) {
                Ok(pattern) => pattern,
                Err(error) => {
                    assert!(matches!(error.code.0, "2201B" | "0A000"), "{text}: {error:?}");
                    refused += 1;
                    continue;
                }
            };
            let looks = looks();
            let search = Search::new(&within, &looks);
            let (mut from, mut count) = (0, 0);
            while let Some(found) =
                pattern.find(&search, from).unwrap_or_else(|error| panic!("{text}: {error:?}"))
            {
                assert_eq!(found.len(), pattern.groups() + 1);
                let (start, end) = found[0].unwrap();
                assert!(
                    from <= start && start <= end && end <= search.text.len(),
                    "{text} in {within}: {found:?}"
                );
                for (one, other) in found.iter().flatten() {
                    assert!(start <= *one && one <= other && *other <= end, "{text} in {within}: {found:?}");
                }
                from = end + usize::from(start == end);
                count += 1;
            }
            assert_eq!(pattern.is_match(&search).unwrap(), count > 0, "{text} in {within}");
            matched += usize::from(count > 0);
        }
        assert!(matched > 1_000 && refused > 1_000, "{matched} {refused}");
    }
}
