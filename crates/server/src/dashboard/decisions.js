// The decisions of the controller, in sentences as they come, and the numbers of one that is chosen.
//
// Never: a decision in other words than the controller's.

import { age, at, count, details, keep, make, pairs, percent, rounded, say, time } from "./page.js";

let announced = null;

function entry(decision) {
  const badge = decision.is_change ? [make("b", { class: "badge" }, decision.failure ? "failed" : "changed")] : [];
  const button = make("button", { type: "button", class: "decision", "data-number": decision.number }, make("span", { class: "when" }), ...badge, make("span", {}, sentence(decision)));
  button.addEventListener("click", () => showDecision(decision));
  return make("li", decision.is_change ? { class: "change" } : {}, button);
}

const sentence = (decision) => decision.sentence.charAt(0).toUpperCase() + decision.sentence.slice(1);

export function showDecisions(decisions, now_ns) {
  const chosen = at("changes-only").checked ? decisions.filter((decision) => decision.is_change) : decisions;
  at("no-decisions").hidden = chosen.length > 0;
  keep(at("decisions"), [...chosen].reverse(), (decision) => decision.number, entry, (child, decision) => {
    say(child.querySelector(".when"), `${age((now_ns - decision.decision.at_ns) / 1e9)} ago`);
  });
  // What is new is read out, if it is a change; what was there when the page was opened is not.
  const change = decisions.findLast((decision) => decision.is_change);
  const newest = decisions.length ? decisions[decisions.length - 1].number : 0;
  if (announced !== null && change && change.number > announced) say(at("announcement"), sentence(change));
  announced = newest;
}

function showDecision({ number, decision, report, failure, ...rest }) {
  details(`Decision ${number}`, sentence(rest), () => {
    const { predicted } = decision;
    const entries = [
      ["Time since the database was opened", age(decision.at_ns / 1e9)],
      ["Throughput", `${rounded(decision.throughput_tps)} transactions per second`],
    ];
    if (decision.steps !== undefined) entries.push(["Steps", count(decision.steps)]);
    if (predicted) {
      entries.push(
        ["Predicted gain", percent(predicted.gain)],
        ["Gain from which it is carried out at once", percent(predicted.gain_wanted)],
        ["Busiest worker over the mean", `${rounded(predicted.load_max_before)} before, ${rounded(predicted.load_max_after)} after`],
        ["Synchronization, of the work", `${percent(predicted.sync_before)} before, ${percent(predicted.sync_after)} after`],
      );
    }
    if (report) {
      entries.push(
        ["Partitions split", count(report.splits)],
        ["Partitions joined", count(report.merges)],
        ["Partitions moved", count(report.moves)],
        ["Time that owners did nothing else", time(report.owner_ms * 1e3)],
        ["The longest of them", time(report.longest_ms * 1e3)],
      );
    }
    if (failure) entries.push(["Failure", failure]);
    pairs(at("details-pairs"), entries);
  });
}
