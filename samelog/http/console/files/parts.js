// What several pages have: figures, tables, states, filters.

import { h } from "./dom.js";
import { count } from "./format.js";

export const head = (title, ...aside) => h("div", { class: "head" },
  h("h1", { tabindex: "-1" }, title),
  aside.length ? h("div", { class: "aside" }, ...aside) : null);

export const panel = (title, ...content) => h("section", { class: "panel" }, h("h2", {}, title), ...content);

export const figure = (label, value, extra, picture) => h("div", { class: "figure" },
  h("div", { class: "label" }, label), h("div", { class: "value" }, value),
  h("div", { class: "extra" }, extra ?? "\u00a0"), picture ?? null);

const TONE_OF = {
  live: "good", maintenance: "warn", syncing: "warn", initializing: "warn", offline: "bad",
  Stable: "good", Empty: "", Dead: "bad",
  critical: "bad", warning: "warn",
};
export const state = (text, tone = TONE_OF[text] ?? "warn") => h("span", { class: `state ${tone}` }, text);
export const chip = (text, tone = "") => h("span", { class: `chip ${tone}` }, text);
export const code = (text) => h("code", {}, text);
export const empty = (text) => h("p", { class: "empty" }, text);
export const none = (text) => h("p", { class: "none" }, text);

// Cells: numbers are on the right; a text may have several lines, and a list too, between its words.
export const number = (...content) => ({ content, kind: "number" });
export const text = (...content) => ({ content, kind: "text" });
export const list = (words) => (words.length
  ? text(words.map((each, index) => [index ? ", " : "", h("span", { class: "word" }, each)])) : "–");

export function partitionsState(found) {
  const halted = found.filter((each) => each.halted).length;
  const missing = found.filter((each) => each.wanted_offset > each.end_offset).length;
  if (halted) return state(`${halted} halted`, "bad");
  return missing ? state(`${missing} lack records`, "bad") : state("ok", "good");
}

// Pairs of a colour's class and what it means.
export const legend = (found) => h("ul", { class: "legend" },
  found.map(([tone, ...text]) => h("li", {}, h("span", { class: `swatch ${tone}` }), text)));

export const choices = (values, chosen) => values.map((each) => (
  h("option", { value: each, selected: String(each) === String(chosen) }, each)));

const PARTITIONS_MAX = 1000;
export const partitionChoices = (partitions, chosen) => choices(
  Array.from({ length: Math.min(partitions, PARTITIONS_MAX) }, (_, each) => each), chosen ?? 0);

const heading = (name) => h("th", { scope: "col", class: name.endsWith("#") ? "number" : null },
  name === "" ? h("span", { class: "hidden" }, "actions") : name.replace("#", ""));

// Of first columns: what is counted, and names that may break.
const [DIGITS, LONG] = [/^\d[\d\u202f: -]*$/, 28];

function cell(each, index, columns) {
  const { content, kind = columns[index] === "" ? "actions" : null } = each?.kind ? each : { content: [each] };
  const [tag, scope] = index === 0 ? ["th", "row"] : ["td", null];
  const made = h(tag, { scope, class: kind }, ...content);
  if (index === 0) made.classList.toggle("digits", DIGITS.test(made.textContent));
  if (index === 0) made.classList.toggle("long", made.textContent.length > LONG);
  return made;
}

const ROWS_MAX = 200;

// Columns: names; those of numbers end with "#". Rows: {key, cells}; a cell is content, number(), text() or list().
export function table(caption, columns, found, lacking = "Nothing.") {
  if (!found.length) return none(lacking);
  const shown = found.slice(0, ROWS_MAX).map((row) => (
    h("tr", { "data-key": row.key }, row.cells.map((each, index) => cell(each, index, columns)))));
  const rest = found.length - shown.length;
  return [
    h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": caption }, h("table", {},
      h("caption", { class: "hidden" }, caption),
      h("thead", {}, h("tr", {}, columns.map(heading))),
      h("tbody", {}, shown))),
    rest ? empty(`${shown.length} of ${found.length} are shown: filter to see others.`) : null,
  ];
}

// A row of a partition: the counts in these fields, and cells behind them.
export const ofPartition = (each, fields, ...cells) => ({
  key: String(each.partition),
  cells: [String(each.partition), ...fields.map((name) => number(count(each[name]))), ...cells],
});

const filters = new Map();

export function filtered(name, found, text, changed) {
  const wanted = (filters.get(name) ?? "").toLowerCase();
  const oninput = (event) => {
    filters.set(name, event.target.value);
    changed();
  };
  const input = h("input", { type: "search", placeholder: "Filter", "aria-label": `Filter ${name}`, oninput });
  return [input, wanted ? found.filter((each) => text(each).toLowerCase().includes(wanted)) : found];
}

export const pairs = (found) => h("dl", { class: "pairs" },
  found.map(([name, value]) => [h("dt", {}, name), h("dd", {}, value)]));

// Text of the docs: paragraphs, with `code` in them.
export const prose = (text) => text.split("\n\n").map((part) => h("p", {},
  part.split(/`([^`]+)`/).map((each, index) => (index % 2 ? code(each) : each))));
