//! Drawings of results.
//!
//! Owns: axes, lines and colours. Never: computes what it draws.
//!
//! Lines differ in their pattern as well as in colour, for print and for readers who distinguish few colours.

use std::ops::Range;

use atrapos_cli::error::CliError;
use atrapos_experiments::ladder::RungResult;
use atrapos_experiments::monitoring::MonitoringCost;
use atrapos_experiments::repartitioning::{Cost, Kind};
use atrapos_experiments::scenario::{Round, Scenario};
use atrapos_experiments::timeline::Timeline;
use plotters::chart::MeshStyle;
use plotters::coord::types::RangedCoordf64;
use plotters::element::DashedPathElement;
use plotters::prelude::*;

use super::sides::intervals;
pub(super) use crate::drawing::{Area, Drawn, FAINT, FONT, WIDTH, svg};
use crate::ownership::Picture;

pub(super) type Chart<'a, 'b> = ChartContext<'a, SVGBackend<'b>, Cartesian2d<RangedCoordf64, RangedCoordf64>>;

const ADAPTIVE: RGBColor = RGBColor(0, 68, 136);
const STATIC: RGBColor = RGBColor(102, 102, 102);
const REFERENCE: RGBColor = RGBColor(0, 119, 68);
const MARK: RGBColor = RGBColor(204, 51, 17);

pub(super) const HEIGHT: u32 = 420;
/// Height of a second panel.
const PANEL: u32 = 160;

/// Returns the factor of the numbers on an axis and its name, chosen so that they are short.
pub(super) fn unit(most: f64, name: &str) -> (f64, String) {
    match most {
        most if most >= 2e6 => (1e6, format!("million {name}")),
        most if most >= 2e3 => (1e3, format!("thousand {name}")),
        _ => (1.0, name.to_owned()),
    }
}

/// The unit of throughputs.
const THROUGHPUT: &str = "transactions/s";

/// Draws the throughput over time of both sides, with the reference, the phases and the changes of the scheme; below it the heat
/// and the owners of the adaptive side's partitions, as they were at the beginning and after each phase.
pub(super) fn sides(scenario: Scenario, round: &Round) -> Result<String, CliError> {
    let second = round.adaptive.as_ref().filter(|_| scenario == Scenario::Frequency);
    let panel = second.map_or(0, |_| PANEL);
    let partitions = round.adaptive.as_ref().map(|adaptive| Picture::of_moments(&adaptive.moments));
    svg(HEIGHT + panel + partitions.as_ref().map_or(0, Picture::height), |area| {
        let (upper, lower) = area.split_vertically(HEIGHT);
        throughput(&upper, scenario, round)?;
        let (middle, lower) = lower.split_vertically(panel);
        second.map_or(Ok(()), |adaptive| relaxing(&middle, adaptive, seconds(round)))?;
        partitions.map_or(Ok(()), |partitions| partitions.draw(&lower))
    })
}

/// Returns the range of time that is drawn.
fn seconds(round: &Round) -> Range<f64> {
    0.0..round.fixed.spans.last().map_or(1.0, |span| span.end_s)
}

/// Returns the times at which the scheme changed, from the first phase on.
fn changes(adaptive: &Timeline) -> impl Iterator<Item = f64> {
    let changed = adaptive.decisions.iter().filter(|timed| timed.event.decision.is_repartition());
    changed.map(|timed| timed.time_s).filter(|time_s| *time_s > 0.0)
}

fn throughput(area: &Area<'_>, scenario: Scenario, round: &Round) -> Drawn {
    let adaptive = round.adaptive.as_ref();
    let lines = std::iter::once(&round.fixed).chain(adaptive);
    let samples = lines.flat_map(|line| line.samples.iter().map(|sample| sample.tps));
    let levels = round.compared.iter().filter_map(|phase| phase.reference_tps);
    let most = samples.chain(levels).fold(1.0, f64::max);
    let (unit, unit_name) = unit(most, THROUGHPUT);
    let top = 1.15 * most / unit;
    let mut chart = chart(area, Some(&capitalized(scenario.title())), seconds(round), 0.0..top)?;
    mesh(&mut chart).x_desc("seconds").y_desc(unit_name).draw()?;
    for (compared, span) in round.compared.iter().zip(&round.fixed.spans) {
        let line = [(span.begin_s, 0.0), (span.begin_s, top)];
        chart.draw_series(std::iter::once(PathElement::new(line, FAINT.stroke_width(1))))?;
        let place = (span.begin_s + 0.005 * span.end_s, 0.985 * top);
        chart.draw_series(std::iter::once(Text::new(compared.name, place, (FONT, 14))))?;
    }
    if let Some(adaptive) = adaptive {
        let marks = changes(adaptive)
            .map(|at| DashedPathElement::new([(at, 0.0), (at, 0.92 * top)], 2, 3, MARK.stroke_width(1)));
        chart
            .draw_series(marks)?
            .label("scheme changed")
            .legend(|(x, y)| PathElement::new([(x + 12, y - 7), (x + 12, y + 7)], MARK.stroke_width(1)));
    }
    references(&mut chart, scenario, round, unit)?;
    let points = |timeline: &Timeline| -> Vec<(f64, f64)> {
        timeline.samples.iter().map(|sample| (sample.time_s, sample.tps / unit)).collect()
    };
    chart
        .draw_series(DashedLineSeries::new(points(&round.fixed), 6, 4, STATIC.stroke_width(2)))?
        .label("static")
        .legend(|(x, y)| DashedPathElement::new([(x, y), (x + 24, y)], 6, 4, STATIC.stroke_width(2)));
    if let Some(adaptive) = adaptive {
        chart
            .draw_series(LineSeries::new(points(adaptive), ADAPTIVE.stroke_width(2)))?
            .label("adaptive")
            .legend(|(x, y)| PathElement::new([(x, y), (x + 24, y)], ADAPTIVE.stroke_width(2)));
    }
    legend(&mut chart)
}

/// Draws one level line per phase.
fn references(chart: &mut Chart<'_, '_>, scenario: Scenario, round: &Round, unit: f64) -> Drawn {
    let Some(name) = scenario.reference().filter(|_| !round.references.is_empty()) else { return Ok(()) };
    let levels = round.compared.iter().filter_map(|phase| {
        let level = phase.reference_tps? / unit;
        let line = [(phase.begin_s, level), (phase.end_s, level)];
        Some(DashedPathElement::new(line, 2, 2, REFERENCE.stroke_width(2)))
    });
    chart
        .draw_series(levels)?
        .label(name)
        .legend(|(x, y)| DashedPathElement::new([(x, y), (x + 24, y)], 2, 2, REFERENCE.stroke_width(2)));
    Ok(())
}

/// Begins a chart with these ranges of numbers.
pub(super) fn chart<'a, 'b>(
    area: &Area<'b>,
    caption: Option<&str>,
    x: Range<f64>,
    y: Range<f64>,
) -> Result<Chart<'a, 'b>, Box<dyn std::error::Error>> {
    let mut chart = ChartBuilder::on(area);
    if let Some(caption) = caption {
        chart.caption(caption, (FONT, 18));
    }
    Ok(chart.margin(12).x_label_area_size(42).y_label_area_size(64).build_cartesian_2d(x, y)?)
}

/// Returns the style of the axes, which all charts have; their names are still to be set.
pub(super) fn mesh<'a, 'm, 'b>(
    chart: &'m mut Chart<'a, 'b>,
) -> MeshStyle<'a, 'm, RangedCoordf64, RangedCoordf64, SVGBackend<'b>> {
    let mut mesh = chart.configure_mesh();
    mesh.disable_x_mesh()
        .bold_line_style(FAINT.mix(0.5))
        .light_line_style(TRANSPARENT)
        .x_label_formatter(&axis)
        .y_label_formatter(&axis)
        .label_style((FONT, 14))
        .axis_desc_style((FONT, 15));
    mesh
}

fn legend<'a, 'b: 'a>(chart: &mut Chart<'a, 'b>) -> Drawn {
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::LowerRight)
        .margin(10)
        .legend_area_size(34)
        .background_style(WHITE.mix(0.85))
        .border_style(FAINT)
        .label_font((FONT, 14))
        .draw()?;
    Ok(())
}

/// Draws the time between two decisions of the controller.
fn relaxing(area: &Area<'_>, adaptive: &Timeline, seconds: Range<f64>) -> Drawn {
    let looks = intervals(adaptive);
    let longest = looks.iter().map(|(_, interval_s)| *interval_s).fold(1.0, f64::max);
    let mut chart = chart(area, None, seconds.clone(), 0.0..1.15 * longest)?;
    mesh(&mut chart).x_desc("seconds").y_desc("interval, s").y_labels(5).draw()?;
    // Each step spans the time before a decision.
    let steps = looks.iter().flat_map(|(at, interval_s)| {
        [((at - interval_s).max(seconds.start), *interval_s), (*at, *interval_s)]
    });
    chart.draw_series(LineSeries::new(steps, ADAPTIVE.stroke_width(2)))?;
    chart.draw_series(looks.iter().map(|look| Circle::new(*look, 3, ADAPTIVE.filled())))?;
    Ok(())
}

/// Draws time by number of changes, one line per kind, for the table of `rows` rows.
pub(super) fn repartitioning(costs: &[Cost], rows: u64) -> Result<String, CliError> {
    let of = |kind: Kind| costs.iter().filter(move |cost| cost.rows == rows && cost.kind == kind);
    let points =
        |kind: Kind| -> Vec<(f64, f64)> { of(kind).map(|cost| (cost.count as f64, cost.owner_ms)).collect() };
    let all = || Kind::ALL.into_iter().flat_map(of);
    let widest = all().map(|cost| cost.count as f64).fold(1.0, f64::max);
    let most = all().map(|cost| cost.owner_ms + cost.owner_ms_sd).fold(1e-3, f64::max);
    svg(HEIGHT, |area| {
        let mut chart = chart(
            area,
            Some("Cost of repartitioning (ATraPos, Figure 9)"),
            0.0..1.05 * widest,
            0.0..1.15 * most,
        )?;
        mesh(&mut chart).x_desc("changes").y_desc("milliseconds of the owners").draw()?;
        for (kind, colour, size) in
            [(Kind::Split, STATIC, 6), (Kind::Merge, REFERENCE, 2), (Kind::Rearrange, ADAPTIVE, 40)]
        {
            // The longest dashes are a line without gaps.
            let gap = if size > 20 { 0 } else { 4 };
            chart
                .draw_series(DashedLineSeries::new(points(kind), size, gap, colour.stroke_width(2)))?
                .label(kind.name())
                .legend(move |(x, y)| {
                    DashedPathElement::new([(x, y), (x + 24, y)], size, gap, colour.stroke_width(2))
                });
            let bars = of(kind).map(|cost| {
                let (count, mean, sd) = (cost.count as f64, cost.owner_ms, cost.owner_ms_sd);
                PathElement::new([(count, (mean - sd).max(0.0)), (count, mean + sd)], colour.stroke_width(1))
            });
            chart.draw_series(bars)?;
            chart
                .draw_series(points(kind).into_iter().map(|point| Circle::new(point, 3, colour.filled())))?;
        }
        legend(&mut chart)
    })
}

/// Draws the ratio of every pair, and the median, by mix.
pub(super) fn monitoring(costs: &[MonitoringCost]) -> Result<String, CliError> {
    let ratios: Vec<Vec<f64>> = costs.iter().map(MonitoringCost::ratios).collect();
    let all = || ratios.iter().flatten().copied();
    let (least, most) = (all().fold(0.97, f64::min) - 0.005, all().fold(1.03, f64::max) + 0.005);
    svg(HEIGHT, |area| {
        let mut chart = chart(
            area,
            Some("Cost of observing (ATraPos, Table II)"),
            -0.5..costs.len() as f64 - 0.5,
            least..most,
        )?;
        mesh(&mut chart).disable_x_axis().y_desc("throughput observing / not observing").draw()?;
        let line = [(-0.5, 1.0), (costs.len() as f64 - 0.5, 1.0)];
        chart.draw_series(std::iter::once(PathElement::new(line, STATIC.stroke_width(1))))?;
        for (at, (cost, ratios)) in costs.iter().zip(&ratios).enumerate() {
            let x = at as f64;
            let pairs = ratios.iter().map(|ratio| Circle::new((x, *ratio), 3, ADAPTIVE.mix(0.5).filled()));
            chart.draw_series(pairs)?;
            if let Some(median) = cost.ratio().map(|ratio| ratio.value) {
                let line = [(x - 0.15, median), (x + 0.15, median)];
                chart.draw_series(std::iter::once(PathElement::new(line, MARK.stroke_width(2))))?;
                let label = format!("{:.2}%", 100.0 * (1.0 - median));
                chart.draw_series(std::iter::once(Text::new(label, (x + 0.17, median), (FONT, 14))))?;
            }
            let place = (x - 0.25, least + 0.04 * (most - least));
            chart.draw_series(std::iter::once(Text::new(cost.mix.to_string(), place, (FONT, 14))))?;
        }
        Ok(())
    })
}

/// Draws the throughput of every rung as a bar, with the spread of the rounds.
pub(super) fn ladder(results: &[RungResult]) -> Result<String, CliError> {
    let most = results.iter().map(|result| result.spread().1).fold(1.0, f64::max);
    let (unit, unit_name) = unit(most, THROUGHPUT);
    svg(HEIGHT, |area| {
        let mut chart = chart(
            area,
            Some("From PLP to ATraPos (ATraPos, Figure 6)"),
            -0.5..results.len() as f64 - 0.5,
            0.0..1.15 * most / unit,
        )?;
        mesh(&mut chart).disable_x_axis().y_desc(unit_name).draw()?;
        for (at, result) in results.iter().enumerate() {
            let (x, tps) = (at as f64, result.tps() / unit);
            let bar = Rectangle::new([(x - 0.3, 0.0), (x + 0.3, tps)], ADAPTIVE.mix(0.7).filled());
            chart.draw_series(std::iter::once(bar))?;
            let (least, most) = result.spread();
            let line = [(x, least / unit), (x, most / unit)];
            chart.draw_series(std::iter::once(PathElement::new(line, MARK.stroke_width(2))))?;
            let place = (x - 0.3, 0.04 * chart.y_range().end);
            let name = Text::new(result.rung.name(), place, (FONT, 14).into_font().color(&WHITE));
            chart.draw_series(std::iter::once(name))?;
        }
        Ok(())
    })
}

/// Draws the throughput of every side of every load as a bar; each load has a name, and sides of these names.
pub(super) fn bars(title: &str, loads: &[(&str, Vec<(&str, f64)>)]) -> Result<String, CliError> {
    let most = loads.iter().flat_map(|(_, sides)| sides).map(|(_, tps)| *tps).fold(1.0, f64::max);
    let (unit, unit_name) = unit(most, THROUGHPUT);
    let top = 1.15 * most / unit;
    svg(HEIGHT, |area| {
        let mut chart = chart(area, Some(title), -0.5..loads.len() as f64 - 0.5, 0.0..top)?;
        mesh(&mut chart).disable_x_axis().y_desc(unit_name).draw()?;
        for (at, (name, sides)) in loads.iter().enumerate() {
            let width = 0.9 / sides.len().max(1) as f64;
            for (number, (side, tps)) in sides.iter().enumerate() {
                let from = at as f64 - 0.45 + width * number as f64;
                let bar = [(from, 0.0), (from + 0.9 * width, tps / unit)];
                chart.draw_series(std::iter::once(Rectangle::new(bar, ADAPTIVE.mix(0.7).filled())))?;
                let label = (FONT, 14).into_font().color(&WHITE);
                let place = (from + 0.05 * width, 0.04 * top);
                chart.draw_series(std::iter::once(Text::new((*side).to_owned(), place, label)))?;
            }
            let place = (at as f64 - 0.45, 0.98 * top);
            chart.draw_series(std::iter::once(Text::new((*name).to_owned(), place, (FONT, 14))))?;
        }
        Ok(())
    })
}

/// Returns the label of a number on an axis: with as many digits behind the point as it needs, three at most.
pub(super) fn axis(number: &f64) -> String {
    let text = format!("{number:.3}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

pub(super) fn capitalized(text: &str) -> String {
    let mut rest = text.chars();
    rest.next().map_or_else(String::new, |first| first.to_uppercase().chain(rest).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_on_axes_have_no_idle_digits() {
        let shown = [0.0, 5.0, 200.0, 0.25, 0.985].map(|number| axis(&number));
        assert_eq!(shown, ["0", "5", "200", "0.25", "0.985"]);
    }

    #[test]
    fn rates_are_shown_in_units_that_keep_them_short() {
        assert_eq!(unit(3e6, "messages/s").0, 1e6);
        assert_eq!(unit(900_000.0, "messages/s"), (1e3, "thousand messages/s".to_owned()));
        assert_eq!(unit(10.0, "messages/s").0, 1.0);
    }

    #[test]
    fn experiments_without_results_are_drawn_without_lines() {
        let empty = [
            sides(Scenario::Frequency, &Round { adaptive: Some(Timeline::default()), ..Round::default() }),
            repartitioning(&[], 10),
            monitoring(&[]),
            ladder(&[]),
            bars("nothing", &[]),
        ];
        for drawn in empty {
            assert!(drawn.expect("drawn").trim_end().ends_with("</svg>"));
        }
    }
}
