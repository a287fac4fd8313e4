//! Comparison of the sides' throughputs over time, for each phase.
//!
//! Owns: the arithmetic. Never: runs or measures anything.
//!
//! Throughputs are compared over windows of about a second, because shorter ones say more about the machine's
//! neighbours.

use super::timeline::{Sample, Timeline};

/// A side has adapted when its throughput is this share of its target.
pub const REACHED: f64 = 0.95;

/// Length of a window, in seconds.
const WINDOW_S: f64 = 1.0;

/// One phase on all sides.
#[derive(Clone, Debug, PartialEq)]
pub struct Compared {
    /// The phase's name.
    pub name: &'static str,
    /// Beginning of the phase, in seconds.
    pub begin_s: f64,
    /// End of the phase, in seconds.
    pub end_s: f64,
    /// Throughput of the static side over the whole phase.
    pub static_tps: f64,
    /// Throughput of the adaptive side over the whole phase.
    pub adaptive_tps: Option<f64>,
    /// The second over the first.
    pub ratio: Option<f64>,
    /// Seconds after which the adaptive side has reached 95% of the level it settles at, or of the reference if there
    /// is one; `None` if it never has.
    pub adapted_after_s: Option<f64>,
    /// Throughput of the adaptive side from then on.
    pub adapted_tps: Option<f64>,
    /// The same over that of the static side from then on.
    pub adapted_ratio: Option<f64>,
    /// The least ratio of the two over a window of a second.
    pub worst_ratio: Option<f64>,
    /// Throughput of the reference.
    pub reference_tps: Option<f64>,
    /// Throughput of the adaptive side, once it has adapted, over that of the reference.
    pub reference_ratio: Option<f64>,
    /// Number of changes of the scheme that the adaptive side made in the phase.
    pub repartitionings: usize,
}

/// The sides of one phase.
#[derive(Clone, Copy, Debug)]
pub struct Sides<'a> {
    /// The side that keeps its scheme.
    pub fixed: &'a Timeline,
    /// The side that adapts.
    pub adaptive: Option<&'a Timeline>,
    /// The throughput that the adaptive side is to reach.
    pub reference_tps: Option<f64>,
}

impl Sides<'_> {
    /// Compares phase number `phase`; returns `None` if the static side has none of that number.
    #[must_use]
    pub fn compare(&self, name: &'static str, phase: usize) -> Option<Compared> {
        let span = self.fixed.spans.get(phase)?;
        let mut compared = Compared {
            name,
            begin_s: span.begin_s,
            end_s: span.end_s,
            static_tps: span.tps,
            adaptive_tps: None,
            ratio: None,
            adapted_after_s: None,
            adapted_tps: None,
            adapted_ratio: None,
            worst_ratio: None,
            reference_tps: self.reference_tps,
            reference_ratio: None,
            repartitionings: 0,
        };
        let Some(adaptive) = self.adaptive else { return Some(compared) };
        let own = adaptive.spans.get(phase)?;
        let fixed: Vec<Sample> = self.fixed.samples_of(phase).copied().collect();
        let adapting: Vec<Sample> = adaptive.samples_of(phase).copied().collect();
        compared.adaptive_tps = Some(own.tps);
        compared.ratio = ratio(own.tps, span.tps);
        compared.repartitionings = adaptive
            .decisions
            .iter()
            .filter(|decision| decision.event.decision.is_repartition())
            .filter(|decision| (own.begin_s..own.end_s).contains(&decision.time_s))
            .count();
        let wanted = self.reference_tps.unwrap_or_else(|| settled(&adapting, own.end_s));
        let reached = windows(&adapting).find(|window| window.tps >= REACHED * wanted);
        if let Some(reached) = reached {
            // The window's first sample begins where the one before ended.
            let from = adapting[..reached.first].last().map_or(own.begin_s, |sample| sample.time_s);
            let after = from - own.begin_s;
            let tps = mean_from(&adapting, own.begin_s, own.begin_s + after);
            compared.adapted_after_s = Some(after);
            compared.adapted_tps = Some(tps);
            compared.adapted_ratio = ratio(tps, mean_from(&fixed, span.begin_s, span.begin_s + after));
            compared.reference_ratio = self.reference_tps.and_then(|reference| ratio(tps, reference));
        }
        let pairs = windows(&adapting).zip(windows(&fixed));
        compared.worst_ratio =
            pairs.filter_map(|(adaptive, fixed)| ratio(adaptive.tps, fixed.tps)).min_by(f64::total_cmp);
        Some(compared)
    }
}

fn ratio(tps: f64, other: f64) -> Option<f64> {
    (other > 0.0).then(|| tps / other)
}

/// Consecutive samples.
#[derive(Clone, Copy, Debug)]
struct Window {
    first: usize,
    tps: f64,
}

/// Returns all windows of a second, or one of all samples if they are shorter.
fn windows(samples: &[Sample]) -> impl Iterator<Item = Window> {
    let length = samples.len().min(samples_per_window());
    let means = samples.windows(length.max(1)).map(|window| mean(window.iter()));
    means.enumerate().map(|(first, tps)| Window { first, tps })
}

fn samples_per_window() -> usize {
    (WINDOW_S / super::timeline::SAMPLE.as_secs_f64()).round() as usize
}

fn mean<'a>(samples: impl Iterator<Item = &'a Sample>) -> f64 {
    let (count, sum) = samples.fold((0_u32, 0.0), |(count, sum), sample| (count + 1, sum + sample.tps));
    if count == 0 { 0.0 } else { sum / f64::from(count) }
}

/// Returns the mean of the samples that end after `from`; of all samples if none does.
fn mean_from(samples: &[Sample], begin: f64, from: f64) -> f64 {
    let later = |from: f64| mean(samples.iter().filter(|sample| sample.time_s > from + 1e-9));
    let tps = later(from);
    if tps > 0.0 { tps } else { later(begin) }
}

/// Returns the median throughput of the last third of a phase.
fn settled(samples: &[Sample], end: f64) -> f64 {
    let begin = samples.first().map_or(end, |sample| sample.time_s);
    let last = samples.iter().filter(|sample| sample.time_s >= end - (end - begin) / 3.0);
    let mut tps: Vec<f64> = last.map(|sample| sample.tps).collect();
    if tps.is_empty() { 0.0 } else { crate::median(&mut tps) }
}

#[cfg(test)]
mod tests {
    use super::super::timeline::Span;
    use super::*;

    /// Returns a side of one phase of 0.2 s per sample that begins at second 10.
    fn timeline(tps: &[f64]) -> Timeline {
        let samples = tps
            .iter()
            .enumerate()
            .map(|(at, tps)| Sample { time_s: 10.0 + 0.2 * (at + 1) as f64, tps: *tps });
        let samples: Vec<Sample> = samples.collect();
        let tps = mean(samples.iter());
        let span = Span { begin_s: 10.0, end_s: samples.last().map_or(10.0, |sample| sample.time_s), tps };
        Timeline { samples, spans: vec![span], ..Timeline::default() }
    }

    fn compare(fixed: &[f64], adaptive: &[f64], reference_tps: Option<f64>) -> Compared {
        let (fixed, adaptive) = (timeline(fixed), timeline(adaptive));
        let sides = Sides { fixed: &fixed, adaptive: Some(&adaptive), reference_tps };
        sides.compare("phase", 0).expect("there is one phase")
    }

    fn close(a: Option<f64>, b: f64) -> bool {
        a.is_some_and(|a| (a - b).abs() < 1e-6)
    }

    #[test]
    fn a_side_that_adapts_is_seen_when_it_has() {
        let fixed = [100.0; 30];
        let mut adaptive = [100.0; 30];
        adaptive[10..].fill(200.0);
        let compared = compare(&fixed, &adaptive, None);
        assert!(close(compared.adapted_after_s, 2.0), "{compared:?}");
        assert!(close(compared.adapted_ratio, 2.0) && close(compared.adapted_tps, 200.0), "{compared:?}");
        assert!(close(compared.worst_ratio, 1.0) && close(compared.ratio, 5.0 / 3.0), "{compared:?}");
        assert_eq!((compared.reference_tps, compared.reference_ratio), (None, None));
    }

    #[test]
    fn what_does_not_change_has_adapted_at_once() {
        let compared = compare(&[100.0; 20], &[98.0; 20], None);
        assert!(close(compared.adapted_after_s, 0.0) && close(compared.adapted_ratio, 0.98), "{compared:?}");
    }

    #[test]
    fn a_reference_may_be_out_of_reach() {
        let compared = compare(&[100.0; 20], &[100.0; 20], Some(110.0));
        assert_eq!((compared.adapted_after_s, compared.reference_ratio), (None, None));
        let compared = compare(&[100.0; 20], &[105.0; 20], Some(110.0));
        assert!(close(compared.reference_ratio, 105.0 / 110.0), "{compared:?}");
    }

    #[test]
    fn a_dip_shows_in_the_worst_window() {
        let mut adaptive = [100.0; 30];
        adaptive[12..17].fill(50.0);
        let compared = compare(&[100.0; 30], &adaptive, None);
        assert!(close(compared.worst_ratio, 0.5), "{compared:?}");
    }

    #[test]
    fn a_side_without_samples_compares_to_nothing() {
        let compared = compare(&[0.0; 3], &[0.0; 3], None);
        assert_eq!((compared.ratio, compared.worst_ratio), (None, None));
        let alone = timeline(&[10.0]);
        let sides = Sides { fixed: &alone, adaptive: None, reference_tps: None };
        let compared = sides.compare("phase", 0).expect("a phase");
        assert_eq!((compared.static_tps, compared.adaptive_tps), (10.0, None));
        assert!(sides.compare("phase", 1).is_none());
    }
}
