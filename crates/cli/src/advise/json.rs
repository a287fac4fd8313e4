//! The result as JSON, for programs.
//!
//! Owns: the keys. Never: rounds, or leaves a key out: an unknown value is `null`.

use atrapos_instances::ChannelKind;
use atrapos_instances::model::{self, Times};
use serde_json::{Value, json};

use super::elsewhere::Elsewhere;
use super::{Advised, Candidate, Shares, Study, text};
use crate::json::COMMIT;

/// Returns the result.
pub(super) fn study(study: &Study) -> Value {
    json!({
        "commit": COMMIT,
        "benchmark": study.benchmark,
        "config": study.choice.settings,
        "machine": study.machine,
        "workers": study.workers,
        "seconds": study.seconds,
        "remote_share": study.remote.as_ref().map(|remote| remote.asked),
        "measured_shares": study.remote.as_ref().map(|remote| remote.measured),
        "checked_share": study.remote.as_ref().map(|remote| remote.checked),
        "deployments": study.deployments.iter().map(|advised| deployment(study, advised)).collect::<Vec<_>>(),
        "best_by_share": best_by_share(study),
        "best": study.best,
        "why": text::why(study),
        "adapting_tps": study.adapting_tps,
        "elsewhere": study.elsewhere.as_ref().map(elsewhere),
    })
}

fn candidate(candidate: Candidate, workers: usize, shares: Shares) -> Value {
    json!({
        "name": candidate.name(),
        "engine": candidate.engine.name(),
        "instances": candidate.instances,
        "workers_per_instance": workers / candidate.instances,
        "channel": candidate.channel.map(ChannelKind::name),
        "leaving_share": shares.leaving,
        "distributed_share": shares.distributed,
    })
}

fn with(mut object: Value, more: Value) -> Value {
    if let (Some(object), Value::Object(more)) = (object.as_object_mut(), more) {
        object.extend(more);
    }
    object
}

fn deployment(study: &Study, advised: &Advised) -> Value {
    let Times { local_us, distributed_us, waiting } = *advised.curve.times();
    let curve = |(remote, leaving): &(f64, f64)| {
        let tps = model::throughput_tps(study.workers, advised.curve.at(*leaving));
        json!({ "remote_share": remote, "leaving_share": leaving, "predicted_tps": tps })
    };
    let curve = study.remote.as_ref().map(|remote| remote.steps.iter().map(curve).collect::<Vec<_>>());
    let run = |(leaving, time_us): model::Run| json!({ "leaving_share": leaving, "time_us": time_us });
    let check = advised.check.map(|(predicted, measured)| {
        json!({
            "predicted_tps": predicted,
            "measured_tps": measured,
            "error_percent": text::error_percent(predicted, measured),
        })
    });
    with(
        candidate(advised.candidate, study.workers, advised.shares),
        json!({
            "t_local_us": local_us,
            "t_distr_us": distributed_us,
            "waiting_most_us": waiting.most_us,
            "waiting_half_at_leaving_share": waiting.half_at,
            "measured": advised.curve.measured().map(run).collect::<Vec<_>>(),
            "tps": advised.tps,
            "source": "measured",
            "check": check,
            "curve": curve,
        }),
    )
}

fn best_by_share(study: &Study) -> Vec<Value> {
    let reign = |(reign, from, to): &(model::Reign, f64, f64)| {
        json!({
            "deployment": reign.deployment,
            "name": study.deployments[reign.deployment].candidate.name(),
            "remote_share": [from, to],
            "leaving_share": [reign.from, reign.to],
        })
    };
    study.reigns.iter().map(reign).collect()
}

fn elsewhere(elsewhere: &Elsewhere) -> Value {
    let one = |one: &super::elsewhere::Extrapolated| {
        let times = one.times.as_ref();
        with(
            candidate(one.candidate, elsewhere.workers, one.shares),
            json!({
                "t_local_us": times.map(|(times, _)| times.local_us),
                "t_distr_us": times.and_then(|(times, _)| times.distributed_us),
                "tps": one.tps,
                "source": "extrapolated",
                "from": times.map(|(_, from)| from),
            }),
        )
    };
    json!({
        "machine": elsewhere.machine,
        "workers": elsewhere.workers,
        "deployments": elsewhere.deployments.iter().map(one).collect::<Vec<_>>(),
        "unknown": text::UNKNOWN,
    })
}
