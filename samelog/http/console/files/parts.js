// What several pages have: figures, tables, states, filters.

import { h } from "./dom.js";

export const head = (title, ...aside) => h("div", { class: "head" }, h("h1", { tabindex: "-1" }, title), aside.length ? h("div", { class: "aside" }, ...aside) : null);

export const panel = (title, ...content) => h("section", { class: "panel" }, h("h2", {}, title), ...content);

export const figure = (label, value, extra, picture) => h("div", { class: "figure" },
  h("div", { class: "label" }, label), h("div", { class: "value" }, value),
  h("div", { class: "extra" }, extra ?? "\u00a0"), picture ?? null);

const TONE_OF = { live: "good", maintenance: "warn", syncing: "warn", initializing: "warn", offline: "bad", Stable: "good", Empty: "", Dead: "bad", critical: "bad", warning: "warn" };
export const state = (text, tone = TONE_OF[text] ?? "warn") => h("span", { class: `state ${tone}` }, text);
export const chip = (text, tone = "") => h("span", { class: `chip ${tone}` }, text);
export const code = (text) => h("code", {}, text);
export const empty = (text) => h("p", { class: "empty" }, text);
export const number = (...content) => ({ content, numeric: true });

// Columns: texts; those of numbers end with "#". Rows: {key, cells}; a cell is content or number().
export function table(caption, columns, found, none = "Nothing.") {
  if (!found.length) return empty(none);
  const shown = found.slice(0, ROWS_MAX);
  const cell = (each, index) => {
    const { content, numeric } = each?.numeric ? each : { content: [each] };
    return h(index === 0 ? "th" : "td", { scope: index === 0 ? "row" : null, class: numeric ? "number" : null }, ...content);
  };
  return [h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": caption }, h("table", {},
    h("caption", { class: "hidden" }, caption),
    h("thead", {}, h("tr", {}, columns.map((name) => h("th", { scope: "col", class: name.endsWith("#") ? "number" : null },
      name === "" ? h("span", { class: "hidden" }, "actions") : name.replace("#", ""))))),
    h("tbody", {}, shown.map((row) => h("tr", { "data-key": row.key, class: row.tone ?? null }, row.cells.map(cell))))))
  , shown.length < found.length ? empty(`${shown.length} of ${found.length} are shown: filter to see others.`) : null];
}

export const ROWS_MAX = 200;
const filters = new Map();

export function filtered(name, found, text, changed) {
  const wanted = (filters.get(name) ?? "").toLowerCase();
  const input = h("input", { type: "search", placeholder: "Filter", "aria-label": `Filter ${name}`,
    oninput: (event) => { filters.set(name, event.target.value); changed(); } });
  return [input, wanted ? found.filter((each) => text(each).toLowerCase().includes(wanted)) : found];
}

export const pairs = (found) => h("dl", { class: "pairs" }, found.map(([name, value]) => [h("dt", {}, name), h("dd", {}, value)]));

// Text of the docs: paragraphs, with `code` in them.
export const prose = (text) => text.split("\n\n").map((part) => h("p", {},
  part.split(/`([^`]+)`/).map((each, index) => (index % 2 ? code(each) : each))));
