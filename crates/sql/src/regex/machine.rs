//! Machines that say where a part may end, or begin: sets of states, one step for each character.

use std::rc::Rc;

use super::parse::{Part, Place, Set};
use super::{Search, too_complex};
use crate::error::SqlError;

#[derive(Debug)]
enum State {
    One(Rc<Set>),
    /// The next state, or another.
    Either(usize),
    Goto(usize),
    Place(Place),
    Look {
        machine: Box<Machine>,
        negated: bool,
    },
    Done,
}

/// A machine that reads a text forward, or backward.
#[derive(Debug)]
pub(super) struct Machine {
    states: Vec<State>,
    is_forward: bool,
}

/// The states that are reached at a place, in the order in which they came, each with the start of its match.
struct Reached {
    list: Vec<(usize, usize)>,
    /// The number of the place at which a state was reached last.
    marks: Vec<usize>,
    stack: Vec<usize>,
}

impl Machine {
    /// The machine of a part; takes its states from those that are left, and one for each part that has none, so that there is no more work
    /// than there are states.
    pub(super) fn forward(part: &Part, left: &mut usize) -> Result<Machine, SqlError> {
        Machine::of(part, true, left)
    }

    pub(super) fn backward(part: &Part, left: &mut usize) -> Result<Machine, SqlError> {
        Machine::of(part, false, left)
    }

    fn of(part: &Part, is_forward: bool, left: &mut usize) -> Result<Machine, SqlError> {
        let mut machine = Machine { states: Vec::new(), is_forward };
        machine.add(part, left)?;
        machine.push(State::Done, left)?;
        Ok(machine)
    }

    fn push(&mut self, state: State, left: &mut usize) -> Result<usize, SqlError> {
        *left = left.checked_sub(1).ok_or_else(too_complex)?;
        self.states.push(state);
        Ok(self.states.len() - 1)
    }

    /// Adds the states of a part, which go on behind the last one.
    fn add(&mut self, part: &Part, left: &mut usize) -> Result<(), SqlError> {
        let before = self.states.len();
        match part {
            Part::Set(set) => {
                self.push(State::One(Rc::clone(set)), left)?;
            }
            Part::Place(place) => {
                self.push(State::Place(*place), left)?;
            }
            Part::Look { ahead, negated, part } => {
                let machine = Box::new(Machine::of(part, *ahead, left)?);
                self.push(State::Look { machine, negated: *negated }, left)?;
            }
            Part::All(parts) if self.is_forward => parts.iter().try_for_each(|part| self.add(part, left))?,
            Part::All(parts) => parts.iter().rev().try_for_each(|part| self.add(part, left))?,
            Part::Group(_, part) => self.add(part, left)?,
            Part::Any(parts) => self.add_any(parts, left)?,
            Part::Repeat { part, least, most, .. } => self.add_repeated(part, *least, *most, left)?,
        }
        if self.states.len() == before {
            *left = left.checked_sub(1).ok_or_else(too_complex)?;
        }
        Ok(())
    }

    fn add_repeated(
        &mut self,
        part: &Part,
        least: u32,
        most: Option<u32>,
        left: &mut usize,
    ) -> Result<(), SqlError> {
        for _ in 0..least {
            let before = self.states.len();
            self.add(part, left)?;
            if self.states.len() == before {
                // It is empty, however often it is repeated.
                return Ok(());
            }
        }
        let Some(most) = most else {
            let again = self.push(State::Either(0), left)?;
            self.add(part, left)?;
            self.push(State::Goto(again), left)?;
            self.states[again] = State::Either(self.states.len());
            return Ok(());
        };
        self.add_optional(part, most.saturating_sub(least), left)
    }

    fn add_any(&mut self, parts: &[Part], left: &mut usize) -> Result<(), SqlError> {
        let mut exits = Vec::new();
        for (at, part) in parts.iter().enumerate() {
            let is_last = at + 1 == parts.len();
            let choice = if is_last { None } else { Some(self.push(State::Either(0), left)?) };
            self.add(part, left)?;
            if let Some(choice) = choice {
                exits.push(self.push(State::Goto(0), left)?);
                self.states[choice] = State::Either(self.states.len());
            }
        }
        let end = self.states.len();
        exits.into_iter().for_each(|exit| self.states[exit] = State::Goto(end));
        Ok(())
    }

    /// Adds a part up to so many times.
    fn add_optional(&mut self, part: &Part, count: u32, left: &mut usize) -> Result<(), SqlError> {
        let mut choices = Vec::new();
        for _ in 0..count {
            choices.push(self.push(State::Either(0), left)?);
            self.add(part, left)?;
        }
        let end = self.states.len();
        choices.into_iter().for_each(|choice| self.states[choice] = State::Either(end));
        Ok(())
    }

    fn reached(&self, search: &Search<'_>) -> Result<Reached, SqlError> {
        search.takes(self.states.len())?;
        Ok(Reached { list: Vec::new(), marks: vec![usize::MAX; self.states.len()], stack: Vec::new() })
    }

    /// Adds the states that are reached from one without reading a character.
    fn reach(
        &self,
        search: &Search<'_>,
        at: usize,
        (state, start): (usize, usize),
        reached: &mut Reached,
    ) -> Result<(), SqlError> {
        let mut steps = 0;
        reached.stack.push(state);
        while let Some(state) = reached.stack.pop() {
            steps += 1;
            if std::mem::replace(&mut reached.marks[state], at) == at {
                continue;
            }
            match &self.states[state] {
                State::One(_) | State::Done => reached.list.push((state, start)),
                State::Goto(next) => reached.stack.push(*next),
                State::Either(other) => reached.stack.extend([*other, state + 1]),
                State::Place(place) if holds(*place, &search.text, at) => reached.stack.push(state + 1),
                State::Place(_) => {}
                State::Look { machine, negated } => {
                    if machine.leads_anywhere(search, at)? != *negated {
                        reached.stack.push(state + 1);
                    }
                }
            }
        }
        search.takes(steps)
    }

    /// Reads a character behind which a place is.
    fn read(
        &self,
        search: &Search<'_>,
        c: char,
        behind: usize,
        now: &Reached,
        next: &mut Reached,
    ) -> Result<(), SqlError> {
        next.list.clear();
        search.takes(now.list.len())?;
        for (state, start) in &now.list {
            if let State::One(set) = &self.states[*state]
                && set.has(c)
            {
                self.reach(search, behind, (state + 1, *start), next)?;
            }
        }
        Ok(())
    }

    /// The first state in a list of those reached that ends a match.
    fn done(&self, reached: &Reached) -> Option<usize> {
        reached.list.iter().position(|(state, _)| matches!(self.states[*state], State::Done))
    }

    /// Goes from a place as far as it leads, in its direction, and calls `done` with each place where it may end, until that returns true.
    fn run(
        &self,
        search: &Search<'_>,
        from: usize,
        last: usize,
        done: &mut dyn FnMut(usize) -> bool,
    ) -> Result<(), SqlError> {
        let (mut now, mut next) = (self.reached(search)?, self.reached(search)?);
        let mut at = from;
        self.reach(search, at, (0, from), &mut now)?;
        while !now.list.is_empty() {
            if self.done(&now).is_some() && done(at) {
                break;
            }
            if at == last {
                break;
            }
            let (c, behind) =
                if self.is_forward { (search.text[at], at + 1) } else { (search.text[at - 1], at - 1) };
            self.read(search, c, behind, &now, &mut next)?;
            std::mem::swap(&mut now, &mut next);
            at = behind;
        }
        Ok(())
    }

    /// Returns true if there is a match from a place on.
    fn leads_anywhere(&self, search: &Search<'_>, from: usize) -> Result<bool, SqlError> {
        let mut found = false;
        let last = if self.is_forward { search.text.len() } else { 0 };
        self.run(search, from, last, &mut |_| {
            found = true;
            true
        })?;
        Ok(found)
    }

    /// The places where a match that begins at `from` may end, up to `last`; read backward, where one that ends at `from` may begin.
    pub(super) fn ends(&self, search: &Search<'_>, from: usize, last: usize) -> Result<Vec<usize>, SqlError> {
        let mut ends = Vec::new();
        self.run(search, from, last, &mut |end| {
            ends.push(end);
            false
        })?;
        Ok(ends)
    }

    /// The first place from `from` on at which a match begins; with `any`, that of any match, as soon as there is one.
    pub(super) fn first_start(
        &self,
        search: &Search<'_>,
        from: usize,
        any: bool,
    ) -> Result<Option<usize>, SqlError> {
        if from > search.text.len() {
            return Ok(None);
        }
        let (mut now, mut next) = (self.reached(search)?, self.reached(search)?);
        let mut best = None;
        for at in from..=search.text.len() {
            // States are in the order of their starts, so that the first to reach one has the first start.
            if best.is_none() {
                self.reach(search, at, (0, at), &mut now)?;
            }
            if let Some(place) = self.done(&now) {
                best = Some(now.list[place].1);
                if any {
                    break;
                }
                now.list.retain(|(_, start)| Some(*start) < best);
            }
            if at == search.text.len() || (best.is_some() && now.list.is_empty()) {
                break;
            }
            self.read(search, search.text[at], at + 1, &now, &mut next)?;
            std::mem::swap(&mut now, &mut next);
        }
        Ok(best)
    }
}

fn holds(place: Place, text: &[char], at: usize) -> bool {
    let is_word = |c: Option<&char>| c.is_some_and(|c| c.is_ascii_alphanumeric() || *c == '_');
    let before = at.checked_sub(1).and_then(|at| text.get(at));
    let (in_word, goes_on) = (is_word(before), is_word(text.get(at)));
    match place {
        Place::TextStart => at == 0,
        Place::TextEnd => at == text.len(),
        Place::LineStart => before.is_none_or(|c| *c == '\n'),
        Place::LineEnd => text.get(at).is_none_or(|c| *c == '\n'),
        Place::WordStart => !in_word && goes_on,
        Place::WordEnd => in_word && !goes_on,
        Place::WordEdge => in_word != goes_on,
        Place::NoWordEdge => in_word == goes_on,
    }
}
