// Locks and waits: sums, and the requests that wait longest. Never: a wait that has ended.

import { at, count, keep, make, pairs, rounded, say, time } from "./page.js";

const aborted = (status, reason) => {
  const found = status.metrics.find((metric) => metric.name === "atrapos_transactions_aborted_total");
  return found?.values.find((value) => value.label?.[1] === reason)?.value ?? 0;
};

const COLUMNS = ["Waits", "Transaction", "Table", "Key", "Behind", "Worker"];

function table() {
  const head = make("tr", {}, ...COLUMNS.map((name) => make("th", { scope: "col" }, name)));
  const whole = make("table", {}, make("caption", {}, "Longest waits"), make("thead", {}, head), make("tbody"));
  return make("div", { class: "scrolled", tabindex: "0", role: "region", "aria-label": "Longest waits" }, whole);
}

export function showLocks(status, samples) {
  const { activity } = status;
  const now = samples[samples.length - 1];
  const sum = (of) => activity.workers.reduce((rest, worker) => rest + worker[of], 0);
  const locked = activity.families.flatMap((family) => family.partitions).reduce((rest, partition) => rest + partition.locked, 0);
  pairs(at("locks"), [
    ["Locked keys and ranges now", count(locked)],
    ["Waiting now", count(sum("waiting"))],
    ["Transactions that were suspended", count(sum("suspended"))],
    ["Locks entered per second", now ? rounded(now.locks_entered) : "–"],
    ["Waits per second", now ? rounded(now.lock_waits) : "–"],
    ["Deadlocks in all", count(aborted(status, "Deadlock"))],
  ]);
  const waits = activity.lock_waits;
  if (!waits.length) {
    keep(at("waits"), [0], () => "none", () => make("p", { class: "hint" }, "No transaction waits for a lock."), () => {});
    return;
  }
  keep(at("waits"), [0], () => "table", table, (child) => {
    keep(child.querySelector("tbody"), waits, (wait) => `${wait.transaction} ${wait.table} ${wait.key}`, () => make("tr", {}, ...COLUMNS.map(() => make("td"))), (row, wait) => {
      [time(wait.waited_ns / 1e3), wait.transaction, wait.table, wait.key, wait.behind ?? "–", `w${wait.worker}`].forEach((text, at) => say(row.children[at], text));
    });
  });
}
