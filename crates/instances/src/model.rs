//! The model of a deployment: from a few measured times per transaction, the throughput for any share of transactions that leave their
//! worker, and from several such models the best deployment.
//!
//! `T = (1 - p) T_local + p T_distr` (Islands, section 5): `T` is the time of a worker per transaction, so that `w` workers run `w / T`
//! transactions in a second. The threads of an instance in the paper share its data, and its `p` counts only transactions over several
//! instances. Workers here own their data also within an instance; so `p` counts the transactions over several workers, and
//! `T_distr` is their mean time. With an instance for each worker it is the paper's `p`, and with one database no transaction is
//! distributed, but those over several workers still cost more than others. For a workload and a number of workers, `p` is the same
//! in every deployment, which makes two of them comparable: both are curves over `p`.
//!
//! # Waiting
//! The paper's line holds where transactions rarely meet. Where a few rows are in all of them (the branch of TPC-B), a transaction that stays finds its
//! row taken by one that leaves, which holds it for messages there and back, and those behind it queue. So a transaction that stays takes
//! `T_local + W p / (p + h)`: `p / (p + h)` is the probability that its row is taken or queued for, the utilization of a row that is held
//! the longer by those that leave the smaller `h` is, and `W` is what waiting costs in the end. With `W = 0` it is the paper's line.
//!
//! # Measured shares
//! The formula says why a deployment takes its time, and has three numbers for the form of a curve that depends on more: how many messages share a
//! flush, who sleeps meanwhile, when deadlocks limit who begins. A [`Curve`] is the formula times its error at the shares that were measured, whose
//! logarithm is interpolated between them. So it goes through what was measured, and the formula gives its form in between.
//!
//! Owns: these formulas, as pure functions. Never: measures, or knows a workload.

/// The times per transaction of one deployment, in microseconds of a worker.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Times {
    /// The time of transactions that stay on their worker, when none leaves it.
    pub local_us: f64,
    /// The mean time of the others; `None` if there are none.
    pub distributed_us: Option<f64>,
    /// The time that those that stay wait for rows of those that leave.
    pub waiting: Waiting,
}

/// The time that transactions which stay on their worker wait for those that leave theirs.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Waiting {
    /// The most that it can be, in microseconds of a worker.
    pub most_us: f64,
    /// The share of transactions that leave their worker at which it is half of that.
    pub half_at: f64,
}

impl Waiting {
    fn at(self, leaving: f64) -> f64 {
        if self.most_us > 0.0 { self.most_us * leaving / (leaving + self.half_at) } else { 0.0 }
    }
}

/// A run in which a share of the transactions leaves its worker, and the time per transaction in microseconds.
pub type Run = (f64, f64);

/// Steps of the search for the share at which half of the time is waited: from 0.0001 to 10, by a twentieth of a factor of ten.
const HALVES: std::ops::Range<i32> = -80..21;

impl Times {
    /// Returns the times from runs: one in which no transaction leaves its worker, which takes `local_us`, and others, by the least squares of
    /// relative errors. Fewer than three others give the paper's line; three give the waiting, too, if there is any.
    #[must_use]
    pub fn of_runs(local_us: f64, others: &[Run]) -> Times {
        let line = Times::line(local_us, others);
        if others.len() < 3 {
            return line;
        }
        let halves = HALVES.map(|step| 10_f64.powf(f64::from(step) / 20.0));
        let fitted = halves.filter_map(|half_at| Times::fitted(local_us, half_at, others));
        let error = |times: &Times| times.squared_error(others);
        fitted.chain([line]).min_by(|a, b| error(a).total_cmp(&error(b))).unwrap_or(line)
    }

    /// Returns the times without waiting.
    fn line(local_us: f64, runs: &[Run]) -> Times {
        let sum = |of: fn(f64, f64) -> f64| -> f64 {
            let terms =
                runs.iter().map(|(leaving, us)| of(leaving / us, 1.0 - (1.0 - leaving) * local_us / us));
            terms.sum()
        };
        let squares = sum(|x, _| x * x);
        // Noise may have a run be faster than the local share of it alone; no time is below zero.
        let distributed_us = (squares > 0.0).then(|| (sum(|x, rest| x * rest) / squares).max(0.0));
        Times { local_us, distributed_us, waiting: Waiting::default() }
    }

    /// Returns the times with half of the waiting at a share; none if no times above zero fit.
    fn fitted(local_us: f64, half_at: f64, runs: &[Run]) -> Option<Times> {
        // The normal equations of `x distributed + y most = rest`, each divided by the time of its run.
        let [mut xx, mut xy, mut yy, mut xr, mut yr] = [0.0; 5];
        for (leaving, us) in runs {
            let x = leaving / us;
            let y = (1.0 - leaving) * leaving / (leaving + half_at) / us;
            let rest = 1.0 - (1.0 - leaving) * local_us / us;
            xx += x * x;
            xy += x * y;
            yy += y * y;
            xr += x * rest;
            yr += y * rest;
        }
        let determinant = xx * yy - xy * xy;
        let (distributed_us, most_us) =
            ((xr * yy - yr * xy) / determinant, (xx * yr - xy * xr) / determinant);
        let is_possible = distributed_us.is_finite() && most_us.is_finite();
        let is_possible = is_possible && distributed_us >= 0.0 && most_us > 0.0;
        let waiting = Waiting { most_us, half_at };
        is_possible.then_some(Times { local_us, distributed_us: Some(distributed_us), waiting })
    }

    fn squared_error(&self, runs: &[Run]) -> f64 {
        runs.iter().map(|(leaving, us)| (self.at(*leaving) / us - 1.0).powi(2)).sum()
    }

    /// Returns the time per transaction if the share `leaving` leaves its worker.
    #[must_use]
    pub fn at(&self, leaving: f64) -> f64 {
        let local_us = self.local_us + self.waiting.at(leaving);
        (1.0 - leaving) * local_us + leaving * self.distributed_us.unwrap_or(self.local_us)
    }
}

/// The time per transaction of a deployment at every share of transactions that leave their worker: the formula, bent to go through what was
/// measured.
#[derive(Clone, Debug, PartialEq)]
pub struct Curve {
    times: Times,
    /// Measured shares, ascending, and the logarithms of the measured time as a multiple of the formula's. The first one is no share at all, at
    /// which the formula is exact.
    bends: Vec<(f64, f64)>,
}

impl From<Times> for Curve {
    /// Returns the formula as it is.
    fn from(times: Times) -> Self {
        Self { times, bends: vec![(0.0, 0.0)] }
    }
}

impl Curve {
    /// Returns the curve through runs: one in which no transaction leaves its worker, which takes `local_us`, and others, whose times are above 0.
    #[must_use]
    pub fn of_runs(local_us: f64, others: &[Run]) -> Self {
        let mut curve = Self::from(Times::of_runs(local_us, others));
        let error = |(leaving, us): &Run| {
            let error = (us / curve.times.at(*leaving)).ln();
            // Noise may have the formula take no time at all where everything leaves.
            (*leaving > 0.0 && error.is_finite()).then_some((*leaving, error))
        };
        let errors: Vec<(f64, f64)> = others.iter().filter_map(error).collect();
        curve.bends.extend(errors);
        curve.bends.sort_by(|a, b| a.0.total_cmp(&b.0));
        curve
    }

    /// Returns the times of the formula.
    #[must_use]
    pub fn times(&self) -> &Times {
        &self.times
    }

    /// Returns the runs that the curve goes through, by ascending shares; the first one is that in which no transaction leaves its worker.
    pub fn measured(&self) -> impl Iterator<Item = Run> {
        self.bends.iter().map(|(leaving, error)| (*leaving, self.times.at(*leaving) * error.exp()))
    }

    /// Returns the time per transaction if the share `leaving` leaves its worker. Beyond the greatest share that was measured the formula's error is
    /// what it is there.
    #[must_use]
    pub fn at(&self, leaving: f64) -> f64 {
        let next = self.bends.partition_point(|(share, _)| *share <= leaving);
        let (before, error) = self.bends[next.saturating_sub(1)];
        let slope = self.bends.get(next).map_or(0.0, |(share, next)| (next - error) / (share - before));
        self.times.at(leaving) * (error + slope * (leaving - before)).exp()
    }
}

/// Returns the time per transaction in microseconds of each of `workers` workers that together run `tps` transactions in a second.
#[must_use]
pub fn time_us(workers: usize, tps: f64) -> f64 {
    1e6 * workers as f64 / tps
}

/// Returns the transactions per second of `workers` workers that take `time_us` microseconds for each.
#[must_use]
pub fn throughput_tps(workers: usize, time_us: f64) -> f64 {
    1e6 * workers as f64 / time_us
}

/// Steps between which one crossover at most is looked for.
const STEPS: u32 = 1000;

/// Returns the shares of transactions that leave their worker, above 0 and below `most`, at which one deployment begins to be faster than
/// another, ascending.
#[must_use]
pub fn crossovers(a: &Curve, b: &Curve, most: f64) -> Vec<f64> {
    let ahead = |share: f64| a.at(share) - b.at(share);
    let at = |step: u32| most * f64::from(step) / f64::from(STEPS);
    let crossed = (0..STEPS).filter(|step| ahead(at(*step)) * ahead(at(step + 1)) < 0.0);
    let halved = crossed.map(|step| {
        let (mut low, mut high) = (at(step), at(step + 1));
        for _ in 0..40 {
            let middle = f64::midpoint(low, high);
            if ahead(low) * ahead(middle) > 0.0 { low = middle } else { high = middle }
        }
        f64::midpoint(low, high)
    });
    halved.collect()
}

/// Returns the index of the fastest deployment at a share; the first one of several.
///
/// # Panics
/// Panics if there is no deployment.
#[must_use]
pub fn best(deployments: &[Curve], leaving: f64) -> usize {
    let time = |index: &usize| deployments[*index].at(leaving);
    let fastest = (0..deployments.len()).min_by(|a, b| time(a).total_cmp(&time(b)));
    fastest.expect("the best of no deployments is asked for")
}

/// Shares at which one deployment is the best.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Reign {
    /// The least share.
    pub from: f64,
    /// The greatest share.
    pub to: f64,
    /// The index of the deployment.
    pub deployment: usize,
}

/// Returns the best deployments from the share 0 to `most`, in order of the shares.
///
/// # Panics
/// Panics if there is no deployment.
#[must_use]
pub fn reigns(deployments: &[Curve], most: f64) -> Vec<Reign> {
    let pairs =
        deployments.iter().enumerate().flat_map(|(at, a)| deployments[at + 1..].iter().map(move |b| (a, b)));
    let mut cuts: Vec<f64> = pairs.flat_map(|(a, b)| crossovers(a, b, most)).collect();
    cuts.extend([0.0, most]);
    cuts.sort_by(f64::total_cmp);
    let mut reigns: Vec<Reign> = Vec::new();
    for ends in cuts.windows(2) {
        let deployment = best(deployments, f64::midpoint(ends[0], ends[1]));
        match reigns.last_mut() {
            Some(last) if last.deployment == deployment => last.to = ends[1],
            _ => reigns.push(Reign { from: ends[0], to: ends[1], deployment }),
        }
    }
    reigns
}

#[cfg(test)]
mod tests {
    use super::*;

    fn times(local_us: f64, distributed_us: f64) -> Times {
        Times { local_us, distributed_us: Some(distributed_us), waiting: Waiting::default() }
    }

    #[test]
    fn times_come_from_two_runs_and_lead_back_to_them() {
        let found = Times::of_runs(2.0, &[(0.6, 8.0)]);
        assert!(found.distributed_us.is_some_and(|us| (us - 12.0).abs() < 1e-9), "{found:?}");
        assert!((found.at(0.0) - 2.0).abs() < 1e-9 && (found.at(0.6) - 8.0).abs() < 1e-9);
        assert_eq!(Times::of_runs(2.0, &[(0.0, 3.0)]).distributed_us, None);
        assert_eq!(Times::of_runs(2.0, &[]).at(0.3), 2.0);
        let noisy = Times::of_runs(2.0, &[(0.1, 1.0)]).distributed_us;
        assert_eq!(noisy, Some(0.0), "noise makes no time negative");
    }

    #[test]
    fn waiting_is_found_where_it_is_and_nowhere_else() {
        let waiting = Waiting { most_us: 2.0, half_at: 0.025 };
        let real = Times { waiting, ..times(1.0, 6.0) };
        let runs = |real: &Times| [0.03, 0.25, 0.5].map(|share| (share, real.at(share)));
        let found = Times::of_runs(1.0, &runs(&real));
        for share in [0.0, 0.01, 0.05, 0.1, 0.4, 0.5] {
            let error = found.at(share) / real.at(share) - 1.0;
            assert!(error.abs() < 0.01, "{share}: {error}, {found:?}");
        }
        let line = Times::of_runs(1.0, &[(0.5, real.at(0.5))]).at(0.05) / real.at(0.05);
        assert!(line < 0.6, "the line sees nothing of it: {line}");
        let straight = Times::of_runs(1.0, &runs(&times(1.0, 6.0)));
        assert!((straight.at(0.1) - 1.5).abs() < 0.01, "{straight:?}");
        // A run that is faster than the line, by noise, brings no waiting below zero.
        let fast = Times::of_runs(1.0, &[(0.03, 1.0), (0.25, 1.8), (0.5, 3.5)]);
        assert!(fast.waiting.most_us >= 0.0 && fast.distributed_us.is_some_and(|us| us >= 0.0), "{fast:?}");
    }

    /// The shares that the microbenchmark of the paper leads to, of 2 rows at 20% multisite: 24 instances of one core and 4 of six.
    #[test]
    fn the_papers_shares_weigh_the_two_times() {
        for (instances, percent) in [(24.0_f64, 19.17), (4.0, 15.0), (1.0, 0.0)] {
            let share = 0.2 * (1.0 - instances.powi(-1));
            assert!((100.0 * share - percent).abs() < 0.01);
            let time = times(10.0, 110.0).at(share);
            assert!((time - (10.0 + percent)).abs() < 0.01, "{time}");
        }
    }

    #[test]
    fn throughput_and_time_are_each_others_inverse() {
        assert_eq!(time_us(2, 1e6), 2.0);
        assert_eq!(throughput_tps(2, 2.0), 1e6);
    }

    fn curve(local_us: f64, distributed_us: f64) -> Curve {
        times(local_us, distributed_us).into()
    }

    #[test]
    fn a_curve_goes_through_what_was_measured_and_has_the_formulas_form_between() {
        let waiting = Waiting { most_us: 2.0, half_at: 0.025 };
        let formula = Times { waiting, ..times(1.0, 6.0) };
        // Measured times that no formula has: the greatest is in the middle.
        let measured = [(0.6, 3.0), (0.05, 2.0), (0.3, 4.0)];
        let found = Curve::of_runs(1.0, &measured);
        assert!((found.at(0.0) - 1.0).abs() < 1e-9, "{found:?}");
        for (leaving, us) in measured {
            assert!((found.at(leaving) - us).abs() < 1e-9, "{leaving}: {found:?}");
        }
        let through: Vec<Run> = found.measured().collect();
        for ((leaving, us), expected) in
            through.into_iter().zip([(0.0, 1.0), (0.05, 2.0), (0.3, 4.0), (0.6, 3.0)])
        {
            assert!(leaving == expected.0 && (us - expected.1).abs() < 1e-9, "{leaving}: {us}");
        }
        let beyond = found.at(0.8) / found.times().at(0.8);
        assert!((beyond - 3.0 / found.times().at(0.6)).abs() < 1e-9, "the last error stays: {beyond}");
        // A formula that is 1.2 times what was measured at one share, and right at the next: the root of it half way.
        let bends = vec![(0.0, 0.0), (0.2, 1.2_f64.ln()), (0.4, 0.0)];
        let bent = Curve { times: formula, bends };
        let between = bent.at(0.3) / formula.at(0.3);
        assert!((between - 1.2_f64.sqrt()).abs() < 1e-9, "{between}");
        let same = Curve::of_runs(1.0, &[0.03, 0.25, 0.5].map(|share| (share, formula.at(share))));
        assert!((same.at(0.1) / formula.at(0.1) - 1.0).abs() < 0.01, "{same:?}");
        assert_eq!(Curve::of_runs(2.0, &[]).at(0.3), 2.0);
        assert_eq!(Curve::of_runs(2.0, &[(0.0, 3.0)]).at(0.0), 2.0, "no share has two times");
    }

    #[test]
    fn curves_cross_where_both_are_equal() {
        let (fine, coarse) = (curve(1.0, 9.0), curve(2.0, 4.0));
        let found = crossovers(&fine, &coarse, 1.0);
        assert!(found.len() == 1 && (found[0] - 1.0 / 6.0).abs() < 1e-9, "{found:?}");
        assert!((fine.at(found[0]) - coarse.at(found[0])).abs() < 1e-9);
        assert_eq!(crossovers(&coarse, &fine, 1.0), found);
        assert!(crossovers(&fine, &coarse, 0.1).is_empty());
        assert!(crossovers(&fine, &curve(2.0, 10.0), 1.0).is_empty(), "parallel");
        assert!(crossovers(&fine, &curve(2.0, 12.0), 1.0).is_empty(), "always slower");
        assert!(crossovers(&fine, &fine, 1.0).is_empty(), "the same");
        let waits = Times { waiting: Waiting { most_us: 3.0, half_at: 0.01 }, ..times(0.5, 4.0) }.into();
        assert_eq!(crossovers(&waits, &curve(1.0, 6.0), 1.0).len(), 2, "slower in the middle alone");
    }

    #[test]
    fn each_share_has_one_best_deployment() {
        let deployments = [curve(2.0, 4.0), curve(1.0, 9.0), curve(3.0, 3.2), curve(5.0, 20.0)];
        let reigns = reigns(&deployments, 1.0);
        let order: Vec<usize> = reigns.iter().map(|reign| reign.deployment).collect();
        assert_eq!(order, [1, 0, 2]);
        assert_eq!((reigns[0].from, reigns[2].to), (0.0, 1.0));
        assert!(reigns.windows(2).all(|two| two[0].to == two[1].from));
        for reign in &reigns {
            for share in [reign.from, f64::midpoint(reign.from, reign.to), reign.to] {
                let least = deployments.iter().map(|curve| curve.at(share)).fold(f64::MAX, f64::min);
                assert!((deployments[reign.deployment].at(share) - least).abs() < 1e-9);
            }
        }
        assert_eq!(super::reigns(&deployments, 0.1).len(), 1);
        assert_eq!(best(&deployments, 1.0), 2);
        assert_eq!(super::reigns(&deployments[..1], 0.0), [Reign { from: 0.0, to: 0.0, deployment: 0 }]);
    }
}
