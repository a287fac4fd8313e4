//! The `indexes=` attribute of the synthetic notation: which numbers the operating system gives objects.
//!
//! Owns: the three forms: explicit numbers (`0,2,1,3`), interleavings by step and count (`4*2:1*4`), and interleavings by
//! level (`pack:core`). Never: knows what the objects are for.
//!
//! Invariant: a parsed order has one distinct number per object.

use crate::cpuset::{CPU_COUNT_MAX, shown};
use crate::synthetic::Type;

/// A level of the description and how many objects it has in the whole machine.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LevelWidth {
    pub(crate) kind: Type,
    pub(crate) width: u32,
}

/// The operating system's numbers of the objects of a level, in the order of the description.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct IndexOrder {
    pub(crate) numbers: Vec<u32>,
}

/// One loop of an interleaving: object `j` takes part with `(j / step) % count`.
#[derive(Debug, Clone, Copy)]
struct Loop {
    step: u32,
    count: u32,
}

impl IndexOrder {
    /// Reads the attribute's value for a level of `total` objects.
    ///
    /// Returns what is wrong as a sentence's end.
    pub(crate) fn parse(value: &str, total: u32, levels: &[LevelWidth]) -> Result<Self, String> {
        let first = value.chars().next().unwrap_or(' ');
        let numbers = if first.is_ascii_digit() && !value.contains('*') {
            explicit(value)?
        } else if first.is_ascii_digit() {
            interleave(complete(loops_by_step(value)?, total)?, total)
        } else {
            interleave(complete(loops_by_level(value, total, levels)?, total)?, total)
        };
        check(&numbers, total)?;
        Ok(Self { numbers })
    }
}

fn explicit(value: &str) -> Result<Vec<u32>, String> {
    let number = |word: &str| word.parse::<u32>().ok().filter(|&number| number < CPU_COUNT_MAX);
    value
        .split(',')
        .map(|word| {
            number(word).ok_or_else(|| format!("`{}` is no index below {CPU_COUNT_MAX}", shown(word)))
        })
        .collect()
}

fn loops_by_step(value: &str) -> Result<Vec<Loop>, String> {
    let one = |part: &str| {
        let (step, count) = part.split_once('*')?;
        let (step, count) = (step.parse().ok()?, count.parse().ok()?);
        (step > 0 && count > 0).then_some(Loop { step, count })
    };
    value
        .split(':')
        .map(|part| one(part).ok_or_else(|| format!("`{}` is no interleaving such as 4*2", shown(part))))
        .collect()
}

fn loops_by_level(value: &str, total: u32, levels: &[LevelWidth]) -> Result<Vec<Loop>, String> {
    let mut widths = Vec::new();
    for word in value.split(':') {
        let level = Type::parse(word).and_then(|kind| levels.iter().find(|level| level.kind == kind));
        let Some(level) = level else {
            return Err(format!("`{}` is neither an index nor a level of this description", shown(word)));
        };
        widths.push(level.width);
    }
    // A level's count is relative to the nearest wider-grouped level that takes part as well.
    let one = |&width: &u32| {
        let outer = widths.iter().copied().filter(|&other| other < width).max().unwrap_or(1);
        Loop { step: total / width, count: width / outer }
    };
    Ok(widths.iter().map(one).collect())
}

/// Adds the innermost loop when it is left out, and checks that the loops make up all objects.
fn complete(mut loops: Vec<Loop>, total: u32) -> Result<Vec<Loop>, String> {
    let product = |loops: &[Loop]| loops.iter().try_fold(1u32, |product, one| product.checked_mul(one.count));
    let covered = product(&loops).unwrap_or(0);
    let innermost = loops.iter().map(|one| one.step).min().unwrap_or(1);
    if covered > 0 && covered != total && covered.checked_mul(innermost) == Some(total) {
        loops.push(Loop { step: 1, count: innermost });
    }
    match product(&loops) {
        Some(product) if product == total => Ok(loops),
        _ => Err(format!("the interleaving covers {covered} of {total} objects")),
    }
}

fn interleave(loops: Vec<Loop>, total: u32) -> Vec<u32> {
    let number = |object: u32| {
        let add = |(number, unit): (u32, u32), one: &Loop| {
            (number + object / one.step % one.count * unit, unit * one.count)
        };
        loops.iter().fold((0, 1), add).0
    };
    (0..total).map(number).collect()
}

fn check(numbers: &[u32], total: u32) -> Result<(), String> {
    if numbers.len() != total as usize {
        return Err(format!("there are {} indexes for {total} objects", numbers.len()));
    }
    let mut sorted = numbers.to_vec();
    sorted.sort_unstable();
    match sorted.windows(2).find(|pair| pair[0] == pair[1]) {
        Some(pair) => Err(format!("index {} is there twice", pair[0])),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEVELS: [LevelWidth; 3] = [
        LevelWidth { kind: Type::Package, width: 2 },
        LevelWidth { kind: Type::Core, width: 8 },
        LevelWidth { kind: Type::Pu, width: 8 },
    ];

    fn parse(value: &str) -> Result<Vec<u32>, String> {
        IndexOrder::parse(value, 8, &LEVELS).map(|order| order.numbers)
    }

    #[test]
    fn all_three_forms_agree() {
        let interleaved = Ok(vec![0, 2, 4, 6, 1, 3, 5, 7]);
        assert_eq!(parse("0,2,4,6,1,3,5,7"), interleaved);
        assert_eq!(parse("4*2:1*4"), interleaved);
        assert_eq!(parse("4*2"), interleaved, "the innermost loop may be left out");
        assert_eq!(parse("pack:core"), interleaved);
        assert_eq!(parse("package"), interleaved);
    }

    #[test]
    fn mistakes_are_named() {
        for (value, words) in [
            ("0,1,2", "3 indexes for 8 objects"),
            ("0,1,2,3,4,5,6,6", "index 6 is there twice"),
            ("0,1,2,x,4,5,6,7", "`x` is no index"),
            ("0,1,2,70000,4,5,6,7", "`70000` is no index"),
            ("4*3:1*4", "covers 12 of 8"),
            ("0*2:1*4", "`0*2` is no interleaving"),
            ("4*2:", "`` is no interleaving"),
            ("65536*65536:65536*65536", "covers 0 of 8"),
            ("2*2:2*2:1*2", "twice"),
            ("l3:core", "`l3` is neither"),
            ("", "`` is neither"),
        ] {
            let error = parse(value).expect_err(value);
            assert!(error.contains(words), "{value}: {error}");
        }
    }
}
