// The dashboard: signs in, asks the server once a second while the page is seen, and has each part show what came.
//
// Owns the token, which stays in the session storage of this tab. Never: a number that did not come from the server.

import { age, at, count, keep, make, pairs, percent, refreshDetails, rounded, say, time } from "./page.js";
import { showCharts } from "./charts.js";
import { showMachine, showMessages } from "./machine.js";
import { showPartitions } from "./partitions.js";
import { showDecisions } from "./decisions.js";
import { showLocks } from "./locks.js";

const STORED = "atrapos-token";
const EVERY_MS = 1000;
const SAMPLES = 600;
const DECISIONS = 1000;

/** What is known: the latest status, and samples and decisions in the order of their numbers. */
const known = { status: null, samples: [], decisions: [] };
let token = sessionStorage.getItem(STORED);
let timer = 0;
/** The number of the latest start of asking: answers to an earlier one are dropped. */
let turn = 0;

class Refused extends Error {}

async function ask(path) {
  const answer = await fetch(path, { headers: { Authorization: `Bearer ${token}` }, cache: "no-store" });
  if (answer.status === 401) throw new Refused();
  if (!answer.ok) throw new Error(await answer.text());
  return answer.json();
}

const latest = (list) => (list.length ? list[list.length - 1].number : 0);

async function refresh() {
  const own = turn;
  const began = performance.now();
  try {
    const [status, history, decisions] = await Promise.all([
      ask("/api/v1/status"),
      ask(`/api/v1/history?after=${latest(known.samples)}`),
      ask(`/api/v1/decisions?after=${latest(known.decisions)}`),
    ]);
    if (own !== turn) return;
    // A server that was started anew counts from one again.
    const restarted = known.status && status.uptime_seconds < known.status.uptime_seconds;
    if (restarted) {
      known.samples = [];
      known.decisions = [];
    } else {
      known.samples = known.samples.concat(history.samples).slice(-SAMPLES);
      known.decisions = known.decisions.concat(decisions.decisions).slice(-DECISIONS);
    }
    known.status = status;
    show();
  } catch (error) {
    if (own !== turn) return;
    if (error instanceof Refused) return signOut("The server does not know this token.");
    state("bad", "No connection; trying again");
  }
  timer = setTimeout(refresh, Math.max(0, EVERY_MS - (performance.now() - began)));
}

function start() {
  clearTimeout(timer);
  turn += 1;
  const signedIn = token !== null;
  at("sign-in").hidden = signedIn;
  at("sign-out").hidden = !signedIn;
  if (!signedIn) {
    at("board").hidden = true;
    state("", "");
    at("token").focus();
  } else if (!document.hidden) {
    refresh();
  }
}

function signOut(why) {
  token = null;
  sessionStorage.removeItem(STORED);
  Object.assign(known, { status: null, samples: [], decisions: [] });
  if (at("details").open) at("details").close();
  start();
  say(at("refused"), why);
}

function state(kind, text) {
  document.body.dataset.state = kind;
  say(at("state"), text);
}

/** The value of a metric, or the sum of its values. */
function metric(status, name) {
  const found = status.metrics.find((one) => one.name === name);
  return found ? found.values.filter((one) => !one.suffix).reduce((sum, one) => sum + one.value, 0) : 0;
}

function tiles({ status, samples }) {
  const now = samples[samples.length - 1];
  const rate = (value) => (now ? rounded(value) : "–");
  const total = (name) => metric(status, name);
  const durability = status.activity.durability;
  return [
    ["Transactions", rate(now?.committed), "per second", "atrapos_transactions_committed_total", "in all"],
    ["Aborts", rate(now?.aborted), "per second", "atrapos_transactions_aborted_total", "in all"],
    ["Requests", rate(now?.requests), "per second", "atrapos_sessions", "clients now"],
    ["Half answered within", time(now?.p50_us), now?.p99_us ? `99% within ${time(now.p99_us)}` : "no requests now"],
    durability
      ? ["Durability lag", time(durability.lag_ns / 1e3), durability.lag_ns ? "since everything was durable" : "all is durable", "atrapos_wal_syncs_total", "syncs in all"]
      : ["Durability lag", "–", "in memory only"],
    ["Remote actions", now && now.local_actions + now.remote_actions > 0 ? percent(now.remote_actions / (now.local_actions + now.remote_actions)) : "–", "of all actions", "atrapos_actions_remote_total", "in all"],
    ["Waiting for locks", count(status.activity.workers.reduce((sum, worker) => sum + worker.waiting, 0)), "now", "atrapos_lock_waits_total", "waits in all"],
  ].map(([name, value, unit, of, meaning]) => ({ name, value, unit, of, total: of && total(of), meaning }));
}

function showClasses({ rates }) {
  const all = rates.classes.reduce((sum, one) => sum + one.per_second, 0);
  pairs(at("classes"), rates.classes.map((one) => [one.name || "no class", `${rounded(one.per_second)} (${percent(one.per_second / all)})`]));
  at("no-classes").hidden = rates.classes.length > 0;
}

function showNow() {
  keep(at("now"), tiles(known), (tile) => tile.name, (tile) => {
    const total = make("b", tile.of ? { "data-metric": tile.of } : {});
    const sum = make("span", { class: "sum" }, total, ` ${tile.meaning}`);
    return make("div", {}, make("dt", {}, tile.name), make("dd", {}, make("strong"), make("span"), ...(tile.of ? [sum] : [])));
  }, (child, tile) => {
    say(child.querySelector("strong"), tile.value);
    say(child.querySelector("span"), tile.unit);
    if (tile.of) say(child.querySelector("b"), count(tile.total));
  });
}

function showMetrics() {
  if (!at("counters").open) return;
  const rows = known.status.metrics.flatMap((metric) => metric.values.map((value) => ({ metric, value, name: metric.name + (value.suffix ?? "") })));
  const keyOf = ({ name, value }) => `${name} ${value.label ?? ""}`;
  keep(at("metrics").tBodies[0], rows, keyOf, ({ metric, value, name }) =>
    make("tr", {}, make("th", { scope: "row", title: metric.help }, name), make("td", {}, value.label ? value.label.join("=") : ""), make("td", { class: "number" })),
  (child, { value }) => say(child.lastElementChild, Number.isInteger(value.value) ? count(value.value) : String(value.value)));
}

function show() {
  const { status } = known;
  at("board").hidden = false;
  say(at("database"), status.database);
  document.title = `${status.database} · atrapos`;
  const phase = status.phase === "running" ? "Running" : "Ending";
  state(status.phase === "running" ? "good" : "bad", `${phase} for ${age(status.uptime_seconds)} · version ${status.version}`);
  const failure = status.activity.durability?.failure;
  at("failure").hidden = !failure;
  say(at("failure"), failure ? `Nothing is written any more: ${failure}` : "");
  showNow();
  showCharts(known.samples);
  showMachine(status);
  showPartitions(status);
  showMessages(status);
  showClasses(status);
  showLocks(status, known.samples);
  showDecisions(known.decisions, status.activity.at_ns);
  showMetrics();
  refreshDetails();
  document.body.dataset.refreshes = Number(document.body.dataset.refreshes ?? 0) + 1;
}

at("sign-in").addEventListener("submit", (event) => {
  event.preventDefault();
  token = at("token").value.trim();
  at("token").value = "";
  // A header cannot carry other characters.
  if (!/^[\x21-\x7e]+$/.test(token)) return signOut("A token has no spaces, and no letters beyond ASCII.");
  say(at("refused"), "");
  sessionStorage.setItem(STORED, token);
  start();
});
at("sign-out").addEventListener("click", () => signOut(""));
at("counters").addEventListener("toggle", () => known.status && showMetrics());
at("changes-only").addEventListener("change", () => known.status && showDecisions(known.decisions, known.status.activity.at_ns));
// A page that nobody sees asks nothing.
document.addEventListener("visibilitychange", start);
start();
