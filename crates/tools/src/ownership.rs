//! A drawing of partitions: the heat of each slice, and the worker that owns it, at several moments below each other.
//!
//! Owns: strips, their colours and labels. Never: measures, or plans.
//!
//! Invariants: the time and the size of a drawing are bounded by its width, however many slices there are: of those that share a
//! pixel the hottest is drawn. Owners that have room are named, since readers distinguish few colours.

use atrapos::activity::Activity;
use atrapos_adapt::{Plan, PlannedScheme, Platform, TableIndex, Workload};
use atrapos_cli::error::CliError;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use crate::drawing::{Area, Drawn, FAINT, FONT, WIDTH, svg};

/// Strips of tables, and what heat means in them.
#[derive(Debug)]
pub(crate) struct Picture {
    /// The meaning of a heat of 1, as it follows a percentage.
    pub(crate) unit: &'static str,
    pub(crate) tables: Vec<TableStrips>,
}

/// The strips of a table, or of a family of tables.
#[derive(Debug)]
pub(crate) struct TableStrips {
    pub(crate) name: String,
    pub(crate) strips: Vec<Strip>,
}

/// The partitions of a table at a moment.
#[derive(Debug)]
pub(crate) struct Strip {
    /// The moment.
    pub(crate) name: String,
    /// In the order of keys.
    pub(crate) stretches: Vec<Stretch>,
}

/// A partition.
#[derive(Debug)]
pub(crate) struct Stretch {
    /// The worker that owns it; `None` if it is on its way, or another instance's.
    pub(crate) worker: Option<u32>,
    /// Its length, in any unit that all stretches of a strip have in common.
    pub(crate) extent: f64,
    /// The heat of its slices, which are equally long.
    pub(crate) heat: Vec<f64>,
}

const MARGIN: i32 = 16;
/// The place for names of strips.
const NAMES: i32 = 150;
const TITLE: i32 = 26;
const HEAT: i32 = 16;
const OWNERS: i32 = 18;
/// The space below a strip.
const GAP: i32 = 8;
const LEGEND: i32 = 40;
/// The narrowest band of an owner that is labelled, per letter of the label.
const LETTER: i32 = 8;
/// The colours of the legend.
const STEPS: i32 = 40;

impl Picture {
    /// Returns the picture of a plan: the scheme of today, and the proposed one.
    pub(crate) fn of_plan(plan: &Plan, workload: &Workload, platform: &Platform) -> Picture {
        let share = workload.work_cycles() / platform.available_count() as f64;
        let strip = |table: TableIndex, name: &str, scheme: &PlannedScheme| {
            let costs = workload.table_costs(table);
            let parts = scheme.tables()[table.index()].partitions(workload.slice_count(table));
            let stretches = parts.map(|part| {
                let costs = &costs[part.from.index()..part.to.index()];
                let heat = costs.iter().map(|cost| if share > 0.0 { cost / share } else { 0.0 });
                Stretch { worker: Some(part.owner.0), extent: costs.len() as f64, heat: heat.collect() }
            });
            Strip { name: name.to_owned(), stretches: stretches.collect() }
        };
        let tables = (0..).map(TableIndex).take(workload.table_count());
        let strips = tables.map(|table| TableStrips {
            name: workload.table_name(table).to_owned(),
            strips: vec![strip(table, "today", &plan.today), strip(table, "proposed", &plan.scheme)],
        });
        Picture { unit: "of a worker's share of the load", tables: strips.collect() }
    }

    /// Returns the picture of a database at several moments, each with its name. Heat is that since the moment before, and partitions are as
    /// long as they have rows.
    pub(crate) fn of_moments(moments: &[(String, Activity)]) -> Picture {
        let mut tables: Vec<TableStrips> = Vec::new();
        for (at, (name, activity)) in moments.iter().enumerate() {
            let before = at.checked_sub(1).map_or(activity, |before| &moments[before].1);
            for (family, heats) in activity.families.iter().zip(activity.heat_since(before)) {
                let stretches = family.partitions.iter().zip(heats).map(|(partition, heat)| Stretch {
                    worker: partition.worker.map(u32::from),
                    extent: partition.rows.iter().sum::<u64>() as f64,
                    heat,
                });
                let strip = Strip { name: name.clone(), stretches: stretches.collect() };
                match tables.iter_mut().find(|table| table.name == family.name) {
                    Some(table) => table.strips.push(strip),
                    None => tables.push(TableStrips { name: family.name.clone(), strips: vec![strip] }),
                }
            }
        }
        Picture { unit: "of a worker's time", tables }
    }

    /// Returns the height that the drawing takes.
    pub(crate) fn height(&self) -> u32 {
        let strips: usize = self.tables.iter().map(|table| table.strips.len()).sum();
        let lines = self.tables.len() as i32 * TITLE + strips as i32 * (HEAT + OWNERS + GAP);
        (2 * MARGIN + lines + LEGEND).unsigned_abs()
    }

    /// Returns the drawing.
    pub(crate) fn svg(&self) -> Result<String, CliError> {
        svg(self.height(), |area| self.draw(area))
    }

    /// Draws on a part of a canvas.
    pub(crate) fn draw(&self, area: &Area<'_>) -> Drawn {
        let heats = self.tables.iter().flat_map(|table| &table.strips).flat_map(|strip| &strip.stretches);
        let hottest = heats.flat_map(|stretch| &stretch.heat).copied().fold(0.0, f64::max);
        let mut y = MARGIN;
        for table in &self.tables {
            area.draw(&Text::new(table.name.clone(), (MARGIN, y + 4), (FONT, 16)))?;
            y += TITLE;
            for strip in &table.strips {
                strip.draw(area, y, hottest)?;
                y += HEAT + OWNERS + GAP;
            }
        }
        self.legend(area, y + GAP, hottest)
    }

    fn legend(&self, area: &Area<'_>, y: i32, hottest: f64) -> Drawn {
        let left = MARGIN + NAMES;
        let width = 4;
        for step in 0..STEPS {
            let x = left + step * width;
            let colour = of_heat(f64::from(step) / f64::from(STEPS - 1));
            area.draw(&Rectangle::new([(x, y), (x + width, y + HEAT)], colour.filled()))?;
        }
        let text =
            format!("heat of a slice, up to {:.1}% {}; below it the owner", 100.0 * hottest, self.unit);
        area.draw(&Text::new(text, (left + STEPS * width + 8, y + 2), (FONT, 14)))?;
        Ok(())
    }
}

impl Strip {
    fn draw(&self, area: &Area<'_>, y: i32, hottest: f64) -> Drawn {
        area.draw(&Text::new(self.name.clone(), (MARGIN, y + 8), (FONT, 14)))?;
        let left = MARGIN + NAMES;
        let (heats, owners) = self.columns((WIDTH as i32 - left - MARGIN).unsigned_abs() as usize);
        for (from, to, heat) in runs(&heats) {
            let colour = of_heat(if hottest > 0.0 { heat / hottest } else { 0.0 });
            let corners = [(left + from, y), (left + to, y + HEAT)];
            area.draw(&Rectangle::new(corners, colour.filled()))?;
        }
        let (top, bottom) = (y + HEAT, y + HEAT + OWNERS);
        for (from, to, stretch) in runs(&owners) {
            let worker = self.stretches.get(stretch).and_then(|stretch| stretch.worker);
            let corners = [(left + from, top), (left + to, bottom)];
            area.draw(&Rectangle::new(corners, of_worker(worker).filled()))?;
            area.draw(&PathElement::new([(left + from, y), (left + from, bottom)], FAINT.stroke_width(1)))?;
            let label = worker.map_or_else(|| "-".to_owned(), |worker| format!("w{worker}"));
            if to - from >= LETTER * (label.len() as i32 + 1) {
                let style = (FONT, 13).into_text_style(area).pos(Pos::new(HPos::Center, VPos::Center));
                area.draw(&Text::new(label, (left + (from + to) / 2, (top + bottom) / 2), style))?;
            }
        }
        let frame = [(left, y), (left + heats.len() as i32, bottom)];
        area.draw(&Rectangle::new(frame, FAINT.stroke_width(1)))?;
        Ok(())
    }

    /// Returns the heat and the number of the stretch in each column of pixels.
    fn columns(&self, width: usize) -> (Vec<f64>, Vec<usize>) {
        let has_rows = self.stretches.iter().any(|stretch| stretch.extent > 0.0);
        // Without any rows, partitions are as long as each other.
        let extent = |stretch: &Stretch| if has_rows { stretch.extent } else { 1.0 };
        let all: f64 = self.stretches.iter().map(extent).sum();
        let column = |position: f64| ((position / all * width as f64) as usize).min(width);
        let (mut heats, mut owners) = (vec![0.0_f64; width], vec![0; width]);
        let mut begin = 0.0;
        for (number, stretch) in self.stretches.iter().enumerate() {
            let length = extent(stretch);
            let slices = stretch.heat.len().max(1);
            let at = |slice: usize| column(begin + length * slice as f64 / slices as f64);
            for (slice, heat) in stretch.heat.iter().enumerate() {
                // A slice that is narrower than a column is seen in it all the same.
                let from = at(slice).min(width - 1);
                for there in &mut heats[from..at(slice + 1).max(from + 1)] {
                    *there = there.max(*heat);
                }
            }
            if length > 0.0 {
                owners[at(0)..].fill(number);
            }
            begin += length;
        }
        (heats, owners)
    }
}

/// Returns stretches of equal values: their first column, the one after the last, and the value.
fn runs<T: Copy + PartialEq>(values: &[T]) -> impl Iterator<Item = (i32, i32, T)> {
    let mut from = 0;
    values.chunk_by(|a, b| a == b).filter_map(move |run| {
        let begin = from;
        from += run.len() as i32;
        run.first().map(|value| (begin, from, *value))
    })
}

/// Returns the colour of a heat from 0 to 1: from white to a dark red.
fn of_heat(heat: f64) -> RGBColor {
    let heat = heat.clamp(0.0, 1.0);
    let between = |cold: f64, hot: f64| (cold + (hot - cold) * heat).round() as u8;
    RGBColor(between(255.0, 165.0), between(255.0, 15.0), between(255.0, 21.0))
}

/// Returns the colour of a worker; neighbours by number differ most.
fn of_worker(worker: Option<u32>) -> HSLColor {
    // The golden angle spreads any number of hues.
    worker.map_or(HSLColor(0.0, 0.0, 0.9), |worker| {
        HSLColor((f64::from(worker) * 0.381_966).fract(), 0.55, 0.78)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stretch(worker: u32, extent: f64, heat: &[f64]) -> Stretch {
        Stretch { worker: Some(worker), extent, heat: heat.to_vec() }
    }

    #[test]
    fn columns_have_the_owner_and_the_greatest_heat_of_their_slices() {
        let strip = |stretches| Strip { name: "now".into(), stretches };
        let two = strip(vec![stretch(0, 3.0, &[0.1, 0.2, 0.3]), stretch(1, 1.0, &[0.9])]);
        let (heats, owners) = two.columns(8);
        assert_eq!(heats, [0.1, 0.1, 0.2, 0.2, 0.3, 0.3, 0.9, 0.9]);
        assert_eq!(owners, [0, 0, 0, 0, 0, 0, 1, 1]);
        let many = strip((0..1000).map(|worker| stretch(worker, 1.0, &[f64::from(worker)])).collect());
        let (heats, _) = many.columns(10);
        assert_eq!((heats[0], heats[9]), (99.0, 999.0), "of a hundred slices in a column the hottest");
        let (heats, owners) = strip(vec![stretch(0, 0.0, &[0.5]), stretch(1, 0.0, &[0.7])]).columns(4);
        assert_eq!(
            (heats, owners),
            (vec![0.5, 0.5, 0.7, 0.7], vec![0, 0, 1, 1]),
            "without rows they are equal"
        );
        assert_eq!(strip(Vec::new()).columns(2).1, [0, 0]);
    }

    #[test]
    fn equal_values_are_one_run() {
        assert_eq!(runs(&[1, 1, 2, 1]).collect::<Vec<_>>(), [(0, 2, 1), (2, 3, 2), (3, 4, 1)]);
        assert_eq!(runs::<u8>(&[]).count(), 0);
    }

    #[test]
    fn a_drawing_names_tables_moments_and_owners_and_stays_small() {
        let strip = |name: &str, workers: u32| Strip {
            name: name.into(),
            stretches: (0..workers).map(|worker| stretch(worker, 1.0, &[0.25; 10])).collect(),
        };
        let table = TableStrips {
            name: "accounts".into(),
            strips: vec![strip("today", 2), strip("proposed", 10_000)],
        };
        let drawn = Picture { unit: "of a worker's time", tables: vec![table] }.svg().expect("drawn");
        for part in ["accounts", "today", "proposed", "w0", "w1", "up to 25.0% of a worker"] {
            assert!(drawn.contains(part), "{part} in {drawn}");
        }
        assert!(drawn.len() < 500_000, "{}", drawn.len());
        let nothing = Picture { unit: "of a worker's time", tables: Vec::new() };
        assert!(nothing.svg().expect("drawn").trim_end().ends_with("</svg>"));
    }
}
