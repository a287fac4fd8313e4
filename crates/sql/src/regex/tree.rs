//! Division of a match among the parts of its expression, to find its groups.
//!
//! Follows the structure that PostgreSQL's library gives to an expression: neighbours without groups that have one taste are one part, and
//! a group that is repeated is a part that repeats it once less, with the group behind it.

use std::cell::{Cell, OnceCell};
use std::rc::Rc;

use super::machine::Machine;
use super::parse::{Part, Row, Taste};
use super::{Found, STATES_MAX, Search};
use crate::error::SqlError;

/// A part with what is to be divided in it.
#[derive(Debug)]
pub(super) struct Step {
    part: Part,
    /// Set if it prefers to be short.
    is_short: bool,
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

/// Properties of a part that its expression alone tells.
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

    /// Returns true if a quantifier of a taste changes nothing but how often there is a part of these traits.
    fn is_kept_by(self, taste: Option<Taste>) -> bool {
        taste.is_none() || (!self.is_mixed && (self.taste.is_none() || self.taste == taste))
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

/// Returns true if a part prefers to be short.
pub(super) fn is_short(part: &Part) -> bool {
    traits(part).taste == Some(Taste::Short)
}

fn step(part: &Part) -> Step {
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
    if (least, most) == (1, Some(1)) && of_atom.is_kept_by(taste) {
        return step(atom);
    }
    if !own.has_groups {
        return made(part.clone(), own, Inner::Plain);
    }
    if least == 0 {
        return made(part.clone(), own, Inner::Times(Box::new(step(atom)), most));
    }
    let before = Part::Repeat {
        part: Rc::new(atom.clone()),
        least: least - 1,
        most: most.map(|most| most - 1),
        taste,
    };
    let before = made(before, Traits::of_taste(own.taste), Inner::Plain);
    made(part.clone(), own, Inner::Then(Box::new(before), Box::new(step(atom))))
}

/// The step of neighbours: the plain ones before the first that is not, that one, and the rest.
fn branch(parts: &Row) -> Step {
    let known: Vec<Traits> = parts.iter().map(traits).collect();
    let mut cuts = Vec::new();
    let (mut first, mut before) = (0, Traits::default());
    for (at, own) in known.iter().enumerate() {
        let both = before.with(*own);
        if both.is_plain() {
            before = both;
        } else {
            cuts.push((first, at, before));
            (first, before) = (at + 1, Traits::default());
        }
    }
    let plain = |first, end, traits| made(Part::All(parts.some(first, end)), traits, Inner::Plain);
    let then = |first, one, rest, traits| {
        made(Part::All(parts.some(first, parts.len())), traits, Inner::Then(Box::new(one), Box::new(rest)))
    };
    let mut rest = None;
    if first < parts.len() || cuts.is_empty() {
        rest = Some((plain(first, parts.len(), before), before));
    }
    for (first, at, before) in cuts.into_iter().rev() {
        let (mut own, mut of_own) = (step(&parts[at]), known[at]);
        if let Some((next, of_next)) = rest {
            of_own = of_own.with(of_next);
            own = then(at, own, next, of_own);
        }
        if first < at {
            of_own = before.with(of_own);
            own = then(first, plain(first, at, before), own, of_own);
        }
        rest = Some((own, of_own));
    }
    rest.map_or_else(|| plain(0, 0, Traits::default()), |(step, _)| step)
}

/// The place among those where one part may end and the next begin.
fn meeting(ends: &[usize], starts: &[usize], is_short: bool) -> Option<usize> {
    // Starts were found from the last one on.
    let common = ends.iter().copied().filter(|end| starts.binary_search_by(|start| end.cmp(start)).is_ok());
    if is_short { common.min() } else { common.max() }
}

/// The most states of all machines that a division keeps.
const KEPT_MAX: usize = 2_000_000;

/// The parts of an expression, by which its matches are divided.
#[derive(Debug)]
pub(super) struct Division {
    root: Step,
    /// The number of states that machines may still have.
    left: Cell<usize>,
}

impl Division {
    pub(super) fn of(part: &Part) -> Division {
        Division { root: step(part), left: Cell::new(KEPT_MAX) }
    }

    /// Finds the groups of a match.
    pub(super) fn divide(
        &self,
        search: &Search<'_>,
        whole: (usize, usize),
        found: &mut Found,
    ) -> Result<(), SqlError> {
        self.root.divide(&Divided { search, left: &self.left }, whole, found)
    }
}

/// A search whose match is divided, and the looks that are left for that.
struct Divided<'d> {
    search: &'d Search<'d>,
    left: &'d Cell<usize>,
}

impl Divided<'_> {
    /// The places to which a machine leads, which is made the first time.
    fn places(
        &self,
        machine: &OnceCell<Machine>,
        make: impl FnOnce(&mut usize) -> Result<Machine, SqlError>,
        (from, last): (usize, usize),
    ) -> Result<Vec<usize>, SqlError> {
        if let Some(machine) = machine.get() {
            return machine.ends(self.search, from, last);
        }
        let mut left = self.left.get();
        let made = make(&mut left)?;
        self.left.set(left);
        machine.get_or_init(|| made).ends(self.search, from, last)
    }
}

impl Step {
    fn ends(&self, divided: &Divided<'_>, from: usize, last: usize) -> Result<Vec<usize>, SqlError> {
        divided.places(&self.forward, |left| Machine::forward(&self.part, left), (from, last))
    }

    fn starts(&self, divided: &Divided<'_>, end: usize, first: usize) -> Result<Vec<usize>, SqlError> {
        divided.places(&self.backward, |left| Machine::backward(&self.part, left), (end, first))
    }

    /// Finds the groups of a match of this part.
    fn divide(
        &self,
        divided: &Divided<'_>,
        (mut start, end): (usize, usize),
        found: &mut Found,
    ) -> Result<(), SqlError> {
        // The rest of neighbours is gone on with, and not called: there may be many of them.
        let mut step = self;
        loop {
            step = match &step.inner {
                Inner::Plain => return Ok(()),
                Inner::Group(number, inner) => {
                    found[*number] = Some((start, end));
                    inner
                }
                Inner::Then(one, next) => {
                    let ends = one.ends(divided, start, end)?;
                    let starts = next.starts(divided, end, start)?;
                    let Some(middle) = meeting(&ends, &starts, one.is_short) else { return Ok(()) };
                    one.divide(divided, (start, middle), found)?;
                    start = middle;
                    next
                }
                Inner::Any(steps) => match one_of(steps, divided, (start, end))? {
                    Some(one) => one,
                    None => return Ok(()),
                },
                Inner::Times(inner, most) => return inner.divide_times(divided, (start, end), *most, found),
            }
        }
    }

    /// Finds the groups of a match of this part any number of times up to `most`: those of the last time.
    fn divide_times(
        &self,
        divided: &Divided<'_>,
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
                    let part = Rc::new(self.part.clone());
                    let rest = Part::Repeat { part, least: 0, most, taste: None };
                    let rest = Machine::backward(&rest, &mut { STATES_MAX })?;
                    &*known.insert(rest.ends(divided.search, end, start)?)
                }
            };
            let mut ends = self.ends(divided, start, end)?;
            ends.retain(|next| *next > start);
            let Some(next) = meeting(&ends, starts, self.is_short) else { break };
            last = Some((start, next));
            start = next;
        }
        // Nothing is matched once if the part can, unless it prefers to be short.
        let is_empty = last.is_none() && !self.is_short && self.ends(divided, start, end)?.contains(&end);
        match last.or_else(|| is_empty.then_some((start, end))) {
            Some(last) => self.divide(divided, last, found),
            None => Ok(()),
        }
    }
}

/// The first of several steps that has a match.
fn one_of<'s>(
    steps: &'s [Step],
    divided: &Divided<'_>,
    (start, end): (usize, usize),
) -> Result<Option<&'s Step>, SqlError> {
    for step in steps {
        if step.ends(divided, start, end)?.contains(&end) {
            return Ok(Some(step));
        }
    }
    Ok(None)
}
