//! Machines that say where a part may end, or begin: sets of states, one step for each character.

use super::invalid;
use super::parse::{Part, Place, Set};
use crate::error::SqlError;

/// The most states of a machine.
const STATES_MAX: usize = 20_000;

#[derive(Debug)]
enum State {
    One(Set),
    Either(usize, usize),
    Goto(usize),
    Place(Place),
    Look { machine: Machine, negated: bool },
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
    pub(super) fn forward(part: &Part) -> Result<Machine, SqlError> {
        Machine::of(part, true)
    }

    pub(super) fn backward(part: &Part) -> Result<Machine, SqlError> {
        Machine::of(part, false)
    }

    fn of(part: &Part, is_forward: bool) -> Result<Machine, SqlError> {
        let mut machine = Machine { states: Vec::new(), is_forward };
        machine.add(part)?;
        machine.push(State::Done)?;
        Ok(machine)
    }

    fn push(&mut self, state: State) -> Result<usize, SqlError> {
        if self.states.len() >= STATES_MAX {
            return Err(invalid("regular expression is too complex"));
        }
        self.states.push(state);
        Ok(self.states.len() - 1)
    }

    /// Adds the states of a part, which go on behind the last one.
    fn add(&mut self, part: &Part) -> Result<(), SqlError> {
        match part {
            Part::Set(set) => {
                self.push(State::One(set.clone()))?;
            }
            Part::Place(place) => {
                self.push(State::Place(*place))?;
            }
            Part::Look { ahead, negated, part } => {
                let machine = Machine::of(part, *ahead)?;
                self.push(State::Look { machine, negated: *negated })?;
            }
            Part::All(parts) if self.is_forward => parts.iter().try_for_each(|part| self.add(part))?,
            Part::All(parts) => parts.iter().rev().try_for_each(|part| self.add(part))?,
            Part::Group(_, part) => self.add(part)?,
            Part::Any(parts) => self.add_any(parts)?,
            Part::Repeat { part, least, most, .. } => {
                for _ in 0..*least {
                    self.add(part)?;
                }
                match most {
                    None => {
                        let again = self.push(State::Either(0, 0))?;
                        self.add(part)?;
                        self.push(State::Goto(again))?;
                        self.states[again] = State::Either(again + 1, self.states.len());
                    }
                    Some(most) => self.add_optional(part, most.saturating_sub(*least))?,
                }
            }
        }
        Ok(())
    }

    fn add_any(&mut self, parts: &[Part]) -> Result<(), SqlError> {
        let mut exits = Vec::new();
        for (at, part) in parts.iter().enumerate() {
            let is_last = at + 1 == parts.len();
            let choice = if is_last { None } else { Some(self.push(State::Either(0, 0))?) };
            self.add(part)?;
            if let Some(choice) = choice {
                exits.push(self.push(State::Goto(0))?);
                self.states[choice] = State::Either(choice + 1, self.states.len());
            }
        }
        let end = self.states.len();
        exits.into_iter().for_each(|exit| self.states[exit] = State::Goto(end));
        Ok(())
    }

    /// Adds a part up to so many times.
    fn add_optional(&mut self, part: &Part, count: u32) -> Result<(), SqlError> {
        let mut choices = Vec::new();
        for _ in 0..count {
            choices.push(self.push(State::Either(0, 0))?);
            self.add(part)?;
        }
        let end = self.states.len();
        choices.into_iter().for_each(|choice| self.states[choice] = State::Either(choice + 1, end));
        Ok(())
    }

    fn reached(&self) -> Reached {
        Reached { list: Vec::new(), marks: vec![usize::MAX; self.states.len()], stack: Vec::new() }
    }

    /// Adds the states that are reached from one without reading a character.
    fn reach(&self, text: &[char], at: usize, (state, start): (usize, usize), reached: &mut Reached) {
        reached.stack.push(state);
        while let Some(state) = reached.stack.pop() {
            if std::mem::replace(&mut reached.marks[state], at) == at {
                continue;
            }
            match &self.states[state] {
                State::One(_) | State::Done => reached.list.push((state, start)),
                State::Goto(next) => reached.stack.push(*next),
                State::Either(one, other) => reached.stack.extend([*other, *one]),
                State::Place(place) if holds(*place, text, at) => reached.stack.push(state + 1),
                State::Place(_) => {}
                State::Look { machine, negated } => {
                    if machine.leads_anywhere(text, at) != *negated {
                        reached.stack.push(state + 1);
                    }
                }
            }
        }
    }

    /// Goes from a place as far as it leads, in its direction, and calls `done` with each place where it may end, until that returns true.
    fn run(&self, text: &[char], from: usize, last: usize, done: &mut dyn FnMut(usize) -> bool) {
        let (mut now, mut next) = (self.reached(), self.reached());
        let mut at = from;
        self.reach(text, at, (0, from), &mut now);
        while !now.list.is_empty() {
            if now.list.iter().any(|(state, _)| matches!(self.states[*state], State::Done)) && done(at) {
                return;
            }
            if at == last {
                return;
            }
            let (c, behind) = if self.is_forward { (text[at], at + 1) } else { (text[at - 1], at - 1) };
            next.list.clear();
            for (state, start) in &now.list {
                if let State::One(set) = &self.states[*state]
                    && set.has(c)
                {
                    self.reach(text, behind, (state + 1, *start), &mut next);
                }
            }
            std::mem::swap(&mut now, &mut next);
            at = behind;
        }
    }

    /// Returns true if there is a match from a place on.
    fn leads_anywhere(&self, text: &[char], from: usize) -> bool {
        let mut found = false;
        let last = if self.is_forward { text.len() } else { 0 };
        self.run(text, from, last, &mut |_| {
            found = true;
            true
        });
        found
    }

    /// The places where a match that begins at `from` may end, up to `last`; read backward, where one that ends at `from` may begin.
    pub(super) fn ends(&self, text: &[char], from: usize, last: usize) -> Vec<usize> {
        let mut ends = Vec::new();
        self.run(text, from, last, &mut |end| {
            ends.push(end);
            false
        });
        ends
    }

    /// The first place from `from` on at which a match begins; with `any`, that of any match, as soon as there is one.
    pub(super) fn first_start(&self, text: &[char], from: usize, any: bool) -> Option<usize> {
        if from > text.len() {
            return None;
        }
        let (mut now, mut next) = (self.reached(), self.reached());
        let mut best = None;
        for at in from..=text.len() {
            // States are in the order of their starts, so that the first to reach one has the first start.
            if best.is_none() {
                self.reach(text, at, (0, at), &mut now);
            }
            if let Some(place) =
                now.list.iter().position(|(state, _)| matches!(self.states[*state], State::Done))
            {
                best = Some(now.list[place].1);
                if any {
                    return best;
                }
                now.list.retain(|(_, start)| Some(*start) < best);
            }
            if at == text.len() || (best.is_some() && now.list.is_empty()) {
                break;
            }
            next.list.clear();
            for (state, start) in &now.list {
                if let State::One(set) = &self.states[*state]
                    && set.has(text[at])
                {
                    self.reach(text, at + 1, (state + 1, *start), &mut next);
                }
            }
            std::mem::swap(&mut now, &mut next);
        }
        best
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
