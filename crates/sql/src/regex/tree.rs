//! How a match is divided among the parts of its expression, to find its groups.
//!
//! Follows the structure that PostgreSQL's library gives to an expression: neighbours without groups that have one taste are one part, and
//! a group that is repeated is a part that repeats it once less, with the group behind it.

use std::cell::OnceCell;

use super::Found;
use super::machine::Machine;
use super::parse::{Part, Taste};
use crate::error::SqlError;

/// A part with what is to be divided in it.
#[derive(Debug)]
pub(super) struct Step {
    part: Part,
    /// Set if it prefers to be short.
    pub(super) is_short: bool,
    inner: Inner,
    forward: OnceCell<Machine>,
    backward: OnceCell<Machine>,
}

#[derive(Debug)]
enum Inner {
    /// There are no groups in it.
    Plain,
    Group(usize, Box<Step>),
    Then(Box<Step>, Box<Step>),
    Any(Vec<Step>),
    /// Any number of times up to one.
    Times(Box<Step>, Option<u32>),
}

/// What is known of a part without its text.
#[derive(Clone, Copy, Debug, Default)]
struct Traits {
    taste: Option<Taste>,
    is_mixed: bool,
    has_groups: bool,
}

impl Traits {
    fn of_taste(taste: Option<Taste>) -> Traits {
        Traits { taste, ..Traits::default() }
    }

    /// The traits of a part that has these and others in it: the first taste is its own.
    fn with(self, other: Traits) -> Traits {
        let clash = self.taste.is_some() && other.taste.is_some() && self.taste != other.taste;
        Traits {
            taste: self.taste.or(other.taste),
            is_mixed: self.is_mixed || other.is_mixed || clash,
            has_groups: self.has_groups || other.has_groups,
        }
    }

    fn is_plain(self) -> bool {
        !self.is_mixed && !self.has_groups
    }
}

fn traits(part: &Part) -> Traits {
    match part {
        Part::Set(_) | Part::Place(_) | Part::Look { .. } | Part::Repeat { most: Some(0), .. } => {
            Traits::default()
        }
        Part::All(parts) => parts.iter().fold(Traits::default(), |all, part| all.with(traits(part))),
        Part::Any(parts) => {
            parts.iter().fold(Traits::of_taste(Some(Taste::Long)), |all, part| all.with(traits(part)))
        }
        Part::Group(_, part) => Traits { has_groups: true, ..traits(part) },
        Part::Repeat { part, taste, .. } => Traits::of_taste(*taste).with(traits(part)),
    }
}

fn made(part: Part, traits: Traits, inner: Inner) -> Step {
    let is_short = traits.taste == Some(Taste::Short);
    Step { part, is_short, inner, forward: OnceCell::new(), backward: OnceCell::new() }
}

/// Makes the step of a part.
pub(super) fn step(part: &Part) -> Step {
    let own = traits(part);
    let inner = match part {
        _ if own.is_plain() => Inner::Plain,
        Part::All(parts) => return branch(parts),
        Part::Any(parts) => Inner::Any(parts.iter().map(step).collect()),
        Part::Group(number, part) => Inner::Group(*number, Box::new(step(part))),
        Part::Repeat { part: atom, least, most, taste } => {
            return repeated(part, atom, (*least, *most), *taste);
        }
        Part::Set(_) | Part::Place(_) | Part::Look { .. } => Inner::Plain,
    };
    made(part.clone(), own, inner)
}

fn repeated(part: &Part, atom: &Part, (least, most): (u32, Option<u32>), taste: Option<Taste>) -> Step {
    let (own, of_atom) = (traits(part), traits(atom));
    let changes_nothing = taste.is_none()
        || (of_atom.taste.is_none() && !of_atom.is_mixed)
        || (of_atom.taste == taste && !of_atom.is_mixed);
    if (least, most) == (1, Some(1)) && changes_nothing {
        return step(atom);
    }
    if !own.has_groups {
        return made(part.clone(), own, Inner::Plain);
    }
    if least == 0 {
        return made(part.clone(), own, Inner::Times(Box::new(step(atom)), most));
    }
    let before = Part::Repeat {
        part: Box::new(atom.clone()),
        least: least - 1,
        most: most.map(|most| most - 1),
        taste,
    };
    let before = made(before, Traits::of_taste(own.taste), Inner::Plain);
    made(part.clone(), own, Inner::Then(Box::new(before), Box::new(step(atom))))
}

/// The step of neighbours: the plain ones before the first that is not, that one, and the rest.
fn branch(parts: &[Part]) -> Step {
    let mut before = Traits::default();
    for (at, part) in parts.iter().enumerate() {
        let both = before.with(traits(part));
        if both.is_plain() {
            before = both;
            continue;
        }
        let (prefix, rest) = (&parts[..at], &parts[at + 1..]);
        let mut own = step(part);
        if !rest.is_empty() {
            let all = Part::All(parts[at..].to_vec());
            let known = traits(&all);
            own = made(all, known, Inner::Then(Box::new(own), Box::new(branch(rest))));
        }
        if prefix.is_empty() {
            return own;
        }
        let prefix = made(Part::All(prefix.to_vec()), before, Inner::Plain);
        let all = Part::All(parts.to_vec());
        let known = traits(&all);
        return made(all, known, Inner::Then(Box::new(prefix), Box::new(own)));
    }
    made(Part::All(parts.to_vec()), before, Inner::Plain)
}

/// The place among those where one part may end and the next begin.
fn meeting(ends: &[usize], starts: &[usize], is_short: bool) -> Option<usize> {
    // Starts were found from the last one on.
    let common = ends.iter().copied().filter(|end| starts.binary_search_by(|start| end.cmp(start)).is_ok());
    if is_short { common.min() } else { common.max() }
}

impl Step {
    fn ends(&self, text: &[char], from: usize, last: usize) -> Result<Vec<usize>, SqlError> {
        if self.forward.get().is_none() {
            let _ = self.forward.set(Machine::forward(&self.part)?);
        }
        Ok(self.forward.get().map_or_else(Vec::new, |machine| machine.ends(text, from, last)))
    }

    fn starts(&self, text: &[char], end: usize, first: usize) -> Result<Vec<usize>, SqlError> {
        if self.backward.get().is_none() {
            let _ = self.backward.set(Machine::backward(&self.part)?);
        }
        Ok(self.backward.get().map_or_else(Vec::new, |machine| machine.ends(text, end, first)))
    }

    /// Finds the groups of a match of this part.
    pub(super) fn divide(
        &self,
        text: &[char],
        (start, end): (usize, usize),
        found: &mut Found,
    ) -> Result<(), SqlError> {
        match &self.inner {
            Inner::Plain => Ok(()),
            Inner::Group(number, step) => {
                found[*number] = Some((start, end));
                step.divide(text, (start, end), found)
            }
            Inner::Then(one, next) => {
                let (ends, starts) = (one.ends(text, start, end)?, next.starts(text, end, start)?);
                let Some(middle) = meeting(&ends, &starts, one.is_short) else { return Ok(()) };
                one.divide(text, (start, middle), found)?;
                next.divide(text, (middle, end), found)
            }
            Inner::Any(steps) => {
                for step in steps {
                    if step.ends(text, start, end)?.contains(&end) {
                        return step.divide(text, (start, end), found);
                    }
                }
                Ok(())
            }
            Inner::Times(step, most) => step.divide_times(text, (start, end), *most, found),
        }
    }

    /// Finds the groups of a match of this part any number of times up to `most`: those of the last time.
    fn divide_times(
        &self,
        text: &[char],
        (mut start, end): (usize, usize),
        mut most: Option<u32>,
        found: &mut Found,
    ) -> Result<(), SqlError> {
        let mut known: Option<Vec<usize>> = None;
        let mut last = None;
        while start < end {
            most = most.map(|most| most.saturating_sub(1));
            let starts = match &known {
                Some(starts) if most.is_none() => starts,
                _ => {
                    let rest =
                        Part::Repeat { part: Box::new(self.part.clone()), least: 0, most, taste: None };
                    &*known.insert(Machine::backward(&rest)?.ends(text, end, start))
                }
            };
            let mut ends = self.ends(text, start, end)?;
            ends.retain(|next| *next > start);
            let Some(next) = meeting(&ends, starts, self.is_short) else { break };
            last = Some((start, next));
            start = next;
        }
        match last {
            Some(last) => self.divide(text, last, found),
            None => Ok(()),
        }
    }
}
