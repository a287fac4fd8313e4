//! The drawing of an experiment of islands: a line for each series, or a stack of what a transaction consists of for each point.
//!
//! Owns: colours and places. Never: computes what is drawn.

use atrapos_cli::error::CliError;
use plotters::prelude::*;

use super::super::plot::{
    Area, Chart, Drawn, FONT, HEIGHT, WIDTH, axis, capitalized, chart, mesh, svg, unit,
};
use super::callgrind::Class;
use super::figures::{Figure, Quantity};
use super::{Measured, Study};

/// Colours that differ also for those who see some of them alike.
const COLOURS: [RGBColor; 8] = [
    RGBColor(0, 68, 136),
    RGBColor(204, 51, 17),
    RGBColor(0, 119, 68),
    RGBColor(170, 119, 0),
    RGBColor(119, 68, 170),
    RGBColor(51, 153, 204),
    RGBColor(102, 102, 102),
    RGBColor(221, 119, 136),
];

fn colour(index: usize) -> RGBColor {
    COLOURS[index % COLOURS.len()]
}

/// Draws the result.
pub(super) fn draw(study: &Study<'_>) -> Result<String, CliError> {
    svg(HEIGHT, |area| {
        let (chart, names) = area.split_horizontally(WIDTH - NAMES_WIDTH);
        match study.figure.y {
            Quantity::Instructions => {
                stacks(&chart, study)?;
                key(&names, Class::ALL.into_iter().map(|class| class.name().to_owned()))
            }
            _ => {
                lines(&chart, study)?;
                key(&names, (0..study.figure.series.len()).map(|series| series_name(study, series)))
            }
        }
    })
}

/// Width of the names beside the chart.
const NAMES_WIDTH: u32 = 230;

/// Draws the names of the colours, from top to bottom.
fn key(area: &Area<'_>, names: impl Iterator<Item = String>) -> Drawn {
    for (index, name) in names.enumerate() {
        let top = 40 + 22 * index as i32;
        area.draw(&Rectangle::new([(4, top), (18, top + 10)], colour(index).filled()))?;
        area.draw(&Text::new(name, (26, top - 2), (FONT, 14)))?;
    }
    Ok(())
}

fn series_name(study: &Study<'_>, series: usize) -> String {
    let name = &study.figure.series[series];
    let mut of = study.measured.iter().filter(|measured| measured.point.series == series);
    if of.any(|measured| study.is_oversubscribed(measured.point)) {
        return format!("{name} (oversubscribed)");
    }
    name.clone()
}

/// Returns the greatest number that is drawn.
fn greatest(study: &Study<'_>) -> f64 {
    let key = study.figure.y.key();
    let spreads = study.measured.iter().filter_map(|measured| measured.spread(key));
    spreads.map(|spread| spread.most).fold(1e-9, f64::max)
}

fn caption(figure: &Figure) -> String {
    format!("{} ({})", capitalized(&figure.title), figure.after)
}

fn lines(area: &Area<'_>, study: &Study<'_>) -> Drawn {
    let figure = study.figure;
    let greatest = greatest(study);
    let (unit, unit_name) = unit(greatest, figure.y.label());
    let places = || figure.positions.iter().map(|position| position.at);
    let (first, last) = (places().fold(f64::INFINITY, f64::min), places().fold(f64::NEG_INFINITY, f64::max));
    let margin = 0.04 * (last - first).max(1.0);
    let (x, y) = (first - margin..last + margin, 0.0..1.15 * greatest / unit);
    let mut chart = chart(area, Some(&caption(figure)), x, y)?;
    let label = |at: &f64| {
        let named = figure.positions.iter().find(|position| (position.at - at).abs() < 1e-9);
        named.map_or_else(|| axis(at), |position| position.label.clone())
    };
    let has_names = figure.positions.iter().any(|position| position.label != axis(&position.at));
    let labels = if has_names { figure.positions.len() } else { 11 };
    mesh(&mut chart).x_desc(figure.x).y_desc(unit_name).x_labels(labels).x_label_formatter(&label).draw()?;
    (0..figure.series.len()).try_for_each(|series| line(&mut chart, study, series, unit))
}

/// Draws a series: its medians, and the least and the most of the rounds.
fn line(chart: &mut Chart<'_, '_>, study: &Study<'_>, series: usize, unit: f64) -> Drawn {
    let colour = colour(series);
    let points: Vec<_> = study
        .measured
        .iter()
        .filter(|measured| measured.point.series == series)
        .filter_map(|measured| {
            let at = study.figure.positions[measured.point.position].at;
            measured.spread(study.figure.y.key()).map(|spread| (at, spread))
        })
        .collect();
    let medians = points.iter().map(|(at, spread)| (*at, spread.median / unit));
    chart.draw_series(LineSeries::new(medians.clone(), colour.stroke_width(2)))?;
    let ends = points.iter().map(|(at, spread)| {
        PathElement::new([(*at, spread.least / unit), (*at, spread.most / unit)], colour.stroke_width(1))
    });
    chart.draw_series(ends)?;
    chart.draw_series(medians.map(|point| Circle::new(point, 3, colour.filled())))?;
    Ok(())
}

/// Draws a stack of all classes of work for each point, those of a position side by side.
fn stacks(area: &Area<'_>, study: &Study<'_>) -> Drawn {
    let figure = study.figure;
    let greatest = greatest(study);
    let (unit, unit_name) = unit(greatest, figure.y.label());
    let (x, y) = (-0.6..figure.positions.len() as f64 - 0.4, 0.0..1.3 * greatest / unit);
    let mut chart = chart(area, Some(&caption(figure)), x, y)?;
    mesh(&mut chart).disable_x_axis().y_desc(unit_name).draw()?;
    let width = 0.9 / figure.series.len().max(1) as f64;
    let left = |measured: &Measured<'_>| {
        measured.point.position as f64 - 0.45 + width * measured.point.series as f64
    };
    let mut below = vec![0.0; study.measured.len()];
    for (index, class) in Class::ALL.into_iter().enumerate() {
        let key = class.key(Quantity::Instructions.key());
        let bars = study.measured.iter().zip(&mut below).map(|(measured, below)| {
            let height = measured.spread(&key).map_or(0.0, |spread| spread.median / unit);
            let (from, left) = (*below, left(measured));
            *below += height;
            Rectangle::new([(left, from), (left + 0.92 * width, *below)], colour(index).filled())
        });
        chart.draw_series(bars)?;
    }
    for (measured, height) in study.measured.iter().zip(&below) {
        let position = &figure.positions[measured.point.position];
        let name = format!("{}: {}%", figure.series[measured.point.series], position.label);
        let place = (left(measured), height + 0.05 * greatest / unit);
        chart.draw_series(std::iter::once(Text::new(name, place, (FONT, 10))))?;
    }
    Ok(())
}
