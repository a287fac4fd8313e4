//! Comparison of the sides' throughputs over time, for each phase.
//!
//! Owns: the arithmetic. Never: runs or measures anything.
//!
//! Sides are compared slice by slice: a slice of one and that of the other ran within a second. A ratio is that of the throughputs
//! over several slices; its interval of confidence comes from what the slices deviate from it (the ratio estimator of sampling
//! theory, with Student's distribution). A median of ratios has the interval between two of them by their order, for which no distribution of them is
//! assumed. When a side has adapted is seen in windows of about a second of its own time, because shorter
//! ones say more about the machine's neighbours.

use statrs::distribution::{Binomial, ContinuousCDF, DiscreteCDF, StudentsT};

use super::timeline::{Sample, Span, Timeline};

/// A side has adapted when its throughput is this share of its target.
pub const REACHED: f64 = 0.95;

/// Length of a window, in seconds.
const WINDOW_S: f64 = 1.0;

/// Confidence of intervals.
pub const CONFIDENCE: f64 = 0.95;

/// The width of an interval, over the ratio, beyond which the ratio is [uncertain](Ratio::is_uncertain).
pub const CERTAIN_WIDTH: f64 = 0.05;

/// A ratio of two throughputs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Ratio {
    /// The ratio.
    pub value: f64,
    /// The interval that has the true ratio with [`CONFIDENCE`]; `None` for a single pair of slices.
    pub interval: Option<(f64, f64)>,
}

impl Ratio {
    /// The median of some ratios; `None` if there are none. Of fewer than six no two have the true median between them with [`CONFIDENCE`].
    #[must_use]
    pub fn median_of(ratios: &[f64]) -> Option<Ratio> {
        let mut ratios = ratios.to_vec();
        let value = (!ratios.is_empty()).then(|| atrapos_harness::median(&mut ratios))?;
        ratios.sort_unstable_by(f64::total_cmp);
        let count = ratios.len();
        // Of `count` ratios, as many are below the true median as tosses of a coin are heads.
        let tosses = Binomial::new(0.5, count as u64).ok()?;
        let is_within = |below: &usize| 2.0 * tosses.cdf(*below as u64) <= 1.0 - CONFIDENCE;
        let interval = (0..count / 2).take_while(is_within).last();
        Some(Ratio { value, interval: interval.map(|below| (ratios[below], ratios[count - 1 - below])) })
    }

    /// Returns true if its interval is wider than [`CERTAIN_WIDTH`], or not known.
    #[must_use]
    pub fn is_uncertain(&self) -> bool {
        self.interval.is_none_or(|(low, high)| high - low > CERTAIN_WIDTH * self.value)
    }
}

/// The throughputs of two sides in the slices in which both ran: the first is put in relation to the second.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Pairs(pub Vec<(f64, f64)>);

impl Pairs {
    fn of(slices: &[Span], others: &[Span]) -> Pairs {
        Pairs(slices.iter().zip(others).map(|(slice, other)| (slice.tps, other.tps)).collect())
    }

    /// Returns the ratio of the throughputs over all slices; `None` if there are none.
    #[must_use]
    pub fn ratio(&self) -> Option<Ratio> {
        let (sum, others) =
            self.0.iter().fold((0.0, 0.0), |(sum, others), (tps, other)| (sum + tps, others + other));
        let value = ratio(sum, others)?;
        let count = self.0.len() as f64;
        let squares: f64 = self.0.iter().map(|(tps, other)| (tps - value * other).powi(2)).sum();
        let student = StudentsT::new(0.0, 1.0, count - 1.0).ok();
        let interval = student.map(|student| {
            let error = (count / (count - 1.0) * squares).sqrt() / others;
            let half = student.inverse_cdf(f64::midpoint(1.0, CONFIDENCE)) * error;
            (value - half, value + half)
        });
        Some(Ratio { value, interval })
    }

    /// Returns the least ratio of a slice.
    #[must_use]
    pub fn worst(&self) -> Option<f64> {
        self.0.iter().filter_map(|(tps, other)| ratio(*tps, *other)).min_by(f64::total_cmp)
    }
}

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
    /// The factor on that which the same work would give if all workers were as busy as the busiest one: what balance alone can gain; `None` where
    /// nothing is known of them.
    pub if_even: Option<f64>,
    /// Throughput of the adaptive side over the whole phase.
    pub adaptive_tps: Option<f64>,
    /// The adaptive side and the static one over the whole phase.
    pub whole: Pairs,
    /// Seconds after which the adaptive side has reached 95% of the level it settles at, or of the reference if there
    /// is one; `None` if it never has.
    pub adapted_after_s: Option<f64>,
    /// Throughput of the adaptive side from then on.
    pub adapted_tps: Option<f64>,
    /// The adaptive side and the static one in the slices from then on.
    pub adapted: Pairs,
    /// Throughput of the reference.
    pub reference_tps: Option<f64>,
    /// The adaptive side and the reference in the slices from then on.
    pub to_reference: Pairs,
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
    /// The side whose throughput the adaptive one is to reach: a timeline of this phase alone.
    pub reference: Option<&'a Timeline>,
}

impl Sides<'_> {
    /// Compares phase number `phase`; returns `None` if the static side has none of that number.
    #[must_use]
    pub fn compare(&self, name: &'static str, phase: usize) -> Option<Compared> {
        let span = self.fixed.spans.get(phase)?;
        let reference_tps = self.reference.and_then(|reference| reference.spans.first()).map(|span| span.tps);
        let mut compared = Compared {
            name,
            begin_s: span.begin_s,
            end_s: span.end_s,
            static_tps: span.tps,
            if_even: self.fixed.if_even(phase),
            adaptive_tps: None,
            whole: Pairs::default(),
            adapted_after_s: None,
            adapted_tps: None,
            adapted: Pairs::default(),
            reference_tps,
            to_reference: Pairs::default(),
            repartitionings: 0,
        };
        let Some(adaptive) = self.adaptive else { return Some(compared) };
        let own = adaptive.spans.get(phase)?;
        let (slices, fixed) = (adaptive.slices_of(phase), self.fixed.slices_of(phase));
        compared.adaptive_tps = Some(own.tps);
        compared.whole = Pairs::of(slices, fixed);
        compared.repartitionings = adaptive
            .decisions
            .iter()
            .filter(|decision| decision.event.decision.is_repartition())
            .filter(|decision| (own.begin_s..own.end_s).contains(&decision.time_s))
            .count();
        let adapting: Vec<Sample> = adaptive.samples_of(phase).copied().collect();
        let wanted = reference_tps.unwrap_or_else(|| settled(&adapting, own.end_s));
        let reached = windows(&adapting).find(|window| window.tps >= REACHED * wanted);
        if let Some(reached) = reached {
            // The window's first sample begins where the one before ended.
            let from = adapting[..reached.first].last().map_or(own.begin_s, |sample| sample.time_s);
            compared.adapted_after_s = Some(from - own.begin_s);
            compared.adapted_tps = Some(mean_from(&adapting, own.begin_s, from));
            // The slice in which that was is half of another scheme.
            let later = slices.iter().position(|slice| slice.begin_s > from - 1e-9);
            let later = later.unwrap_or(slices.len().saturating_sub(1));
            compared.adapted = Pairs::of(&slices[later..], fixed.get(later..).unwrap_or(&[]));
            let reference = self.reference.map_or(&[][..], |reference| reference.slices_of(0));
            compared.to_reference = Pairs::of(&slices[later..], reference.get(later..).unwrap_or(&[]));
        }
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
    if tps.is_empty() { 0.0 } else { atrapos_harness::median(&mut tps) }
}

#[cfg(test)]
mod tests {
    use super::super::timeline::Span;
    use super::*;

    /// Returns a side of one phase of half a second per slice, of five samples each, that begins at second 10.
    fn timeline(tps: &[f64]) -> Timeline {
        let samples = (0..tps.len() * 5)
            .map(|at| Sample { time_s: 10.0 + 0.1 * (at + 1) as f64, tps: tps[at / 5] })
            .collect::<Vec<_>>();
        let begin = |at: usize| 10.0 + 0.5 * at as f64;
        let slice = |(at, tps): (usize, &f64)| Span { begin_s: begin(at), end_s: begin(at + 1), tps: *tps };
        let slices = vec![tps.iter().enumerate().map(slice).collect()];
        let span = Span { begin_s: 10.0, end_s: begin(tps.len()), tps: mean(samples.iter()) };
        Timeline { samples, spans: vec![span], slices, ..Timeline::default() }
    }

    fn compare(fixed: &[f64], adaptive: &[f64], reference: Option<&[f64]>) -> Compared {
        let (fixed, adaptive) = (timeline(fixed), timeline(adaptive));
        let reference = reference.map(timeline);
        let sides = Sides { fixed: &fixed, adaptive: Some(&adaptive), reference: reference.as_ref() };
        sides.compare("phase", 0).expect("there is one phase")
    }

    fn close(a: Option<f64>, b: f64) -> bool {
        a.is_some_and(|a| (a - b).abs() < 1e-6)
    }

    fn value(pairs: &Pairs) -> Option<f64> {
        pairs.ratio().map(|ratio| ratio.value)
    }

    #[test]
    fn a_median_has_an_interval_from_six_ratios_on() {
        let of = |count: usize| {
            let ratios: Vec<f64> = (1..=count).rev().map(|number| number as f64).collect();
            Ratio::median_of(&ratios).map(|ratio| (ratio.value, ratio.interval))
        };
        assert_eq!(of(0), None);
        assert_eq!(of(5), Some((3.0, None)));
        // All six are on one side of the true median once in 32 times, all but one of eight too often.
        assert_eq!(of(6), Some((3.5, Some((1.0, 6.0)))));
        assert_eq!(of(8), Some((4.5, Some((1.0, 8.0)))));
        assert_eq!(of(9), Some((5.0, Some((2.0, 8.0)))));
        // As tables of order statistics have it.
        assert_eq!(of(25), Some((13.0, Some((8.0, 18.0)))));
        assert_eq!(of(61), Some((31.0, Some((23.0, 39.0)))));
        assert!(Ratio::median_of(&[1.0; 5]).is_some_and(|ratio| ratio.is_uncertain()));
        assert!(Ratio::median_of(&[1.0; 6]).is_some_and(|ratio| !ratio.is_uncertain()));
    }

    #[test]
    fn a_side_that_adapts_is_seen_when_it_has() {
        let fixed = [100.0; 12];
        let mut adaptive = [100.0; 12];
        adaptive[4..].fill(250.0);
        let compared = compare(&fixed, &adaptive, None);
        assert!(close(compared.adapted_after_s, 2.0), "{compared:?}");
        assert!(close(value(&compared.adapted), 2.5) && close(compared.adapted_tps, 250.0), "{compared:?}");
        assert!(close(compared.whole.worst(), 1.0) && close(value(&compared.whole), 2.0), "{compared:?}");
        assert_eq!((compared.reference_tps, compared.to_reference.ratio()), (None, None));
    }

    #[test]
    fn what_does_not_change_has_adapted_at_once() {
        let compared = compare(&[100.0; 8], &[98.0; 8], None);
        assert!(
            close(compared.adapted_after_s, 0.0) && close(value(&compared.adapted), 0.98),
            "{compared:?}"
        );
    }

    #[test]
    fn a_reference_may_be_out_of_reach() {
        let compared = compare(&[100.0; 8], &[100.0; 8], Some(&[110.0; 8]));
        assert_eq!((compared.adapted_after_s, compared.to_reference.ratio()), (None, None));
        let compared = compare(&[100.0; 8], &[105.0; 8], Some(&[110.0; 8]));
        assert!(close(value(&compared.to_reference), 105.0 / 110.0), "{compared:?}");
    }

    #[test]
    fn a_dip_shows_in_the_worst_slice() {
        let mut adaptive = [100.0; 12];
        adaptive[7] = 50.0;
        assert!(close(compare(&[100.0; 12], &adaptive, None).whole.worst(), 0.5));
    }

    #[test]
    fn a_side_without_samples_compares_to_nothing() {
        let compared = compare(&[0.0; 3], &[0.0; 3], None);
        assert_eq!((compared.whole.ratio(), compared.whole.worst()), (None, None));
        let alone = timeline(&[10.0]);
        let sides = Sides { fixed: &alone, adaptive: None, reference: None };
        let compared = sides.compare("phase", 0).expect("a phase");
        assert_eq!((compared.static_tps, compared.adaptive_tps), (10.0, None));
        assert!(sides.compare("phase", 1).is_none());
    }

    #[test]
    fn the_interval_is_that_of_the_ratio_estimator() {
        // Twice as fast in each slice, however fast the machine was: nothing is uncertain.
        let sure = Pairs(vec![(200.0, 100.0), (100.0, 50.0), (300.0, 150.0)]).ratio().expect("pairs");
        let (low, high) = sure.interval.expect("three pairs");
        assert!((sure.value - 2.0).abs() < 1e-9 && high - low < 1e-6 && !sure.is_uncertain(), "{sure:?}");
        // Deviations of 10, -10 and 0 from the ratio: the error is sqrt(3/2 * 200) / 300, and Student's quantile for 2 degrees 4.3027.
        let noisy = Pairs(vec![(110.0, 100.0), (90.0, 100.0), (100.0, 100.0)]).ratio().expect("pairs");
        let (low, high) = noisy.interval.expect("three pairs");
        let half = 4.302_653 * 300.0_f64.sqrt() / 300.0;
        assert!((noisy.value - 1.0).abs() < 1e-9 && (low - (1.0 - half)).abs() < 1e-5, "{noisy:?}");
        assert!((high - (1.0 + half)).abs() < 1e-5 && noisy.is_uncertain(), "{noisy:?}");
        let single = Pairs(vec![(110.0, 100.0)]).ratio().expect("a pair");
        assert!(single.interval.is_none() && single.is_uncertain());
    }
}
