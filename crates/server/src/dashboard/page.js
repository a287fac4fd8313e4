// Small tools for the parts of the page: elements, lists that are kept in place, numbers as people read them.
//
// Owns no number. Never: markup from data; texts are set as texts.

/** Returns the element with an id. */
export const at = (id) => document.getElementById(id);

/** Makes an element with attributes and children; a child that is no node becomes a text. */
export function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value !== undefined && value !== false) element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children);
  return element;
}

/** Sets a text, if it is another one: what stays is not read out again, and a selection in it stays. */
export function say(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

/**
 * Makes the children of an element those of a list, in its order. A child stays as long as its key does, with the keyboard's focus if it has it:
 * `create` makes one, `update` brings it up to date.
 */
export function keep(parent, items, keyOf, create, update) {
  const known = new Map([...parent.children].map((child) => [child.dataset.key, child]));
  let next = parent.firstElementChild;
  for (const item of items) {
    const key = String(keyOf(item));
    let child = known.get(key);
    if (child) {
      known.delete(key);
    } else {
      child = create(item);
      child.dataset.key = key;
    }
    if (child === next) {
      next = next.nextElementSibling;
    } else {
      parent.insertBefore(child, next);
    }
    update(child, item);
  }
  for (const gone of known.values()) gone.remove();
}

/** Shows pairs of a name and a text in a list of descriptions. */
export function pairs(list, entries) {
  keep(list, entries, ([name]) => name, ([name]) => make("div", {}, make("dt", {}, name), make("dd")), (child, [, text]) => {
    say(child.lastElementChild, text);
  });
}

const whole = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const short = new Intl.NumberFormat("en", { maximumSignificantDigits: 3 });

const tenths = new Intl.NumberFormat("en", { maximumFractionDigits: 1 });

/** A count, with all its digits. */
export const count = (number) => whole.format(number);

/** A rate or a measure: three digits say enough of it, and thousands are whole. */
export const rounded = (number) => (number >= 1000 ? whole : short).format(number);

/** A share: a tenth of a percent is as much as anybody compares. */
export const percent = (share) => (share > 0 && share < 0.0005 ? "<0.1%" : `${tenths.format(100 * share)}%`);

/** A number of things by their name. */
export const several = (number, name) => `${count(number)} ${name}${number === 1 ? "" : "s"}`;

/** A time of so many microseconds. */
export function time(microseconds) {
  if (microseconds === null || microseconds === undefined) return "–";
  if (microseconds >= 1e6) return `${short.format(microseconds / 1e6)} s`;
  if (microseconds >= 1e3) return `${short.format(microseconds / 1e3)} ms`;
  return `${short.format(microseconds)} µs`;
}

/** An age or a length of time of so many seconds. */
export function age(seconds) {
  const [hours, minutes, rest] = [seconds / 3600, (seconds / 60) % 60, seconds % 60].map((part) => Math.max(0, Math.floor(part)));
  if (hours) return minutes ? `${hours} h ${minutes} min` : `${hours} h`;
  if (minutes) return rest ? `${minutes} min ${rest} s` : `${minutes} min`;
  return `${rest} s`;
}

/** The colour of a worker, by its number: neighbours differ much. A label always says the number, too. */
export const hue = (worker) => String((worker * 137 + 210) % 360);

/** Opens the window of details. `fill` shows them now, and again after each refresh. */
let refreshed = null;
export function details(title, text, fill) {
  say(at("details-title"), title);
  say(at("details-text"), text);
  at("details-pairs").replaceChildren();
  at("details-more").replaceChildren();
  refreshed = fill;
  fill();
  at("details").showModal();
}

/** Brings the window of details up to date, if it is open. */
export function refreshDetails() {
  if (at("details").open && refreshed) refreshed();
}
