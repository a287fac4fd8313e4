//! The parser of the synthetic notation: from text to levels with their attributes.
//!
//! Owns: the grammar, and the position of every mistake. Never: says what the levels mean for a machine.

use super::{Type, parse_bytes};
use crate::cpuset::{CPU_COUNT_MAX, shown, shown_up_to};
use crate::error::TopologyError;

/// The types hwloc gives untyped levels, by how many there are.
const UNTYPED: [&[Type]; 7] = {
    use Type::{Cache, Core, Numa, Package, Pu};
    [
        &[Pu],
        &[Numa, Pu],
        &[Package, Numa, Pu],
        &[Package, Numa, Core, Pu],
        &[Package, Numa, Cache(2), Core, Pu],
        &[Package, Numa, Cache(2), Cache(1), Core, Pu],
        &[Package, Numa, Cache(3), Cache(2), Cache(1), Core, Pu],
    ]
};

/// Attributes as they stand, values unread.
#[derive(Debug, Clone, Default)]
pub(super) struct Attributes {
    pub(super) memory_bytes: Option<u64>,
    /// The value and the character it begins at.
    pub(super) indexes: Option<(String, usize)>,
}

#[derive(Debug, Clone)]
pub(super) struct LevelItem {
    pub(super) kind: Option<Type>,
    /// Objects of this level in the whole machine.
    pub(super) width: u32,
    pub(super) attributes: Attributes,
    pub(super) position: usize,
}

/// Memory nodes attached by brackets to the objects of a level; `None` is the machine.
#[derive(Debug, Clone)]
pub(super) struct AttachedNodes {
    pub(super) below: Option<usize>,
    pub(super) attributes: Attributes,
    pub(super) position: usize,
}

#[derive(Debug, Default)]
pub(super) struct Description {
    pub(super) machine: Attributes,
    pub(super) levels: Vec<LevelItem>,
    pub(super) attached: Vec<AttachedNodes>,
}

pub(super) struct Parser<'a> {
    pub(super) text: &'a str,
    pub(super) chars: Vec<char>,
    pub(super) at: usize,
}

pub(super) const EXPECTED: &str = "expected a level such as pack:2, numa:2, l3:4, core:8 or pu:1";

impl Parser<'_> {
    pub(super) fn error_at(&self, position: usize, message: String) -> TopologyError {
        const SHOWN_CHARS_MAX: usize = 160;
        TopologyError::Synthetic { text: shown_up_to(self.text, SHOWN_CHARS_MAX), position, message }
    }

    pub(super) fn error<T>(&self, message: impl Into<String>) -> Result<T, TopologyError> {
        Err(self.error_at(self.at + 1, message.into()))
    }

    pub(super) fn peek(&self) -> Option<char> {
        self.chars.get(self.at).copied()
    }

    pub(super) fn take(&mut self, wanted: char) -> bool {
        let found = self.peek() == Some(wanted);
        self.at += usize::from(found);
        found
    }

    pub(super) fn take_while(&mut self, belongs: impl Fn(char) -> bool) -> String {
        let start = self.at;
        while self.peek().is_some_and(&belongs) {
            self.at += 1;
        }
        self.chars[start..self.at].iter().collect()
    }

    pub(super) fn skip_spaces(&mut self) {
        self.take_while(char::is_whitespace);
    }

    pub(super) fn description(&mut self) -> Result<Description, TopologyError> {
        let mut description = Description::default();
        self.skip_spaces();
        if self.peek() == Some('(') {
            description.machine = self.attributes()?;
        }
        loop {
            self.skip_spaces();
            match self.peek() {
                None => break,
                Some('[') => {
                    let attached = self.attached(description.levels.len().checked_sub(1))?;
                    description.attached.push(attached);
                }
                Some(_) => {
                    let above = description.levels.last().map_or(1, |level| level.width);
                    let level = self.level(above)?;
                    description.levels.push(level);
                }
            }
        }
        self.check_types(&mut description)?;
        Ok(description)
    }

    pub(super) fn level(&mut self, above: u32) -> Result<LevelItem, TopologyError> {
        let start = self.at;
        let position = start + 1;
        let word = self.take_while(|char| char.is_ascii_alphanumeric());
        let untyped = word.bytes().all(|byte| byte.is_ascii_digit());
        let (kind, count) = if word.is_empty() {
            return self.error(EXPECTED);
        } else if untyped {
            (None, word)
        } else {
            let Some(kind) = Type::parse(&word) else {
                let hint = match word.to_ascii_lowercase().starts_with("ma") {
                    true => "the machine itself is not written".to_owned(),
                    false => format!("no level is called `{}`; {EXPECTED}", shown(&word)),
                };
                return Err(self.error_at(position, hint));
            };
            if !self.take(':') {
                return self.error(format!("expected `:` and a count after `{}`", shown(&word)));
            }
            (Some(kind), self.take_while(|char| char.is_ascii_digit()))
        };
        let count: u32 = match count.parse() {
            Ok(0) => {
                return Err(
                    self.error_at(position, "there must be at least one object of each level".to_owned())
                );
            }
            Ok(count) => count,
            Err(_) if count.is_empty() => return self.error("expected a count after `:`"),
            Err(_) => {
                return Err(self.error_at(position, format!("the count {} is too large", shown(&count))));
            }
        };
        let Some(width) = above.checked_mul(count).filter(|&width| width <= CPU_COUNT_MAX) else {
            let message = format!("that makes more than {CPU_COUNT_MAX} objects; describe a smaller machine");
            return Err(self.error_at(position, message));
        };
        let attributes = if self.peek() == Some('(') { self.attributes()? } else { Attributes::default() };
        match self.peek() {
            None | Some('[') => {}
            Some(char) if char.is_whitespace() => {}
            Some(char) => return self.error(format!("expected a space before `{}`", char.escape_default())),
        }
        Ok(LevelItem { kind, width, attributes, position })
    }

    pub(super) fn attached(&mut self, below: Option<usize>) -> Result<AttachedNodes, TopologyError> {
        let position = self.at + 1;
        self.at += 1;
        self.skip_spaces();
        let word = self.take_while(|char| char.is_ascii_alphanumeric());
        if Type::parse(&word) != Some(Type::Numa) {
            let message =
                format!("only memory nodes can be attached in brackets, as [numa], not `{}`", shown(&word));
            return Err(self.error_at(position + 1, message));
        }
        let attributes = if self.peek() == Some('(') { self.attributes()? } else { Attributes::default() };
        self.skip_spaces();
        if !self.take(']') {
            return self.error("expected `]` after the attached memory node");
        }
        Ok(AttachedNodes { below, attributes, position })
    }

    pub(super) fn attributes(&mut self) -> Result<Attributes, TopologyError> {
        let mut attributes = Attributes::default();
        self.at += 1;
        loop {
            self.skip_spaces();
            if self.take(')') {
                return Ok(attributes);
            }
            let position = self.at + 1;
            let name = self.take_while(|char| char.is_ascii_alphanumeric() || char == '_');
            if self.peek().is_none() {
                return self.error("expected `)` at the end of the attributes");
            }
            if name.is_empty() || !self.take('=') {
                return self.error("expected an attribute such as memory=16GiB, with `=` and a value");
            }
            let value_position = self.at + 1;
            let value = self.take_while(|char| char != ')' && !char.is_whitespace());
            match name.as_str() {
                "memory" => match parse_bytes(&value) {
                    Some(bytes) => attributes.memory_bytes = Some(bytes),
                    None => {
                        let message =
                            format!("`{}` is no amount of memory such as 16GiB or 4096", shown(&value));
                        return Err(self.error_at(value_position, message));
                    }
                },
                "indexes" => attributes.indexes = Some((value, value_position)),
                "size" if parse_bytes(&value).is_some() => {}
                "size" => {
                    let message = format!("`{}` is no cache size such as 32MiB", shown(&value));
                    return Err(self.error_at(value_position, message));
                }
                "name" => {}
                _ => {
                    let message = format!(
                        "no attribute is called `{}`; known are memory, indexes, size and name",
                        shown(&name)
                    );
                    return Err(self.error_at(position, message));
                }
            }
        }
    }

    /// Gives untyped levels their types, and checks that the levels make a machine.
    pub(super) fn check_types(&self, description: &mut Description) -> Result<(), TopologyError> {
        let levels = &mut description.levels;
        let Some(last) = levels.last() else {
            return self.error(EXPECTED);
        };
        let last_position = last.position;
        let typed = levels.iter().filter(|level| level.kind.is_some()).count();
        if typed == 0 {
            let Some(kinds) = UNTYPED.get(levels.len() - 1) else {
                let message = format!("at most {} levels can go without a type", UNTYPED.len());
                return Err(self.error_at(last_position, message));
            };
            for (level, &kind) in levels.iter_mut().zip(*kinds) {
                level.kind = Some(kind);
            }
        } else if let Some(level) = levels.iter().find(|level| level.kind.is_none()) {
            let message = "this level has no type but others have; give every level one, or none".to_owned();
            return Err(self.error_at(level.position, message));
        }
        let kinds: Vec<Type> = levels.iter().filter_map(|level| level.kind).collect();
        for (index, kind) in kinds.iter().enumerate() {
            if *kind != Type::Group && kinds[..index].contains(kind) {
                let message = format!("there is another level {} before; join them into one", kind.name());
                return Err(self.error_at(levels[index].position, message));
            }
        }
        match kinds.iter().position(|&kind| kind == Type::Pu) {
            Some(index) if index + 1 == kinds.len() => Ok(()),
            Some(index) => {
                let message = "pu must be the last level: nothing is below a processing unit".to_owned();
                Err(self.error_at(levels[index + 1].position, message))
            }
            None => Err(self.error_at(
                last_position,
                "the last level must be pu, such as pu:1 below each core".to_owned(),
            )),
        }
    }
}
