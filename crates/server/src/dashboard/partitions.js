// Partitions by family: who owns each, how warm its sub-partitions are, and all about one that is chosen.
//
// Owns the choice to show all families. Never: a partition out of the order of keys.

import { at, count, details, hue, keep, make, pairs, percent, rounded, say, several } from "./page.js";

/** Families that are shown at first: the warmest. */
const SHOWN = 12;

let all = false;
let latest = null;

const sum = (numbers) => numbers.reduce((rest, number) => rest + number, 0);

/** Returns families with the heat of their partitions. */
function warm({ activity, rates }) {
  return activity.families.map((family, at) => {
    const partitions = family.partitions.map((partition, index) => {
      const heat = rates.heat[at]?.[index] ?? [];
      return { ...partition, heat, share: sum(heat), family };
    });
    return { ...family, partitions, share: sum(partitions.map((partition) => partition.share)) };
  });
}

const keysOf = ({ lower, upper }) => (lower === null && upper === null ? "all keys" : lower === null ? `keys below ${upper}` : upper === null ? `keys from ${lower}` : `keys from ${lower} to below ${upper}`);
const ownerOf = ({ worker, instance }) => (worker === null ? `instance ${instance}` : `w${worker}`);

function block(partition) {
  const button = make("button", { class: "partition", type: "button", "data-family": partition.family.name, "data-number": partition.number }, make("span", { class: "owner" }), make("span", { class: "cells" }), make("span", { class: "share" }));
  button.addEventListener("click", () => showPartition(partition.family.name, partition.number));
  return button;
}

function updateBlock(button, partition, most) {
  const [owner, cells, share] = button.children;
  const observed = partition.heat.length > 0;
  say(owner, ownerOf(partition));
  say(share, observed ? percent(partition.share) : "");
  button.dataset.owner = ownerOf(partition);
  button.style.setProperty("--hue", partition.worker === null ? "0" : hue(partition.worker));
  keep(cells, [...(observed ? partition.heat : [0]).entries()], ([at]) => at, () => make("span"), (cell, [, heat]) => {
    cell.style.setProperty("--heat", (heat / most).toFixed(3));
  });
  const heat = observed ? `, ${percent(partition.share)} of a worker's time` : "";
  const waits = partition.waiting ? `, ${count(partition.waiting)} waiting for locks` : "";
  button.setAttribute("aria-label", `Partition ${partition.number} of ${partition.family.name}, owned by ${ownerOf(partition)}, ${keysOf(partition)}${heat}${waits}`);
}

function strip() {
  return make("div", { class: "family" }, make("h3", {}, make("span"), make("small")), make("div", { class: "strip" }));
}

function updateStrip(element, family, most) {
  const [title, blocks] = element.children;
  const others = family.tables.filter((table) => table !== family.name);
  say(title.firstElementChild, family.name);
  const rows = family.partitions.reduce((rest, partition) => rest + (partition.rows[0] ?? 0), 0);
  say(title.lastElementChild, `${several(rows, "row")}, ${several(family.partitions.length, "partition")}${others.length ? `, with ${others.join(", ")}` : ""}`);
  keep(blocks, family.partitions, (partition) => partition.number, block, (child, partition) => updateBlock(child, partition, most));
}

export function showPartitions(status) {
  latest = status;
  const families = warm(status);
  const cells = families.flatMap((family) => family.partitions.flatMap((partition) => partition.heat));
  const most = Math.max(1e-9, ...cells);
  const observed = status.activity.loads_from_ns !== null && cells.length > 0;
  say(at("hottest"), observed ? `The warmest takes ${percent(most > 1e-9 ? most : 0)}.` : "This database does not observe loads: it has one worker, or a fixed scheme.");
  const chosen = new Set([...families].sort((a, b) => b.share - a.share).slice(0, all ? families.length : SHOWN).map((family) => family.name));
  keep(at("families"), families.filter((family) => chosen.has(family.name)), (family) => family.name, strip, (child, family) => updateStrip(child, family, most));
  const more = at("all-families");
  more.hidden = families.length <= SHOWN;
  say(more, all ? `Show the ${SHOWN} warmest families` : `Show all ${count(families.length)} families`);
}

at("all-families").addEventListener("click", () => {
  all = !all;
  if (latest) showPartitions(latest);
});

function showPartition(name, number) {
  details(`Partition ${number} of ${name}`, "", () => {
    const partition = warm(latest).find((family) => family.name === name)?.partitions.find((one) => one.number === number);
    if (!partition) {
      say(at("details-text"), "This partition does not exist any more: it was joined to another one, or its table was dropped.");
      pairs(at("details-pairs"), []);
      at("details-more").replaceChildren();
      return;
    }
    say(at("details-text"), `${keysOf(partition)[0].toUpperCase()}${keysOf(partition).slice(1)}.`);
    pairs(at("details-pairs"), [
      ["Owner", ownerOf(partition)],
      ...partition.rows.map((rows, at) => [`Rows of ${partition.family.tables[at]}`, count(rows)]),
      ["Share of a worker's time", partition.heat.length ? percent(partition.share) : "not observed"],
      ["Synchronization points since statistics began", rounded(partition.sync_points)],
      ["Locked keys and ranges", count(partition.locked)],
      ["Waiting for locks", count(partition.waiting)],
      ["Version of the scheme", count(partition.family.version)],
    ]);
    showSubPartitions(partition);
  });
}

function showSubPartitions(partition) {
  const more = at("details-more");
  if (!partition.heat.length) return more.replaceChildren();
  if (!more.firstElementChild) {
    const head = make("tr", {}, make("th", { scope: "col" }, "First key"), make("th", { scope: "col", class: "number" }, "Share"));
    more.append(make("table", {}, make("caption", {}, "Sub-partitions"), make("thead", {}, head), make("tbody")));
  }
  const most = Math.max(1e-9, ...partition.heat);
  const rows = partition.heat.map((heat, at) => ({ at, heat, first: at ? partition.bounds[at - 1] : (partition.lower ?? "the smallest") }));
  keep(more.querySelector("tbody"), rows, (row) => row.at, () => make("tr", {}, make("th", { scope: "row" }), make("td", { class: "number warm" })), (child, row) => {
    say(child.firstElementChild, row.first);
    say(child.lastElementChild, percent(row.heat));
    child.lastElementChild.style.setProperty("--heat", (row.heat / most).toFixed(3));
  });
}
