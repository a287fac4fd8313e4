//! The result as text, with the reasons in words.
//!
//! Owns: the wording and the columns. Never: shows a number that the JSON does not have.

use std::fmt::Write;

use atrapos_instances::model::{self, Times};

use super::elsewhere::Elsewhere;
use super::{Advised, Remote, Study};
use crate::json::COMMIT;
use crate::table::{columns, count, rate};

/// The limits of a prediction for another machine.
pub(super) const UNKNOWN: &str = "Extrapolated: the times are those of this machine. What more cores in one instance, longer \
     distances between islands, and their cores' own speed change cannot be known from here; run `atrapos advise` there.";

/// A difference of throughput that runs on one machine have anyhow.
const CLOSE_PERCENT: f64 = 5.0;

/// Waiting that is worth a sentence, as a part of the time of a transaction that stays.
const WAITS_MIN: f64 = 0.1;

/// An error of a prediction that is not to be relied on.
const ERROR_PERCENT_MAX: f64 = 15.0;

/// Returns the result.
pub(super) fn study(study: &Study) -> String {
    let mut out = String::new();
    // Writing to a string cannot fail.
    let _ = head(&mut out, study);
    out.push_str(&table(study));
    if let Some(remote) = &study.remote {
        let _ = check(&mut out, study, remote);
        let _ = curves(&mut out, study, remote);
    }
    let _ = writeln!(out, "\nbest        {}", best(study));
    let _ = writeln!(out, "why         {}", why(study));
    let _ = writeln!(out, "ATraPos     {}", adapting(study));
    if let Some(elsewhere) = &study.elsewhere {
        let _ = foreign(&mut out, elsewhere);
    }
    out
}

/// Returns a number of workers in words.
pub(super) fn workers(workers: usize) -> String {
    if workers == 1 { "1 worker".to_owned() } else { format!("{workers} workers") }
}

/// Returns by how much a prediction is above the measurement, in percent of it.
pub(super) fn error_percent(predicted: f64, measured: f64) -> f64 {
    100.0 * (predicted - measured) / measured
}

fn percent(share: f64) -> String {
    format!("{:.1}%", 100.0 * share)
}

/// Returns microseconds with about three significant digits.
fn us(us: f64) -> String {
    match us {
        us if us < 10.0 => format!("{us:.2}"),
        us if us < 100.0 => format!("{us:.1}"),
        us => count(us.round() as u64),
    }
}

/// Returns shares as a list in words, with none before them.
fn in_words(shares: &[f64]) -> String {
    let shares: Vec<String> =
        std::iter::once(&0.0).chain(shares).map(|share| format!("{:.0}%", 100.0 * share)).collect();
    let (last, others) = shares.split_last().expect("there is one share at least");
    format!("{} and {last}", others.join(", "))
}

fn us_or_none(time: Option<f64>) -> String {
    time.map_or_else(|| "-".to_owned(), us)
}

fn head(out: &mut String, study: &Study) -> std::fmt::Result {
    writeln!(out, "advise {}: {}", study.benchmark, study.choice.title)?;
    writeln!(
        out,
        "  {}, data in memory, clients at their data, {} s per run",
        workers(study.workers),
        study.seconds
    )?;
    let machine = &study.machine;
    writeln!(
        out,
        "  {} ({} of {} cpus usable), commit {COMMIT}\n",
        machine["cpu_model"].as_str().unwrap_or("unknown processor"),
        machine["usable_cpus"],
        machine["cpus"],
    )
}

const HEADER: [&str; 8] =
    ["deployment", "T_local us", "T_distr us", "waits us", "leave worker", "distributed", "tps", "times"];

fn line(
    name: String,
    times: Option<&Times>,
    shares: super::Shares,
    tps: String,
    source: &str,
) -> Vec<String> {
    vec![
        name,
        times.map_or_else(|| "-".to_owned(), |times| us(times.local_us)),
        us_or_none(times.and_then(|times| times.distributed_us)),
        us_or_none(times.map(|times| times.waiting.most_us)),
        percent(shares.leaving),
        percent(shares.distributed),
        tps,
        source.to_owned(),
    ]
}

/// Returns the deployments with their times, shares and throughput.
fn table(study: &Study) -> String {
    let mut lines = vec![HEADER.map(str::to_owned).to_vec()];
    lines.extend(study.deployments.iter().map(|advised| {
        let Advised { candidate, curve, shares, tps, .. } = advised;
        line(candidate.name(), Some(curve.times()), *shares, rate(*tps), "measured")
    }));
    columns(&lines)
}

/// Writes predictions beside measurements.
fn check(out: &mut String, study: &Study, remote: &Remote) -> std::fmt::Result {
    let title = format!("check at {} remote work", percent(remote.checked));
    let mut lines = vec![vec![title, "predicted".to_owned(), "measured".to_owned(), "error".to_owned()]];
    for Advised { candidate, check, .. } in &study.deployments {
        if let Some((predicted, measured)) = check {
            let error = format!("{:+.1}%", error_percent(*predicted, *measured));
            lines.push(vec![candidate.name(), rate(*predicted), rate(*measured), error]);
        }
    }
    write!(out, "\n{}", columns(&lines))?;
    let missed = |(predicted, measured)| error_percent(predicted, measured).abs() > ERROR_PERCENT_MAX;
    if study.deployments.iter().filter_map(|advised| advised.check).any(missed) {
        writeln!(
            out,
            "A prediction misses by more than {ERROR_PERCENT_MAX}%. It goes through what was measured at {} of remote work: rely on the \
             measurements, or measure longer (--seconds) on a machine with nothing else to do.",
            in_words(&remote.measured)
        )?;
    }
    Ok(())
}

/// Writes the predictions for all shares of remote work, and which deployment is best at each.
fn curves(out: &mut String, study: &Study, remote: &Remote) -> std::fmt::Result {
    let mut header = vec!["predicted tps at".to_owned(), "leave worker".to_owned()];
    header.extend(study.deployments.iter().map(|advised| advised.candidate.name()));
    let mut lines = vec![header];
    for (share, leaving) in &remote.steps {
        let mut line = vec![format!("{:.0}% remote work", 100.0 * share), percent(*leaving)];
        let tps = |advised: &Advised| rate(model::throughput_tps(study.workers, advised.curve.at(*leaving)));
        line.extend(study.deployments.iter().map(tps));
        lines.push(line);
    }
    write!(out, "\n{}", columns(&lines))?;
    let name = |deployment: usize| study.deployments[deployment].candidate.name();
    match &study.reigns[..] {
        [(reign, ..)] => writeln!(
            out,
            "\ncrossovers  none: {} is the best at every share of remote work",
            name(reign.deployment)
        ),
        reigns => {
            let best = reigns.iter().map(|(reign, from, to)| {
                format!("{} from {} to {} remote work", name(reign.deployment), percent(*from), percent(*to))
            });
            writeln!(out, "\ncrossovers  the best are {}", best.collect::<Vec<_>>().join(", then "))
        }
    }
}

/// Returns the best deployment with its throughput.
fn best(study: &Study) -> String {
    let best = &study.deployments[study.best];
    let at = match &study.remote {
        Some(remote) => format!(" predicted with {} remote work", percent(remote.asked)),
        None => " measured".to_owned(),
    };
    format!("{}: {} transactions/s{at}", best.candidate.name(), rate(best.tps))
}

/// Returns the reasons for the choice, in a few sentences made of the numbers.
pub(super) fn why(study: &Study) -> String {
    let best = &study.deployments[study.best];
    let others = study.deployments.iter().enumerate().filter(|(index, _)| *index != study.best);
    let Some((_, second)) = others.max_by(|a, b| a.1.tps.total_cmp(&b.1.tps)) else {
        return "One worker has no other deployment; use --workers 2, or more, to compare several."
            .to_owned();
    };
    let time = |advised: &Advised| us(advised.curve.at(study.leaving));
    let ahead = error_percent(best.tps, second.tps);
    let (name, other) = (best.candidate.name(), second.candidate.name());
    let mut why = format!(
        "A transaction takes {} us of a worker in {name} and {} us in {other}, the next best one, so that the first runs {ahead:.1}% \
         more of them.",
        time(best),
        time(second),
    );
    let waits = best.curve.times().waiting.most_us.max(second.curve.times().waiting.most_us);
    match (best.curve.times().distributed_us, second.curve.times().distributed_us) {
        (Some(distributed), Some(others)) => {
            let _ = write!(
                why,
                " {} of the transactions leave their worker: they take {} us in {name} and {} us in {other}, and all others {} and {} \
                 us.",
                percent(study.leaving),
                us(distributed),
                us(others),
                us(best.curve.times().local_us),
                us(second.curve.times().local_us),
            );
        }
        _ if study.leaving <= 0.0 => {
            why.push_str(
                " No transaction leaves its worker, so that only the instances' own work makes a difference.",
            );
        }
        _ => {
            why.push_str(" No option decides how many transactions leave their worker, so that their time is not known apart.");
        }
    }
    if waits > WAITS_MIN * best.curve.times().local_us && study.leaving > 0.0 {
        let _ = write!(
            why,
            " Those that stay wait for rows of those that leave: at most {} us each in {name}, and {} us in {other}.",
            us(best.curve.times().waiting.most_us),
            us(second.curve.times().waiting.most_us),
        );
    }
    if ahead < CLOSE_PERCENT {
        why.push_str(
            " That is no more than runs differ by: take the deployment that is simpler to operate, or measure longer (--seconds).",
        );
    }
    why
}

/// Returns what one database that adapts gives for the same workload.
fn adapting(study: &Study) -> String {
    let best = &study.deployments[study.best];
    let beside = error_percent(study.adapting_tps, best.tps);
    format!(
        "one database that adapts, whose clients choose any data: {} transactions/s measured, {beside:+.1}% beside the best above, \
         whose clients are at their data",
        rate(study.adapting_tps)
    )
}

/// Writes what is predicted for another machine.
fn foreign(out: &mut String, elsewhere: &Elsewhere) -> std::fmt::Result {
    writeln!(
        out,
        "\nfor {}, {}, of which {} of the transactions leave theirs:\n",
        elsewhere.machine,
        workers(elsewhere.workers),
        percent(elsewhere.leaving)
    )?;
    let mut lines = vec![HEADER.map(str::to_owned).to_vec()];
    lines.extend(elsewhere.deployments.iter().map(|one| {
        let (times, from) =
            one.times.as_ref().map_or((None, "not known: measure with --workers 2"), |(times, from)| {
                (Some(times), from.as_str())
            });
        let tps = one.tps.map_or_else(|| "-".to_owned(), rate);
        let source = match times {
            Some(_) => format!("extrapolated: {from}"),
            None => from.to_owned(),
        };
        line(one.candidate.name(), times, one.shares, tps, &source)
    }));
    writeln!(out, "{}\n{UNKNOWN}", columns(&lines))
}
