// The machine as nested islands with the workers on them, and the messages between islands and between workers.
//
// Never: more than one box around the same cores: an island that is all of the one around it is named there.

import { at, hue, keep, make, percent, rounded, say, several } from "./page.js";

const LEVELS = { machine: "machine", socket: "socket", node: "memory node", l3: "L3 cache" };
/** Workers up to which messages are shown for each pair of them. */
const PAIRS = 16;

/** Numbers islands of each level, in their order. */
function named(island, numbers = {}) {
  const number = (numbers[island.level] = (numbers[island.level] ?? -1) + 1);
  const name = island.level === "machine" ? "machine" : `${LEVELS[island.level]} ${number}`;
  return { ...island, name, islands: island.islands.map((inner) => named(inner, numbers)) };
}

/** Returns islands with those that have all cores of one inside of it joined to it. */
function joined(island) {
  if (island.islands.length === 1) {
    const inner = joined(island.islands[0]);
    return { ...inner, name: `${island.name} · ${inner.name}`, workers: island.workers.concat(inner.workers) };
  }
  return { ...island, islands: island.islands.map(joined) };
}

const allWorkers = (island) => island.workers.concat(island.islands.flatMap(allWorkers));

function worker(number) {
  const name = make("b", {}, `w${number}`);
  const bar = make("span", { class: "bar" }, make("span"));
  const box = make("div", { class: "worker", role: "meter", "aria-valuemin": "0", "aria-valuemax": "100" }, name, bar, make("span", { class: "text" }));
  box.style.setProperty("--hue", hue(number));
  return box;
}

function updateWorker(box, number, { activity, rates }) {
  const about = activity.workers[number];
  const busy = rates.busy[number] ?? 0;
  box.querySelector(".bar > span").style.setProperty("width", `${(100 * busy).toFixed(1)}%`);
  const where = about.cpu === null ? "" : `${about.is_pinned ? "cpu" : "not pinned, meant for cpu"} ${about.cpu} · `;
  const owns = about.is_available ? "" : " · owns nothing: retired, or its core is gone";
  const text = `${where}${percent(busy)} busy · ${rounded(rates.committed[number] ?? 0)} tx/s${owns}`;
  say(box.querySelector(".text"), text);
  box.setAttribute("aria-valuenow", (100 * busy).toFixed(0));
  box.setAttribute("aria-valuetext", text);
  box.setAttribute("aria-label", `Worker ${number}`);
}

function box(island) {
  const label = make("p", { class: "name" }, make("span"), make("span", { class: "cores" }));
  return make("div", { class: `island ${island.level}`, role: "group" }, label, make("div", { class: "workers" }), make("div", { class: "islands" }));
}

function updateBox(element, island, status) {
  const workers = allWorkers(island).length;
  const cores = `${several(island.cores, "core")}, ${several(workers, "worker")}`;
  const [label, own, inner] = element.children;
  element.setAttribute("aria-label", `${island.name}, ${cores}`);
  say(label.firstElementChild, island.name);
  say(label.lastElementChild, cores);
  keep(own, island.workers, (number) => number, worker, (child, number) => updateWorker(child, number, status));
  keep(inner, island.islands, (one) => one.id, box, (child, one) => updateBox(child, one, status));
}

export function showMachine(status) {
  const island = joined(named(status.machine.island));
  keep(at("machine"), [island], (one) => one.id, box, (child, one) => updateBox(child, one, status));
}

/** The innermost islands, with their workers. */
const innermost = (island) => (island.islands.length ? island.islands.flatMap(innermost) : [island]);

/** Returns the messages per second between groups of workers. */
function between(groups, messages) {
  const sum = (from, to) => from.workers.reduce((all, one) => all + to.workers.reduce((rest, other) => rest + (messages[one]?.[other] ?? 0), 0), 0);
  return groups.map((from) => groups.map((to) => sum(from, to)));
}

function table({ title, groups }) {
  const head = make("tr", {}, make("td"), ...groups.map((group) => make("th", { scope: "col" }, group.name)));
  const row = (group) => make("tr", {}, make("th", { scope: "row" }, group.name), ...groups.map(() => make("td", { class: "number warm" })));
  const whole = make("table", { class: "matrix" }, make("caption", {}, title), make("thead", {}, head), make("tbody", {}, ...groups.map(row)));
  return make("div", { class: "scrolled", tabindex: "0", role: "region", "aria-label": title }, whole);
}

function updateTable(element, { groups }, messages) {
  const rates = between(groups, messages);
  const most = Math.max(1, ...rates.flat());
  const rows = element.querySelectorAll("tbody tr");
  rates.forEach((row, from) => row.forEach((rate, to) => {
    const cell = rows[from].children[to + 1];
    say(cell, rounded(rate));
    cell.style.setProperty("--heat", (rate / most).toFixed(3));
  }));
}

export function showMessages(status) {
  const islands = innermost(named(status.machine.island)).filter((island) => island.workers.length);
  const workers = status.activity.workers.map(({ worker: number }) => ({ name: `w${number}`, workers: [number] }));
  const tables = [];
  if (islands.length > 1) tables.push({ title: "Between islands", groups: islands });
  if (workers.length > 1 && workers.length <= PAIRS) tables.push({ title: "Between workers", groups: workers });
  if (!tables.length) tables.push({ title: workers.length > 1 ? "Between all workers" : "There is one worker", groups: [{ name: "all", workers: workers.map((_, number) => number) }] });
  const keyOf = ({ title, groups }) => `${title} ${groups.map((group) => group.name).join()}`;
  keep(at("messages"), tables, keyOf, table, (child, one) => updateTable(child, one, status.rates.messages));
}
