//! The model of a deployment: from two measured times per transaction, the throughput for any share of transactions that leave their
//! worker, and from several such models the best deployment.
//!
//! `T = (1 - p) T_local + p T_distr` (Islands, section 5): `T` is the time of a worker per transaction, so that `w` workers run `w / T`
//! transactions in a second. The threads of an instance in the paper share its data, and its `p` counts only transactions over several
//! instances. Workers here own their data also within an instance; so `p` counts the transactions over several workers, and
//! `T_distr` is their mean time. With an instance for each worker it is the paper's `p`, and with one database no transaction is
//! distributed, but those over several workers still cost more than others. For a workload and a number of workers, `p` is the same
//! in every deployment, which makes two of them comparable: both are straight lines over `p`.
//!
//! Owns: these formulas, as pure functions. Never: measures, or knows a workload.

/// The times per transaction of one deployment, in microseconds of a worker.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Times {
    /// The time of transactions that stay on their worker.
    pub local_us: f64,
    /// The mean time of the others; `None` if there are none.
    pub distributed_us: Option<f64>,
}

impl Times {
    /// Returns the times from two runs: one in which no transaction leaves its worker, which takes `local_us`, and one in which the
    /// share `leaving` does, and which takes `mixed_us`.
    #[must_use]
    pub fn of_runs(local_us: f64, leaving: f64, mixed_us: f64) -> Times {
        // Noise may have the second run be faster than the local share of it alone; no time is below zero.
        let distributed = || ((mixed_us - (1.0 - leaving) * local_us) / leaving).max(0.0);
        Times { local_us, distributed_us: (leaving > 0.0).then(distributed) }
    }

    /// Returns the time per transaction if the share `leaving` leaves its worker.
    #[must_use]
    pub fn at(&self, leaving: f64) -> f64 {
        (1.0 - leaving) * self.local_us + leaving * self.distributed_us.unwrap_or(self.local_us)
    }

    /// Returns how much more time a transaction takes that leaves its worker.
    fn slope(&self) -> f64 {
        self.distributed_us.map_or(0.0, |distributed| distributed - self.local_us)
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

/// Returns the share of transactions that leave their worker, above 0 and below 1, at which two deployments are equally fast; `None`
/// if one of them is the faster one at every share.
#[must_use]
pub fn crossover(a: &Times, b: &Times) -> Option<f64> {
    let share = (b.local_us - a.local_us) / (a.slope() - b.slope());
    (share > 0.0 && share < 1.0).then_some(share)
}

/// Returns the index of the fastest deployment at a share; the first one of several.
///
/// # Panics
/// Panics if there is no deployment.
#[must_use]
pub fn best(deployments: &[Times], leaving: f64) -> usize {
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
pub fn reigns(deployments: &[Times], most: f64) -> Vec<Reign> {
    let pairs =
        deployments.iter().enumerate().flat_map(|(at, a)| deployments[at + 1..].iter().map(move |b| (a, b)));
    let mut cuts: Vec<f64> =
        pairs.filter_map(|(a, b)| crossover(a, b)).filter(|share| *share < most).collect();
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
        Times { local_us, distributed_us: Some(distributed_us) }
    }

    #[test]
    fn times_come_from_two_runs_and_lead_back_to_them() {
        let found = Times::of_runs(2.0, 0.6, 8.0);
        assert!(found.distributed_us.is_some_and(|us| (us - 12.0).abs() < 1e-9), "{found:?}");
        assert!((found.at(0.0) - 2.0).abs() < 1e-9 && (found.at(0.6) - 8.0).abs() < 1e-9);
        assert_eq!(Times::of_runs(2.0, 0.0, 3.0), Times { local_us: 2.0, distributed_us: None });
        assert_eq!(Times::of_runs(2.0, 0.1, 1.0).distributed_us, Some(0.0), "noise makes no time negative");
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

    #[test]
    fn lines_cross_where_both_are_equal() {
        let (fine, coarse) = (times(1.0, 9.0), times(2.0, 4.0));
        let share = crossover(&fine, &coarse).expect("they cross");
        assert!((fine.at(share) - coarse.at(share)).abs() < 1e-9);
        assert!((share - 1.0 / 6.0).abs() < 1e-9, "{share}");
        assert_eq!(crossover(&coarse, &fine), Some(share));
        assert_eq!(crossover(&fine, &times(2.0, 10.0)), None, "parallel");
        assert_eq!(crossover(&fine, &times(2.0, 12.0)), None, "always slower");
        assert_eq!(crossover(&fine, &fine), None, "the same");
    }

    #[test]
    fn each_share_has_one_best_deployment() {
        let deployments = [times(2.0, 4.0), times(1.0, 9.0), times(3.0, 3.2), times(5.0, 20.0)];
        let reigns = reigns(&deployments, 1.0);
        let order: Vec<usize> = reigns.iter().map(|reign| reign.deployment).collect();
        assert_eq!(order, [1, 0, 2]);
        assert_eq!((reigns[0].from, reigns[2].to), (0.0, 1.0));
        assert!(reigns.windows(2).all(|two| two[0].to == two[1].from));
        for reign in &reigns {
            for share in [reign.from, f64::midpoint(reign.from, reign.to), reign.to] {
                let least = deployments.iter().map(|times| times.at(share)).fold(f64::MAX, f64::min);
                assert!((deployments[reign.deployment].at(share) - least).abs() < 1e-9);
            }
        }
        assert_eq!(super::reigns(&deployments, 0.1).len(), 1);
        assert_eq!(best(&deployments, 1.0), 2);
        assert_eq!(super::reigns(&deployments[..1], 0.0), [Reign { from: 0.0, to: 0.0, deployment: 0 }]);
    }
}
