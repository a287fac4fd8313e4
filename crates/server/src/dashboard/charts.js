// The charts of what happened over time. Owns the choice of the length of time. Never: a value between two samples.

import { age, at, keep, make, rounded, say, time } from "./page.js";

const RANGES = [[60, "1 minute"], [300, "5 minutes"], [600, "10 minutes"]];
const CHARTS = [
  { title: "Transactions per second", format: rounded, lines: [["committed", "committed"], ["aborted", "aborted"]] },
  { title: "Latency of requests", format: time, lines: [["p50_us", "half within"], ["p99_us", "99% within"]] },
];
const WIDTH = 600;
const HEIGHT = 140;
const SVG = "http://www.w3.org/2000/svg";

/** The shortest time that is drawn, in seconds. */
const SHORTEST = RANGES[0][0];

let range = RANGES[2][0];
let shown = [];

/** The first of 1, 2 and 5 times a power of ten that is not less. */
function ceiling(value) {
  if (value <= 0) return 1;
  const power = 10 ** Math.floor(Math.log10(value));
  return [1, 2, 5, 10].map((step) => step * power).find((step) => step >= value) ?? 10 * power;
}

function svg(tag, attributes) {
  const element = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  return element;
}

function chart({ title, lines }) {
  const picture = svg("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none", role: "img" });
  for (const share of [0, 0.5, 1]) {
    picture.append(svg("line", { class: "grid", x1: 0, x2: WIDTH, y1: share * HEIGHT, y2: share * HEIGHT }));
  }
  lines.forEach((_, at) => picture.append(svg("path", { class: `line line-${at}`, fill: "none" })));
  const legend = make("ul", { class: "legend" }, ...lines.map(([, name], at) => make("li", { class: `key-${at}` }, `${name} `, make("b"))));
  const plot = make("div", { class: "plot" }, picture, make("span", { class: "top" }), make("span", { class: "bottom" }, "0"));
  const axis = make("p", { class: "axis" }, make("span"), make("span", {}, "now"));
  return make("figure", {}, make("figcaption", {}, title), legend, plot, axis);
}

/** The path of a line: one that has no value at a time is interrupted there. */
function path(samples, name, top, length) {
  const end = samples[samples.length - 1].number;
  let drawn = "";
  let broken = true;
  for (const sample of samples) {
    const value = sample[name];
    if (value === null) {
      broken = true;
      continue;
    }
    const x = (WIDTH * (length - (end - sample.number))) / length;
    const y = HEIGHT * (1 - value / top);
    const here = `${x.toFixed(1)} ${y.toFixed(1)}`;
    // A value without neighbours is a point.
    drawn += broken ? `M${here}L${here}` : `L${here}`;
    broken = false;
  }
  return drawn;
}

function update(figure, { title, format, lines }) {
  const last = shown[shown.length - 1];
  const samples = shown.filter((sample) => sample.number > last.number - range);
  const values = (name) => samples.map((sample) => sample[name]).filter((value) => value !== null);
  // A server that has not run for so long is shown over the time that it has.
  const length = Math.min(range, Math.max(SHORTEST, samples.length));
  const top = ceiling(Math.max(0, ...lines.flatMap(([name]) => values(name))));
  const paths = figure.querySelectorAll("path");
  const texts = lines.map(([name, meaning], at) => {
    paths[at].setAttribute("d", path(samples, name, top, length));
    const all = values(name);
    const now = last[name] === null ? "–" : format(last[name]);
    say(figure.querySelector(`.key-${at} b`), now);
    return all.length ? `${meaning}: now ${now}, least ${format(Math.min(...all))}, most ${format(Math.max(...all))}` : `${meaning}: nothing`;
  });
  const isEmpty = lines.every(([name]) => values(name).length === 0);
  say(figure.querySelector(".top"), isEmpty ? "nothing in this time" : format(top));
  say(figure.querySelector(".axis").firstElementChild, `${age(length)} ago`);
  figure.querySelector("svg").setAttribute("aria-label", `${title}. ${texts.join("; ")}.`);
}

export function showCharts(samples) {
  shown = samples;
  keep(at("ranges"), RANGES, ([seconds]) => seconds, ([seconds, name]) => {
    const button = make("button", { type: "button" }, name);
    button.addEventListener("click", () => {
      range = seconds;
      showCharts(shown);
    });
    return button;
  }, (button, [seconds]) => button.setAttribute("aria-pressed", String(seconds === range)));
  if (samples.length) keep(at("charts"), CHARTS, (one) => one.title, chart, update);
}
